package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"github.com/varve-io/varve/schemas/source"
)

const (
	upsertJSONGoal = 200_000
	upsertAvroGoal = 300_000
	// maxUpdates of the measured part: some merges of the key index lie in it.
	maxUpdates = 4_000_000
	// plainUpdates are enough for the plain way: it is slow, and its cost
	// settles soon.
	plainUpdates = 200_000
	// upsertCommitMs lets flushes be cut by their size, as they are when a node
	// has something to catch up with, whatever else the machine does.
	upsertCommitMs = 10_000
)

// runUpsert loads a table of so many rows, then measures uniform updates of it.
// Events are in the source topic before the measured node starts: what the
// node's process takes is reading, decoding, judging, writing, committing,
// publishing, and no producing.
func runUpsert(ctx context.Context, o *Options) ([]Result, error) {
	var out []Result
	for _, f := range []struct {
		format string
		goal   float64
	}{{source.DebeziumJSON, upsertJSONGoal}, {source.VarveAvro, upsertAvroGoal}} {
		r, err := o.upsert(ctx, f.format)
		if err != nil {
			return nil, err
		}
		r.Goal = f.goal
		out = append(out, *r)
	}
	return out, nil
}

func (o *Options) upsert(ctx context.Context, format string) (_ *Result, err error) {
	updates := min(o.Rows, maxUpdates)
	r := rand.New(rand.NewPCG(o.Seed, 1))
	commitMs := int64(upsertCommitMs)
	if o.Quick {
		commitMs = 500
	}
	t, err := o.openTable(ctx, format, commitMs, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.drop()) }()
	order := newScattered(o.Rows)
	if err := t.feed(ctx, o.Rows, r, order.at); err != nil {
		return nil, err
	}
	o.Logger.Info("first rows produced", "format", format, "rows", o.Rows)
	spec, err := t.spec(filepath.Join(o.dir, format))
	if err != nil {
		return nil, err
	}
	spec.Load = true
	first, err := o.node(ctx, spec)
	if err != nil {
		return nil, err
	}
	o.Logger.Info("first rows loaded", "rows_per_cpu_s", int64(float64(o.Rows)/first.CPU), "rss_peak_bytes", first.RSSPeak, "files", first.Files)
	if first.Rows != o.Rows {
		return nil, fmt.Errorf("the table has %d rows after the first load, not %d", first.Rows, o.Rows)
	}
	uniform := func(int64) int64 { return r.Int64N(o.Rows) }
	if err := t.feed(ctx, updates, r, uniform); err != nil {
		return nil, err
	}
	o.Logger.Info("updates produced", "updates", updates)
	spec.CPUProfile = o.CPUProfile
	if spec.CPUProfile != "" {
		spec.CPUProfile += "." + format
	}
	n, err := o.node(ctx, spec)
	if err != nil {
		return nil, err
	}
	if n.Rows != o.Rows {
		return nil, fmt.Errorf("the table has %d rows after the updates, not %d", n.Rows, o.Rows)
	}
	o.Logger.Info("updates loaded", "updates_per_cpu_s", int64(float64(updates)/n.CPU), "wall_s", n.Wall)
	plain, name, err := o.plainUpserts(ctx, &t.def, t.enc, o.Rows, min(updates, plainUpdates))
	if err != nil {
		return nil, err
	}
	x := &Result{
		Bench: "upsert." + format, Figure: float64(updates) / n.CPU, Unit: "upserts/cpu-s", Better: Higher,
		Beside: Beside{name, plain}, CPU: n.CPU, RSSPeak: n.RSSPeak, Setup: o.setup(1, "local"),
	}
	x.Setup.Note = fmt.Sprintf("%d uniform updates, commit interval %d ms, whole node without the broker; first load %.0f rows/cpu-s, %d bytes at its peak",
		updates, commitMs, float64(o.Rows)/first.CPU, first.RSSPeak)
	return x, nil
}

// node runs a node that loads.
func (o *Options) node(ctx context.Context, s nodeSpec) (*nodeReport, error) {
	p, err := o.startNode(ctx, s)
	if err != nil {
		return nil, err
	}
	defer p.abandon()
	return p.result(ctx)
}
