package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/topology"
)

const replayGoal = 500_000

// runReplay measures "varve replay" of two logs: of records that add a file and
// no more, and of records that delete rows of older files beside it.
func runReplay(ctx context.Context, o *Options) ([]Result, error) {
	var out []Result
	for _, blocks := range []int{0, appendBlocks} {
		r, err := o.replay(ctx, blocks)
		if err != nil {
			return nil, err
		}
		out = append(out, *r)
	}
	return out, nil
}

// replay measures "varve replay" of a log of AppendRows from the broker into an
// empty state, on disk at the end, beside reading the same topic and doing
// nothing with it.
func (o *Options) replay(ctx context.Context, blocks int) (_ *Result, err error) {
	name, shape := "replay", fmt.Sprintf("a file and %d delete blocks", blocks)
	if blocks == 0 {
		name, shape = "replay.files", "a file"
	}
	dir := filepath.Join(o.dir, name)
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	log, err := newCommitLog(dir, o.Seed, o.Rows, blocks)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d tables, %d shards each; a record has %s, %d bytes", commitTables, commitShards, shape, log.appends.bytes()/int64(log.appends.len()))
	deployment := "bench-" + strconv.FormatUint(rand.Uint64(), 36)
	topic := deployment + ".transactions"
	admin, err := topology.NewAdmin(o.client)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if _, err := admin.EnsureSourceTopic(ctx, topic, 1); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.dropTopics(topic)) }()
	if err := o.produceLog(ctx, topic, log); err != nil {
		return nil, err
	}
	o.Logger.Info("log made", "records", log.appends.len())
	// First whoever finds the topic cold: the broker then has it in memory for both.
	if _, err := o.consume(ctx, topic, func([]topology.LogRecord) error { return nil }); err != nil {
		return nil, err
	}
	plain, err := o.consume(ctx, topic, func([]topology.LogRecord) error { return nil })
	if err != nil {
		return nil, err
	}
	stopProfile, err := startProfile(o.CPUProfile)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stopProfile()) }()
	var got *topology.Replayed
	cpu, err := cpuOf(ctx, func() error {
		got, err = topology.Replay(ctx, topology.ReplayOptions{
			Brokers: o.client.Brokers, Client: o.client, Deployment: deployment, State: filepath.Join(dir, "replayed"), StateOnly: true, Logger: o.Logger,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	if want := int64(len(log.setup) + log.appends.len()); got.Records != want {
		return nil, fmt.Errorf("%d records were replayed, not %d", got.Records, want)
	}
	ours := got.Elapsed.Seconds()
	n := float64(len(log.setup) + log.appends.len())
	r := &Result{
		Bench: name, Figure: n / ours, Unit: "records/s", Better: Higher, Goal: replayGoal,
		Beside: Beside{"reading the same topic", n / plain}, CPU: cpu, Setup: o.setup(1, "none"),
	}
	r.Setup.Note = note
	r.RSSPeak, err = rssPeak()
	return r, err
}

// produceLog writes the whole log into a topic of one partition.
func (o *Options) produceLog(ctx context.Context, topic string, log *commitLog) error {
	p, err := topology.NewLogProducer(o.client, topology.ProducerOptions{})
	if err != nil {
		return err
	}
	defer p.Close()
	// One that is acknowledged has all before it acknowledged.
	for i := range log.appends.len() + len(log.setup) {
		var r statestore.Record
		if i < len(log.setup) {
			r = log.setup[i]
		} else {
			r = log.appends.at(i - len(log.setup))
		}
		if i < len(log.setup) || i == log.appends.len()+len(log.setup)-1 {
			if off, err := p.AppendSync(ctx, topic, 0, entryOf(&r)); err != nil {
				return err
			} else if off != int64(i) {
				return fmt.Errorf("record %d is at offset %d of a new topic", i, off)
			}
			continue
		}
		p.Append(ctx, topic, 0, entryOf(&r), func(int64, error) {}) // the last offset tells whether one was lost
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// consume reads a topic of one partition from its beginning to its end: seconds.
func (o *Options) consume(ctx context.Context, topic string, take func([]topology.LogRecord) error) (float64, error) {
	began := time.Now()
	r, err := topology.OpenLogReader(ctx, o.client, topology.ReaderOptions{Topic: topic, MaxWait: 100 * time.Millisecond})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for done := false; !done; {
		rs, err := r.Poll(ctx, time.Second, 0)
		if err != nil {
			return 0, err
		}
		if len(rs) > 0 {
			if err := take(rs); err != nil {
				return 0, err
			}
		}
		done = r.HighWatermark() > 0 && r.Next() >= r.HighWatermark()
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	return time.Since(began).Seconds(), nil
}
