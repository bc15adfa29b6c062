package rows

import (
	"encoding/binary"
	"math/bits"
)

// Encodings of Parquet pages.
const (
	encPlain           = 0
	encRLE             = 3
	encDeltaBinary     = 5
	encRLEDictionary   = 8
	pageData           = 0
	pageDictionary     = 2
	codecUncompressed  = 0
	codecZstd          = 6
	boundaryUnordered  = 0
	boundaryAscending  = 1
	levelPrefixBytes   = 4
	maxDictEntries     = 1 << 16
	maxDictBytes       = 1 << 20
	dictSample         = 1024
	createdBy          = "varve version 1.0.0 (build 1)"
	parquetMagic       = "PAR1"
	icebergSchemaKey   = "iceberg.schema"
	parquetFileVersion = 2
)

// appendLevels writes definition levels of an optional column: one run where
// all rows agree, else one bit a row.
func appendLevels(dst []byte, valid []uint8, nulls int) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	switch nulls {
	case 0:
		dst = binary.AppendUvarint(dst, uint64(len(valid))<<1)
		dst = append(dst, 1)
	case len(valid):
		dst = binary.AppendUvarint(dst, uint64(len(valid))<<1)
		dst = append(dst, 0)
	default:
		groups := (len(valid) + 7) / 8
		dst = binary.AppendUvarint(dst, uint64(groups)<<1|1)
		dst = appendBits(dst, valid)
	}
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-levelPrefixBytes))
	return dst
}

// appendBits packs bytes of 0 or 1, lowest bit first.
func appendBits(dst []byte, v []uint8) []byte {
	for len(v) >= 8 {
		w := binary.LittleEndian.Uint64(v)
		// Gather the low bit of each byte into the top byte.
		dst = append(dst, byte(w*0x0102040810204080>>56))
		v = v[8:]
	}
	if len(v) > 0 {
		var last byte
		for i, b := range v {
			last |= b << i
		}
		dst = append(dst, last)
	}
	return dst
}

// appendIndices writes dictionary indices: the bit width, then one run.
func appendIndices(dst []byte, idx []uint32) []byte {
	var top uint32
	same := true
	for _, v := range idx {
		top |= v
		same = same && v == idx[0]
	}
	width := max(1, bits.Len32(top))
	dst = append(dst, byte(width))
	if len(idx) == 0 {
		return dst
	}
	if same {
		dst = binary.AppendUvarint(dst, uint64(len(idx))<<1)
		for w := 0; w < width; w += 8 {
			dst = append(dst, byte(idx[0]>>w))
		}
		return dst
	}
	groups := (len(idx) + 7) / 8
	dst = binary.AppendUvarint(dst, uint64(groups)<<1|1)
	end := len(dst) + groups*width
	var acc uint64
	n := 0
	for _, v := range idx {
		acc |= uint64(v) << n
		if n += width; n >= 32 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(acc))
			acc >>= 32
			n -= 32
		}
	}
	for len(dst) < end {
		dst = append(dst, byte(acc))
		acc >>= 8
	}
	return dst[:end]
}

func appendInt32s(dst []byte, v []int64) []byte {
	for _, x := range v {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(x))
	}
	return dst
}

func appendInt64s(dst []byte, v []int64) []byte {
	for _, x := range v {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(x))
	}
	return dst
}
