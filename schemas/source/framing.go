package source

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
	fnvOffset uint64 = 14695981039346656037
	fnvPrime  uint64 = 1099511628211
)

func fnv(h uint64, b ...byte) uint64 {
	for _, c := range b {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

// framing is a JSON key's framing (K5): a hash of every byte that is not part
// of a value. The registry's header, names and their order, white space and a
// Connect schema in front all change the bytes of one and the same key, and
// with them the partition that a producer picks. A key that is one bare value
// has no framing to tell but its header.
func framing(key []byte) uint64 {
	b := stripFraming(key)
	h := fnv(fnvOffset, key[:len(key)-len(b)]...)
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		if len(b) == len(key) {
			return 0
		}
		return max(h, 1)
	}
	end := skipValue(b, i)
	if end < 0 {
		return 0
	}
	// The text is well-formed from here on. A schema's values are framing
	// too; a payload's members are looked into, for the wrapper's sake.
	if h, i = hashObject(b, i, fnv(h, b[:i]...), 1); i != end {
		return 0
	}
	return max(fnv(h, b[end:]...), 1)
}

// hashObject hashes the object at b[i] without its values. deeper objects are
// looked into so many levels; below, and in arrays, a value's kind counts.
func hashObject(b []byte, i int, h uint64, deeper int) (uint64, int) {
	from := i
	i = skipSpace(b, i+1)
	if b[i] == '}' {
		return fnv(h, b[from:i+1]...), i + 1
	}
	for {
		end, _ := scanString(b, i+1)
		name := string(b[i+1 : end])
		v := skipSpace(b, skipSpace(b, end+1)+1)
		h = fnv(h, b[from:v]...)
		end = skipValue(b, v)
		switch {
		case name == "schema" && deeper > 0 && (b[v] == '{' || b[v] == 'n'):
			h = fnv(h, b[v:end]...)
		case b[v] == '{' && deeper > 0:
			h, end = hashObject(b, v, h, deeper-1)
		case b[v] == '"' || b[v] == '{' || b[v] == '[':
			h = fnv(h, b[v])
		default:
			h = fnv(h, '0') // numbers and words
		}
		from = end
		at, more := next(b, end)
		if !more {
			return fnv(h, b[from:at]...), at
		}
		i = at
	}
}
