package finder_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/finder"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/objstore"
)

// shelf is a store with data files of rows 0 to n−1, a row group of 10 each.
type shelf struct {
	t   *testing.T
	mem *objstore.Mem
	ex  *finder.Executor
	def schemas.Definition
}

func newShelf(t *testing.T) *shelf {
	mem := objstore.NewMem()
	s := &shelf{t: t, mem: mem, ex: &finder.Executor{Store: mem, Bodies: processors.NewBodies(mem, "test")}}
	s.def = schemas.Definition{
		Name: "t", Location: mem.Location("t"), FormatVersion: 3, Mode: schemas.ModeDV, LastColumnID: 3, LastPartitionID: 999,
		Schemas: []schemas.Schema{{ID: 0, Fields: []schemas.Field{
			{ID: 1, Name: "n", Type: schemas.Of(schemas.Long)}, {ID: 2, Name: "name", Type: schemas.Of(schemas.String)},
		}}, {ID: 1, Fields: []schemas.Field{
			{ID: 1, Name: "n", Type: schemas.Of(schemas.Long)}, {ID: 2, Name: "name", Type: schemas.Of(schemas.String)},
			{ID: 3, Name: "later", Type: schemas.Of(schemas.String), InitialDefault: []byte(`"x"`)},
		}}},
		CurrentSchema: 1, Specs: []schemas.Spec{{}},
	}
	return s
}

// file writes a file by the first schema.
func (s *shelf) file(id uint64, n int) record.DispatchInput {
	s.t.Helper()
	b := rows.NewBatch(&s.def.Schemas[0])
	for i := range n {
		b.Cols[0].AppendInt(int64(i))
		b.Cols[1].AppendBytes(fmt.Appendf(nil, "name %d", i%7))
		b.AppendEvent(rows.Upsert, int64(i), 0, false)
	}
	var buf bytes.Buffer
	w, err := rows.NewWriter(&buf, rows.WriteOptions{Schema: &s.def.Schemas[0], RowGroupRows: 10, PageRows: 5})
	if err == nil {
		err = w.Append(b, nil, rows.Extra{})
	}
	if err == nil {
		_, err = w.Close()
	}
	key := fmt.Sprintf("t/data/%d.parquet", id)
	if err == nil {
		err = s.mem.Create(s.t.Context(), key, buf.Bytes())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return record.DispatchInput{File: id, Path: s.mem.Location(key), Rows: int64(n), Bytes: int64(buf.Len()), Hi: int64(n)}
}

func (s *shelf) put(b []byte, err error) record.Ref {
	s.t.Helper()
	var ref record.Ref
	if err == nil {
		ref, err = s.ex.Bodies.Put(s.t.Context(), b)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return ref
}

func (s *shelf) dispatch(where string, inputs ...record.DispatchInput) *record.FindDispatch {
	return &record.FindDispatch{
		Job: record.JobID{Plan: 9, Item: 2, Attempt: 1}, Table: "t", TableID: 1, SchemaID: 1, Inputs: inputs,
		Definition: s.put(record.EncodeDefinition(nil, &s.def)), Where: s.put(record.EncodeWhereBody(nil, &record.WhereBody{Predicate: where})),
	}
}

func set(t *testing.T, positions ...uint32) []byte {
	t.Helper()
	b, err := dv.AppendBitmap(nil, roaring.BitmapOf(positions...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFind(t *testing.T) {
	s := newShelf(t)
	a, b := s.file(1, 35), s.file(2, 4)
	dead := b
	dead.Dead = set(t, 0, 1, 2, 3)
	some := a
	some.Dead = set(t, 12)
	ref := s.put(set(t, 12, 13), nil)
	far := a
	far.DeadRef = &ref
	for _, c := range []struct {
		where  string
		inputs []record.DispatchInput
		want   map[uint64][]uint32
		looked int64
	}{
		// Only the row group of 10 to 19 is looked at, and the only one of the other file.
		{"n IN (12, 13, 99)", []record.DispatchInput{a, b}, map[uint64][]uint32{1: {12, 13}}, 10},
		{"n IN (12, 13, 99)", []record.DispatchInput{some}, map[uint64][]uint32{1: {13}}, 10},
		{"n IN (12, 13, 99)", []record.DispatchInput{far}, nil, 10},
		{"n >= 3 AND n < 5 OR name = 'name 6' AND n > 30", []record.DispatchInput{a, b}, map[uint64][]uint32{1: {3, 4, 34}, 2: {3}}, 19},
		{"n < 100", []record.DispatchInput{dead}, nil, 0},
		{"later = 'x' AND n = 1", []record.DispatchInput{b}, map[uint64][]uint32{2: {1}}, 4},
		{"later IS NULL", []record.DispatchInput{a, b}, nil, 39},
	} {
		last := finder.Progress{}
		got, err := s.ex.Execute(t.Context(), s.dispatch(c.where, c.inputs...), func(p finder.Progress) { last = p })
		if err != nil {
			t.Errorf("%s: %v", c.where, err)
			continue
		}
		found := map[uint64][]uint32{}
		for i := range got.Deletes {
			b, err := dv.ReadBitmap(got.Deletes[i].Bitmap)
			if err != nil {
				t.Fatal(err)
			}
			found[got.Deletes[i].File] = b.ToArray()
		}
		same := len(found) == len(c.want)
		for id, w := range c.want {
			same = same && slices.Equal(found[id], w)
		}
		if !same || got.Rows != c.looked || got.Job != (record.JobID{Plan: 9, Item: 2, Attempt: 1}) {
			t.Errorf("%s: %v and %d rows looked at, want %v and %d", c.where, found, got.Rows, c.want, c.looked)
		}
		if last.Rows != last.TotalRows || last.TotalRows == 0 {
			t.Errorf("%s: %+v at the end", c.where, last)
		}
	}
}

// What cannot be read is told apart from what may be read later, and no error
// repeats the predicate.
func TestUnreadable(t *testing.T) {
	s := newShelf(t)
	a := s.file(1, 20)
	bent := func(fn func(*record.DispatchInput)) record.DispatchInput {
		x := a
		fn(&x)
		return x
	}
	other := s.dispatch("n = 4711", a)
	other.SchemaID = 5
	gone := bent(func(x *record.DispatchInput) { x.Path = s.mem.Location("t/data/9.parquet") })
	for what, c := range map[string]struct {
		d    *record.FindDispatch
		want error
	}{
		"another schema": {other, finder.ErrDispatch},
		"no predicate":   {s.dispatch("n = 'secret'", a), finder.ErrDispatch},
		"other bytes":    {s.dispatch("n = 4711", bent(func(x *record.DispatchInput) { x.Bytes++ })), finder.ErrDispatch},
		"other rows":     {s.dispatch("n = 4711", bent(func(x *record.DispatchInput) { x.Rows++ })), finder.ErrDispatch},
		"another store":  {s.dispatch("n = 4711", bent(func(x *record.DispatchInput) { x.Path = "s3://other/x.parquet" })), finder.ErrDispatch},
		"damaged dead":   {s.dispatch("n = 4711", bent(func(x *record.DispatchInput) { x.Dead = []byte{1, 2} })), finder.ErrDispatch},
		"gone":           {s.dispatch("n = 4711", gone), objstore.ErrNotFound},
	} {
		_, err := s.ex.Execute(t.Context(), c.d, nil)
		if !errors.Is(err, c.want) || errors.Is(c.want, objstore.ErrNotFound) && errors.Is(err, finder.ErrDispatch) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		if err != nil && (bytes.Contains([]byte(err.Error()), []byte("secret")) || bytes.Contains([]byte(err.Error()), []byte("4711"))) {
			t.Errorf("%s: the error repeats the predicate: %v", what, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ex.Execute(ctx, s.dispatch("n = 1", a), nil); err == nil {
		t.Error("a part goes on after its worker was told to stop")
	}
}
