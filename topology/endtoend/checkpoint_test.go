package endtoend

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/checkpoint"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
)

func checkpointed(t *testing.T, n *topology.Node) topology.CheckpointMade {
	t.Helper()
	made, err := n.Checkpoint(longContext(t), -1)
	if err != nil || len(made) == 0 {
		t.Fatal(made, err)
	}
	return made[0]
}

func restored(t *testing.T, n *topology.Node) string {
	t.Helper()
	var id string
	waitUntil(t, "the state is open", func() bool { // a group gives it when the last owner's session is over
		st, err := n.Status(longContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(st.Checkpoints) == 0 {
			return false
		}
		id = st.Checkpoints[0].Restored
		return true
	})
	return id
}

// asides are the folders that were set aside.
func asides(t *testing.T, data string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(data, "state", "*.aside-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestStateRestored: a node whose state is gone, damaged or behind its log's
// beginning starts from the newest checkpoint and the tail of the log, and its
// rows are the model's (L5, L8, §12). Nothing is deleted in silence.
func TestStateRestored(t *testing.T) {
	onBackends(t, func(t *testing.T, b backend) {
		s, n := newSmall(t, topology.NodeOptions{Brokers: b.brokers, Deployment: "restored", Partitions: 1})
		made := checkpointed(t, n)
		s.load(t, n, 100)
		stop(t, n)
		state := filepath.Join(s.o.Data, "state", "0")
		trimmed := false
		// again starts the node, with or without a restored state, and lets it work.
		again := func(t *testing.T, want string) {
			t.Helper()
			n := start(t, s.o)
			if got := restored(t, n); got != want {
				t.Fatalf("restored from %q, not %q", got, want)
			}
			s.load(t, n, 100)
			if trimmed {
				s.rowsEqual(t, n)
			} else {
				settle(longContext(t), t, n, s.f, s.m) // reads all of the log
			}
			stop(t, n)
		}
		t.Run("wiped", func(t *testing.T) {
			for _, dir := range []string{"state", "index"} {
				if err := os.RemoveAll(filepath.Join(s.o.Data, dir)); err != nil {
					t.Fatal(err)
				}
			}
			again(t, made.ID)
			again(t, "")
			if a := asides(t, s.o.Data); len(a) != 0 {
				t.Fatal(a)
			}
		})
		t.Run("damaged", func(t *testing.T) {
			es, err := os.ReadDir(state)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range es {
				if strings.HasPrefix(e.Name(), "MANIFEST") || strings.HasSuffix(e.Name(), ".sst") {
					if err := os.WriteFile(filepath.Join(state, e.Name()), []byte("damaged"), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			again(t, made.ID)
			a := asides(t, s.o.Data)
			if len(a) != 1 {
				t.Fatal(a)
			}
			if left, err := os.ReadDir(a[0]); err != nil || len(left) < len(es) {
				t.Fatal(left, err)
			}
		})
		t.Run("fork", func(t *testing.T) {
			// The same state under another record: refused by name, the log is applied from its beginning.
			fork := forged(t, s.o, "restored")
			if err := os.RemoveAll(filepath.Join(s.o.Data, "state")); err != nil {
				t.Fatal(err)
			}
			again(t, made.ID)
			place := checkpoint.At(local(t, s.o), "restored", 0)
			if err := place.Delete(longContext(t), fork); err != nil {
				t.Fatal(err)
			}
		})
		t.Run("log begins later", func(t *testing.T) {
			n := start(t, s.o)
			made = checkpointed(t, n)
			s.load(t, n, 100)
			stop(t, n)
			trim := func(to int64) {
				brokers := b.brokers
				if len(brokers) == 0 {
					e, err := topology.OpenBroker(topology.BrokerOptions{Dir: filepath.Join(s.o.Data, "broker")})
					if err != nil {
						t.Fatal(err)
					}
					defer func() {
						if err := e.Close(); err != nil {
							t.Error(err)
						}
					}()
					brokers = []string{e.Addr()}
				}
				adm, cl := admin(t, brokers)
				defer cl.Close()
				var o kadm.Offsets
				o.Add(kadm.Offset{Topic: "restored.transactions", Partition: 0, At: to})
				if r, err := adm.DeleteRecords(longContext(t), o); err != nil || r.Error() != nil {
					t.Fatal(err, r.Error())
				}
			}
			trimmed = true
			trim(made.Offset)
			again(t, "") // the state is above
			if err := os.RemoveAll(filepath.Join(s.o.Data, "state")); err != nil {
				t.Fatal(err)
			}
			again(t, made.ID)
			// Now the log begins behind the only checkpoint, and the state is away.
			trim(made.Offset + 1)
			away := state + ".away"
			if err := os.Rename(state, away); err != nil {
				t.Fatal(err)
			}
			refused(t, s.o, topology.ErrLogTrimmed, "restored.transactions", fmt.Sprint(made.Offset+1), checkpoint.ErrUnfit.Error())
			if err := os.Rename(away, state); err != nil {
				t.Fatal(err)
			}
			again(t, "")
		})
	})
}

// rowsEqual compares the newest snapshot with the model.
func (s *small) rowsEqual(t *testing.T, n *topology.Node) {
	t.Helper()
	i, err := n.Table(longContext(t), s.f.def.Name)
	if err != nil {
		t.Fatal(err)
	}
	s.m.keys = map[string]version{}
	for p, events := range s.m.events {
		a := &record.AppendRows{Shard: record.ShardKey{Partition: p}, SourceTo: int64(len(events))}
		if err := s.m.append(a, i.LastChange, 0); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readers.Read(longContext(t), readers.IcebergGo, i.Head.MetadataPath, readers.Options{})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "iceberg-go", got, s.m, s.f.key)
}

func local(t *testing.T, o topology.NodeOptions) objstore.Store {
	t.Helper()
	w := o.Warehouse
	if w == "" {
		w = filepath.Join(o.Data, "lake")
	}
	st, err := objstore.Open(longContext(t), w, objstore.KeepTemporaries())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// forged makes a checkpoint that is not of the log: the state with a record
// more, which the log never had.
func forged(t *testing.T, o topology.NodeOptions, deployment string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "0")
	copyFolder(t, filepath.Join(o.Data, "state", "0"), dir)
	st, err := statestore.Open(dir, statestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	h := st.Head()
	if _, err := st.Apply(&statestore.Record{Offset: h.Offset + 1, TimeMs: h.TimeMs, Key: []byte("x"), Value: []byte("never")}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Commit(); err != nil {
		t.Fatal(err)
	}
	m, err := checkpoint.At(local(t, o), deployment, 0).Create(longContext(t), st, checkpoint.CreateOptions{Scratch: dir + ".scratch"})
	if err != nil {
		t.Fatal(err)
	}
	// The log goes on: it has another record there.
	n := start(t, o)
	for {
		s, err := n.Status(longContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if s.Heads[0].Offset > m.Manifest.Offset {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop(t, n)
	return m.Manifest.ID()
}

// TestCheckpointsInBackground: they are made while records come, and none
// while none does; old ones go.
func TestCheckpointsInBackground(t *testing.T) {
	s, n := newSmall(t, topology.NodeOptions{Checkpoints: topology.CheckpointOptions{Interval: 100 * time.Millisecond, Keep: 2}})
	place := checkpoint.At(n.Store(), "varve", 0)
	deadline := time.Now().Add(longTime)
	seen := map[string]bool{}
	for len(seen) < 4 {
		if time.Now().After(deadline) {
			t.Fatal("no checkpoints")
		}
		s.load(t, n, 20)
		es, err := place.List(longContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			if e.Err != nil && !errors.Is(e.Err, checkpoint.ErrDamaged) { // it may go while it is read
				t.Fatal(e.Err)
			}
			seen[e.ID] = true
		}
	}
	quiet := 0
	for last := ""; quiet < 5; quiet++ {
		time.Sleep(300 * time.Millisecond)
		es, err := place.List(longContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(es) > 2 || time.Now().After(deadline) {
			t.Fatal(len(es), "checkpoints")
		}
		if es[len(es)-1].ID != last {
			last, quiet = es[len(es)-1].ID, 0
		}
	}
	st, err := n.Status(longContext(t))
	if err != nil || st.Checkpoints[0].Behind != 0 || st.Checkpoints[0].MadeMs == 0 || st.Checkpoints[0].Error != "" {
		t.Fatalf("%+v %v", st.Checkpoints, err)
	}
	stop(t, n)
	s.check(t)
}

// TestShardMoves: the owner of a table's shards is killed, and a node with an
// empty data folder goes on: its state comes from a checkpoint, its key indexes
// from theirs, and both catch up with what was accepted since. The rows are the
// model's, and so is what becomes of keys that were written before (K4, F9).
func TestShardMoves(t *testing.T) {
	onBackends(t, func(t *testing.T, b backend) {
		brokers := b.brokers
		if len(brokers) == 0 {
			e, err := topology.OpenBroker(topology.BrokerOptions{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}()
			brokers = []string{e.Addr()}
		}
		ctx := longContext(t)
		w := workloads["orders"]()
		f := newFeed(w, 7)
		c := &childOrder{
			Data: dataDir(t), Brokers: brokers, Warehouse: t.TempDir(), Deployment: "moves", Partitions: 1, Workload: "orders", Session: groupSession,
			Checkpoints: topology.CheckpointOptions{IndexAppends: 3},
		}
		old := startChild(t, c, filepath.Join(t.TempDir(), "child.log"))
		old.ready()
		conn, _, err := topology.Dial(ctx, c.Data, topology.ClientOptions{})
		if err != nil {
			t.Fatal(err)
		}
		table := func() *statestore.TableInfo {
			i, err := conn.Table(ctx, w.def.Name)
			if err != nil {
				t.Fatal(err)
			}
			return i
		}
		// feed publishes events and waits until they are in the log.
		feed := func(events int) {
			if _, err := conn.Produce(ctx, w.def.SourceTopic, w.partitions, f.take(events), nil); err != nil {
				t.Fatal(err)
			}
			for waiting := true; waiting; time.Sleep(10 * time.Millisecond) {
				waiting = false
				for _, s := range table().Shards {
					waiting = waiting || s.SourceEnd < int64(len(f.made[s.Partition]))
				}
				if ctx.Err() != nil {
					t.Fatal(ctx.Err())
				}
			}
		}
		indexed := func() bool {
			shards := table().Shards
			if len(shards) < w.partitions {
				return false // not all claimed yet
			}
			for _, s := range shards {
				if s.Index.Path == "" {
					return false
				}
			}
			return true
		}
		for feed(100); !indexed(); feed(100) {
		}
		made, err := topology.RequestCheckpoint(ctx, c.Data, -1)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			feed(150) // behind the checkpoints
		}
		horizons := map[int32]int64{}
		for _, s := range table().Shards {
			horizons[s.Partition] = s.IndexHorizon
		}
		if err := conn.CloseConn(); err != nil {
			t.Fatal(err)
		}
		old.kill()

		o := c.options(nil)
		o.Data = dataDir(t)
		began := time.Now()
		n := start(t, o)
		if got := restored(t, n); got != made[0].ID {
			t.Fatalf("restored from %q, not %s", got, made[0].ID)
		}
		waitUntil(t, "the node has all shards", func() bool { return owned(n) == w.partitions })
		for _, s := range n.Shards() {
			// The old owner may have made another checkpoint just before its end.
			if s.ReadFrom <= horizons[s.Partition] {
				t.Errorf("shard %d read the log from %d, its index checkpoint stands at %d", s.Partition, s.ReadFrom, horizons[s.Partition])
			}
			t.Logf("shard %d: index checkpoint at %d, log read from %d", s.Partition, horizons[s.Partition], s.ReadFrom)
		}
		s := &small{o, f, f.model()}
		s.load(t, n, 200)
		t.Logf("moved and caught up in %s", time.Since(began).Round(time.Millisecond))
		settle(ctx, t, n, f, s.m)
		stop(t, n)
	})
}
