package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// maxJSONDepth is more than any record needs.
const maxJSONDepth = 16

// node is a JSON value: nil, bool, json.Number, string, []node or *object.
type node any

// object keeps what has been asked of it, so that what was not is found.
type object struct {
	names  []string
	values map[string]node
	asked  map[string]bool
	order  []string // asked, in order
}

func (o *object) get(name string) node {
	if !o.asked[name] {
		o.asked[name] = true
		o.order = append(o.order, name)
	}
	return o.values[name]
}

// parseJSON reads exactly one value. Unlike encoding/json it refuses a name
// that stands twice, and text that is not UTF-8.
func parseJSON(b []byte) (node, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	n, err := parseValue(d, 0)
	if err != nil {
		return nil, fmt.Errorf("not JSON, near byte %d: %w", d.InputOffset(), noEOF(err))
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more follows the value that ends near byte %d", d.InputOffset())
	}
	return n, nil
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func parseValue(d *json.Decoder, depth int) (node, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if depth == maxJSONDepth {
		return nil, fmt.Errorf("more than %d values inside each other", maxJSONDepth)
	}
	if delim == '[' {
		items := []node{}
		for d.More() {
			n, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			items = append(items, n)
		}
		_, err := d.Token()
		return items, err
	}
	o := &object{values: map[string]node{}, asked: map[string]bool{}}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := t.(string)
		if !ok {
			return nil, fmt.Errorf("a name is wanted, not %v", t)
		}
		if _, twice := o.values[name]; twice {
			return nil, fmt.Errorf("the name %q stands twice", name)
		}
		n, err := parseValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		o.names = append(o.names, name)
		o.values[name] = n
	}
	_, err = d.Token()
	return o, err
}
