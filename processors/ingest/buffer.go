package ingest

import (
	"bytes"
	"cmp"
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
	tally  Tally
	held   []held // records whose unchanged values are looked up by the flush
	gone   []goneRow
	// heldBytes is what the held records were, in bytes.
	heldBytes int
	// Scratch of a flush, kept for the next one.
	items  []item
	ranks  []rank
	spare  []rank
	narrow []uint64
	low    []uint64 // of hashed keys
	bytes  []byte
	ends   []uint32
	uniq   []keyindex.Key
	found  []keyindex.Found
	rowID  []int64
	order  []int64
	hasOrd []uint8

	verdicts []verdict
	kills    []killed
	sel      []uint32
	places   []place
	entries  []keyindex.Entry
	files    []uint64 // that the flush deletes from
	numbers  map[uint64]uint32
	pos      []uint32
	out      bytes.Buffer // the data file
}

// item is one event of a flush: its key and its place in the buffer. Answers
// to requests stand behind all events, in the order of the requests.
type item struct {
	key keyindex.Key
	at  uint32
}

func (b *buffer) reset(s *schemas.Schema) {
	b.counts, b.tally = record.Counts{}, Tally{}
	b.held, b.heldBytes = nil, 0
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
	return b.batch.Size() + b.heldBytes
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
	b.ranks, b.low, b.uniq = b.ranks[:0], b.low[:0], b.uniq[:0]
	var err error
	if enc.Narrow() {
		if b.narrow, err = enc.NarrowKeys(b.narrow[:0], b.batch); err != nil {
			return err
		}
		for i, k := range b.narrow {
			b.ranks = append(b.ranks, rank{k, uint32(i)})
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
			b.ranks, b.low = append(b.ranks, rank{hi, uint32(i)}), append(b.low, lo)
		}
	}
	for j := range answers {
		k, err := indexKey(enc, secret, answers[j].key)
		if err != nil {
			return err
		}
		b.ranks, b.low = append(b.ranks, rank{k.Hi, uint32(n + j)}), append(b.low, k.Lo)
	}
	b.sortRanks()
	b.items = slices.Grow(b.items[:0], len(b.ranks))
	for _, r := range b.ranks {
		it := item{key: keyindex.Key{Hi: r.by}, at: r.at}
		if !enc.Narrow() {
			it.key.Lo = b.low[r.at]
		}
		b.items = append(b.items, it)
	}
	if !enc.Narrow() {
		sortLow(b.items)
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

// sortLow finishes the sorting of hashes by their first half: equal halves of
// different hashes are rare.
func sortLow(items []item) {
	for i := 0; i < len(items); {
		j, differ := i+1, false
		for ; j < len(items) && items[j].key.Hi == items[i].key.Hi; j++ {
			differ = differ || items[j].key.Lo != items[i].key.Lo
		}
		if differ {
			slices.SortStableFunc(items[i:j], func(x, y item) int { return cmp.Compare(x.key.Lo, y.key.Lo) })
		}
		i = j
	}
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
