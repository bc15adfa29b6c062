package topology

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

func TestSortedRuns(t *testing.T) {
	for _, n := range []int{0, 1, 99, 100, 1234} {
		dir := t.TempDir()
		s := newSortedRuns(dir)
		s.max = 100
		r := rand.New(rand.NewPCG(1, uint64(n)))
		var want []item
		for range n {
			x := item{hi: r.Uint64N(20), lo: r.Uint64N(3), a: r.Uint64N(5), b: r.Uint64(), c: r.Uint64(), d: r.Uint64()}
			want = append(want, x)
			if err := s.add(x); err != nil {
				t.Fatal(err)
			}
		}
		slices.SortFunc(want, func(x, y item) int { return x.compare(&y) })
		it, err := s.sorted()
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if x, err := it.next(); err != nil || x == nil || *x != want[i] {
				t.Fatalf("item %d of %d: %v, %v", i, n, x, err)
			}
		}
		if x, err := it.next(); err != nil || x != nil {
			t.Fatal("more items than were added")
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		if es, err := os.ReadDir(dir); err != nil || len(es) != 0 {
			t.Fatalf("%d runs are left", len(es))
		}
	}
}
