package statestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
)

// Sentinels of a partition that must stop.
var (
	// ErrHole: the next record's offset is not the last one plus one (L5).
	ErrHole = errors.New("hole in the transactions log")
	// ErrFork: the log does not hold the record that the state applied last (L5).
	ErrFork = errors.New("the transactions log is not the one that this state was built from")
	// ErrUnknownVersion: a SetApplyVersion that this binary does not know (L8).
	ErrUnknownVersion = errors.New("the log asks for an apply version that this binary does not know")
	// ErrIdentity: the folder belongs to another deployment or partition.
	ErrIdentity = errors.New("the state folder belongs to another deployment or partition")
)

// Head is where the state stands in its log.
type Head struct {
	Offset       int64 // of the last applied record, -1 before the genesis
	LeaderEpoch  int32
	Checksum     uint32 // CRC-32C over the last record's bytes
	Chain        record.Hash
	TimeMs       int64 // table time (L4)
	ApplyVersion uint32
	Deployment   [16]byte
	Partitions   int32
	Partition    int32
	Horizon      int64 // dedupe horizon: requests that saw less are too old (L9)
	forgotten    int64 // request ids of records below this offset are gone
	samples      []timeSample
}

// timeSample says that the record at offset had table time ms.
type timeSample struct{ offset, ms int64 }

// Options of Open.
type Options struct {
	// Cache is the block cache, in bytes; memtables are charged to it.
	// Default 64 MiB.
	Cache int64
	// MemTable is a memtable's size, in bytes. Default 16 MiB.
	MemTable uint64
	// FS replaces the file system, in tests. Default: the disk.
	FS vfs.FS
	// Log receives Pebble's errors. Default: slog.Default().
	Log *slog.Logger
}

// Store is the state of one transactions partition. Its methods are safe for
// use by several goroutines; Apply and Commit belong to one.
type Store struct {
	mu      sync.Mutex
	db      *pebble.DB
	head    Head
	tables  map[int64]*table
	names   map[string]int64 // current binding, as cached; 0 value means none
	chunks  map[chunkKey]*chunk
	touched []*chunk // dirty chunks since the last commit
	arena   []byte   // bytes of delete blocks and outcome messages since the last commit
	puts    *pebble.Batch
	headOK  bool // head changed since the last commit

	// requests of records since the last commit, not in the database yet
	requests map[record.RequestID]requestEntry

	// pendingOut are outcomes of commits that a record forced before its own rules
	pendingOut []Message
	out        []outMessage // outcome messages since the last commit
	outFirst   int64
	cutsDone   []CutNotice
	effects    []byte // scratch of the record under way
	now        int64  // table time of the record under way
	bodyRead   bool   // the record under way took its body from Record.Body
	scratch    []byte
	sets       [][]byte
	msgKey     []byte
	msgValue   []byte
	rec        record.AppendRows
}

type outMessage struct{ key, value []byte }

// CutNotice says that a table has a pending cut to publish.
type CutNotice struct {
	Table   string
	TableID int64
	Build   int64
}

// Message is one message of the outcomes topic. A derived one goes out before
// the record's own, so only the own one says that an offset was sent.
type Message struct {
	Offset     int64
	Derived    bool
	Key, Value []byte
}

// Outbox is what a commit made ready to send (L11). All of it is "perhaps again".
type Outbox struct {
	Outcomes []Message
	Cuts     []CutNotice
}

const (
	arenaBytes      = 256 << 10
	maxCachedChunks = 1 << 16
	maxCachedTuples = 1 << 17
)

// Open opens or creates the state in dir.
func Open(dir string, opt Options) (*Store, error) {
	if opt.Cache == 0 {
		opt.Cache = 64 << 20
	}
	if opt.MemTable == 0 {
		opt.MemTable = 16 << 20
	}
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	cache := pebble.NewCache(opt.Cache)
	defer cache.Unref()
	po := &pebble.Options{
		Cache:                       cache,
		MemTableSize:                opt.MemTable,
		MemTableStopWritesThreshold: 4,
		DisableWAL:                  true,
		Merger:                      deadMerger,
		FormatMajorVersion:          pebble.FormatNewest,
		Logger:                      pebbleLog{opt.Log},
	}
	if opt.FS != nil {
		po.FS = opt.FS
	}
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := pebble.Open(dir, po)
	if err != nil {
		return nil, fmt.Errorf("open the state in %s: %w", dir, err)
	}
	s := &Store{
		db: db, tables: map[int64]*table{}, names: map[string]int64{}, chunks: map[chunkKey]*chunk{},
		requests: map[record.RequestID]requestEntry{}, outFirst: -1,
	}
	if err := s.loadHead(); err != nil {
		return nil, errors.Join(fmt.Errorf("state in %s: %w", dir, err), db.Close())
	}
	return s, nil
}

// Close flushes and closes the database. What Apply did since the last Commit is dropped.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.db.Flush(), s.db.Close())
}

// Flush makes every committed batch durable.
func (s *Store) Flush() error { return s.db.Flush() }

// Head is where the state stands, with what Apply did since the last Commit.
func (s *Store) Head() Head {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head
}

func (s *Store) loadHead() error {
	s.head = Head{Offset: -1}
	b, err := s.get([]byte{keyHead})
	if err != nil || b == nil {
		return err
	}
	d := dec{b: b}
	if d.u() != 1 {
		d.fail()
	}
	h := &s.head
	h.Offset = d.i()
	h.LeaderEpoch = int32(d.i())
	h.Checksum = uint32(d.u())
	copy(h.Chain[:], d.raw(32))
	h.TimeMs = d.i()
	h.ApplyVersion = uint32(d.u())
	copy(h.Deployment[:], d.raw(16))
	h.Partitions = int32(d.i())
	h.Partition = int32(d.i())
	h.Horizon = d.i()
	h.forgotten = d.i()
	for n := d.count(); n > 0; n-- {
		h.samples = append(h.samples, timeSample{d.i(), d.i()})
	}
	return d.done("head")
}

func (h *Head) encode() []byte {
	var e enc
	e.u(1)
	e.i(h.Offset)
	e.i(int64(h.LeaderEpoch))
	e.u(uint64(h.Checksum))
	e.raw(h.Chain[:])
	e.i(h.TimeMs)
	e.u(uint64(h.ApplyVersion))
	e.raw(h.Deployment[:])
	e.i(int64(h.Partitions))
	e.i(int64(h.Partition))
	e.i(h.Horizon)
	e.i(h.forgotten)
	e.u(uint64(len(h.samples)))
	for _, s := range h.samples {
		e.i(s.offset)
		e.i(s.ms)
	}
	return e.b
}

// get is a committed value, nil when absent. The result is a copy.
func (s *Store) get(key []byte) ([]byte, error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state: %w", err)
	}
	out := bytes.Clone(v)
	if out == nil {
		out = []byte{}
	}
	return out, closer.Close()
}

func (s *Store) batch() *pebble.Batch {
	if s.puts == nil {
		s.puts = s.db.NewBatch()
	}
	return s.puts
}

func (s *Store) set(key, value []byte) error { return s.batch().Set(key, value, nil) }
func (s *Store) del(key []byte) error        { return s.batch().Delete(key, nil) }

// tableByID loads a table, nil when there is none.
func (s *Store) tableByID(id int64) (*table, error) {
	if t, ok := s.tables[id]; ok {
		return t, nil
	}
	b, err := s.get(key8(keyTable, uint64(id)))
	if err != nil || b == nil {
		return nil, err
	}
	t, err := decodeTable(id, b)
	if err != nil {
		return nil, err
	}
	db, err := s.get(key8(keyDef, uint64(id)))
	if err != nil {
		return nil, err
	}
	if t.def, err = decodeDefinition(db); err != nil {
		return nil, err
	}
	t.shards = map[shardID]*shard{}
	t.tuples = map[string]uint32{}
	prefix := key8(keyShard, uint64(id))
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return nil, fmt.Errorf("read the state: %w", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		k := it.Key()[len(prefix):]
		if len(k) != 20 {
			return nil, errors.Join(fmt.Errorf("%w: shard key", ErrCorrupt), it.Close())
		}
		var sid shardID
		copy(sid.topic[:], k)
		sid.partition = int32(binary.BigEndian.Uint32(k[16:]))
		sh, err := decodeShard(sid, it.Value())
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		t.shards[sid] = sh
		t.shardOrder = append(t.shardOrder, sid)
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, fmt.Errorf("read the state: %w", err)
	}
	s.tables[id] = t
	return t, nil
}

// lookup is the table that has this name now, nil when there is none.
func (s *Store) lookup(name string) (*table, error) {
	if id, ok := s.names[name]; ok {
		if id < 0 {
			return nil, nil
		}
		return s.tableByID(id)
	}
	b, err := s.get(append([]byte{keyName}, name...))
	if err != nil {
		return nil, err
	}
	if b == nil {
		if len(s.names) < 1<<16 {
			s.names[name] = -1
		}
		return nil, nil
	}
	d := dec{b: b}
	id := d.i()
	if err := d.done("name"); err != nil {
		return nil, err
	}
	s.names[name] = id
	return s.tableByID(id)
}

func (s *Store) chunk(table int64, id uint64) (*chunk, error) {
	k := chunkKey{table, id >> 7}
	if c, ok := s.chunks[k]; ok {
		return c, nil
	}
	c := &chunk{key: k}
	b, err := s.get(key16(keyChunk, uint64(table), k.base))
	if err != nil {
		return nil, err
	}
	if b != nil {
		if err := c.decode(b); err != nil {
			return nil, err
		}
		m, err := s.get(key16(keyChange, uint64(table), k.base))
		if err != nil {
			return nil, err
		}
		if m != nil {
			if err := c.decodeMarks(m); err != nil {
				return nil, err
			}
		}
	}
	s.chunks[k] = c
	return c, nil
}

func (s *Store) touch(c *chunk) {
	if !c.dirty && !c.marksDirty {
		s.touched = append(s.touched, c)
	}
}

// Commit writes what Apply did since the last Commit in one batch, and
// returns what can be sent now. It does not sync: see Flush.
func (s *Store) Commit() (Outbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commit()
}

func (s *Store) commit() (Outbox, error) {
	if !s.headOK {
		return Outbox{}, nil
	}
	b := s.batch()
	// Values of one key are written once a commit; keys ascend within a space.
	slices.SortFunc(s.touched, func(a, c *chunk) int {
		if a.key.table != c.key.table {
			return cmpInt(a.key.table, c.key.table)
		}
		return cmpInt(a.key.base, c.key.base)
	})
	for _, c := range s.touched {
		if c.dirty {
			s.scratch = c.encode(s.scratch[:0])
			if err := b.Set(key16(keyChunk, uint64(c.key.table), c.key.base), s.scratch, nil); err != nil {
				return Outbox{}, fmt.Errorf("write the state: %w", err)
			}
		}
		if c.marksDirty {
			k := key16(keyChange, uint64(c.key.table), c.key.base)
			err := error(nil)
			if c.added.empty() && c.killed.empty() {
				err = b.Delete(k, nil)
			} else {
				err = b.Set(k, c.encodeMarks(), nil)
			}
			if err != nil {
				return Outbox{}, fmt.Errorf("write the state: %w", err)
			}
		}
		c.dirty, c.marksDirty = false, false
		if err := s.mergeKills(b, c); err != nil {
			return Outbox{}, fmt.Errorf("write the state: %w", err)
		}
	}
	s.touched = s.touched[:0]
	for _, id := range s.sortedTables() {
		t := s.tables[id]
		if t.defDirty {
			if err := b.Set(key8(keyDef, uint64(id)), encodeDefinition(t.def), nil); err != nil {
				return Outbox{}, fmt.Errorf("write the state: %w", err)
			}
		}
		if t.dirty {
			if err := b.Set(key8(keyTable, uint64(id)), t.encode(), nil); err != nil {
				return Outbox{}, fmt.Errorf("write the state: %w", err)
			}
		}
		t.dirty, t.defDirty = false, false
		if len(t.tuples) > maxCachedTuples {
			clear(t.tuples)
		}
		for _, sid := range t.shardOrder {
			sh := t.shards[sid]
			if !sh.dirty {
				continue
			}
			if err := b.Set(shardKeyBytes(id, sid), sh.encode(), nil); err != nil {
				return Outbox{}, fmt.Errorf("write the state: %w", err)
			}
			sh.dirty = false
		}
	}
	var out Outbox
	if len(s.out) > 0 {
		var e enc
		e.u(uint64(len(s.out)))
		for _, m := range s.out {
			e.byts(m.key)
			e.byts(m.value)
			out.Outcomes = append(out.Outcomes, makeMessage(m.key, m.value))
		}
		if err := b.Set(key8(keyOutbox, uint64(s.outFirst)), e.b, nil); err != nil {
			return Outbox{}, fmt.Errorf("write the state: %w", err)
		}
	}
	if err := b.Set([]byte{keyHead}, s.head.encode(), nil); err != nil {
		return Outbox{}, fmt.Errorf("write the state: %w", err)
	}
	if err := s.db.Apply(b, pebble.NoSync); err != nil {
		return Outbox{}, fmt.Errorf("write the state: %w", err)
	}
	err := b.Close()
	s.puts = nil
	s.headOK = false
	s.out, s.outFirst = nil, -1
	clear(s.requests)
	if len(s.pendingOut) > 0 {
		out.Outcomes, s.pendingOut = append(s.pendingOut, out.Outcomes...), nil
	}
	out.Cuts, s.cutsDone = s.cutsDone, nil
	if len(s.chunks) > maxCachedChunks {
		clear(s.chunks)
	}
	return out, err
}

// mergeKills writes a chunk's delete blocks: those of one file as one merge,
// since a busy table's records name the same files again and again.
func (s *Store) mergeKills(b *pebble.Batch, c *chunk) error {
	if len(c.kills) == 0 {
		return nil
	}
	slices.SortFunc(c.kills, func(x, y kill) int { return cmpInt(x.file, y.file) })
	for i := 0; i < len(c.kills); {
		j := i
		s.sets = s.sets[:0]
		for ; j < len(c.kills) && c.kills[j].file == c.kills[i].file; j++ {
			s.sets = append(s.sets, c.kills[j].set)
		}
		set, err := dv.UnionAll(s.scratch[:0], s.sets...)
		if err != nil {
			return fmt.Errorf("%w: dead positions: %w", ErrCorrupt, err)
		}
		s.scratch = set
		if err := b.Merge(key16(keyDead, uint64(c.key.table), c.kills[i].file), set, nil); err != nil {
			return err
		}
		i = j
	}
	clear(c.kills)
	c.kills = c.kills[:0]
	return nil
}

// keep copies bytes into the arena of the commit under way.
func (s *Store) keep(v []byte) []byte {
	if cap(s.arena)-len(s.arena) < len(v) {
		s.arena = make([]byte, 0, max(arenaBytes, len(v)))
	}
	n := len(s.arena)
	s.arena = append(s.arena, v...)
	return s.arena[n:len(s.arena):len(s.arena)]
}

func (s *Store) sortedTables() []int64 {
	ids := make([]int64, 0, len(s.tables))
	for id := range s.tables {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// makeMessage reads offset and kind from a message's key.
func makeMessage(key, value []byte) Message {
	return Message{Offset: int64(binary.BigEndian.Uint64(key)), Derived: len(key) > 8 && key[8] != 0, Key: key, Value: value}
}

func shardKeyBytes(table int64, id shardID) []byte {
	k := append(key8(keyShard, uint64(table)), id.topic[:]...)
	return binary.BigEndian.AppendUint32(k, uint32(id.partition))
}

// Unsent calls fn with every outcome message above the offset after that is
// still in the outbox, in order.
func (s *Store) Unsent(after int64, fn func(Message) error) error {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{keyOutbox}, UpperBound: []byte{keyOutbox + 1}})
	if err != nil {
		return fmt.Errorf("read the outbox: %w", err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		d := dec{b: bytes.Clone(it.Value())}
		for n := d.count(); n > 0; n-- {
			key, value := d.byts(), d.byts()
			if d.bad || len(key) != 9 {
				d.fail()
				return errors.Join(d.done("outbox"), it.Close())
			}
			if m := makeMessage(key, value); m.Offset > after {
				if err := fn(m); err != nil {
					return errors.Join(err, it.Close())
				}
			}
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// Sent drops the outbox up to and including offset: those messages are in the
// outcomes topic. The outbox of the newest commit is kept.
func (s *Store) Sent(offset int64) error {
	// A value is keyed by its commit's first offset: what starts after offset stays,
	// and the last one that starts at or below it may hold later messages.
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{keyOutbox}, UpperBound: key8(keyOutbox, uint64(offset+1))})
	if err != nil {
		return fmt.Errorf("read the outbox: %w", err)
	}
	var last []byte
	if it.Last() {
		last = bytes.Clone(it.Key())
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return fmt.Errorf("read the outbox: %w", err)
	}
	if last == nil {
		return nil
	}
	return s.db.DeleteRange([]byte{keyOutbox}, last, pebble.NoSync)
}

func cmpInt[T int64 | uint64 | int32](a, b T) int {
	if a < b {
		return -1
	}
	if a > b {
		return 1
	}
	return 0
}

type pebbleLog struct{ l *slog.Logger }

func (p pebbleLog) Infof(string, ...any) {}
func (p pebbleLog) Errorf(format string, args ...any) {
	p.l.Error("state database", "error", fmt.Sprintf(format, args...))
}
func (p pebbleLog) Fatalf(format string, args ...any) {
	p.l.Error("state database", "fatal", fmt.Sprintf(format, args...))
	panic(fmt.Sprintf(format, args...))
}
