package keyindex

import (
	"cmp"
	"math"
)

// Key is an index key. A narrow index keeps keys of at most 8 bytes as they
// are, order preserved, in Hi, and Lo is 0. A wide index keeps a 128-bit keyed
// hash.
type Key struct{ Hi, Lo uint64 }

// Less tells whether k sorts before o.
func (k Key) Less(o Key) bool { return k.Hi < o.Hi || k.Hi == o.Hi && k.Lo < o.Lo }

// Compare is -1, 0 or 1, in the order of Less.
func (k Key) Compare(o Key) int {
	if c := cmp.Compare(k.Hi, o.Hi); c != 0 {
		return c
	}
	return cmp.Compare(k.Lo, o.Lo)
}

// NoRowID is the RowID of a row whose _row_id is derived from its file's
// first_row_id and its position.
const NoRowID int64 = -1

// Entry is what the index knows about one key.
type Entry struct {
	Key  Key
	File uint64 // file that holds the live row; 0: tombstone, there is no live row
	// RowID is the explicit _row_id carried by the row, or NoRowID.
	// Tombstones always come back with NoRowID.
	RowID int64
	Order int64 // remembered ordering value (K2); 0 where HasOrder is false
	// Offset is, for a tombstone, the log offset of the dead version or of the
	// record that decided. Live rows always come back with 0.
	Offset int64
	// Time is, for a tombstone, the table time (ms) of the record that carried
	// it (K3). Live rows always come back with 0.
	Time     int64
	Pos      uint32 // row position in File; 0 for tombstones
	HasOrder bool   // whether there is a remembered value
}

// Tombstone tells whether e has no live row.
func (e *Entry) Tombstone() bool { return e.File == 0 }

// Found is the answer to one looked-up key.
type Found struct {
	Entry        // only Key is set where Present is false
	Present bool // the index has an entry, live or tombstone
	Pending bool // it comes from an unconfirmed overlay
}

// PendingTime is the Time of a tombstone in an overlay whose record has no
// offset yet: ConfirmAt gives it Time, and Offset where that is 0. It never expires.
const PendingTime = math.MaxInt64

const (
	flagOrder = 1 << iota
	flagTombstone
)

// value is an Entry without its key, in 32 bytes: a tombstone needs neither
// file nor row id, so its time and offset lie in their places.
type value struct {
	a     uint64 // file id; tombstone: time
	b     int64  // row id; tombstone: log offset
	order int64
	pos   uint32
	flags uint8
}

func makeValue(e *Entry) value {
	v := value{a: e.File, b: e.RowID, pos: e.Pos}
	if e.File == 0 {
		v = value{a: uint64(e.Time), b: e.Offset, flags: flagTombstone}
	}
	if e.HasOrder {
		v.order = e.Order
		v.flags |= flagOrder
	}
	return v
}

func (v *value) tombstone() bool { return v.flags&flagTombstone != 0 }

// expired tells whether v is a tombstone older than horizon.
func (v *value) expired(horizon int64) bool {
	return v.flags&flagTombstone != 0 && int64(v.a) < horizon
}

func (v *value) fill(e *Entry) {
	e.Order, e.HasOrder = v.order, v.flags&flagOrder != 0
	if v.tombstone() {
		e.File, e.Pos, e.RowID = 0, 0, NoRowID
		e.Time, e.Offset = int64(v.a), v.b
		return
	}
	e.File, e.Pos, e.RowID = v.a, v.pos, v.b
	e.Time, e.Offset = 0, 0
}

// checkEntries holds what a caller promises; messages name the place, never the
// key (E1).
func checkEntries(entries []Entry, wide bool) error {
	if len(entries) > math.MaxInt32 {
		return orderf("%d entries in one call, at most %d", len(entries), math.MaxInt32)
	}
	for i := range entries {
		e := &entries[i]
		if i > 0 && !entries[i-1].Key.Less(e.Key) {
			return orderf("entry %d of %d does not sort after the one before it", i, len(entries))
		}
		if !wide && e.Key.Lo != 0 {
			return orderf("entry %d of %d has a wide key in a narrow index", i, len(entries))
		}
		if e.File != 0 && e.RowID < NoRowID {
			return orderf("entry %d of %d has row id %d", i, len(entries), e.RowID)
		}
	}
	return nil
}
