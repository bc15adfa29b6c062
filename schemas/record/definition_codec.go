package record

import (
	"fmt"

	"github.com/varve-io/varve/schemas"
)

// EncodeDefinition appends a table's definition as CreateTable carries it.
// Its bytes depend on the definition alone.
func EncodeDefinition(dst []byte, d *schemas.Definition) ([]byte, error) {
	w := binWriter{b: dst}
	definitionFields(&w, d)
	if w.err != nil {
		return dst, fmt.Errorf("definition: %w", w.err)
	}
	return w.b, nil
}

// DecodeDefinition reads what EncodeDefinition wrote.
func DecodeDefinition(b []byte, d *schemas.Definition) error {
	r := binReader{b: b}
	definitionFields(&r, d)
	return r.finish("definition")
}
