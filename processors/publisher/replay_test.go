package publisher_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// objects is everything under a prefix of a store.
func objects(t testing.TB, s objstore.Store, prefix string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	if err := s.List(ctx, prefix, func(i objstore.Info) error {
		b, err := s.ReadAll(ctx, i.Key, 1<<30)
		out[i.Key] = b
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func sameObjects(t testing.TB, got, want map[string][]byte) {
	t.Helper()
	for key, b := range want {
		if !bytes.Equal(got[key], b) {
			t.Fatalf("C7: %s differs", key)
		}
	}
	for key := range got {
		if want[key] == nil {
			t.Fatalf("C7: %s is one too many", key)
		}
	}
}

// evolve makes a table by random cuts, with a change of its definition between.
func evolve(t testing.TB, seed uint64, cuts int) *world {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	w := newWorld(t, objstore.NewMem(), definition(byDay(0), byDay(1)))
	w.cut()
	for i := range cuts {
		if i%7 == 3 {
			w.alter(i)
		}
		if i%7 != 4 {
			w.round(rng)
		} else {
			w.alter(i)
		}
		w.cut()
	}
	return w
}

// TestReplay throws metadata, manifests, lists and Puffins of a finished run
// away and makes them again from the frozen cuts: every file has the same
// bytes (C7), every record is the same. One publisher stays for the whole run,
// or each cut has a new one, so nothing depends on what a publisher remembers.
func TestReplay(t *testing.T) {
	for seed := range uint64(3) {
		w := evolve(t, seed, 30)
		want := objects(t, w.store, tableKey+"/metadata/")
		for _, fresh := range []bool{false, true} {
			for key := range objects(t, w.store, tableKey+"/metadata/") {
				if err := w.store.Delete(ctx, key); err != nil {
					t.Fatal(err)
				}
			}
			p := w.newPublisher()
			for i, f := range w.cuts {
				if fresh {
					p = w.newPublisher()
				}
				r, err := p.Publish(ctx, f)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(r, w.done[i]) {
					t.Fatalf("cut %d: the record is %+v, was %+v", i, r, w.done[i])
				}
			}
			sameObjects(t, objects(t, w.store, tableKey+"/metadata/"), want)
		}
	}
}

// TestLostRecord: the log has lost every SnapshotCommitted, so each cut is
// published again, by a new publisher and by the same. The record found is the
// record made, and nothing is written (C2, C4, case 31).
func TestLostRecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 3))
	w := newWorld(t, objstore.NewMem(), definition(byDay(0), byDay(1)))
	for i := range 40 {
		switch {
		case i == 0:
		case i%9 == 4:
			w.alter(i)
		default:
			w.round(rng)
		}
		f := w.freeze()
		r, err := w.pub.Publish(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		before := objects(t, w.store, tableKey)
		for _, p := range []*publisher.Publisher{w.newPublisher(), w.pub} {
			again, err := p.Publish(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(again, r) {
				t.Fatalf("cut %d: found %+v, made %+v", i, again, r)
			}
		}
		sameObjects(t, objects(t, w.store, tableKey), before)
		w.confirm(f, r)
		w.timeMs += 1000
		w.check()
	}
}

// TestTwoPublishers: both build every cut, taking turns at being the first; one
// commits, the other finds it (case 16, C2). A third sleeps over many cuts and
// wakes up: what stands does not change (case 32).
func TestTwoPublishers(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 4))
	w := newWorld(t, objstore.NewMem(), definition())
	other := w.newPublisher()
	w.cut()
	for i := range 20 {
		w.round(rng)
		f := w.freeze()
		a, b := w.pub, other
		if i%2 == 1 {
			a, b = b, a
		}
		r, err := a.Publish(ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		again, err := b.Publish(ctx, f)
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("the second: %+v %v", again, err)
		}
		w.confirm(f, r)
		w.check()
	}
	before := objects(t, w.store, tableKey)
	for i := range w.cuts {
		r, err := w.newPublisher().Publish(ctx, w.cuts[i])
		if err != nil || !reflect.DeepEqual(r, w.done[i]) {
			t.Fatalf("late: %+v %v", r, err)
		}
	}
	sameObjects(t, objects(t, w.store, tableKey), before)
}

// TestOneVectorPerPuffin: V3's option, set by the table.
func TestOneVectorPerPuffin(t *testing.T) {
	def := definition()
	def.Properties = append(def.Properties, property(publisher.PropertyVectorsPerPuffin, "1"))
	w := newWorld(t, objstore.NewMem(), def)
	w.cut()
	ids := w.append([]newFile{{rows: 9}, {rows: 9}, {rows: 9}}, nil)
	w.cut()
	w.append(nil, map[uint64][]uint32{ids[0]: {1}, ids[1]: {2}, ids[2]: {3}})
	r := w.cut()
	w.check()
	puffins := 0
	for key := range objects(t, w.store, tableKey+"/metadata/") {
		if strings.HasSuffix(key, ".puffin") {
			puffins++
		}
	}
	if len(r.Committed.Puffins) != 3 || puffins != 3 {
		t.Fatalf("%d Puffins, %d in the record, want 3", puffins, len(r.Committed.Puffins))
	}
}

// TestManyTables: one publisher works for several tables at once.
func TestManyTables(t *testing.T) {
	store := objstore.NewMem()
	var worlds []*world
	for i := range 4 {
		def := definition(byDay(0))
		def.Name = fmt.Sprintf("shop.t%d", i)
		def.Location = fmt.Sprintf("mem://store/shop/t%d", i)
		w := newWorld(t, store, def)
		if i > 0 {
			w.pub = worlds[0].pub
		}
		worlds = append(worlds, w)
	}
	for round := range uint64(8) {
		var cuts []*statestore.FrozenCut
		for i, w := range worlds {
			if round > 0 {
				w.round(rand.New(rand.NewPCG(round, uint64(i))))
			}
			cuts = append(cuts, w.freeze())
		}
		results, errs := make([]publisher.Result, len(worlds)), make([]error, len(worlds))
		var wg sync.WaitGroup
		for i, w := range worlds {
			wg.Go(func() { results[i], errs[i] = w.pub.Publish(ctx, cuts[i]) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for i, w := range worlds {
			w.confirm(cuts[i], results[i])
			w.check()
		}
	}
}
