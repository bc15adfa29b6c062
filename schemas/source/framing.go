package source

import (
	"encoding/binary"
	"math/bits"
)

// stripFraming takes a schema registry's header off JSON text: 00 and a
// schema id of 4 bytes, or 01 and a GUID of 16.
func stripFraming(b []byte) []byte {
	switch {
	case len(b) > 5 && b[0] == 0:
		return b[5:]
	case len(b) > 17 && b[0] == 1:
		return b[17:]
	}
	return b
}

const (
	hashStart uint64 = 14695981039346656037
	hashPrime uint64 = 0x9E3779B97F4A7C15
)

// mix hashes a stretch of framing into h, eight bytes at a time. A framing is
// recorded with a shard (K5), so the function must never change.
func mix(h uint64, b []byte) uint64 {
	h ^= uint64(len(b)) * hashPrime
	for len(b) >= 8 {
		h = bits.RotateLeft64(h^binary.LittleEndian.Uint64(b), 29) * hashPrime
		b = b[8:]
	}
	for _, c := range b {
		h = bits.RotateLeft64(h^uint64(c), 29) * hashPrime
	}
	return h ^ h>>32
}

// kindOfValue hashes that a value of this kind stands here.
func kindOfValue(h uint64, c byte) uint64 { return (h ^ uint64(c)) * hashPrime }

// framer computes framings. Wrapped keys of one topic mostly repeat what
// stands before their payload letter by letter: it is hashed once.
type framer struct {
	prefix []byte // the last wrapped key up to its payload
	hash   uint64 // of prefix
}

// Framing is a JSON key's framing (K5): a hash of every byte that is not part
// of a value. The registry's header, names and their order, white space and a
// Connect schema in front all change the bytes of one and the same key, and
// with them the partition that a producer picks. A key that is one bare value
// has no framing to tell but its header; ill-formed text has none.
func (f *framer) Framing(key []byte) uint64 {
	if n := len(f.prefix); n > 0 && len(key) > n && string(key[:n]) == string(f.prefix) {
		if h, ok := f.payload(key, n); ok {
			return h
		}
	}
	b := stripFraming(key)
	header := key[:len(key)-len(b)]
	h := mix(hashStart, header)
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		if len(header) == 0 {
			return 0
		}
		return max(h, 1)
	}
	end := skipValue(b, i)
	if end < 0 {
		return 0
	}
	// The text is well-formed from here on. A schema's values are framing
	// too; a wrapper's payload is looked into.
	f.prefix = f.prefix[:0]
	h, end = f.object(b, i, mix(h, b[:i]), 1)
	if len(f.prefix) > 0 && len(header) > 0 {
		f.prefix = append(append([]byte(nil), header...), f.prefix...)
	}
	return max(mix(h, b[end:]), 1)
}

// payload hashes the rest of a key after the remembered prefix.
func (f *framer) payload(key []byte, v int) (uint64, bool) {
	end := skipValue(key, v)
	if end < 0 {
		return 0, true
	}
	at, more := next(key, end)
	if at < 0 || more {
		return 0, false
	}
	h, _ := f.value(key, v, f.hash, 0)
	return max(mix(mix(h, key[end:at]), key[at:]), 1), true
}

// value hashes the value at b[v]: an object's names while deeper is not
// negative, else what kind of value it is.
func (f *framer) value(b []byte, v int, h uint64, deeper int) (uint64, int) {
	if b[v] == '{' && deeper >= 0 {
		return f.object(b, v, h, deeper)
	}
	end := skipValue(b, v)
	if c := b[v]; c == '"' || c == '{' || c == '[' {
		return kindOfValue(h, c), end
	}
	return kindOfValue(h, '0'), end // numbers and words
}

// object hashes the object at b[i] without its values. Objects in it are
// looked into so many levels.
func (f *framer) object(b []byte, i int, h uint64, deeper int) (uint64, int) {
	from := i
	i = skipSpace(b, i+1)
	if b[i] == '}' {
		return mix(h, b[from:i+1]), i + 1
	}
	schema := false
	for {
		end, _ := scanString(b, i+1)
		name := b[i+1 : end]
		v := skipSpace(b, skipSpace(b, end+1)+1)
		h = mix(h, b[from:v])
		switch {
		case deeper > 0 && string(name) == "schema" && (b[v] == '{' || b[v] == 'n'):
			end = skipValue(b, v)
			h = mix(h, b[v:end])
			schema = true
		case deeper > 0 && string(name) == "payload" && schema && len(f.prefix) == 0 && v <= maxRaw*16:
			f.prefix = append(f.prefix, b[:v]...)
			f.hash = h
			fallthrough
		default:
			h, end = f.value(b, v, h, deeper-1)
		}
		from = end
		at, more := next(b, end)
		if !more {
			return mix(h, b[from:at]), at
		}
		i = at
	}
}
