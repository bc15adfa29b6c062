package topology

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// errResharding: a new partition's shard waits until the old ones are drained.
var errResharding = errors.New("the source topic is about to be divided anew; the partition is taken then")

// waitsForReshard says whether a partition is one that the topic gained, whose
// shard waits for a Reshard (A6).
func waitsForReshard(t *statestore.TableInfo, topic TopicInfo, partition int32) bool {
	x := t.Resharding
	if x == nil || x.TopicID != topic.ID {
		return false
	}
	for i := range t.Shards {
		if s := &t.Shards[i]; s.TopicID == topic.ID && s.Partition == partition {
			return false
		}
	}
	return true
}

// partitionsOf is how many partitions a table's shards of a topic are made for:
// the topic's, or those before while it waits to be divided anew.
func partitionsOf(t *statestore.TableInfo, topic TopicInfo) int {
	if t.Resharding == nil || t.Resharding.TopicID != topic.ID {
		return topic.Partitions
	}
	known := 1
	for i := range t.Shards {
		if s := &t.Shards[i]; s.TopicID == topic.ID {
			known = max(known, int(s.Partition)+1)
		}
	}
	return known
}

// indexDir is a shard's folder on this node. Each division of its topic has
// another: what it held before is not what it holds now.
func (n *Node) indexDir(table int64, topic [16]byte, partition int32, base int64) string {
	name := fmt.Sprintf("%d-%x-%d", table, topic, partition)
	if base > 0 {
		name += fmt.Sprintf("-%d", base)
	}
	return filepath.Join(n.opt.Data, "index", name)
}

// openShard opens a shard as its table's topic is divided now.
func (n *Node) openShard(ctx context.Context, c *ingest.Config, t *statestore.TableInfo) (*ingest.Shard, error) {
	if x := t.Resharding; x != nil && x.TopicID == c.Shard.TopicID {
		c.DrainTo, c.Drain = x.End(c.Shard.Partition)
	}
	b := t.Base
	switch base := t.BaseOf(c.Shard.TopicID); {
	case base == 0:
		return ingest.New(ctx, *c, t.Definition)
	case base == t.Rolled:
		return n.restoredIndex(ctx, c, t)
	}
	c.Base, c.Dir = b.Offset, n.indexDir(c.TableID, c.Shard.TopicID, c.Shard.Partition, b.Offset)
	s, err := ingest.New(ctx, *c, t.Definition)
	if errors.Is(err, ingest.ErrNoBase) {
		if err := n.inherit(ctx, c, t, b); err != nil {
			return nil, fmt.Errorf("table %s, %s/%d: make the index of a topic that was divided anew: %w", c.Table, c.Shard.Topic, c.Shard.Partition, err)
		}
		c.Checkpoint = nil // there is none, or it was of no use
		s, err = ingest.New(ctx, *c, t.Definition)
	}
	if err != nil {
		return nil, err
	}
	for i := range b.From {
		if f := &b.From[i]; f.Partition == c.Shard.Partition {
			if err := os.RemoveAll(n.indexDir(c.TableID, c.Shard.TopicID, f.Partition, max(f.Base, 0))); err != nil {
				n.log.Warn("an index folder of before the topic was divided anew stays", "error", err)
			}
		}
	}
	return s, nil
}

// inherit makes a shard's folder of what its topic's shards knew when it was
// divided anew: each is brought there from its newest checkpoint and the log.
func (n *Node) inherit(ctx context.Context, c *ingest.Config, t *statestore.TableInfo, b *statestore.ShardBase) (err error) {
	def := t.Definition
	began := time.Now()
	root := c.Dir + ".from"
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	var olds []*ingest.Shard
	defer func() {
		for _, s := range olds {
			err = errors.Join(err, s.Abandon())
		}
	}()
	from := int64(math.MaxInt64)
	for i := range b.From {
		f := &b.From[i]
		oc := *c
		oc.Shard = record.ShardKey{TopicID: c.Shard.TopicID, Topic: c.Shard.Topic, Partition: f.Partition}
		oc.Base, oc.Drain, oc.Checkpoint = max(f.Base, 0), false, nil
		oc.Dir = filepath.Join(root, fmt.Sprint(f.Partition))
		if f.Index.Path != "" {
			oc.Checkpoint = &f.Index
		}
		s, err := ingest.New(ctx, oc, def)
		if errors.Is(err, ingest.ErrNoBase) {
			return fmt.Errorf("the index checkpoint %s of partition %d is gone or damaged: restore it: %w", f.Index.Path, f.Partition, err)
		}
		if err != nil {
			return err
		}
		olds = append(olds, s)
		first, err := n.firstRead(ctx, t, c.Shard.TopicID, f.Partition, s.LogFrom())
		if err != nil {
			return err
		}
		from = min(from, first)
	}
	if err := n.bringTo(ctx, schemas.PartitionOf(c.Table, int32(n.topics.Partitions)), olds, from, b.Offset); err != nil {
		return err
	}
	if err := ingest.Inherit(*c, def, olds); err != nil {
		return err
	}
	n.log.Info("a shard begins with what all shards of its topic knew", "table", c.Table, "topic", c.Shard.Topic, "partition", c.Shard.Partition, "shards", len(olds), "offset", b.Offset, "after", time.Since(began))
	return nil
}

// bringTo gives shards the decided log from one offset through another.
func (n *Node) bringTo(ctx context.Context, partition int32, shards []*ingest.Shard, from, through int64) error {
	if from > through {
		return nil
	}
	r, err := openDecided(ctx, n.client, n.topics, partition, from)
	if err != nil {
		return err
	}
	defer r.close()
	for at := from - 1; at < through; {
		ds, err := r.poll(ctx, 100*time.Millisecond)
		if err != nil {
			return err
		}
		for len(ds) > 0 && ds[len(ds)-1].Outcome.Offset > through {
			ds, at = ds[:len(ds)-1], through
		}
		if n := len(ds); n > 0 && !ds[n-1].Outcome.Derived { // those of a record come before its own
			at = max(at, ds[n-1].Outcome.Offset)
		}
		for _, s := range shards {
			s.OnDecided(ctx, ds)
			for !s.WantsDecided() && s.Err() == nil {
				if err := sleep(ctx, shardTick); err != nil {
					return errors.Join(err, s.Waiting())
				}
				s.Tick(ctx, nowMs())
			}
			if err := s.Err(); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// ErrNoReshard: the table's source topic cannot be divided anew.
var ErrNoReshard = errors.New("cannot be divided anew")

// Reshard asks for a keyed table's source topic, which gained partitions, to be
// divided anew (A6): its shards read up to where the topic ends now. Resharded
// waits until that is done.
func (n *Conn) Reshard(ctx context.Context, table string, stoodStill bool) (record.OutcomeMessage, error) {
	var none record.OutcomeMessage
	t, err := n.Table(ctx, table)
	if err != nil {
		return none, err
	}
	refuse := func(why string) (record.OutcomeMessage, error) {
		return none, fmt.Errorf("table %s: its source topic %w: %s", table, ErrNoReshard, why)
	}
	switch d := t.Definition; {
	case !d.Keyed():
		return refuse("the table has no key, and takes new partitions by itself")
	case d.Rekeyed():
		return refuse("its events go through an internal topic, so that it may gain partitions as it is")
	case d.Order.Kind == schemas.OrderNone && !stoodStill:
		return refuse("the table has no ordering column, so nothing tells events of a key's old partition from those of its new one: " +
			"stop the producers before partitions are added, let varve read to the end, and say so with --producers-stood-still")
	}
	topic, err := n.admin.Topic(ctx, t.Definition.SourceTopic)
	if err != nil {
		return none, fmt.Errorf("table %s: its source: %w", table, err)
	}
	at, err := n.admin.Offsets(ctx, topic.Name)
	if err != nil {
		return none, err
	}
	x := &record.Reshard{TopicID: topic.ID, Topic: topic.Name, Partitions: int32(topic.Partitions), StoodStill: stoodStill}
	for i := range t.Shards {
		s := &t.Shards[i]
		if s.TopicID != topic.ID || s.Retired {
			continue
		}
		if int(s.Partition) >= len(at) {
			return refuse(fmt.Sprintf("the table has a shard of partition %d, which the topic has not", s.Partition))
		}
		x.Ends = append(x.Ends, record.ShardEnd{Partition: s.Partition, Offset: max(s.SourceEnd, at[s.Partition].High)})
	}
	return n.Request(ctx, t.Name, t.ID, x)
}

// Resharded waits until a table's topic is divided anew, and gives the table.
func (n *Conn) Resharded(ctx context.Context, table string) (*statestore.TableInfo, error) {
	for {
		t, err := n.Table(ctx, table)
		if err != nil {
			return nil, err
		}
		if t.Resharding == nil {
			return t, nil
		}
		if err := n.pause(ctx); err != nil {
			return nil, fmt.Errorf("table %s: not every shard is drained for the reshard at log offset %d, or has answered every request by key; it goes on by itself: %w", table, t.Resharding.Offset, err)
		}
	}
}

// Embedded says whether the node runs its own broker: then no other node reads
// what it holds.
func (n *Node) Embedded() bool { return n.broker != nil }
