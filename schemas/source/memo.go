package source

// memo remembers how an object was written the last time, member by member.
// Change events repeat themselves: the same names in the same order, and most
// of source and of the envelope's tail letter by letter. A member written as
// before is passed over by one comparison; its text was read when it was met
// first, so nothing goes unchecked.
type memo []remembered

type remembered struct {
	kind   memberKind
	token  []byte // `"name":`
	raw    []byte // the member up to and including its comma or brace; empty: it changes
	misses uint8
}

// memberKind is what a member means to its reader; other is for passing over.
type memberKind uint8

const (
	other memberKind = iota
	afterMember
	beforeMember
	opMember
	sourceMember
	pathMember
	controlMember
)

// maxMisses is how often a member may differ before its text is no longer kept.
const maxMisses = 3

// maxRemembered bounds the members remembered of one object, maxRaw the text
// of each.
const (
	maxRemembered = 64
	maxRaw        = 256
)

// has says whether b holds t at i.
func has(b []byte, i int, t []byte) bool {
	return len(b)-i >= len(t) && string(b[i:i+len(t)]) == string(t)
}

// same says whether the k-th member at b[i] is written as the last time, and
// may be passed over.
func (m memo) same(k int, b []byte, i int) (end int, more, ok bool) {
	if k >= len(m) || len(m[k].raw) == 0 || !has(b, i, m[k].raw) {
		return i, false, false
	}
	i += len(m[k].raw)
	if b[i-1] == '}' {
		return i, false, true
	}
	if i < len(b) && b[i] <= ' ' {
		i = skipSpace(b, i)
	}
	return i, true, true
}

// name reads the k-th member's name at b[i]: its kind and its value's place,
// negative for ill-formed text. kinds is asked for names in a new place.
func (m *memo) name(k int, b []byte, i int, scratch *[]byte, kinds func(name []byte) memberKind) (memberKind, int) {
	if k < len(*m) {
		r := &(*m)[k]
		if j := i + len(r.token); len(r.token) > 0 && has(b, i, r.token) && j < len(b) {
			if b[j] <= ' ' {
				if j = skipSpace(b, j); j == len(b) {
					return other, -1
				}
			}
			return r.kind, j
		}
	}
	name, v := member(b, i, scratch)
	if v < 0 {
		return other, -1
	}
	kind := kinds(name)
	if k == len(*m) && k < maxRemembered {
		*m = append(*m, remembered{})
	}
	if k < len(*m) {
		r := &(*m)[k]
		r.kind, r.misses, r.raw = kind, 0, r.raw[:0]
		r.token = r.token[:0]
		if n := i + len(name) + 3; n <= v && b[n-1] == ':' && len(name) < maxRaw {
			r.token = append(r.token, b[i:n]...)
		}
	}
	return kind, v
}

// keep remembers the k-th member's text, from its name at i up to its
// delimiter before end.
func (m memo) keep(k int, b []byte, i, end int) {
	if k >= len(m) {
		return
	}
	r := &m[k]
	if r.misses >= maxMisses {
		r.raw = r.raw[:0]
		return
	}
	r.misses++
	if end-i <= maxRaw {
		r.raw = append(r.raw[:0], b[i:end]...)
	}
}

// skim reads the object at b[i] and takes the order value from its member
// want, if there is one.
func (r *reader) skim(m *memo, want string, b []byte, i int) (int, fail) {
	if b[i] != '{' {
		end := skipValue(b, i)
		if end < 0 {
			return i, malformed
		}
		return end, okay
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, okay
	}
	for k := 0; ; k++ {
		if end, more, ok := m.same(k, b, i); ok {
			if i = end; !more {
				return i, okay
			}
			continue
		}
		kind, v := m.name(k, b, i, &r.name, func(name []byte) memberKind {
			if want != "" && string(name) == want {
				return pathMember
			}
			return other
		})
		if v < 0 {
			return i, malformed
		}
		end := 0
		if kind == pathMember {
			var why fail
			if end, why = r.pick(nil, b, v); why != okay {
				return end, why
			}
		} else if end = skipValue(b, v); end < 0 {
			return v, malformed
		}
		end = skipSpace(b, end)
		at, more := next(b, end)
		if at < 0 {
			return end, malformed
		}
		if kind == other {
			m.keep(k, b, i, end+1)
		}
		if i = at; !more {
			return i, okay
		}
	}
}
