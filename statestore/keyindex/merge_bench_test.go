package keyindex

import (
	"io"
	"math/rand/v2"
	"slices"
	"testing"
)

// BenchmarkMerge merges a delta of 160 k uniform keys with a base of 1 M, into
// nowhere: what a merge costs without the disk.
func BenchmarkMerge(b *testing.B) {
	const n, d = 1_000_000, 160_000
	for _, c := range []struct {
		name  string
		wide  bool
		rowID bool
	}{{"narrow", false, false}, {"narrow-rowid", false, true}, {"wide", true, false}} {
		b.Run(c.name, func(b *testing.B) {
			i, err := Open(b.TempDir(), Options{Wide: c.wide, Sync: true, DeltaLimit: 4_000_000})
			if err != nil {
				b.Fatal(err)
			}
			entry := func(k uint64, file uint64) Entry {
				e := Entry{Key: benchKey(k, c.wide), File: file, RowID: NoRowID, Order: 1_700_000_000_000 + int64(k), HasOrder: true}
				if c.rowID {
					e.RowID = int64(k)
				}
				return e
			}
			apply := func(e []Entry, offset int64) {
				slices.SortFunc(e, func(x, y Entry) int { return keyLess(x.Key, y.Key) })
				e = slices.CompactFunc(e, func(x, y Entry) bool { return x.Key == y.Key })
				for p := range e {
					e[p].Pos = uint32(p % (256 << 10))
				}
				if err := i.Apply(e, offset); err != nil {
					b.Fatal(err)
				}
			}
			var e []Entry
			for k := uint64(0); k < n; k++ {
				e = append(e, entry(k, 1+k%40))
			}
			apply(e, 0)
			if err := i.Flush(); err != nil {
				b.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			e = e[:0]
			for range d {
				e = append(e, entry(rng.Uint64N(n), 50+rng.Uint64N(6)))
			}
			apply(e, 1)
			in := mergeInput{
				base: i.base, delta: i.confirmed(), offset: 1, horizon: i.horizon,
				wide: c.wide, entries: i.o.BlockEntries,
			}
			m := &merger{}
			b.ReportAllocs()
			from := cpu()
			for b.Loop() {
				if err := m.write(io.Discard, in); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpu()-from).Nanoseconds())/float64(b.N)/n, "cpu-ns/entry")
			if err := i.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkLookup looks 26 k uniform keys up in 1 M.
func BenchmarkLookup(b *testing.B) {
	const n, d = 1_000_000, 26_000
	for _, c := range []struct {
		name string
		wide bool
	}{{"narrow", false}, {"wide", true}} {
		b.Run(c.name, func(b *testing.B) {
			i, err := Open(b.TempDir(), Options{Wide: c.wide, Sync: true})
			if err != nil {
				b.Fatal(err)
			}
			var e []Entry
			for k := uint64(0); k < n; k++ {
				e = append(e, Entry{Key: benchKey(k, c.wide), File: 1 + k%40, Pos: uint32(k % (256 << 10)), RowID: NoRowID, Order: 1_700_000_000_000 + int64(k), HasOrder: true})
			}
			slices.SortFunc(e, func(x, y Entry) int { return keyLess(x.Key, y.Key) })
			if err := i.Apply(e, 0); err != nil {
				b.Fatal(err)
			}
			if err := i.Flush(); err != nil {
				b.Fatal(err)
			}
			keys := batchKeys(rand.New(rand.NewPCG(1, 2)), make([]Key, d), n, c.wide)
			var found []Found
			b.ReportAllocs()
			from := cpu()
			for b.Loop() {
				if found, err = i.Lookup(keys, found[:0]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpu()-from).Nanoseconds())/float64(b.N)/float64(len(keys)), "cpu-ns/key")
			if err := i.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkLookupDelta looks 26 k uniform keys up in a delta of 100 k.
func BenchmarkLookupDelta(b *testing.B) {
	const n, d = 100_000, 26_000
	for _, wide := range []bool{false, true} {
		b.Run(map[bool]string{false: "narrow", true: "wide"}[wide], func(b *testing.B) {
			a := &arena{wide: wide}
			var e []Entry
			for k := uint64(0); k < n; k++ {
				e = append(e, Entry{Key: benchKey(k*10, wide), File: 1})
			}
			slices.SortFunc(e, func(x, y Entry) int { return keyLess(x.Key, y.Key) })
			r := a.build(e)
			keys := batchKeys(rand.New(rand.NewPCG(1, 2)), make([]Key, d), 10*n, wide)
			todo, found := make([]int32, len(keys)), make([]Found, len(keys))
			from := cpu()
			left := 0
			for b.Loop() {
				for i := range todo {
					todo[i] = int32(i)
				}
				left = len(r.lookup(keys, todo, found, 0, false))
			}
			b.ReportMetric(float64((cpu()-from).Nanoseconds())/float64(b.N)/float64(len(keys)), "cpu-ns/key")
			b.ReportMetric(100*float64(len(keys)-left)/float64(len(keys)), "%hits")
		})
	}
}
