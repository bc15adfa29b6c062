package splitter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// files are data files of one table with a key of text and number, as flushes
// write them.
type files struct {
	t   *testing.T
	st  objstore.Store
	def *schemas.Definition
	x   *Splitter

	refs []Ref
	keys [][][]byte // by ref: of each row of the file
}

func newFiles(t *testing.T) *files {
	st := objstore.NewMem()
	def := &schemas.Definition{
		Name: "t", Location: st.Location("default/t"), Key: []int32{1, 2},
		Schemas: []schemas.Schema{{Fields: []schemas.Field{
			{ID: 1, Name: "region", Type: schemas.Of(schemas.String), Required: true},
			{ID: 2, Name: "id", Type: schemas.Of(schemas.Long), Required: true},
			{ID: 3, Name: "v", Type: schemas.Of(schemas.Long)},
		}}},
	}
	x, err := New(st, processors.NewBodies(st, "d"), def)
	if err != nil {
		t.Fatal(err)
	}
	return &files{t: t, st: st, def: def, x: x}
}

// add writes a file of these (region, id) pairs, in the order of their keys, and
// refers to a part of it.
func (f *files) add(ids []int, lo, hi int64) {
	f.t.Helper()
	schema := f.def.Schema()
	slices.Sort(ids)
	b := rows.NewBatch(schema)
	for i, id := range ids {
		b.Cols[0].AppendBytes([]byte(fmt.Sprintf("r%02d", id%3)))
		b.Cols[1].AppendInt(int64(id))
		b.Cols[2].AppendInt(1)
		b.AppendEvent(rows.Upsert, int64(i), 0, false)
	}
	order := make([]int, len(ids))
	keys := make([][]byte, len(ids))
	for i := range ids {
		order[i] = i
		k, err := f.x.keys.Append(nil, b, i)
		if err != nil {
			f.t.Fatal(err)
		}
		keys[i] = k
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(keys[a], keys[b]) })
	var sorted [][]byte
	sel := make([]uint32, len(ids))
	for i, at := range order {
		sel[i] = uint32(at)
		sorted = append(sorted, keys[at])
	}
	path := fmt.Sprintf("default/t/data/%d.parquet", len(f.refs))
	var buf bytes.Buffer
	w, err := rows.NewWriter(&buf, rows.WriteOptions{Schema: schema, RowGroupRows: 500, PageRows: 64})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := w.Append(b, sel, rows.Extra{}); err != nil {
		f.t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		f.t.Fatal(err)
	}
	if err := f.st.Create(context.Background(), path, buf.Bytes()); err != nil {
		f.t.Fatal(err)
	}
	f.refs = append(f.refs, Ref{File: uint64(len(f.refs) + 1), Lo: lo, Hi: hi, Path: f.st.Location(path), Rows: int64(len(ids))})
	f.keys = append(f.keys, sorted)
}

// below is how many rows of a reference have keys below one: by looking at each.
func (f *files) below(i int, key []byte) (n int64) {
	r := &f.refs[i]
	for _, k := range f.keys[i][r.Lo:r.Hi] {
		if bytes.Compare(k, key) < 0 {
			n++
		}
	}
	return n
}

func numbers(n int, pick func(i int) int) (all []int) {
	for i := range n {
		all = append(all, pick(i))
	}
	return all
}

// TestDivide: a leaf of files of any sizes and ranges is cut where its keys say,
// into children of about as many rows; every row goes to one (F8).
func TestDivide(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := newFiles(t)
		for range 1 + r.IntN(6) {
			n := 1 + r.IntN(3000)
			lo := r.Int64N(int64(n))
			f.add(numbers(n, func(int) int { return r.IntN(5000) }), lo, lo+1+r.Int64N(int64(n)-lo))
		}
		children := 2 + r.IntN(5)
		item, keys, err := f.x.Divide(ctx, 9, f.refs, children)
		if errors.Is(err, ErrOneKey) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if item.Node != 9 || int(item.Children) != len(keys)+1 || len(keys) >= children || len(item.Refs) != len(f.refs) {
			t.Fatalf("seed %d: %d keys, %d children of %d, %d references", seed, len(keys), item.Children, children, len(item.Refs))
		}
		total, most := int64(0), int64(0)
		rowsOf := make([]int64, item.Children)
		for i := range item.Refs {
			y := &item.Refs[i]
			at := int64(0)
			last := int64(-1)
			for _, p := range y.Pieces {
				if p.To <= last || p.Rows < 1 {
					t.Fatalf("seed %d: %+v", seed, y)
				}
				last = p.To
				from := int64(0)
				if p.To > 0 {
					from = f.below(i, keys[p.To-1])
				}
				if from != at {
					t.Fatalf("seed %d, file %d: child %d begins at row %d, %d rows are below its keys", seed, y.File, p.To, at, from)
				}
				at += p.Rows
				rowsOf[p.To] += p.Rows
			}
			if at != y.Hi-y.Lo {
				t.Fatalf("seed %d: %d rows of [%d,%d)", seed, at, y.Lo, y.Hi)
			}
			total += at
		}
		for _, n := range rowsOf {
			most = max(most, n)
		}
		if total > 1000 && most > 2*total/int64(item.Children) {
			t.Errorf("seed %d: of %d rows a child of %d has %d", seed, total, item.Children, most)
		}
	}
}

// TestDown: references go to the leaves of a tree of several levels, one of which was
// added above the root and narrows what is below it (F20); what is in an erasable
// body alone decides (F21).
func TestDown(t *testing.T) {
	ctx := context.Background()
	f := newFiles(t)
	f.add(numbers(3000, func(i int) int { return i }), 0, 3000)
	f.add(numbers(40, func(i int) int { return 3 * i }), 5, 30) // of region r00 alone
	key := func(region, id int) []byte {
		b := rows.NewBatch(f.def.Schema())
		b.Cols[0].AppendBytes([]byte(fmt.Sprintf("r%02d", region)))
		b.Cols[1].AppendInt(int64(id))
		b.AppendEvent(rows.Upsert, 0, 0, false)
		k, err := f.x.keys.Append(nil, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	put := func(items ...record.TreeKeys) record.Ref {
		b, err := record.EncodeTreeBody(nil, &record.TreeBody{Items: items})
		if err != nil {
			t.Fatal(err)
		}
		ref, err := f.x.Bodies.Put(ctx, b)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	// The key's columns are id and region, by their names. 0: 5 | 6, at id 2000; 5 was
	// the root: 1 | 2 at id 1000; 2: 3 | 4 at id 2500, above what is left to it.
	above := put(record.TreeKeys{Keys: [][]byte{key(0, 2000)}})
	below := put(record.TreeKeys{Keys: [][]byte{key(0, 1000)}}, record.TreeKeys{Keys: [][]byte{key(0, 2500)}})
	tree := map[int64]*statestore.NodeInfo{
		0: {Number: 0, Parent: -1, First: 5, Children: 2, Separators: above},
		5: {Number: 5, First: 1, Children: 2, Separators: below}, 6: {Number: 6},
		1: {Number: 1, Parent: 5}, 2: {Number: 2, Parent: 5, First: 3, Children: 2, Item: 1, Separators: below},
		3: {Number: 3, Parent: 2}, 4: {Number: 4, Parent: 2},
	}
	leaves, err := f.x.Leaves(ctx, tree, 0)
	if err != nil {
		t.Fatal(err)
	}
	item, err := f.x.Down(ctx, 0, f.refs, leaves)
	if err != nil {
		t.Fatal(err)
	}
	want := "{0 0 [{1 0 3000 [{1 1000} {3 1000} {6 1000}]} {2 5 30 [{1 25}]}]}"
	if got := fmt.Sprint(item); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := f.st.Delete(ctx, above.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := f.x.Leaves(ctx, tree, 0); !errors.Is(err, processors.ErrBodyMissing) {
		t.Errorf("separators that are erased: %v", err)
	}
}

// TestOneKey: rows of one key are not parted.
func TestOneKey(t *testing.T) {
	f := newFiles(t)
	f.add(numbers(50, func(int) int { return 7 }), 0, 50)
	if _, _, err := f.x.Divide(context.Background(), 0, f.refs, 4); !errors.Is(err, ErrOneKey) {
		t.Errorf("%v", err)
	}
}
