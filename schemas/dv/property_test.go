package dv

import (
	"bytes"
	"errors"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"
)

// drawBitmap draws sets around the limits at which encodings change: short and long
// arrays, bitmaps, runs, full containers, several keys.
func drawBitmap(t *rapid.T, label string) *roaring.Bitmap {
	b := roaring.New()
	for range rapid.IntRange(0, 4).Draw(t, label+" pieces") {
		base := uint64(rapid.SampledFrom([]int{0, 1, 2, 3, 5, 32767, 65535}).Draw(t, label+" key")) << 16
		switch rapid.IntRange(0, 4).Draw(t, label+" shape") {
		case 0: // single positions
			for _, low := range rapid.SliceOfN(rapid.Uint16(), 1, 40).Draw(t, label+" positions") {
				b.Add(uint32(base) | uint32(low))
			}
		case 1: // one range, perhaps to the container's end
			first := uint64(rapid.Uint16().Draw(t, label+" first"))
			last := min(first+uint64(rapid.Uint16().Draw(t, label+" length")), 0xffff)
			b.AddRange(base+first, base+last+1)
		case 2: // comb: as many runs as positions, around 4,096
			n := uint64(rapid.IntRange(4000, 4200).Draw(t, label+" teeth"))
			for i := range n {
				b.Add(uint32(base + 2*i))
			}
		case 3: // runs of three to eight, around 2,047 of them
			n := uint64(rapid.IntRange(2040, 2060).Draw(t, label+" runs"))
			length := uint64(rapid.IntRange(2, 8).Draw(t, label+" run length"))
			for i := range n {
				b.AddRange(base+30*i, base+30*i+length)
			}
		default:
			b.AddRange(base, base+1<<16)
		}
	}
	return b
}

func set(t rapid.TB, b *roaring.Bitmap) []byte {
	out, err := AppendBitmap(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestUnionIsCanonical: the same set gives the same bytes whatever the order and the
// grouping of merges, and whatever form the operands have.
func TestUnionIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "operands")
		model := roaring.New()
		var sets [][]byte
		for range n {
			b := drawBitmap(t, "operand")
			model.Or(b)
			if rapid.Bool().Draw(t, "as held") {
				raw, err := b.ToBytes()
				if err != nil {
					t.Fatal(err)
				}
				sets = append(sets, raw)
				continue
			}
			sets = append(sets, set(t, b))
		}
		want := set(t, model)

		got, err := UnionAll([]byte("x"), sets...)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got[1:], want) {
			t.Fatalf("UnionAll differs from the canonical bytes of the union")
		}
		// Merge two random neighbours until one set is left.
		for len(sets) > 1 {
			i := rapid.IntRange(0, len(sets)-1).Draw(t, "left")
			j := rapid.IntRange(0, len(sets)-1).Draw(t, "right")
			if i == j {
				j = (i + 1) % len(sets)
			}
			merged, err := Union(nil, sets[i], sets[j])
			if err != nil {
				t.Fatal(err)
			}
			sets[i] = merged
			sets = append(sets[:j], sets[j+1:]...)
		}
		if got, err = Canonical(nil, sets[0]); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("folding with Union gives other bytes than the union at once")
		}
		stat, err := Inspect(got)
		if err != nil {
			t.Fatal(err)
		}
		if !stat.Canonical || stat.Count != model.GetCardinality() || (stat.Count > 0 && stat.Max != model.Maximum()) {
			t.Fatalf("Inspect says %+v of %d positions", stat, model.GetCardinality())
		}
		if count, err := Count(got); err != nil || count != stat.Count {
			t.Fatalf("Count: %d, %v, want %d", count, err, stat.Count)
		}
	})
}

// TestMinusIsCanonical: a difference is the canonical form of the model's, also when
// its operands are not canonical.
func TestMinusIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawBitmap(t, "a"), drawBitmap(t, "b")
		rawA, err := a.ToBytes()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Minus(nil, rawA, set(t, b))
		if err != nil {
			t.Fatal(err)
		}
		if want := set(t, roaring.AndNot(a, b)); !bytes.Equal(got, want) {
			t.Fatal("Minus differs from the canonical bytes of the difference")
		}
	})
}

// TestBlobRoundTrip: what is written is read as the same set, from a bitmap, from a
// set and from a vector alike, and the bitmap stays as it was.
func TestBlobRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBitmap(t, "b")
		before, err := b.ToBytes()
		if err != nil {
			t.Fatal(err)
		}
		blob, err := AppendBlob(nil, b)
		if b.IsEmpty() {
			if !errors.Is(err, ErrEmpty) {
				t.Fatalf("empty bitmap: %v, want ErrEmpty", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if after, err := b.ToBytes(); err != nil || !bytes.Equal(before, after) {
			t.Fatalf("writing changed the bitmap (%v)", err)
		}
		fromSet, count, err := AppendBlobFromSet(nil, before)
		if err != nil || count != b.GetCardinality() || !bytes.Equal(fromSet, blob) {
			t.Fatalf("from the set: %d positions, %v, or other bytes", count, err)
		}
		v, err := Decode(blob)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := v.Bitmap32()
		if !ok || !got.Equals(b) {
			t.Fatal("decoded to another set")
		}
		again, err := v.AppendBlob(nil)
		if err != nil || !bytes.Equal(again, blob) {
			t.Fatalf("written again as other bytes (%v)", err)
		}
		// Changing what was decoded does not change the blob.
		got.Flip(0, 1<<17)
		got.RemoveRange(1<<18, 1<<32)
		got.AddRange(3<<16, 3<<16+5)
		got.RunOptimize()
		if !bytes.Equal(fromSet, blob) {
			t.Fatal("changing the decoded vector changed its blob")
		}
		// A bitmap read from a set does not depend on the set's bytes.
		own, err := ReadBitmap(before)
		if err != nil {
			t.Fatal(err)
		}
		clear(before)
		if !own.Equals(b) {
			t.Fatal("a bitmap that was read shares its set's memory")
		}
	})
}

// TestVectorOperations compares a vector with a map of positions.
func TestVectorOperations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		position := rapid.Custom(func(t *rapid.T) uint64 {
			key := rapid.SampledFrom([]uint64{0, 0, 1, 7, maxKey}).Draw(t, "key")
			return key<<32 | uint64(rapid.Uint32().Draw(t, "low"))
		})
		v, other := &Vector{}, &Vector{}
		model := map[uint64]bool{}
		for i, p := range rapid.SliceOfN(position, 0, 60).Draw(t, "positions") {
			target := v
			if i%2 == 1 {
				target = other
			}
			if err := target.Add(p); err != nil {
				t.Fatal(err)
			}
			model[p] = true
		}
		v.Or(other)
		if v.Cardinality() != uint64(len(model)) || v.IsEmpty() != (len(model) == 0) {
			t.Fatalf("%d positions, want %d", v.Cardinality(), len(model))
		}
		last, any := uint64(0), false
		for p := range v.All() {
			if !model[p] || (any && p <= last) {
				t.Fatalf("position %d is not in the model, or not behind %d", p, last)
			}
			last, any = p, true
		}
		if top, ok := v.Max(); ok != any || top != last {
			t.Fatalf("Max is %d, %t, want %d, %t", top, ok, last, any)
		}
		for p := range model {
			if !v.Contains(p) || v.Contains(p^1) != model[p^1] || v.Contains(p|1<<63) {
				t.Fatalf("Contains is wrong around %d", p)
			}
		}
		bare, err := v.AppendMap(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeMap(bare)
		if err != nil || !again.Equal(v) {
			t.Fatalf("the bare map reads as another vector (%v)", err)
		}
	})
	if err := (&Vector{}).Add(MaxPosition64 + 1); err == nil {
		t.Fatal("a position above the highest was accepted")
	}
}

// TestRunLimit: at 2,047 runs a container is a run container, from 2,048 on a bitmap,
// as in Java; the library's own RunOptimize keeps runs up to 2,055.
func TestRunLimit(t *testing.T) {
	for _, tc := range []struct {
		runs int
		size int
	}{
		{2047, 4 + 1 + 4 + 2 + 4*2047},
		{2048, 8 + 8 + bitmapSize},
		{2055, 8 + 8 + bitmapSize},
		{2056, 8 + 8 + bitmapSize},
	} {
		b := bitmapOfRanges(tc.runs, 31, 30)
		got := set(t, b)
		if len(got) != tc.size {
			t.Errorf("%d runs: %d bytes, want %d", tc.runs, len(got), tc.size)
		}
		b.RunOptimize()
		if again := set(t, b); !bytes.Equal(again, got) {
			t.Errorf("%d runs: other bytes once the library has run-optimized the bitmap", tc.runs)
		}
	}
}
