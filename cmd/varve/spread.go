package main

import (
	"errors"
	"fmt"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
)

// spread chooses the partition of events that come without a record key, so
// that all events of one table key meet in one partition (K5). It decodes each
// event as ingest will.
type spread struct {
	def        *schemas.Definition
	schema     schemas.Schema
	partitions int32
	decoder    source.Decoder
	encoder    *rows.KeyEncoder
	batch      *rows.Batch
	key, other []byte
}

func newSpread(def *schemas.Definition, partitions int) (*spread, error) {
	s := &spread{def: def, schema: *def.Schema(), partitions: int32(partitions)}
	return s, s.reset()
}

func (s *spread) reset() (err error) {
	if s.decoder, err = source.New(source.Options{Format: s.def.Format, Options: s.def.FormatOptions, Def: s.def, Schema: &s.schema}); err != nil {
		return asUsage(err)
	}
	s.batch = rows.NewBatch(&s.schema)
	s.encoder, err = rows.NewKeyEncoder(&s.schema, s.def.Key)
	return err
}

// place sets the partition of an event that has neither key nor partition.
// What no decoder reads goes to partition 0, and there to the dead letters.
func (s *spread) place(e *topology.SourceEvent) error {
	if e.Key != nil || e.Partition >= 0 {
		return nil
	}
	e.Partition = 0
	s.batch.Reset()
	r := source.Record{Value: e.Value}
	result, err := s.decoder.Decode(s.batch, &r)
	var change *source.SchemaChange
	for n := 0; errors.As(err, &change) && n < schemas.MaxColumns; n++ {
		if err := s.grow(change); err != nil {
			return err
		}
		result, err = s.decoder.Decode(s.batch, &r)
	}
	if err != nil || result.Events == 0 {
		return nil // ingest says why
	}
	if s.key, err = s.encoder.Append(s.key[:0], s.batch, 0); err != nil {
		return nil // as above
	}
	e.Partition = s.partitionOf(s.key)
	for i := 1; i < result.Events; i++ {
		if s.other, err = s.encoder.Append(s.other[:0], s.batch, i); err != nil {
			return nil
		}
		if s.partitionOf(s.other) != e.Partition {
			return fmt.Errorf("the event moves a row to another key, and the two keys belong to two partitions: write it as two records with their keys (--records), or use one partition")
		}
	}
	return nil
}

func (s *spread) partitionOf(key []byte) int32 {
	return int32(schemas.Murmur2(key)&0x7fffffff) % s.partitions
}

// grow takes the columns that an event brings, as ingest will.
func (s *spread) grow(c *source.SchemaChange) error {
	next := s.schema
	next.Fields = append([]schemas.Field(nil), s.schema.Fields...)
	for _, f := range c.Add {
		f.ID = next.HighestID() + 1
		next.Fields = append(next.Fields, f)
	}
	for _, f := range c.Widen {
		if i := next.ByID(f.ID); i >= 0 {
			next.Fields[i].Type = f.Type
		}
	}
	s.schema = next
	return s.reset()
}
