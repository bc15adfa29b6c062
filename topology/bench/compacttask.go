package bench

import (
	"bufio"
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/varve-io/varve/processors/compactor"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/rows"
)

// compactTask is one run of a compaction in a process of its own.
type compactTask struct {
	Set           compactSet
	Dir           string
	Lineage       bool // the inputs have row ids and sequence numbers
	PlainIntegers bool // without DELTA_BINARY_PACKED
	Plain         bool // row by row with parquet-go instead
	CPUProfile    string
}

func (t *compactTask) run(ctx context.Context, out *json.Encoder) (err error) {
	runtime.GOMAXPROCS(1)
	path := filepath.Join(t.Dir, "out.parquet")
	defer func() {
		if removed := os.Remove(path); removed != nil && !errors.Is(removed, os.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}()
	work := t.merge
	if t.Plain {
		work = t.plain
	}
	var r compactReport
	r.CPU, err = cpuOf(ctx, func() error {
		return profiled(t.CPUProfile, func() error { return work(ctx, path) })
	})
	if err != nil {
		return err
	}
	if r.RSSPeak, err = rssPeak(); err != nil {
		return err
	}
	if err := t.check(path, &r); err != nil {
		return err
	}
	return out.Encode(r)
}

// fileSink writes an output to a file.
type fileSink struct {
	*bufio.Writer
	f *os.File
}

func createFile(path string) (*fileSink, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &fileSink{bufio.NewWriterSize(f, 1<<20), f}, nil
}

func (s *fileSink) Commit() error { return errors.Join(s.Flush(), s.f.Close()) }
func (s *fileSink) Abort() error  { return errors.Join(s.f.Close(), os.Remove(s.f.Name())) }

func (t *compactTask) merge(ctx context.Context, path string) (err error) {
	schema := compactSchema()
	keys, err := rows.NewKeyEncoder(schema, schema.Identifier)
	if err != nil {
		return err
	}
	j := compactor.Job{Schema: schema, Keys: keys, TargetBytes: 1 << 40, PlainIntegers: t.PlainIntegers}
	for i, name := range t.Set.Files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		size, err := f.Stat()
		if err != nil {
			return err
		}
		dead, err := os.ReadFile(t.Set.Dead[i])
		if err != nil {
			return err
		}
		in := compactor.Input{
			File: uint64(i + 1), Name: name, R: f, Size: size.Size(), Rows: t.Set.PerFile[i], Hi: uint32(t.Set.PerFile[i]), Dead: dead,
			FirstRowID: -1, DataSequence: -1,
		}
		if t.Lineage {
			in.FirstRowID, in.DataSequence = int64(i)*t.Set.PerFile[i], int64(i+1)
		}
		j.Inputs = append(j.Inputs, in)
	}
	fwd, err := createFile(path + ".map")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fwd.Abort()) }()
	j.Map = fwd
	j.Open = func(context.Context, int) (compactor.Sink, error) { return createFile(path) }
	_, err = compactor.Merge(ctx, &j)
	return err
}

// check reads the output: its rows are the live ones, in order.
func (t *compactTask) check(path string, r *compactReport) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Stat()
	if err != nil {
		return err
	}
	r.Bytes = size.Size()
	file, err := rows.Open(f, r.Bytes)
	if err != nil {
		return err
	}
	r.Rows = file.NumRows()
	fields := compactSchema().Fields
	if t.Plain {
		return nil // its columns have no field ids
	}
	scan, err := file.Scan([]schemas.Field{fields[0], fields[1], fields[5]}, 0, r.Rows, 0)
	if err != nil {
		return err
	}
	sum, last := uint64(0), int64(-1)
	for {
		n, err := scan.Next(1 << 16)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		k, a, s2 := scan.Part(0).Ints(), scan.Part(1).Ints(), scan.Part(2)
		for i := range n {
			if k[i] < last {
				return fmt.Errorf("row %d of the output is out of order", scan.Row()+int64(i))
			}
			last = k[i]
			sum += rowSum(k[i], a[i], s2.BytesAt(i))
		}
	}
	if sum != t.Set.Sum {
		return errors.New("the output has other rows than the inputs' live ones")
	}
	return nil
}

// compactRow is a row for parquet-go.
type compactRow struct {
	K  int64   `parquet:"k"`
	A  int64   `parquet:"a,optional"`
	B  int64   `parquet:"b,optional"`
	D  float64 `parquet:"d,optional"`
	S1 string  `parquet:"s1,optional,dict"`
	S2 string  `parquet:"s2,optional,plain"`
}

// rowCursor is the way through one file, row by row.
type rowCursor struct {
	r    *parquet.GenericReader[compactRow]
	dead roaring.IntPeekable
	buf  []compactRow
	n    int
	at   int
	pos  uint32
}

// next moves on to the next live row; false: there is none.
func (c *rowCursor) next() (bool, error) {
	for {
		if c.at++; c.at >= c.n {
			n, err := c.r.Read(c.buf)
			if n == 0 {
				if errors.Is(err, io.EOF) {
					return false, nil
				}
				return false, err
			}
			c.n, c.at = n, 0
		}
		pos := c.pos
		c.pos++
		if c.dead.HasNext() && c.dead.PeekNext() == pos {
			c.dead.Next()
			continue
		}
		return true, nil
	}
}

type rowHeap []*rowCursor

func (h rowHeap) Len() int           { return len(h) }
func (h rowHeap) Less(i, j int) bool { return h[i].buf[h[i].at].K < h[j].buf[h[j].at].K }
func (h rowHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *rowHeap) Push(x any)        { *h = append(*h, x.(*rowCursor)) }
func (h *rowHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// plain merges row by row with parquet-go.
func (t *compactTask) plain(ctx context.Context, path string) error {
	var h rowHeap
	for i, name := range t.Set.Files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		raw, err := os.ReadFile(t.Set.Dead[i])
		if err != nil {
			return err
		}
		dead, err := dv.ReadBitmap(raw)
		if err != nil {
			return err
		}
		c := &rowCursor{r: parquet.NewGenericReader[compactRow](f), dead: dead.Iterator(), buf: make([]compactRow, 1024)}
		ok, err := c.next()
		if err != nil {
			return err
		}
		if ok {
			h = append(h, c)
		}
	}
	heap.Init(&h)
	out, err := createFile(path)
	if err != nil {
		return err
	}
	w := parquet.NewGenericWriter[compactRow](out, parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}))
	batch := make([]compactRow, 0, 1024)
	for h.Len() > 0 {
		c := h[0]
		batch = append(batch, c.buf[c.at])
		if len(batch) == cap(batch) {
			if _, err := w.Write(batch); err != nil {
				return err
			}
			batch = batch[:0]
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		ok, err := c.next()
		if err != nil {
			return err
		}
		if ok {
			heap.Fix(&h, 0)
		} else {
			heap.Pop(&h)
		}
	}
	if _, err := w.Write(batch); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.Commit()
}
