package endtoend

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
)

// resharded is a table whose source topic gains partitions, and what it must hold.
type resharded struct {
	r       *rand.Rand
	def     schemas.Definition
	version int
	newest  map[int]int
	rows    map[int]string
}

func newResharded(seed uint64) *resharded {
	x := &resharded{r: rng(seed, 6), newest: map[int]int{}, rows: map[int]string{}}
	x.def = definition("shop.grows", source.RowsJSON, []schemas.Field{
		{Name: "id", Type: schemas.Of(schemas.Long)}, {Name: "ver", Type: schemas.Of(schemas.Long)}, {Name: "qty", Type: schemas.Of(schemas.Int)},
	})
	x.def.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: 2}
	return x
}

// events are upserts, deletes and late events of keys that lie in the partition
// that where gives.
func (x *resharded) events(n int, where func(id int) int) func() (*topology.SourceEvent, error) {
	return func() (*topology.SourceEvent, error) {
		if n--; n < 0 {
			return nil, io.EOF
		}
		id := x.r.IntN(60)
		x.version++
		ver := x.version
		if x.r.IntN(6) == 0 {
			ver = max(1, ver-x.r.IntN(150)) // most likely late
		}
		e := &topology.SourceEvent{Partition: int32(where(id)), Key: fmt.Appendf(nil, `{"id":%d}`, id)}
		late := ver < x.newest[id]
		x.newest[id] = max(ver, x.newest[id])
		if x.r.IntN(5) == 0 {
			e.Value = fmt.Appendf(nil, `{"id":%d,"ver":%d,"__deleted":"true"}`, id, ver)
			if !late {
				delete(x.rows, id)
			}
			return e, nil
		}
		e.Value = fmt.Appendf(nil, `{"id":%d,"ver":%d,"qty":%d}`, id, ver, x.version)
		if !late {
			x.rows[id] = fmt.Sprintf("id=%d qty=%d ver=%d", id, x.version, ver)
		}
		return e, nil
	}
}

// broker is whatever knows the deployment's brokers.
type broker interface{ Brokers() []string }

func (x *resharded) produce(t *testing.T, n broker, events, partitions int) {
	t.Helper()
	x.produceBy(t, n, events, partitions, partitions)
}

// produceBy is by a producer that knows of so many partitions only.
func (x *resharded) produceBy(t *testing.T, n broker, events, known, partitions int) {
	t.Helper()
	by := func(id int) int { return id % known }
	if _, err := topology.ProduceTo(longContext(t), topology.ClientOptions{Brokers: n.Brokers()}, x.def.SourceTopic, partitions, x.events(events, by), nil); err != nil {
		t.Fatal(err)
	}
}

func (x *resharded) check(t *testing.T, n *topology.Node, what string) {
	t.Helper()
	ctx := longContext(t)
	if err := n.WaitLoaded(ctx, x.def.Name, nil); err != nil {
		t.Fatal(what, ": ", err)
	}
	info, err := n.Table(ctx, x.def.Name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readLake(ctx, readers.IcebergGo, info.Head.MetadataPath, readers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, l := range x.rows {
		want = append(want, l)
	}
	slices.Sort(want)
	diff(t, what, got.Sorted(), want)
}

func (x *resharded) grow(t *testing.T, n broker, partitions int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	res, err := kadm.NewClient(cl).UpdatePartitions(longContext(t), partitions, x.def.SourceTopic)
	if err == nil {
		err = res.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reshard divides the topic anew, and waits until that is done.
func (x *resharded) reshard(t *testing.T, n *topology.Node, partitions int) {
	t.Helper()
	ctx := longContext(t)
	out, err := n.Reshard(ctx, x.def.Name, false)
	if err != nil || out.Outcome.Reason != 0 {
		t.Fatalf("reshard: %s: %v", out.Outcome.Reason, err)
	}
	info, err := n.Table(ctx, x.def.Name)
	if err == nil && n.Embedded() {
		err = n.Ingest(ctx, info)
	}
	if err == nil {
		info, err = n.Resharded(ctx, x.def.Name)
	}
	if err != nil {
		t.Fatal(err)
	}
	if info.Base == nil || int(info.Base.Partitions) != partitions {
		t.Fatalf("divided as %+v, want %d partitions", info.Base, partitions)
	}
}

// ask deletes keys by a request: up to the newest version that was made so far,
// or, of a table that has read all events, whatever is there. It does not wait.
func (x *resharded) ask(t *testing.T, n *topology.Conn, valued bool, ids ...int) {
	t.Helper()
	ctx := longContext(t)
	info, err := n.Table(ctx, x.def.Name)
	if err != nil {
		t.Fatal(err)
	}
	enc, err := rows.NewKeyEncoder(info.Definition.Schema(), info.Definition.Key)
	if err != nil {
		t.Fatal(err)
	}
	col := rows.NewColumn(schemas.Of(schemas.Long))
	var keys [][]byte
	for i, id := range ids {
		col.AppendInt(int64(id))
		k, err := enc.AppendFrom(nil, []rows.Column{col}, i)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
		delete(x.rows, id)
	}
	slices.SortFunc(keys, bytes.Compare)
	var order *int64
	if valued {
		x.version++
		v := int64(x.version)
		order = &v
		for _, id := range ids {
			x.newest[id] = x.version
		}
	}
	if _, err := n.DeleteKeys(ctx, x.def.Name, keys, order); err != nil {
		t.Fatal(err)
	}
}

// verify holds the divided table against the log, its indexes and its source.
func (x *resharded) verify(t *testing.T, n *topology.Node, o topology.VerifyOptions, what string) {
	t.Helper()
	o.Brokers, o.Client.Brokers, o.Scratch = n.Brokers(), n.Brokers(), t.TempDir()
	o.Tables, o.Full, o.Deep, o.Source = []string{x.def.Name}, true, true, true
	got, err := topology.Verify(longContext(t), o)
	if err != nil {
		t.Fatal(what, ": verify: ", err)
	}
	for _, f := range got.Findings {
		t.Errorf("%s: verify: %+v", what, f)
	}
	for _, s := range got.Skipped {
		if strings.Contains(s, "source") {
			t.Errorf("%s: verify: %s", what, s)
		}
	}
	if got.Events == 0 || got.Rows == 0 {
		t.Errorf("%s: verify looked at %d events and %d rows", what, got.Events, got.Rows)
	}
}

// TestReshard (A6): a keyed table's source topic gains partitions while its
// producers write on, some by the old number of partitions. After the reshard
// keys that now lie in another partition are updated, deleted and late there,
// and each has one row. Requests delete keys before, at and after the division.
// The same again, and by a node with an empty folder.
func TestReshard(t *testing.T) {
	onBackends(t, func(t *testing.T, b backend) {
		x := newResharded(seed(t))
		ctx := longContext(t)
		data, lake := dataDir(t), dataDir(t)
		deployment := ""
		if len(b.brokers) > 0 {
			deployment = "grows"
		}
		open := func(dir string, roles ...string) *topology.Node {
			o := topology.NodeOptions{Data: dir, Roles: roles, Logger: testLog(t, slog.LevelInfo)}
			if len(b.brokers) > 0 {
				o.Roles, o.Brokers, o.Warehouse, o.Deployment, o.Partitions = nil, b.brokers, lake, deployment, 1
				o.Groups, o.NodeID, o.LeaveGroups = true, fmt.Sprintf("n%d", x.version), true
			}
			return start(t, o)
		}
		n := open(data)
		x.produce(t, n, 300, 2)
		info, _, err := n.EnsureTable(ctx, x.def)
		if err == nil {
			err = n.Ingest(ctx, info)
		}
		if err != nil {
			t.Fatal(err)
		}
		x.check(t, n, "before")
		at := 2
		for _, partitions := range []int{3, 5} {
			if n.Embedded() {
				// A node alone stops when it sees that the topic grew.
				stop(t, n)
				n = open(data, topology.RoleState, topology.RolePublisher)
			}
			x.grow(t, n, partitions)
			x.produce(t, n, 100, partitions)
			x.produceBy(t, n, 100, at, partitions)
			at = partitions
			x.ask(t, &n.Conn, true, 3, 7, 11, 59) // the division waits until its old shards have answered
			x.reshard(t, n, partitions)
			x.ask(t, &n.Conn, true, 4, 7, 12) // and its new shards have keys of everyone
			x.produce(t, n, 300, partitions)
			if n.Embedded() {
				if info, err = n.Table(ctx, x.def.Name); err == nil {
					err = n.Ingest(ctx, info)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			x.check(t, n, fmt.Sprint("divided into ", partitions))
			x.ask(t, &n.Conn, false, 1, 13, 22, 31)
			waitUntil(t, "the request is answered", func() bool {
				info, err := n.Table(ctx, x.def.Name)
				if err != nil {
					t.Fatal(err)
				}
				return len(info.Requests) == 0
			})
			x.check(t, n, fmt.Sprint("keys are deleted after ", partitions))
			x.verify(t, n, topology.VerifyOptions{Data: data, Deployment: deployment, Store: n.Store()}, fmt.Sprint("divided into ", partitions))
			// The topic may be divided again once every shard has uploaded its index.
			waitUntil(t, "every shard has an index checkpoint", func() bool {
				info, err := n.Table(ctx, x.def.Name)
				if err != nil {
					t.Fatal(err)
				}
				return !slices.ContainsFunc(info.Shards, func(s statestore.ShardInfo) bool { return s.Index.Path == "" })
			})
			stop(t, n)
			if !n.Embedded() {
				data = dataDir(t)
			}
			n = open(data)
			x.produce(t, n, 100, partitions)
			x.check(t, n, fmt.Sprint("opened again after ", partitions))
		}
		stop(t, n)
	})
}
