package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// copyOf is a store with the same objects.
func copyOf(t testing.TB, s objstore.Store) *objstore.Mem {
	t.Helper()
	m := objstore.NewMem()
	for key, b := range objects(t, s, "") {
		if err := m.Replace(ctx, key, b); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func on(s objstore.Store, c publisher.Catalog) *publisher.Publisher {
	return publisher.New(publisher.Config{Store: s, Bodies: processors.NewBodies(s, "varve"), Catalog: c})
}

// pending is a world with some history and a cut that nobody published yet.
func pending(t testing.TB, seed uint64) (*world, *statestore.FrozenCut) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 5))
	w := newWorld(t, objstore.NewMem(), definition(byDay(0), byDay(1)))
	w.cut()
	for range 5 {
		w.round(rng)
		w.cut()
	}
	w.round(rng)
	return w, w.freeze()
}

var errInjected = errors.New("injected")

// TestStoreFaults: each call to the store fails once, with and without effect,
// then the process is killed (a new publisher) or goes on (the same). In the
// end there is one snapshot, the same as without the fault.
func TestStoreFaults(t *testing.T) {
	w, f := pending(t, 1)
	clean := copyOf(t, w.store)
	want, err := on(clean, nil).Publish(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	end := objects(t, clean, "")
	for call, hit := 1, true; hit; call++ {
		for mode := range 4 {
			after, kill := mode&1 == 1, mode&2 == 2
			s := copyOf(t, w.store)
			hit = false
			n := 0
			s.SetHook(func(c objstore.Call) error {
				if !c.After {
					n++
				}
				if n == call && c.After == after && !hit {
					hit = true
					return errInjected
				}
				return nil
			})
			p := on(s, nil)
			got, err := p.Publish(ctx, f)
			if err == nil && !reflect.DeepEqual(got, want) {
				t.Fatalf("call %d: %+v", call, got)
			}
			if err != nil {
				if !errors.Is(err, errInjected) {
					t.Fatalf("call %d: %v", call, err)
				}
				if c := publisher.Cause(err); c != "store" && c != "unknown" && c != "catalog" {
					t.Fatalf("call %d: cause %q of %v", call, c, err)
				}
				if kill {
					p = on(s, nil)
				}
				if got, err = p.Publish(ctx, f); err != nil || !reflect.DeepEqual(got, want) {
					t.Fatalf("call %d, again: %+v %v", call, got, err)
				}
			}
			sameObjects(t, objects(t, s, ""), end)
		}
		if call > 1000 {
			t.Fatal("no end")
		}
	}
}

// lossy is a catalog whose answers are lost.
type lossy struct {
	publisher.Catalog
	before, after error // for the next Commit
}

func (l *lossy) Commit(ctx context.Context, table string, n int64, b []byte) error {
	before, after := l.before, l.after
	l.before, l.after = nil, nil
	if before != nil {
		return before
	}
	if err := l.Catalog.Commit(ctx, table, n, b); err != nil {
		return err
	}
	return after
}

// TestLostAnswer: a timeout or 5xx after, or before, the server committed (case 17).
func TestLostAnswer(t *testing.T) {
	w, f := pending(t, 2)
	for _, landed := range []bool{true, false} {
		for _, kill := range []bool{true, false} {
			s := copyOf(t, w.store)
			c := &lossy{Catalog: publisher.Embedded(s)}
			lost := fmt.Errorf("timeout: %w", publisher.ErrUnknown)
			if landed {
				c.after = lost
			} else {
				c.before = lost
			}
			p := on(s, c)
			_, err := p.Publish(ctx, f)
			if !errors.Is(err, publisher.ErrUnknown) || publisher.Cause(err) != "unknown" {
				t.Fatalf("lost answer: %v", err)
			}
			between := objects(t, s, "")
			if kill {
				p = on(s, c)
			}
			r, err := p.Publish(ctx, f)
			if err != nil || r.Committed.SnapshotID == 0 {
				t.Fatalf("again: %+v %v", r, err)
			}
			if landed {
				sameObjects(t, objects(t, s, ""), between)
			}
		}
	}
}

// TestRacedCommit: another publisher of the same cut commits between this
// one's look and its commit.
func TestRacedCommit(t *testing.T) {
	w, f := pending(t, 3)
	s := copyOf(t, w.store)
	want, err := on(copyOf(t, w.store), nil).Publish(ctx, f)
	if err != nil {
		t.Fatal(err)
	}
	race := &racing{Catalog: publisher.Embedded(s), first: func() {
		if _, err := on(s, nil).Publish(ctx, f); err != nil {
			t.Fatal(err)
		}
	}, answer: publisher.ErrConflict}
	got, err := on(s, race).Publish(ctx, f)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("raced: %+v %v", got, err)
	}
}

// racing runs first before a Commit, which then gets answer.
type racing struct {
	publisher.Catalog
	first  func()
	answer error
}

func (r *racing) Commit(ctx context.Context, table string, n int64, b []byte) error {
	if r.first == nil {
		return r.Catalog.Commit(ctx, table, n, b)
	}
	first := r.first
	r.first = nil
	first()
	return r.answer
}

// TestForeign: what another writer did to the metadata stops the table, and
// nothing is written.
func TestForeign(t *testing.T) {
	w, f := pending(t, 4)
	head := fmt.Sprintf("%s/metadata/v%d.metadata.json", tableKey, f.Head.MetadataVersion)
	next := fmt.Sprintf("%s/metadata/v%d.metadata.json", tableKey, f.Head.MetadataVersion+1)
	base := objects(t, w.store, "")[head]
	replace := func(key string, b []byte) func(*objstore.Mem) error {
		return func(s *objstore.Mem) error { return s.Replace(ctx, key, b) }
	}
	for name, change := range map[string]func(*objstore.Mem) error{
		"head changed":      replace(head, append([]byte(" "), base...)),
		"head gone":         func(s *objstore.Mem) error { return s.Delete(ctx, head) },
		"next is there":     replace(next, base),
		"next is no table":  replace(next, []byte("{}")),
		"next is truncated": replace(next, base[:len(base)/2]),
	} {
		s := copyOf(t, w.store)
		if err := change(s); err != nil {
			t.Fatal(err)
		}
		before := objects(t, s, "")
		for range 2 {
			_, err := on(s, nil).Publish(ctx, f)
			if !errors.Is(err, publisher.ErrForeign) || publisher.Cause(err) != "conflict" {
				t.Fatalf("%s: %v", name, err)
			}
		}
		sameObjects(t, objects(t, s, ""), before)
	}
	// Our own snapshot is there, but main was moved back to its parent.
	rolled := copyOf(t, w.store)
	if _, err := on(rolled, nil).Publish(ctx, f); err != nil {
		t.Fatal(err)
	}
	m, err := iceberg.ParseMetadata(objects(t, rolled, "")[next])
	if err == nil {
		err = errors.Join(m.Touch(m.NextTimestamp(0)), m.SetRef(iceberg.MainBranch, "branch", f.Head.SnapshotID))
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.Marshal()
	if err == nil {
		err = rolled.Replace(ctx, next, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := on(rolled, nil).Publish(ctx, f); !errors.Is(err, publisher.ErrForeign) {
		t.Fatalf("main moved back: %v", err)
	}
	// The next version appears while this one is being built.
	s := copyOf(t, w.store)
	race := &racing{Catalog: publisher.Embedded(s), first: func() {
		if err := s.Replace(ctx, next, base); err != nil {
			t.Fatal(err)
		}
	}, answer: publisher.ErrConflict}
	if _, err := on(s, race).Publish(ctx, f); !errors.Is(err, publisher.ErrForeign) {
		t.Fatalf("raced: %v", err)
	}
}

// TestLocationTaken: a new table does not take over another's folder.
func TestLocationTaken(t *testing.T) {
	s := objstore.NewMem()
	other := definition()
	other.Properties = append(other.Properties, property("other", "yes"))
	newWorld(t, s, other).cut()
	w := newWorld(t, s, definition())
	_, err := w.pub.Publish(ctx, w.freeze())
	if !errors.Is(err, publisher.ErrForeign) {
		t.Fatalf("second table: %v", err)
	}
}

// TestBodies: an added file's metrics come from its record's body and nowhere else.
func TestBodies(t *testing.T) {
	w, f := pending(t, 5)
	for i := range f.Files {
		x := &f.Files[i]
		if !x.Added {
			continue
		}
		s := copyOf(t, w.store)
		if err := s.Delete(ctx, x.Body.Path); err != nil {
			t.Fatal(err)
		}
		if _, err := on(s, nil).Publish(ctx, f); !errors.Is(err, processors.ErrBodyMissing) {
			t.Fatalf("missing: %v", err)
		}
		if err := s.Replace(ctx, x.Body.Path, make([]byte, x.Body.Length)); err != nil {
			t.Fatal(err)
		}
		if _, err := on(s, nil).Publish(ctx, f); !errors.Is(err, processors.ErrBodyAltered) {
			t.Fatalf("altered: %v", err)
		}
		// A body of right hash that does not know the file.
		text, err := record.EncodeRowsBody(nil, &record.RowsBody{})
		if err != nil {
			t.Fatal(err)
		}
		ref, err := processors.NewBodies(s, "varve").Put(ctx, text)
		if err != nil {
			t.Fatal(err)
		}
		g := *f
		g.Files = append([]statestore.FrozenFile(nil), f.Files...)
		g.Files[i].Body = ref
		if _, err := on(copyWith(t, w.store, ref.Path, text), nil).Publish(ctx, &g); !errors.Is(err, publisher.ErrInconsistent) {
			t.Fatalf("another body: %v", err)
		}
		return
	}
	t.Fatal("the cut adds no file")
}

func copyWith(t testing.TB, s objstore.Store, key string, b []byte) *objstore.Mem {
	t.Helper()
	m := copyOf(t, s)
	if err := m.Replace(ctx, key, b); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAsserts: a cut that would break what readers rely on is not published.
func TestAsserts(t *testing.T) {
	w := newWorld(t, objstore.NewMem(), definition())
	w.cut()
	ids := w.append([]newFile{{rows: 100}, {rows: 50}}, nil)
	w.cut()
	w.append(nil, map[uint64][]uint32{ids[0]: {1}, ids[1]: {1}})
	w.cut()
	w.append([]newFile{{rows: 3}}, map[uint64][]uint32{ids[0]: {2}})
	f := w.freeze()
	const changed = 0 // this file's vector is replaced
	for name, spoil := range map[string]func(*statestore.FrozenCut, *statestore.FrozenFile){
		"V5: vector below its file's sequence": func(f *statestore.FrozenCut, x *statestore.FrozenFile) { x.Sequence = f.Head.Sequence + 2 },
		"V5: the vector shrinks":               func(_ *statestore.FrozenCut, x *statestore.FrozenFile) { x.Vector.Cardinality = x.DeadCount },
		"V5: the replaced vector is elsewhere": func(_ *statestore.FrozenCut, x *statestore.FrozenFile) { x.Vector.Offset++ },
		"V7: every row is dead":                func(_ *statestore.FrozenCut, x *statestore.FrozenFile) { x.Rows = x.DeadCount },
		"wrong count":                          func(_ *statestore.FrozenCut, x *statestore.FrozenFile) { x.DeadCount++ },
		"unknown manifest":                     func(_ *statestore.FrozenCut, x *statestore.FrozenFile) { x.Vector.Manifest = 99 },
		"S1: sequence":                         func(f *statestore.FrozenCut, _ *statestore.FrozenFile) { f.Head.Sequence++ },
		"S1: row ids":                          func(f *statestore.FrozenCut, _ *statestore.FrozenFile) { f.Head.NextRowID-- },
		"another path":                         func(f *statestore.FrozenCut, _ *statestore.FrozenFile) { f.Head.MetadataPath += "x" },
	} {
		g := *f
		g.Files = append([]statestore.FrozenFile(nil), f.Files...)
		v := *g.Files[changed].Vector
		g.Files[changed].Vector = &v
		spoil(&g, &g.Files[changed])
		s := copyOf(t, w.store)
		if _, err := on(s, nil).Publish(ctx, &g); !errors.Is(err, publisher.ErrInconsistent) || errors.Is(err, publisher.ErrForeign) {
			t.Fatalf("%s: %v", name, err)
		}
		if n := len(objects(t, s, tableKey+"/metadata/v")); n != int(f.Head.MetadataVersion)+1 {
			t.Fatalf("%s: %d versions and hint", name, n)
		}
	}
}
