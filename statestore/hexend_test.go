package statestore

import (
	"encoding/hex"
	"strings"
	"testing"
)

func TestIsHex(t *testing.T) {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	digits := hex.EncodeToString(b)
	if !isHex(digits, b) || !isHex("", nil) {
		t.Error("digits are not recognised")
	}
	for i := range digits {
		if other := digits[:i] + "x" + digits[i+1:]; isHex(other, b) {
			t.Fatalf("digit %d is not looked at", i)
		}
	}
	for n := range 9 {
		if !isHex(digits[:2*n], b[:n]) || n > 0 && isHex(digits[:2*n-1]+"x", b[:n]) {
			t.Errorf("%d bytes are not compared rightly", n)
		}
	}
	for _, other := range []string{strings.ToUpper(digits), digits[:len(digits)-1], digits + "00", ""} {
		if isHex(other, b) {
			t.Errorf("%q is taken for the digits", other)
		}
	}
}

func BenchmarkIsHex(b *testing.B) {
	h := []byte(strings.Repeat("\xa5\x3c", 16))
	digits := hex.EncodeToString(h)
	for b.Loop() {
		if !isHex(digits, h) {
			b.Fatal("not equal")
		}
	}
}
