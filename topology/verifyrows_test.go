package topology

import (
	"math"
	"strings"
	"testing"

	"github.com/varve-io/varve/statestore"

	"github.com/RoaringBitmap/roaring/v2"
)

func runsOf(t *testing.T, items ...item) *sortedRuns {
	t.Helper()
	s := newSortedRuns(t.TempDir())
	s.max = 2 // on disk too
	for _, x := range items {
		if err := s.add(x); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func finds(t *testing.T, v *verifier, want ...string) {
	t.Helper()
	if len(v.out.Findings) != len(want) {
		t.Fatalf("%d findings, not %d: %+v", len(v.out.Findings), len(want), v.out.Findings)
	}
	for i, w := range want {
		if got := v.out.Findings[i].What; !strings.Contains(got, w) {
			t.Errorf("finding %d: no %q in %q", i, w, got)
		}
	}
}

func newVerifier() *verifier { return &verifier{out: &Verified{}, part: &replayPart{}} }

// TestVerifyIndex: each way in which entries and live rows can differ is told.
func TestVerifyIndex(t *testing.T) {
	dead := roaring.BitmapOf(3)
	known := map[uint64]*indexedFile{
		1: {10, "one", dead, 5, false}, 2: {10, "two", roaring.New(), 9, false}, 3: {10, "three", dead, 12, false},
		4: {10, "four", dead, 12, true},
	}
	live := []item{{hi: 1, a: 1, b: 0}, {hi: 2, a: 1, b: 1}, {hi: 3, a: 2, b: 0}}
	for _, c := range []struct {
		name           string
		divided        int64
		files, entries []item
		want           []string
	}{
		{"equal", -1, live, live, nil},
		{"an entry is lost", -1, live, live[:2], []string{"row 0 of two is live, and its key has no entry"}},
		{"an entry to a dead row", -1, live, append(live[:3:3], item{hi: 9, a: 1, b: 3}), []string{"row 3 of one, which is dead"}},
		{"an entry to a file that left", -1, live, append(live[:3:3], item{hi: 9, a: 7, b: 3}), []string{"file 7, which is not there"}},
		{"an entry behind the end", -1, live, append(live[:3:3], item{hi: 9, a: 2, b: 10}), []string{"row 10 of two, which has 10"}},
		{"an entry of another key", -1, live, append(live[:3:3], item{hi: 9, a: 2, b: 0}), []string{"row 0 of two for another key"}},
		{"two live rows of a key", -1, append(live[:3:3], item{hi: 3, a: 2, b: 5}), append(live[:3:3], item{hi: 3, a: 2, b: 5}), []string{"two live rows", "two entries"}},
		{"an entry to a file that cannot be read", -1, live, append(live[:3:3], item{hi: 9, a: 4, b: 5}), nil},
		{"divided: siblings", 10, live, append(live[:3:3], live...), nil},
		{"divided: one alone has it", 10, live, append(live[:2:2], live...), nil},
		{"divided: none has it", 10, live, append(live[:2:2], live[:2]...), []string{"row 0 of two is live, and its key has no entry"}},
		{"divided: a sibling's row died", 10, live, append(live[:3:3], item{hi: 9, a: 1, b: 3}, item{hi: 1, a: 1, b: 3}, item{hi: 9, a: 7, b: 3}), nil},
		{"divided: its own row died", 10, live, append(live[:3:3], item{hi: 9, a: 3, b: 3}), []string{"row 3 of three, which is dead"}},
		{"divided: another key", 10, live, append(live[:3:3], item{hi: 9, a: 2, b: 0}), []string{"row 0 of two for another key"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newVerifier()
			if err := v.joinIndex(&statestore.TableInfo{Name: "t"}, c.divided, runsOf(t, c.files...), runsOf(t, c.entries...), func(id uint64) (*indexedFile, error) { return known[id], nil }); err != nil {
				t.Fatal(err)
			}
			finds(t, v, c.want...)
		})
	}
}

// TestVerifySource: a lost row and a doubled one do not cancel out; late events
// lose, deletes count, requests excuse.
func TestVerifySource(t *testing.T) {
	up := func(key, offset, hash uint64) item { return item{hi: key, b: offset << 8, c: hash, d: hash << 3} }
	row := func(key, pos, hash uint64) item { return item{hi: key, a: 1, b: pos, c: hash, d: hash << 3} }
	ordered := func(x item, order uint64) item { x.e, x.d = order, x.d|eventHasOrder; return x }
	gone := func(x item) item { x.d |= eventDelete; return x }
	since := func(x item, log uint64) item { x.a = log; return x }
	asks := func(key, log uint64) item { return item{hi: key, a: log, d: eventDelete | eventRequest} }
	answer := func(key, log, order uint64) item {
		return item{hi: key, a: log, b: math.MaxUint64, d: eventDelete | eventRequest | eventHasOrder, e: order}
	}
	shards := shardsAt{10: {partition: 0}, 20: {partition: 1}, 30: {partition: 0}, 40: {partition: 1}}
	for _, c := range []struct {
		name         string
		keyed        bool
		events, lake []item
		want         []string
	}{
		{"equal", true, []item{up(1, 0, 7), up(1, 1, 8), up(2, 2, 9), gone(up(3, 4, 0))}, []item{row(1, 0, 8), row(2, 1, 9)}, nil},
		{"late", true, []item{ordered(up(1, 0, 7), 5), ordered(up(1, 1, 8), 4), ordered(gone(up(1, 2, 0)), 3)}, []item{row(1, 0, 7)}, nil},
		{"a tie", true, []item{ordered(up(1, 0, 7), 5), ordered(up(1, 1, 8), 5)}, []item{row(1, 0, 8)}, nil},
		{"lost and doubled", true, []item{up(1, 3, 7), up(2, 4, 8)}, []item{row(2, 0, 8), row(2, 1, 8)}, []string{"lost: its last event is at source offset 3", "doubled: row 0 of file 1 and row 1"}},
		{"stale", true, []item{up(1, 3, 7), up(1, 4, 8)}, []item{row(1, 0, 7)}, []string{"other values than the event at source offset 4"}},
		{"revived", true, []item{up(1, 3, 7), gone(up(1, 4, 0))}, []item{row(1, 0, 7)}, []string{"is live, and the source has no such row"}},
		{"a request", true, []item{since(up(1, 3, 7), 10), asks(1, 20)}, nil, nil},
		{"a request that was not answered", true, []item{since(up(1, 3, 7), 10), asks(1, 20)}, []item{row(1, 0, 7)}, []string{"is live, and the source has no such row"}},
		{"events behind a request", true, []item{since(up(1, 3, 7), 10), asks(1, 20), since(up(1, 4, 8), 30)}, []item{row(1, 0, 8)}, nil},
		{"late behind a request", true, []item{ordered(since(up(1, 3, 7), 10), 5), asks(1, 20), ordered(since(up(1, 4, 8), 30), 4)}, nil, nil},
		{"a request with a value", true, []item{ordered(since(up(1, 3, 7), 10), 5), answer(1, 10, 6), ordered(since(up(1, 4, 8), 30), 5)}, nil, nil},
		{"a request that is late", true, []item{ordered(since(up(1, 3, 7), 10), 5), answer(1, 10, 4)}, []item{row(1, 0, 7)}, nil},
		{"the answer of another shard", true, []item{ordered(since(up(1, 3, 7), 10), 5), answer(1, 10, 5), ordered(since(up(1, 4, 8), 30), 5), answer(1, 40, 5)}, []item{row(1, 0, 8)}, nil},
		{"another partition since a log offset", true, []item{since(up(1, 900, 7), 10), since(up(1, 0, 8), 20)}, []item{row(1, 0, 8)}, nil},
		{"without key", false, []item{up(1, 0, 1), up(1, 1, 1), up(2, 2, 2)}, []item{row(1, 0, 1), row(2, 1, 2), row(2, 2, 2)}, []string{"lost: its last event is at source offset 1", "doubled"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newVerifier()
			es, err := runsOf(t, c.events...).sorted()
			if err != nil {
				t.Fatal(err)
			}
			ls, err := runsOf(t, c.lake...).sorted()
			if err != nil {
				t.Fatal(err)
			}
			if err := v.joinSource(&statestore.TableInfo{Name: "t"}, c.keyed, es, ls, shards); err != nil {
				t.Fatal(err)
			}
			finds(t, v, c.want...)
		})
	}
}
