package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/varve-io/varve/processors/collector"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// GarbageOptions say when what no reader can reach any more is deleted.
type GarbageOptions struct {
	// Grace is gc_grace: how long an object stays after the log let it go, for
	// readers that still plan on a snapshot that was given up. Default:
	// collector.DefaultGrace; below zero: none.
	Grace time.Duration
	// Every is how often a table is looked at. Default: collector.DefaultEvery;
	// below zero: never, except by varve gc.
	Every time.Duration
	// SweepEvery is how often a table's folder is listed for what lost attempts
	// left behind. Default: collector.DefaultSweepEvery; below zero: never.
	SweepEvery time.Duration
}

func (o *GarbageOptions) check() error {
	if o.Every == 0 {
		o.Every = collector.DefaultEvery
	}
	if o.SweepEvery == 0 {
		o.SweepEvery = collector.DefaultSweepEvery
	}
	const least = 100 * time.Millisecond
	if o.Every > 0 && o.Every < least || o.SweepEvery > 0 && o.SweepEvery < least {
		return fmt.Errorf("%w: garbage is looked for every %s at most", ErrConfig, least)
	}
	return nil
}

// collectWait is how long one look at a table may take.
const collectWait = time.Minute

// collecting collects the tables' garbage. It holds the state for moments only.
func (w *stateWorker) collecting(ctx context.Context) {
	every := w.n.opt.Garbage.Every
	if every < 0 {
		return
	}
	warned := map[int64]string{}
	for sleep(ctx, every) == nil {
		_, all, err := w.tables()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, errMoved) {
				w.log.Warn("garbage is not collected; it is tried again", "error", err)
			}
			continue
		}
		known := map[int64]bool{}
		for _, t := range all {
			known[t.ID] = true
			_, err := w.collect(ctx, t, collectRequest{cause: "interval", grace: -1})
			if err == nil || ctx.Err() != nil || errors.Is(err, errMoved) {
				delete(warned, t.ID)
				continue
			}
			if warned[t.ID] != err.Error() {
				warned[t.ID] = err.Error()
				w.log.Warn("a table's garbage is not collected; it is tried again", "table", t.Name, "error", err)
			}
		}
		w.gcMu.Lock()
		w.gc.Forget(known)
		w.gcMu.Unlock()
	}
}

type collectRequest struct {
	cause string
	asked bool          // by a person: whatever the table's properties say
	sweep bool          // list the folder now
	grace time.Duration // below zero: the node's
}

// Collected is what came of a look at a table's garbage.
type Collected struct {
	Table    string `json:"table"`
	Taken    int64  `json:"taken"`            // objects that the log let go
	Rejected int64  `json:"rejected"`         // and those that it did not: something reaches them since
	Deleted  int64  `json:"deleted"`          // objects of collections whose grace has passed
	Waiting  int64  `json:"waiting"`          // objects whose grace has not
	Due      int64  `json:"due,omitempty"`    // ms: when the first of these can be deleted
	Listed   int64  `json:"listed,omitempty"` // objects in the table's folder, when it was listed
}

// collect looks at a table once: it asks for what can go, and deletes what may.
func (w *stateWorker) collect(ctx context.Context, t *statestore.TableInfo, r collectRequest) (*Collected, error) {
	ctx, cancel := context.WithTimeout(ctx, collectWait)
	defer cancel()
	w.gcMu.Lock()
	defer w.gcMu.Unlock()
	out := &Collected{Table: t.Name}
	if r.asked || !collector.Paused(t) {
		if err := w.propose(ctx, t, r, out); err != nil {
			return out, err
		}
	}
	return out, w.deleteCollected(ctx, t.Name, r, out)
}

func (w *stateWorker) propose(ctx context.Context, t *statestore.TableInfo, r collectRequest, out *Collected) error {
	if every := w.n.opt.Garbage.SweepEvery; r.sweep || every > 0 && w.gc.SweepDue(t.ID, time.Now(), every) {
		if err := w.read(func() error {
			n, err := w.gc.Sweep(ctx, t, func(ctx context.Context) (int64, error) {
				offsets, err := w.n.admin.Offsets(ctx, w.n.topics.Transactions)
				if err != nil {
					return 0, err
				}
				return offsets[w.partition].High - 1, nil
			})
			out.Listed = int64(n)
			return err
		}); err != nil {
			return err
		}
	}
	var asks []record.CollectFiles
	if err := w.read(func() (err error) {
		asks, err = w.gc.Propose(t, r.cause)
		return err
	}); err != nil {
		return err
	}
	for i := range asks {
		off := w.append(ctx, statestore.CutNotice{Table: t.Name, TableID: t.ID}, &asks[i])
		if off < 0 {
			return errors.New("a collection could not be appended")
		}
		w.waitApplied(ctx, off)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("the collection at log offset %d was not applied in time: %w", off, err)
		}
		taken := int64(0)
		if err := w.read(func() error {
			all, err := w.store.Collections(t.ID)
			for j := range all {
				if all[j].Offset == off {
					taken = int64(len(all[j].Objects))
				}
			}
			return err
		}); err != nil {
			return err
		}
		out.Taken += taken
		out.Rejected += int64(len(asks[i].Items)) - taken
		w.log.Info("garbage collected", "table", t.Name, "objects", taken, "rejected", int64(len(asks[i].Items))-taken, "offset", off)
	}
	return nil
}

// deleteCollected deletes what collections let go whose grace has passed. What the
// catalog has is read after the state that they are in.
func (w *stateWorker) deleteCollected(ctx context.Context, table string, r collectRequest, out *Collected) error {
	var all []statestore.Collection
	var t *statestore.TableInfo
	if err := w.read(func() (err error) {
		if t, err = w.store.Table(table); err == nil && t != nil {
			all, err = w.store.Collections(t.ID)
		}
		return err
	}); err != nil || len(all) == 0 {
		return err
	}
	checked := false
	for i := range all {
		x := &all[i]
		due := w.gc.Due(x, time.Now())
		at := x.TimeMs + w.gc.Grace().Milliseconds()
		if r.grace >= 0 {
			at = x.TimeMs + r.grace.Milliseconds()
			due = time.Now().UnixMilli() >= at
		}
		if !due {
			if out.Waiting += int64(len(x.Objects)); out.Due == 0 || at < out.Due {
				out.Due = at
			}
			continue
		}
		if !checked {
			if err := w.gc.CheckCatalog(ctx, t); err != nil {
				return err
			}
			checked = true
		}
		done, err := w.gc.Delete(ctx, t, x)
		if err != nil {
			return err
		}
		off := w.append(ctx, statestore.CutNotice{Table: t.Name, TableID: t.ID}, done)
		if off < 0 {
			return errors.New("deleted objects could not be entered in the log; they are deleted once more")
		}
		w.waitApplied(ctx, off)
		out.Deleted += done.Objects
		w.log.Info("collected objects deleted", "table", t.Name, "objects", done.Objects, "collection", x.Offset)
	}
	return nil
}

// tableWorker is the state's worker of a table on this node.
func (n *Node) tableWorker(table string) (*stateWorker, error) {
	w := n.stateOf(table)
	if w == nil {
		return nil, fmt.Errorf("%w: %s is in transactions partition %d; ask the node that has it (varve status shows which)", ErrNotHere, table, n.partition(table))
	}
	return w, nil
}

// CollectGarbage looks at a table's garbage now: see Collected. sweep lists its
// folder for strays; a grace of zero or more takes the place of the node's.
func (n *Node) CollectGarbage(ctx context.Context, table string, sweep bool, grace time.Duration) (*Collected, error) {
	w, err := n.tableWorker(table)
	if err != nil {
		return nil, err
	}
	if !n.has(RolePublisher) {
		return nil, fmt.Errorf("%w: this node has the state of table %s, but not the role publisher, which reads its catalog", ErrConfig, table)
	}
	t, err := n.Table(ctx, table)
	if err != nil {
		return nil, err
	}
	return w.collect(ctx, t, collectRequest{cause: "varve gc", asked: true, sweep: sweep, grace: grace})
}

// Garbage is an object that a table may do without.
type Garbage struct {
	Object string `json:"object"` // location
	Kind   string `json:"kind"`   // data, manifest, list, puffin
	Left   int64  `json:"left"`   // build offset from which on no snapshot lists it; of a stray, the end of the log when it was seen
	State  string `json:"state"`  // collectable, kept, deleting
	Why    string `json:"why"`
}

// Garbage calls fn with all objects that left a table and are not deleted yet, and
// what keeps each of them.
func (n *Node) Garbage(ctx context.Context, table string, fn func(*Garbage) error) error {
	w, err := n.tableWorker(table)
	if err != nil {
		return err
	}
	t, err := n.Table(ctx, table)
	if err != nil {
		return err
	}
	return w.read(func() error {
		all, err := w.store.Collections(t.ID)
		if err != nil {
			return err
		}
		for i := range all {
			x := &all[i]
			due := time.UnixMilli(x.TimeMs).Add(w.gc.Grace()).UTC().Format(time.RFC3339)
			for _, path := range x.Objects {
				if err := fn(&Garbage{Object: path, Kind: kindOf(path), Left: x.Offset, State: "deleting",
					Why: fmt.Sprintf("the log let it go at offset %d; it is deleted after %s", x.Offset, due)}); err != nil {
					return err
				}
			}
		}
		return w.store.LeftObjects(t.ID, func(l *statestore.Left) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			g := &Garbage{Object: l.Path, Kind: kindOf(l.Path), Left: l.Left, State: "kept", Why: whyKept(&l.Kept, t)}
			if l.Kept.By == statestore.KeptByNothing {
				g.State = "collectable"
				g.Why = fmt.Sprintf("no snapshot since offset %d lists it, and no retained one of before, job or index needs it", l.Left)
			}
			return fn(g)
		})
	})
}

func whyKept(k *statestore.Kept, t *statestore.TableInfo) string {
	switch k.By {
	case statestore.KeptByCut:
		return "the cut that takes it out is not committed yet"
	case statestore.KeptBySnapshot:
		return fmt.Sprintf("snapshot %d, which is retained, may list it", k.Numbers[0])
	case statestore.KeptByRef:
		return fmt.Sprintf("a branch or tag names snapshot %d, which the log does not know", k.Numbers[0])
	case statestore.KeptByIndex:
		return fmt.Sprintf("the index checkpoint of shard %d is at offset %d: a new owner would read from there; it moves as the shard goes on, or with time", k.Numbers[0], k.Numbers[1])
	case statestore.KeptByReshard:
		return fmt.Sprintf("shard %d has no index checkpoint of its own since the topic was divided at offset %d", k.Numbers[0], k.Numbers[1])
	case statestore.KeptByJob:
		return fmt.Sprintf("job %d.%d, which is open, reads it", k.Numbers[0], k.Numbers[1])
	}
	return ""
}

func kindOf(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	switch {
	case strings.HasSuffix(name, ".parquet"):
		return "data"
	case strings.HasSuffix(name, ".puffin"):
		return "puffin"
	case strings.HasPrefix(name, "snap-"):
		return "list"
	}
	return "manifest"
}
