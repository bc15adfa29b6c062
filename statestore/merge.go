package statestore

import (
	"bytes"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varve-io/varve/schemas/dv"
)

// deadMerger unites position sets. The bytes depend on the set alone, whatever
// order and grouping Pebble merges in.
var deadMerger = &pebble.Merger{
	Name: "varve.dead.1",
	Merge: func(_, value []byte) (pebble.ValueMerger, error) {
		return &deadMerge{sets: [][]byte{bytes.Clone(value)}}, nil
	},
}

type deadMerge struct{ sets [][]byte }

func (m *deadMerge) MergeNewer(v []byte) error {
	m.sets = append(m.sets, bytes.Clone(v))
	return nil
}

func (m *deadMerge) MergeOlder(v []byte) error { return m.MergeNewer(v) }

func (m *deadMerge) Finish(bool) ([]byte, io.Closer, error) {
	b, err := dv.UnionAll(nil, m.sets...)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: dead positions: %w", ErrCorrupt, err)
	}
	return b, nil, nil
}
