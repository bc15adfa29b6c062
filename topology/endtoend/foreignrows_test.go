package endtoend

import (
	"context"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
)

// foreignStep is what another writer committed once the table's shards had taken so
// many events: rows by key as an upsert has them, nil: a delete, whatever the
// ordering value.
type foreignStep struct {
	taken map[int32]int64
	rows  map[string]*otherRow
}

// step is what another writer committed just now (H12), while nothing of the source is on
// its way; it waits until that is taken in.
func (s *outside) step(n *topology.Node, rows map[string]*otherRow) foreignStep {
	s.t.Helper()
	s.visible(longContext(s.t), n)
	return s.now(rows)
}

func (s *outside) now(rows map[string]*otherRow) foreignStep {
	x := foreignStep{map[int32]int64{}, rows}
	for p, events := range s.f.made {
		x.taken[p] = int64(len(events))
	}
	return x
}

// want is the model after all events and steps (K2, H7).
func (s *outside) want(steps []foreignStep) *model {
	s.t.Helper()
	m := s.f.model()
	at := map[int32]int64{}
	take := func(to map[int32]int64) {
		for p, n := range to {
			if err := m.append(&record.AppendRows{Shard: record.ShardKey{Partition: p}, SourceFrom: at[p], SourceTo: n}, 1, 0); err != nil {
				s.t.Fatal(err)
			}
			at[p] = n
		}
	}
	for _, x := range steps {
		take(x.taken)
		for name, r := range x.rows {
			v := m.keys[name]
			switch {
			case r == nil:
				v.row = nil
			case v.order == nil || r.ver != nil && *r.ver >= *v.order:
				v.row = row{"name": &name, "ver": nil, "score": str("%d", r.score), "ok": nil}
				if r.ver != nil {
					v.row["ver"], v.order = str("%d", *r.ver), r.ver
				}
			}
			m.keys[name] = v
		}
	}
	take(s.now(nil).taken)
	return m
}

// holds reads the table by three engines: each key has one live row, and it is the
// one that the source's events and the other writers left.
func (s *outside) holds(n *topology.Node, steps ...foreignStep) {
	s.t.Helper()
	ctx := longContext(s.t)
	if err := n.WaitLoaded(ctx, s.f.def.Name, nil); err != nil {
		s.t.Fatal(err)
	}
	s.visible(ctx, n)
	want := s.want(steps)
	for _, engine := range []readers.Engine{readers.IcebergGo, readers.PyIceberg, readers.DuckDB} {
		readers.Need(s.t, engine)
		got, err := readers.Read(ctx, engine, s.info(n).Head.MetadataPath, readers.Options{})
		if err != nil {
			s.t.Fatal(engine, ": ", err)
		}
		compare(s.t, string(engine), got, want, s.f.key)
	}
	consistent(s.t, s.metadata())
}

// visible waits until everything that was accepted is published, and nothing is held.
func (s *outside) visible(ctx context.Context, n *topology.Node) {
	s.t.Helper()
	waitUntil(s.t, "all is published", func() bool {
		info, err := n.Table(ctx, s.f.def.Name)
		if err != nil {
			s.t.Fatal(err)
		}
		return info.Pending == nil && !info.Changes && len(info.Held) == 0 && s.metadata().Current().ID == info.Head.SnapshotID
	})
}

func long(v int64) *int64 { return &v }

// TestForeignAppend: another writer appends rows of keys that we have and of new
// ones, unsorted and two of a key; each key has one live row, and the next upsert of
// a foreign key is right (H1, H2, H7).
func TestForeignAppend(t *testing.T) {
	s, n := newOutside(t)
	s.load(t, n, 100)
	w := &otherWriter{t: t, s: s}
	high := long(1 << 40)
	rows := [][]otherRow{
		{{name: "ü-001-1", ver: high, score: 2}, {name: "ü-000-0", ver: high, score: 1}, {name: "theirs-1", score: 4}, {name: "theirs-0", ver: long(6), score: 5}, {name: "theirs-0", ver: long(5), score: 3}},
		{{name: "theirs-2", ver: high, score: 7}},
	}
	w.do(func(*otherHead) change { return change{op: "append", add: rows} })
	theirs := s.step(n, map[string]*otherRow{"ü-001-1": &rows[0][0], "ü-000-0": &rows[0][1], "theirs-1": &rows[0][2], "theirs-0": &rows[0][3], "theirs-2": &rows[1][0]})
	s.load(t, n, 100)
	s.holds(n, theirs)
	if took := accepted(s.records(n, record.TypeForeignSnapshot)); took != 1 {
		t.Errorf("%d ForeignSnapshots were accepted", took)
	}
	stop(t, n)
	n = start(t, s.o)
	s.load(t, n, 50)
	s.holds(n, theirs)
	// Where it lies is told, and rows have the ids that its writer gave.
	h := w.read()
	if i := slices.IndexFunc(h.files, func(f *otherFile) bool { return len(f.rows) == 1 && f.rows[0].name == "theirs-2" }); i < 0 {
		t.Error("the other writer's file is not listed any more")
	}
	s.replayed(n)
}

// delete is a delete by vectors of every row whose key is among these.
func (w *otherWriter) delete(h *otherHead, names ...string) change {
	c := change{op: "delete", dead: map[string]*roaring.Bitmap{}}
	for _, f := range h.files {
		for i, r := range f.rows {
			if !f.dead.Contains(uint32(i)) && slices.Contains(names, r.name) {
				if c.dead[f.entry.File.Path] == nil {
					c.dead[f.entry.File.Path] = f.dead.Clone()
				}
				c.dead[f.entry.File.Path].Add(uint32(i))
			}
		}
	}
	return c
}

// TestForeignVectors: another writer deletes rows of ours and of its own by deletion
// vectors, also where the file has one of ours, and rows that were replaced or
// compacted since; it updates a row by a vector and a new file. Nothing comes back
// (H2, H4, P2).
func TestForeignVectors(t *testing.T) {
	s, n := newOutside(t)
	s.load(t, n, 100)
	w := &otherWriter{t: t, s: s}
	add := otherRow{name: "theirs-0", ver: long(4), score: 9}
	w.do(func(*otherHead) change { return change{op: "append", add: [][]otherRow{{add}}} })
	steps := []foreignStep{s.step(n, map[string]*otherRow{"theirs-0": &add})}
	live := func() (names []string) {
		for name, v := range s.want(steps).keys {
			if v.row != nil && name != "theirs-0" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	for round := range 4 {
		s.load(t, n, 60)
		s.visible(longContext(t), n)
		names := live()
		gone := []string{names[round], names[len(names)-1-round]}
		if round == 2 {
			gone = append(gone, "theirs-0")
		}
		up := otherRow{name: names[len(names)/2], ver: long(1<<41 + int64(round)), score: int64(round)}
		w.do(func(h *otherHead) change {
			c := w.delete(h, append(slices.Clone(gone), up.name)...)
			c.op, c.add = "overwrite", [][]otherRow{{up}}
			return c
		})
		rows := map[string]*otherRow{up.name: &up}
		for _, name := range gone {
			rows[name] = nil
		}
		steps = append(steps, s.step(n, rows))
		s.load(t, n, 60)
		s.holds(n, steps...)
	}
	if took := accepted(s.records(n, record.TypeForeignSnapshot)); took != 5 {
		t.Errorf("%d ForeignSnapshots were accepted", took)
	}
	s.replayed(n)
}
