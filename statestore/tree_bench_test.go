package statestore_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// growTo gives a table's tree so many leaves, in two levels of at most 4096
// children, and one file on each leaf.
func growTo(t testing.TB, l *logBuilder, id int64, first uint64, leaves int) (firstLeaf int64) {
	t.Helper()
	keys := treeBody()
	const fan = 25
	top := leaves / fan
	do := func(p *record.SplitPartition) []int64 {
		o := l.do("t", id, p).Outcome
		if o.Code != record.Accepted {
			t.Fatalf("%s: %s %v", o.Code, o.Reason, o.Numbers)
		}
		l.commit()
		l.made = l.made[:0]
		return o.Numbers
	}
	n := do(&record.SplitPartition{Separators: &keys, Items: []record.SplitItem{{Node: 0, Children: int32(top)}}})
	p := &record.SplitPartition{Separators: &keys}
	for i := range top {
		p.Items = append(p.Items, record.SplitItem{Node: n[record.SplitFirst] + int64(i), Children: fan})
	}
	firstLeaf = do(p)[record.SplitFirst]
	down := record.SplitItem{Node: 0}
	for i := range leaves {
		down.Refs = append(down.Refs, record.TreeRef{File: first + uint64(i), Hi: 100, Pieces: []record.TreePiece{{To: firstLeaf + int64(i), Rows: 100}}})
	}
	do(&record.SplitPartition{Items: []record.SplitItem{down}})
	return firstLeaf
}

func treeBody() record.Ref {
	r := record.Ref{Hash: record.Hash{6}, Length: 40}
	r.Path = "_varve/x/bodies/" + r.Hash.String()
	return r
}

// splits are as many items, each of which halves a leaf and its file.
func splits(firstLeaf int64, first uint64, n int) *record.SplitPartition {
	keys := treeBody()
	p := &record.SplitPartition{Separators: &keys}
	for i := range n {
		p.Items = append(p.Items, record.SplitItem{Node: firstLeaf + int64(i), Children: 2, Refs: []record.TreeRef{
			{File: first + uint64(i), Hi: 100, Pieces: []record.TreePiece{{To: 0, Rows: 40}, {To: 1, Rows: 60}}},
		}})
	}
	return p
}

// TestManySplits: 100,000 splits in one transaction (F8) change every leaf and every
// file, all of them or, bent, all but one; what it takes of memory is bounded.
func TestManySplits(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	l := newLog(t, t.TempDir())
	id, first := jobFiles(t, l, n)
	leaf := growTo(t, l, id, first, n)
	p := splits(leaf, first, n)
	p.Items[7].Refs[0].Pieces[1].Rows++ // it does not add up: one bad item blocks no other (L12)
	r := l.raw("t", id, p)
	*p = record.SplitPartition{}
	before := heap()
	began := time.Now()
	o := l.put(r).Outcome
	took := time.Since(began)
	l.commit()
	l.made = l.made[:0]
	if o.Code != record.Partly || o.Numbers[record.SplitAccepted] != int64(n-1) || o.Numbers[record.SplitRejected] != 1 {
		t.Fatalf("%s: %s %v", o.Code, o.Reason, o.Numbers)
	}
	if err := l.st.Flush(); err != nil {
		t.Fatal(err)
	}
	if grown := heap() - before; grown > 512<<20 {
		t.Errorf("%d MiB more are held after %d splits", grown>>20, n)
	}
	t.Logf("%d splits in %s, a record of %d bytes", n, took.Round(time.Millisecond), len(r.Value))
	leaves, inner := 0, 0
	if err := l.st.Tree(id, func(n *statestore.NodeInfo) error {
		if n.Children == 0 {
			leaves++
		} else {
			inner++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if leaves != 2*n-1 || inner != 1+n/25+n-1 {
		t.Errorf("the tree has %d leaves and %d inner nodes", leaves, inner)
	}
	// A job takes what is on its leaf, as far as the tree went.
	parts := 0
	if err := l.st.References(id, 0, func(r *statestore.Reference) bool {
		if r.File == first+7 {
			if r.Lo != 0 || r.Hi != 100 || r.Node != leaf+7 {
				t.Errorf("the file of the bad item is %+v", r)
			}
		} else if r.Hi-r.Lo != 40 && r.Hi-r.Lo != 60 {
			t.Errorf("%+v", r)
			return false
		}
		parts++
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if parts != 2*n-1 {
		t.Errorf("there are %d references", parts)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkSplits halves so many leaves in one transaction.
func BenchmarkSplits(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("splits=%d", n), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				l := newLog(b, b.TempDir())
				id, first := jobFiles(b, l, n)
				leaf := growTo(b, l, id, first, n)
				r := l.raw("t", id, splits(leaf, first, n))
				b.StartTimer()
				if o := l.put(r).Outcome; o.Code != record.Accepted {
					b.Fatalf("%s: %s", o.Code, o.Reason)
				}
				l.commit()
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "splits/s")
		})
	}
}
