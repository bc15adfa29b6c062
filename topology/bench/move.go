package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
)

const (
	// moveGoal is within how many seconds a shard has moved and caught up.
	moveGoal = 30.0
	// moveSession is after how long without a sign the group takes a member for
	// dead. It is part of the figure. (A deployment's own is 45 s by default.)
	moveSession = 6 * time.Second
	// moveTail is how many updates the new owner has to catch up with.
	moveTail = 10_000
	// moveStill is how long nothing may change until checkpoints are taken for made.
	moveStill = 3 * time.Second
)

// runMove kills the owner of a shard of so many keys, and measures how long it
// takes until a node with an empty data folder has the shard and the state, and
// all that came meanwhile is in a snapshot: from their checkpoints, and, beside
// it, from the log and the files alone.
func runMove(ctx context.Context, o *Options) ([]Result, error) {
	x, err := o.move(ctx, "move", topology.CheckpointOptions{Records: 1, Interval: time.Second, IndexAppends: 1, Rate: -1})
	if err != nil {
		return nil, err
	}
	plain, err := o.move(ctx, "move-plain", topology.CheckpointOptions{Records: -1, Interval: -1, IndexAppends: 1 << 30, IndexEvery: -1})
	if err != nil {
		return nil, err
	}
	x.Goal, x.Beside = moveGoal, Beside{"without checkpoints, from the log and the files", plain.Figure}
	if x.Figure > moveGoal && !o.Quick {
		err = fmt.Errorf("%w: the shard was there after %.1f s", ErrMissed, x.Figure)
	}
	return []Result{*x}, err
}

func (o *Options) move(ctx context.Context, name string, checkpoints topology.CheckpointOptions) (_ *Result, err error) {
	r := rand.New(rand.NewPCG(o.Seed, 11))
	t, err := o.openTable(ctx, source.VarveAvro, 1000, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.drop()) }()
	order := newScattered(o.Rows)
	if err := t.feed(ctx, o.Rows, r, order.at); err != nil {
		return nil, err
	}
	lake, err := o.lake(filepath.Join(o.dir, name))
	if err != nil {
		return nil, err
	}
	member := func(id string) (nodeSpec, error) {
		s, err := t.spec(filepath.Join(o.dir, name+"-"+id))
		s.Warehouse, s.Groups, s.NodeID, s.Session, s.Checkpoints = lake, true, id, moveSession, checkpoints
		return s, err
	}
	s, err := member("old")
	if err != nil {
		return nil, err
	}
	old, err := o.startNode(ctx, s)
	if err != nil {
		return nil, err
	}
	defer old.abandon()
	if err := o.loadedAndKept(ctx, old, checkpoints.Records > 0); err != nil {
		return nil, err
	}
	o.Logger.Info("first rows loaded", "rows", o.Rows)

	old.abandon() // SIGKILL
	began := time.Now()
	tail := min(moveTail, o.Rows)
	if err := t.feed(ctx, tail, r, func(int64) int64 { return r.Int64N(o.Rows) }); err != nil {
		return nil, err
	}
	if s, err = member("new"); err != nil {
		return nil, err
	}
	s.Load, s.CPUProfile = true, o.CPUProfile
	n, err := o.node(ctx, s)
	if err != nil {
		return nil, err
	}
	took := time.Since(began).Seconds()
	if n.Rows != o.Rows {
		return nil, fmt.Errorf("the table has %d rows after the move, not %d", n.Rows, o.Rows)
	}
	o.Logger.Info("moved", "work", name, "s", took, "cpu_s", n.CPU)
	x := &Result{Bench: name, Figure: took, Unit: "s", Better: Lower, CPU: n.CPU, RSSPeak: n.RSSPeak, Setup: o.setup(1, "local")}
	x.Setup.Note = fmt.Sprintf("a shard of %d keys and its table's state; the old owner's SIGKILL to %d later updates in a snapshot of a node with an empty folder, session of %s included",
		o.Rows, tail, moveSession)
	return x, nil
}

// loadedAndKept waits until a node has loaded all rows and, if there are to be
// any, has put checkpoints of its state and index into the store: then nothing
// changes any more.
func (o *Options) loadedAndKept(ctx context.Context, p *nodeProcess, checkpoints bool) error {
	var last nodeReport
	still := time.Now()
	for {
		var n nodeReport
		if err := p.ask(ctx, wordSample, &n); err != nil {
			return err
		}
		if n.Rows != last.Rows || n.Horizon != last.Horizon || n.Checkpoint != last.Checkpoint || !n.Settled {
			still = time.Now()
		}
		last = n
		kept := n.Horizon > 0 && n.Checkpoint > 0 || !checkpoints
		if n.Rows == o.Rows && n.Settled && kept && time.Since(still) > moveStill {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
