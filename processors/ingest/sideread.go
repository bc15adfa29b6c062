package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// sideReader reads the parts of a side file. After bad, nothing that it gives
// means anything.
type sideReader struct {
	r        *bytes.Reader
	bad      error
	numbered bool     // the paths of maps are
	paths    []string // those that were met
}

func (r *sideReader) varint() int64 {
	v, err := binary.ReadVarint(r.r)
	r.bad = errors.Join(r.bad, err)
	return v
}

func (r *sideReader) uvarint() uint64 {
	v, err := binary.ReadUvarint(r.r)
	r.bad = errors.Join(r.bad, err)
	return v
}

// count is a number of things of which each takes a byte at least.
func (r *sideReader) count() int {
	v := r.uvarint()
	if v > uint64(r.r.Len()) {
		r.bad = errSide
		return 0
	}
	return int(v)
}

func (r *sideReader) fill(b []byte) {
	_, err := io.ReadFull(r.r, b)
	r.bad = errors.Join(r.bad, err)
}

func (r *sideReader) text() string {
	b := make([]byte, r.count())
	r.fill(b)
	return string(b)
}

func (r *sideReader) flag() bool {
	b, err := r.r.ReadByte()
	if r.bad = errors.Join(r.bad, err); b > 1 {
		r.bad = errSide
	}
	return b == 1
}
