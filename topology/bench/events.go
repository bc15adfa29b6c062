package bench

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
)

// customers is the table of the works that load events: a Debezium event of it
// has about 420 bytes.
func customers(name, format string, commitMs int64) schemas.Definition {
	return schemas.Definition{
		Name: name, FormatVersion: 3, Mode: schemas.ModeDV,
		Schemas: []schemas.Schema{{ID: 0, Identifier: []int32{1}, Fields: []schemas.Field{
			{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true},
			{ID: 2, Name: "first_name", Type: schemas.Of(schemas.String)},
			{ID: 3, Name: "last_name", Type: schemas.Of(schemas.String)},
			{ID: 4, Name: "email", Type: schemas.Of(schemas.String)},
		}}},
		LastColumnID: 4, Specs: []schemas.Spec{{}}, LastPartitionID: 999, Key: []int32{1},
		SourceTopic: name, Format: format, CommitIntervalMs: commitMs, TombstoneTTLMs: 24 * 3600 * 1000,
		RetentionMs: schemas.DefaultRetentionMs, RetentionCount: schemas.DefaultRetentionCount,
	}
}

// customer is one row as the events carry it.
type customer struct {
	id          int64
	first, last int // numbers of words
}

// words are the distinct first and last names.
const words = 1000

func drawCustomer(r *rand.Rand, id int64) customer {
	return customer{id, r.IntN(words), r.IntN(words)}
}

func (c *customer) appendFirst(dst []byte) []byte { return appendWord(dst, "Sal", c.first) }
func (c *customer) appendLast(dst []byte) []byte  { return appendWord(dst, "Tom", c.last) }

func (c *customer) appendEmail(dst []byte) []byte {
	dst = append(c.appendFirst(dst), '.')
	dst = append(c.appendLast(dst), "@acme"...)
	dst = strconv.AppendInt(dst, c.id%100, 10)
	return append(dst, ".com"...)
}

func appendWord(dst []byte, stem string, n int) []byte {
	dst = append(dst, stem...)
	for range 2 {
		dst = append(dst, "bcdfghklmnprstvz"[n&15], "aeiouyáö"[n>>4&1])
		n >>= 5
	}
	return dst
}

// encoder writes events of one format.
type encoder interface {
	upsert(dst []byte, c *customer) ([]byte, error)
	remove(dst []byte, id int64) ([]byte, error)
}

func newEncoder(def *schemas.Definition) (encoder, error) {
	switch def.Format {
	case source.DebeziumJSON:
		return debezium{}, nil
	case source.VarveAvro:
		return &varveAvro{enc: source.NewAvroEncoder(def.Schema()), row: rows.NewBatch(def.Schema())}, nil
	}
	return nil, fmt.Errorf("no events of format %s", def.Format)
}

// debezium writes events as Debezium's MySQL connector does without schemas.
type debezium struct{}

const debeziumSource = `},"source":{"version":"2.7.0.Final","connector":"mysql","name":"dbserver1","ts_ms":1661327688868,"snapshot":"false",` +
	`"db":"inventory","sequence":null,"table":"customers","server_id":223344,"gtid":null,"file":"mysql-bin.000003",` +
	`"pos":157,"row":0,"thread":7,"query":null},"op":"`

const debeziumEnd = `","ts_ms":1661327688868,"transaction":null}`

func (debezium) upsert(dst []byte, c *customer) ([]byte, error) {
	dst = append(dst, `{"before":null,"after":{"id":`...)
	dst = strconv.AppendInt(dst, c.id, 10)
	dst = c.appendFirst(append(dst, `,"first_name":"`...))
	dst = c.appendLast(append(dst, `","last_name":"`...))
	dst = c.appendEmail(append(dst, `","email":"`...))
	dst = append(append(dst, '"'), debeziumSource...)
	return append(append(dst, 'u'), debeziumEnd...), nil
}

func (debezium) remove(dst []byte, id int64) ([]byte, error) {
	dst = append(dst, `{"after":null,"before":{"id":`...)
	dst = strconv.AppendInt(dst, id, 10)
	dst = append(append(dst, debeziumSource...), 'd')
	return append(dst, debeziumEnd...), nil
}

type varveAvro struct {
	enc  *source.AvroEncoder
	row  *rows.Batch
	text []byte
}

func (v *varveAvro) upsert(dst []byte, c *customer) ([]byte, error) {
	v.row.Reset()
	v.row.Cols[0].AppendInt(c.id)
	for i, f := range []func([]byte) []byte{c.appendFirst, c.appendLast, c.appendEmail} {
		v.text = f(v.text[:0])
		v.row.Cols[i+1].AppendBytes(v.text)
	}
	v.row.AppendEvent(rows.Upsert, 0, 0, false)
	return v.enc.Append(dst, v.row, 0)
}

func (v *varveAvro) remove(dst []byte, id int64) ([]byte, error) {
	v.row.Reset()
	v.row.Cols[0].AppendInt(id)
	v.row.AppendEvent(rows.Delete, 0, 0, false)
	return v.enc.Append(dst, v.row, 0)
}

// slab cuts records from large pieces of memory, which the producer holds until
// each is acknowledged.
type slab struct{ b []byte }

const (
	slabBytes = 1 << 20
	maxEvent  = 1024
)

// room is space for one event to be appended to.
func (s *slab) room() []byte {
	if cap(s.b)-len(s.b) < maxEvent {
		s.b = make([]byte, 0, slabBytes)
	}
	return s.b[len(s.b):len(s.b):cap(s.b)]
}

// keep takes what was appended to room.
func (s *slab) keep(e []byte) []byte {
	s.b = s.b[:len(s.b)+len(e)]
	return e[:len(e):len(e)]
}

// keyOf is the record key that Debezium gives.
func (s *slab) keyOf(id int64) []byte {
	k := append(s.room(), `{"id":`...)
	k = strconv.AppendInt(k, id, 10)
	return s.keep(append(k, '}'))
}

// scattered is a permutation of 0..n-1 that looks drawn: the rows of a first
// load do not come sorted.
type scattered struct{ n, step uint64 }

func newScattered(n int64) scattered {
	s := scattered{uint64(n), uint64(n)*618/1000 | 1}
	for gcd(s.step, s.n) != 1 {
		s.step += 2
	}
	return s
}

func (s scattered) at(i int64) int64 { return int64(uint64(i) * s.step % s.n) }

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// events gives n upserts whose ids id draws.
func events(enc encoder, n int64, r *rand.Rand, id func(i int64) int64) func() (topology.Entry, bool, error) {
	var mem slab
	i := int64(0)
	return func() (topology.Entry, bool, error) {
		if i == n {
			return topology.Entry{}, false, nil
		}
		c := drawCustomer(r, id(i))
		i++
		v, err := enc.upsert(mem.room(), &c)
		if err != nil {
			return topology.Entry{}, false, err
		}
		v = mem.keep(v)
		return topology.Entry{Key: mem.keyOf(c.id), Value: v}, true, nil
	}
}
