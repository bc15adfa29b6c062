package dv

import "encoding/binary"

// The functions of this file combine the bodies of two array containers, into room
// that is enough for all of their values, and return how many bytes they wrote. They
// stay within their slices whatever these hold; a result is right when the inputs
// ascend. Their loops have no branch that follows single values: those of random
// sets are guessed wrong half of the time, which takes longer than the work.

// From how many times as many values on the longer array is taken in blocks.
const (
	unionByBlocks = 2
	minusByBlocks = 4
)

// skew is how many times longer the array that is taken away must be before the
// values are searched in it.
const skew = 8

// block is how many bytes, four values, unionBlocks and minusBlocks move at once.
const block = 8

// unionBlocks unites p and a shorter q: the place of a value of q is found by whole
// blocks of p, and then by its rank in one.
//
// Both arrays are subsequences of the output, whatever they hold.
func unionBlocks(out, p, q []byte) int {
	i, j, k := 0, 0, 0
	for ; j < len(q)-1; j += 2 {
		v := binary.LittleEndian.Uint16(q[j:])
		i, k = copyBelow(out, p, i, k, v)
		if i > len(p)-block {
			break
		}
		four := binary.LittleEndian.Uint64(p[i:])
		below := rank(four, v)
		binary.LittleEndian.PutUint64(out[k:], four)
		binary.LittleEndian.PutUint16(out[k+2*below:], v)
		k += 2*below + 2
		i += 2*below + 2*equals(four, below, v)
	}
	return unionMerge(out, p, q, merge{i, j, k})
}

// minusBlocks is p without a shorter q, found as in unionBlocks.
func minusBlocks(out, p, q []byte) int {
	i, j, k := 0, 0, 0
	for ; j < len(q)-1; j += 2 {
		v := binary.LittleEndian.Uint16(q[j:])
		i, k = copyBelow(out, p, i, k, v)
		if i > len(p)-block {
			break
		}
		four := binary.LittleEndian.Uint64(p[i:])
		below := rank(four, v)
		binary.LittleEndian.PutUint64(out[k:], four)
		k += 2 * below
		i += 2*below + 2*equals(four, below, v)
	}
	for ; i < len(p)-1; i += 2 {
		v := binary.LittleEndian.Uint16(p[i:])
		for j < len(q)-1 && binary.LittleEndian.Uint16(q[j:]) < v {
			j += 2
		}
		if j > len(q)-2 || binary.LittleEndian.Uint16(q[j:]) != v {
			binary.LittleEndian.PutUint16(out[k:], v)
			k += 2
		}
	}
	return k
}

// copyBelow copies whole blocks of p from i on to out from k on while they end below
// v, and returns where it stands in both.
func copyBelow(out, p []byte, i, k int, v uint16) (int, int) {
	for i < len(p)-block+1 && k < len(out)-block+1 && binary.LittleEndian.Uint16(p[i+block-2:i+block]) < v {
		binary.LittleEndian.PutUint64(out[k:k+block], binary.LittleEndian.Uint64(p[i:i+block]))
		i += block
		k += block
	}
	return i, k
}

// rank is how many of four 16-bit values are below v. Each 32-bit lane holds 2^16 + v
// - value - 1, whose bit 16 says value < v.
func rank(four uint64, v uint16) int {
	const (
		low  = 0x0000ffff0000ffff
		high = 0x0001000000010000
		one  = 0x0000000100000001
	)
	from := (uint64(v)*one | high) - one
	even := from - four&low
	odd := from - four>>16&low
	sum := even&high>>16 + odd&high>>16
	return int((sum + sum>>32) & 7)
}

// equals is 1 when value n of four is v, and 0 otherwise; n is 0 to 3.
func equals(four uint64, n int, v uint16) int {
	x := uint16(four >> (16 * n & 63))
	return int((uint32(x^v) - 1) >> 31)
}

// merge is where a merge of two arrays stands, in bytes: read of both, written.
type merge struct{ i, j, k int }

// unionMerge ends a merge. Each step writes one value and goes on in the array, or
// both, that it came from.
func unionMerge(out, p, q []byte, m merge) int {
	i, j, k := m.i, m.j, m.k
	for i < len(p)-1 && j < len(q)-1 && k < len(out)-1 {
		v := int(binary.LittleEndian.Uint16(p[i:]))
		w := int(binary.LittleEndian.Uint16(q[j:]))
		binary.LittleEndian.PutUint16(out[k:k+2], uint16(min(v, w)))
		// A difference shifted down is -1 when negative and 0 when not.
		i += 2 + 2*((w-v)>>31) // v ≤ w
		j += 2 + 2*((v-w)>>31) // w ≤ v
		k += 2
	}
	k += copy(out[k:], p[i:])
	return k + copy(out[k:], q[j:])
}

// minusSearch is p without the values that a longer q has.
func minusSearch(out, p, q []byte) int {
	j, k := 0, 0
	for i := 0; i < len(p)-1; i += 2 {
		v := binary.LittleEndian.Uint16(p[i:])
		j = lowerBound(q, j, v)
		if j == len(q) || binary.LittleEndian.Uint16(q[j:]) != v {
			binary.LittleEndian.PutUint16(out[k:], v)
			k += 2
		}
	}
	return k
}

// lowerBound returns the byte index of the first value of ascending array that is at
// least v, from byte index from on. It strides, then bisects: neighbouring searches
// are a few values apart.
func lowerBound(array []byte, from int, v uint16) int {
	const stride = 64
	for from+stride <= len(array) && binary.LittleEndian.Uint16(array[from+stride-2:]) < v {
		from += stride
	}
	n := min(len(array)-from, stride) / 2
	for n > 0 {
		half := n / 2
		step := 2 * (n - half)
		less := (int(binary.LittleEndian.Uint16(array[from+step-2:])) - int(v)) >> 31 // -1 or 0
		from += step & less
		n = half
	}
	return from
}

// minusWords is p without the positions of w.
func minusWords(out, p []byte, w *words) int {
	i, k := 0, 0
	for ; i < len(p)-block+1 && k < len(out)-block+1; i += block {
		four := binary.LittleEndian.Uint64(p[i : i+block])
		d0 := w[four>>6&1023] >> (four & 63)
		d1 := w[four>>22&1023] >> (four >> 16 & 63)
		d2 := w[four>>38&1023] >> (four >> 32 & 63)
		d3 := w[four>>54&1023] >> (four >> 48 & 63)
		binary.LittleEndian.PutUint64(out[k:k+block], four)
		if (d0|d1|d2|d3)&1 == 0 { // most blocks of sets that have little in common
			k += block
			continue
		}
		k += 2 - 2*int(d0&1)
		binary.LittleEndian.PutUint16(out[k:], uint16(four>>16))
		k += 2 - 2*int(d1&1)
		binary.LittleEndian.PutUint16(out[k:], uint16(four>>32))
		k += 2 - 2*int(d2&1)
		binary.LittleEndian.PutUint16(out[k:], uint16(four>>48))
		k += 2 - 2*int(d3&1)
	}
	for ; i < len(p)-1; i += 2 {
		v := binary.LittleEndian.Uint16(p[i:])
		binary.LittleEndian.PutUint16(out[k:], v)
		k += 2 - 2*int(w[v>>6]>>(v&63)&1)
	}
	return k
}
