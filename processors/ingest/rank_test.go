package ingest

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/statestore/keyindex"
)

// TestRadix: short and long lists sort alike, equal ones in their order, with
// room that is too small or used before.
func TestRadix(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var room []rank
	for _, n := range []int{0, 1, 2, 255, 256, 5000, 300} {
		for _, bits := range []int{0, 3, 12, 33, 64} {
			in := make([]rank, n)
			for i := range in {
				in[i] = rank{r.Uint64() >> (64 - bits), uint32(i)}
			}
			want := slices.Clone(in)
			slices.SortStableFunc(want, func(x, y rank) int { return cmp.Compare(x.by, y.by) })
			var got []rank
			if got, room = radix(in, room); !slices.Equal(got, want) {
				t.Fatalf("%d of %d bits: wrong order", n, bits)
			}
		}
	}
}

// TestSortRows: rows lie in the order of their keys' bytes, whatever prefix the
// keys share and wherever they differ.
func TestSortRows(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, prefix := range []string{"", "a", "customer-0000000"} {
		for _, n := range []int{0, 1, 2, 100, 3000} {
			seen := map[string]bool{}
			var keys [][]byte
			for len(keys) < n {
				k := []byte(prefix)
				for range r.IntN(12) {
					k = append(k, "\x00\x01ab"[r.IntN(4)])
				}
				if !seen[string(k)] {
					seen[string(k)] = true
					keys = append(keys, k)
				}
			}
			sel := make([]uint32, len(keys))
			for i, p := range r.Perm(len(keys)) {
				sel[i] = uint32(p)
			}
			var b buffer
			b.sortRows(sel, func(row uint32) []byte { return keys[row] })
			for i := 1; i < len(sel); i++ {
				if bytes.Compare(keys[sel[i-1]], keys[sel[i]]) >= 0 {
					t.Fatalf("prefix %q, %d keys: %q before %q", prefix, n, keys[sel[i-1]], keys[sel[i]])
				}
			}
		}
	}
}

// TestSortLow: hashes whose first halves are equal are sorted by the others,
// those of one key in their order.
func TestSortLow(t *testing.T) {
	it := func(hi, lo uint64, at uint32) item { return item{keyindex.Key{Hi: hi, Lo: lo}, at} }
	got := []item{it(1, 5, 0), it(2, 9, 1), it(2, 3, 2), it(2, 9, 3), it(2, 3, 4), it(3, 1, 5), it(3, 1, 6)}
	sortLow(got)
	want := []item{it(1, 5, 0), it(2, 3, 2), it(2, 3, 4), it(2, 9, 1), it(2, 9, 3), it(3, 1, 5), it(3, 1, 6)}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// TestBlocks: one block a file, files ascending, with the positions that died.
func TestBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var b buffer
	for _, n := range []int{0, 1, 10, 4000, 500} {
		want := map[uint64]*roaring.Bitmap{}
		var kills []killed
		for range n {
			k := killed{file: uint64(r.IntN(1+n/20)+1) << 40, pos: r.Uint32N(1 << 20)}
			if want[k.file] == nil {
				want[k.file] = roaring.New()
			}
			want[k.file].Add(k.pos)
			kills = append(kills, k)
		}
		got, err := b.blocks(kills)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%d blocks of %d files", len(got), len(want))
		}
		for i := range got {
			if i > 0 && got[i-1].File >= got[i].File {
				t.Fatal("files do not ascend")
			}
			if set, err := dv.ReadBitmap(got[i].Bitmap); err != nil || !set.Equals(want[got[i].File]) {
				t.Fatalf("file %d: %v, %v", got[i].File, set, err)
			}
		}
	}
}
