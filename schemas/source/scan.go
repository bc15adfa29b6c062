package source

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// The scanner reads strict JSON (RFC 8259) in one pass over the record's own
// bytes. Every function takes the text and a place in it and gives the place
// after what it read; a negative place means ill-formed text.

// maxDepth bounds how deep arrays and objects of an event may nest.
const maxDepth = 100

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// skipSpace is the first place from i on that holds no white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// scanString reads a string whose opening quote stands before i. It gives the
// place of the closing quote, and whether the text between stands for itself
// (no escapes). Ill-formed UTF-8 and bare control characters are refused.
func scanString(b []byte, i int) (end int, plain bool) {
	plain = true
	for {
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			q := w ^ 0x2222222222222222
			s := w ^ 0x5c5c5c5c5c5c5c5c
			// The lowest flagged byte is a quote, a backslash, a control
			// character or no ASCII; flags above it may be borrows.
			m := ((q-ones)&^q | (s-ones)&^s | (w-0x2020202020202020)&^w | w) & highs
			if m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		if i >= len(b) {
			return -1, false
		}
		switch c := b[i]; {
		case c == '"':
			return i, plain
		case c == '\\':
			plain = false
			if i = skipEscape(b, i); i < 0 {
				return -1, false
			}
		case c < 0x20:
			return -1, false
		case c < utf8.RuneSelf:
			i++
		default:
			for i < len(b) && b[i] >= utf8.RuneSelf {
				r, n := utf8.DecodeRune(b[i:])
				if r == utf8.RuneError && n == 1 {
					return -1, false
				}
				i += n
			}
		}
	}
}

// skipEscape reads the escape whose backslash is at i. Half a surrogate pair
// stands for no character and is refused.
func skipEscape(b []byte, i int) int {
	if i+1 >= len(b) {
		return -1
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		r := hex4(b, i+2)
		switch {
		case r < 0 || r >= 0xDC00 && r < 0xE000:
			return -1
		case r < 0xD800 || r >= 0xE000:
			return i + 6
		}
		if i+7 < len(b) && b[i+6] == '\\' && b[i+7] == 'u' {
			if low := hex4(b, i+8); low >= 0xDC00 && low < 0xE000 {
				return i + 12
			}
		}
	}
	return -1
}

func hex4(b []byte, i int) rune {
	if i+4 > len(b) {
		return -1
	}
	var r rune
	for _, c := range b[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// unescape appends what a string's inner text, accepted by scanString, stands for.
func unescape(dst, s []byte) []byte {
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			j := i + 1
			for j < len(s) && s[j] != '\\' {
				j++
			}
			dst = append(dst, s[i:j]...)
			i = j
			continue
		}
		switch c := s[i+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(s, i+2)
			i += 4
			if r >= 0xD800 && r < 0xE000 {
				r = (r-0xD800)<<10 | (hex4(s, i+4) - 0xDC00) + 0x10000
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
		i += 2
	}
	return dst
}

// scanNumber reads a number; whole says that it has no fraction and no exponent.
func scanNumber(b []byte, i int) (end int, whole bool) {
	if i < len(b) && b[i] == '-' {
		i++
	}
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	if i == start || i > start+1 && b[start] == '0' {
		return -1, false
	}
	whole = true
	if i < len(b) && b[i] == '.' {
		whole = false
		i++
		start = i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		if i == start {
			return -1, false
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		whole = false
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		start = i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		if i == start {
			return -1, false
		}
	}
	return i, whole
}

// scanWord reads one of true, false, null.
func scanWord(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

// skipValue reads any value that begins at i. It is a loop with a stack of
// one bit a level, so deep nesting costs no memory.
func skipValue(b []byte, i int) int {
	var stack [2]uint64 // 1: an object, 0: an array
	depth := 0
	for {
		// A value begins at i.
		if i >= len(b) {
			return -1
		}
		switch c := b[i]; c {
		case '"':
			end, _ := scanString(b, i+1)
			if end < 0 {
				return -1
			}
			i = end + 1
		case '{', '[':
			if depth == maxDepth {
				return -1
			}
			i = skipSpace(b, i+1)
			if i >= len(b) {
				return -1
			}
			if b[i] == c+2 { // '}' and ']' stand two above their openers
				i++
				break
			}
			bit := uint64(1) << (depth & 63)
			if c == '{' {
				stack[depth>>6] |= bit
				if i = scanName(b, i); i < 0 {
					return -1
				}
			} else {
				stack[depth>>6] &^= bit
			}
			depth++
			continue
		case 't':
			i = scanWord(b, i, "true")
		case 'f':
			i = scanWord(b, i, "false")
		case 'n':
			i = scanWord(b, i, "null")
		default:
			i, _ = scanNumber(b, i)
		}
		if i < 0 {
			return -1
		}
		// A value ended before i.
		for {
			if depth == 0 {
				return i
			}
			i = skipSpace(b, i)
			if i >= len(b) {
				return -1
			}
			object := stack[(depth-1)>>6]>>((depth-1)&63)&1 == 1
			if b[i] == ',' {
				i = skipSpace(b, i+1)
				if object {
					if i = scanName(b, i); i < 0 {
						return -1
					}
				}
				break
			}
			if object && b[i] != '}' || !object && b[i] != ']' {
				return -1
			}
			i++
			depth--
		}
	}
}

// scanName reads a member's name and colon, and the space around the colon.
func scanName(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	end, _ := scanString(b, i+1)
	if end < 0 {
		return -1
	}
	i = skipSpace(b, end+1)
	if i >= len(b) || b[i] != ':' {
		return -1
	}
	return skipSpace(b, i+1)
}

// member reads a member's name, which begins at i, and what follows up to its
// value. An escaped name is written out into scratch.
func member(b []byte, i int, scratch *[]byte) (name []byte, value int) {
	if i >= len(b) || b[i] != '"' {
		return nil, -1
	}
	end, plain := scanString(b, i+1)
	if end < 0 {
		return nil, -1
	}
	name = b[i+1 : end]
	if !plain {
		*scratch = unescape((*scratch)[:0], name)
		name = *scratch
	}
	i = skipSpace(b, end+1)
	if i >= len(b) || b[i] != ':' {
		return nil, -1
	}
	if i = skipSpace(b, i+1); i >= len(b) {
		return nil, -1
	}
	return name, i
}

// next reads what follows a member's value: a comma (then the place is the
// next member's name and more is true) or the closing brace (the place after it).
func next(b []byte, i int) (at int, more bool) {
	i = skipSpace(b, i)
	if i >= len(b) {
		return -1, false
	}
	switch b[i] {
	case ',':
		return skipSpace(b, i+1), true
	case '}':
		return i + 1, false
	}
	return -1, false
}
