package statestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// TableInfo is what is known of a table, with what Apply did since the last Commit.
type TableInfo struct {
	ID         int64
	Name       string
	Definition *schemas.Definition // not to be changed
	Head       CatalogHead
	Pending    *PendingCut
	Changes    bool  // a Cut would be accepted, but for a pending one
	LastChange int64 // newest offset that changed what a reader sees
	Snapshots  []SnapshotRef
	Refs       []record.TableRef // branches and tags that the log made, by name
	Files      int64             // live data files
	Rows       int64             // in them, dead ones included
	Bytes      int64
	Dead       int64 // of Rows, as of the last cut
	Vectors    int64 // published
	Counts     record.Counts
	Shards     []ShardInfo
	Requests   []int64     // offsets of DeleteKeys that are not settled
	Held       []int64     // offsets of AddFiles whose files are held
	OpenJobs   int64       // not completed
	Resharding *Resharding // nil: none; not to be changed
	Base       *ShardBase  // nil: none; not to be changed
	Rolled     int64       // offset of the newest Rollback, 0 none
	Finds      []FindInfo  // open find jobs, ascending by offset
}

// ShardInfo is a shard's state.
type ShardInfo struct {
	TopicID      [16]byte
	Topic        string
	Partition    int32
	Epoch        int64
	Open         bool
	Member       string
	Writer       uint32
	Counter      int64
	SourceEnd    int64
	RequestEnd   int64
	IndexHorizon int64
	Index        record.Ref
	FirstClaim   int64
	Framing      uint64
	Retired      bool
	Counts       record.Counts
}

func (t *table) info() *TableInfo {
	i := &TableInfo{
		ID: t.id, Name: t.name, Definition: t.def, Head: t.head, LastChange: t.lastChange,
		Changes:   (t.changed || t.lacks()) && (t.head.Build < 0 || !t.filesHeld()),
		Snapshots: append([]SnapshotRef(nil), t.snapshots...),
		Files:     t.totals.Files, Rows: t.totals.Rows, Bytes: t.totals.Bytes, Dead: t.totals.Dead,
		Vectors: t.totals.Vectors, Counts: t.totals.Counts, OpenJobs: t.openJobs,
	}
	i.Refs = slices.Clone(t.refs.all)
	i.Resharding, i.Base, i.Rolled = t.resharding, t.base, t.rolled
	i.Finds = t.findInfos()
	if t.pending != nil {
		p := *t.pending
		i.Pending = &p
	}
	for _, id := range t.shardOrder {
		sh := t.shards[id]
		i.Shards = append(i.Shards, ShardInfo{
			TopicID: id.topic, Topic: sh.topic, Partition: id.partition, Epoch: sh.epoch, Open: sh.open, Member: sh.member,
			Writer: sh.writer, Counter: sh.counter, SourceEnd: sh.sourceEnd, RequestEnd: sh.requestEnd,
			IndexHorizon: sh.indexHorizon, Index: sh.index, FirstClaim: sh.firstClaim, Framing: sh.framing,
			Retired: sh.retired, Counts: sh.counts,
		})
	}
	for _, o := range t.openDeletes {
		i.Requests = append(i.Requests, o.offset)
	}
	for _, a := range t.adds {
		i.Held = append(i.Held, a.offset)
	}
	return i
}

// Table is the table that has this name now, nil when there is none.
func (s *Store) Table(name string) (*TableInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.lookup(name)
	if err != nil || t == nil {
		return nil, err
	}
	return t.info(), nil
}

// Tables calls fn with every table that is not dropped, by name.
func (s *Store) Tables(fn func(*TableInfo) error) error {
	s.mu.Lock()
	names, err := s.tableNames()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	for _, n := range names {
		i, err := s.Table(n)
		if err != nil {
			return err
		}
		if i == nil {
			continue
		}
		if err := fn(i); err != nil {
			return err
		}
	}
	return nil
}

// tableNames lists bound names: the committed ones and those since.
func (s *Store) tableNames() ([]string, error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{keyName}, UpperBound: []byte{keyName + 1}})
	if err != nil {
		return nil, readError(err)
	}
	seen := map[string]bool{}
	for ok := it.First(); ok; ok = it.Next() {
		seen[string(it.Key()[1:])] = true
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, readError(err)
	}
	for n, id := range s.names {
		if id >= 0 {
			seen[n] = true
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// FileInfo is one data file of the state.
type FileInfo struct {
	ID        uint64
	Rows      int64
	Bytes     int64
	SpecID    int32
	Partition []byte
	Record    int64
	Epoch     int64
	Gone      bool     // every row is dead, or a job has carried the rows over
	Left      int64    // of one that is gone: build offset from which on no snapshot lists it, 0: the next cut takes it out
	Name      [16]byte // of a file that a job wrote; zeros: ingest wrote it
	Path      string   // of a file that another writer brought, else empty
	Job       bool     // an open job holds it
	Moved     bool     // a job has carried its rows over
	Published bool
	RowID     int64
	Sequence  int64
	Dead      []byte // position set of what died or moved (F7), nil: none
	Vector    *Vector
	Parts     []PartInfo // the references to it, nil: it is one, on the root
}

// At is the location of the file, of a table at a location.
func (f *FileInfo) At(table string, tableID int64) string {
	x := FrozenFile{ID: f.ID, Epoch: f.Epoch, Name: f.Name, Path: f.Path}
	return x.At(table, tableID)
}

// Files calls fn with a table's data files by id.
func (s *Store) Files(tableID int64, fn func(*FileInfo) error) error {
	if err := s.sync(); err != nil {
		return err
	}
	prefix := key8(keyChunk, uint64(tableID))
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return readError(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		c := chunk{key: chunkKey{tableID, binary.BigEndian.Uint64(it.Key()[len(prefix):])}}
		if err := c.decode(it.Value()); err != nil {
			return errors.Join(err, it.Close())
		}
		for i := range c.entries {
			f, err := s.fileInfo(tableID, &c, &c.entries[i])
			if err == nil {
				err = fn(f)
			}
			if err != nil {
				return errors.Join(err, it.Close())
			}
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// File is one data file of a table, nil when the state knows none of that id.
func (s *Store) File(tableID int64, id uint64) (*FileInfo, error) {
	if err := s.sync(); err != nil {
		return nil, err
	}
	k := chunkKey{tableID, id >> 7}
	b, err := s.stored(key16(keyChunk, uint64(tableID), k.base))
	if err != nil || b == nil {
		return nil, err
	}
	c := chunk{key: k}
	if err := c.decode(b); err != nil {
		return nil, err
	}
	f := c.find(id)
	if f == nil {
		return nil, nil
	}
	return s.fileInfo(tableID, &c, f)
}

func (s *Store) fileInfo(tableID int64, c *chunk, e *fileEntry) (*FileInfo, error) {
	x := FrozenFile{ID: e.id, Name: c.name(e.id)}
	if err := describe(s.stored, tableID, &x, e.tuple); err != nil {
		return nil, err
	}
	f := &FileInfo{
		ID: e.id, Rows: e.rows, Bytes: e.bytes, SpecID: x.SpecID, Partition: x.Partition, Record: e.record, Epoch: x.Epoch,
		Gone: e.gone, Left: e.left, Published: e.manifest != 0, RowID: e.rowID, Sequence: e.sequence, Name: x.Name, Path: x.Path,
	}
	if id := c.job(e.id); id != nil {
		b, err := s.stored(jobKey(keyJob, tableID, *id))
		if err != nil {
			return nil, err
		}
		f.Job, f.Moved = b != nil, b == nil
	}
	var err error
	if f.Dead, err = s.stored(key16(keyDead, uint64(tableID), e.id)); err != nil {
		return nil, err
	}
	if c.parted.has(uint(e.id & 127)) {
		if err := s.partInfos(tableID, f); err != nil {
			return nil, err
		}
	}
	f.Vector, err = vector(s.stored, tableID, e.id)
	return f, err
}

// PartitionFiles calls fn with the ids of a table's files in one partition that
// have live rows.
// It reads that partition's references only.
func (s *Store) PartitionFiles(tableID int64, spec int32, partition []byte, fn func(id uint64) error) error {
	if err := s.sync(); err != nil {
		return err
	}
	k := binary.BigEndian.AppendUint32(key8(keyTupleOf, uint64(tableID)), uint32(spec))
	b, err := s.stored(append(k, partition...))
	if err != nil || b == nil {
		return err
	}
	d := dec{b: b}
	n := d.u()
	if err := d.done("partition tuple"); err != nil {
		return err
	}
	prefix := key16(keyMembers, uint64(tableID), n)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return readError(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if err := fn(binary.BigEndian.Uint64(it.Key()[len(prefix):])); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// Dump calls fn with every key and value but the outbox, in order: two states
// of the same log at the same offset have equal dumps.
func (s *Store) Dump(fn func(key, value []byte) error) error {
	if err := s.sync(); err != nil {
		return err
	}
	it, err := s.db.NewIter(nil)
	if err != nil {
		return readError(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if it.Key()[0] == keyOutbox {
			continue
		}
		v, err := it.ValueAndErr()
		if err == nil {
			err = fn(bytes.Clone(it.Key()), bytes.Clone(v))
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return errors.Join(it.Error(), it.Close())
}
