package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"

	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
)

const (
	scaleShards = 4
	// scaleMost is how much more processor time an event may take with
	// scaleShards than with one.
	scaleMost = 1.15
	// scaleCommitMs lets flushes be cut by their size, on a busy machine too.
	scaleCommitMs = 20_000
)

// runScale loads the same rows and updates them twice: by one process that has
// the only shard, and by four of which each has a shard and the first also the
// state and the publisher. Processor time of all of them counts, by events.
func runScale(ctx context.Context, o *Options) ([]Result, error) {
	one, err := o.scale(ctx, 1)
	if err != nil {
		return nil, err
	}
	four, err := o.scale(ctx, scaleShards)
	if err != nil {
		return nil, err
	}
	four.Goal = scaleMost * one.Figure
	four.Beside = Beside{"one shard in one process", one.Figure}
	if four.Figure > four.Goal && !o.Quick {
		err = fmt.Errorf("%w: %d shards take %.1f cpu-s for a million events, one takes %.1f", ErrMissed, scaleShards, four.Figure, one.Figure)
	}
	return []Result{*four}, err
}

func (o *Options) scale(ctx context.Context, shards int) (_ *Result, err error) {
	name := fmt.Sprint("scale-", shards)
	r := rand.New(rand.NewPCG(o.Seed, 7))
	commitMs := int64(scaleCommitMs)
	if o.Quick {
		commitMs = 500
	}
	t, err := o.openTable(ctx, source.DebeziumJSON, commitMs, shards)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.drop()) }()
	order := newScattered(o.Rows)
	ids := func(i int64) int64 { // each row, then as many updates of any
		if i < o.Rows {
			return order.at(i)
		}
		return r.Int64N(o.Rows)
	}
	if err := o.feedBy(ctx, t.def.SourceTopic, spread(t.enc, 2*o.Rows, shards, r, ids)); err != nil {
		return nil, err
	}
	o.Logger.Info("events produced", "shards", shards, "events", 2*o.Rows)
	lake, err := o.lake(filepath.Join(o.dir, name))
	if err != nil {
		return nil, err
	}
	var nodes []*nodeProcess
	defer func() {
		for _, p := range nodes {
			p.abandon()
		}
	}()
	for i := range shards {
		s, err := t.spec(filepath.Join(o.dir, name+"-"+strconv.Itoa(i)))
		if err != nil {
			return nil, err
		}
		s.Warehouse, s.Groups, s.NodeID, s.SourcePartitions = lake, true, fmt.Sprint("node-", i), []int32{int32(i)}
		s.Roles = []string{topology.RoleIngest}
		s.Load = true // each flushes what it has when it has read to the end, and waits for no interval
		if i == 0 {
			s.Roles = []string{topology.RoleIngest, topology.RoleState, topology.RolePublisher}
		}
		if o.CPUProfile != "" {
			s.CPUProfile = o.CPUProfile + "." + name + "-" + strconv.Itoa(i)
		}
		p, err := o.startNode(ctx, s)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, p)
	}
	var cpu float64
	var rss, files int64
	each := ""
	for i, p := range nodes {
		n, err := p.result(ctx)
		if err != nil {
			return nil, err
		}
		if i == 0 && n.Rows != o.Rows {
			return nil, fmt.Errorf("the table has %d rows after %d events, not %d", n.Rows, 2*o.Rows, o.Rows)
		}
		cpu, rss, files = cpu+n.CPU, rss+n.RSSPeak, max(files, n.Files)
		each += fmt.Sprintf(" %.1f", n.CPU)
	}
	o.Logger.Info("loaded", "shards", shards, "cpu_s", cpu, "by_process", each, "files", files)
	x := &Result{
		Bench: fmt.Sprintf("scale.%d", shards), Figure: cpu / float64(2*o.Rows) * 1e6, Unit: "cpu-s/1M events", Better: Lower,
		CPU: cpu, RSSPeak: rss, Setup: o.setup(1, "local"),
	}
	x.Setup.Note = fmt.Sprintf("%d shards, as many processes (cpu-s%s), %d rows and as many uniform updates, %d files at the end", shards, each, o.Rows, files)
	return x, nil
}

// spread is events over the partitions of a topic, a key always in the same.
func spread(enc encoder, n int64, partitions int, r *rand.Rand, id func(i int64) int64) func() (int32, topology.Entry, bool, error) {
	var part int32
	next := events(enc, n, r, func(i int64) int64 {
		x := id(i)
		part = int32(x % int64(partitions))
		return x
	})
	return func() (int32, topology.Entry, bool, error) {
		e, ok, err := next()
		return part, e, ok, err
	}
}
