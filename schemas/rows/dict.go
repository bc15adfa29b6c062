package rows

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
)

// wordDict numbers 64-bit words (integers, bits of floats) in the order in
// which they first came. The order alone reaches the file, never the hash.
type wordDict struct {
	words []uint64
	table []uint32 // open addressing: number + 1, 0 is free
	shift uint
}

const minDictTable = 256

func (d *wordDict) reset() {
	d.words = d.words[:0]
	if d.table == nil {
		d.table = make([]uint32, minDictTable)
		d.shift = 56
		return
	}
	clear(d.table)
}

// number is the word's number, and whether the dictionary had room for it.
func (d *wordDict) number(w uint64) (uint32, bool) {
	h := (w * 0x9E3779B97F4A7C15) >> d.shift
	mask := uint64(len(d.table) - 1)
	for {
		n := d.table[h]
		if n == 0 {
			break
		}
		if d.words[n-1] == w {
			return n - 1, true
		}
		h = (h + 1) & mask
	}
	if len(d.words) == maxDictEntries {
		return 0, false
	}
	d.words = append(d.words, w)
	d.table[h] = uint32(len(d.words))
	if len(d.words)*2 > len(d.table) {
		d.grow()
	}
	return uint32(len(d.words) - 1), true
}

func (d *wordDict) grow() {
	d.table = make([]uint32, 2*len(d.table))
	d.shift--
	mask := uint64(len(d.table) - 1)
	for i, w := range d.words {
		h := (w * 0x9E3779B97F4A7C15) >> d.shift
		for d.table[h] != 0 {
			h = (h + 1) & mask
		}
		d.table[h] = uint32(i + 1)
	}
}

// byteDict numbers byte strings in the order in which they first came.
type byteDict struct {
	data   []byte // as Parquet's plain encoding has them
	ends   []uint32
	hashes []uint64
	table  []uint32
	seed   maphash.Seed
	prefix int      // bytes of length before each entry: 4, or 0 for fixed widths
	marks  []uint32 // per entry the last epoch that saw it: a page's distinct entries
	epoch  uint32
}

func (d *byteDict) reset(prefix int) {
	d.data, d.ends, d.hashes, d.marks = d.data[:0], d.ends[:0], d.hashes[:0], d.marks[:0]
	d.prefix = prefix
	d.epoch = 0
	if d.table == nil {
		d.table = make([]uint32, minDictTable)
		d.seed = maphash.MakeSeed()
		return
	}
	clear(d.table)
}

func (d *byteDict) at(i uint32) []byte {
	start := uint32(0)
	if i > 0 {
		start = d.ends[i-1]
	}
	return d.data[start+uint32(d.prefix) : d.ends[i]]
}

func (d *byteDict) number(v []byte) (uint32, bool) {
	hash := maphash.Bytes(d.seed, v)
	mask := uint64(len(d.table) - 1)
	h := hash & mask
	for {
		n := d.table[h]
		if n == 0 {
			break
		}
		if d.hashes[n-1] == hash && string(d.at(n-1)) == string(v) {
			return n - 1, true
		}
		h = (h + 1) & mask
	}
	if len(d.ends) == maxDictEntries || len(d.data)+len(v)+d.prefix > maxDictBytes {
		return 0, false
	}
	if d.prefix > 0 {
		d.data = binary.LittleEndian.AppendUint32(d.data, uint32(len(v)))
	}
	d.data = append(d.data, v...)
	d.ends = append(d.ends, uint32(len(d.data)))
	d.hashes = append(d.hashes, hash)
	d.marks = append(d.marks, 0)
	d.table[h] = uint32(len(d.ends))
	if len(d.ends)*2 > len(d.table) {
		d.grow()
	}
	return uint32(len(d.ends) - 1), true
}

func (d *byteDict) grow() {
	d.table = make([]uint32, 2*len(d.table))
	mask := uint64(len(d.table) - 1)
	for i, hash := range d.hashes {
		h := hash & mask
		for d.table[h] != 0 {
			h = (h + 1) & mask
		}
		d.table[h] = uint32(i + 1)
	}
}

// grown lengthens a slice by n elements of unspecified content.
func grown[T any](s []T, n int) []T { return slices.Grow(s, n)[:len(s)+n] }
