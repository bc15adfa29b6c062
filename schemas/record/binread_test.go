package record

import (
	"math"
	"math/bits"
	"testing"
)

// Integers of every length, at the end of the bytes and before others.
func TestLongAt(t *testing.T) {
	check := func(v int64) {
		t.Helper()
		b := appendLong([]byte{0xff}, v)
		n := max(1, (bits.Len64(uint64(v)<<1^uint64(v>>63))+6)/7)
		if len(b) != 1+n {
			t.Fatalf("%d has %d bytes, not %d", v, len(b)-1, n)
		}
		for _, tail := range []string{"", "\x00", "\xff", "\x7f\xff\x80\x01\xff\xff\xff\xff\xff\xff\xff\xff"} {
			full := append(b[:len(b):len(b)], tail...)
			if got, next := longAt(full, 1); got != v || next != len(b) {
				t.Fatalf("%d before %x reads %d and ends at %d", v, tail, got, next)
			}
			var got int64
			if next := longsAt(full, 1, &got); got != v || next != len(b) {
				t.Fatalf("%d among several before %x reads %d and ends at %d", v, tail, got, next)
			}
		}
		for cut := 1; cut < len(b); cut++ {
			if _, next := longAt(b[:cut], 1); next != -1 {
				t.Fatalf("%d cut to %d bytes ends at %d", v, cut-1, next)
			}
		}
	}
	for shift := range 64 {
		for d := int64(-2); d <= 2; d++ {
			check(int64(1)<<shift + d)
			check(-(int64(1) << shift) + d)
		}
	}
	check(math.MaxInt64)
	check(math.MinInt64)

	for _, c := range []struct {
		in   string
		want int64
		next int
	}{
		{"\x80\x00", 0, 2}, // longer than needed
		{"\x82\x80\x80\x80\x80\x80\x80\x80\x80\x00", 1, 10},
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", math.MinInt64, 10},
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 0, -1},     // 65 bits
		{"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 0, -1}, // 11 bytes
		{"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 0, -1},
	} {
		if got, next := longAt([]byte(c.in), 0); got != c.want || next != c.next {
			t.Errorf("%x reads %d and ends at %d", c.in, got, next)
		}
	}
	for _, i := range []int{-1, 1, 2, 100} {
		if _, next := longAt([]byte{0}, i); next != -1 {
			t.Errorf("index %d of 1 byte ends at %d", i, next)
		}
	}
}
