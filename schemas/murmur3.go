package schemas

import (
	"encoding/binary"
	"math/bits"
)

const (
	murmur3C1 = 0xcc9e2d51
	murmur3C2 = 0x1b873593
)

func murmur3Mix(h, k uint32) uint32 {
	h ^= bits.RotateLeft32(k*murmur3C1, 15) * murmur3C2
	return bits.RotateLeft32(h, 13)*5 + 0xe6546b64
}

func murmur3End(h, length uint32) uint32 {
	h ^= length
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// Murmur3 is murmur3_x86_32 with seed 0, the hash of Iceberg's bucket transform.
func Murmur3(b []byte) uint32 {
	n := uint32(len(b))
	var h uint32
	for len(b) >= 4 {
		h = murmur3Mix(h, binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
	var k uint32
	for i := len(b) - 1; i >= 0; i-- {
		k = k<<8 | uint32(b[i])
	}
	h ^= bits.RotateLeft32(k*murmur3C1, 15) * murmur3C2
	return murmur3End(h, n)
}

// murmur3Long hashes the 8 little-endian bytes of v.
func murmur3Long(v uint64) uint32 {
	return murmur3End(murmur3Mix(murmur3Mix(0, uint32(v)), uint32(v>>32)), 8)
}
