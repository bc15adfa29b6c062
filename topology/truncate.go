package topology

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/checkpoint"
)

// ErrNoTruncate: the log cannot be shortened.
var ErrNoTruncate = errors.New("the log cannot be shortened")

// Truncation is what a log's beginning was, or would be, cut off to (G5).
type Truncation struct {
	Partition  int32  `json:"partition"`
	Checkpoint string `json:"checkpoint"`
	Offset     int64  `json:"checkpoint_offset"`
	From       int64  `json:"from"`   // where the log began
	Before     int64  `json:"before"` // records below this offset go
	Records    int64  `json:"records"`
	// Held says what needs the records from Before on; "" the checkpoint itself.
	Held string `json:"held"`
	Done bool   `json:"done"`
}

// Truncate deletes the records of a table's transactions partition that nobody
// needs who starts from a checkpoint (G5). The checkpoint is fetched and checked
// byte by byte first, and held against the log. Records that a shard's index, a
// pending cut, an open job, an unanswered request or a rollback may still be read
// for stay, as does the checkpoint's own last record (L5). dry: nothing is deleted.
func (n *Node) Truncate(ctx context.Context, table, id string, dry bool) (*Truncation, error) {
	w := n.stateOf(table)
	if w == nil {
		return nil, fmt.Errorf("%w: table %s", ErrNotHere, table)
	}
	if _, err := n.Table(ctx, table); err != nil {
		return nil, err
	}
	p := n.partition(table)
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("transactions partition %d: %w before checkpoint %s: %s", p, ErrNoTruncate, id, fmt.Sprintf(format, args...))
	}
	at, err := n.admin.Offsets(ctx, n.topics.Transactions)
	if err != nil {
		return nil, err
	}
	m, err := n.verifyCheckpoint(ctx, p, id, at[p])
	if errors.Is(err, checkpoint.ErrNone) || errors.Is(err, checkpoint.ErrDamaged) || errors.Is(err, checkpoint.ErrUnfit) || errors.Is(err, statestore.ErrFork) {
		return nil, refuse("%v", err)
	}
	if err != nil {
		return nil, err
	}
	t := &Truncation{Partition: p, Checkpoint: m.ID(), Offset: m.Offset, From: at[p].Start, Before: m.Offset}
	if err := n.heldRecords(ctx, w.store, p, t); err != nil {
		return nil, err
	}
	t.Before = max(t.Before, t.From)
	t.Records = t.Before - t.From
	if dry || t.Records == 0 {
		return t, nil
	}
	if err := n.admin.DeleteRecords(ctx, n.topics.Transactions, p, t.Before); err != nil {
		return nil, err
	}
	t.Done = true
	n.log.Info("the log was shortened", "partition", p, "before", t.Before, "checkpoint", t.Checkpoint)
	return t, nil
}

// verifyCheckpoint restores a checkpoint beside the state, reads all of it, and
// throws it away.
func (n *Node) verifyCheckpoint(ctx context.Context, p int32, id string, at PartitionOffsets) (_ *checkpoint.Manifest, err error) {
	root, err := os.MkdirTemp(n.opt.Data, "verify-checkpoint-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the checkpoint: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	r, err := checkpoint.At(n.store, n.opt.Deployment, p).Restore(ctx, checkpoint.RestoreOptions{
		Dir: filepath.Join(root, "state"), Deployment: n.id, Partition: p, ID: id, Now: time.Now(), Log: n.log, State: statestore.Options{Log: n.log},
		Check: func(ctx context.Context, m *checkpoint.Manifest) error { return n.checkCheckpoint(ctx, m, at) },
	})
	if err != nil {
		return nil, err
	}
	return r.Manifest, nil
}

// heldRecords lowers t.Before to what somebody may still read the log from.
func (n *Node) heldRecords(ctx context.Context, st *statestore.Store, p int32, t *Truncation) error {
	hold := func(offset int64, format string, args ...any) {
		if offset < t.Before {
			t.Before, t.Held = offset, fmt.Sprintf(format, args...)
		}
	}
	return st.Tables(func(x *statestore.TableInfo) error {
		if x.Pending != nil {
			hold(x.Pending.Cut, "the pending cut of table %s", x.Name)
		}
		for _, o := range x.Requests {
			hold(o, "a deletion request of table %s that is not answered", x.Name)
		}
		if x.Resharding != nil {
			hold(x.Resharding.Offset, "the division of the source topic of table %s", x.Name)
		}
		if err := st.OpenJobs(x.ID, func(j *statestore.JobInfo) error {
			hold(j.Job.Plan, "an open job of table %s", x.Name)
			return nil
		}); err != nil {
			return err
		}
		if !x.Definition.Keyed() {
			return nil // its shards have no index
		}
		for i := range x.Shards {
			sh := &x.Shards[i]
			hold(sh.IndexHorizon, "the key index of table %s, source partition %d: it is kept up to there", x.Name, sh.Partition)
		}
		if x.Definition.Order.Kind == schemas.OrderNone || len(x.Snapshots) == 0 {
			return nil
		}
		if x.Rolled > 0 && slices.ContainsFunc(x.Shards, func(sh statestore.ShardInfo) bool { return sh.Index.Path == "" }) {
			back, err := n.rollbackAt(ctx, p, x.Rolled)
			if err != nil {
				return err
			}
			from, err := n.remembersFrom(ctx, p, back.Build, x.Definition.TombstoneTTLMs)
			if err != nil {
				return err
			}
			hold(from, "key indexes of table %s, which begin with its rollback", x.Name)
		}
		// A rollback to a retained snapshot reads what was deleted before it.
		build := x.Snapshots[0].Build
		if build <= t.From {
			hold(t.From, "snapshots of table %s", x.Name)
			return nil
		}
		from, err := n.remembersFrom(ctx, p, build, x.Definition.TombstoneTTLMs)
		if err != nil {
			return err
		}
		hold(from, "keys that were deleted within the tombstone time before the oldest snapshot of table %s", x.Name)
		return nil
	})
}

// firstRead is where a shard's owner begins to read a log whose beginning may be
// gone. What is below a shard's index horizon is in its checkpoint, or is nothing
// to it (G5): without either it stops, and never begins with less than there was.
func (n *Node) firstRead(ctx context.Context, t *statestore.TableInfo, topic [16]byte, partition int32, from int64) (int64, error) {
	start, err := n.logStart(ctx, schemas.PartitionOf(t.Name, int32(n.topics.Partitions)))
	if err != nil || from >= start {
		return from, err
	}
	if !t.Definition.Keyed() {
		return start, nil // of the log it needs only what is yet to come
	}
	horizon := int64(-1)
	fresh := true
	for i := range t.Shards {
		if s := &t.Shards[i]; s.TopicID == topic && s.Partition == partition {
			fresh = false
			if s.Index.Path == "" {
				horizon = s.IndexHorizon
			}
		}
	}
	if fresh || start <= horizon+1 {
		return start, nil
	}
	return 0, fmt.Errorf("table %s, source partition %d: %w: the log begins at offset %d, and the shard's key index is only known up to %d; restore its index checkpoint, or the log's beginning, from a copy",
		t.Name, partition, ErrLogTrimmed, start, from-1)
}
