package dv

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

func body(values []uint16) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return b
}

func values(body []byte) []uint16 {
	v := make([]uint16, len(body)/2)
	for i := range v {
		v[i] = u16(body, i)
	}
	return v
}

// ascending draws about n different values below limit.
func ascending(r *rand.Rand, n, limit int) []uint16 {
	var v []uint16
	for range n {
		v = append(v, uint16(r.IntN(limit)))
	}
	slices.Sort(v)
	return slices.Compact(v)
}

// TestArrays: each way to combine two arrays gives the same as a filter by a map, for
// every proportion of lengths, dense and sparse, also where all or nothing is shared.
func TestArrays(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	lengths := []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 40, 300, 2000}
	for _, n := range lengths {
		for _, m := range lengths {
			for _, limit := range []int{40, 1000, 1 << 16} {
				p, q := ascending(r, n, limit), ascending(r, m, limit)
				if r.IntN(4) == 0 {
					q = append(q, p...)
					slices.Sort(q)
					q = slices.Compact(q)
				}
				both := append(slices.Clone(p), q...)
				slices.Sort(both)
				both = slices.Compact(both)
				in := map[uint16]bool{}
				var w words
				for _, v := range q {
					in[v] = true
					w[v>>6] |= 1 << (v & 63)
				}
				var left []uint16
				for _, v := range p {
					if !in[v] {
						left = append(left, v)
					}
				}
				bp, bq := body(p), body(q)
				unions := map[string]func(out []byte) int{
					"unionBlocks":         func(out []byte) int { return unionBlocks(out, bp, bq) },
					"unionBlocks swapped": func(out []byte) int { return unionBlocks(out, bq, bp) },
					"unionMerge":          func(out []byte) int { return unionMerge(out, bp, bq, merge{}) },
				}
				for name, f := range unions {
					out := make([]byte, len(bp)+len(bq))
					if got := values(out[:f(out)]); !slices.Equal(got, both) {
						t.Fatalf("%s of %v and %v: %v", name, p, q, got)
					}
				}
				minuses := map[string]func(out []byte) int{
					"minusBlocks": func(out []byte) int { return minusBlocks(out, bp, bq) },
					"minusSearch": func(out []byte) int { return minusSearch(out, bp, bq) },
					"minusWords":  func(out []byte) int { return minusWords(out, bp, &w) },
				}
				for name, f := range minuses {
					out := make([]byte, len(bp))
					if got := values(out[:f(out)]); !slices.Equal(got, left) {
						t.Fatalf("%s of %v and %v: %v", name, p, q, got)
					}
				}
			}
		}
	}
}

// TestUnionOfUnordered: a union ascends only when both arrays do, which is how it
// checks them, and stays within its room.
func TestUnionOfUnordered(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	found := 0
	for range 200_000 {
		p := ascending(r, 2+r.IntN(14), 24)
		q := ascending(r, r.IntN(6), 24)
		for range 1 + r.IntN(2) {
			spoil := p
			if len(q) > 1 && r.IntN(2) == 0 {
				spoil = q
			}
			spoil[r.IntN(len(spoil))] = uint16(r.IntN(24))
		}
		bp, bq := body(p), body(q)
		_, fineP := countArray(bp)
		_, fineQ := countArray(bq)
		for name, f := range map[string]func(out, p, q []byte) int{
			"unionBlocks": unionBlocks,
			"unionMerge":  func(out, p, q []byte) int { return unionMerge(out, p, q, merge{}) },
		} {
			out := make([]byte, len(bp)+len(bq))
			_, fine := countArray(out[:f(out, bp, bq)])
			if fine != (fineP && fineQ) {
				t.Fatalf("%s of %v and %v ascends: %t", name, p, q, fine)
			}
			if !fine {
				found++
			}
		}
	}
	if found == 0 {
		t.Error("no unordered array was tried")
	}
}
