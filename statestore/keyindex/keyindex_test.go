package keyindex

import (
	"errors"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func openMem(t *testing.T, o Options) *Index {
	t.Helper()
	o.FS, o.Sync = vfs.NewMem(), true
	i, err := Open("/index", o)
	must(t, err)
	t.Cleanup(func() { must(t, i.Close()) })
	return i
}

func live(key, file uint64) Entry { return Entry{Key: Key{Hi: key}, File: file, RowID: NoRowID} }

func dead(key uint64, time int64) Entry {
	return Entry{Key: Key{Hi: key}, RowID: NoRowID, Offset: 3, Time: time}
}

// get looks one key up and gives its file (0: tombstone), or -1 where absent.
func get(t *testing.T, i *Index, key uint64) (file int64, pending bool) {
	t.Helper()
	out, err := i.Lookup([]Key{{Hi: key}}, nil)
	must(t, err)
	if !out[0].Present {
		if out[0] != (Found{Entry: Entry{Key: Key{Hi: key}}}) {
			t.Fatalf("an absent key came with %+v", out[0])
		}
		return -1, false
	}
	return int64(out[0].File), out[0].Pending
}

func want(t *testing.T, i *Index, key uint64, file int64, pending bool) {
	t.Helper()
	if f, p := get(t, i, key); f != file || p != pending {
		t.Fatalf("key is in file %d, pending %v; want %d, %v", f, p, file, pending)
	}
}

// TestOverlays (A7): what is not confirmed is seen, the newest first, and goes
// with the epoch; what is confirmed stays.
func TestOverlays(t *testing.T) {
	i := openMem(t, Options{})
	must(t, i.Apply([]Entry{live(1, 10), live(2, 10)}, 5))
	must(t, i.Push(1, []Entry{live(1, 11)}))
	must(t, i.Push(2, []Entry{live(1, 12), dead(2, 9)}))
	must(t, i.Push(7, nil))
	want(t, i, 1, 12, true)
	want(t, i, 2, 0, true)

	// A sibling's record moves key 1: pending overlays stay above it.
	must(t, i.Apply([]Entry{live(1, 99)}, 6))
	want(t, i, 1, 12, true)

	must(t, i.Confirm(1, 7))
	want(t, i, 1, 12, true)
	i.DropOverlays()
	want(t, i, 1, 11, false)
	want(t, i, 2, 10, false)
	if s := i.Stats(); s.Overlays != 0 || s.OverlayEntries != 0 {
		t.Fatalf("overlays left: %+v", s)
	}
	// A new epoch counts from anew.
	must(t, i.Push(1, []Entry{live(3, 13)}))
	must(t, i.Confirm(1, 8))
	want(t, i, 3, 13, false)
	if i.Offset() != 8 {
		t.Fatalf("offset %d", i.Offset())
	}
}

// TestConfirmAt: a tombstone whose record had no offset yet takes the record's
// place and time when it is confirmed, and not before, refused calls included.
func TestConfirmAt(t *testing.T) {
	i := openMem(t, Options{})
	must(t, i.SetOffset(5))
	placed := dead(4, PendingTime)
	placed.Offset = 3
	pending := dead(1, PendingTime)
	pending.Offset = 0
	must(t, i.Push(1, []Entry{pending, dead(2, 70), live(3, 9), placed}))
	i.Expire(60)
	if err := i.ConfirmAt(1, 4, 80); !errors.Is(err, ErrOrder) {
		t.Fatalf("offset went back: %v", err)
	}
	look := func() [2]Entry {
		out, err := i.Lookup([]Key{{Hi: 1}, {Hi: 2}}, nil)
		must(t, err)
		return [2]Entry{out[0].Entry, out[1].Entry}
	}
	other := dead(2, 70)
	if got := look(); got != [2]Entry{pending, other} {
		t.Fatalf("pending: %+v", got)
	}
	must(t, i.ConfirmAt(1, 6, 80))
	stamped := dead(1, 80)
	stamped.Offset = 6
	if got := look(); got != [2]Entry{stamped, other} {
		t.Fatalf("confirmed: %+v", got)
	}
	out, err := i.Lookup([]Key{{Hi: 4}}, nil)
	must(t, err)
	if placed.Time = 80; out[0].Entry != placed {
		t.Fatalf("a tombstone with a place of its own: %+v", out[0])
	}
	want(t, i, 3, 9, false)
	i.Expire(81)
	want(t, i, 1, -1, false)
}

// TestOverlayIsNotDurable (A7): a base and a checkpoint never hold an overlay.
func TestOverlayIsNotDurable(t *testing.T) {
	i := openMem(t, Options{})
	must(t, i.Apply([]Entry{live(1, 10)}, 5))
	must(t, i.Push(1, []Entry{live(1, 11), live(2, 11)}))
	must(t, i.Flush())
	must(t, i.Verify())
	if i.Len() != 1 {
		t.Fatalf("%d entries in the base", i.Len())
	}
	n := 0
	must(t, i.Iterate(func(e *Entry) error {
		if n++; e.File != 10 {
			t.Fatalf("iterated %+v", *e)
		}
		return nil
	}))
	want(t, i, 1, 11, true)
}

// TestExpire (K3): an expired tombstone is absent wherever it lies, and never
// uncovers what it replaced.
func TestExpire(t *testing.T) {
	for _, where := range []string{"overlay", "delta", "base"} {
		t.Run(where, func(t *testing.T) {
			i := openMem(t, Options{})
			must(t, i.Apply([]Entry{live(1, 10), live(2, 10), live(3, 10)}, 1))
			must(t, i.Flush())
			buried := []Entry{dead(1, 100), dead(2, 200)}
			if where == "overlay" {
				must(t, i.Push(1, buried))
			} else {
				must(t, i.Apply(buried, 2))
			}
			if where == "base" {
				must(t, i.Flush())
			}
			pending := where == "overlay"
			want(t, i, 1, 0, pending)
			i.Expire(101)
			want(t, i, 1, -1, false)
			want(t, i, 2, 0, pending)
			want(t, i, 3, 10, false)
			i.Expire(50) // does not go back
			want(t, i, 1, -1, false)
			if pending {
				must(t, i.Confirm(1, 2))
			}
			must(t, i.Flush())
			if s := i.Stats(); s.BaseEntries != 2 || s.BaseTombstones != 1 {
				t.Fatalf("the merge left %d entries, %d tombstones", s.BaseEntries, s.BaseTombstones)
			}
			// One that comes late is expired at once.
			must(t, i.Apply([]Entry{dead(3, 100)}, 3))
			want(t, i, 3, -1, false)
		})
	}
}

func TestMisuse(t *testing.T) {
	i := openMem(t, Options{})
	must(t, i.Apply([]Entry{live(5, 1)}, 10))
	must(t, i.Push(4, []Entry{live(6, 1)}))
	must(t, i.Push(5, []Entry{live(7, 1)}))
	for what, err := range map[string]error{
		"offset goes back":      i.Apply(nil, 9),
		"SetOffset goes back":   i.SetOffset(9),
		"unsorted entries":      i.Apply([]Entry{live(2, 1), live(1, 1)}, 11),
		"doubled entries":       i.Apply([]Entry{live(2, 1), live(2, 1)}, 11),
		"wide key":              i.Apply([]Entry{{Key: Key{1, 1}, File: 1}}, 11),
		"row id":                i.Apply([]Entry{{Key: Key{Hi: 1}, File: 1, RowID: -2}}, 11),
		"unsorted overlay":      i.Push(6, []Entry{live(2, 1), live(1, 1)}),
		"overlay id again":      i.Push(5, nil),
		"overlay out of turn":   i.Confirm(5, 11),
		"overlay is unknown":    i.Confirm(3, 11),
		"confirmed offset back": i.Confirm(4, 9),
	} {
		if !errors.Is(err, ErrOrder) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if out, err := i.Lookup([]Key{{Hi: 2}, {Hi: 2}}, nil); !errors.Is(err, ErrOrder) || len(out) != 0 {
		t.Errorf("doubled keys: %v", err)
	}
	if i.Offset() != 10 || i.Len() != 1 || i.Stats().Overlays != 2 {
		t.Errorf("a refused call changed something: offset %d, %+v", i.Offset(), i.Stats())
	}

	c, err := Open("/closed", Options{FS: vfs.NewMem()})
	must(t, err)
	must(t, c.Close())
	must(t, c.Close())
	_, lookup := c.Lookup(nil, nil)
	_, checkpoint := c.Checkpoint(io.Discard)
	for what, err := range map[string]error{
		"Apply": c.Apply(nil, 1), "Push": c.Push(1, nil), "Merge": c.Merge(), "Flush": c.Flush(), "Verify": c.Verify(),
		"Iterate": c.Iterate(nil), "Lookup": lookup, "Checkpoint": checkpoint, "SetOffset": c.SetOffset(1),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}

// TestUntouchedBlocks: a merge takes blocks over that nobody changed, byte by
// byte, forgets files that nobody names any more, and leaves no small blocks.
func TestUntouchedBlocks(t *testing.T) {
	i := openMem(t, Options{BlockEntries: 64})
	const n = 64 * 40
	all := make([]Entry, n)
	for k := range all {
		all[k] = live(uint64(k)*2, uint64(1+k/16)) // 160 files, 4 a block
	}
	must(t, i.Apply(all, 0))
	must(t, i.Flush())
	if s := i.Stats(); s.BaseBlocks != 40 || s.BaseFiles != 160 {
		t.Fatalf("%+v", s)
	}
	// New keys behind all others, and a few in one block.
	offset := int64(0)
	for round := 0; round < 30; round++ {
		offset++
		must(t, i.Apply([]Entry{live(201, 500+uint64(round)), live(uint64(10000+round), 500)}, offset))
		must(t, i.Flush())
		must(t, i.Verify())
	}
	s := i.Stats()
	if s.BaseEntries != n+1+30 || s.BaseBlocks > 43 {
		t.Fatalf("%d entries in %d blocks", s.BaseEntries, s.BaseBlocks)
	}
	if s.BaseFiles < 160+20 {
		t.Fatalf("%d files: the table was written anew although most of it is in use", s.BaseFiles)
	}
	// All rows move to one file: the others leave the table.
	for k := range all {
		all[k].File = 1000
	}
	for range 2 {
		offset++
		must(t, i.Apply(all, offset))
		must(t, i.Flush())
	}
	if s := i.Stats(); s.BaseFiles > 3 {
		t.Fatalf("%d files in the table", s.BaseFiles)
	}
}

// TestLookupAllocates nothing once its memory has settled.
func TestLookupAllocates(t *testing.T) {
	i, err := Open(t.TempDir(), Options{Sync: true})
	must(t, err)
	must(t, i.Apply(rows(50_000, 1), 1))
	must(t, i.Flush())
	must(t, i.Apply(rows(10_000, 2), 2))
	keys := make([]Key, 0, 1000)
	for k := range 1000 {
		keys = append(keys, Key{Hi: uint64(k) * 149})
	}
	var out []Found
	allocs := testing.AllocsPerRun(20, func() {
		out, err = i.Lookup(keys, out[:0])
		must(t, err)
	})
	if allocs > 0 {
		t.Errorf("%v allocations a lookup", allocs)
	}
	must(t, i.Close())
}

// TestBaseIsCutBetweenRecords: a record folded in several calls is in a base
// whole or not at all, for its Offset says that it is complete.
func TestBaseIsCutBetweenRecords(t *testing.T) {
	fs := vfs.NewMem()
	o := Options{FS: fs, Sync: true, DeltaLimit: 2}
	i, err := Open("/index", o)
	must(t, err)
	must(t, i.Apply([]Entry{live(1, 1), live(2, 1), live(3, 1)}, 1))
	must(t, i.Apply([]Entry{live(4, 1)}, 1))
	must(t, i.Apply([]Entry{live(5, 1)}, 1))
	if n := i.Stats().Merges; n != 0 {
		t.Fatalf("%d merges inside a record", n)
	}
	must(t, i.Apply([]Entry{live(6, 2)}, 2))
	must(t, i.Close()) // as a crash: record 2 was not flushed
	i, err = Open("/index", o)
	must(t, err)
	if i.Offset() != 1 || i.Len() != 5 {
		t.Fatalf("came back at %d with %d entries", i.Offset(), i.Len())
	}
	must(t, i.Close())
}

// TestExpiredLeave: expired tombstones leave blocks that nothing else changes.
func TestExpiredLeave(t *testing.T) {
	i := openMem(t, Options{BlockEntries: 16})
	var all []Entry
	for k := uint64(0); k < 320; k++ {
		if k%16 == 3 && k < 160 {
			all = append(all, dead(k, int64(k)))
		} else {
			all = append(all, live(k, 1))
		}
	}
	must(t, i.Apply(all, 1))
	must(t, i.Flush())
	if s := i.Stats(); s.BaseTombstones != 10 || s.BaseBlocks != 20 {
		t.Fatalf("%+v", s)
	}
	i.Expire(3 + 16*7)
	must(t, i.Flush())
	must(t, i.Verify())
	if s := i.Stats(); s.BaseTombstones != 3 || s.BaseEntries != 313 {
		t.Fatalf("%d entries, %d tombstones", s.BaseEntries, s.BaseTombstones)
	}
}
