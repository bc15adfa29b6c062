package compactor

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// Row groups whose keys no other input has are copied as they are: the rows, their
// lineage and their metrics are those of a merge row by row.
func TestDisjointRowGroupsAreCopied(t *testing.T) {
	// Without compression: the first page of each file chooses a column's codec, and
	// that may differ between files as small as these.
	o := rows.WriteOptions{PageRows: 64, RowGroupRows: 500, Uncompressed: true}
	low, high := pairFile(t, 0, 1, 2000, o), pairFile(t, 1900, 1, 2000, o)
	run := func(copyRows int64, inputs ...Input) (*Result, []byte) {
		var outs outputs
		j := pairJob(t, &outs, io.Discard, inputs...)
		j.copyRows = copyRows
		j.Layout.Uncompressed = true
		r, err := Merge(context.Background(), j)
		if err != nil {
			t.Fatal(err)
		}
		if len(outs) != 1 {
			t.Fatalf("%d outputs", len(outs))
		}
		return r, outs[0].Bytes()
	}
	first, second := inputOf(0, low, 2000), inputOf(1, high, 2000)
	second.Dead = setOf(t, 700)
	copied, a := run(100, first, second)
	// Of the first file the last row group overlaps, of the second the first, and
	// the one behind it has a dead row.
	if copied.Copied != 3*500+2*500 {
		t.Errorf("%d rows were copied", copied.Copied)
	}
	decoded, b := run(1<<20, first, second)
	if decoded.Copied != 0 || decoded.Rows != copied.Rows || decoded.SameKey != copied.SameKey || decoded.MapSHA256 != copied.MapSHA256 {
		t.Errorf("%+v, %+v", decoded, copied)
	}
	fields := append(pairSchema().Fields, schemas.Field{ID: schemas.RowIDField, Name: "i", Type: schemas.Of(schemas.Long)},
		schemas.Field{ID: schemas.LastSeqField, Name: "s", Type: schemas.Of(schemas.Long)})
	var cols [2][]rows.Column
	for i, raw := range [][]byte{a, b} {
		f, err := rows.Open(bytes.NewReader(raw), int64(len(raw)))
		if err != nil {
			t.Fatal(err)
		}
		if cols[i], err = f.Read(fields); err != nil {
			t.Fatal(err)
		}
	}
	for c := range fields {
		for row := range int(copied.Rows) {
			if x, y := cell(t, &cols[0][c], row), cell(t, &cols[1][c], row); x != y {
				t.Fatalf("%s of row %d: %s copied, %s decoded", fields[c].Name, row, x, y)
			}
		}
	}
}

// A bit flipped in a row group that is copied is an error or changes no row.
func TestDamagedCopies(t *testing.T) {
	raw := pairFile(t, 0, 1, 600, rows.WriteOptions{PageRows: 64, RowGroupRows: 300})
	run := func(raw []byte) ([]byte, int64, error) {
		var outs outputs
		j := pairJob(t, &outs, io.Discard, inputOf(0, raw, 600))
		j.copyRows = 100
		r, err := Merge(context.Background(), j)
		if err != nil {
			return nil, 0, err
		}
		return outs[0].Bytes(), r.Copied, nil
	}
	good, n, err := run(raw)
	if err != nil || n != 600 {
		t.Fatal(n, err)
	}
	pages := pagesEnd(t, raw)
	rng := rand.New(rand.NewPCG(3, 2))
	refused := 0
	for range 400 {
		bad := bytes.Clone(raw)
		at := rng.IntN(pages)
		bad[at] ^= 1 << rng.IntN(8)
		out, _, err := run(bad)
		switch {
		case err == nil && !bytes.Equal(out, good):
			t.Fatalf("byte %d: another output", at)
		case err != nil && !strings.Contains(err.Error(), "data/0.parquet"):
			t.Fatalf("byte %d: %v", at, err)
		case err != nil:
			refused++
		}
	}
	if refused < 350 {
		t.Errorf("%d of 400 damaged inputs were refused", refused)
	}
}
