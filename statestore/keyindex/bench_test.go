package keyindex

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The benchmarks upsert uniform keys in sorted batches, as ingest does: look the
// batch up, then fold its new places. Times are CPU of the whole process, the
// merges among it, a key: on a shared machine the clock says little.

type upsertLoad struct {
	keys    int // in the index
	batch   int
	batches int // measured
}

func load() upsertLoad {
	l := upsertLoad{keys: 10_000_000, batch: 256 << 10, batches: 24}
	if testing.Short() {
		l = upsertLoad{keys: 1_000_000, batch: 64 << 10, batches: 24}
	}
	if v, err := strconv.Atoi(os.Getenv("VARVE_BENCH_BATCHES")); err == nil {
		l.batches = v
	}
	return l
}

// benchKey spreads the n-th key over the key space, and never twice the same.
func benchKey(n uint64, wide bool) Key {
	k := Key{Hi: n * 0x9e3779b97f4a7c15}
	if wide {
		k.Lo = (n + 1) * 0xd6e8feb86659fd93
	}
	return k
}

func keyLess(a, b Key) int {
	if a.Less(b) {
		return -1
	}
	if b.Less(a) {
		return 1
	}
	return 0
}

// batchKeys draws distinct keys of the n first.
func batchKeys(rng *rand.Rand, keys []Key, n int, wide bool) []Key {
	for i := range keys {
		keys[i] = benchKey(rng.Uint64N(uint64(n)), wide)
	}
	slices.SortFunc(keys, keyLess)
	return slices.Compact(keys)
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func residentMiB() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseFloat(strings.Fields(string(b))[1], 64)
	if err != nil {
		return 0
	}
	return n * float64(os.Getpagesize()) / (1 << 20)
}

// upserter is an index under test: it looks a batch up and folds it.
type upserter func(keys []Key, file uint64) error

func measure(b *testing.B, l upsertLoad, wide bool, up upserter, done func() error) float64 {
	rng := rand.New(rand.NewPCG(42, 42))
	buf := make([]Key, l.batch)
	var spent time.Duration
	keys := 0
	peak := 0.0
	wall := time.Duration(0)
	for i := 0; i < l.batches; i++ {
		batch := batchKeys(rng, buf[:l.batch], l.keys, wide)
		from, t := cpu(), time.Now()
		if err := up(batch, uint64(1000+i)); err != nil {
			b.Fatal(err)
		}
		spent += cpu() - from
		wall += time.Since(t)
		keys += len(batch)
		peak = max(peak, residentMiB())
	}
	from, t := cpu(), time.Now()
	if err := done(); err != nil {
		b.Fatal(err)
	}
	spent += cpu() - from
	wall += time.Since(t)
	us := float64(spent.Nanoseconds()) / 1e3 / float64(keys)
	b.ReportMetric(us, "cpu-µs/key")
	b.ReportMetric(float64(wall.Nanoseconds())/1e3/float64(keys), "wall-µs/key")
	b.ReportMetric(peak, "peak-RSS-MiB")
	return us
}

func benchIndex(b *testing.B, l upsertLoad, wide bool) float64 {
	i, err := Open(b.TempDir(), Options{Wide: wide})
	if err != nil {
		b.Fatal(err)
	}
	// Fill: rows as ingest leaves them, 256 Ki a file.
	const fill = 256 << 10
	entries := make([]Entry, 0, fill)
	offset := int64(0)
	for n := 0; n < l.keys; n += fill {
		entries = entries[:0]
		for k := n; k < min(n+fill, l.keys); k++ {
			entries = append(entries, Entry{Key: benchKey(uint64(k), wide), File: uint64(1 + n/fill), RowID: NoRowID, Order: 1_700_000_000_000 + int64(k), HasOrder: true})
		}
		slices.SortFunc(entries, func(x, y Entry) int { return keyLess(x.Key, y.Key) })
		for p := range entries {
			entries[p].Pos = uint32(p)
		}
		if err := i.Apply(entries, offset); err != nil {
			b.Fatal(err)
		}
		offset++
	}
	if err := i.Flush(); err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	before := i.Stats()
	var found []Found
	var lookup, apply time.Duration
	us := measure(b, l, wide, func(keys []Key, file uint64) error {
		t := time.Now()
		if found, err = i.Lookup(keys, found[:0]); err != nil {
			return err
		}
		lookup += time.Since(t)
		entries = entries[:0]
		for p, f := range found {
			if !f.Present {
				b.Fatal("a key is missing")
			}
			entries = append(entries, Entry{Key: f.Key, File: file, Pos: uint32(p), RowID: NoRowID, Order: f.Order + 1, HasOrder: true})
		}
		t = time.Now()
		offset++
		defer func() { apply += time.Since(t) }()
		return i.Apply(entries, offset)
	}, i.Flush)
	after := i.Stats()
	n := float64(l.batches * l.batch)
	b.ReportMetric(float64(lookup.Nanoseconds())/1e3/n, "lookup-wall-µs/key")
	b.ReportMetric(float64(apply.Nanoseconds())/1e3/n, "apply-wall-µs/key")
	b.ReportMetric(float64(after.Merges-before.Merges), "merges")
	b.ReportMetric(float64(after.BaseBytes)/float64(after.BaseEntries), "B/entry")
	b.ReportMetric(float64(after.MemoryBytes)/(1<<20), "delta-MiB")
	if err := i.Close(); err != nil {
		b.Fatal(err)
	}
	return us
}

func benchPebble(b *testing.B, l upsertLoad, wide bool) float64 {
	db, err := pebble.Open(b.TempDir(), &pebble.Options{
		Logger: quiet{}, DisableWAL: true, MemTableSize: 64 << 20, Cache: pebble.NewCache(128 << 20), FS: vfs.Default,
	})
	if err != nil {
		b.Fatal(err)
	}
	width := 8
	if wide {
		width = 16
	}
	key := make([]byte, 16)
	val := make([]byte, 20)
	encode := func(k Key) []byte {
		binary.BigEndian.PutUint64(key, k.Hi)
		binary.BigEndian.PutUint64(key[8:], k.Lo)
		return key[:width]
	}
	put := func(keys []Key, file uint64) error {
		w := db.NewBatchWithSize(len(keys) * 40)
		for p, k := range keys {
			binary.BigEndian.PutUint64(val, file)
			binary.BigEndian.PutUint32(val[8:], uint32(p))
			binary.BigEndian.PutUint64(val[12:], uint64(p))
			if err := w.Set(encode(k), val, nil); err != nil {
				return err
			}
		}
		return w.Commit(pebble.NoSync)
	}
	const fill = 1 << 20
	for n := 0; n < l.keys; n += fill {
		var keys []Key
		for k := n; k < min(n+fill, l.keys); k++ {
			keys = append(keys, benchKey(uint64(k), wide))
		}
		slices.SortFunc(keys, keyLess)
		if err := put(keys, uint64(1+n/fill)); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Flush(); err != nil {
		b.Fatal(err)
	}
	us := measure(b, l, wide, func(keys []Key, file uint64) error {
		it, err := db.NewIter(nil)
		if err != nil {
			return err
		}
		for _, k := range keys {
			if !it.SeekGE(encode(k)) {
				b.Fatal("a key is missing")
			}
		}
		if err := it.Close(); err != nil {
			return err
		}
		return put(keys, file)
	}, db.Flush)
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	return us
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(f string, args ...any) {
	panic(f)
}

// BenchmarkUpsert10M upserts into 10 M uniform keys (1 M with -short). One
// round is the whole load, so run it with -benchtime=1x.
func BenchmarkUpsert10M(b *testing.B) {
	for _, wide := range []bool{false, true} {
		name := "narrow"
		if wide {
			name = "wide"
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				benchIndex(b, load(), wide)
			}
		})
	}
}

// BenchmarkUpsertAgainstPebble does the same on a Pebble-backed index, and
// reports how many times as much CPU that takes.
func BenchmarkUpsertAgainstPebble(b *testing.B) {
	l := load()
	l.batches = min(l.batches, 8)
	for b.Loop() {
		ours := benchIndex(b, l, false)
		theirs := benchPebble(b, l, false)
		b.ReportMetric(ours, "ours-cpu-µs/key")
		b.ReportMetric(theirs/ours, "pebble/ours")
	}
}
