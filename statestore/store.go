package statestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

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

// stateLayout is that of all keys together: it rises when values that stay are
// written in another way.
const stateLayout = 7

// Options of Open.
type Options struct {
	// Cache is the block cache, in bytes; memtables are charged to it.
	// Default 32 MiB.
	Cache int64
	// MemTable is a memtable's size, in bytes. Default 16 MiB.
	MemTable uint64
	// WriteBack is how many bytes of changes are held in memory before they are
	// written to the database. Default 48 MiB.
	WriteBack int64
	// Wait makes Commit wait until what it wrote back is durable: a simulation
	// then goes the same way every time.
	Wait bool
	// Silent says that nobody is told of outcomes, as in a replay: none is kept to
	// be sent. Chain hashes are then taken behind Apply, whose messages have none:
	// Head has the newest. Changes are written back less often.
	Silent bool
	// FS replaces the file system, in tests. Default: the disk.
	FS vfs.FS
	// Log receives Pebble's errors. Default: slog.Default().
	Log *slog.Logger
	// Fatal is told why the database cannot go on, such as a disk that got full
	// under its list of files, and must not return: locks are held, and what
	// waits for them waits for ever. Default: the process logs it and exits with
	// code 1, which is as safe as a kill.
	Fatal func(error)

	readOnly bool
}

// Store is the state of one transactions partition. Its methods are safe for
// use by several goroutines; Apply and Commit belong to one.
type Store struct {
	mu      sync.Mutex
	db      *pebble.DB
	opt     Options
	head    Head
	tables  map[int64]*table
	names   map[string]int64 // current binding, as cached; -1 means none
	chunks  map[chunkKey]*chunk
	near    [nearChunks]*chunk     // some of chunks, found without hashing
	touched []*chunk               // those that differ from the database
	puts    *pebble.Batch          // rare values since the last write-back, indexed: reads see them
	frozen  map[int64]*frozenCut   // by table: what the database lacks
	broken  error                  // a record was applied in part: nothing may be written any more
	damage  *atomic.Pointer[error] // what Pebble found damaged, perhaps beside what is asked of it

	applied bool  // since the last Commit
	ahead   bool  // the database is behind
	held    int64 // about how much memory holds what the database lacks
	logSize int64 // of the records since the last write-back

	outbox   []outBatch // oldest first; the last one may still grow
	sent     int64      // newest offset that the outcomes topic is known to have
	stale    []int64    // keys of stored batches that the topic has
	cutsDone []CutNotice
	jobsDue  []JobNotice

	maps     heldMaps          // forwarding maps at hand
	facts    map[string][]byte // of remembered
	nearJobs nearJobs

	effects  []byte        // scratch of the record under way
	now      int64         // table time of the record under way
	bodyRead bool          // the record under way took its body from Record.Body
	lostMaps []record.Hash // Record.LostMaps of the record under way
	rec      record.AppendRows
	msg      record.OutcomeMessage
	env      record.Envelope
	targets  []target
	aimRows  int64 // rows of the file that aim looked at last
	// metCollected: forwardBlock came to a file whose entry was collected.
	metOut       bool // forwardBlock met a file that a Rollback took out
	metCollected bool
	bodyDir      string     // folder of the newest body
	hashed       []byte     // what the newest chain hash was taken of
	late         *lateChain // nil: chain hashes are taken at once
	unsummed     int        // bytes of the newest record in hashed that head.Checksum lacks
	scratch      []byte
	key          []byte
	sets         [][]byte
	killOrder    []uint64
	killLogs     [][]byte // room for delete blocks, to be used again
	killRoom     int64    // bytes of it
	arena        []byte   // the newest outcome messages
}

const (
	arenaBytes = 256 << 10
	// maxCachedChunks bounds the memory of chunks that nothing is changed of.
	maxCachedChunks = 48 << 20
	maxCachedTuples = 1 << 17
	nearChunks      = 1 << 10
	// blockSize is that of the database's tables: each block is a write of its own.
	blockSize = 32 << 10
	// writeBackLog is how many bytes of log may have to be applied again after a crash.
	writeBackLog = 64 << 20
	// silentWriteBack and silentLog are those of a replay, which nobody goes on with
	// after a crash.
	silentWriteBack = 128 << 20
	silentLog       = 512 << 20
)

// Open opens or creates the state in dir.
func Open(dir string, opt Options) (*Store, error) {
	if opt.Cache == 0 {
		opt.Cache = 32 << 20
	}
	if opt.MemTable == 0 {
		opt.MemTable = 16 << 20
	}
	if opt.WriteBack == 0 {
		opt.WriteBack = 48 << 20
		if opt.Silent {
			opt.WriteBack = silentWriteBack
		}
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
		Logger:                      pebbleLog{dir, opt.Log, opt.Fatal},
		ReadOnly:                    opt.readOnly,
	}
	// A table that is damaged ends the use of this state, not the process: whoever
	// reads it gets the error, and a merge in the background leaves it to the next call.
	damage := new(atomic.Pointer[error])
	po.EventListener = &pebble.EventListener{
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			err := damaged(i.Details)
			damage.CompareAndSwap(nil, &err)
		},
		BackgroundError: func(err error) {
			if damage.Load() == nil {
				po.Logger.Errorf("in the background: %s", damaged(err))
			}
		},
	}
	if opt.FS != nil {
		po.FS = opt.FS
	}
	// Batches are large and few: eight are merged into the level below at once,
	// which is written half as often as with the default. Their bloom filters keep
	// reads short.
	po.L0CompactionThreshold = 8
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		po.Levels[i].BlockSize = blockSize
	}
	// Level 0 lives until the next merge, and half of what is in it are hashes.
	po.Levels[0].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	db, err := pebble.Open(dir, po)
	if err != nil {
		return nil, fmt.Errorf("open the state in %s: %w", dir, damaged(err))
	}
	s := &Store{
		db: db, opt: opt, tables: map[int64]*table{}, names: map[string]int64{}, chunks: map[chunkKey]*chunk{},
		frozen: map[int64]*frozenCut{}, sent: -1, damage: damage,
	}
	if opt.Silent {
		s.late = &lateChain{}
	}
	if err := damaged(errors.Join(s.loadHead(), s.loadOutbox())); err != nil {
		return nil, errors.Join(fmt.Errorf("state in %s: %w", dir, err), damaged(db.Close()))
	}
	return s, nil
}

// sound is why nothing may be applied to this state, or written back, any more.
func (s *Store) sound() error {
	if d := s.damage.Load(); d != nil && s.broken == nil {
		s.broken = *d
	}
	return s.broken
}

// Close makes durable what was applied and closes the database.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.sound() == nil && !s.opt.readOnly {
		err = errors.Join(s.writeBack(), s.db.Flush())
	}
	return errors.Join(err, damaged(s.db.Close()))
}

// Flush makes durable what was applied.
func (s *Store) Flush() error {
	if err := s.sync(); err != nil {
		return err
	}
	return s.db.Flush()
}

// Head is where the state stands, with what Apply did since the last Commit.
func (s *Store) Head() Head {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sumLast()
	s.chain()
	return s.head
}

// Partition is that of the log, once its genesis was applied.
func (s *Store) Partition() int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head.Partition
}

// sumLast takes the checksum of the last record, which few ask for, from what its
// chain hash was taken of.
func (s *Store) sumLast() {
	if s.unsummed > 0 {
		if s.late != nil {
			s.hashed = append(s.hashed[:0], s.late.piece()...)
		}
		s.head.Checksum = crc32.Checksum(s.hashed[chainedHead:chainedHead+s.unsummed], castagnoli)
		s.unsummed = 0
	}
}

// chain is the chain hash of the newest record.
func (s *Store) chain() record.Hash {
	if s.late != nil {
		if len(s.late.ends) > 0 {
			s.sumLast()
			s.late.start(s.head.Chain)
		}
		s.head.Chain = s.late.wait(s.head.Chain)
	}
	return s.head.Chain
}

func (s *Store) loadHead() error {
	s.head = Head{Offset: -1}
	b, err := s.get([]byte{keyHead})
	if err != nil || b == nil {
		return err
	}
	d := dec{b: b}
	if layout := d.u(); layout != stateLayout {
		return fmt.Errorf("%w: %w: it is %d, this binary's %d; remove the state folder to rebuild it from the log", ErrCorrupt, ErrLayout, layout, stateLayout)
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
	if err := d.done("head"); err != nil {
		return err
	}
	if active[h.ApplyVersion] == nil {
		return fmt.Errorf("%w: version %d; this binary knows up to %d: upgrade it", ErrUnknownVersion, h.ApplyVersion, ApplyVersion)
	}
	return nil
}

func (h *Head) encode() []byte {
	var e enc
	e.u(stateLayout)
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

// get is a value, nil when absent. The result is a copy. What the working set
// holds is newer: file chunks, change marks, delete blocks, table and shard
// state must be asked there first.
func (s *Store) get(key []byte) ([]byte, error) {
	if s.puts == nil {
		return s.stored(key)
	}
	return value(s.puts.Get(key))
}

// stored is get without what was not written back. It needs no lock.
func (s *Store) stored(key []byte) ([]byte, error) { return value(s.db.Get(key)) }

// readError is an error of the database.
func readError(err error) error {
	if pebble.IsCorruptionError(err) {
		return damaged(err)
	}
	return fmt.Errorf("read the state: %w", err)
}

// damaged is an error of the database, nil or not, on one line: of a damaged table
// Pebble tells several times over, on as many lines.
func damaged(err error) error {
	if !pebble.IsCorruptionError(err) {
		return err
	}
	var lines []string
	for l := range strings.Lines(err.Error()) {
		if l = strings.TrimPrefix(strings.TrimSpace(l), ErrCorrupt.Error()+": "); l != "<corruption detail carrier>" && !slices.Contains(lines, l) {
			lines = append(lines, l)
		}
	}
	return fmt.Errorf("%w: %s", ErrCorrupt, strings.Join(lines, "; "))
}

func value(v []byte, closer io.Closer, err error) ([]byte, error) {
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, readError(err)
	}
	out := bytes.Clone(v)
	if out == nil {
		out = []byte{}
	}
	return out, closer.Close()
}

// iter is an iterator over the keys that begin with prefix, with the same view as get.
func (s *Store) iter(prefix []byte) (*pebble.Iterator, error) {
	return s.iterRange(prefix, prefixEnd(prefix))
}

func (s *Store) iterRange(from, to []byte) (*pebble.Iterator, error) {
	var r pebble.Reader = s.db
	if s.puts != nil {
		r = s.puts
	}
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return nil, readError(err)
	}
	return it, nil
}

func (s *Store) batch() *pebble.Batch {
	if s.puts == nil {
		s.puts = s.db.NewIndexedBatch()
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
	it, err := s.iter(prefix)
	if err != nil {
		return nil, err
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
		return nil, readError(err)
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
	if c := s.cached(k); c != nil {
		return c, nil
	}
	c := &chunk{key: k}
	b, err := s.stored(key16(keyChunk, uint64(table), k.base))
	if err != nil {
		return nil, err
	}
	if b != nil {
		if err := c.decode(b); err != nil {
			return nil, err
		}
		m, err := s.stored(key16(keyChange, uint64(table), k.base))
		if err != nil {
			return nil, err
		}
		if m != nil {
			if err := c.decodeMarks(m); err != nil {
				return nil, err
			}
		}
	}
	s.cache(c)
	return c, nil
}

// freshChunk is the chunk of a file that nobody has added a file to: there is
// nothing to read.
func (s *Store) freshChunk(table int64, id uint64) *chunk {
	k := chunkKey{table, id >> 7}
	c := s.cached(k)
	if c == nil {
		c = &chunk{key: k}
		s.cache(c)
	}
	return c
}

func (s *Store) cached(k chunkKey) *chunk {
	near := &s.near[k.near()]
	if c := *near; c != nil && c.key == k {
		return c
	}
	c := s.chunks[k]
	if c != nil {
		*near = c
	}
	return c
}

func (s *Store) cache(c *chunk) {
	s.chunks[c.key] = c
	s.near[c.key.near()] = c
}

func (s *Store) touch(c *chunk) {
	if !c.touched {
		c.touched = true
		s.touched = append(s.touched, c)
	}
}

func (s *Store) sortedTables() []int64 {
	ids := make([]int64, 0, len(s.tables))
	for id := range s.tables {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func shardKeyBytes(table int64, id shardID) []byte {
	k := append(key8(keyShard, uint64(table)), id.topic[:]...)
	return binary.BigEndian.AppendUint32(k, uint32(id.partition))
}
