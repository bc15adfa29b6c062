package ingest

import (
	"reflect"
	"testing"

	"github.com/varve-io/varve/statestore/keyindex"
)

// TestSucceed (A11): what two shards know of one key becomes one entry, and a
// version that loses is owed its death.
func TestSucceed(t *testing.T) {
	row := func(file uint64, order ...int64) keyindex.Entry {
		e := keyindex.Entry{File: file, Pos: uint32(file), RowID: keyindex.NoRowID}
		if len(order) > 0 {
			e.HasOrder, e.Order = true, order[0]
		}
		return e
	}
	grave := func(time int64, order ...int64) keyindex.Entry {
		e := row(0, order...)
		e.Time, e.Offset = time, time
		return e
	}
	// Files 1 to 4 are of log offsets 10 to 40.
	files := map[uint64]fileInfo{1: {Record: 10}, 2: {Record: 20}, 3: {Record: 30}, 4: {Record: 40}}
	for _, c := range []struct {
		what       string
		before     int64
		x, y, want keyindex.Entry
		owed       []killed
	}{
		{"the larger ordering value", 0, row(4, 5), row(3, 7), row(3, 7), []killed{{4, 4}}},
		{"without one, the later record", 0, row(4), row(3), row(4), []killed{{3, 3}}},
		{"a tie goes to the later record", 0, row(3, 7), row(4, 7), row(4, 7), []killed{{3, 3}}},
		{"a version of both", 0, row(3, 7), row(3, 7), row(3, 7), nil},
		{"a request's tombstone without a value", 0, row(3), grave(9), row(3), nil},
		{"a request's tombstone of the same value", 0, row(3, 7), grave(9, 7), row(3, 7), nil},
		{"a later delete", 0, row(3, 7), grave(9, 8), grave(9, 8), []killed{{3, 3}}},
		{"two tombstones remember the larger value, longer", 0, grave(9, 8), grave(11, 7), grave(11, 8), nil},
		{"a tombstone without a value forgets none", 0, grave(9), grave(3, 7), grave(9, 7), nil},
		{"the version that an earlier division gave to both", 20, row(2, 9), row(3, 5), row(3, 5), nil},
		{"and one that a shard ended since", 20, row(2, 9), grave(50), grave(50), nil},
	} {
		for _, swap := range []bool{false, true} {
			s := &Shard{side: &side{Files: files}, before: c.before}
			x, y := c.x, c.y
			if swap {
				x, y = y, x
			}
			if got := s.succeed(&x, &y); !reflect.DeepEqual(got, c.want) || !reflect.DeepEqual(s.side.Debts, c.owed) {
				t.Errorf("%s (swapped %t): %+v, owed %v; want %+v, owed %v", c.what, swap, got, s.side.Debts, c.want, c.owed)
			}
		}
	}
}

// TestSideDebts: a side file with debts has a form of its own.
func TestSideDebts(t *testing.T) {
	s := newSide()
	s.Offset = 7
	plain := s.encode()
	s.Debts = []killed{{5, 0}, {1 << 40, 1 << 31}}
	b := s.encode()
	if plain[3] != sideForm || b[3] != owesForm {
		t.Fatalf("forms %d and %d", plain[3], b[3])
	}
	got, err := decodeSide(b)
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Fatalf("%+v, want %+v: %v", got, s, err)
	}
	for i := range b {
		if _, err := decodeSide(b[:i]); err == nil {
			t.Fatalf("%d bytes of %d are a side file", i, len(b))
		}
	}
}
