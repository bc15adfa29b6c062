package dv_test

import (
	"math/rand/v2"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas/dv"
)

// TestRanker: ranks of ascending and of any positions are those that the
// library counts.
func TestRanker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		r := rand.New(rand.NewPCG(seed, 1))
		b := roaring.New()
		const reach = 5 << 16
		for range rapid.IntRange(0, 20).Draw(t, "ranges") {
			first := uint64(r.Uint32N(reach))
			b.AddRange(first, first+uint64(r.Uint32N(10_000)))
		}
		for range rapid.IntRange(0, 30_000).Draw(t, "values") {
			b.Add(r.Uint32N(reach))
		}
		set, err := dv.AppendBitmap(nil, b)
		if err != nil {
			t.Fatal(err)
		}
		k, err := dv.NewRanker(set)
		if err != nil {
			t.Fatal(err)
		}
		if k.Count() != b.GetCardinality() {
			t.Fatalf("count %d, want %d", k.Count(), b.GetCardinality())
		}
		ascending := rapid.Bool().Draw(t, "ascending")
		pos := uint32(0)
		for range 2000 {
			if ascending {
				pos += r.Uint32N(400)
			} else {
				pos = r.Uint32N(reach + 1<<17)
			}
			below, in := k.Rank(pos)
			want := b.Rank(pos) // how many are at most pos
			if b.Contains(pos) {
				want--
			}
			if below != want || in != b.Contains(pos) {
				t.Fatalf("Rank(%d) = %d, %t; want %d, %t", pos, below, in, want, b.Contains(pos))
			}
		}
	})
	if _, err := dv.NewRanker([]byte{1, 2, 3}); err == nil {
		t.Error("three bytes are a set")
	}
}
