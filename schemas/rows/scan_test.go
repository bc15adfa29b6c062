package rows

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/varve-io/varve/schemas"
)

// scanned reads a range through a Scan, in windows of at most limit rows.
func scanned(f *File, want []schemas.Field, lo, hi int64, limit, readAhead int) ([]Column, error) {
	s, err := f.Scan(want, lo, hi, readAhead)
	if err != nil {
		return nil, err
	}
	cols := make([]Column, len(want))
	for i := range want {
		cols[i] = NewColumn(want[i].Type)
	}
	row := lo
	for {
		n, err := s.Next(limit)
		if errors.Is(err, io.EOF) {
			if row != hi {
				return nil, fmt.Errorf("rows up to %d, not %d", row, hi)
			}
			return cols, nil
		}
		if err != nil {
			return nil, err
		}
		if s.Row() != row || n < 1 || n > limit {
			return nil, fmt.Errorf("%d rows at %d, the scan is at %d", n, row, s.Row())
		}
		for i := range cols {
			if s.Part(i).Len() != n {
				return nil, fmt.Errorf("column %d has %d rows of %d", i, s.Part(i).Len(), n)
			}
			s.Part(i).AppendTo(&cols[i])
		}
		row += int64(n)
	}
}

// A scan gives what Read gives, over any range, with any read-ahead.
func checkScan(t *testing.T, f *File, want []schemas.Field, rng *rand.Rand) {
	t.Helper()
	whole, err := f.Read(want)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		lo := rng.Int64N(f.NumRows() + 1)
		hi := lo + rng.Int64N(f.NumRows()-lo+1)
		if rng.IntN(3) == 0 {
			lo, hi = 0, f.NumRows()
		}
		got, err := scanned(f, want, lo, hi, 1+rng.IntN(900), 1<<(10+rng.IntN(10)))
		if err != nil {
			t.Fatalf("rows [%d,%d): %v", lo, hi, err)
		}
		sel := make([]uint32, 0, hi-lo)
		for i := lo; i < hi; i++ {
			sel = append(sel, uint32(i))
		}
		for i := range want {
			equalColumns(t, fmt.Sprintf("%s of [%d,%d)", want[i].Name, lo, hi), &got[i], &whole[i], sel)
		}
	}
}

func TestScanIsRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for seed := range uint64(3) {
		b := randomBatch(allTypes(), 1700, seed)
		for _, o := range []WriteOptions{
			{}, {PageRows: 64, RowGroupRows: 500, PageBytes: 700}, {PageRows: 200, NoDictionary: true, DeltaIntegers: true, Uncompressed: true},
			{PageRows: 128, RowGroupRows: 1024, Uncompressed: true},
		} {
			f := opened(t, written(t, o, b))
			want := append([]schemas.Field{
				{ID: 90, Name: "added", Type: schemas.Of(schemas.String)},
				{ID: 91, Name: "more", Type: schemas.Of(schemas.String), Required: true, InitialDefault: []byte(`"x"`)},
			}, b.Schema.Fields...)
			want[4].Type = schemas.Of(schemas.Long)
			for i := range want {
				switch want[i].Type {
				case schemas.DecimalOf(9, 2):
					want[i].Type = schemas.DecimalOf(30, 2)
				case schemas.Of(schemas.Int):
					want[i].Type = schemas.Of(schemas.Long)
				case schemas.Of(schemas.Float):
					want[i].Type = schemas.Of(schemas.Double)
				}
			}
			if want[4].Type != schemas.Of(schemas.Long) {
				want[4].Type = b.Schema.Fields[2].Type
			}
			checkScan(t, f, want, rng)
		}
	}
}

// readLog remembers which bytes of a file were read.
type readLog struct {
	b     []byte
	bytes int64
}

func (r *readLog) ReadAt(p []byte, off int64) (int, error) {
	r.bytes += int64(len(p))
	return bytes.NewReader(r.b).ReadAt(p, off)
}

func TestScanReadsOnlyItsPages(t *testing.T) {
	s := &schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "hex", Type: schemas.Of(schemas.String)}, {ID: 2, Name: "word", Type: schemas.Of(schemas.String)}}}
	b := NewBatch(s)
	for i := range 200_000 {
		b.Cols[0].AppendBytes(fmt.Appendf(nil, "%016x", uint64(i)*0x9E3779B97F4A7C15))
		b.Cols[1].AppendBytes(fmt.Appendf(nil, "word %d", i*7919%1000))
		b.AppendEvent(Upsert, int64(i), 0, false)
	}
	raw := written(t, WriteOptions{PageRows: 1024, RowGroupRows: 150_000, Uncompressed: true}, b)
	log := &readLog{b: raw}
	f, err := Open(log, int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	log.bytes = 0
	got, err := scanned(f, s.Fields, 100_000, 101_000, 4096, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Fields {
		sel := make([]uint32, 1000)
		for j := range sel {
			sel[j] = uint32(100_000 + j)
		}
		equalColumns(t, s.Fields[i].Name, &got[i], &b.Cols[i], sel)
	}
	// Two pages of 20 KiB, one dictionary, the offset indexes of 147 pages.
	if log.bytes > 100<<10 {
		t.Errorf("%d bytes of %d were read for 1,000 rows", log.bytes, len(raw))
	}
}

func TestSkipGroup(t *testing.T) {
	b := randomBatch(allTypes(), 1000, 8)
	f := opened(t, written(t, WriteOptions{PageRows: 64, RowGroupRows: 300}, b))
	for _, from := range []int64{0, 250, 300} {
		s, err := f.Scan(b.Schema.Fields, from, 1000, 0)
		if err != nil {
			t.Fatal(err)
		}
		var seen []int64
		for {
			if g, ok := s.NextGroup(); ok && g == 1 {
				if err := s.SkipGroup(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			n, err := s.Next(10_000)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if got, want := s.Part(0).Ints()[i], b.Cols[0].Ints[s.Row()+int64(i)]; got != want {
					t.Fatalf("row %d has %d, not %d", s.Row()+int64(i), got, want)
				}
				seen = append(seen, s.Row()+int64(i))
			}
		}
		at := 0
		for row := from; row < 1000; row++ {
			if row >= 300 && row < 600 {
				continue
			}
			if at >= len(seen) || seen[at] != row {
				t.Fatalf("from %d: row %d was not seen", from, row)
			}
			at++
		}
	}
}

// A bit flipped anywhere in the pages is an error or changes nothing. (A footer
// has no checksum.)
func TestScanOfDamagedFiles(t *testing.T) {
	b := randomBatch(allTypes(), 300, 4)
	raw := written(t, WriteOptions{PageRows: 64, RowGroupRows: 200}, b)
	f := opened(t, raw)
	whole, err := f.Read(b.Schema.Fields)
	if err != nil {
		t.Fatal(err)
	}
	end := f.groups[1].chunks[len(f.leaves)-1]
	pages := int(end.offset + end.size)
	rng := rand.New(rand.NewPCG(5, 5))
	sel := make([]uint32, 120)
	for i := range sel {
		sel[i] = uint32(100 + i)
	}
	refused := 0
	for range 3000 {
		bad := bytes.Clone(raw)
		bad[rng.IntN(pages)] ^= 1 << rng.IntN(8)
		f, err := Open(bytes.NewReader(bad), int64(len(bad)))
		if err == nil {
			var got []Column
			if got, err = scanned(f, b.Schema.Fields, 100, 220, 1000, 0); err == nil {
				for i := range got {
					equalColumns(t, b.Schema.Fields[i].Name, &got[i], &whole[i], sel)
				}
				continue
			}
		}
		refused++
	}
	if refused < 1000 {
		t.Errorf("only %d of 3000 damaged files were refused", refused)
	}
}

// Rows picked from several scans are what they are in a file of their own: nulls,
// dictionaries of several files, dictionaries that fill up.
func TestAppendPicks(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for round := range 8 {
		var batches []*Batch
		var scans []*Scan
		var s *schemas.Schema
		for i := range 1 + rng.IntN(4) {
			b := randomBatch(allTypes(), 400, uint64(round*10+i))
			s = b.Schema
			f := opened(t, written(t, WriteOptions{NoDictionary: i == 2}, b))
			scan, err := f.Scan(s.Fields, 0, 400, 0)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := scan.Next(1 << 20); n != 400 || err != nil {
				t.Fatal(n, err)
			}
			batches, scans = append(batches, b), append(scans, scan)
		}
		cols := make([][]*Part, len(s.Fields))
		for c := range cols {
			for _, scan := range scans {
				cols[c] = append(cols[c], scan.Part(c))
			}
		}
		opts := WriteOptions{Schema: s, PageRows: 1 << (3 + rng.IntN(8)), PageBytes: 300, RowGroupRows: 500, RowID: true, LastSeq: true, Order: true}
		expected := NewBatch(s)
		var out bytes.Buffer
		w, err := NewWriter(&out, opts)
		if err != nil {
			t.Fatal(err)
		}
		var ids []int64
		for range 6 {
			var sel []uint32
			x := Extra{Order: []int64{}, HasOrder: []uint8{}}
			for range rng.IntN(400) {
				from, row := rng.IntN(len(batches)), rng.IntN(400)
				sel = append(sel, Pick(from, row))
				for c := range expected.Cols {
					expected.Cols[c].AppendRow(&batches[from].Cols[c], row)
				}
				id := rng.Int64N(100) - 20
				ids = append(ids, max(id, -1))
				x.RowID = append(x.RowID, id)
				x.LastSeq = append(x.LastSeq, int64(row))
				x.Order = append(x.Order, int64(row)-5)
				x.HasOrder = append(x.HasOrder, uint8(row&1))
				expected.AppendEvent(Upsert, 0, int64(row), row&1 == 1)
			}
			if err := w.AppendPicks(cols, sel, x); err != nil {
				t.Fatal(err)
			}
		}
		info, err := w.Close()
		if err != nil {
			t.Fatal(err)
		}
		if info.Rows != int64(expected.Len()) || info.Bytes != int64(out.Len()) {
			t.Fatalf("%d rows in %d bytes", info.Rows, info.Bytes)
		}
		f := opened(t, out.Bytes())
		got, err := f.Read(s.Fields)
		if err != nil {
			t.Fatal(err)
		}
		sel := whole(expected.Len())
		for c := range got {
			equalColumns(t, s.Fields[c].Name, &got[c], &expected.Cols[c], sel)
		}
		lineage, err := f.ReadColumns([]int32{schemas.RowIDField, schemas.LastSeqField, schemas.OrderField})
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if lineage[0].IsNull(i) != (id < 0) || id >= 0 && lineage[0].Ints[i] != id {
				t.Fatalf("row %d has row id %d", i, lineage[0].Ints[i])
			}
			if has := expected.HasOrder[i] == 1; lineage[1].Ints[i] != expected.Order[i] || lineage[2].IsNull(i) == has || has && lineage[2].Ints[i] != expected.Order[i]-5 {
				t.Fatalf("row %d: sequence %d, order %d", i, lineage[1].Ints[i], lineage[2].Ints[i])
			}
		}
	}
}

// A dictionary that is full where a page begins: what follows is plain and all
// of it is there.
func TestDictionaryFullAtAPageStart(t *testing.T) {
	s := &schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "s", Type: schemas.Of(schemas.String)}}}
	b := NewBatch(s)
	add := func(i int) {
		b.Cols[0].AppendBytes(fmt.Appendf(nil, "%06d", i))
		b.AppendEvent(Upsert, 0, 0, false)
	}
	next := 0
	for _, distinct := range []int{256, 768} { // two pages of 1,024 rows with 1,024 words
		for i := range 1024 {
			add(next + i%distinct)
		}
		next += distinct
	}
	for next < maxDictEntries+3000 {
		add(next)
		next++
	}
	raw := written(t, WriteOptions{PageRows: 1024}, b)
	got, err := opened(t, raw).Read(s.Fields)
	if err != nil {
		t.Fatal(err)
	}
	equalColumns(t, "s", &got[0], &b.Cols[0], whole(b.Len()))
}
