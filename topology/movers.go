package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/statestore"
)

// shardTopic is the topic whose partitions are a table's shards: its source, or
// the internal one that its events go through (K5).
func (n *Conn) shardTopic(d *schemas.Definition) string {
	if d.Rekeyed() {
		return n.topics.RekeyTopic(d.Name)
	}
	return d.SourceTopic
}

// checkRepartition says what of a definition's wish to be re-keyed cannot work.
func checkRepartition(d *schemas.Definition) error {
	for _, p := range d.Properties {
		switch {
		case p.Key != schemas.PropertyRepartition:
		case p.Value != schemas.RepartitionAlways:
			return fmt.Errorf("%w: table %s: repartition is %q; it can only be %q, or left out", ErrConfig, d.Name, p.Value, schemas.RepartitionAlways)
		case !d.Keyed():
			return fmt.Errorf("%w: table %s has no key to repartition its events by; leave repartition out", ErrConfig, d.Name)
		}
	}
	return nil
}

// makeRekeyTopic makes a table's internal topic where it is not there: as many
// partitions as its source has.
func (n *Node) makeRekeyTopic(ctx context.Context, d *schemas.Definition) error {
	if n.broker != nil {
		return fmt.Errorf("%w: table %s: repartition moves events in Kafka transactions, which the embedded broker does not have: run on a cluster, or publish with the table's key as record key", ErrNeedsCluster, d.Name)
	}
	target := n.topics.RekeyTopic(d.Name)
	if _, err := n.admin.Topic(ctx, target); !errors.Is(err, ErrNoTopic) {
		return err
	}
	source, err := n.admin.Topic(ctx, d.SourceTopic)
	if err != nil {
		return fmt.Errorf("table %s: its source: %w", d.Name, err)
	}
	_, err = n.admin.EnsureSourceTopic(ctx, target, source.Partitions)
	return err
}

// moveSources runs a mover for every one of these tables that is re-keyed and
// that this node is to ingest. Movers of several nodes share the source as a
// group of their own.
func (n *Node) moveSources(tables []*statestore.TableInfo) {
	for _, t := range tables {
		if !t.Definition.Rekeyed() || !n.opt.Ingests(t.Name) {
			continue
		}
		n.mu.Lock()
		running := n.movers[t.ID]
		if n.movers == nil {
			n.movers = map[int64]bool{}
		}
		n.movers[t.ID] = true
		n.mu.Unlock()
		if !running {
			n.spawn(func(ctx context.Context) error { return n.keepMoving(ctx, t) })
		}
	}
}

// moverCheck is how often a mover's table is looked at: it ends with it.
const moverCheck = 5 * time.Second

// keepMoving runs a table's mover until the table is dropped. What stops it is
// told of and tried again: a person may have mended it.
func (n *Node) keepMoving(ctx context.Context, t *statestore.TableInfo) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() {
		n.mu.Lock()
		delete(n.movers, t.ID)
		n.mu.Unlock()
	}()
	n.wg.Go(func() {
		for sleep(ctx, moverCheck) == nil {
			now, err := n.Table(ctx, t.Name)
			if errors.Is(err, ErrNoTable) || err == nil && now.ID != t.ID {
				cancel()
			}
		}
	})
	def := t.Definition
	for wait := retryMin; ; wait = min(2*wait, serveMax) {
		began := time.Now()
		err := n.move(ctx, def)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errOtherFormat) {
			if now, err := n.Table(ctx, t.Name); err == nil && now.ID == t.ID {
				def, wait = now.Definition, retryMin/2
			}
			continue
		}
		if time.Since(began) > serveMax {
			wait = retryMin
		}
		n.refuse(t.Name, err)
		n.log.Error("events are not moved to the table's internal topic; it is tried again", "table", t.Name, "after", wait, "error", err)
		if sleep(ctx, wait) != nil {
			return nil
		}
	}
}

func (n *Node) move(ctx context.Context, d *schemas.Definition) error {
	if err := n.makeRekeyTopic(ctx, d); err != nil {
		return err
	}
	source, err := n.admin.Topic(ctx, d.SourceTopic)
	if err != nil {
		return fmt.Errorf("table %s: its source: %w", d.Name, err)
	}
	target, err := n.admin.Topic(ctx, n.topics.RekeyTopic(d.Name))
	if err != nil {
		return err
	}
	m, err := newMover(ctx, moverConfig{
		client: n.client, admin: n.admin, def: d, source: source, target: target.Name, partitions: target.Partitions,
		deployment: n.deployment, member: n.opt.NodeID, logger: n.log, registry: n.opt.Registry, wait: n.wait,
		outdated: func(ctx context.Context) (bool, error) { return n.otherFormat(ctx, d) },
	})
	if err != nil {
		return err
	}
	n.refuse(d.Name, nil)
	return m.run(ctx)
}

// waitMoved waits until all that the table's source holds now has been moved.
func (n *Node) waitMoved(ctx context.Context, t *statestore.TableInfo, progress func(LoadProgress)) error {
	source, err := n.admin.Topic(ctx, t.Definition.SourceTopic)
	if err != nil {
		return fmt.Errorf("table %s: its source: %w", t.Name, err)
	}
	c := moverConfig{admin: n.admin, def: t.Definition, source: source, deployment: n.deployment}
	ends, err := n.admin.Offsets(ctx, source.Name)
	if err != nil {
		return err
	}
	for {
		left, err := c.left(ctx, ends)
		if err != nil {
			return err
		}
		if left == 0 {
			return nil
		}
		if progress != nil {
			progress(LoadProgress{Of: left})
		}
		if err := n.pause(ctx); err != nil {
			return err
		}
	}
}

// left is how many offsets below these ends are not moved yet.
func (c *moverConfig) left(ctx context.Context, ends []PartitionOffsets) (int64, error) {
	os, err := c.admin.adm.FetchOffsets(ctx, c.group())
	for wait := retryMin; kerr.IsRetriable(err); wait = min(2*wait, retryMax) { // a new group's coordinator takes a while
		if err := sleep(ctx, wait); err != nil {
			return 0, err
		}
		os, err = c.admin.adm.FetchOffsets(ctx, c.group())
	}
	if err != nil {
		return 0, fmt.Errorf("read the offsets of group %s: %w", c.group(), err)
	}
	n := int64(0)
	at := map[int32]int64{}
	os.Each(func(o kadm.OffsetResponse) {
		if o.Topic == c.source.Name {
			at[o.Partition] = o.At
		}
	})
	for p := range ends {
		n += max(0, ends[p].Stable-max(at[int32(p)], ends[p].Start))
	}
	return n, nil
}

// otherFormat says whether the source of a table is read otherwise than by this
// definition, as of all that is in the log now.
func (n *Node) otherFormat(ctx context.Context, d *schemas.Definition) (bool, error) {
	p := n.partition(d.Name)
	ends, err := n.admin.Offsets(ctx, n.topics.Transactions)
	if err != nil {
		return false, err
	}
	if err := n.views.seen(ctx, p, ends[p].High-1); err != nil {
		return false, err
	}
	now, err := n.Table(ctx, d.Name)
	if err != nil {
		return false, err
	}
	was, options := d.SourceFormat()
	is, others := now.Definition.SourceFormat()
	return was != is || !slices.Equal(options, others), nil
}
