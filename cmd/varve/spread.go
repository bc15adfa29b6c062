package main

import (
	"errors"
	"fmt"

	"github.com/varve-io/varve/processors/rekey"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
)

// spread chooses the partition of events that come without a record key, so
// that all events of one table key meet in one partition (K5).
type spread struct {
	splitter *rekey.Splitter
	places   []int32
}

func newSpread(def *schemas.Definition, partitions int, registry source.SchemaSource) (*spread, error) {
	s, err := rekey.NewSplitter(def, int32(partitions), registry)
	if err != nil {
		return nil, asUsage(err)
	}
	return &spread{splitter: s}, nil
}

// place sets the partition of an event that has neither key nor partition.
// What no decoder reads goes to partition 0, and there to the dead letters.
func (s *spread) place(e *topology.SourceEvent) error {
	if e.Key != nil || e.Partition >= 0 {
		return nil
	}
	var err error
	s.places, err = s.splitter.Split(s.places[:0], &source.Record{Value: e.Value, Headers: headersOf(e)})
	switch {
	case errors.Is(err, rekey.ErrUnread):
		e.Partition = 0 // ingest says why
		return nil
	case err != nil:
		return asUsage(err)
	case len(s.places) == 0:
		e.Partition = 0 // of another table
		return nil
	case len(s.places) > 1:
		return fmt.Errorf("the event moves a row to another key, and the two keys belong to two partitions: write it as two records with their keys (--records), or use one partition")
	}
	e.Partition = s.places[0]
	return nil
}
