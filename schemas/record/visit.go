package record

import (
	"encoding/json"

	"github.com/varve-io/varve/schemas"
)

// A visitor walks the fields of a type in the order of its Avro schema. Each
// type describes itself once (fields.go); binary and JSON, in both directions,
// are visitors. An element of an array is a field without name.
type visitor interface {
	reading() bool // the fields are being filled, not written
	failed() bool  // an error is kept; what follows is ignored
	refuse(name, why string)

	begin(name string) // a record
	end()
	// optional is a union with null: it tells whether a value follows.
	optional(name string, present bool) bool
	open(name string, n int) // an array
	// block is the number of elements that follow, 0 at the array's end, each
	// of at least minBytes bytes. Readers only.
	block(minBytes int) int
	close()

	int32(name string, v *int32)
	long(name string, v *int64)
	uint8(name string, v *uint8)
	reason(name string, v *Reason)
	uint32(name string, v *uint32)
	uint64(name string, v *uint64) // an Avro long with the same bits
	enum(name string, v *uint8, names []string)
	bool(name string, v *bool)
	str(name string, v *string)
	text(name string, v *string) // a string whose default is ""
	bytes(name string, v *[]byte)
	fixed(name string, v []byte)
	columnType(name string, v *schemas.Type)
}

func nested[T any](v visitor, name string, t *T, fields func(visitor, *T)) {
	v.begin(name)
	fields(v, t)
	v.end()
}

// array walks a slice; one walks an element. A reader's slice keeps its
// capacity and is nil only if it was.
func array[T any](v visitor, name string, s *[]T, minBytes int, one func(visitor, *T)) {
	v.open(name, len(*s))
	if !v.reading() {
		for i := range *s {
			one(v, &(*s)[i])
		}
		v.close()
		return
	}
	*s = (*s)[:0]
	for n := v.block(minBytes); n > 0; n = v.block(minBytes) {
		*s = room(*s, n)
		for range n {
			var zero T
			*s = append(*s, zero)
			one(v, &(*s)[len(*s)-1])
			if v.failed() {
				return
			}
		}
	}
	v.close()
}

func records[T any](v visitor, name string, s *[]T, minBytes int, fields func(visitor, *T)) {
	array(v, name, s, minBytes, func(v visitor, t *T) { nested(v, "", t, fields) })
}

func longs(v visitor, name string, s *[]int64) {
	array(v, name, s, 1, func(v visitor, x *int64) { v.long("", x) })
}

func ints(v visitor, name string, s *[]int32) {
	array(v, name, s, 1, func(v visitor, x *int32) { v.int32("", x) })
}

func optionalRecord[T any](v visitor, name string, t **T, fields func(visitor, *T)) {
	if !v.optional(name, *t != nil) {
		if v.reading() {
			*t = nil
		}
		return
	}
	if v.reading() {
		*t = new(T)
	}
	nested(v, name, *t, fields)
}

func optionalLong(v visitor, name string, has *bool, x *int64) {
	present := v.optional(name, *has)
	if present {
		v.long(name, x)
	}
	if v.reading() {
		*has = present
		if !present {
			*x = 0
		}
	}
}

func optionalBytes(v visitor, name string, has *bool, b *[]byte) {
	present := v.optional(name, *has)
	if present {
		v.bytes(name, b)
	}
	if v.reading() {
		*has = present
		if !present {
			*b = nil
		}
	}
}

// optionalJSON is a JSON text in a string; an empty one is no value at all.
func optionalJSON(v visitor, name string, raw *json.RawMessage) {
	s := string(*raw)
	present := v.optional(name, s != "")
	if present {
		v.str(name, &s)
	}
	if !v.reading() {
		return
	}
	*raw = nil
	switch {
	case !present:
	case s == "":
		v.refuse(name, "is empty; null means none")
	default:
		*raw = json.RawMessage(s)
	}
}
