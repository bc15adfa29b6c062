package topology

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/checkpoint"
)

const (
	// directoryWait is how long a broker holds a directory's fetch that has
	// nothing to bring: new records end it at once.
	directoryWait = time.Second
	directoryPoll = 200 * time.Millisecond
)

// directory is what a node knows of the tables of a transactions partition
// whose state it does not have: it folds the decided records that tell of
// tables, shards, cuts and requests. It judges nothing; the outcomes do.
//
// It knows tables, definitions, shards with their ends and index checkpoints,
// requests and commits as the state does. What the state alone knows, as dead
// rows and vectors, it leaves at zero; the counts of appends whose records have
// their bodies in the object store (L10) are missing in its sums.
//
// While the node has the partition's state, the directory rests; it goes on
// from what the state knew when it was closed.
type directory struct {
	n         *Node
	partition int32

	mu     sync.Mutex
	head   statestore.Head // offset, table time, chain and apply version of what was folded
	tables map[string]*statestore.TableInfo
	until  int64 // where the log ended when the directory began
	moved  chan struct{}
	err    error
	rests  bool
	// settled are requests that the entry whose outcome comes next has settled:
	// their outcomes go before its own (A5).
	settled []int64
	// taken are likewise commits of other writers whose files every shard has taken.
	taken   []int64
	divided bool // likewise a table's topic (A6)
}

func newDirectory(n *Node, partition int32, until int64) *directory {
	return &directory{
		n: n, partition: partition, until: until, tables: map[string]*statestore.TableInfo{}, moved: make(chan struct{}),
		head: statestore.Head{Offset: -1, Partition: partition},
	}
}

// rest ends reading while the node has the state.
func (d *directory) rest() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rests = true
	d.told()
}

// errRests: the node has the state itself.
var errRests = errors.New("the partition's state is here")

// resume goes on from what a state knew, nil: from where the directory was.
func (d *directory) resume(head statestore.Head, tables []*statestore.TableInfo) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rests = false
	d.set(head, tables)
	d.told()
}

// set takes what a state knew, unless the directory is further. The lock is held.
func (d *directory) set(head statestore.Head, tables []*statestore.TableInfo) {
	if head.Offset <= d.head.Offset {
		return
	}
	d.head = head
	d.tables = make(map[string]*statestore.TableInfo, len(tables))
	for _, t := range tables {
		d.tables[t.Name] = t
	}
}

// told wakes who waits. The lock is held.
func (d *directory) told() {
	close(d.moved)
	d.moved = make(chan struct{})
}

// seen waits until the directory has folded a log offset, or rests.
func (d *directory) seen(ctx context.Context, offset int64) error {
	for {
		d.mu.Lock()
		at, moved, rests, err := d.head.Offset, d.moved, d.rests, d.err
		d.mu.Unlock()
		switch {
		case rests:
			return errRests
		case at >= offset:
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the tables of transactions partition %d are not known yet: read up to log offset %d of %d: %w", d.partition, at, offset, ctx.Err()), err)
		}
	}
}

// view waits until the directory knows what was in the log when it began, and
// gives what it knows.
func (d *directory) view(ctx context.Context) (statestore.Head, map[string]*statestore.TableInfo, error) {
	if err := d.seen(ctx, d.until-1); err != nil {
		return statestore.Head{}, nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rests {
		return statestore.Head{}, nil, errRests
	}
	return d.head, maps.Clone(d.tables), nil
}

// seed begins from the newest checkpoint of the partition's state, if there is
// one that fits the log: else the log's beginning does.
func (d *directory) seed(ctx context.Context) {
	n := d.n
	offsets, err := n.admin.Offsets(ctx, n.topics.Transactions)
	if err != nil {
		return // reading will say so
	}
	var head statestore.Head
	tables, at, err := checkpoint.At(n.store, n.opt.Deployment, d.partition).Tables(ctx, n.id, d.partition, func(ctx context.Context, m *checkpoint.Manifest) error {
		head = m.Head()
		return n.checkCheckpoint(ctx, m, offsets[d.partition])
	})
	if err != nil || head.Offset != at {
		n.log.Debug("the tables are read from the log's beginning", "partition", d.partition, "error", err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set(head, tables)
	d.told()
}

// run reads until ctx ends. What is away is waited for.
func (d *directory) run(ctx context.Context) error {
	d.seed(ctx)
	for wait := retryMin; ctx.Err() == nil; wait = min(2*wait, retryMax) {
		began := time.Now()
		err := d.read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil || time.Since(began) > retryMax {
			wait = retryMin
		}
		d.mu.Lock()
		d.err = err
		d.mu.Unlock()
		if err != nil {
			d.n.log.Warn("the tables of other nodes cannot be read; it is tried again", "partition", d.partition, "error", err)
		}
		if sleep(ctx, wait) != nil {
			return nil
		}
	}
	return nil
}

// read follows the log until the directory must rest.
func (d *directory) read(ctx context.Context) error {
	var r *decidedReader
	defer func() {
		if r != nil {
			r.close()
		}
	}()
	for ctx.Err() == nil {
		d.mu.Lock()
		rests, next := d.rests, d.head.Offset+1
		d.mu.Unlock()
		if rests {
			return nil
		}
		if r == nil {
			var err error
			if r, err = openDecidedWait(ctx, d.n.client, d.n.topics, d.partition, next, directoryWait); err != nil {
				return err
			}
		}
		ds, err := r.poll(ctx, directoryPoll)
		if err != nil {
			return err
		}
		if len(ds) == 0 {
			continue
		}
		d.mu.Lock()
		// A state that was closed meanwhile may have brought it further.
		if !d.rests {
			for i := range ds {
				if err = d.fold(&ds[i]); err != nil {
					break
				}
			}
			d.told()
		}
		d.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// content is what a record asks, nil when its body lies in the object store.
func (d *directory) content(x *processors.Decided) (any, error) {
	var env record.Envelope
	if err := record.DecodeEnvelope(x.Record.Key, x.Record.Header, x.Record.Value, &env); err != nil {
		return nil, fmt.Errorf("transactions partition %d, log offset %d was accepted but cannot be read: %w", d.partition, x.Record.Offset, err)
	}
	if env.BodyRef != nil {
		return nil, nil
	}
	v, err := record.DecodeBody(env.Type, env.TypeVersion, env.Body)
	if err != nil {
		return nil, fmt.Errorf("transactions partition %d, log offset %d was accepted but cannot be read: %w", d.partition, x.Record.Offset, err)
	}
	return v, nil
}

// fold takes one decided entry. Tables that were given out are not changed:
// each change makes a new one.
func (d *directory) fold(x *processors.Decided) error {
	m := &x.Outcome
	if m.Derived {
		if m.Type == record.TypeReshard {
			d.divided = true
		} else if m.Type == record.TypeForeignSnapshot {
			d.taken = append(d.taken, m.Outcome.Numbers...) // readers see those files already
		} else if m.Outcome.Code == record.Settled && len(m.Outcome.Numbers) > 0 {
			d.settled = append(d.settled, m.Outcome.Numbers[0])
		}
		return nil
	}
	settled, taken, divided := d.settled, d.taken, d.divided
	d.settled, d.taken, d.divided = nil, nil, false
	if m.Offset <= d.head.Offset {
		return nil
	}
	d.head.Offset, d.head.TimeMs, d.head.Chain = m.Offset, m.TimeMs, m.Chain
	if m.Outcome.Code == record.Accepted || (m.Type == record.TypeAddFiles || m.Type == record.TypeAdoptFiles) && m.Outcome.Code == record.Partly {
		if err := d.foldAccepted(m, x); err != nil {
			return err
		}
		if divided {
			d.change(m, func(t *statestore.TableInfo) { t.Divide(m.Offset) })
		}
	}
	if m.Type == record.TypeCut && m.Outcome.Reason == record.NothingToCut {
		d.change(m, func(t *statestore.TableInfo) { t.Changes = false })
	}
	if len(taken) > 0 {
		d.change(m, func(t *statestore.TableInfo) {
			t.Held = slices.DeleteFunc(slices.Clone(t.Held), func(o int64) bool { return slices.Contains(taken, o) })
			if len(t.Held) == 0 && t.Pending == nil {
				t.Changes = t.LastChange > t.Head.Through
			}
		})
	}
	if len(settled) > 0 {
		d.change(m, func(t *statestore.TableInfo) {
			if held := len(t.Held); held > 0 {
				t.Held = slices.DeleteFunc(slices.Clone(t.Held), func(o int64) bool { return slices.Contains(settled, o) })
				if len(t.Held) < held {
					t.LastChange = m.Offset
				}
				if len(t.Held) == 0 && t.Pending == nil {
					t.Changes = t.LastChange > t.Head.Through
				}
			}
			t.Requests = slices.DeleteFunc(slices.Clone(t.Requests), func(o int64) bool { return slices.Contains(settled, o) })
			t.Finds = slices.DeleteFunc(slices.Clone(t.Finds), func(f statestore.FindInfo) bool { return slices.Contains(settled, f.Offset) })
		})
	}
	return nil
}

func (d *directory) foldAccepted(m *record.OutcomeMessage, x *processors.Decided) error {
	switch m.Type {
	case record.TypeCreateTable:
		d.tables[m.Table] = &statestore.TableInfo{
			ID: m.TableID, Name: m.Table, Definition: m.Definition, LastChange: m.Offset, Changes: true,
			Head: statestore.CatalogHead{Build: -1, Through: -1},
		}
		return nil
	case record.TypeDropTable:
		delete(d.tables, m.Table)
		return nil
	case record.TypeCut:
		d.change(m, func(t *statestore.TableInfo) {
			t.Pending, t.Changes = &statestore.PendingCut{Cut: m.Offset, Build: m.Offset}, false
		})
		return nil
	case record.TypeRollback:
		d.change(m, func(t *statestore.TableInfo) {
			target := int64(0)
			if n := m.Outcome.Numbers; len(n) > record.RollbackTo {
				target = n[record.RollbackTo]
			}
			t.RollBack(m.Offset, target)
		})
		return nil
	case record.TypeAddFiles, record.TypeAdoptFiles:
		d.change(m, func(t *statestore.TableInfo) {
			n := m.Outcome.Numbers
			if len(n) <= record.AddHeld {
				return
			}
			t.Files += n[record.AddAccepted]
			if n[record.AddHeld] != 0 {
				t.Held, t.Changes = append(slices.Clone(t.Held), m.Offset), false
			} else {
				t.LastChange, t.Changes = m.Offset, true
			}
		})
		return nil
	case record.TypeForeignSnapshot:
		d.change(m, func(t *statestore.TableInfo) {
			n := m.Outcome.Numbers
			if len(n) <= record.ForeignTo {
				return
			}
			t.Head.Build, t.Head.SnapshotID, t.Pending = m.Offset, n[record.ForeignTo], nil
			t.Files += n[record.ForeignAdded] - n[record.ForeignRemoved]
			if m.Outcome.Changed {
				t.LastChange = m.Offset
			}
			t.Changes = t.LastChange > t.Head.Through
			if n[record.ForeignHeld] != 0 {
				t.Held, t.Changes = append(slices.Clone(t.Held), m.Offset), false
			}
		})
		return nil
	case record.TypeDeleteKeys:
		d.change(m, func(t *statestore.TableInfo) { t.Requests = append(slices.Clone(t.Requests), m.Offset) })
		return nil
	case record.TypeDeleteWhere:
		d.change(m, func(t *statestore.TableInfo) {
			t.Finds = append(slices.Clone(t.Finds), statestore.FindInfo{Offset: m.Offset})
		})
		return nil
	case record.TypeRowsFound:
		d.change(m, func(t *statestore.TableInfo) {
			if m.Outcome.Changed {
				t.LastChange, t.Changes = m.Offset, true
			}
			n := m.Outcome.Numbers
			if len(n) <= record.WhereScanned {
				return
			}
			t.Finds = slices.Clone(t.Finds)
			for i := range t.Finds {
				if f := &t.Finds[i]; f.Offset == n[record.WhereFind] {
					f.Rows, f.Files, f.Scanned = n[record.WhereRows], n[record.WhereFiles], n[record.WhereScanned]
				}
			}
		})
		return nil
	}
	v, err := d.content(x)
	if err != nil {
		return err
	}
	switch v := v.(type) {
	case *record.SetApplyVersion:
		d.head.ApplyVersion = v.Version
		if m.Offset == 0 {
			d.head.Deployment, d.head.Partitions = v.Deployment, v.Partitions
		}
	case *record.AlterTable, *record.AlterSpec:
		d.change(m, func(t *statestore.TableInfo) {
			if m.Definition != nil && m.Outcome.Changed {
				t.Definition, t.LastChange, t.Changes = m.Definition, m.Offset, true
			}
		})
	case *record.CatalogBase, *record.CatalogSpecs, *record.RenumberSpecs, *record.CatalogSchemas:
		d.change(m, func(t *statestore.TableInfo) {
			if m.Definition != nil {
				t.Definition = m.Definition
			}
		})
	case *record.ClaimShard:
		d.change(m, func(t *statestore.TableInfo) {
			s := shardIn(t, &v.Shard, m.Offset)
			s.Topic, s.Member, s.Epoch, s.Open, s.Retired = v.Shard.Topic, v.Member, m.Offset, true, false
			if n := m.Outcome.Numbers; len(n) > record.ClaimRequestEnd {
				s.SourceEnd, s.RequestEnd = n[record.ClaimSourceEnd], n[record.ClaimRequestEnd]
			}
		})
	case *record.AlterRefs, *record.ExpireSnapshots:
		d.change(m, func(t *statestore.TableInfo) {
			if m.Outcome.Changed {
				t.LastChange, t.Changes = m.Offset, true
			}
		})
	case *record.RetireShard:
		d.change(m, func(t *statestore.TableInfo) {
			s := shardIn(t, &v.Shard, m.Offset)
			s.Open, s.Retired = false, true
		})
	case *record.Reshard:
		d.change(m, func(t *statestore.TableInfo) {
			t.Resharding = &statestore.Resharding{TopicID: v.TopicID, Offset: m.Offset, Partitions: v.Partitions, Ends: v.Ends}
		})
	case *record.SkipSource:
		d.change(m, func(t *statestore.TableInfo) {
			s := shardIn(t, &v.Shard, m.Offset)
			s.Open, s.SourceEnd = false, v.To
		})
	case *record.ShardIndex:
		d.change(m, func(t *statestore.TableInfo) {
			s := shardIn(t, &v.Shard, m.Offset)
			s.Index, s.IndexHorizon = v.File, v.Offset
		})
	case *record.AppendRows:
		d.change(m, func(t *statestore.TableInfo) {
			s := shardIn(t, &v.Shard, m.Offset)
			s.SourceEnd, s.RequestEnd, s.Counter = v.SourceTo, v.RequestTo, v.Counter
			if len(v.Files) > 0 || len(v.Deletes) > 0 {
				t.LastChange, t.Changes = m.Offset, len(t.Held) == 0
			}
			s.Counts.Add(&v.Counts)
			t.Counts.Add(&v.Counts)
			for i := range v.Files {
				t.Files++
				t.Rows += v.Files[i].Rows
				t.Bytes += v.Files[i].Bytes
			}
		})
	case *record.SnapshotCommitted:
		d.change(m, func(t *statestore.TableInfo) {
			h := &t.Head
			first := h.Build < 0
			if h.Through = v.Build; first {
				h.Through = t.ID
			}
			h.Build, h.Sequence, h.TimestampMs = v.Build, v.Sequence, v.TimestampMs
			switch {
			case v.SnapshotID != 0:
				h.SnapshotID = v.SnapshotID
			case t.Pending != nil && t.Pending.Rollback != 0:
				h.SnapshotID = t.Pending.Rollback
			}
			h.MetadataVersion, h.MetadataPath, h.MetadataHash = v.MetadataVersion, v.MetadataPath, v.MetadataHash
			t.Pending = nil
			t.Changes = t.LastChange > h.Through && len(t.Held) == 0
		})
	case *record.SnapshotFailed:
		d.change(m, func(t *statestore.TableInfo) {
			if t.Pending != nil {
				t.Pending = &statestore.PendingCut{Cut: t.Pending.Cut, Build: t.Pending.Build, Attempts: v.Attempt, LastCause: v.Cause}
			}
		})
	case nil:
		switch m.Type {
		case record.TypeAppendRows: // its shard's end is told by the next claim or append
			d.change(m, func(t *statestore.TableInfo) { t.LastChange, t.Changes = m.Offset, true })
		case record.TypeSnapshotCommitted:
			d.change(m, func(t *statestore.TableInfo) {
				if t.Pending != nil {
					if t.Head.Through = t.Pending.Build; t.Head.Build < 0 {
						t.Head.Through = t.ID
					}
					t.Head.Build = t.Pending.Build
				}
				t.Pending = nil
				t.Changes = t.LastChange > t.Head.Through
			})
		}
	}
	return nil
}

func (d *directory) change(m *record.OutcomeMessage, fn func(*statestore.TableInfo)) {
	old := d.tables[m.Table]
	if old == nil || old.ID != m.TableID {
		return
	}
	t := *old
	t.Shards = slices.Clone(old.Shards)
	fn(&t)
	d.tables[m.Table] = &t
}

// shardIn is a table's shard, added if it is new.
func shardIn(t *statestore.TableInfo, k *record.ShardKey, offset int64) *statestore.ShardInfo {
	for i := range t.Shards {
		if s := &t.Shards[i]; s.TopicID == k.TopicID && s.Partition == k.Partition {
			return s
		}
	}
	// In the order of the state's own list.
	i := sort.Search(len(t.Shards), func(i int) bool {
		s := &t.Shards[i]
		if c := bytes.Compare(s.TopicID[:], k.TopicID[:]); c != 0 {
			return c > 0
		}
		return s.Partition > k.Partition
	})
	t.Shards = slices.Insert(t.Shards, i, statestore.ShardInfo{TopicID: k.TopicID, Topic: k.Topic, Partition: k.Partition, FirstClaim: offset})
	return &t.Shards[i]
}
