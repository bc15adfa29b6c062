package rows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// Frames of strings of one length are zstd frames of the page, whatever the
// values and the length.
func TestEvenFrames(t *testing.T) {
	var e evenCoder
	rng := rand.New(rand.NewPCG(4, 4))
	for _, length := range []int{4, 5, 15, 16, 17, 18, 23, 24, 31, 32, 36, 47, 63, 64, 127, 128, 255} {
		for _, n := range []int{1, 2, 3, 100, 7000, 40_000} {
			for kind, next := range map[string]func(i int) byte{
				"hex":    func(int) byte { return "0123456789abcdef"[rng.IntN(16)] },
				"random": func(int) byte { return byte(rng.Uint32()) },
				"same":   func(int) byte { return 'x' },
				"skewed": func(int) byte { return byte(rng.ExpFloat64() * 3) },
			} {
				if n*length > 1<<20 {
					continue
				}
				head := rng.IntN(12)
				raw := make([]byte, head, head+n*(4+length))
				for range n {
					raw = binary.LittleEndian.AppendUint32(raw, uint32(length))
					for i := range length {
						raw = append(raw, next(i))
					}
				}
				name := fmt.Sprintf("%d %s of %d bytes", n, kind, length)
				frame := e.encode([]byte("before"), raw, head, length)
				got, err := zstdDecoder().DecodeAll(frame[6:], nil)
				if err != nil || !bytes.Equal(got, raw) {
					t.Fatalf("%s: %v", name, err)
				}
				if limit := len(raw) + len(raw)/50 + 40; len(frame) > limit {
					t.Errorf("%s: %d bytes became %d", name, len(raw), len(frame))
				}
				if kind == "hex" && n*length > 10_000 && len(frame)*100 > n*(length*53+60) {
					t.Errorf("%s: %d bytes", name, len(frame))
				}
			}
		}
	}
}

func TestEvenLength(t *testing.T) {
	values := func(lengths ...int) []byte {
		var b []byte
		for _, n := range lengths {
			b = binary.LittleEndian.AppendUint32(b, uint32(n))
			b = append(b, make([]byte, n)...)
		}
		return b
	}
	many := func(n, of int) []int {
		out := make([]int, n)
		for i := range out {
			out[i] = of
		}
		return out
	}
	if n, ok := evenLength(values(many(300, 16)...)); !ok || n != 16 {
		t.Error(n, ok)
	}
	for name, b := range map[string][]byte{
		"none": nil, "few": values(many(10, 16)...), "short": values(many(3000, 3)...), "long": values(many(300, 256)...),
		"another": values(append(many(300, 16), 12, 20)...), "last": values(append(many(300, 16), 17)...),
	} {
		if _, ok := evenLength(b); ok {
			t.Errorf("%s: even", name)
		}
	}
}
