package rekey

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
)

// PartitionOf is the partition of a canonical key among so many.
func PartitionOf(key []byte, partitions int32) int32 {
	return int32(schemas.Murmur2(key)&0x7fffffff) % partitions
}

// OriginHeader is the header of a moved record: 16 bytes topic id, partition
// u32, offset u64, big-endian.
const OriginHeader = "varve-origin"

const originSize = 16 + 4 + 8

// Origin is where a moved record stood.
type Origin struct {
	TopicID   [16]byte
	Partition int32
	Offset    int64
}

// Append appends the header's value.
func (o *Origin) Append(dst []byte) []byte {
	dst = append(dst, o.TopicID[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(o.Partition))
	return binary.BigEndian.AppendUint64(dst, uint64(o.Offset))
}

// OriginOf reads the first header of a moved record; false: it is none.
func OriginOf(headers []source.Header) (o Origin, ok bool) {
	if len(headers) == 0 || headers[0].Key != OriginHeader || len(headers[0].Value) != originSize {
		return o, false
	}
	v := headers[0].Value
	copy(o.TopicID[:], v)
	o.Partition = int32(binary.BigEndian.Uint32(v[16:]))
	o.Offset = int64(binary.BigEndian.Uint64(v[20:]))
	return o, o.Partition >= 0 && o.Offset >= 0
}

// Splitter finds the partitions of a table's events. It is used by one
// goroutine.
type Splitter struct {
	def        *schemas.Definition
	schema     schemas.Schema
	partitions int32
	decoder    source.Decoder
	encoder    *rows.KeyEncoder
	batch      *rows.Batch
	key        []byte
	registry   source.SchemaSource
}

// NewSplitter makes the splitter of a keyed table. registry has the writers'
// schemas of the formats that need one, and may be nil for the others.
func NewSplitter(def *schemas.Definition, partitions int32, registry source.SchemaSource) (*Splitter, error) {
	s := &Splitter{def: def, schema: *def.Schema(), partitions: partitions, registry: registry}
	return s, s.reset()
}

func (s *Splitter) reset() (err error) {
	if s.decoder, err = source.Open(s.def, &s.schema, s.registry); err != nil {
		return err
	}
	s.batch = rows.NewBatch(&s.schema)
	s.encoder, err = rows.NewKeyEncoder(&s.schema, s.def.Key)
	return err
}

// ErrUnread marks a record in which no event with a key was read: it is refused
// where it is ingested.
var ErrUnread = errors.New("no event with a key was read")

// Split appends the partitions that a record's events belong to, each once, in
// the events' order; none for a record of another table. ErrUnread: there are none, whatever the reason; an error
// that wraps source.ErrAway: not known now, try again later.
func (s *Splitter) Split(dst []int32, r *source.Record) ([]int32, error) {
	s.batch.Reset()
	result, err := s.decoder.Decode(s.batch, r)
	var change *source.SchemaChange
	for n := 0; errors.As(err, &change) && n < schemas.MaxColumns; n++ {
		if err := s.grow(change); err != nil {
			return dst, err
		}
		result, err = s.decoder.Decode(s.batch, r)
	}
	if errors.Is(err, source.ErrAway) {
		return dst, err
	}
	if result.Elsewhere {
		return dst, nil
	}
	if err != nil || result.Events == 0 {
		return dst, ErrUnread
	}
	from := len(dst)
	for i := range result.Events {
		if s.key, err = s.encoder.Append(s.key[:0], s.batch, i); err != nil {
			return dst[:from], ErrUnread
		}
		if p := PartitionOf(s.key, s.partitions); !slices.Contains(dst[from:], p) {
			dst = append(dst, p)
		}
	}
	return dst, nil
}

// Place is Split, and for a record in which nothing is read the partition of
// its record key's bytes.
func (s *Splitter) Place(dst []int32, r *source.Record) ([]int32, error) {
	dst, err := s.Split(dst, r)
	if errors.Is(err, ErrUnread) {
		return append(dst, PartitionOf(r.Key, s.partitions)), nil
	}
	return dst, err
}

// grow takes the columns that an event brings, as ingest will: they may be of
// use to no key, but the decoder needs them.
func (s *Splitter) grow(c *source.SchemaChange) error {
	next := s.schema
	next.Fields = slices.Clone(s.schema.Fields)
	for _, f := range c.Widen {
		if i := next.ByID(f.ID); i >= 0 {
			next.Fields[i].Type = f.Type
		}
	}
	next.Fields = append(next.Fields, c.Add...)
	next.AssignIDs(next.HighestID())
	s.schema = next
	if err := s.reset(); err != nil {
		return fmt.Errorf("table %s: take the columns that an event brings: %w", s.def.Name, err)
	}
	return nil
}
