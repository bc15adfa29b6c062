package endtoend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/topology"
)

// refused opens a node that must not open, with one error that names what is
// wrong, and leaves nothing behind that keeps the next one from opening.
func refused(t *testing.T, o topology.NodeOptions, want error, words ...string) {
	t.Helper()
	o.Logger = testLog(t, 12)
	n, err := topology.OpenNode(longContext(t), o)
	if err == nil {
		t.Fatal("the node opened; ", n.Close(longContext(t)))
	}
	told(t, err, want, words...)
}

func told(t *testing.T, err, want error, words ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v\nis no %q", err, want)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v\ndoes not say %q", err, w)
		}
	}
	t.Log(err)
}

// admin is a client for what varve itself never does to topics.
func admin(t *testing.T, brokers []string) (*kadm.Client, *kgo.Client) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl), cl
}

// small is a deployment with some published events.
type small struct {
	o topology.NodeOptions
	f *feed
	m *model
}

func newSmall(t *testing.T, o topology.NodeOptions) (*small, *topology.Node) {
	t.Helper()
	o.Data = dataDir(t)
	f := newFeed(users("people.users", 20, 1<<30), 5)
	s := &small{o, f, f.model()}
	n := start(t, o)
	if err := prepare(longContext(t), n, f.workload); err != nil {
		t.Fatal(err)
	}
	s.load(t, n, 300)
	return s, n
}

func (s *small) load(t *testing.T, n *topology.Node, events int) {
	t.Helper()
	ctx := longContext(t)
	if _, err := n.Produce(ctx, s.f.def.SourceTopic, s.f.partitions, s.f.take(events), nil); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitLoaded(ctx, s.f.def.Name, nil); err != nil {
		t.Fatal(err)
	}
}

// check reopens the deployment: everything is there, and goes on.
func (s *small) check(t *testing.T) {
	t.Helper()
	n := start(t, s.o)
	s.load(t, n, 100)
	settle(longContext(t), t, n, s.f, s.m)
	stop(t, n)
}

// TestRefusals: what a node cannot start with is one clear error, and the same
// folder works again once it is mended.
func TestRefusals(t *testing.T) {
	t.Run("folder in use", func(t *testing.T) {
		o := &childOrder{Data: dataDir(t), Deployment: "used", Partitions: 1, Workload: "orders"}
		c := startChild(t, o, filepath.Join(t.TempDir(), "child.log"))
		c.ready()
		refused(t, o.options(nil), topology.ErrInUse, o.Data, fmt.Sprint("process ", c.cmd.Process.Pid))
		c.kill()
		stop(t, start(t, o.options(nil)))
	})
	t.Run("no broker", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		refused(t, topology.NodeOptions{Data: dataDir(t), Brokers: []string{addr}}, topology.ErrUnreachable, addr)
	})
	t.Run("roles", func(t *testing.T) {
		for _, roles := range [][]string{{"ingest"}, {"publisher"}, {"cook"}} {
			refused(t, topology.NodeOptions{Data: dataDir(t), Roles: roles}, topology.ErrConfig, "role")
		}
	})
	t.Run("another deployment's folder", func(t *testing.T) {
		s, n := newSmall(t, topology.NodeOptions{Partitions: 1})
		stop(t, n)
		for _, c := range []struct {
			change func(*topology.NodeOptions)
			words  string
		}{
			{func(o *topology.NodeOptions) { o.Deployment = "other" }, `deployment "varve", not "other"`},
			{func(o *topology.NodeOptions) { o.Partitions = 2 }, "1 transactions partitions, for ever; not 2"},
			{func(o *topology.NodeOptions) { o.Warehouse = dataDir(t) }, "warehouse"},
		} {
			o := s.o
			c.change(&o)
			refused(t, o, topology.ErrConfig, c.words)
		}
		s.check(t)
	})
	t.Run("unusable tables", func(t *testing.T) {
		n := start(t, topology.NodeOptions{Data: dataDir(t)})
		defer stop(t, n)
		field := func(name string, k schemas.Kind) schemas.Field { return schemas.Field{Name: name, Type: schemas.Of(k)} }
		for _, c := range []struct {
			name, words string
			def         schemas.Definition
		}{
			{"a float key", "key", definition("a.float", source.RowsJSON, []schemas.Field{field("id", schemas.Double)})},
			{"a format that nobody knows", `format "xml" is unknown`, definition("a.xml", "xml", []schemas.Field{field("id", schemas.Long)})},
			{"an option that the format lacks", "key.form", func() schemas.Definition {
				d := definition("a.option", source.RowsJSON, []schemas.Field{field("id", schemas.Long)})
				d.FormatOptions = []schemas.Property{{Key: "key.form", Value: "row"}}
				return d
			}()},
			{"an optional key", `key column "id" is optional`, func() schemas.Definition {
				d := definition("a.optional", source.RowsJSON, []schemas.Field{field("id", schemas.Long)})
				d.Schemas[0].Fields[0].Required = false
				return d
			}()},
			{"a reserved column", "_row_id", definition("a.reserved", source.RowsJSON, []schemas.Field{field("id", schemas.Long), field("_row_id", schemas.Long)})},
		} {
			t.Run(c.name, func(t *testing.T) {
				_, _, err := n.EnsureTable(longContext(t), c.def)
				told(t, err, topology.ErrConfig, c.def.Name, c.words)
			})
		}
		if ts, err := n.Tables(longContext(t)); err != nil || len(ts) > 0 {
			t.Errorf("%d tables were made: %v", len(ts), err)
		}
	})
}

// TestBrokerFaults: topics that lost or changed what was used of them stop the
// start, each with its own error.
func TestBrokerFaults(t *testing.T) {
	t.Run("older copy of the broker", func(t *testing.T) {
		s, n := newSmall(t, topology.NodeOptions{})
		stop(t, n)
		dir := filepath.Join(s.o.Data, "broker")
		old := filepath.Join(t.TempDir(), "old")
		copyFolder(t, dir, old)
		n = start(t, s.o)
		s.load(t, n, 200)
		stop(t, n)
		newer := filepath.Join(t.TempDir(), "newer")
		if err := os.Rename(dir, newer); err != nil {
			t.Fatal(err)
		}
		copyFolder(t, old, dir)
		refused(t, s.o, topology.ErrLogBehind, "varve.transactions", "the state of partition 0")

		// Other records in the place of those that are gone.
		b, err := topology.OpenBroker(topology.BrokerOptions{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		_, cl := admin(t, []string{b.Addr()})
		for range 200 {
			if err := cl.ProduceSync(longContext(t), &kgo.Record{Topic: "varve.transactions", Value: []byte("not ours")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		refused(t, s.o, statestore.ErrFork, "made again")
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		copyFolder(t, newer, dir)
		s.check(t)
	})
	t.Run("state folder lost", func(t *testing.T) {
		// The outcomes are there already: none is sent twice with other content.
		s, n := newSmall(t, topology.NodeOptions{})
		stop(t, n)
		for _, dir := range []string{"state", "index"} {
			if err := os.RemoveAll(filepath.Join(s.o.Data, dir)); err != nil {
				t.Fatal(err)
			}
		}
		s.check(t)
		if err := os.RemoveAll(filepath.Join(s.o.Data, "state")); err != nil {
			t.Fatal(err)
		}
		s.check(t)
	})
	t.Run("outcomes lost", func(t *testing.T) {
		s, n := newSmall(t, topology.NodeOptions{})
		stop(t, n)
		b, err := topology.OpenBroker(topology.BrokerOptions{Dir: filepath.Join(s.o.Data, "broker")})
		if err != nil {
			t.Fatal(err)
		}
		adm, cl := admin(t, []string{b.Addr()})
		if r, err := adm.DeleteTopic(longContext(t), "varve.outcomes"); err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
		cl.Close()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		refused(t, s.o, topology.ErrOutcomesLost, "varve.outcomes", filepath.Join(s.o.Data, "state", "0"))
		if err := os.RemoveAll(filepath.Join(s.o.Data, "state")); err != nil {
			t.Fatal(err)
		}
		s.check(t)
	})
	t.Run("state behind its topics", func(t *testing.T) {
		s, n := newSmall(t, topology.NodeOptions{})
		stop(t, n)
		old := filepath.Join(t.TempDir(), "old")
		copyFolder(t, filepath.Join(s.o.Data, "state"), old)
		n = start(t, s.o)
		s.load(t, n, 200)
		stop(t, n)
		if err := os.RemoveAll(filepath.Join(s.o.Data, "state")); err != nil {
			t.Fatal(err)
		}
		copyFolder(t, old, filepath.Join(s.o.Data, "state"))
		s.check(t)
	})
	onBackends(t, func(t *testing.T, b backend) {
		t.Run("topic with wrong settings", func(t *testing.T) {
			o := topology.NodeOptions{Data: dataDir(t), Brokers: b.brokers, Deployment: "careless"}
			if len(b.brokers) == 0 {
				t.Skip("the embedded broker's topics are the node's own")
			}
			adm, _ := admin(t, b.brokers)
			day := "86400000"
			if _, err := adm.CreateTopic(longContext(t), 8, 1, map[string]*string{"retention.ms": &day}, "careless.transactions"); err != nil {
				t.Fatal(err)
			}
			refused(t, o, topology.ErrTopicSettings, "careless.transactions has retention.ms=86400000, needed is -1", "message.timestamp.type", "kafka-configs.sh")
		})
		t.Run("source made again", func(t *testing.T) {
			s, n := newSmall(t, topology.NodeOptions{Brokers: b.brokers, Deployment: "again"})
			adm, _ := admin(t, n.Brokers())
			ctx := longContext(t)
			if len(b.brokers) > 0 {
				stop(t, n)
			}
			if r, err := adm.DeleteTopic(ctx, s.f.def.SourceTopic); err != nil || r.Err != nil {
				t.Fatal(err, r.Err)
			}
			makeTopic(ctx, t, adm, s.f.def.SourceTopic, 2)
			if len(b.brokers) == 0 {
				_ = n.Close(ctx) // its shards have noticed, perhaps
			}
			refused(t, s.o, topology.ErrTopicRecreated, s.f.def.SourceTopic, "people.users")
		})
	})
}

func makeTopic(ctx context.Context, t *testing.T, adm *kadm.Client, topic string, partitions int32) {
	t.Helper()
	for { // Kafka deletes in the background
		_, err := adm.CreateTopic(ctx, partitions, 1, nil, topic)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}
