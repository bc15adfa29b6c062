package statestore_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// Two owners believe that a shard is theirs (A2, A3). A has two appends on
// their way when B claims; B makes its own of what the claim's outcome tells,
// all in flight, in parts of its own choice. They meet in the log in every
// order. Key k lives in file F0; any of three source events may be an upsert
// of k. At the end a third owner reads the rest. k must live once, with the
// value of its last event.
//
// The same schedules run through a model of the rules, whose checks can be
// taken out one by one, and through Apply.

// checks are what the model's state looks at before it accepts an append.
type checks struct{ ranges, epochs, blocks bool }

// flush is an append: source range, the file that it adds when it has k (0:
// none), and the file whose version of k it kills (0: none).
type flush struct {
	owner    int // 0 A, 1 B, 2 the third
	epoch    int
	from, to int
	file     int
	kills    int
}

type believers struct {
	on    checks
	epoch int
	open  bool
	end   int
	live  map[int]bool // by file; absent: no such file
	index int          // the file of k after the newest accepted append
	made  []bool       // accepted, in log order, appends and claims
}

const f0 = 100

func newBelievers(on checks) *believers {
	return &believers{on: on, live: map[int]bool{f0: true}, index: f0, epoch: 1, open: true}
}

// apply decides one append.
func (m *believers) apply(f *flush) bool {
	ok := true
	switch {
	case m.on.epochs && (f.epoch != m.epoch || !m.open):
		ok = false
	case m.on.ranges && f.from != m.end:
		ok = false
	case m.on.blocks && f.kills != 0:
		if _, there := m.live[f.kills]; !there {
			ok = false
		}
	}
	m.made = append(m.made, ok)
	if !ok {
		if f.epoch == m.epoch {
			m.open = false
		}
		return false
	}
	if f.file != 0 {
		m.live[f.file] = true
		m.index = f.file
	}
	if _, there := m.live[f.kills]; there {
		m.live[f.kills] = false
	}
	m.end = f.to
	return true
}

// plan makes an owner's appends over parts of a range, by what it knows: where
// k lives. File numbers are owner*10 + the event that wrote k last, + 1.
func plan(owner, epoch, from, index int, parts []int, isK [3]bool) []*flush {
	var out []*flush
	for _, n := range parts {
		f := &flush{owner: owner, epoch: epoch, from: from, to: from + n}
		for e := from; e < from+n; e++ {
			if isK[e] {
				f.file, f.kills = owner*10+e+1, index
			}
		}
		if f.file != 0 {
			index = f.file
		}
		out = append(out, f)
		from += n
	}
	return out
}

// schedule runs one order of A's appends and B's claim and appends: order[i]
// says whether the i-th record is A's. It returns the log, claims as nil.
func schedule(m *believers, isK [3]bool, parts []int, order []bool) []*flush {
	a := plan(0, 1, 0, f0, []int{1, 1}, isK)
	var b, log []*flush
	claimed := false
	next := 0
	for _, isA := range order {
		switch {
		case isA:
			log = append(log, a[0])
			m.apply(a[0])
			a = a[1:]
		case !claimed:
			claimed = true
			log = append(log, nil)
			m.epoch, m.open = 2, true
			m.made = append(m.made, true)
			// B's index is folded up to its claim.
			var rest []int
			for at, i := m.end, 0; at < 3; i++ {
				n := min(parts[i%len(parts)], 3-at)
				rest = append(rest, n)
				at += n
			}
			b = plan(1, 2, m.end, m.index, rest, isK)
		case next < len(b):
			log = append(log, b[next])
			m.apply(b[next])
			next++
		}
	}
	for ; next < len(b); next++ {
		log = append(log, b[next])
		m.apply(b[next])
	}
	log = append(log, nil)
	m.epoch, m.open = 3, true
	m.made = append(m.made, true)
	if m.end < 3 {
		last := plan(2, 3, m.end, m.index, []int{3 - m.end}, isK)
		log = append(log, last[0])
		m.apply(last[0])
	}
	return log
}

// wrong says what of the end is wrong.
func (m *believers) wrong(isK [3]bool) string {
	last := -1
	for e, k := range isK {
		if k {
			last = e
		}
	}
	var lives []int
	for f, live := range m.live {
		if live {
			lives = append(lives, f)
		}
	}
	switch {
	case m.end != 3:
		return fmt.Sprintf("the source ends at %d", m.end)
	case len(lives) != 1:
		return fmt.Sprintf("k lives %d times", len(lives))
	case last < 0 && lives[0] != f0, last >= 0 && lives[0]%10 != last+1:
		return fmt.Sprintf("k lives in file %d, its last event is %d", lives[0], last)
	}
	return ""
}

// everyBelief runs fn with every schedule.
func everyBelief(fn func(isK [3]bool, parts []int, order []bool)) {
	for mask := range 1 << 3 {
		isK := [3]bool{mask&1 > 0, mask&2 > 0, mask&4 > 0}
		for _, parts := range [][]int{{1}, {2, 1}, {1, 2}, {3}} {
			for bits := range 1 << 6 {
				order, as := make([]bool, 6), 0
				for i := range order {
					order[i] = bits>>i&1 == 1
					if order[i] {
						as++
					}
				}
				if as == 2 {
					fn(isK, parts, order)
				}
			}
		}
	}
}

func TestTwoOwnersExhaustive(t *testing.T) {
	for _, c := range []struct {
		on    checks
		holds bool
	}{
		{checks{true, true, true}, true},
		// The block check hides the loss of the epochs, and the reverse.
		{checks{ranges: true, blocks: true}, true},
		{checks{ranges: true, epochs: true}, true},
		// Neither: a third flush in flight is taken though its second was not.
		{checks{ranges: true}, false},
		{checks{blocks: true}, false},
		{checks{}, false},
	} {
		runs, broken, first := 0, 0, ""
		everyBelief(func(isK [3]bool, parts []int, order []bool) {
			m := newBelievers(c.on)
			schedule(m, isK, parts, order)
			runs++
			if w := m.wrong(isK); w != "" {
				if broken++; first == "" {
					first = fmt.Sprintf("events of k %v, parts %v, A's turns %v: %s", isK, parts, order, w)
				}
			}
		})
		if (broken == 0) != c.holds {
			t.Errorf("checks %+v: %d of %d schedules are broken; %s", c.on, broken, runs, first)
		}
	}
}

// TestTwoOwnersApply: Apply decides every record of every schedule as the model
// with all checks, and its files end as the model's.
func TestTwoOwnersApply(t *testing.T) {
	st, err := openMem(vfs.NewMem(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	l := &logBuilder{t: t, st: st, timeMs: startMs}
	t.Cleanup(func() { st.Close() })
	l.genesis()
	run := 0
	everyBelief(func(isK [3]bool, parts []int, order []bool) {
		m := newBelievers(checks{true, true, true})
		log := schedule(m, isK, parts, order)
		run++
		name := fmt.Sprintf("t%d", run)
		id := l.do(name, -1, &record.CreateTable{Definition: definition(name)}).TableID
		writers := map[int]int64{} // by owner
		epochs := map[int]int64{}
		files := map[int]uint64{}
		counters := map[int]int64{}
		requests := int64(0)
		claim := func(owner int) {
			out := l.do(name, id, &record.ClaimShard{Shard: shardKey(0), LogStart: 0})
			writers[owner], epochs[owner] = out.Outcome.Numbers[record.ClaimWriter], out.Offset
			requests = out.Outcome.Numbers[record.ClaimRequestEnd]
		}
		send := func(f *flush) record.Code {
			counters[f.owner]++
			a := &record.AppendRows{
				Shard: shardKey(0), Epoch: epochs[f.owner], Counter: counters[f.owner], SourceFrom: int64(f.from) + 1, SourceTo: int64(f.to) + 1,
				RequestFrom: requests, RequestTo: requests, Changes: ref(1),
			}
			if f.file != 0 {
				files[f.file] = statestore.FileID(uint32(writers[f.owner]), uint64(counters[f.owner]))
				a.Files = []record.DataFile{{ID: files[f.file], Rows: 1, Bytes: 1}}
			}
			if f.kills != 0 {
				a.Deletes = []record.DeleteBlock{{File: files[f.kills], Bitmap: positions(0)}}
			}
			return l.do(name, id, a).Outcome.Code
		}
		claim(0)
		// F0 and its k: A's first append, one event before the schedule's.
		if code := send(&flush{from: -1, to: 0, file: f0}); code != record.Accepted {
			t.Fatalf("F0: %s", code)
		}
		owner := 0
		for i, f := range log {
			if f == nil {
				owner++
				claim(owner)
				continue
			}
			if got := send(f) == record.Accepted; got != m.made[i] {
				t.Fatalf("events of k %v, parts %v, A's turns %v: record %d (%+v) accepted %t, the model says %t", isK, parts, order, i, *f, got, m.made[i])
			}
		}
		l.commit()
		lives := map[uint64]bool{}
		if err := st.Files(id, func(f *statestore.FileInfo) error {
			if f.Dead == nil {
				lives[f.ID] = true
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for f, live := range m.live {
			if lives[files[f]] != live {
				t.Fatalf("events of k %v, parts %v, A's turns %v: file %d lives %t, the model says %t", isK, parts, order, f, lives[files[f]], live)
			}
		}
	})
	t.Logf("%d schedules", run)
}
