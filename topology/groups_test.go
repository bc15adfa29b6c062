package topology

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
)

// groupNode starts a node that shares its deployment with others.
func groupNode(ctx context.Context, t *testing.T, o NodeOptions) *Node {
	t.Helper()
	o.Groups = true
	if o.Data == "" {
		o.Data = t.TempDir()
	}
	if o.SessionTimeout == 0 {
		o.SessionTimeout = 6 * time.Second
	}
	o.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil)).With("node", o.NodeID)
	n, err := OpenNode(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(ctx); err != nil {
		t.Fatal(errors.Join(err, n.Close(ctx)))
	}
	return n
}

func groupContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func eventually(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		if sleep(ctx, 20*time.Millisecond) != nil {
			t.Fatal("it never came that ", what)
		}
	}
}

func running(n *Node) int {
	c := 0
	for _, s := range n.Shards() {
		if s.Stage == ingest.Running {
			c++
		}
	}
	return c
}

// produceRows produces n rows over so many keys, and waits until they are in a snapshot.
func produceRows(ctx context.Context, t *testing.T, n *Node, table string, events, keys int) {
	t.Helper()
	if _, err := n.Produce(ctx, table, 0, rowEvents(events, keys), nil); err != nil {
		t.Fatal(err)
	}
}

// TestGroupOfTwo: two nodes share states and shards, one leaves, one comes:
// every row is there once.
func TestGroupOfTwo(t *testing.T) {
	ctx := groupContext(t)
	b := openBroker(t, t.TempDir())
	lake := t.TempDir()
	o := NodeOptions{Brokers: []string{b.Addr()}, Warehouse: lake, Partitions: 4, Tables: []string{"t*"}}
	one := o
	one.NodeID = "one"
	a := groupNode(ctx, t, one)
	if _, err := a.Produce(ctx, "t", 4, rowEvents(400, 100), nil); err != nil {
		t.Fatal(err)
	}
	if _, created, err := a.EnsureTable(ctx, testDefinition("t")); err != nil || !created {
		t.Fatalf("created %v: %v", created, err)
	}
	if err := a.WaitLoaded(ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	two := o
	two.NodeID, two.LeaveGroups = "two", true
	c := groupNode(ctx, t, two)
	eventually(ctx, t, "two nodes have two shards each", func() bool { return running(a) == 2 && running(c) == 2 })
	eventually(ctx, t, "two nodes have two states each", func() bool { return len(a.openStateList()) == 2 && len(c.openStateList()) == 2 })
	produceRows(ctx, t, c, "t", 400, 100)
	for _, n := range []*Node{a, c} {
		if err := n.WaitLoaded(ctx, "t", nil); err != nil {
			t.Fatal(err)
		}
		info, err := n.Table(ctx, "t")
		if err != nil || info.Counts.Events != 800 {
			t.Fatalf("%d events: %v", info.Counts.Events, err)
		}
	}
	admin := newAdmin(t, ClientOptions{Brokers: o.Brokers})
	// standing says how many partitions of each group a node has, as everyone is
	// told of the whole deployment, if the groups are behind in none.
	standing := func() map[string]int {
		parts, err := admin.GroupParts(ctx, DefaultDeployment)
		if err != nil {
			t.Fatal(err)
		}
		has := map[string]int{}
		for i := range parts {
			if p := &parts[i]; p.Lag() == 0 && p.End > 0 {
				has[p.Node+" "+p.Group+" "+p.Topic]++
			}
		}
		return has
	}
	sources, states := " "+IngestGroup(DefaultDeployment)+" t", " "+StateGroup(DefaultDeployment)+" "+a.topics.Transactions
	eventually(ctx, t, "the groups' offsets tell that both nodes have half and are behind in nothing", func() bool {
		return maps.Equal(standing(), map[string]int{"one" + sources: 2, "two" + sources: 2, "one" + states: 2, "two" + states: 2})
	})
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the first has all again", func() bool { return running(a) == 4 && len(a.openStateList()) == 4 })
	eventually(ctx, t, "the groups tell so", func() bool { return maps.Equal(standing(), map[string]int{"one" + sources: 4, "one" + states: 4}) })
	produceRows(ctx, t, a, "t", 400, 50)
	if err := a.WaitLoaded(ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	info, err := a.Table(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if live := info.Rows - info.Dead; live != 100 || info.Counts.Events != 1200 {
		t.Errorf("%d rows, %d events; want 100, 1200", live, info.Counts.Events)
	}
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	// It keeps its place, as one that comes back soon, until its session ends.
	eventually(ctx, t, "nobody has anything, and what was committed is known", func() bool {
		return maps.Equal(standing(), map[string]int{sources: 4, states: 4})
	})
}

// TestRolesApart: ingest without state knows its tables from the log, and
// serves views and requests; a state without ingest decides and publishes.
func TestRolesApart(t *testing.T) {
	ctx := groupContext(t)
	b := openBroker(t, t.TempDir())
	o := NodeOptions{Brokers: []string{b.Addr()}, Warehouse: t.TempDir(), Partitions: 2}
	in, st := o, o
	in.NodeID, in.Roles = "in", []string{RoleIngest}
	st.NodeID, st.Roles = "st", []string{RoleState, RolePublisher}
	a, s := groupNode(ctx, t, in), groupNode(ctx, t, st)
	if _, created, err := a.EnsureTable(ctx, testDefinition("t")); err != nil || !created {
		t.Fatalf("created %v: %v", created, err)
	}
	if _, created, err := s.EnsureTable(ctx, testDefinition("t")); err != nil || created {
		t.Fatalf("created %v: %v", created, err)
	}
	if _, err := a.Produce(ctx, "t", 2, rowEvents(300, 60), nil); err != nil {
		t.Fatal(err)
	}
	if err := a.WaitLoaded(ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	key, err := keyOf(testDefinition("t"), 7)
	if err != nil {
		t.Fatal(err)
	}
	offset, err := a.DeleteKeys(ctx, "t", [][]byte{key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	at, err := a.WaitSettled(ctx, "t", offset)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.WaitVisible(ctx, "t", at); err != nil {
		t.Fatal(err)
	}
	own, err := s.Table(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if live := own.Rows - own.Dead; live != 59 {
		t.Errorf("%d rows, want 59", live)
	}
	// What the directory knows is what the state knows.
	seen, err := a.Table(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if seen.ID != own.ID || seen.LastChange != own.LastChange || seen.Head.Through != own.Head.Through || seen.Head.SnapshotID != own.Head.SnapshotID ||
		seen.Rows != own.Rows || seen.Files != own.Files || seen.Counts != own.Counts || seen.Changes != own.Changes || len(seen.Requests) != 0 {
		t.Errorf("the directory has\n%+v, the state\n%+v", seen, own)
	}
	for i := range own.Shards {
		x, y := &own.Shards[i], &seen.Shards[i]
		if x.TopicID != y.TopicID || x.Partition != y.Partition || x.Epoch != y.Epoch || x.SourceEnd != y.SourceEnd || x.RequestEnd != y.RequestEnd ||
			x.Member != y.Member || x.Index != y.Index || x.Counts != y.Counts || x.FirstClaim != y.FirstClaim {
			t.Errorf("the directory has shard\n%+v, the state\n%+v", y, x)
		}
	}
	if len(a.openStateList()) != 0 || running(s) != 0 {
		t.Error("a node does what is no role of its")
	}
	// A drop is seen, and its shards end.
	if _, err := a.Request(ctx, "t", own.ID, &record.DropTable{}); err != nil {
		t.Fatal(err)
	}
	if ts, err := a.Tables(ctx); err != nil || len(ts) != 0 {
		t.Fatalf("%d tables: %v", len(ts), err)
	}
	eventually(ctx, t, "the shards of a dropped table end", func() bool { return len(a.Shards()) == 0 })
	for _, n := range []*Node{a, s} {
		if err := n.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func keyOf(d schemas.Definition, id int64) ([]byte, error) {
	enc, err := rows.NewKeyEncoder(d.Schema(), d.Key)
	if err != nil {
		return nil, err
	}
	c := rows.NewColumn(schemas.Of(schemas.Long))
	c.AppendInt(id)
	return enc.AppendFrom(nil, []rows.Column{c}, 0)
}

// TestCommittedOffsets: a group's offsets tell what was accepted and applied,
// and nobody starts from them: set to nonsense, nothing is lost or read twice.
func TestCommittedOffsets(t *testing.T) {
	ctx := groupContext(t)
	b := openBroker(t, t.TempDir())
	o := NodeOptions{Brokers: []string{b.Addr()}, Warehouse: t.TempDir(), Partitions: 1, NodeID: "one", Data: t.TempDir(), LeaveGroups: true}
	n := groupNode(ctx, t, o)
	if _, err := n.Produce(ctx, "t", 2, rowEvents(200, 50), nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.EnsureTable(ctx, testDefinition("t")); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitLoaded(ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	ends, err := n.admin.Offsets(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	a := newAdmin(t, ClientOptions{Brokers: o.Brokers})
	groups := []string{IngestGroup(DefaultDeployment), StateGroup(DefaultDeployment)}
	committed := func(group, topic string, p int32) int64 {
		t.Helper()
		all, err := a.adm.FetchOffsets(ctx, group)
		if err != nil {
			t.Fatal(err)
		}
		at, ok := all.Lookup(topic, p)
		if !ok {
			t.Fatalf("group %s has no offset of %s/%d", group, topic, p)
		}
		return at.At
	}
	for p := range ends {
		if got := committed(groups[0], "t", int32(p)); got != ends[p].High {
			t.Errorf("source partition %d: committed %d of %d", p, got, ends[p].High)
		}
	}
	high, err := a.Offsets(ctx, n.topics.Transactions)
	if err != nil {
		t.Fatal(err)
	}
	if got := committed(groups[1], n.topics.Transactions, 0); got != high[0].High {
		t.Errorf("log: committed %d of %d", got, high[0].High)
	}
	for _, at := range []int64{0, 1 << 40} {
		nonsense := kadm.Offsets{}
		nonsense.AddOffset("t", 0, at, -1)
		nonsense.AddOffset("t", 1, at, -1)
		if err := a.adm.CommitAllOffsets(ctx, groups[0], nonsense); err != nil {
			t.Fatal(err)
		}
		nonsense = kadm.Offsets{}
		nonsense.AddOffset(n.topics.Transactions, 0, at, -1)
		if err := a.adm.CommitAllOffsets(ctx, groups[1], nonsense); err != nil {
			t.Fatal(err)
		}
		n = groupNode(ctx, t, o)
		before, err := n.Table(ctx, "t")
		if err != nil {
			t.Fatal(err)
		}
		produceRows(ctx, t, n, "t", 100, 50)
		if err := n.WaitLoaded(ctx, "t", nil); err != nil {
			t.Fatal(err)
		}
		info, err := n.Table(ctx, "t")
		if err != nil || info.Counts.Events != before.Counts.Events+100 || info.Rows-info.Dead != 50 {
			t.Fatalf("%d events, %d rows: %v", info.Counts.Events, info.Rows-info.Dead, err)
		}
		if err := n.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStoppedShardOfGroup: a shard that stops does not end its node or the
// other tables; once the event is skipped it goes on by itself.
func TestStoppedShardOfGroup(t *testing.T) {
	ctx := groupContext(t)
	b := openBroker(t, t.TempDir())
	n := groupNode(ctx, t, NodeOptions{Brokers: []string{b.Addr()}, Warehouse: t.TempDir(), Partitions: 2, NodeID: "one", StopOnError: true})
	for _, name := range []string{"bad", "good"} {
		if _, err := n.Produce(ctx, name, 1, rowEvents(100, 10), nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := n.EnsureTable(ctx, testDefinition(name)); err != nil {
			t.Fatal(err)
		}
		if err := n.WaitLoaded(ctx, name, nil); err != nil {
			t.Fatal(err)
		}
	}
	p := newProducer(t, n.client, ProducerOptions{})
	if _, err := p.AppendSync(ctx, "bad", 0, Entry{Key: []byte(`{"id":1}`), Value: []byte("nonsense")}); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "the shard stops", func() bool {
		for _, s := range n.Shards() {
			if s.Table == "bad" && s.Stage == ingest.Stopped && strings.Contains(s.Err, "source offset 100") {
				return true
			}
		}
		return false
	})
	if err := n.WaitLoaded(ctx, "bad", nil); err == nil || !strings.Contains(err.Error(), "source offset 100") {
		t.Errorf("waiting for a stopped shard: %v", err)
	}
	produceRows(ctx, t, n, "good", 100, 10)
	if err := n.WaitLoaded(ctx, "good", nil); err != nil {
		t.Fatal(err)
	}
	info, err := n.Table(ctx, "bad")
	if err != nil {
		t.Fatal(err)
	}
	shard := record.ShardKey{TopicID: info.Shards[0].TopicID, Topic: "bad", Partition: 0}
	out, err := n.Request(ctx, "bad", info.ID, &record.SkipSource{Shard: shard, From: 100, To: 101, Cause: "test"})
	if err != nil || out.Outcome.Code != record.Accepted {
		t.Fatalf("%+v: %v", out, err)
	}
	eventually(ctx, t, "the shard goes on", func() bool { return running(n) == 2 })
	produceRows(ctx, t, n, "bad", 100, 10)
	if err := n.WaitLoaded(ctx, "bad", nil); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-n.Fatal():
		t.Error("the node failed: ", err)
	default:
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestSameNodeID: two nodes of one id do not throw each other out for ever: one
// of them ends, and says why.
func TestSameNodeID(t *testing.T) {
	ctx := groupContext(t)
	b := openBroker(t, t.TempDir())
	o := NodeOptions{Brokers: []string{b.Addr()}, Warehouse: t.TempDir(), Partitions: 1, NodeID: "twin"}
	first := groupNode(ctx, t, o)
	eventually(ctx, t, "the first has the state", func() bool { return len(first.openStateList()) == 1 })
	second := groupNode(ctx, t, o)
	select {
	case err := <-first.Fatal():
		if !errors.Is(err, ErrNodeID) || !strings.Contains(err.Error(), "twin") {
			t.Errorf("the first ended with %v", err)
		}
	case <-ctx.Done():
		t.Fatal("nobody is told of two nodes of one id")
	}
	eventually(ctx, t, "the second has the state", func() bool { return len(second.openStateList()) == 1 })
	for _, n := range []*Node{first, second} {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// TestLateJoin: a process that was killed had asked to join under the node's id,
// and the group hears of that after the node itself. The node joins again, and
// goes on.
func TestLateJoin(t *testing.T) {
	ctx := groupContext(t)
	b := openBroker(t, t.TempDir())
	n := groupNode(ctx, t, NodeOptions{Brokers: []string{b.Addr()}, Warehouse: t.TempDir(), Partitions: 1, NodeID: "again"})
	eventually(ctx, t, "the node has the state", func() bool { return len(n.openStateList()) == 1 })
	late := func(group, topic string, client func() *kgo.Client) {
		t.Helper()
		first := client()
		dead, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.ConsumerGroup(group), kgo.InstanceID(n.stateGroup.m.instance),
			kgo.ConsumeTopics(topic), kgo.Balancers(kgo.CooperativeStickyBalancer()))
		if err != nil {
			t.Fatal(err)
		}
		eventually(ctx, t, "the node joined "+group+" again", func() bool { return client() != first })
		dead.Close() // it leaves nothing: a static member stays
	}
	late(StateGroup(n.deployment), n.topics.Transactions, n.stateGroup.m.client)
	eventually(ctx, t, "the compactors have the jobs", func() bool {
		n.compactors.mu.Lock()
		defer n.compactors.mu.Unlock()
		return len(n.compactors.held) > 0
	})
	late(CompactorGroup(n.deployment), n.topics.Jobs, n.compactors.client)
	eventually(ctx, t, "the compactors have the jobs again", func() bool {
		n.compactors.mu.Lock()
		defer n.compactors.mu.Unlock()
		return len(n.compactors.held) > 0
	})
	eventually(ctx, t, "the node has the state again", func() bool { return len(n.openStateList()) == 1 })
	produceRows(ctx, t, n, "rows", 50, 10)
	info, _, err := n.EnsureTable(ctx, testDefinition("rows"))
	if err == nil {
		err = n.Ingest(ctx, info)
	}
	if err == nil {
		err = n.WaitLoaded(ctx, "rows", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-n.Fatal():
		t.Error("the node failed: ", err)
	default:
	}
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestSessionTimeoutRefused: a node whose session timeout the brokers do not
// allow never gets any work; it ends and says why.
func TestSessionTimeoutRefused(t *testing.T) {
	ctx := groupContext(t)
	b := openBroker(t, t.TempDir())
	n := groupNode(ctx, t, NodeOptions{Brokers: []string{b.Addr()}, Warehouse: t.TempDir(), NodeID: "slow", SessionTimeout: 100 * time.Hour})
	select {
	case err := <-n.Fatal():
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "100h") || !strings.Contains(err.Error(), "--session-timeout") {
			t.Errorf("it ended with %v", err)
		}
	case <-ctx.Done():
		t.Fatal("it waits for ever")
	}
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestPartitionsAdopted: a node that joins a deployment needs not be told how
// many partitions its log has (L1); one that is told another number is refused.
func TestPartitionsAdopted(t *testing.T) {
	ctx := groupContext(t)
	b := openBroker(t, t.TempDir())
	o := NodeOptions{Brokers: []string{b.Addr()}, Warehouse: t.TempDir(), Partitions: 3, NodeID: "first"}
	first := groupNode(ctx, t, o)
	o.Partitions, o.NodeID = 0, "second"
	second := groupNode(ctx, t, o)
	if got := second.Topics().Partitions; got != 3 {
		t.Errorf("the second goes by %d partitions, want 3", got)
	}
	o.Partitions, o.NodeID, o.Data, o.Groups = 4, "third", t.TempDir(), true
	if n, err := OpenNode(ctx, o); !errors.Is(err, ErrTopicSettings) || !strings.Contains(err.Error(), "--log-partitions") {
		t.Errorf("a third with 4 partitions: %v, %v", n, err)
	}
	for _, n := range []*Node{first, second} {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// TestPinned: a node that was told its source partitions takes them and no
// others, and a claim of another stops it until a person decides (A3).
func TestPinned(t *testing.T) {
	ctx := groupContext(t)
	b := openBroker(t, t.TempDir())
	asked := &metadataRequests{}
	o := NodeOptions{Brokers: []string{b.Addr()}, Warehouse: t.TempDir(), Partitions: 1, Client: ClientOptions{Hooks: []kgo.Hook{asked}}}
	one, two := o, o
	one.NodeID, one.SourcePartitions = "one", []int32{0, 2, 9}
	two.NodeID, two.SourcePartitions, two.Roles = "two", []int32{1, 3}, []string{RoleIngest}
	a, c := groupNode(ctx, t, one), groupNode(ctx, t, two)
	if _, err := a.Produce(ctx, "t", 4, rowEvents(400, 100), nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.EnsureTable(ctx, testDefinition("t")); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*Node{a, c} {
		if err := n.WaitLoaded(ctx, "t", nil); err != nil {
			t.Fatal(err)
		}
	}
	var has []int32
	for _, s := range append(a.Shards(), c.Shards()...) {
		has = append(has, s.Partition)
	}
	if !slices.Equal(has, []int32{0, 2, 1, 3}) {
		t.Errorf("the nodes have %v", has)
	}
	info, err := a.Table(ctx, "t")
	if err != nil || info.Rows != 100 {
		t.Fatalf("%d rows: %v", info.Rows, err)
	}
	// Nodes that have nothing to do ask the brokers now and then, not all the time.
	before := asked.Load()
	if err := sleep(ctx, 2*ingestEvery); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load() - before; n > 50 {
		t.Errorf("%d requests for metadata in %s", n, 2*ingestEvery)
	}
	s := info.Shards[0]
	out, err := a.Request(ctx, "t", info.ID, &record.ClaimShard{Shard: record.ShardKey{TopicID: s.TopicID, Topic: "t", Partition: s.Partition}, Member: "somebody/4"})
	if err != nil || out.Outcome.Code != record.Accepted {
		t.Fatalf("%+v: %v", out, err)
	}
	eventually(ctx, t, "its owner gives the shard up", func() bool { return running(a)+running(c) == 3 })
	if err := sleep(ctx, 2*serveMin); err != nil || running(a)+running(c) != 3 {
		t.Error("a pinned shard was claimed again")
	}
	for _, n := range []*Node{a, c} {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// TestFenced: an owner in a group whose shard was claimed by another joins the
// group again, still has it, and goes on where the log says (A3).
func TestFenced(t *testing.T) {
	ctx := groupContext(t)
	b := openBroker(t, t.TempDir())
	n := groupNode(ctx, t, NodeOptions{Brokers: []string{b.Addr()}, Warehouse: t.TempDir(), Partitions: 1, NodeID: "one"})
	if _, err := n.Produce(ctx, "t", 1, rowEvents(100, 20), nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.EnsureTable(ctx, testDefinition("t")); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitLoaded(ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	info, err := n.Table(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	m := n.ingestGroup.m
	m.mu.Lock()
	sessions := m.sessions
	m.mu.Unlock()
	shard := record.ShardKey{TopicID: info.Shards[0].TopicID, Topic: "t"}
	if _, err := n.Request(ctx, "t", info.ID, &record.ClaimShard{Shard: shard, Member: "somebody/1"}); err != nil {
		t.Fatal(err)
	}
	produceRows(ctx, t, n, "t", 100, 20)
	if err := n.WaitLoaded(ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	if m.sessions == sessions {
		t.Error("the shard was claimed again without joining the group again")
	}
	m.mu.Unlock()
	if info, err = n.Table(ctx, "t"); err != nil || info.Counts.Events != 200 || info.Rows-info.Dead != 20 {
		t.Errorf("%d events, %d rows: %v", info.Counts.Events, info.Rows-info.Dead, err)
	}
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestRevokedWhileFlushing: partitions are taken from a member whose flush has
// no outcome yet, the known way to lose or double rows in a cooperative
// rebalance. The rebalance waits for it, as long as it may; what has no outcome
// by then counts once all the same (A3).
func TestRevokedWhileFlushing(t *testing.T) {
	ctx := groupContext(t)
	b := openBroker(t, t.TempDir())
	o := NodeOptions{Brokers: []string{b.Addr()}, Warehouse: t.TempDir(), Partitions: 1, LeaveGroups: true, RebalanceTimeout: 6 * time.Second}
	in, st := o, o
	in.NodeID, in.Roles = "in", []string{RoleIngest}
	st.NodeID, st.Roles, st.Data = "st", []string{RoleState, RolePublisher}, t.TempDir()
	a, s := groupNode(ctx, t, in), groupNode(ctx, t, st)
	if _, err := a.Produce(ctx, "t", 2, rowEvents(200, 50), nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.EnsureTable(ctx, testDefinition("t")); err != nil {
		t.Fatal(err)
	}
	events := int64(200)
	parts := map[string][]int32{"t": {0, 1}}
	for _, back := range []bool{true, false} { // whether the outcomes come in time
		eventually(ctx, t, "its shards run", func() bool { return running(a) == 2 })
		if err := a.WaitLoaded(ctx, "t", nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(ctx); err != nil { // nobody decides from here on
			t.Fatal(err)
		}
		produceRows(ctx, t, a, "t", 100, 50)
		events += 100
		eventually(ctx, t, "appends are in flight", func() bool {
			flying := 0
			for _, x := range a.Shards() {
				if x.SourceEnd < 0 {
					flying++
				}
			}
			return flying == 2
		})
		began, took := time.Now(), make(chan time.Duration, 1)
		go func() {
			a.ingestGroup.m.revoked(parts)
			took <- time.Since(began)
		}()
		const pause = 500 * time.Millisecond
		if back {
			if err := sleep(ctx, pause); err != nil {
				t.Fatal(err)
			}
			s = groupNode(ctx, t, st)
		}
		d := <-took
		if limit := a.ingestGroup.m.handover(); back && (d < pause || d >= limit) || !back && d < limit {
			t.Errorf("the rebalance was held for %s, limit %s", d, limit)
		}
		if len(a.Shards()) != 0 {
			t.Errorf("the member still has %v", a.Shards())
		}
		if !back {
			s = groupNode(ctx, t, st)
		}
		a.ingestGroup.assigned(parts)
	}
	if err := a.WaitLoaded(ctx, "t", nil); err != nil {
		t.Fatal(err)
	}
	info, err := s.Table(ctx, "t")
	if err != nil || info.Counts.Events != events || info.Rows-info.Dead != 50 {
		t.Errorf("%d events, %d rows: %v", info.Counts.Events, info.Rows-info.Dead, err)
	}
	for _, n := range []*Node{a, s} {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// metadataRequests counts what clients ask brokers about topics.
type metadataRequests struct{ atomic.Int64 }

func (m *metadataRequests) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == 3 {
		m.Add(1)
	}
}
