package statestore

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrCorrupt marks a database value that is not what Commit wrote.
var ErrCorrupt = errors.New("state is damaged")

// ErrLayout marks a state folder that another version of this program wrote.
var ErrLayout = errors.New("its layout is another")

// enc appends values; ints are zig-zag varints.
type enc struct{ b []byte }

func (e *enc) i(v int64)     { e.b = binary.AppendVarint(e.b, v) }
func (e *enc) u(v uint64)    { e.b = binary.AppendUvarint(e.b, v) }
func (e *enc) raw(v []byte)  { e.b = append(e.b, v...) }
func (e *enc) str(v string)  { e.u(uint64(len(v))); e.b = append(e.b, v...) }
func (e *enc) byts(v []byte) { e.u(uint64(len(v))); e.b = append(e.b, v...) }
func (e *enc) bool(v bool) {
	if v {
		e.b = append(e.b, 1)
	} else {
		e.b = append(e.b, 0)
	}
}

// dec reads what enc wrote; the first fault sticks.
type dec struct {
	b   []byte
	bad bool
}

func (d *dec) fail() { d.bad, d.b = true, nil }

func (d *dec) i() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *dec) u() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *dec) raw(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.fail()
		return make([]byte, min(max(n, 0), 64))
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *dec) byts() []byte {
	n := d.u()
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	return d.raw(int(n))
}

func (d *dec) str() string { return string(d.byts()) }

func (d *dec) bool() bool {
	if len(d.b) == 0 {
		d.fail()
		return false
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v != 0
}

// count is a length that the rest of the value can hold at one byte an item.
func (d *dec) count() int {
	n := d.u()
	if n > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *dec) done(what string) error {
	if d.bad || len(d.b) != 0 {
		return fmt.Errorf("%w: %s; remove the state folder to rebuild it from the log", ErrCorrupt, what)
	}
	return nil
}
