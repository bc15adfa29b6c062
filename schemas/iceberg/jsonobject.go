package iceberg

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/varve-io/varve/schemas"
)

// Member is one key of a JSON object with its value as read.
type Member struct {
	Key   string
	Value json.RawMessage
}

// parseObject reads a JSON object's members in their order. A key that stands
// twice is an error: readers disagree about which one counts.
func parseObject(raw []byte) ([]Member, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	tok, err := dec.Token()
	if err != nil {
		return nil, corrupt("%v", err)
	}
	if tok != json.Delim('{') {
		return nil, corrupt("not a JSON object")
	}
	var out []Member
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, corrupt("%v", err)
		}
		key := tok.(string) // a key is a string or a syntax error
		if seen[key] {
			return nil, corrupt("key %.40q stands twice", key)
		}
		seen[key] = true
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, corrupt("key %.40q: %v", key, err)
		}
		var buf bytes.Buffer
		if err := json.Compact(&buf, v); err != nil {
			return nil, corrupt("key %.40q: %v", key, err)
		}
		out = append(out, Member{key, buf.Bytes()})
	}
	if _, err := dec.Token(); err != nil {
		return nil, corrupt("%v", err)
	}
	if len(bytes.TrimSpace(raw[dec.InputOffset():])) != 0 {
		return nil, corrupt("bytes behind the JSON object")
	}
	return out, nil
}

// parseArray reads a JSON array's items; null is none.
func parseArray(raw json.RawMessage) ([]json.RawMessage, error) {
	var out []json.RawMessage
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, corrupt("%v", err)
	}
	return out, nil
}

func unmarshal(raw json.RawMessage, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return corrupt("%v", err)
	}
	return nil
}

// objectWriter appends a JSON object with the keys in the order of the calls.
type objectWriter struct {
	b    []byte
	some bool
}

func beginObject(dst []byte) objectWriter { return objectWriter{b: append(dst, '{')} }

func (w *objectWriter) end() []byte { return append(w.b, '}') }

func (w *objectWriter) key(k string) {
	if w.some {
		w.b = append(w.b, ',')
	}
	w.some = true
	w.b = schemas.AppendJSONString(w.b, k)
	w.b = append(w.b, ':')
}

func (w *objectWriter) int(k string, v int64) {
	w.key(k)
	w.b = strconv.AppendInt(w.b, v, 10)
}

func (w *objectWriter) optInt(k string, v *int64) {
	if v != nil {
		w.int(k, *v)
	}
}

func (w *objectWriter) string(k, v string) {
	w.key(k)
	w.b = schemas.AppendJSONString(w.b, v)
}

func (w *objectWriter) raw(k string, v json.RawMessage) {
	w.key(k)
	w.b = append(w.b, v...)
}

func (w *objectWriter) raws(k string, vs []json.RawMessage) {
	w.key(k)
	w.b = append(w.b, '[')
	for i, v := range vs {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = append(w.b, v...)
	}
	w.b = append(w.b, ']')
}

func (w *objectWriter) properties(k string, ps []schemas.Property) {
	w.key(k)
	o := beginObject(w.b)
	for _, p := range ps {
		o.string(p.Key, p.Value)
	}
	w.b = o.end()
}

func (w *objectWriter) members(ms []Member) {
	for _, m := range ms {
		w.raw(m.Key, m.Value)
	}
}
