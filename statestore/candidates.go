package statestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varve-io/varve/schemas/dv"
)

// Candidate is a reference to a data file that a job may take (F1): mostly the
// whole file.
type Candidate struct {
	ID     uint64
	Lo, Hi int64
	Node   int64  // leaf of the table's tree of key ranges
	Rows   int64  // Hi - Lo
	Bytes  int64  // of the file, as large a share as of its rows
	Dead   int64  // of Rows, as of now
	Tuple  uint32 // equal for the files of one partition of the table
	Record int64  // offset of the record that added it
}

// candidateChunks is how many chunks are looked at while the state is held.
const candidateChunks = 256

// Candidates calls fn with the files of a table, by id from a given one on, that
// are published, free, on a leaf and not gone, and do not have all their rows dead. It holds
// the state for a few thousand files at a time, so what it tells is not of one
// offset: whoever plans by it lets apply decide (L2). fn returns false to end early,
// behind the last reference to that file; next is the id to go on with, 0 when there
// is none.
func (s *Store) Candidates(tableID int64, from uint64, fn func(*Candidate) bool) (next uint64, err error) {
	var page []Candidate
	for {
		if page, next, err = s.candidates(tableID, from>>7, page[:0]); err != nil {
			return 0, err
		}
		for i := range page {
			if page[i].ID >= from && !fn(&page[i]) {
				for k := i + 1; k < len(page) && page[k].ID == page[i].ID; k++ {
					fn(&page[k])
				}
				return page[i].ID + 1, nil
			}
		}
		if next == 0 {
			return 0, nil
		}
		from = next
	}
}

// candidates appends the candidates of some chunks, base and those behind it.
func (s *Store) candidates(tableID int64, base uint64, dst []Candidate) (_ []Candidate, next uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sound(); err != nil {
		return nil, 0, err
	}
	bases, values, more, err := s.chunksFrom(tableID, base)
	if err != nil || len(bases) == 0 {
		return nil, 0, err
	}
	prefix := key8(keyDead, uint64(tableID))
	dead, err := s.db.NewIter(&pebble.IterOptions{LowerBound: key16(keyDead, uint64(tableID), bases[0]<<7), UpperBound: prefixEnd(prefix)})
	if err != nil {
		return nil, 0, readError(err)
	}
	defer func() {
		if e := errors.Join(dead.Error(), dead.Close()); e != nil && err == nil {
			err = readError(e)
		}
	}()
	dead.First()
	leaves := leafSet{s: s, t: &table{id: tableID}}
	for i, b := range bases {
		c := s.cached(chunkKey{tableID, b})
		if c == nil {
			c = &chunk{key: chunkKey{tableID, b}}
			if err := c.decode(values[i]); err != nil {
				return nil, 0, err
			}
		}
		for k := range c.entries {
			f := &c.entries[k]
			if f.gone || f.manifest == 0 || c.job(f.id) != nil {
				continue
			}
			if c.parted.has(uint(f.id & 127)) {
				if dst, err = leaves.candidates(c, f, dst); err != nil {
					return nil, 0, err
				}
				continue
			}
			if leaf, err := leaves.has(root); err != nil {
				return nil, 0, err
			} else if !leaf {
				continue
			}
			n, err := s.deadOf(tableID, c, f, dead, len(prefix))
			if err != nil {
				return nil, 0, err
			}
			if n < f.rows {
				dst = append(dst, Candidate{ID: f.id, Hi: f.rows, Rows: f.rows, Bytes: f.bytes, Dead: n, Tuple: f.tuple, Record: f.record})
			}
		}
	}
	if more {
		next = (bases[len(bases)-1] + 1) << 7
	}
	return dst, next, nil
}

// chunksFrom finds the first chunks of a table from a base on: those of the
// database, with their values, and those that it lacks.
func (s *Store) chunksFrom(tableID int64, base uint64) (bases []uint64, values [][]byte, more bool, err error) {
	var held []uint64
	for _, c := range s.touched {
		if c.key.table == tableID && c.key.base >= base {
			held = append(held, c.key.base)
		}
	}
	slices.Sort(held)
	prefix := key8(keyChunk, uint64(tableID))
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: key16(keyChunk, uint64(tableID), base), UpperBound: prefixEnd(prefix)})
	if err != nil {
		return nil, nil, false, readError(err)
	}
	ok := it.First()
	for len(bases) < candidateChunks && (ok || len(held) > 0) {
		stored := ^uint64(0)
		if ok {
			stored = binary.BigEndian.Uint64(it.Key()[len(prefix):])
		}
		if len(held) > 0 && held[0] < stored {
			bases, values = append(bases, held[0]), append(values, nil)
			held = held[1:]
			continue
		}
		if len(held) > 0 && held[0] == stored {
			held = held[1:]
		}
		bases, values = append(bases, stored), append(values, slices.Clone(it.Value()))
		ok = it.Next()
	}
	more = ok || len(held) > 0
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, nil, false, readError(err)
	}
	return bases, values, more, nil
}

// deadOf counts a file's dead rows. dead stands at or before the file's set.
func (s *Store) deadOf(tableID int64, c *chunk, f *fileEntry, dead *pebble.Iterator, prefix int) (int64, error) {
	var set []byte
	var err error
	if len(c.kills) > 0 {
		if set, err = s.deadNow(&table{id: tableID}, c, f); err != nil {
			return 0, err
		}
	} else {
		at := uint64(0)
		ok := dead.Valid()
		if ok {
			at = binary.BigEndian.Uint64(dead.Key()[prefix:])
		}
		if ok && at < f.id {
			if ok = dead.SeekGE(key16(keyDead, uint64(tableID), f.id)); ok {
				at = binary.BigEndian.Uint64(dead.Key()[prefix:])
			}
		}
		if ok && at == f.id {
			if set, err = dead.ValueAndErr(); err != nil {
				return 0, readError(err)
			}
		}
	}
	if set == nil {
		return 0, nil
	}
	n, err := dv.Count(set)
	if err != nil {
		return 0, fmt.Errorf("%w: dead positions of file %d", ErrCorrupt, f.id)
	}
	return int64(n), nil
}

// leafSet remembers which nodes of a table's tree are leaves, for as long as the
// state is held.
type leafSet struct {
	s     *Store
	t     *table
	known map[int64]bool
}

func (l *leafSet) has(node int64) (bool, error) {
	leaf, ok := l.known[node]
	if ok {
		return leaf, nil
	}
	leaf, err := l.s.isLeaf(l.t, node)
	if err != nil {
		return false, err
	}
	if l.known == nil {
		l.known = map[int64]bool{}
	}
	l.known[node] = leaf
	return leaf, nil
}

// candidates appends the references to a file that is more than one, or not on the root.
func (l *leafSet) candidates(c *chunk, f *fileEntry, dst []Candidate) ([]Candidate, error) {
	parts, err := l.s.parts(l.t, c, f.id)
	if err != nil {
		return dst, err
	}
	for i := range parts {
		p := &parts[i]
		if p.state != partFree {
			continue
		}
		if leaf, err := l.has(p.node); err != nil {
			return dst, err
		} else if !leaf {
			continue
		}
		x, err := l.s.referred(l.t, c, f, p)
		if err != nil {
			return dst, err
		}
		if x.Dead < x.Rows {
			dst = append(dst, x)
		}
	}
	return dst, nil
}

// referred tells of a reference to a file.
func (s *Store) referred(t *table, c *chunk, f *fileEntry, p *part) (Candidate, error) {
	x := Candidate{ID: f.id, Lo: p.lo, Hi: p.hi, Node: p.node, Rows: p.hi - p.lo, Bytes: share(f.bytes, p.hi-p.lo, f.rows), Tuple: f.tuple, Record: f.record}
	dead, err := s.deadIn(t, c, f, p.lo, p.hi)
	if err != nil || dead == nil {
		return x, err
	}
	n, err := dv.Count(dead)
	if err != nil {
		return x, fmt.Errorf("%w: dead positions of file %d", ErrCorrupt, f.id)
	}
	x.Dead = int64(n)
	return x, nil
}

// share is a part of n, of bytes a file's share of its rows.
func share(n, part, of int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(of)) // part <= of: it fits
	return max(int64(q), 1)
}
