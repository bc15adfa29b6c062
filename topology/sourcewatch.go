package topology

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/statestore"
)

// ErrSourceGrew marks errors of a source topic that gained partitions (A6).
var ErrSourceGrew = errors.New("source topic gained partitions")

// sourceCheck is how often the topics of owned shards are looked at while they
// are read: a reader does not notice that partitions were added.
const sourceCheck = 5 * time.Second

// missingLooks is how many looks in a row must miss a topic: a broker that just
// started may not know all topics yet.
const missingLooks = 3

// checkSource refuses a topic that is not, or not as, the table's shards know
// it (A1, A6). A keyed table's shards claim their partitions before any of them
// reads, so that fewer shards than partitions, with events taken, say that
// the topic grew: a key of an old partition may now go to a new one, where
// nobody knows its row.
func checkSource(t *statestore.TableInfo, topic TopicInfo) error {
	known, claimed, events := 0, 0, false
	for i := range t.Shards {
		s := &t.Shards[i]
		if s.Topic == topic.Name && s.TopicID != topic.ID && !s.Retired {
			return fmt.Errorf("%w: table %s: topic %s was made again under its name; retire the old shards with `varve table retire %s`, or give the new topic a table of its own", ErrTopicRecreated, t.Name, topic.Name, t.Name)
		}
		if s.TopicID == topic.ID {
			known++
			claimed = max(claimed, claimedPartitions(s.Member))
			c := &s.Counts
			events = events || c.Events+c.DeadUpserts+c.DeadDeletes+c.DeadOther > 0
		}
	}
	if claimed > 0 {
		known = claimed
	}
	if x := t.Resharding; x != nil && x.TopicID == topic.ID {
		return nil // the shards that there are read up to where it says
	}
	if b := t.Base; b != nil && b.TopicID == topic.ID {
		known = max(known, int(b.Partitions))
	}
	if t.Definition.Keyed() && events && topic.Partitions > known {
		return grew(t.Name, topic, known)
	}
	return nil
}

func grew(table string, topic TopicInfo, known int) error {
	return fmt.Errorf("%w: table %s: topic %s has %d partitions, the table's shards were made for %d: a key whose events now go to a new partition would get a second row; "+
		"divide the topic anew with `varve table reshard %s`, or load it into a table of another name", ErrSourceGrew, table, topic.Name, topic.Partitions, known, table)
}

// watchSources looks at the topics of the shards that this node owns, and stops
// a table's shards once one of them is not what they know: the other tables go
// on. Brokers that do not answer are waited for.
func (n *Node) watchSources(ctx context.Context, every time.Duration) error {
	missing := map[string]int{}
	for sleep(ctx, every) == nil {
		if !n.opt.Groups {
			n.resumeTables(ctx)
		}
		for _, w := range n.owned() {
			if err := n.watchSource(ctx, w, missing); err != nil {
				n.haltTable(w.cfg.TableID, err)
			}
		}
	}
	return nil
}

// sourceFault says whether an error is one of a table's source, which ends
// neither the node nor its other tables.
func sourceFault(err error) bool {
	return errors.Is(err, ErrSourceGrew) || errors.Is(err, ErrTopicRecreated) || errors.Is(err, ErrNoTopic)
}

// stopTable notes that a table of a node that shares with nobody is not
// ingested until its source is what it was, or somebody acts.
func (n *Node) stopTable(table string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused[table] = err.Error()
	if !n.unsourced[table] {
		n.unsourced[table] = true
		n.log.Error("a table is not ingested until somebody acts; it is looked at again now and then", "table", table, "error", err)
	}
}

// resumeTables takes the shards of stopped tables again whose sources are as
// they should be by now: divided anew, retired, or made again.
func (n *Node) resumeTables(ctx context.Context) {
	n.mu.Lock()
	names := slices.Sorted(maps.Keys(n.unsourced))
	n.mu.Unlock()
	for _, name := range names {
		t, err := n.Table(ctx, name)
		if err == nil {
			err = n.sourceOf(ctx, t)
		}
		if err != nil && !errors.Is(err, ErrNoTable) {
			n.log.Debug("a table stays stopped", "table", name, "error", err)
			continue
		}
		n.forgetTable(name)
		if err == nil {
			err = n.Ingest(ctx, t)
		}
		if sourceFault(err) {
			continue // it changed again
		}
		n.mu.Lock()
		delete(n.unsourced, name)
		n.mu.Unlock()
		switch {
		case errors.Is(err, ErrNoTable):
			n.refuse(name, nil) // dropped
		case err != nil:
			n.fail(err)
		default:
			n.log.Info("a table is ingested again", "table", name)
		}
	}
}

// sourceOf says what is wrong with a table's source topic, nil: nothing.
func (n *Node) sourceOf(ctx context.Context, t *statestore.TableInfo) error {
	topic, err := n.admin.Topic(ctx, n.shardTopic(t.Definition))
	if err != nil {
		return err
	}
	return checkSource(t, topic)
}

// forgetTable waits for a table's stopped shards to end, and takes them out of
// the node's status.
func (n *Node) forgetTable(table string) {
	var names []string
	n.mu.Lock()
	for name, w := range n.shards {
		if w.cfg.Table == table && w.halted {
			names = append(names, name)
		}
	}
	n.mu.Unlock()
	for _, name := range names {
		n.forgetShard(name)
	}
}

// runAlone drives a shard of a node that shares with nobody. One that is halted
// ends without the node.
func (n *Node) runAlone(ctx context.Context, w *shardWorker) error {
	defer w.halt(nil)
	err := w.run(ctx)
	cause := context.Cause(ctx)
	if ctx.Err() == nil || errors.Is(cause, context.Canceled) {
		if sourceFault(err) {
			n.haltTable(w.cfg.TableID, err) // its reader saw it first
			cause, err = err, nil
		} else {
			return err
		}
	}
	w.mu.Lock()
	w.status.Stage, w.status.Err = ingest.Stopped, cause.Error()
	w.mu.Unlock()
	n.stopTable(w.cfg.Table, cause)
	return err
}

// haltTable stops all shards of a table that this node has.
func (n *Node) haltTable(table int64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.shards {
		if w.cfg.TableID == table && w.halt != nil {
			w.halted = true
			w.halt(err)
		}
	}
}

func (n *Node) watchSource(ctx context.Context, w *shardWorker, missing map[string]int) error {
	c := &w.cfg
	topic, err := n.admin.Topic(ctx, c.Shard.Topic)
	if err == nil {
		delete(missing, c.Shard.Topic)
	}
	switch {
	case errors.Is(err, ErrNoTopic):
		if missing[c.Shard.Topic]++; missing[c.Shard.Topic] < missingLooks {
			return nil
		}
		return fmt.Errorf("table %s: its source: %w: it was deleted while it was read; make it again and retire the shards with `varve table retire %s`, or drop the table", c.Table, err, c.Table)
	case err != nil:
		// The readers wait for the brokers and say so.
		n.log.Debug("a source topic could not be looked at", "topic", c.Shard.Topic, "error", err)
		return nil
	case topic.ID != TopicID(c.Shard.TopicID):
		return fmt.Errorf("%w: table %s: topic %s was made again under its name while it was read; retire the old shards with `varve table retire %s`, or give the new topic a table of its own", ErrTopicRecreated, c.Table, topic.Name, c.Table)
	case topic.Partitions <= int(c.Partitions):
		return nil
	case w.keyed:
		t, err := n.Table(ctx, c.Table)
		if err != nil {
			n.log.Debug("a table could not be looked at", "table", c.Table, "error", err)
			return nil
		}
		if t.Resharding != nil || t.Base != nil && int(t.Base.Partitions) >= topic.Partitions {
			return nil
		}
		return grew(c.Table, topic, int(c.Partitions))
	case n.opt.Groups:
		return nil // the group gives the new partitions
	}
	return n.ingestGrown(ctx, c.Table)
}

// ingestGrown takes the shards of a table that this node does not have: the new
// partitions of one without a key, whose rows only gain, so that it does not
// matter which partition they come from, and all of a topic that was divided
// anew.
func (n *Node) ingestGrown(ctx context.Context, table string) error {
	t, err := n.Table(ctx, table)
	if errors.Is(err, ErrNoTable) {
		return nil // dropped meanwhile
	}
	if err != nil {
		return err
	}
	return n.Ingest(ctx, t)
}

// owned are the shards that run, one a topic and table.
func (n *Node) owned() []*shardWorker {
	n.mu.Lock()
	defer n.mu.Unlock()
	type source struct {
		table int64
		topic [16]byte
	}
	seen := map[source]bool{}
	var out []*shardWorker
	for _, w := range n.shards {
		k := source{w.cfg.TableID, w.cfg.Shard.TopicID}
		select {
		case <-w.done:
			continue
		default:
		}
		if !seen[k] {
			seen[k] = true
			out = append(out, w)
		}
	}
	return out
}
