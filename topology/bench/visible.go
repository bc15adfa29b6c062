package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology"
)

const (
	visibleCommitMs  = 200
	visiblePerSecond = 10_000
	visibleSeconds   = 20
	// visibleEvery is how often a row is deleted whose end is watched.
	visibleEvery = 50 * time.Millisecond
	// visiblePoll is how often the reader looks for a new version.
	visiblePoll = 2 * time.Millisecond
	// visibleMost ends a run whose deletes do not show.
	visibleMost = 2 * time.Minute
)

// runVisible measures how long a delete takes from its event to a reader that
// knows the table's folder and nothing else: hint, metadata, manifests, vectors.
// Uniform upserts go on beside it.
func runVisible(ctx context.Context, o *Options) (_ []Result, err error) {
	seconds := visibleSeconds
	if o.Quick {
		seconds = 2
	}
	marks := seconds * int(time.Second/visibleEvery)
	r := rand.New(rand.NewPCG(o.Seed, 4))
	t, err := o.openTable(ctx, source.DebeziumJSON, visibleCommitMs, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.drop()) }()
	// Ids below zero are the rows that will be deleted.
	first := func(i int64) int64 { return i - int64(marks) }
	if err := t.feed(ctx, o.Rows+int64(marks), r, first); err != nil {
		return nil, err
	}
	spec, err := t.spec(filepath.Join(o.dir, "node"))
	if err != nil {
		return nil, err
	}
	spec.Load = true
	if _, err := o.node(ctx, spec); err != nil {
		return nil, err
	}
	lake, err := o.lake(spec.Data)
	if err != nil {
		return nil, err
	}
	store, err := objstore.Open(ctx, lake)
	if err != nil {
		return nil, err
	}
	f := newFreshReader(store, t.def.Name)
	if live, err := f.live(ctx); err != nil {
		return nil, err
	} else if len(live) != marks {
		return nil, fmt.Errorf("%d of %d rows that are to be deleted are in the table", len(live), marks)
	}
	o.Logger.Info("first rows loaded", "rows", o.Rows)
	spec.Load, spec.CPUProfile = false, o.CPUProfile
	n, err := o.startNode(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer n.abandon()
	v := &visibleRun{o: o, enc: t.enc, topic: t.def.SourceTopic, r: r, sent: make([]time.Time, marks), taken: make([]time.Duration, marks)}
	if err := v.run(ctx, f); err != nil {
		return nil, err
	}
	rep, err := n.result(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(v.taken)
	var out []Result
	for _, p := range []struct {
		name string
		at   int
	}{{"p50", 50}, {"p99", 99}} {
		x := Result{
			Bench: "visible." + p.name, Figure: float64(v.taken[(len(v.taken)-1)*p.at/100].Microseconds()) / 1000, Unit: "ms", Better: Lower,
			Goal: 2 * visibleCommitMs, Beside: Beside{"the commit interval", visibleCommitMs},
			CPU: rep.CPU, RSSPeak: rep.RSSPeak, Setup: o.setup(1, "local"),
		}
		x.Setup.Note = fmt.Sprintf("%d deletes over %.0f s beside %d upserts/s (%.0f reached)", marks, v.wall.Seconds(), visiblePerSecond,
			float64(v.upserts)/v.wall.Seconds())
		out = append(out, x)
	}
	return out, nil
}

// visibleRun deletes marked rows and watches the table.
type visibleRun struct {
	o     *Options
	enc   encoder
	topic string
	r     *rand.Rand

	mu      sync.Mutex
	sent    []time.Time // when mark i's delete was given to the producer
	taken   []time.Duration
	upserts int64
	wall    time.Duration
}

func (v *visibleRun) run(ctx context.Context, f *freshReader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fed := make(chan error, 1)
	go func() { fed <- v.feed(ctx) }()
	err := v.watch(ctx, f, fed)
	cancel()
	return err
}

// feed produces upserts at their rate, and the deletes among them.
func (v *visibleRun) feed(ctx context.Context) error {
	p, err := topology.NewLogProducer(v.o.client, topology.ProducerOptions{MaxBatchBytes: topology.DefaultSourceBatchBytes})
	if err != nil {
		return err
	}
	defer p.Close()
	failed := make(chan error, 1)
	done := func(_ int64, err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	}
	var mem slab
	start := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for mark := 0; mark < len(v.sent); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case <-tick.C:
		}
		at := time.Since(start)
		for due := int64(at.Seconds() * visiblePerSecond); v.upserts < due; v.upserts++ {
			c := drawCustomer(v.r, v.r.Int64N(v.o.Rows))
			e, err := v.enc.upsert(mem.room(), &c)
			if err != nil {
				return err
			}
			e = mem.keep(e)
			p.Append(ctx, v.topic, 0, topology.Entry{Key: mem.keyOf(c.id), Value: e}, done)
		}
		for ; mark < len(v.sent) && at >= time.Duration(mark)*visibleEvery; mark++ {
			id := int64(mark) - int64(len(v.sent))
			e, err := v.enc.remove(mem.room(), id)
			if err != nil {
				return err
			}
			e = mem.keep(e)
			v.mu.Lock()
			v.sent[mark] = time.Now()
			v.mu.Unlock()
			p.Append(ctx, v.topic, 0, topology.Entry{Key: mem.keyOf(id), Value: e}, done)
		}
	}
	v.wall = time.Since(start)
	return p.Flush(ctx)
}

// watch reads the table afresh whenever it changed, until no mark is left.
func (v *visibleRun) watch(ctx context.Context, f *freshReader, fed <-chan error) error {
	deadline := time.Now().Add(visibleMost)
	left := len(v.sent)
	for left > 0 {
		select {
		case err := <-fed:
			if err != nil {
				return err
			}
			fed = nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(visiblePoll):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d deletes were not in the table %s after the first", left, visibleMost)
		}
		changed, err := f.changed(ctx)
		if err != nil {
			return err
		}
		if !changed {
			continue
		}
		live, err := f.live(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		v.mu.Lock()
		left = 0
		for i := range v.sent {
			switch {
			case live[int64(i)-int64(len(v.sent))]:
				left++
			case v.taken[i] == 0 && !v.sent[i].IsZero():
				v.taken[i] = now.Sub(v.sent[i])
			}
		}
		v.mu.Unlock()
	}
	if fed == nil {
		return nil
	}
	return <-fed
}
