package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/varve-io/varve/processors/rekey"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology/testcluster"
)

// moverWorld is a source topic whose records are spread without regard to
// their keys, and what its movers must come to.
type moverWorld struct {
	t      *testing.T
	client ClientOptions
	admin  *Admin
	def    *schemas.Definition
	source TopicInfo
	want   map[rekey.Origin][]int32 // partitions of each record
}

const moverPartitions = 4

func newMoverWorld(t *testing.T, brokers []string, topic string) *moverWorld {
	w := &moverWorld{t: t, client: ClientOptions{Brokers: brokers}, want: map[rekey.Origin][]int32{}}
	w.def = &schemas.Definition{
		Name: "shop." + topic, FormatVersion: 3, Mode: schemas.ModeDV, Format: source.DebeziumJSON, SourceTopic: topic,
		Schemas: []schemas.Schema{{Fields: []schemas.Field{
			{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true}, {ID: 2, Name: "qty", Type: schemas.Of(schemas.Int)},
		}}},
		LastColumnID: 2, Key: []int32{1}, Specs: []schemas.Spec{{}}, LastPartitionID: 999,
	}
	var err error
	if w.admin, err = NewAdmin(w.client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.admin.Close)
	if w.source, err = w.admin.EnsureSourceTopic(testContext(t), topic, 3); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *moverWorld) place(id int64) int32 {
	e, err := rows.NewKeyEncoder(w.def.Schema(), w.def.Key)
	if err != nil {
		w.t.Fatal(err)
	}
	c := rows.NewColumn(schemas.Of(schemas.Long))
	c.AppendInt(id)
	key, err := e.AppendFrom(nil, []rows.Column{c}, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return rekey.PartitionOf(key, moverPartitions)
}

// produce adds n events: some without record key, some that change a key, some
// that nobody can read.
func (w *moverWorld) produce(r *rand.Rand, n int) {
	p, err := NewLogProducer(w.client, ProducerOptions{MaxBatchBytes: DefaultSourceBatchBytes})
	if err != nil {
		w.t.Fatal(err)
	}
	defer p.Close()
	ctx := testContext(w.t)
	for range n {
		id := r.Int64N(50)
		e := Entry{Key: fmt.Appendf(nil, `{"id":%d}`, id), Value: fmt.Appendf(nil, `{"before":null,"after":{"id":%d,"qty":1},"op":"c"}`, id)}
		places := []int32{w.place(id)}
		switch r.IntN(10) {
		case 0:
			e.Key = nil
		case 1:
			old := r.Int64N(50)
			e.Value = fmt.Appendf(nil, `{"before":{"id":%d},"after":{"id":%d,"qty":1},"op":"u"}`, old, id)
			if q := w.place(old); q != places[0] {
				places = append(places, q)
			}
		case 2:
			e.Value = []byte(`{"op":`)
			places = []int32{rekey.PartitionOf(e.Key, moverPartitions)}
		}
		part := int32(r.IntN(3))
		off, err := p.AppendSync(ctx, w.source.Name, part, e)
		if err != nil {
			w.t.Fatal(err)
		}
		w.want[rekey.Origin{TopicID: w.source.ID, Partition: part, Offset: off}] = places
	}
}

func (w *moverWorld) mover(member string) *mover {
	w.t.Helper()
	m, err := newMover(testContext(w.t), moverConfig{
		client: w.client, admin: w.admin, def: w.def, source: w.source, target: Topics{Deployment: "mv"}.RekeyTopic(w.def.Name),
		partitions: moverPartitions, deployment: "mv", member: member, logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// start runs a mover until the returned function is called.
func (w *moverWorld) start(member string) (m *mover, stop func()) {
	w.t.Helper()
	m = w.mover(member)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.run(ctx) }()
	return m, func() {
		w.t.Helper()
		cancel()
		if err := <-done; err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *moverWorld) wait(m *mover) {
	w.t.Helper()
	ctx := testContext(w.t)
	for {
		ends, err := w.admin.Offsets(ctx, w.source.Name)
		if err != nil {
			w.t.Fatal(err)
		}
		n, err := m.cfg.left(ctx, ends)
		if err != nil {
			w.t.Fatal(err)
		}
		if n == 0 {
			return
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			w.t.Fatal("not all was moved: ", err)
		}
	}
}

// check reads the internal topic as a shard does: every record is where it must
// be, once, and those of one source partition are in their order.
func (w *moverWorld) check() {
	w.t.Helper()
	ctx := testContext(w.t)
	target := Topics{Deployment: "mv"}.RekeyTopic(w.def.Name)
	ends, err := w.admin.Offsets(ctx, target)
	if err != nil {
		w.t.Fatal(err)
	}
	got := map[rekey.Origin][]int32{}
	for p := range ends {
		r, err := OpenLogReader(ctx, w.client, ReaderOptions{Topic: target, Partition: int32(p), Committed: true, MaxWait: 100 * time.Millisecond})
		if err != nil {
			w.t.Fatal(err)
		}
		last := map[int32]int64{}
		for r.Next() < ends[p].Stable {
			rs, err := r.Poll(ctx, time.Second, 0)
			if err != nil {
				w.t.Fatal(err)
			}
			for i := range rs {
				if rs[i].Control {
					continue
				}
				o, ok := rekey.OriginOf(sourceHeaders(nil, rs[i].Headers))
				if !ok {
					w.t.Fatal("a moved record without its origin")
				}
				if at, seen := last[o.Partition]; seen && o.Offset <= at {
					w.t.Fatalf("partition %d: offset %d of source partition %d follows %d", p, o.Offset, o.Partition, at)
				}
				last[o.Partition] = o.Offset
				got[o] = append(got[o], int32(p))
			}
		}
		r.Close()
	}
	if len(got) != len(w.want) {
		w.t.Errorf("%d records were moved, want %d", len(got), len(w.want))
	}
	for o, places := range w.want {
		if slices.Sort(got[o]); !slices.Equal(got[o], slices.Sorted(slices.Values(places))) {
			w.t.Fatalf("source partition %d offset %d is in partitions %v, want %v", o.Partition, o.Offset, got[o], places)
		}
	}
}

// TestMover (K5): movers that come and go, also two at once, bring every record
// to its places once and in order.
func TestMover(t *testing.T) {
	c := testcluster.Start(t, 1)
	t.Run("moves", func(t *testing.T) {
		w := newMoverWorld(t, c.Brokers(), "moved")
		r := rand.New(rand.NewPCG(1, 7))
		w.produce(r, 300)
		m, stop := w.start("a")
		w.wait(m)
		w.check()
		_, stopB := w.start("b")
		w.produce(r, 300)
		stop() // in the middle of it
		w.produce(r, 300)
		m, stopA := w.start("a")
		w.wait(m)
		stopB()
		w.produce(r, 100)
		w.wait(m)
		stopA()
		w.check()
	})
	t.Run("loss", func(t *testing.T) {
		w := newMoverWorld(t, c.Brokers(), "lost")
		r := rand.New(rand.NewPCG(2, 7))
		w.produce(r, 50)
		m, stop := w.start("a")
		w.wait(m)
		stop()
		w.produce(r, 50)
		ctx := testContext(t)
		ends, err := w.admin.Offsets(ctx, w.source.Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.admin.DeleteRecords(ctx, w.source.Name, 1, ends[1].High-1); err != nil {
			t.Fatal(err)
		}
		if err := w.mover("a").run(ctx); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("a mover whose next records were deleted: %v", err)
		}
	})
	t.Run("made again", func(t *testing.T) {
		w := newMoverWorld(t, c.Brokers(), "again")
		w.produce(rand.New(rand.NewPCG(3, 7)), 20)
		m, stop := w.start("a")
		w.wait(m)
		stop()
		other := w.source
		other.ID[0]++
		_, err := newMover(testContext(t), moverConfig{
			client: w.client, admin: w.admin, def: w.def, source: other, target: Topics{Deployment: "mv"}.RekeyTopic(w.def.Name),
			partitions: moverPartitions, deployment: "mv", member: "a", logger: slog.New(slog.DiscardHandler),
		})
		if !errors.Is(err, ErrTopicRecreated) {
			t.Errorf("a source that was made again: %v", err)
		}
	})
}
