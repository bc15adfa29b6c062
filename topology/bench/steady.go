package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
)

const (
	steadyFor       = 2 * time.Hour
	steadyQuick     = 4 * time.Second
	steadySamples   = 120
	steadyCommitMs  = 1000
	steadyPerSecond = 2000
	// steadyMost is how much more the last quarter of the run may have than the
	// second one; the first fills caches.
	steadyMost = 1.15
	// steadySlack is what is too little to tell growth from chance: of memory in
	// bytes, and in files.
	steadySlackBytes = 24 << 20
	steadySlackFiles = 8
)

// steadySample is what a node had at one time.
type steadySample struct {
	at time.Duration
	nodeReport
}

// runSteady updates a table at a fixed rate, with compaction and expiry, and
// samples the node's resident memory and the table's files.
func runSteady(ctx context.Context, o *Options) (_ []Result, err error) {
	length := o.Duration
	switch {
	case length == 0 && o.Quick:
		length = steadyQuick
	case length == 0:
		length = steadyFor
	}
	r := rand.New(rand.NewPCG(o.Seed, 8))
	t, err := o.openTable(ctx, source.DebeziumJSON, steadyCommitMs, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.drop()) }()
	t.def.RetentionMs, t.def.RetentionCount = (2 * time.Minute).Milliseconds(), 20
	if err := t.feed(ctx, o.Rows, r, newScattered(o.Rows).at); err != nil {
		return nil, err
	}
	spec, err := t.spec(filepath.Join(o.dir, "node"))
	if err != nil {
		return nil, err
	}
	spec.Roles, spec.CPUProfile = topology.Roles(), o.CPUProfile
	spec.Jobs = topology.JobOptions{PlanEvery: 5 * time.Second}
	n, err := o.startNode(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer n.abandon()
	feeding, stopFeeding := context.WithCancel(ctx)
	defer stopFeeding()
	fed := make(chan error, 1)
	sent := int64(0)
	go func() {
		var err error
		sent, err = o.updates(feeding, &t.def, t.enc, r)
		fed <- err
	}()
	var samples []steadySample
	began := time.Now()
	count := min(steadySamples, max(8, int(length/time.Second)))
	every := length / time.Duration(count)
	for len(samples) < count {
		select {
		case err := <-fed:
			return nil, fmt.Errorf("the updates ended: %w", err)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Until(began.Add(time.Duration(len(samples)+1) * every))):
		}
		s := steadySample{at: time.Since(began)}
		if err := n.ask(ctx, wordSample, &s.nodeReport); err != nil {
			return nil, err
		}
		samples = append(samples, s)
		o.Logger.Info("steady", "at_s", int64(s.at.Seconds()), "rss_bytes", s.RSS, "files", s.Files, "vectors", s.Vectors, "commits", s.Commits, "rows", s.Rows, "cpu_s", s.CPU)
	}
	stopFeeding()
	if err := <-fed; err != nil && !errors.Is(err, context.Canceled) {
		return nil, err
	}
	rep, err := n.result(ctx)
	if err != nil {
		return nil, err
	}
	out, err := judgeSteady(samples, length >= time.Minute)
	for i := range out {
		x := &out[i]
		x.CPU, x.RSSPeak, x.Setup = rep.CPU, rep.RSSPeak, o.setup(1, "local")
		x.Setup.Note = fmt.Sprintf("%s, %d updates at %d/s, %d commits, %d files and %d vectors at the end", length, sent, steadyPerSecond, rep.Commits, rep.Files, rep.Vectors)
	}
	return out, err
}

// updates sends uniform updates at their rate until ctx is done.
func (o *Options) updates(ctx context.Context, def *schemas.Definition, enc encoder, r *rand.Rand) (sent int64, err error) {
	p, err := topology.NewLogProducer(o.client, topology.ProducerOptions{MaxBatchBytes: topology.DefaultSourceBatchBytes})
	if err != nil {
		return 0, err
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
	next := events(enc, 1<<62, r, func(int64) int64 { return r.Int64N(o.Rows) })
	start := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return sent, ctx.Err()
		case err := <-failed:
			return sent, err
		case <-tick.C:
		}
		for due := int64(time.Since(start).Seconds() * steadyPerSecond); sent < due; sent++ {
			e, _, err := next()
			if err != nil {
				return sent, err
			}
			p.Append(ctx, def.SourceTopic, 0, e, done)
		}
	}
}

// judgeSteady holds the last quarter against the second one, by medians.
func judgeSteady(samples []steadySample, judge bool) ([]Result, error) {
	q := len(samples) / 4
	median := func(part []steadySample, of func(*steadySample) int64) float64 {
		var v []int64
		for i := range part {
			v = append(v, of(&part[i]))
		}
		slices.Sort(v)
		return float64(v[len(v)/2])
	}
	var out []Result
	var err error
	for _, m := range []struct {
		name, unit string
		slack      float64
		of         func(*steadySample) int64
	}{
		{"rss", "bytes", steadySlackBytes, func(s *steadySample) int64 { return s.RSS }},
		{"files", "files", steadySlackFiles, func(s *steadySample) int64 { return s.Files }},
	} {
		early, late := median(samples[q:2*q], m.of), median(samples[3*q:], m.of)
		goal := max(early*steadyMost, early+m.slack)
		out = append(out, Result{Bench: "steady." + m.name, Figure: late, Unit: m.unit, Better: Lower, Goal: goal, Beside: Beside{"the run's second quarter", early}})
		if judge && late > goal {
			err = errors.Join(err, fmt.Errorf("%w: %s grew from %.0f in the second quarter of the run to %.0f in the last", ErrMissed, m.name, early, late))
		}
	}
	return out, err
}
