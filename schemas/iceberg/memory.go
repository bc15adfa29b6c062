package iceberg

import "reflect"

// Sizes of what an entry is made of.
var (
	entryBytes   = int64(reflect.TypeFor[Entry]().Size())
	idCountBytes = int64(reflect.TypeFor[IDCount]().Size())
	idBytesBytes = int64(reflect.TypeFor[IDBytes]().Size())
)

const wordBytes = 8

// Memory is about how many bytes an entry takes, with everything that hangs
// on it: several times its bytes in a manifest.
func (e *Entry) Memory() int64 {
	d := &e.File
	n := entryBytes + room(len(d.Path)) + room(cap(d.Partition)) + room(cap(d.KeyMetadata))
	for _, p := range [...]*int64{e.SnapshotID, e.Sequence, e.FileSequence, d.FirstRowID, d.ContentOffset, d.ContentSize} {
		if p != nil {
			n += wordBytes
		}
	}
	for _, l := range [...][]IDCount{d.ColumnSizes, d.ValueCounts, d.NullCounts, d.NaNCounts} {
		n += int64(cap(l)) * idCountBytes
	}
	for _, l := range [...][]IDBytes{d.Lower, d.Upper} {
		n += int64(cap(l)) * idBytesBytes
		for i := range l {
			n += room(cap(l[i].Value))
		}
	}
	n += int64(cap(d.SplitOffsets))*wordBytes + int64(cap(d.EqualityIDs))*wordBytes/2
	if d.SortOrderID != nil {
		n += wordBytes
	}
	if d.ReferencedDataFile != nil {
		n += 2*wordBytes + room(len(*d.ReferencedDataFile))
	}
	if d.Format != FormatParquet && d.Format != FormatPuffin {
		n += room(len(d.Format))
	}
	return n
}

// room is what an allocation of so many bytes takes: sizes are rounded up.
func room(n int) int64 {
	if n == 0 {
		return 0
	}
	return (int64(n) + 15) &^ 15
}
