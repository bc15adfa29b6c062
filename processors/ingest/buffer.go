package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/keyindex"
)

// buffer holds the events since the last flush, in their order.
type buffer struct {
	batch  *rows.Batch
	counts record.Counts
	// Scratch of a flush, kept for the next one.
	items  []item
	spare  []item
	narrow []uint64
	bytes  []byte
	ends   []uint32
	uniq   []keyindex.Key
	found  []keyindex.Found
	rowID  []int64
	order  []int64
	hasOrd []uint8
}

// item is one event of a flush: its key and its place in the buffer. Answers
// to requests stand behind all events, in the order of the requests.
type item struct {
	key keyindex.Key
	at  uint32
}

func (b *buffer) reset(s *schemas.Schema) {
	b.counts = record.Counts{}
	if b.batch == nil || b.batch.Schema != s {
		b.batch = rows.NewBatch(s)
		return
	}
	b.batch.Reset()
}

func (b *buffer) len() int {
	if b.batch == nil {
		return 0
	}
	return b.batch.Len()
}

func (b *buffer) size() int {
	if b.batch == nil {
		return 0
	}
	return b.batch.Size()
}

// answer is one key of one request in the flush's request range.
type answer struct {
	key []byte // canonical
	req *request
}

var errHash = errors.New("two keys of one buffer have the same 128-bit hash")

// sortKeys fills items with the events and answers by key, those of one key in
// their order, and uniq with the distinct keys.
func (b *buffer) sortKeys(enc *rows.KeyEncoder, secret [16]byte, answers []answer) error {
	n := b.batch.Len()
	b.items, b.uniq = b.items[:0], b.uniq[:0]
	var err error
	if enc.Narrow() {
		if b.narrow, err = enc.NarrowKeys(b.narrow[:0], b.batch); err != nil {
			return err
		}
		for i, k := range b.narrow {
			b.items = append(b.items, item{keyindex.Key{Hi: k}, uint32(i)})
		}
	} else {
		b.bytes, b.ends = b.bytes[:0], b.ends[:0]
		for i := range n {
			start := len(b.bytes)
			if b.bytes, err = enc.Append(b.bytes, b.batch, i); err != nil {
				return err
			}
			b.ends = append(b.ends, uint32(len(b.bytes)))
			hi, lo := rows.Hash128(secret, b.bytes[start:])
			b.items = append(b.items, item{keyindex.Key{Hi: hi, Lo: lo}, uint32(i)})
		}
	}
	for j := range answers {
		k, err := indexKey(enc, secret, answers[j].key)
		if err != nil {
			return err
		}
		b.items = append(b.items, item{k, uint32(n + j)})
	}
	if enc.Narrow() {
		b.radix()
	} else {
		slices.SortFunc(b.items, func(x, y item) int {
			switch {
			case x.key.Less(y.key):
				return -1
			case y.key.Less(x.key):
				return 1
			}
			return int(x.at) - int(y.at)
		})
	}
	for i := range b.items {
		if i == 0 || b.items[i].key != b.items[i-1].key {
			b.uniq = append(b.uniq, b.items[i].key)
		} else if !enc.Narrow() && !bytes.Equal(b.keyBytes(enc, b.items[i].at, answers), b.keyBytes(enc, b.items[i-1].at, answers)) {
			return fmt.Errorf("%w; load the table in smaller parts and report this", errHash)
		}
	}
	return nil
}

// radix sorts items by Hi, stable, one byte a pass; bytes that all keys share are skipped.
func (b *buffer) radix() {
	if len(b.items) < 256 {
		slices.SortStableFunc(b.items, func(x, y item) int {
			switch {
			case x.key.Hi < y.key.Hi:
				return -1
			case x.key.Hi > y.key.Hi:
				return 1
			}
			return 0
		})
		return
	}
	if cap(b.spare) < len(b.items) {
		b.spare = make([]item, len(b.items))
	}
	from, to := b.items, b.spare[:len(b.items)]
	var or, and uint64
	and = ^uint64(0)
	for i := range from {
		or |= from[i].key.Hi
		and &= from[i].key.Hi
	}
	differs := or &^ and
	for shift := 0; shift < 64; shift += 8 {
		if differs>>shift&0xff == 0 {
			continue
		}
		var count [256]int
		for i := range from {
			count[from[i].key.Hi>>shift&0xff]++
		}
		sum := 0
		for i, c := range count {
			count[i] = sum
			sum += c
		}
		for i := range from {
			k := from[i].key.Hi >> shift & 0xff
			to[count[k]] = from[i]
			count[k]++
		}
		from, to = to, from
	}
	b.items, b.spare = from, to
}

// keyBytes is the canonical key of an event or answer.
func (b *buffer) keyBytes(enc *rows.KeyEncoder, at uint32, answers []answer) []byte {
	if n := uint32(b.batch.Len()); at >= n {
		return answers[at-n].key
	}
	if enc.Narrow() {
		return nil
	}
	start := uint32(0)
	if at > 0 {
		start = b.ends[at-1]
	}
	return b.bytes[start:b.ends[at]]
}

// narrowKey is the length of a canonical key that is its own index key.
const narrowKey = 8

// indexKey is the index key of a canonical key.
func indexKey(enc *rows.KeyEncoder, secret [16]byte, key []byte) (keyindex.Key, error) {
	if !enc.Narrow() {
		hi, lo := rows.Hash128(secret, key)
		return keyindex.Key{Hi: hi, Lo: lo}, nil
	}
	if len(key) != narrowKey {
		return keyindex.Key{}, rows.ErrBadKey
	}
	var v uint64
	for _, c := range key {
		v = v<<8 | uint64(c)
	}
	return keyindex.Key{Hi: v}, nil
}
