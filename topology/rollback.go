package topology

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// ErrNoRollback: the table cannot be rolled back to that snapshot.
var ErrNoRollback = errors.New("cannot be rolled back")

// rewind makes a shard's folder of what the table's newest rollback brought back.
func (n *Node) rewind(ctx context.Context, c *ingest.Config, t *statestore.TableInfo) (err error) {
	began := time.Now()
	part := schemas.PartitionOf(c.Table, int32(n.topics.Partitions))
	x, err := n.rollbackAt(ctx, part, c.Base)
	if err != nil {
		return err
	}
	from, err := n.remembersFrom(ctx, part, x.Build, ingest.RewindMs(t.Definition))
	if err != nil {
		return err
	}
	w, err := ingest.NewRewind(*c, t.Definition, x.Build)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if from <= x.Build {
		if err := n.eachDecided(ctx, part, from, func(d *processors.Decided) (bool, error) {
			return d.Outcome.Offset <= x.Build, w.Look(ctx, d)
		}); err != nil {
			return err
		}
	}
	if err := n.eachDecided(ctx, part, from, func(d *processors.Decided) (bool, error) {
		if d.Outcome.Offset > c.Base {
			return false, fmt.Errorf("log offset %d holds no rollback of table %s", c.Base, c.Table)
		}
		err := w.Take(ctx, d)
		return !w.Done(), err
	}); err != nil {
		return err
	}
	n.log.Info("a shard begins with what a rollback brought back", "table", c.Table, "topic", c.Shard.Topic, "partition", c.Shard.Partition,
		"files", len(x.Files), "offset", c.Base, "after", time.Since(began))
	return nil
}

// eachDecided reads the log from an offset on, until fn has enough.
func (n *Node) eachDecided(ctx context.Context, partition int32, from int64, fn func(*processors.Decided) (more bool, err error)) error {
	r, err := openDecided(ctx, n.client, n.topics, partition, from)
	if err != nil {
		return err
	}
	defer r.close()
	for {
		ds, err := r.poll(ctx, 100*time.Millisecond)
		if err != nil {
			return err
		}
		for i := range ds {
			if more, err := fn(&ds[i]); err != nil || !more {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// rollbackAt reads the accepted Rollback at a log offset.
func (n *Conn) rollbackAt(ctx context.Context, partition int32, offset int64) (*record.Rollback, error) {
	r, err := n.readOne(ctx, n.topics.Transactions, partition, offset)
	if err != nil {
		return nil, err
	}
	sr := stateRecord(r)
	env, body, err := n.bodies.Open(ctx, sr.Key, sr.Header, sr.Value)
	if err != nil {
		return nil, err
	}
	v, err := record.DecodeBody(env.Type, env.TypeVersion, body)
	if err != nil {
		return nil, fmt.Errorf("log offset %d: %w", offset, err)
	}
	x, ok := v.(*record.Rollback)
	if !ok {
		return nil, fmt.Errorf("log offset %d holds a %s, no Rollback", offset, env.Type)
	}
	return x, nil
}

// remembersFrom is the first log offset whose record is so shortly before a build
// offset that what it tells may still be known there.
func (n *Conn) remembersFrom(ctx context.Context, partition int32, build, ttlMs int64) (int64, error) {
	r, err := n.readOne(ctx, n.topics.Transactions, partition, build)
	if errors.Is(err, ErrOffsetOutOfRange) {
		return n.logStart(ctx, partition)
	}
	if err != nil {
		return 0, err
	}
	from, err := n.admin.OffsetAt(ctx, n.topics.Transactions, partition, r.TimeMs-ttlMs)
	if err != nil {
		return 0, err
	}
	start, err := n.logStart(ctx, partition)
	return max(start, min(from, build)), err
}

func (n *Conn) logStart(ctx context.Context, partition int32) (int64, error) {
	at, err := n.admin.Offsets(ctx, n.topics.Transactions)
	if err != nil {
		return 0, err
	}
	return at[partition].Start, nil
}

// OffsetAt is the offset of the first record of a partition at or after a time,
// its end where there is none.
func (a *Admin) OffsetAt(ctx context.Context, topic string, partition int32, ms int64) (int64, error) {
	if ms <= 0 {
		return 0, nil
	}
	var at int64
	err := patiently(ctx, func() error {
		listed, err := a.adm.ListOffsetsAfterMilli(ctx, ms, topic)
		if err == nil {
			err = listed.Error()
		}
		if err != nil {
			return err
		}
		o, ok := listed.Lookup(topic, partition)
		if !ok {
			return fmt.Errorf("no answer for partition %d", partition)
		}
		at = o.Offset
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("ask Kafka for the offset of topic %s at a time: %w", topic, err)
	}
	return at, nil
}

// restoredIndex opens a shard whose table was rolled back, making its folder if need be.
func (n *Node) restoredIndex(ctx context.Context, c *ingest.Config, t *statestore.TableInfo) (*ingest.Shard, error) {
	c.Base, c.Dir = t.Rolled, n.indexDir(c.TableID, c.Shard.TopicID, c.Shard.Partition, t.Rolled)
	s, err := ingest.New(ctx, *c, t.Definition)
	if errors.Is(err, ingest.ErrNoBase) {
		if err := n.rewind(ctx, c, t); err != nil {
			return nil, fmt.Errorf("table %s, %s/%d: make the index of a table that was rolled back: %w", c.Table, c.Shard.Topic, c.Shard.Partition, err)
		}
		c.Checkpoint = nil // there is none, or it was of no use
		s, err = ingest.New(ctx, *c, t.Definition)
	}
	if err != nil {
		return nil, err
	}
	// Folders of before are of no use any more.
	for _, base := range []int64{0, n.baseBefore(t, c.Shard.TopicID)} {
		if dir := n.indexDir(c.TableID, c.Shard.TopicID, c.Shard.Partition, base); dir != c.Dir {
			if err := os.RemoveAll(dir); err != nil {
				n.log.Warn("an index folder of before the rollback stays", "error", err)
			}
		}
	}
	return s, nil
}

func (n *Node) baseBefore(t *statestore.TableInfo, topic [16]byte) int64 {
	if b := t.Base; b != nil && b.TopicID == topic {
		return b.Offset
	}
	return 0
}

// RollbackPlan is what a rollback would bring back.
type RollbackPlan struct {
	Table     string `json:"table"`
	Snapshot  int64  `json:"snapshot_id"`
	From      int64  `json:"from_snapshot_id"`
	Files     int    `json:"files"`
	Rows      int64  `json:"rows"`
	Dead      int64  `json:"deleted"`
	Vectors   int    `json:"vectors"`
	Manifests int    `json:"manifests"`
	Offset    int64  `json:"offset"` // of the accepted record, -1: a drill
	Unread    int64  `json:"events_not_read_again"`
	Undone    int64  `json:"requests_undone"`
}

// PlanRollback reads all that a snapshot lists, and makes sure that every file of
// it is there (G1). This node must have the table's state.
func (n *Node) PlanRollback(ctx context.Context, table string, snapshot int64) (*record.Rollback, *RollbackPlan, error) {
	w := n.stateOf(table)
	if w == nil {
		return nil, nil, fmt.Errorf("%w: table %s", ErrNotHere, table)
	}
	t, err := w.store.Table(table)
	if err != nil {
		return nil, nil, err
	}
	if t == nil {
		return nil, nil, fmt.Errorf("table %s: %w", table, ErrNoTable)
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("table %s %w to snapshot %d: %s", table, ErrNoRollback, snapshot, fmt.Sprintf(format, args...))
	}
	rec := &record.Rollback{Snapshot: snapshot}
	for i := range t.Snapshots {
		if t.Snapshots[i].ID == snapshot {
			rec.Build, rec.ManifestList = t.Snapshots[i].Build, t.Snapshots[i].List
		}
	}
	if rec.ManifestList == "" {
		return nil, nil, refuse("it is not retained, or not one of ours; \"varve snapshots %s\" lists them", table)
	}
	plan := &RollbackPlan{Table: table, Snapshot: snapshot, From: t.Head.SnapshotID, Offset: -1}
	if err := publisher.ReadListed(ctx, n.store, w.store, t, rec); err != nil {
		return nil, nil, refuse("%v", err)
	}
	plan.Files, plan.Vectors, plan.Manifests = len(rec.Files), len(rec.Vectors), len(rec.Manifests)
	for i := range rec.Files {
		plan.Rows += rec.Files[i].Rows
	}
	for i := range rec.Vectors {
		plan.Dead += rec.Vectors[i].Cardinality
	}
	plan.Rows -= plan.Dead
	return rec, plan, nil
}

// Rollback makes a retained snapshot the table's head again. A cut that is being
// published is waited for.
func (n *Node) Rollback(ctx context.Context, table string, snapshot int64, cause string) (*RollbackPlan, error) {
	x, plan, err := n.PlanRollback(ctx, table, snapshot)
	if err != nil {
		return nil, err
	}
	x.Cause = cause
	for {
		t, err := n.Table(ctx, table)
		if err != nil {
			return nil, err
		}
		if t.Pending != nil {
			if err := n.pause(ctx); err != nil {
				return nil, fmt.Errorf("table %s: the cut at log offset %d is not published: %w", table, t.Pending.Cut, err)
			}
			continue
		}
		out, err := n.Request(ctx, t.Name, t.ID, x)
		if err != nil {
			return nil, err
		}
		o := &out.Outcome
		if o.Code == record.Accepted {
			plan.Offset = out.Offset
			if len(o.Numbers) > record.RollbackUndone {
				plan.Unread, plan.Undone = o.Numbers[record.RollbackUnread], o.Numbers[record.RollbackUndone]
			}
			return plan, nil
		}
		why := ""
		switch o.Reason {
		case record.CutPending:
			continue
		case record.Unsettled:
			why = ": a deletion request is not answered by every shard; wait for it, or retire the shard that is gone"
		case record.ReshardOpen:
			why = ": its source topic is being divided anew; wait for that"
		case record.NoSnapshot:
			why = ": the snapshot was expired meanwhile"
		case record.NoChange:
			why = ": it is the newest already"
		}
		return nil, fmt.Errorf("table %s %w to snapshot %d: %s (log offset %d)%s", table, ErrNoRollback, snapshot, o.Reason, out.Offset, why)
	}
}
