package compactor

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/rows"
)

// theirPairs is a file of another program: columns in another order, the column hex is
// not there, every key may be null, and -1 is one that is. The keys stand as they come.
func theirPairs(t testing.TB, codec compress.Codec, version int, dict bool, keys ...int64) []byte {
	t.Helper()
	word := parquet.Optional(parquet.String())
	key := parquet.Optional(parquet.Int(64))
	if dict {
		word, key = parquet.Encoded(word, &parquet.RLEDictionary), parquet.Encoded(key, &parquet.RLEDictionary)
	} else if version == 2 {
		word, key = parquet.Encoded(word, &parquet.DeltaByteArray), parquet.Encoded(key, &parquet.DeltaBinaryPacked)
	}
	// A group's columns stand by their names: the key is the second.
	schema := parquet.NewSchema("t", parquet.Group{"a word": parquet.FieldID(word, 2), "the key": parquet.FieldID(key, 1)})
	var out bytes.Buffer
	w := parquet.NewWriter(&out, schema, parquet.Compression(codec), parquet.DataPageVersion(version), parquet.PageBufferSize(256))
	for _, k := range keys {
		r := parquet.Row{parquet.ValueOf(fmt.Sprintf("word %d", k%50)).Level(0, 1, 0), parquet.ValueOf(k).Level(0, 1, 1)}
		if k < 0 {
			r[1] = parquet.ValueOf(nil).Level(0, 0, 1)
		}
		if _, err := w.WriteRows([]parquet.Row{r}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// F24: inputs of other programs are written one after the other, whatever their order
// and their encodings; a dead row may lack what the schema requires.
func TestForeignInputs(t *testing.T) {
	own := pairFile(t, 500, -2, 100, rows.WriteOptions{}) // as a job with such inputs left it
	var keys []int64
	for i := range int64(300) {
		keys = append(keys, i*7919%300)
	}
	keys[40], keys[299] = -1, -1
	for name, c := range map[string]struct {
		codec   compress.Codec
		version int
		dict    bool
	}{
		"plain": {&parquet.Uncompressed, 1, false}, "snappy, dictionary": {&parquet.Snappy, 1, true}, "zstd, delta": {&parquet.Zstd, 2, false},
		"gzip, pages of version 2": {&parquet.Gzip, 2, true}, "lz4": {&parquet.Lz4Raw, 1, false}, "brotli": {&parquet.Brotli, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			raw := theirPairs(t, c.codec, c.version, c.dict, keys...)
			theirs := inputOf(0, raw, 300)
			theirs.Foreign, theirs.Dead = true, setOf(t, 3, 40, 299)
			var outs outputs
			var fwd bytes.Buffer
			job := pairJob(t, &outs, &fwd, theirs, inputOf(1, own, 100))
			job.Keys = nil
			r, err := Merge(context.Background(), job)
			if err != nil {
				t.Fatal(err)
			}
			if r.Rows != 397 || r.Dropped != 3 || len(r.Outputs) != 1 || r.Outputs[0].Sorted {
				t.Fatalf("%d rows, %d dropped, outputs %+v", r.Rows, r.Dropped, r.Outputs)
			}
			f, err := rows.Open(bytes.NewReader(outs[0].Bytes()), int64(outs[0].Len()))
			if err != nil {
				t.Fatal(err)
			}
			want := append(pairSchema().Fields, schemas.Field{ID: schemas.RowIDField, Name: schemas.RowIDColumn, Type: schemas.Of(schemas.Long)})
			cols, err := f.Read(want)
			if err != nil {
				t.Fatal(err)
			}
			at := 0
			row := func(k, id int64, hex bool) {
				t.Helper()
				if cols[0].Ints[at] != k || string(cols[1].BytesAt(at)) != fmt.Sprintf("word %d", k%50) || cols[2].IsNull(at) == hex || cols[3].Ints[at] != id {
					t.Fatalf("row %d: key %d, row id %d, want %d, %d", at, cols[0].Ints[at], cols[3].Ints[at], k, id)
				}
				at++
			}
			for i, k := range keys {
				if i != 3 && k >= 0 {
					row(k, int64(i), false)
				}
			}
			for i := range int64(100) {
				row(500-2*i, 1_000_000+i, true)
			}
			m, err := forward.Open(bytes.NewReader(fwd.Bytes()), int64(fwd.Len()))
			if err != nil {
				t.Fatal(err)
			}
			images, err := m.Rebase(nil, 1, []uint32{0, 99})
			if err != nil || len(images) != 2 || images[0].Position != 297 || images[1].Position != 396 {
				t.Fatalf("rows of the second input are at %v: %v", images, err)
			}
		})
	}
}

// A live row without what the schema requires is no row of the table.
func TestForeignNull(t *testing.T) {
	in := inputOf(0, theirPairs(t, &parquet.Snappy, 1, false, 5, -1, 4), 3)
	in.Foreign = true
	var outs outputs
	var fwd bytes.Buffer
	job := pairJob(t, &outs, &fwd, in)
	job.Keys = nil
	if _, err := Merge(context.Background(), job); err == nil || !strings.Contains(err.Error(), "k") || !strings.Contains(err.Error(), "required") {
		t.Fatalf("it is %v", err)
	}
}
