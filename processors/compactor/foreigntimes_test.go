package compactor

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/rows"
)

// A compaction of files with INT96 and milliseconds writes the same instants in
// microseconds, and their bounds. The files are those of the reader's tests.
func TestForeignTimes(t *testing.T) {
	const null = -1 << 63
	micros := []int64{0, 1_000, -1_000, 1_700_000_000_123_000, -62_135_596_800_000_000, null, 253_402_300_799_999_000, -1_000, -86_400_000_000, 951_782_400_007_000}
	times := []int64{0, 1_000, 86_399_999_000, null, 43_200_500_000, 0, 1_000, 7_000, 3_600_000_000, null}
	of := schemas.Of
	s := &schemas.Schema{Identifier: []int32{1}, Fields: []schemas.Field{
		{ID: 1, Name: "id", Type: of(schemas.Long), Required: true},
		{ID: 2, Name: "local", Type: of(schemas.Timestamp)},
		{ID: 3, Name: "zoned", Type: of(schemas.TimestampTz)},
		{ID: 4, Name: "clock", Type: of(schemas.Time)},
		{ID: 7, Name: "bytes", Type: of(schemas.String)},
		{ID: 8, Name: "sixteen", Type: of(schemas.UUID)},
		{ID: 5, Name: "nest", Type: schemas.NestedOf(schemas.Struct, []schemas.Field{{ID: 6, Name: "at", Type: of(schemas.Timestamp)}})},
	}}
	names := []string{"int96-dict", "millis-plain", "int96-plain", "millis-dict", "millis-delta", "millis-split"}
	var inputs []Input
	for i, name := range names {
		raw, err := os.ReadFile(filepath.Join("..", "..", "schemas", "rows", "testdata", "foreigntimes", name+".parquet"))
		if err != nil {
			t.Fatal(err)
		}
		in := inputOf(i, raw, int64(len(micros)))
		in.Foreign, in.Dead = true, setOf(t, 3)
		inputs = append(inputs, in)
	}
	var outs outputs
	var fwd bytes.Buffer
	r, err := Merge(context.Background(), &Job{Inputs: inputs, Schema: s, Open: outs.open, Map: &fwd})
	if err != nil {
		t.Fatal(err)
	}
	if r.Rows != int64(9*len(names)) || len(outs) != 1 {
		t.Fatalf("%d rows in %d outputs", r.Rows, len(outs))
	}
	if _, err := forward.Open(bytes.NewReader(fwd.Bytes()), int64(fwd.Len())); err != nil {
		t.Fatal(err)
	}
	f, err := rows.Open(bytes.NewReader(outs[0].Bytes()), int64(outs[0].Len()))
	if err != nil {
		t.Fatal(err)
	}
	cols, err := f.Read(s.Fields)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	number := func(c *rows.Column, want int64) {
		t.Helper()
		if c.IsNull(at) != (want == null) || want != null && c.Ints[at] != want {
			t.Errorf("%s of row %d: %d, null %v; want %d", c.Type, at, c.Ints[at], c.IsNull(at), want)
		}
	}
	for _, name := range names {
		int96 := strings.HasPrefix(name, "int96")
		for i, v := range micros {
			if i == 3 {
				continue
			}
			clock, bare := times[i], !int96
			if int96 {
				clock = null
				if v != null {
					v += int64(i)
				}
			}
			number(&cols[1], v)
			number(&cols[2], v)
			number(&cols[3], clock)
			if cols[4].IsNull(at) != (bare || i == 0) || cols[5].IsNull(at) != bare || int96 && cols[5].BytesAt(at)[15] != byte(i) {
				t.Errorf("row %d: text %q, uuid % x", at, cols[4].BytesAt(at), cols[5].BytesAt(at))
			}
			part := []byte{0}
			if v != null {
				part = binary.AppendVarint([]byte{1}, v)
			}
			if got := cols[6].BytesAt(at); !bytes.Equal(got, part) {
				t.Errorf("struct of row %d: % x, want % x", at, got, part)
			}
			at++
		}
	}
	for i := 1; i <= 2; i++ {
		b, ok := f.GroupBounds(0, &s.Fields[i])
		if !ok || !b.Has || b.IntLow != -62_135_596_800_000_000 || b.IntHigh != 253_402_300_799_999_006 || b.Nulls != int64(len(names)) {
			t.Errorf("bounds of %q: %+v", s.Fields[i].Name, b)
		}
	}
}
