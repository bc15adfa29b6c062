package rows

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/varve-io/varve/schemas"
)

// benchRow is the benchmark's row for parquet-go's row writer.
type benchRow struct {
	K       int64   `parquet:"k"`
	At      int64   `parquet:"at,optional"`
	B       int64   `parquet:"b,optional"`
	D       float64 `parquet:"d,optional"`
	Word    string  `parquet:"word,optional,dict"`
	Hex     string  `parquet:"hex,optional,plain"`
	Country string  `parquet:"country,optional,dict"`
	Flag    bool    `parquet:"flag,optional"`
}

func benchBatch(n int) (*Batch, []benchRow) {
	of := schemas.Of
	s := &schemas.Schema{Identifier: []int32{1}, Fields: []schemas.Field{
		{ID: 1, Name: "k", Type: of(schemas.Long), Required: true},
		{ID: 2, Name: "at", Type: of(schemas.TimestampTz)},
		{ID: 3, Name: "b", Type: of(schemas.Long)},
		{ID: 4, Name: "d", Type: of(schemas.Double)},
		{ID: 5, Name: "word", Type: of(schemas.String)},
		{ID: 6, Name: "hex", Type: of(schemas.String)},
		{ID: 7, Name: "country", Type: of(schemas.String)},
		{ID: 8, Name: "flag", Type: of(schemas.Boolean)},
	}}
	rng := rand.New(rand.NewPCG(42, 42))
	words := make([]string, 1000)
	for i := range words {
		words[i] = fmt.Sprintf("word%x", rng.Uint32N(1<<20))
	}
	b := NewBatch(s)
	list := make([]benchRow, n)
	for i := range list {
		r := benchRow{
			K: rng.Int64N(1 << 40), At: 1_700_000_000_000_000 + int64(i)*1000 + rng.Int64N(1000), B: rng.Int64N(1000),
			D: float64(rng.Int64N(1_000_000)) / 100, Word: words[rng.IntN(1000)], Hex: fmt.Sprintf("%016x", rng.Uint64()),
			Country: words[rng.IntN(20)], Flag: rng.IntN(2) == 1,
		}
		list[i] = r
		b.Cols[0].AppendInt(r.K)
		b.Cols[1].AppendInt(r.At)
		b.Cols[2].AppendInt(r.B)
		b.Cols[3].AppendFloat(r.D)
		b.Cols[4].AppendBytes([]byte(r.Word))
		b.Cols[5].AppendBytes([]byte(r.Hex))
		b.Cols[6].AppendBytes([]byte(r.Country))
		flag := int64(0)
		if r.Flag {
			flag = 1
		}
		b.Cols[7].AppendInt(flag)
		b.AppendEvent(Upsert, int64(i), 0, false)
	}
	return b, list
}

const benchRows = 200_000

// cpu is the process's processor time: neighbours on the machine move it less
// than the clock on the wall.
func cpu() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func report(b *testing.B, since, bytes int64) {
	b.ReportMetric(float64(cpu()-since)/float64(b.N)/benchRows, "cpu-ns/row")
	b.ReportMetric(float64(bytes)/benchRows, "B/row")
}

// BenchmarkWrite beside BenchmarkWriteRowsOfParquetGo: the same 8 columns,
// zstd at its fastest, rows taken in another order than they came.
func BenchmarkWrite(b *testing.B) {
	batch, _ := benchBatch(benchRows)
	sel := whole(benchRows)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(sel), func(i, j int) { sel[i], sel[j] = sel[j], sel[i] })
	for name, o := range map[string]WriteOptions{"default": {}, "delta": {DeltaIntegers: true}, "uncompressed": {Uncompressed: true}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			o.Schema = batch.Schema
			var info FileInfo
			var err error
			since := cpu()
			for b.Loop() {
				if info, err = Write(io.Discard, o, batch, sel, Extra{}); err != nil {
					b.Fatal(err)
				}
			}
			report(b, since, info.Bytes)
		})
	}
}

type countWriter int64

func (c *countWriter) Write(p []byte) (int, error) { *c += countWriter(len(p)); return len(p), nil }

func BenchmarkWriteRowsOfParquetGo(b *testing.B) {
	_, list := benchBatch(benchRows)
	sel := whole(benchRows)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(sel), func(i, j int) { sel[i], sel[j] = sel[j], sel[i] })
	var out countWriter
	some := make([]benchRow, stepRows)
	since := cpu()
	for b.Loop() {
		out = 0
		w := parquet.NewGenericWriter[benchRow](&out, parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}))
		for at := 0; at < len(sel); {
			n := min(len(some), len(sel)-at)
			for i, r := range sel[at : at+n] {
				some[i] = list[r]
			}
			if _, err := w.Write(some[:n]); err != nil {
				b.Fatal(err)
			}
			at += n
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
	report(b, since, int64(out))
}

// BenchmarkRead beside BenchmarkReadRowsOfParquetGo: the 8 columns again.
func BenchmarkRead(b *testing.B) {
	batch, _ := benchBatch(benchRows)
	for name, o := range map[string]WriteOptions{"default": {}, "delta": {DeltaIntegers: true}} {
		b.Run(name, func(b *testing.B) {
			data := written(b, o, batch)
			b.ReportAllocs()
			since := cpu()
			for b.Loop() {
				f, err := Open(bytes.NewReader(data), int64(len(data)))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := f.Read(batch.Schema.Fields); err != nil {
					b.Fatal(err)
				}
			}
			report(b, since, int64(len(data)))
		})
	}
}

func BenchmarkReadRowsOfParquetGo(b *testing.B) {
	batch, list := benchBatch(benchRows)
	data := written(b, WriteOptions{}, batch)
	since := cpu()
	for b.Loop() {
		r := parquet.NewGenericReader[benchRow](bytes.NewReader(data))
		for {
			if _, err := r.Read(list[:1024]); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
	report(b, since, int64(len(data)))
}

func BenchmarkKeys(b *testing.B) {
	batch, _ := benchBatch(benchRows)
	for name, ids := range map[string][]int32{"string": {6}, "string and long": {1, 6}} {
		b.Run(name, func(b *testing.B) {
			e, err := NewKeyEncoder(batch.Schema, ids)
			if err != nil {
				b.Fatal(err)
			}
			var key []byte
			since := cpu()
			for b.Loop() {
				for row := range benchRows {
					if key, err = e.Append(key[:0], batch, row); err != nil {
						b.Fatal(err)
					}
					Hash128([16]byte{1}, key)
				}
			}
			report(b, since, int64(len(key)*benchRows))
		})
	}
}
