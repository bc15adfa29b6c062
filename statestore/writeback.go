package statestore

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varve-io/varve/schemas/dv"
)

// Commit ends a batch: it returns what can be sent now. It writes to the
// database only when enough has changed, and does not wait for it: see Flush.
func (s *Store) Commit() (Outbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sound(); err != nil {
		return Outbox{}, err
	}
	if !s.applied {
		return Outbox{}, nil
	}
	s.applied = false
	out := Outbox{Outcomes: s.release(), Cuts: s.cutsDone, Jobs: s.jobsDue}
	s.cutsDone, s.jobsDue = nil, nil
	puts := s.heldPuts()
	if s.held+puts < s.opt.WriteBack && puts < s.opt.WriteBack/rarePart && s.logSize < s.mostLog() {
		return out, nil
	}
	if err := s.writeBack(); err != nil {
		return Outbox{}, err
	}
	durable, err := s.db.AsyncFlush()
	if err == nil && s.opt.Wait {
		<-durable
	}
	return out, err
}

// mostLog is how much log may be applied before it is written back.
func (s *Store) mostLog() int64 {
	if s.opt.Silent {
		return silentLog
	}
	return writeBackLog
}

// Rare values may take one part of so many of what is held: each write of a
// key stays in their batch, also the older ones, and lookups pass them by.
const rarePart = 6

// heldPuts is about what the batch of rare values takes: its bytes have room
// to grow as much again, and each is in an index.
func (s *Store) heldPuts() int64 {
	if s.puts == nil {
		return 0
	}
	return 2*int64(s.puts.Len()) + 64*int64(s.puts.Count())
}

// sync writes back what was applied, so that the database can be read.
func (s *Store) sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sound(); err != nil {
		return err
	}
	return s.writeBack()
}

// writeBack brings the database to the head, in one batch.
func (s *Store) writeBack() error {
	if !s.ahead {
		return nil
	}
	b := s.db.NewBatchWithSize(int(s.held/2) + 4096)
	err := s.fill(b)
	if err == nil {
		err = s.db.Apply(b, pebble.NoSync)
	}
	if err == nil {
		err = b.Close()
	}
	if err == nil && s.puts != nil {
		err = s.puts.Close()
	}
	if err != nil {
		s.broken = fmt.Errorf("write the state: %w", err)
		return s.broken
	}
	s.puts, s.ahead, s.held, s.logSize = nil, false, 0, 0
	s.outboxStored()
	s.trimChunks()
	return nil
}

// trimChunks lets go of all chunks, which the database has as they are, once
// they take too much.
func (s *Store) trimChunks() {
	took := 0
	for _, c := range s.chunks {
		took += c.memory()
	}
	if took > maxCachedChunks {
		clear(s.chunks)
		clear(s.near[:])
	}
}

// fill adds everything that the database lacks. Values of one key are written
// once, and keys mostly ascend: the database sorts what is left.
func (s *Store) fill(b *pebble.Batch) error {
	if s.puts != nil {
		if err := b.Apply(s.puts, nil); err != nil {
			return err
		}
	}
	slices.SortFunc(s.touched, func(a, c *chunk) int {
		if a.key.table != c.key.table {
			return cmp.Compare(a.key.table, c.key.table)
		}
		return cmp.Compare(a.key.base, c.key.base)
	})
	ids := s.sortedTables()
	for _, c := range s.touched {
		if err := s.fillKills(b, c); err != nil { // d
			return err
		}
	}
	for _, id := range ids {
		if err := fillDefinition(b, s.tables[id]); err != nil { // e
			return err
		}
	}
	for _, c := range s.touched {
		if err := s.fillEntries(b, c); err != nil { // f
			return err
		}
	}
	s.sumLast()
	s.chain()
	if err := b.Set([]byte{keyHead}, s.head.encode(), nil); err != nil { // h
		return err
	}
	for _, c := range s.touched {
		if err := s.fillMembers(b, c); err != nil { // m
			return err
		}
	}
	if err := s.storeOutbox(b); err != nil { // o
		return err
	}
	for _, id := range ids {
		if err := fillShards(b, s.tables[id]); err != nil { // s
			return err
		}
	}
	for _, id := range ids {
		if err := fillTable(b, s.tables[id]); err != nil { // t
			return err
		}
	}
	for _, c := range s.touched {
		if err := s.fillMarks(b, c); err != nil { // x
			return err
		}
		c.touched = false
	}
	clear(s.touched)
	s.touched = s.touched[:0]
	for _, id := range ids {
		if err := s.fillFrozen(b, id); err != nil { // z
			return err
		}
	}
	return nil
}

func fillDefinition(b *pebble.Batch, t *table) error {
	if !t.defDirty {
		return nil
	}
	t.defDirty = false
	return b.Set(key8(keyDef, uint64(t.id)), encodeDefinition(t.def), nil)
}

func fillShards(b *pebble.Batch, t *table) error {
	for _, sid := range t.shardOrder {
		sh := t.shards[sid]
		if !sh.dirty {
			continue
		}
		sh.dirty = false
		if err := b.Set(shardKeyBytes(t.id, sid), sh.encode(), nil); err != nil {
			return err
		}
	}
	return nil
}

func fillTable(b *pebble.Batch, t *table) error {
	if len(t.tuples) > maxCachedTuples {
		clear(t.tuples)
	}
	if !t.dirty {
		return nil
	}
	t.dirty = false
	return b.Set(key8(keyTable, uint64(t.id)), t.encode(), nil)
}

func (s *Store) fillEntries(b *pebble.Batch, c *chunk) error {
	if !c.dirty {
		return nil
	}
	c.dirty = false
	s.scratch = c.encode(s.scratch[:0])
	return b.Set(s.key16(keyChunk, uint64(c.key.table), c.key.base), s.scratch, nil)
}

func (s *Store) fillMembers(b *pebble.Batch, c *chunk) error {
	for i := c.stored; i < len(c.entries); i++ {
		f := &c.entries[i]
		if !f.member || f.gone {
			continue
		}
		k := binary.BigEndian.AppendUint64(s.key16(keyMembers, uint64(c.key.table), uint64(f.tuple)), f.id)
		if err := b.Set(k, nil, nil); err != nil {
			return err
		}
	}
	c.stored = len(c.entries)
	return nil
}

func (s *Store) fillMarks(b *pebble.Batch, c *chunk) error {
	if !c.marksDirty {
		return nil
	}
	c.marksDirty = false
	k := s.key16(keyChange, uint64(c.key.table), c.key.base)
	if c.added.empty() && c.killed.empty() {
		return b.Delete(k, nil)
	}
	s.scratch = c.encodeMarks(s.scratch[:0])
	return b.Set(k, s.scratch, nil)
}

// fillKills writes a chunk's delete blocks, those of one file as one set. A file
// that the database does not have has no dead positions there to unite with.
func (s *Store) fillKills(b *pebble.Batch, c *chunk) error {
	if len(c.kills) == 0 {
		return nil
	}
	order := c.killOrder(s.killOrder[:0])
	s.killOrder = order
	e := 0
	for i := 0; i < len(order); {
		var bit uint
		bit, s.sets, i = c.killsOf(order, i, s.sets[:0])
		for c.entries[e].id&127 != uint64(bit) {
			e++
		}
		if c.entries[e].gone {
			continue
		}
		set, err := dv.UnionAll(s.scratch[:0], s.sets...)
		if err != nil {
			return fmt.Errorf("%w: dead positions: %w", ErrCorrupt, err)
		}
		s.scratch = set
		k := s.key16(keyDead, uint64(c.key.table), c.entries[e].id)
		c.dead.set(uint(c.entries[e].id & 127))
		if e >= c.stored {
			err = b.Set(k, set, nil)
		} else {
			err = b.Merge(k, set, nil)
		}
		if err != nil {
			return err
		}
	}
	if n := int64(cap(c.kills)); s.killRoom+n <= s.opt.WriteBack/killRoomPart {
		s.killLogs, s.killRoom = append(s.killLogs, c.kills[:0]), s.killRoom+n
	}
	c.kills = nil
	return nil
}

// Room for delete blocks that is kept to be used again may take one part of so many
// of what may be held.
const killRoomPart = 2

// key16 is a key in scratch memory, with room for 8 more bytes.
func (s *Store) key16(space byte, a, b uint64) []byte {
	s.key = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(append(s.key[:0], space), a), b)
	return s.key
}
