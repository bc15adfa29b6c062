package topology

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/statestore"
)

// ingestEvery is how often a node looks for tables whose shards it should take.
const ingestEvery = 500 * time.Millisecond

// sourcePart is a partition of a source topic: what the group over sources
// gives. All tables that read the topic have a shard of it.
type sourcePart struct {
	topic     string
	partition int32
}

// shardID is a shard that a node has for a table.
type shardOf struct {
	sourcePart
	table int64
}

// ingestGroup holds the source partitions that the group gave this node, or
// that it was told to take, and runs the shards of all tables on them.
type ingestGroup struct {
	n *Node
	m *member // nil: SourcePartitions say what is held

	mu     sync.Mutex
	held   map[sourcePart]context.Context
	cancel map[sourcePart]context.CancelFunc
	shards map[shardOf]*shardTenure
	last   map[shardOf]*tenure
	wake   chan struct{}
}

// shardTenure is one shard's, for as long as its source partition is held.
type shardTenure struct {
	tenure
	mu     sync.Mutex
	worker *shardWorker // while it runs
}

func (t *shardTenure) set(w *shardWorker) {
	t.mu.Lock()
	t.worker = w
	t.mu.Unlock()
}

func (t *shardTenure) get() *shardWorker {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.worker
}

// checkGroups says what of the options about groups cannot work, and fills in
// defaults.
func (o *NodeOptions) checkGroups() error {
	if o.SessionTimeout == 0 {
		o.SessionTimeout = DefaultSessionTimeout
	}
	if o.RebalanceTimeout == 0 {
		o.RebalanceTimeout = DefaultRebalanceTimeout
	}
	if o.SessionTimeout < time.Second || o.RebalanceTimeout < time.Second {
		return fmt.Errorf("%w: session and rebalance timeouts are a second or more", ErrConfig)
	}
	for _, t := range o.Tables {
		if _, err := path.Match(t, ""); err != nil {
			return fmt.Errorf("%w: %q is no pattern of table names: %w; write it as shop.* or shop.orders", ErrConfig, t, err)
		}
	}
	if err := checkNodeID(o.NodeID); err != nil {
		return err
	}
	switch ingests := slices.Contains(o.Roles, RoleIngest); {
	case o.Groups && len(o.Brokers) == 0:
		return fmt.Errorf("%w: nodes share a deployment over a Kafka cluster only: name its brokers", ErrConfig)
	case ingests && !o.Groups && !slices.Contains(o.Roles, RoleState):
		return fmt.Errorf("%w: role ingest without state needs the other nodes of a cluster: name its brokers, or both roles", ErrConfig)
	case len(o.SourcePartitions) > 0 && !o.Groups:
		return fmt.Errorf("%w: source partitions are divided between the nodes of a cluster only: name its brokers", ErrConfig)
	case len(o.SourcePartitions) > 0 && !ingests:
		return fmt.Errorf("%w: source partitions are taken by nodes with the role ingest", ErrConfig)
	}
	return nil
}

// maxNodeID keeps an instance id within what Kafka takes.
const maxNodeID = 100

func checkNodeID(id string) error {
	if len(id) > maxNodeID {
		return fmt.Errorf("%w: node id %.20q… has more than %d characters", ErrConfig, id, maxNodeID)
	}
	for _, r := range id {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r) {
			return fmt.Errorf("%w: node id %q has the character %q; use letters, digits, dot, underscore and hyphen", ErrConfig, id, r)
		}
	}
	return nil
}

// nameNode gives the node the id that it had, or makes one.
func (n *Node) nameNode(old *nodeFile) error {
	switch {
	case n.opt.NodeID != "":
	case old != nil && old.NodeID != "":
		n.opt.NodeID = old.NodeID
	default:
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name the node: %w; name it with --node-id", err)
		}
		name := strings.Map(func(r rune) rune {
			if checkNodeID(string(r)) != nil {
				return '-'
			}
			return r
		}, host)
		// Two folders of one host are two nodes.
		sum := sha256.Sum256([]byte(n.opt.Data))
		n.opt.NodeID = fmt.Sprintf("%.60s-%x", name, sum[:4])
	}
	return checkNodeID(n.opt.NodeID)
}

// Ingests says whether a table is one of those that the node is to ingest.
func (o *NodeOptions) Ingests(table string) bool {
	if len(o.Tables) == 0 {
		return true
	}
	for _, pattern := range o.Tables {
		if ok, err := path.Match(pattern, table); err == nil && ok {
			return true
		}
	}
	return false
}

// claimMember is what a claim says of its maker: the node, and how many
// partitions the topic had. The claims of a table's shards are the log's memory
// of that number (checkSource).
func claimMember(node string, partitions int) string {
	return node + "/" + strconv.Itoa(partitions)
}

// claimedPartitions is the number of partitions in a claim, 0: it says none.
func claimedPartitions(member string) int {
	i := strings.LastIndexByte(member, '/')
	n, err := strconv.Atoi(member[i+1:])
	if i < 0 || err != nil {
		return 0
	}
	return n
}

// openDirectories begins to read what the log says of all tables.
func (n *Node) openDirectories(ctx context.Context) error {
	offsets, err := n.admin.Offsets(ctx, n.topics.Transactions)
	if err != nil {
		return err
	}
	n.states = make([]*stateWorker, len(offsets))
	for p := range offsets {
		n.dirs = append(n.dirs, newDirectory(n, int32(p), offsets[p].High))
	}
	for _, d := range n.dirs {
		n.spawn(d.run)
	}
	return nil
}

// startGroups takes part in the groups of the node's roles.
func (n *Node) startGroups() error {
	if n.has(RoleState) {
		if err := n.joinStates(); err != nil {
			return err
		}
	}
	if n.has(RoleIngest) {
		return n.joinIngest()
	}
	return nil
}

func (n *Node) joinIngest() error {
	g := &ingestGroup{
		n: n, held: map[sourcePart]context.Context{}, cancel: map[sourcePart]context.CancelFunc{},
		shards: map[shardOf]*shardTenure{}, last: map[shardOf]*tenure{}, wake: make(chan struct{}, 1),
	}
	if len(n.opt.SourcePartitions) == 0 {
		m, err := joinGroup(n.memberOptions(IngestGroup(n.deployment), g.assigned, g.revoked, g.lost))
		if err != nil {
			return err
		}
		g.m = m
		n.spawn(func(ctx context.Context) error {
			for sleep(ctx, commitEvery) == nil {
				g.commit(ctx, g.parts())
			}
			return nil
		})
	}
	n.mu.Lock()
	n.ingestGroup = g
	n.mu.Unlock()
	n.spawn(g.manage)
	n.spawn(func(ctx context.Context) error { return n.watchSources(ctx, sourceCheck) })
	return nil
}

// leaveIngest ends the node's part in the group over sources. Its shards have
// been drained.
func (n *Node) leaveIngest(ctx context.Context) {
	if g := n.ingestGroup; g != nil && g.m != nil {
		g.commit(ctx, g.parts())
		n.leaveGroup(ctx, g.m)
	}
}

func (n *Node) leaveStates(ctx context.Context) {
	if g := n.stateGroup; g != nil {
		g.commit(ctx, g.partitions())
		n.leaveGroup(ctx, g.m)
	}
}

func (n *Node) leaveGroup(ctx context.Context, m *member) {
	m.close()
	if !n.opt.LeaveGroups {
		return
	}
	if err := m.leave(ctx); err != nil {
		n.log.Warn("the node could not leave its group", "error", err)
	}
}

// closeGroups ends the memberships of a node that was not drained.
func (n *Node) closeGroups() {
	if n.ingestGroup != nil && n.ingestGroup.m != nil {
		n.ingestGroup.m.close()
	}
	if n.stateGroup != nil {
		n.stateGroup.m.close()
	}
}

func (g *ingestGroup) wakeUp() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (g *ingestGroup) parts() []sourcePart {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.held))
}

// manage keeps the topics of the node's tables subscribed, and a shard running
// for every table on every partition that is held.
func (g *ingestGroup) manage(ctx context.Context) error {
	tick := time.NewTicker(ingestEvery)
	defer tick.Stop()
	for {
		tables, err := g.n.Tables(ctx)
		if err != nil && ctx.Err() == nil {
			g.n.log.Warn("the tables are not known; it is tried again", "error", err)
		}
		if err == nil {
			g.n.moveSources(tables)
			g.arrange(ctx, g.mine(tables))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-g.wake:
		}
	}
}

// mine are the tables that this node ingests, by topic. A source partition has
// one owner, whoever reads it for however many tables: a topic of which this
// node would ingest one table and leave out another is no node's to take.
func (g *ingestGroup) mine(tables []*statestore.TableInfo) map[string][]*statestore.TableInfo {
	out := map[string][]*statestore.TableInfo{}
	left := map[string]string{}
	for _, t := range tables {
		if topic := g.n.shardTopic(t.Definition); g.n.opt.Ingests(t.Name) {
			out[topic] = append(out[topic], t)
		} else {
			left[topic] = t.Name
		}
	}
	for topic, other := range left {
		if g.m == nil {
			break // pinned partitions are nobody else's
		}
		for _, t := range out[topic] {
			g.n.refuse(t.Name, fmt.Errorf("table %s reads topic %s, as does table %s, which this node was told to leave out: a topic's partitions go to one node with all their tables; name both tables, or pin partitions", t.Name, topic, other))
		}
		delete(out, topic)
	}
	return out
}

// refuse makes known why a table is not ingested, nil: it is.
func (n *Node) refuse(table string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		delete(n.refused, table)
		return
	}
	if n.refused[table] != err.Error() {
		n.refused[table] = err.Error()
		n.log.Error("a table is not ingested", "table", table, "error", err)
	}
}

func (g *ingestGroup) arrange(ctx context.Context, tables map[string][]*statestore.TableInfo) {
	topics := slices.Sorted(maps.Keys(tables))
	if g.m != nil {
		g.m.subscribe(topics)
	} else {
		g.pin(ctx, topics)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for part, held := range g.held {
		for _, t := range tables[part.topic] {
			id := shardOf{part, t.ID}
			if g.shards[id] == nil && held.Err() == nil {
				g.begin(held, id, t.Name)
			}
		}
	}
}

// pin holds the partitions that the node was told to take, as far as they are there.
func (g *ingestGroup) pin(ctx context.Context, topics []string) {
	for _, topic := range topics {
		info, err := g.n.admin.Topic(ctx, topic)
		if err != nil {
			g.n.log.Debug("a source topic is not there yet", "topic", topic, "error", err)
			continue
		}
		var ps []int32
		for _, p := range g.n.opt.SourcePartitions {
			if int(p) < info.Partitions {
				ps = append(ps, p)
			}
		}
		g.assigned(map[string][]int32{topic: ps})
	}
}

func (g *ingestGroup) assigned(added map[string][]int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	news := false
	for topic, ps := range added {
		for _, p := range ps {
			part := sourcePart{topic, p}
			if g.held[part] == nil {
				g.held[part], g.cancel[part] = context.WithCancel(g.n.ctx)
				news = true
			}
		}
	}
	if news { // pinned partitions are named again each time
		g.wakeUp()
	}
}

// begin begins a shard's tenure, once its last one is over. The lock is held.
func (g *ingestGroup) begin(held context.Context, id shardOf, table string) {
	ctx, cancel := context.WithCancel(held)
	t := &shardTenure{tenure: tenure{cancel: cancel, done: make(chan struct{})}}
	before := g.last[id]
	g.shards[id], g.last[id] = t, &t.tenure
	g.n.wg.Go(func() {
		defer close(t.done)
		defer cancel()
		if before != nil {
			<-before.done
		}
		g.hold(ctx, t, id, table)
	})
}

// drop takes what is gone out of what is held and gives its shards.
func (g *ingestGroup) drop(gone map[string][]int32, cancel bool) (parts []sourcePart, out []*shardTenure) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, ps := range gone {
		for _, p := range ps {
			part := sourcePart{topic, p}
			if g.held[part] == nil {
				continue
			}
			parts = append(parts, part)
			for id, t := range g.shards {
				if id.sourcePart == part {
					out = append(out, t)
				}
			}
			if cancel {
				g.cancel[part]()
				delete(g.held, part)
				delete(g.cancel, part)
				maps.DeleteFunc(g.shards, func(id shardOf, _ *shardTenure) bool { return id.sourcePart == part })
			}
		}
	}
	return parts, out
}

// revoked hands shards over: they flush, get their outcomes, and end. The group
// waits for it as long as ctx does.
func (g *ingestGroup) revoked(ctx context.Context, gone map[string][]int32) {
	began := time.Now()
	parts, shards := g.drop(gone, false)
	for _, t := range shards {
		if w := t.get(); w != nil {
			w.stopReading()
		}
	}
	for _, t := range shards {
		if w := t.get(); w != nil {
			if err := w.handOver(ctx); err != nil {
				g.n.log.Warn("a shard is given away before it has its outcomes", "error", err)
			}
		}
	}
	g.commit(ctx, parts)
	g.drop(gone, true)
	// Ending is quick, and goes on also when the wait for outcomes was too long.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), groupTimeout)
	defer cancel()
	for _, t := range shards {
		t.wait(ctx)
	}
	g.n.log.Info("shards given back", "partitions", gone, "after", time.Since(began))
}

// lost drops shards that may be others' by now.
func (g *ingestGroup) lost(gone map[string][]int32) {
	if parts, _ := g.drop(gone, true); len(parts) > 0 {
		g.n.log.Warn("shards lost: this node was silent for longer than the session timeout, or the group is gone", "partitions", gone)
	}
}

// commit tells the group what was accepted.
func (g *ingestGroup) commit(ctx context.Context, parts []sourcePart) {
	if g.m == nil {
		return
	}
	at := map[string]map[int32]int64{}
	g.mu.Lock()
	for id, t := range g.shards {
		w := t.get()
		if w == nil || !slices.Contains(parts, id.sourcePart) {
			continue
		}
		w.mu.Lock()
		end := w.accepted
		w.mu.Unlock()
		if end < 0 {
			continue
		}
		ps := at[id.topic]
		if ps == nil {
			ps = map[int32]int64{}
			at[id.topic] = ps
		}
		if old, there := ps[id.partition]; !there || end < old {
			ps[id.partition] = end
		}
	}
	g.mu.Unlock()
	for topic, ps := range at {
		if err := g.m.commit(ctx, topic, ps); err != nil && ctx.Err() == nil {
			g.n.log.Debug("group offsets are set later", "error", err)
		}
	}
}

// hold serves a shard until ctx ends or its table is gone. A shard that stops
// is told of and tried again.
func (g *ingestGroup) hold(ctx context.Context, t *shardTenure, id shardOf, table string) {
	n := g.n
	for wait := serveMin; ; wait = min(2*wait, serveMax) {
		began := time.Now()
		err := g.serve(ctx, t, id, table)
		if ctx.Err() != nil || errors.Is(err, ingest.ErrDropped) {
			t.forget()
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ingest.ErrDropped) {
				n.log.Warn("a shard did not end cleanly", "table", table, "partition", id.partition, "error", err)
			}
			return
		}
		if time.Since(began) > serveMax {
			wait = serveMin
		}
		if errors.Is(err, ingest.ErrDivided) || errors.Is(err, errResharding) {
			n.log.Info("a shard begins again once its topic is divided anew", "table", table, "topic", id.topic, "partition", id.partition)
			wait = serveMin
		} else if errors.Is(err, ErrFenced) {
			// Whoever of two believers is wrong learns it from the group (A3).
			if g.m == nil {
				n.log.Error("a pinned shard was claimed by another owner; this node gives it up", "table", table, "partition", id.partition)
				<-ctx.Done()
				t.forget()
				return
			}
			n.log.Warn("another owner claimed a shard; joining the group again before it is claimed", "table", table, "topic", id.topic, "partition", id.partition)
			if g.m.rejoin(ctx) != nil {
				t.forget()
				return
			}
		} else {
			n.log.Error("a shard stopped; it is tried again", "table", table, "topic", id.topic, "partition", id.partition, "after", wait, "error", err)
		}
		if sleep(ctx, wait) != nil {
			t.forget()
			return
		}
	}
}

// forget takes the shard's worker, which has ended, out of the node's status.
func (t *shardTenure) forget() {
	if w := t.get(); w != nil {
		w.forget()
		t.set(nil)
	}
}

// serve opens a shard, claims it and drives it until ctx ends or it stops.
func (g *ingestGroup) serve(ctx context.Context, t *shardTenure, id shardOf, table string) error {
	n := g.n
	w, err := g.take(ctx, id, table)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, ingest.ErrDropped) && !errors.Is(err, errResharding) {
			n.refuse(table, err)
		}
		return err
	}
	n.refuse(table, nil)
	ctx, halt := context.WithCancelCause(ctx)
	defer halt(nil)
	n.mu.Lock()
	w.halt = halt
	n.mu.Unlock()
	t.set(w)
	w.shard.Claim(ctx)
	if err := w.run(ctx); err != nil || ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		w.mu.Lock()
		w.status.Stage, w.status.Err = ingest.Stopped, cause.Error()
		w.mu.Unlock()
		return cause
	}
	return nil
}

// errRetired: a shard was retired and stays so.
var errRetired = errors.New("the shard was retired; name its partition with --partitions to claim it again")

func (g *ingestGroup) take(ctx context.Context, id shardOf, table string) (*shardWorker, error) {
	n := g.n
	t, err := n.Table(ctx, table)
	if errors.Is(err, ErrNoTable) || err == nil && t.ID != id.table {
		return nil, ingest.ErrDropped
	}
	if err != nil {
		return nil, err
	}
	topic, err := n.admin.Topic(ctx, id.topic)
	if err != nil {
		return nil, fmt.Errorf("table %s: its source: %w", table, err)
	}
	starts, err := n.admin.Offsets(ctx, id.topic)
	if err != nil {
		return nil, err
	}
	if int(id.partition) >= len(starts) {
		return nil, fmt.Errorf("table %s: its source: topic %s has no partition %d", table, id.topic, id.partition)
	}
	if err := checkSource(t, topic); err != nil {
		return nil, err
	}
	if waitsForReshard(t, topic, id.partition) {
		return nil, fmt.Errorf("table %s, %s/%d: %w", table, id.topic, id.partition, errResharding)
	}
	for i := range t.Shards {
		if s := &t.Shards[i]; g.m != nil && s.Retired && s.TopicID == topic.ID && s.Partition == id.partition {
			return nil, fmt.Errorf("table %s, %s/%d: %w", table, id.topic, id.partition, errRetired)
		}
	}
	n.forgetShard(shardName(table, id.partition))
	return n.takeShard(ctx, t, topic, id.partition, starts[id.partition].Start)
}

// forgetShard takes an ended shard out of the node's status.
func (n *Node) forgetShard(name string) {
	n.mu.Lock()
	w := n.shards[name]
	n.mu.Unlock()
	if w == nil {
		return
	}
	<-w.done
	w.forget()
}

// handOver waits until the shard holds nothing that is not decided. What it
// cannot bring into the log now is read again by the next owner.
func (w *shardWorker) handOver(ctx context.Context) error {
	w.mu.Lock()
	stage := w.status.Stage
	w.mu.Unlock()
	if stage != ingest.Running {
		return nil
	}
	return w.waitDrained(ctx)
}
