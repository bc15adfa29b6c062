package source

import (
	"encoding/base64"

	"github.com/varve-io/varve/schemas/rows"
)

// carries says whether a value that the source did not send may come from the
// row's newest older version, and notes that it shall. A key or an ordering
// value decides which version that is: it must be sent.
func (r *reader) carries(f *field) bool {
	if len(r.keys) == 0 || f.key >= 0 || f.col == r.orderCol {
		return false
	}
	r.carried = append(r.carried, f.col)
	return true
}

// upserted closes the event of the row just appended. moved says that image
// holds the key that the row had before.
func (r *reader) upserted(dst *rows.Batch, rec *Record, order int64, has, moved bool) {
	if len(r.carried) > 0 {
		from := -1
		if moved {
			from = dst.WasKey(r.keys, r.image)
		}
		for _, c := range r.carried {
			dst.Carry(rows.Carried{Row: dst.Len(), Col: c, From: from})
		}
		r.carried = r.carried[:0]
	}
	dst.AppendEvent(rows.Upsert, rec.Offset, order, has)
}

// oldKeyHeader is the header of the event that brings a row back under its new
// key: d of the old key, a tombstone, c of the new one.
const oldKeyHeader = "__debezium.oldkey"

// headerKey leaves the old key that a header tells in image, if it does.
func (r *reader) headerKey(rec *Record) bool {
	for i := range rec.Headers {
		h := &rec.Headers[i]
		if h.Key != oldKeyHeader || h.Value == nil {
			continue
		}
		k, j := r.recordKey(h.Value, KindUpsert)
		if j != nil || k.plan.keyChange != nil {
			return false
		}
		for c := range r.image {
			r.image[c].Truncate(0)
		}
		return r.putKey(k.plan, r.image, r.ordinals, k.text) == okay
	}
	return false
}

// isMarker says whether a JSON value is the marker of an unchanged one.
func (s *settings) isMarker(v []byte) bool {
	if v[0] == '[' {
		// An array that did not change is one of the marker.
		i := skipSpace(v, 1)
		end := skipValue(v, i)
		if end < 0 || v[i] != '"' {
			return false
		}
		if _, more := nextOf(v, end); more {
			return false
		}
		v = v[i:end]
	}
	if v[0] != '"' {
		return false
	}
	text := string(v[1 : len(v)-1])
	return text == s.unavailable || text == base64.StdEncoding.EncodeToString([]byte(s.unavailable))
}
