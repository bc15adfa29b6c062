package compactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/parquet-go/parquet-go"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/rows"
)

func pairSchema() *schemas.Schema {
	return &schemas.Schema{Identifier: []int32{1}, Fields: []schemas.Field{
		{ID: 1, Name: "k", Type: schemas.Of(schemas.Long), Required: true},
		{ID: 2, Name: "word", Type: schemas.Of(schemas.String)},
		{ID: 3, Name: "hex", Type: schemas.Of(schemas.String)},
	}}
}

// pairFile has the keys from, from + step, …
func pairFile(t testing.TB, from, step int64, n int, o rows.WriteOptions) []byte {
	t.Helper()
	b := rows.NewBatch(pairSchema())
	for i := range n {
		k := from + int64(i)*step
		b.Cols[0].AppendInt(k)
		b.Cols[1].AppendBytes(fmt.Appendf(nil, "word %d", k%50))
		b.Cols[2].AppendBytes(fmt.Appendf(nil, "%016x", uint64(k)*0x9E3779B97F4A7C15))
		b.AppendEvent(rows.Upsert, 0, 0, false)
	}
	var out bytes.Buffer
	o.Schema = b.Schema
	if _, err := rows.Write(&out, o, b, nil, rows.Extra{}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func inputOf(n int, raw []byte, count int64) Input {
	return Input{
		File: uint64(n + 1), Name: fmt.Sprintf("data/%d.parquet", n), R: bytes.NewReader(raw), Size: int64(len(raw)), Rows: count, Hi: uint32(count),
		FirstRowID: int64(n) * 1_000_000, DataSequence: int64(n),
	}
}

func pairJob(t testing.TB, outs *outputs, fwd io.Writer, inputs ...Input) *Job {
	t.Helper()
	s := pairSchema()
	keys, err := rows.NewKeyEncoder(s, s.Identifier)
	if err != nil {
		t.Fatal(err)
	}
	return &Job{Inputs: inputs, Schema: s, Keys: keys, Open: outs.open, Map: fwd}
}

func setOf(t testing.TB, positions ...uint32) []byte {
	t.Helper()
	b, err := dv.AppendBitmap(nil, roaring.BitmapOf(positions...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pagesEnd is where a file's pages end.
func pagesEnd(t testing.TB, raw []byte) int {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	end := int64(4)
	for _, g := range f.Metadata().RowGroups {
		end += g.TotalCompressedSize
	}
	return int(end)
}

// What a job says of its inputs is held against them (P4), and the error names
// the file.
func TestWrongClaims(t *testing.T) {
	raw := pairFile(t, 0, 1, 100, rows.WriteOptions{})
	backwards := pairFile(t, 100, -1, 100, rows.WriteOptions{})
	for name, c := range map[string]struct {
		change func(in *Input)
		is     error
	}{
		"another row count":   {func(in *Input) { in.Rows = 101 }, ErrClaim},
		"a range past it":     {func(in *Input) { in.Hi = 101 }, ErrClaim},
		"a reversed range":    {func(in *Input) { in.Lo, in.Hi = 7, 6 }, ErrClaim},
		"dead before range":   {func(in *Input) { in.Lo, in.Dead = 10, setOf(t, 9) }, ErrClaim},
		"dead behind range":   {func(in *Input) { in.Hi, in.Dead = 10, setOf(t, 3, 10) }, ErrClaim},
		"no set":              {func(in *Input) { in.Dead = []byte("x") }, nil},
		"a size that is less": {func(in *Input) { in.Size -= 9 }, rows.ErrBadFile},
		"a size that is more": {func(in *Input) { in.Size += 9 }, rows.ErrBadFile},
		"not sorted":          {func(in *Input) { in.R, in.Size = bytes.NewReader(backwards), int64(len(backwards)) }, ErrNotSorted},
	} {
		t.Run(name, func(t *testing.T) {
			var outs outputs
			bad := inputOf(1, raw, 100)
			c.change(&bad)
			_, err := Merge(context.Background(), pairJob(t, &outs, io.Discard, inputOf(0, raw, 100), bad))
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), "data/1.parquet") {
				t.Errorf("%v", err)
			}
			for _, o := range outs {
				if o.committed || !o.aborted {
					t.Error("an output was not aborted")
				}
			}
		})
	}
	var outs outputs
	if _, err := Merge(context.Background(), pairJob(t, &outs, io.Discard)); !errors.Is(err, ErrJob) {
		t.Errorf("no inputs: %v", err)
	}
}

// A bit flipped in an input's pages is an error, or the outputs are what they
// were: never other rows.
func TestDamagedInputs(t *testing.T) {
	raw := pairFile(t, 0, 3, 400, rows.WriteOptions{PageRows: 64, RowGroupRows: 300})
	other := pairFile(t, 1, 3, 400, rows.WriteOptions{PageRows: 64})
	run := func(raw []byte) (outputs, error) {
		var outs outputs
		_, err := Merge(context.Background(), pairJob(t, &outs, io.Discard, inputOf(0, raw, 400), inputOf(1, other, 400)))
		return outs, err
	}
	good, err := run(raw)
	if err != nil {
		t.Fatal(err)
	}
	pages := pagesEnd(t, raw)
	rng := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 600 {
		bad := slices.Clone(raw)
		at := rng.IntN(pages)
		bad[at] ^= 1 << rng.IntN(8)
		outs, err := run(bad)
		if err != nil {
			if !strings.Contains(err.Error(), "data/0.parquet") {
				t.Fatalf("byte %d: %v", at, err)
			}
			refused++
			continue
		}
		if !bytes.Equal(outs[0].Bytes(), good[0].Bytes()) {
			t.Fatalf("byte %d: another output", at)
		}
	}
	if refused < 400 {
		t.Errorf("%d of 600 damaged inputs were refused", refused)
	}
	for cut := 0; cut < len(raw); cut += 97 {
		if _, err := run(raw[:cut]); err == nil {
			t.Fatalf("an input cut at %d was merged", cut)
		}
	}
}

var errDisk = errors.New("disk full")

// failing is a sink that fails when it has taken so many bytes.
type failing struct {
	left    int
	aborted bool
}

func (f *failing) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errDisk
	}
	return len(b), nil
}
func (f *failing) Commit() error {
	if f.left < 1000 {
		return errDisk
	}
	return nil
}
func (f *failing) Abort() error { f.aborted = true; return nil }

func TestSinkThatFails(t *testing.T) {
	raw := pairFile(t, 0, 1, 3000, rows.WriteOptions{})
	for left := 0; left < 150_000; left += 5000 {
		sink := &failing{left: left}
		var outs outputs
		j := pairJob(t, &outs, io.Discard, inputOf(0, raw, 3000))
		j.Layout.RowGroupRows = 1000
		j.Open = func(context.Context, int) (Sink, error) { return sink, nil }
		r, err := Merge(context.Background(), j)
		if err == nil {
			if r.BytesOut+1000 > int64(left) {
				t.Fatalf("%d bytes were written where %d fit", r.BytesOut, left)
			}
			return
		}
		if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "output 0") {
			t.Fatal(err)
		}
	}
	t.Error("no sink was large enough")
}

func TestStop(t *testing.T) {
	raw := pairFile(t, 0, 1, 200_000, rows.WriteOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var outs outputs
	in := inputOf(0, raw, 200_000)
	in.Lo = 1 // else its row group is copied as it is, in one step
	j := pairJob(t, &outs, io.Discard, in)
	seen := 0
	j.Progress = func(p Progress) {
		if seen++; seen == 2 {
			cancel()
		}
		if p.TotalRows != 199_999 || p.Rows < 1 || p.BytesIn < 1 {
			t.Errorf("progress %+v", p)
		}
	}
	_, err := Merge(ctx, j)
	if !errors.Is(err, context.Canceled) || len(outs) != 1 || !outs[0].aborted || outs[0].committed {
		t.Errorf("%v, %d outputs", err, len(outs))
	}
}

// No row lives: no output, and a map that says so.
func TestAllDead(t *testing.T) {
	raw := pairFile(t, 0, 1, 3, rows.WriteOptions{})
	var outs outputs
	in := inputOf(0, raw, 3)
	in.Dead = setOf(t, 0, 1, 2)
	var fwd bytes.Buffer
	r, err := Merge(context.Background(), pairJob(t, &outs, &fwd, in))
	if err != nil || len(r.Outputs) != 0 || r.Dropped != 3 || r.Rows != 0 || fwd.Len() == 0 || len(outs) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Memory stays where it is while files grow.
func TestMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("writes large files")
	}
	peak := func(n int) uint64 {
		var inputs []Input
		for i := range 4 {
			raw := pairFile(t, int64(i), 4, n, rows.WriteOptions{PageRows: 4096, RowGroupRows: 1 << 15})
			inputs = append(inputs, inputOf(i, raw, int64(n)))
		}
		var outs outputs
		j := pairJob(t, &outs, io.Discard, inputs...)
		j.ReadAheadBytes = 1
		j.Layout = rows.WriteOptions{PageRows: 4096, RowGroupRows: 1 << 15}
		j.Open = func(context.Context, int) (Sink, error) { return &failing{left: 1 << 40}, nil }
		for range 3 { // what pools kept of other tests goes with the second
			runtime.GC()
		}
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		most := uint64(0)
		j.Progress = func(Progress) {
			runtime.GC()
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
		if _, err := Merge(context.Background(), j); err != nil {
			t.Fatal(err)
		}
		runtime.KeepAlive(inputs)
		return most - min(most, before.HeapAlloc)
	}
	small, large := peak(100_000), peak(400_000)
	if large > small+small/3+1<<20 {
		t.Errorf("4 × 100,000 rows took %d bytes of heap, 4 × 400,000 took %d", small, large)
	}
}
