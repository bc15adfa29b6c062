//go:build unix

package statestore_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/checkpoint"
	"github.com/varve-io/varve/statestore/objstore"
)

// BenchmarkRestore is how long a state of so many file references takes to be
// ready, from a checkpoint in a local store and from its log in memory, which is
// decoded and applied and never read from a broker. ratio is the second by the
// first. VARVE_BENCH_REFERENCES sets the number.
func BenchmarkRestore(b *testing.B) {
	n := 1_000_000
	if testing.Short() {
		n = 50_000
	}
	if v, err := strconv.Atoi(os.Getenv("VARVE_BENCH_REFERENCES")); err == nil {
		n = v
	}
	const tables, shards = 8, 4
	ctx := context.Background()
	dir := b.TempDir()
	l := newLog(b, filepath.Join(dir, "state"))
	log := appendLog(b, l, tables, shards, n)
	head := int(l.next)
	began := time.Now()
	var r statestore.Record
	apply := func(st *statestore.Store, from int) {
		for i := from; i < log.records; i++ {
			log.at(i, &r)
			if _, err := st.Apply(&r); err != nil {
				b.Fatal(err)
			}
			if i%1024 == 0 || i == log.records-1 {
				out, err := st.Commit()
				if err != nil {
					b.Fatal(err)
				}
				if k := len(out.Outcomes); k > 0 {
					st.Sent(out.Outcomes[k-1].Offset)
				}
			}
		}
	}
	apply(l.st, 0)
	if err := l.st.Flush(); err != nil {
		b.Fatal(err)
	}
	replay := time.Since(began)
	store, err := objstore.Open(ctx, filepath.Join(dir, "lake"))
	if err != nil {
		b.Fatal(err)
	}
	place := checkpoint.At(store, "bench", 0)
	made, err := place.Create(ctx, l.st, checkpoint.CreateOptions{Scratch: filepath.Join(dir, "scratch"), Rate: -1})
	if err != nil {
		b.Fatal(err)
	}
	if want := int64(head + log.records - 1); made.Manifest.Offset != want {
		b.Fatalf("checkpoint at %d, not %d", made.Manifest.Offset, want)
	}
	b.ResetTimer()
	total := time.Duration(0)
	for i := range b.N {
		to := filepath.Join(dir, "restored", strconv.Itoa(i))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if _, err := place.Restore(ctx, checkpoint.RestoreOptions{Dir: to, Deployment: testDeployment, Now: began}); err != nil {
			b.Fatal(err)
		}
		st, err := statestore.Open(to, statestore.Options{})
		if err != nil {
			b.Fatal(err)
		}
		total += time.Since(began)
		if st.Head().Chain != l.st.Head().Chain {
			b.Fatal("another state")
		}
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
	}
	restore := total / time.Duration(b.N)
	b.ReportMetric(restore.Seconds(), "s/restore")
	b.ReportMetric(replay.Seconds(), "s/replay")
	b.ReportMetric(made.Took.Seconds(), "s/create")
	b.ReportMetric(float64(made.Manifest.Bytes())/1e6, "MB")
	b.ReportMetric(replay.Seconds()/restore.Seconds(), "ratio")
}
