package dv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
)

func seeds(f *testing.F) [][]byte {
	f.Helper()
	var out [][]byte
	full := roaring.New()
	full.AddRange(0, 5*1<<16)
	for _, b := range []*roaring.Bitmap{
		roaring.New(),
		roaring.BitmapOf(1, 3, 5, 7, 9),
		roaring.BitmapOf(1, 1<<16, 1<<31),
		bitmapOfRanges(2050, 30, 3),
		bitmapOfRanges(5000, 2, 1),
		full,
	} {
		raw, err := b.ToBytes()
		if err != nil {
			f.Fatal(err)
		}
		out = append(out, raw, set(f, b))
	}
	return append(out, unhex(f, "3b30000001000009000200000004000500 0400"))
}

// FuzzSet: bytes are either refused with ErrCorrupt by all readers alike, or all
// agree with the library on the set.
func FuzzSet(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
	}
	other := set(f, roaring.BitmapOf(0, 9, 1<<16, 3<<16|7))
	f.Fuzz(func(t *testing.T, data []byte) {
		stat, err := Inspect(data)
		b, errRead := ReadBitmap(data)
		plus, errUnion := Union(nil, data, other)
		less, errMinus := Minus(nil, data, other)
		_, errRight := Minus(nil, other, data)
		all, errAll := UnionAll(nil, other, data, other)
		for _, e := range []error{err, errRead, errUnion, errMinus, errRight, errAll} {
			if (e == nil) != (err == nil) || (e != nil && !errors.Is(e, ErrCorrupt)) {
				t.Fatalf("readers disagree: %v, %v, %v, %v, %v, %v", err, errRead, errUnion, errMinus, errRight, errAll)
			}
		}
		if err != nil {
			return
		}
		if err := b.Validate(); err != nil && !b.IsEmpty() {
			t.Fatalf("accepted, but the library says %v", err)
		}
		if b.GetCardinality() != stat.Count || (stat.Count > 0 && b.Maximum() != stat.Max) {
			t.Fatalf("%d positions, Inspect says %+v", b.GetCardinality(), stat)
		}
		again := set(t, b)
		if stat.Canonical != bytes.Equal(again, data) {
			t.Fatalf("canonical=%t, but written again the bytes are % x", stat.Canonical, again)
		}
		o, err := ReadBitmap(other)
		if err != nil {
			t.Fatal(err)
		}
		union := set(t, roaring.Or(b, o))
		if !bytes.Equal(plus, union) || !bytes.Equal(all, union) || !bytes.Equal(less, set(t, roaring.AndNot(b, o))) {
			t.Fatal("union or difference is not the library's")
		}
	})
}

// FuzzMap: a map is refused or reads as the map that is written again.
func FuzzMap(f *testing.F) {
	for _, s := range seeds(f) {
		one := append(binary.LittleEndian.AppendUint64(nil, 1), 0, 0, 0, 0)
		f.Add(append(one, s...))
		two := append(binary.LittleEndian.AppendUint64(nil, 2), 0, 0, 0, 0)
		two = append(append(two, s...), 9, 0, 0, 0)
		f.Add(append(two, s...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		checkMap(t, data)
	})
}

func checkMap(t *testing.T, data []byte) {
	v, err := DecodeMap(data)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%v is not ErrCorrupt", err)
		}
		return
	}
	out, err := v.AppendMap(nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeMap(out)
	if err != nil || !again.Equal(v) {
		t.Fatalf("written again it reads as another vector (%v)", err)
	}
}

// FuzzBlob feeds raw blobs, and maps in a right frame so that the fuzzer gets past
// the checksum.
func FuzzBlob(f *testing.F) {
	for _, s := range seeds(f) {
		one := append(binary.LittleEndian.AppendUint64(nil, 1), 0, 0, 0, 0)
		f.Add(append(one, s...), true)
	}
	f.Add(unhex(f, "0000002ad1d339640100000000000000000000003a30000001000000000004001000000001000300050007000900b3fb20be"), false)
	f.Fuzz(func(t *testing.T, data []byte, frame bool) {
		blob := data
		if frame {
			blob = binary.BigEndian.AppendUint32(nil, uint32(len(data)+magicSize))
			blob = append(append(blob, magic[:]...), data...)
			blob = binary.BigEndian.AppendUint32(blob, crc32.ChecksumIEEE(blob[lengthSize:]))
		}
		v, err := Decode(blob)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%v is not ErrCorrupt", err)
			}
			return
		}
		if frame {
			checkMap(t, data)
		}
		out, err := v.appendBlob(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(out)
		if err != nil || !again.Equal(v) {
			t.Fatalf("written again it reads as another vector (%v)", err)
		}
	})
}
