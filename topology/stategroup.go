package topology

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varve-io/varve/statestore"
)

// stateGroup holds the transactions partitions that the group gave this node.
type stateGroup struct {
	n *Node
	m *member

	mu   sync.Mutex
	held map[int32]*tenure
	last map[int32]*tenure // the newest tenure of a partition, held or ending
}

func (n *Node) joinStates() error {
	g := &stateGroup{n: n, held: map[int32]*tenure{}, last: map[int32]*tenure{}}
	m, err := joinGroup(n.memberOptions(StateGroup(n.deployment), g.assigned, g.revoked, g.lost))
	if err != nil {
		return err
	}
	g.m, n.stateGroup = m, g
	m.subscribe([]string{n.topics.Transactions})
	n.spawn(func(ctx context.Context) error {
		for sleep(ctx, commitEvery) == nil {
			g.commit(ctx, g.partitions())
		}
		return nil
	})
	return nil
}

func (n *Node) memberOptions(group string, assigned func(map[string][]int32), revoked func(context.Context, map[string][]int32), lost func(map[string][]int32)) memberOptions {
	return memberOptions{
		client: n.client, group: group, node: n.opt.NodeID, deployment: n.deployment,
		session: n.opt.SessionTimeout, rebalance: n.opt.RebalanceTimeout,
		assigned: assigned, revoked: revoked, lost: lost, fatal: n.fail, log: n.log,
	}
}

func (g *stateGroup) partitions() []int32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]int32, 0, len(g.held))
	for p := range g.held {
		out = append(out, p)
	}
	return out
}

func (g *stateGroup) assigned(added map[string][]int32) {
	for _, p := range added[g.n.topics.Transactions] {
		g.hold(p)
	}
}

// hold begins a partition's tenure, once its last one is over.
func (g *stateGroup) hold(p int32) {
	ctx, cancel := context.WithCancel(g.n.ctx)
	t := &tenure{cancel: cancel, done: make(chan struct{})}
	g.mu.Lock()
	before := g.last[p]
	g.held[p], g.last[p] = t, t
	g.mu.Unlock()
	g.n.wg.Go(func() {
		defer close(t.done)
		defer cancel()
		if before != nil {
			<-before.done
		}
		g.n.holdState(ctx, p)
	})
}

// drop takes partitions out of what is held.
func (g *stateGroup) drop(ps []int32) []*tenure {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []*tenure
	for _, p := range ps {
		if t := g.held[p]; t != nil {
			delete(g.held, p)
			t.cancel()
			out = append(out, t)
		}
	}
	return out
}

// revoked ends the states of partitions that are given to others. What was
// applied is in the log, so nothing is lost by ending at any record; an outcome
// that was not sent is sent by the next owner (L11), a snapshot that was not
// confirmed is built again, to the same bytes (C2).
func (g *stateGroup) revoked(ctx context.Context, gone map[string][]int32) {
	ps := gone[g.n.topics.Transactions]
	g.n.log.Info("states given back", "partitions", ps)
	g.commit(ctx, ps)
	for _, t := range g.drop(ps) {
		t.wait(ctx)
	}
}

func (g *stateGroup) lost(gone map[string][]int32) {
	ps := gone[g.n.topics.Transactions]
	if len(ps) > 0 {
		g.n.log.Warn("states lost: this node was silent for longer than the session timeout, or the group is gone", "partitions", ps)
	}
	g.drop(ps)
}

// commit tells the group what was applied.
func (g *stateGroup) commit(ctx context.Context, ps []int32) {
	at := map[int32]int64{}
	for _, p := range ps {
		if w := g.n.state(p); w != nil {
			w.mu.Lock()
			if w.applied >= 0 {
				at[p] = w.applied + 1
			}
			w.mu.Unlock()
		}
	}
	if err := g.m.commit(ctx, g.n.topics.Transactions, at); err != nil && ctx.Err() == nil {
		g.n.log.Debug("group offsets are set later", "error", err)
	}
}

// holdState serves a partition until ctx ends. One that stops is told of and
// tried again.
func (n *Node) holdState(ctx context.Context, p int32) {
	for wait := serveMin; ; wait = min(2*wait, serveMax) {
		began := time.Now()
		err := n.serveState(ctx, p)
		if ctx.Err() != nil {
			n.setStopped(p, nil)
			if err != nil && !errors.Is(err, context.Canceled) {
				n.log.Warn("a state did not end cleanly", "partition", p, "error", err)
			}
			return
		}
		if time.Since(began) > serveMax {
			wait = serveMin
		}
		n.setStopped(p, err)
		n.log.Error("the state of a partition stopped; it is tried again", "partition", p, "after", wait, "error", err)
		if sleep(ctx, wait) != nil {
			n.setStopped(p, nil)
			return
		}
	}
}

// setStopped says why a partition that this node has is not applied.
func (n *Node) setStopped(p int32, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		delete(n.halted, p)
		return
	}
	n.halted[p] = err.Error()
}

// serveState opens a partition's state, catches up, and drives it until ctx
// ends or something stops it.
func (n *Node) serveState(ctx context.Context, p int32) (err error) {
	offsets, err := n.admin.Offsets(ctx, n.topics.Transactions)
	if err != nil {
		return err
	}
	w, err := n.openState(ctx, p, offsets[p].High)
	if err != nil {
		return err
	}
	n.setState(p, w)
	n.setStopped(p, nil)
	n.dirs[p].rest()
	n.log.Info("state taken", "partition", p, "applied", w.store.Head().Offset)
	defer func() {
		n.setState(p, nil)
		head, tables, viewErr := w.tables()
		err = errors.Join(err, viewErr, w.end())
		n.dirs[p].resume(head, tables)
	}()
	return w.run(ctx)
}

// tables is what the state knows now.
func (w *stateWorker) tables() (head statestore.Head, out []*statestore.TableInfo, err error) {
	err = w.read(func() error {
		head = w.store.Head()
		return w.store.Tables(func(t *statestore.TableInfo) error {
			out = append(out, t)
			return nil
		})
	})
	return head, out, err
}

// errMoved: the state was given away while it was asked.
var errMoved = errors.New("the state of the partition moved to another node")

// read calls fn while the state is open.
func (w *stateWorker) read(fn func() error) error {
	w.use.RLock()
	defer w.use.RUnlock()
	if w.closed {
		return fmt.Errorf("transactions partition %d: %w", w.partition, errMoved)
	}
	return fn()
}

// end closes the worker once nobody reads the state.
func (w *stateWorker) end() error {
	w.use.Lock()
	defer w.use.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	return w.close()
}

// state is the worker of a partition, nil when this node does not have it.
func (n *Node) state(p int32) *stateWorker {
	n.mu.Lock()
	defer n.mu.Unlock()
	if int(p) >= len(n.states) {
		return nil
	}
	return n.states[p]
}

func (n *Node) setState(p int32, w *stateWorker) {
	n.mu.Lock()
	n.states[p] = w
	n.mu.Unlock()
	n.sizeMemory(false)
}

// openStateList are the states that this node has.
func (n *Node) openStateList() []*stateWorker {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*stateWorker
	for _, w := range n.states {
		if w != nil {
			out = append(out, w)
		}
	}
	return out
}
