package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/topology"
)

const (
	commitGoal = 100_000
	applyGoal  = 200_000
	// commitEvery is how many records go into a batch; ours and the plain way
	// take turns with so many.
	commitEvery = 20_000
	// flushEvery is after how many batches the plain way flushes: it has no log,
	// but ours writes back about as often by itself.
	flushEvery = 5
	// onePerCommit is how many records the loop with a commit a record gets.
	onePerCommit = 1_000
)

// runCommit measures a log of AppendRows twice: from the first append to the
// last outcome read, through the broker and a node with the state alone; and
// the state machine without either.
func runCommit(ctx context.Context, o *Options) ([]Result, error) {
	log, err := newCommitLog(o.dir, o.Seed, o.Rows, appendBlocks)
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d tables, %d shards each; a record has a file and %d delete blocks, %d bytes",
		commitTables, commitShards, appendBlocks, log.appends.bytes()/int64(log.appends.len()))
	o.Logger.Info("log made", "records", log.appends.len())
	through, err := o.commitThrough(ctx, log)
	if err != nil {
		return nil, err
	}
	alone, err := o.commitAlone(ctx, log)
	if err != nil {
		return nil, err
	}
	// What the way through the broker costs beside applying.
	through[1].Beside = Beside{"apply alone", alone.Figure}
	out := append(through, *alone)
	for i := range out {
		out[i].Setup.Note = note
	}
	return out, nil
}

// commitThrough: produced, applied, durable: the outcomes topic has them all.
func (o *Options) commitThrough(ctx context.Context, log *commitLog) (_ []Result, err error) {
	deployment := "bench-" + strconv.FormatUint(rand.Uint64(), 36)
	topics, err := topology.NewTopics(deployment, 1, 0, o.broker == "embedded")
	if err != nil {
		return nil, err
	}
	admin, err := topology.NewAdmin(o.client)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	// The node makes topics and genesis; all else of the log is ours.
	n, err := o.startNode(ctx, nodeSpec{
		Deployment: deployment, Data: filepath.Join(o.dir, "state"), Partitions: 1, Roles: []string{topology.RoleState}, CPUProfile: o.CPUProfile,
	})
	if err != nil {
		return nil, err
	}
	defer n.abandon()
	defer func() { err = errors.Join(err, o.dropTopics(topicsOf(deployment)...)) }()
	p, err := topology.NewLogProducer(o.client, topology.ProducerOptions{})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	for i := 1; i < len(log.setup); i++ {
		if off, err := p.AppendSync(ctx, topics.Transactions, 0, entryOf(&log.setup[i])); err != nil {
			return nil, err
		} else if off != int64(i) {
			return nil, fmt.Errorf("record %d is at offset %d of a new topic", i, off)
		}
	}
	start := time.Now()
	failed := make(chan error, 1)
	go func() {
		for i := range log.appends.len() {
			r := log.appends.at(i)
			p.Append(ctx, topics.Transactions, 0, entryOf(&r), func(_ int64, err error) {
				if err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			})
			if ctx.Err() != nil {
				return
			}
		}
	}()
	if err := o.readOutcomes(ctx, topics, log, failed); err != nil {
		return nil, err
	}
	wall := time.Since(start).Seconds()
	r, err := n.result(ctx)
	if err != nil {
		return nil, err
	}
	o.Logger.Info("log applied through the broker", "wall_s", wall, "cpu_s", r.CPU)
	one, err := o.commitOneByOne(ctx, topics, admin)
	if err != nil {
		return nil, err
	}
	end := Result{
		Bench: "commit", Figure: float64(log.appends.len()) / wall, Unit: "records/s", Better: Higher, Goal: commitGoal,
		Beside: Beside{"a Pebble key per file reference, one synced commit and one outcome a record", one},
		CPU:    r.CPU, RSSPeak: r.RSSPeak, Setup: o.setup(1, "none"),
	}
	node := end
	node.Bench, node.Figure, node.Unit = "commit.node", float64(log.appends.len())/r.CPU, "records/cpu-s"
	node.Goal = commitGoal
	return []Result{end, node}, nil
}

func entryOf(r *statestore.Record) topology.Entry {
	return topology.Entry{Key: r.Key, Value: r.Value, Headers: []topology.Header{{Key: record.HeaderKey, Value: r.Header}}}
}

// readOutcomes follows the outcomes topic to the last record's.
func (o *Options) readOutcomes(ctx context.Context, t topology.Topics, log *commitLog, failed <-chan error) error {
	r, err := topology.OpenLogReader(ctx, o.client, topology.ReaderOptions{Topic: t.Outcomes, MaxWait: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	defer r.Close()
	last := int64(len(log.setup) + log.appends.len() - 1)
	return followOutcomes(ctx, r, failed, func(m *record.OutcomeMessage) bool { return m.Offset == last })
}

// followOutcomes reads outcomes, of which each must be accepted, until take says
// that it was the last, or something comes from failed.
func followOutcomes(ctx context.Context, r *topology.LogReader, failed <-chan error, take func(*record.OutcomeMessage) (last bool)) error {
	for {
		rs, err := r.Poll(ctx, 50*time.Millisecond, 0)
		if err != nil {
			return err
		}
		for i := range rs {
			var m record.OutcomeMessage
			if err := record.DecodeOutcomeMessage(rs[i].Key, rs[i].Value, &m); err != nil {
				return err
			}
			if m.Outcome.Code != record.Accepted {
				return fmt.Errorf("record %d was %s: %s", m.Offset, m.Outcome.Code, m.Outcome.Reason)
			}
			if take(&m) {
				return nil
			}
		}
		select {
		case err := <-failed:
			return err
		default:
		}
	}
}

// commitOneByOne applies records of the same log in a loop that commits and
// answers each before it takes the next: records a second.
func (o *Options) commitOneByOne(ctx context.Context, t topology.Topics, admin *topology.Admin) (_ float64, err error) {
	answers := t.Deployment + ".answers"
	if _, err := admin.EnsureSourceTopic(ctx, answers, 1); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, o.dropTopics(answers)) }()
	p, err := topology.NewLogProducer(o.client, topology.ProducerOptions{Linger: -1, MaxBatchBytes: topology.DefaultSourceBatchBytes})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	r, err := topology.OpenLogReader(ctx, o.client, topology.ReaderOptions{Topic: t.Transactions})
	if err != nil {
		return 0, err
	}
	defer r.Close()
	st, err := openPlainState(filepath.Join(o.dir, "plain-synced"), true, o.Logger)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	limit := onePerCommit
	if o.Quick {
		limit = 50
	}
	done := 0
	start := time.Now()
	for done < limit && r.Next() < r.HighWatermark() {
		rs, err := r.Poll(ctx, time.Second, 512)
		if err != nil {
			return 0, err
		}
		for i := range rs {
			x := statestore.Record{Offset: rs[i].Offset, Key: rs[i].Key, Value: rs[i].Value, Header: rs[i].Headers[0].Value}
			if _, typ, _, _, ok := record.PeekHeader(x.Header); !ok || typ != record.TypeAppendRows {
				start = time.Now()
				continue
			}
			out, err := st.apply(&x)
			if err != nil {
				return 0, err
			}
			if err := st.commit(pebble.Sync); err != nil {
				return 0, err
			}
			if _, err := p.AppendSync(ctx, answers, 0, topology.Entry{Value: out}); err != nil {
				return 0, err
			}
			if done++; done == limit {
				break
			}
		}
	}
	return float64(done) / time.Since(start).Seconds(), nil
}

// commitAlone applies the log without a broker, in turns with the plain way.
func (o *Options) commitAlone(ctx context.Context, log *commitLog) (_ *Result, err error) {
	st, err := statestore.Open(filepath.Join(o.dir, "alone"), statestore.Options{Log: o.Logger})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	plain, err := openPlainState(filepath.Join(o.dir, "plain-state"), false, o.Logger)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plain.close()) }()
	for i := range log.setup {
		if _, err := st.Apply(&log.setup[i]); err != nil {
			return nil, err
		}
	}
	var ours, theirs float64
	var done int64
	all := &log.appends
	for turn, to := 1, 0; to < all.len(); turn++ {
		from := to
		to = min(from+commitEvery, all.len())
		last := to == all.len()
		flush := turn%flushEvery == 0 || last
		used, err := cpuOf(ctx, func() error { return applyAll(st, all, from, to, last) })
		if err != nil {
			return nil, err
		}
		ours += used
		if used, err = cpuOf(ctx, func() error { return plainAll(plain, all, from, to, flush) }); err != nil {
			return nil, err
		}
		theirs += used
		done += int64(to - from)
	}
	x := &Result{
		Bench: "commit.apply", Figure: float64(done) / ours, Unit: "records/cpu-s", Better: Higher, Goal: applyGoal,
		Beside: Beside{"a Pebble key per file reference, index entry, outcome and vector, a batch for every 20,000 records", float64(done) / theirs},
		CPU:    ours, Setup: o.setup(1, "none"),
	}
	x.Setup.Broker = "none"
	x.RSSPeak, err = rssPeak()
	return x, err
}

func applyAll(st *statestore.Store, log *packedLog, from, to int, last bool) error {
	for i := from; i < to; i++ {
		r := log.at(i)
		out, err := st.Apply(&r)
		if err != nil {
			return err
		}
		if out.Outcome.Code != record.Accepted {
			return fmt.Errorf("record %d was %s: %s", r.Offset, out.Outcome.Code, out.Outcome.Reason)
		}
	}
	if _, err := st.Commit(); err != nil {
		return err
	}
	// As in a node: what the broker acknowledged leaves the outbox with the
	// commit after it.
	st.Sent(log.first + int64(from) - 1)
	if last {
		return st.Flush()
	}
	return nil
}

func plainAll(st *plainState, log *packedLog, from, to int, flush bool) error {
	for i := from; i < to; i++ {
		r := log.at(i)
		if _, err := st.apply(&r); err != nil {
			return err
		}
	}
	if err := st.commit(pebble.NoSync); err != nil {
		return err
	}
	if flush {
		return st.db.Flush()
	}
	return nil
}
