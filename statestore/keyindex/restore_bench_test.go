package keyindex

import (
	"bufio"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// BenchmarkMove is how long the key index of a shard takes to be ready on a node
// that does not have it: its checkpoint is read from a file, hashed, written,
// checked whole, and opened. What was accepted since is not in it: that is some
// appends, read from their data files.
func BenchmarkMove(b *testing.B) {
	l := load()
	dir := b.TempDir()
	x, err := Open(filepath.Join(dir, "owner"), Options{DeltaLimit: 4_000_000})
	if err != nil {
		b.Fatal(err)
	}
	const batch = 1 << 20
	for from, at := 0, int64(0); from < l.keys; from, at = from+batch, at+1 {
		es := make([]Entry, min(batch, l.keys-from))
		for i := range es {
			n := uint64(from + i)
			es[i] = Entry{Key: benchKey(n, false), File: 1 + n/100_000, Pos: uint32(n % 100_000), RowID: int64(n), HasOrder: true, Order: int64(n), Offset: at}
		}
		slices.SortFunc(es, func(a, b Entry) int { return keyLess(a.Key, b.Key) })
		if err := x.Apply(es, at); err != nil {
			b.Fatal(err)
		}
	}
	object := filepath.Join(dir, "object")
	f, err := os.Create(object)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	began := time.Now()
	c, err := x.Checkpoint(w)
	if err != nil {
		b.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	made := time.Since(began)
	if err := x.Close(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for i := range b.N {
		f, err := os.Open(object)
		if err != nil {
			b.Fatal(err)
		}
		h := sha256.New()
		to := filepath.Join(dir, "new"+strconv.Itoa(i))
		if err := Restore(to, io.TeeReader(f, h), Options{}); err != nil {
			b.Fatal(err)
		}
		if [32]byte(h.Sum(nil)) != c.SHA256 {
			b.Fatal("other bytes")
		}
		y, err := Open(to, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if y.Offset() != c.Offset || y.Len() != int64(l.keys) {
			b.Fatalf("%d keys at %d", y.Len(), y.Offset())
		}
		if err := y.Close(); err != nil {
			b.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(c.Size)/1e6, "MB")
	b.ReportMetric(made.Seconds(), "s/checkpoint")
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/move")
}
