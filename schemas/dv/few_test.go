package dv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"
)

// Sets of few positions take a short way: it gives what the long one gives.
func TestUnionOfFew(t *testing.T) {
	short := 0
	rapid.Check(t, func(t *rapid.T) {
		model := roaring.New()
		var sets [][]byte
		base := uint32(rapid.IntRange(0, 3).Draw(t, "base")) << 16
		for range rapid.IntRange(1, 8).Draw(t, "operands") {
			b := roaring.New()
			for range rapid.IntRange(1, 60).Draw(t, "positions") {
				b.Add(base + uint32(rapid.IntRange(0, rapid.SampledFrom([]int{20, 1000, 1<<16 - 1, 1 << 17}).Draw(t, "range")).Draw(t, "position")))
			}
			model.Or(b)
			sets = append(sets, set(t, b))
		}
		want := set(t, model)
		if got, ok := unionFew([]byte("x"), sets); ok {
			short++
			if !bytes.Equal(got[1:], want) {
				t.Fatalf("the short way gives %x, not %x", got[1:], want)
			}
		}
		if got, err := UnionAll([]byte("x"), sets...); err != nil || !bytes.Equal(got[1:], want) {
			t.Fatalf("%x (%v), not %x", got[1:], err, want)
		}
	})
	if short == 0 {
		t.Fatal("nothing went the short way")
	}
}

func TestUnionOfFewRefuses(t *testing.T) {
	good := set(t, roaring.BitmapOf(1, 5, 9))
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x80
		_, ok := unionFew(nil, [][]byte{good, bad})
		if _, err := UnionAll(nil, good, bad); (err == nil) != (Validate(bad) == nil) || ok && err != nil {
			t.Errorf("byte %d: %v, short way %t", i, err, ok)
		}
		if _, err := UnionAll(nil, good, good[:i]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	falling := bytes.Clone(good)
	binary.LittleEndian.PutUint16(falling[18:], 0)
	if _, err := UnionAll(nil, falling); !errors.Is(err, ErrCorrupt) {
		t.Errorf("falling positions: %v", err)
	}
}

func BenchmarkUnionOfFew(b *testing.B) {
	sets := [][]byte{set(b, roaring.BitmapOf(3, 10, 23, 36, 63)), set(b, roaring.BitmapOf(1, 8, 21, 34, 61)),
		set(b, roaring.BitmapOf(503, 510, 523, 536, 563)), set(b, roaring.BitmapOf(203, 210, 223, 236, 263))}
	var dst []byte
	for b.Loop() {
		var err error
		if dst, err = UnionAll(dst[:0], sets...); err != nil {
			b.Fatal(err)
		}
	}
}
