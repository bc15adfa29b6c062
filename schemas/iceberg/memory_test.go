package iceberg

import (
	"fmt"
	"runtime"
	"testing"
)

// TestEntryMemory: what an entry says that it takes is what the heap has more
// for it, within a fifth.
func TestEntryMemory(t *testing.T) {
	const n = 20_000
	num := func(v int64) *int64 { return &v }
	for _, c := range []struct {
		name string
		make func(i int) Entry
	}{
		{"data file", func(i int) Entry {
			e := Entry{Status: Existing, SnapshotID: num(int64(i)), Sequence: num(1), FileSequence: num(1), File: DataFile{
				Path: fmt.Sprintf("file:///lake/shop/orders/data/%060d.parquet", i), Format: FormatParquet, Partition: make([]byte, 9),
				SplitOffsets: []int64{4}, FirstRowID: num(7),
			}}
			for id := int32(1); id <= 12; id++ {
				e.File.ColumnSizes = append(e.File.ColumnSizes, IDCount{id, 9})
				e.File.ValueCounts = append(e.File.ValueCounts, IDCount{id, 9})
				e.File.NullCounts = append(e.File.NullCounts, IDCount{id, 9})
				e.File.Lower = append(e.File.Lower, IDBytes{id, make([]byte, 8)})
				e.File.Upper = append(e.File.Upper, IDBytes{id, make([]byte, 16)})
			}
			return e
		}},
		{"vector", func(i int) Entry {
			path := fmt.Sprintf("file:///lake/shop/orders/data/%060d.parquet", i)
			return Entry{SnapshotID: num(1), Sequence: num(1), FileSequence: num(1), File: DataFile{
				Content: PositionDeletes, Path: fmt.Sprintf("file:///lake/shop/orders/data/%060d.puffin", i), Format: FormatPuffin,
				ContentOffset: num(4), ContentSize: num(40), ReferencedDataFile: &path,
			}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			entries := make([]Entry, n)
			runtime.GC()
			runtime.ReadMemStats(&before)
			said := int64(0)
			for i := range entries {
				entries[i] = c.make(i)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			for i := range entries {
				said += entries[i].Memory() - entryBytes // entries were there before
			}
			took := int64(after.HeapAlloc) - int64(before.HeapAlloc)
			if said < took*8/10 || said > took*12/10 {
				t.Errorf("%d entries say %d bytes each, the heap has %d more", n, said/n, took/n)
			}
			runtime.KeepAlive(entries)
		})
	}
}
