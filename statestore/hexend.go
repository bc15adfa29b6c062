package statestore

import (
	"encoding/binary"
	"encoding/hex"
)

// isHex says whether digits are b in hexadecimal, in lower case. Four bytes are
// compared at a time, without writing their digits anywhere.
func isHex(digits string, b []byte) bool {
	if len(digits) != hex.EncodedLen(len(b)) {
		return false
	}
	for len(b) >= 4 && len(digits) >= 8 {
		if uint64(digits[0])|uint64(digits[1])<<8|uint64(digits[2])<<16|uint64(digits[3])<<24|
			uint64(digits[4])<<32|uint64(digits[5])<<40|uint64(digits[6])<<48|uint64(digits[7])<<56 != eightDigits(binary.LittleEndian.Uint32(b)) {
			return false
		}
		b, digits = b[4:], digits[8:]
	}
	return digits == hex.EncodeToString(b)
}

// eightDigits are the digits of four bytes, the first of all in the lowest byte.
func eightDigits(x uint32) uint64 {
	v := uint64(x)
	v = (v | v<<16) & 0x0000ffff0000ffff
	v = (v | v<<8) & 0x00ff00ff00ff00ff
	v = v>>4&0x000f000f000f000f | v&0x000f000f000f000f<<8
	letters := (v + 0x0606060606060606) >> 4 & 0x0101010101010101
	return v + 0x3030303030303030 + letters*('a'-'0'-10)
}
