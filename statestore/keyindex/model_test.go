package keyindex

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

// state is what an index holds, as a Go map.
type state struct {
	offset  int64
	horizon int64
	entries map[Key]Entry
}

func (s *state) clone() state {
	return state{s.offset, s.horizon, maps.Clone(s.entries)}
}

func (s *state) fold(entries []Entry) {
	for _, e := range entries {
		s.entries[e.Key] = normal(e)
	}
}

// normal is e as the index gives it back.
func normal(e Entry) Entry {
	if e.File == 0 {
		e.Pos, e.RowID = 0, NoRowID
	} else {
		e.Offset, e.Time = 0, 0
	}
	if !e.HasOrder {
		e.Order = 0
	}
	return e
}

func (s *state) visible(e Entry) bool { return e.File != 0 || e.Time >= s.horizon }

func (s *state) sorted() []Entry {
	var all []Entry
	for _, e := range s.entries {
		if s.visible(e) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int {
		if a.Key.Less(b.Key) {
			return -1
		}
		return 1
	})
	return all
}

// shape bounds what a generated batch looks like, so that columns come out
// absent, constant, mixed and full.
type shape struct {
	wide     bool
	universe int
	extreme  bool
	files    uint64
}

// key gives the i-th key of the universe, in order.
func (s shape) key(i int) Key {
	if s.wide {
		// Many keys share the high half.
		hi, lo := uint64(i/7)*0x9e3779b97f4a, uint64(i%7)<<61
		if i%7 == 3 {
			lo |= math.MaxUint32
		}
		return Key{Hi: hi, Lo: lo}
	}
	if s.extreme && i == s.universe-1 {
		return Key{Hi: math.MaxUint64}
	}
	if i%512 < 256 {
		return Key{Hi: uint64(i)}
	}
	return Key{Hi: uint64(i-i%512+256) + uint64(i%512-256)*0x1p10}
}

func (s shape) keys() []Key {
	keys := make([]Key, s.universe)
	for i := range keys {
		keys[i] = s.key(i)
	}
	slices.SortFunc(keys, func(a, b Key) int {
		if a.Less(b) {
			return -1
		}
		if b.Less(a) {
			return 1
		}
		return 0
	})
	return slices.Compact(keys)
}

// batch makes entries for a share of keys[from:to].
func (s shape) batch(rng *rand.Rand, keys []Key, time int64) []Entry {
	from := rng.IntN(len(keys))
	to := from + 1 + rng.IntN(len(keys)-from)
	share := []float64{0.002, 0.05, 0.5, 1}[rng.IntN(4)]
	tombs := []float64{0, 0.02, 0.5, 1}[rng.IntN(4)]
	orders := []float64{0, 0.5, 1, 1}[rng.IntN(4)]
	ids := []float64{0, 0, 0.5, 1}[rng.IntN(4)]
	file := 1 + rng.Uint64N(s.files)
	var out []Entry
	for _, k := range keys[from:to] {
		if rng.Float64() >= share {
			continue
		}
		e := Entry{Key: k, File: file, Pos: uint32(len(out)), RowID: NoRowID}
		if rng.IntN(10) == 0 {
			e.File = 1 + rng.Uint64N(s.files)
		}
		if rng.Float64() < ids {
			e.RowID = rng.Int64N(1 << 40)
		}
		if rng.Float64() < orders {
			e.HasOrder, e.Order = true, 1_700_000_000_000+rng.Int64N(1<<20)
		}
		if rng.Float64() < tombs {
			e = Entry{Key: k, Order: e.Order, HasOrder: e.HasOrder, RowID: NoRowID, Offset: rng.Int64N(1 << 30), Time: time}
		}
		if s.extreme && rng.IntN(20) == 0 {
			if e.File == 0 {
				e.Time = []int64{time, math.MaxInt64, math.MinInt64}[rng.IntN(3)]
				e.Offset = []int64{-1, 0, math.MaxInt64}[rng.IntN(3)]
			} else {
				e.File = []uint64{math.MaxUint64, 1 << 63, 1}[rng.IntN(3)]
				e.Pos = []uint32{0, math.MaxUint32}[rng.IntN(2)]
				e.RowID = []int64{NoRowID, 0, math.MaxInt64}[rng.IntN(3)]
			}
			if e.HasOrder {
				e.Order = []int64{math.MinInt64, -1, math.MaxInt64}[rng.IntN(3)]
			}
		}
		out = append(out, e)
	}
	return out
}

func checkContents(i *Index, want *state) error {
	if i.Offset() != want.offset {
		return fmt.Errorf("offset %d, want %d", i.Offset(), want.offset)
	}
	rows := want.sorted()
	n := 0
	err := i.Iterate(func(e *Entry) error {
		if n >= len(rows) {
			return fmt.Errorf("more than %d entries", len(rows))
		}
		if *e != rows[n] {
			return fmt.Errorf("entry %d is %+v, want %+v", n, *e, rows[n])
		}
		n++
		return nil
	})
	if err != nil {
		return err
	}
	if n != len(rows) {
		return fmt.Errorf("%d entries, want %d", n, len(rows))
	}
	return nil
}

// step is one confirmed change, in log order, so that a restarted index can be
// folded again (K4).
type step struct {
	offset  int64
	entries []Entry
	expire  int64
}

// TestModel: whatever the options and whenever merges and crashes happen, the
// index answers as a Go map does, a crash comes back to a state that the index
// had at that offset, and folding again from there gives the same index.
func TestModel(t *testing.T) { rapid.Check(t, runModel) }

func runModel(t *rapid.T) {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	sh := shape{
		wide:     rapid.Bool().Draw(t, "wide"),
		universe: rapid.SampledFrom([]int{5, 300, 5000}).Draw(t, "universe"),
		extreme:  rapid.Bool().Draw(t, "extreme"),
		files:    rapid.SampledFrom([]uint64{1, 40, 1 << 62}).Draw(t, "files"),
	}
	keys := sh.keys()
	o := Options{
		Wide:         sh.wide,
		DeltaLimit:   rapid.SampledFrom([]int{1, 100, 2500, 1 << 20}).Draw(t, "deltaLimit"),
		BlockEntries: rapid.SampledFrom([]int{16, 100, 512, 4096}).Draw(t, "blockEntries"),
		Identity:     []byte("table 7 shard 3"),
		Sync:         rapid.Bool().Draw(t, "sync"),
	}
	mem := vfs.NewCrashableMem()
	open := func() *Index {
		o.FS = mem
		i, err := Open("/index", o)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	i := open()
	defer func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	}()

	type pending struct {
		id      uint64
		entries []Entry
	}
	now := state{offset: NoOffset, horizon: math.MinInt64, entries: map[Key]Entry{}}
	past := []state{now.clone()} // every state the index was in
	var log []step
	var overlays []pending
	nextID, time := uint64(1), int64(1000)
	cut := NoOffset // where the owner said that the record is whole
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	did := func(s step) { log = append(log, s); past = append(past, now.clone()) }

	actions := rapid.SliceOfN(rapid.SampledFrom([]string{
		"apply", "apply", "apply", "part", "push", "push", "confirm", "confirm", "drop",
		"setOffset", "expire", "merge", "flush", "lookup", "lookup", "iterate", "crash", "reopen", "checkpoint",
	}), 1, 60).Draw(t, "actions")
	for _, action := range actions {
		time += rng.Int64N(100)
		switch action {
		case "apply", "part":
			offset := now.offset + 1 + rng.Int64N(3)
			if action == "part" && now.offset > cut {
				offset = now.offset
			}
			entries := sh.batch(rng, keys, time)
			must(i.Apply(entries, offset))
			now.offset = offset
			now.fold(entries)
			did(step{offset: offset, entries: entries})
		case "push":
			entries := sh.batch(rng, keys, time)
			must(i.Push(nextID, entries))
			overlays = append(overlays, pending{nextID, entries})
			nextID += 1 + rng.Uint64N(2)
		case "confirm":
			if len(overlays) == 0 {
				continue
			}
			p := overlays[0]
			overlays = overlays[1:]
			now.offset++
			if rng.IntN(2) == 0 {
				must(i.Confirm(p.id, now.offset))
			} else {
				must(i.ConfirmAt(p.id, now.offset, time))
				p.entries = slices.Clone(p.entries)
				for x := range p.entries {
					if e := &p.entries[x]; e.File == 0 && e.Time == PendingTime {
						e.Time = time
						if e.Offset == 0 {
							e.Offset = now.offset
						}
					}
				}
			}
			now.fold(p.entries)
			did(step{offset: now.offset, entries: p.entries})
		case "drop":
			i.DropOverlays()
			overlays = nil
		case "setOffset":
			now.offset += rng.Int64N(3)
			must(i.SetOffset(now.offset))
			did(step{offset: now.offset})
		case "expire":
			before := time - rng.Int64N(300)
			i.Expire(before)
			now.horizon = max(now.horizon, before)
			did(step{offset: now.offset, expire: before})
		case "merge":
			must(i.Merge())
			cut = now.offset
		case "flush":
			must(i.Flush())
			cut = now.offset
			past = []state{now.clone()} // nothing older may come back
		case "lookup":
			share := []float64{0.01, 0.3, 1}[rng.IntN(3)]
			var ask []Key
			for _, k := range keys {
				if rng.Float64() < share {
					ask = append(ask, k)
				}
				near := Key{Hi: k.Hi, Lo: k.Lo + 1}
				if !sh.wide {
					near = Key{Hi: k.Hi + 1}
				}
				if rng.Float64() < share/2 && k.Less(near) {
					ask = append(ask, near)
				}
			}
			slices.SortFunc(ask, func(a, b Key) int {
				if a.Less(b) {
					return -1
				}
				if b.Less(a) {
					return 1
				}
				return 0
			})
			ask = slices.Compact(ask)
			dirty := make([]Found, 3, 3+rng.IntN(len(ask)+1))
			for x := range dirty[:cap(dirty)] {
				dirty[:cap(dirty)][x] = Found{Entry: Entry{File: 9, Pos: 9, RowID: 9, Order: 9, HasOrder: true, Offset: 9, Time: 9}, Present: true, Pending: true}
			}
			out, err := i.Lookup(ask, dirty)
			must(err)
			if len(out) != len(ask)+3 {
				t.Fatalf("%d answers for %d keys", len(out)-3, len(ask))
			}
			top := map[Key]Entry{}
			for _, p := range overlays {
				for _, e := range p.entries {
					top[e.Key] = normal(e)
				}
			}
			for x, k := range ask {
				want := Found{Entry: Entry{Key: k}}
				e, pending := top[k]
				ok := pending
				if !ok {
					e, ok = now.entries[k]
				}
				if ok && now.visible(e) {
					want = Found{Entry: e, Present: true, Pending: pending}
				}
				if out[3+x] != want {
					t.Fatalf("key %d of %d: %+v, want %+v", x, len(ask), out[3+x], want)
				}
			}
		case "iterate":
			must(checkContents(i, &now))
		case "checkpoint":
			var b bytes.Buffer
			c, err := i.Checkpoint(&b)
			must(err)
			if c.Offset != now.offset || c.Size != int64(b.Len()) {
				t.Fatalf("checkpoint %d bytes at %d, wrote %d at %d", c.Size, c.Offset, b.Len(), now.offset)
			}
			other := o
			other.FS, other.DeltaLimit = vfs.NewMem(), 1+rng.IntN(3000)
			must(Restore("/other", bytes.NewReader(b.Bytes()), other))
			r, err := Open("/other", other)
			must(err)
			must(checkContents(r, &now))
			// The same contents, built another way, give the same bytes.
			var all bytes.Buffer
			rows := now.sorted()
			fresh, err := Open("/fresh", other)
			must(err)
			half := rng.IntN(len(rows) + 1)
			fresh.Expire(now.horizon)
			must(fresh.Apply(rows[half:], now.offset))
			must(fresh.Apply(rows[:half], now.offset))
			_, err = fresh.Checkpoint(&all)
			must(err)
			if !bytes.Equal(all.Bytes(), b.Bytes()) {
				t.Fatalf("checkpoint of %d bytes differs from that of an index with the same contents", b.Len())
			}
			must(fresh.Close())
			must(r.Close())
		case "crash", "reopen":
			if action == "crash" {
				after := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
				must(i.Close())
				mem = after
			} else {
				must(i.Close())
			}
			i = open()
			overlays = nil
			must(i.Verify())
			var err error
			match := slices.IndexFunc(past, func(s state) bool {
				if s.offset != i.Offset() {
					return false
				}
				err = checkContents(i, &s)
				return err == nil
			})
			if match < 0 {
				t.Fatalf("came back at offset %d with contents it never had: %v", i.Offset(), err)
			}
			from := i.Offset()
			for _, s := range log {
				if s.expire != 0 {
					i.Expire(s.expire)
				} else if s.offset > from {
					must(i.Apply(s.entries, s.offset))
				}
			}
			must(checkContents(i, &now))
			past = append(past, now.clone())
		}
	}
	must(checkContents(i, &now))
	must(i.Flush())
	must(i.Verify())
	must(checkContents(i, &now))
	if i.Len() != int64(len(now.sorted())) && i.base.oldestTomb >= i.horizon {
		t.Fatalf("%d entries after Flush, want %d", i.Len(), len(now.sorted()))
	}
}
