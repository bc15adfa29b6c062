package statestore

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
)

// FrozenFile is one file of a frozen cut: what of it differs from the last
// committed snapshot.
type FrozenFile struct {
	ID        uint64
	Added     bool // first listed by this cut
	Removed   bool // every row is dead: file and vector leave together (V7)
	Rows      int64
	Bytes     int64
	SpecID    int32
	Partition []byte // tuple, canonical bytes
	SchemaID  int32
	Record    int64      // offset of the AppendRows that added it
	Epoch     int64      // of that AppendRows' shard: the file's name holds it
	Name      [16]byte   // of a file that a job wrote; zeros: ingest wrote it
	Path      string     // of a file that another writer brought, else empty
	Moved     bool       // Removed since a job rewrote it
	Body      record.Ref // erasable body with the file's metrics
	Dead      []byte     // position set at the build offset, nil: none
	DeadCount int64
	// Of the last committed snapshot:
	Manifest int64 // number of the live manifest that lists the file, 0: none
	RowID    int64
	Sequence int64
	Vector   *Vector // nil: none
}

// FileName is that of the data file, in the folder data of the table's location.
func (x *FrozenFile) FileName(tableID int64) string {
	if x.Name != [16]byte{} {
		return schemas.JobFileName(x.Name)
	}
	return schemas.DataFileName(tableID, x.Epoch, FileCounter(x.ID))
}

// At is the location of a data file of a table at a location: its name follows from what the
// state knows, or another writer gave it.
func (x *FrozenFile) At(table string, tableID int64) string {
	if x.Path != "" {
		return x.Path
	}
	return table + "/data/" + x.FileName(tableID)
}

// MetricsID is the number by which the file's body names it.
func (x *FrozenFile) MetricsID() uint64 {
	if x.Name != [16]byte{} {
		return record.MetricsID(x.Name)
	}
	return x.ID
}

// Vector is a published vector.
type Vector struct {
	Puffin      string
	Offset      int64
	Length      int64
	Cardinality int64
	Sequence    int64
	Manifest    int64 // in a FrozenCut: number of the live manifest that lists it
}

// FrozenCut is what a publisher builds from (C1).
type FrozenCut struct {
	TableID    int64
	Cut        int64
	Build      int64
	TimeMs     int64       // table time at the build offset
	Chain      record.Hash // before the build offset (L6)
	Definition *schemas.Definition
	DefChanged bool
	Head       CatalogHead // the base
	Expire     []int64     // snapshot ids that this commit removes (G2)
	Rollback   int64       // the snapshot that becomes the head again, 0: this is a cut (G1)
	Refs       RefChanges  // branches and tags that it drops and sets (S12)
	Published  []string    // properties' keys of the definition committed last
	// Known is not frozen: nothing of it stands in what a publisher writes.
	Known      Known
	Deployment [16]byte
	Partition  int32
	Ranges     []ShardRange
	Totals     PublishedTotals // of the base
	Files      []FrozenFile    // ascending by id
	// Manifests are the paths of the base's manifests by number, and of those
	// that the base lists for the last time: a commit names each number that
	// its own manifests take the place of (ManifestInfo.Replaces).
	Manifests map[int64]string
}

// Known is what the state knows now of a table in an outside catalog (H5).
type Known struct {
	Definition  *schemas.Definition
	Ahead       bool    // the definition has changes that no commit has brought to the catalog
	Retained    []int64 // snapshots of ours, oldest first
	Held        []int64 // snapshots that branches and tags name, ascending
	TimestampMs int64   // last-updated-ms
}

// Makes says whether the commit of this cut makes a snapshot: it has files, or the
// base lists delete files of other writers, which it takes out (H15).
func (f *FrozenCut) Makes() bool {
	return makesSnapshot(len(f.Files), f.Rollback, &f.Head)
}

func makesSnapshot(files int, rollback int64, base *CatalogHead) bool {
	return files > 0 || rollback == 0 && base.Deletes > 0
}

// ShardRange is a shard's source end at the build offset.
type ShardRange struct {
	Topic     string
	Partition int32
	End       int64
}

// PublishedTotals are the six total-* of the base's summary (S10), vectors apart.
type PublishedTotals struct {
	Files, Rows, Bytes, Vectors, Dead, VectorBytes int64
}

// cut: C1. The first one, of the empty table, freezes no file.
func (s *Store) cut(r *Record, t int64, tab *table) (outcomeOf, error) {
	if tab.pending != nil {
		return reject(record.CutPending, tab.pending.Cut), nil
	}
	first := tab.head.Build < 0
	if !first && tab.filesHeld() {
		return reject(record.FilesHeld, tab.adds[0].offset), nil
	}
	lacks := tab.lacks()
	if !tab.changed && !lacks {
		return reject(record.NothingToCut), nil
	}
	s.clearFrozen(tab.id)
	n := 0
	if !first && tab.changed {
		var err error
		if n, err = s.freeze(tab, r.Offset); err != nil {
			return outcomeOf{}, err
		}
		tab.changed = false
	}
	if !makesSnapshot(n, 0, &tab.head) && !lacks {
		tab.dirty = true
		return reject(record.NothingToCut), nil
	}
	tab.pending = &PendingCut{Cut: r.Offset, Build: r.Offset}
	if err := s.freezeHead(r, t, tab, n); err != nil {
		return outcomeOf{}, err
	}
	return accepted(false, r.Offset, int64(n)), nil
}

const frozenLayout = 4

// freezeHead freezes, beside its n files, everything else that the pending
// cut's publisher reads, as of this record.
func (s *Store) freezeHead(r *Record, t int64, tab *table, n int) error {
	tab.dirty = true
	var e enc
	e.u(frozenLayout)
	e.i(tab.pending.Cut)
	e.i(tab.pending.Build)
	e.i(t)
	chain := s.chain()
	e.raw(chain[:])
	e.byts(encodeDefinition(tab.def))
	e.i(tab.defChange)
	e.bool(tab.defChange > tab.defFrozen)
	e.u(uint64(len(tab.published)))
	for _, k := range tab.published {
		e.str(k)
	}
	encHead(&e, &tab.head)
	var expire []int64
	if tab.pending.Rollback == 0 {
		expire = tab.goes(expired(tab, t, makesSnapshot(n, 0, &tab.head)))
	}
	e.u(uint64(len(expire)))
	for _, id := range expire {
		e.i(id)
	}
	e.u(uint64(len(tab.shardOrder)))
	for _, id := range tab.shardOrder {
		sh := tab.shards[id]
		e.str(sh.topic)
		e.i(int64(id.partition))
		e.i(sh.sourceEnd)
	}
	pt := tab.totals.published()
	for _, v := range pt.list() {
		e.i(*v)
	}
	e.i(tab.metaChange)
	changes := tab.refs.since(tab.metaFrozen)
	changes.encode(&e)
	e.i(tab.totals.Counts.Events)
	e.i(tab.settled)
	e.i(tab.pending.Rollback)
	s.setFrozenHead(tab.id, e.b)
	s.effect('z', tab.id, int64(n), int64(len(expire)))
	s.cutsDone = append(s.cutsDone, CutNotice{Table: tab.name, TableID: tab.id, Build: r.Offset})
	return nil
}

func (t *totals) published() PublishedTotals {
	return PublishedTotals{Files: t.Published, Rows: t.PubRows, Bytes: t.PubBytes, Vectors: t.Vectors, Dead: t.PubDead, VectorBytes: t.PubVecSize}
}

func (p *PublishedTotals) list() []*int64 {
	return []*int64{&p.Files, &p.Rows, &p.Bytes, &p.Vectors, &p.Dead, &p.VectorBytes}
}

// expired are the snapshots older than both limits, oldest first (S6, G2).
// The head stays; so does the base when this cut makes no snapshot, and what
// the catalog's branches and tags name.
func expired(t *table, now int64, newSnapshot bool) []int64 {
	keep := t.def.RetentionCount
	if newSnapshot {
		keep--
	}
	var out []int64
	n := int64(len(t.snapshots))
	for i, s := range t.snapshots {
		if n-int64(i) <= keep || s.ID == t.head.SnapshotID || s.TimestampMs > now-t.def.RetentionMs {
			break
		}
		if !t.holds(s.ID) {
			out = append(out, s.ID)
		}
	}
	return out
}

// goes adds to the snapshots that are expired those that somebody asked to remove.
func (t *table) goes(expired []int64) []int64 {
	if len(t.expiring) == 0 {
		return expired
	}
	var out []int64
	for i := range t.snapshots {
		id := t.snapshots[i].ID
		if slices.Contains(expired, id) || slices.Contains(t.expiring, id) && id != t.head.SnapshotID && !t.holds(id) {
			out = append(out, id)
		}
	}
	return out
}

// freeze writes every changed file of a table under the frozen cut's keys and
// clears the change marks. It returns how many files really differ.
func (s *Store) freeze(t *table, build int64) (int, error) {
	bases, err := s.changedChunks(t)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, base := range bases {
		c, err := s.chunk(t.id, base<<7)
		if err != nil {
			return 0, err
		}
		s.killOrder = c.killOrder(s.killOrder[:0])
		next := 0 // in killOrder
		for i := range c.entries {
			f := &c.entries[i]
			bit := uint(f.id & 127)
			s.sets = s.sets[:0]
			if next < len(s.killOrder) && s.killOrder[next]>>56 == uint64(bit) {
				_, s.sets, next = c.killsOf(s.killOrder, next, s.sets)
			}
			if !c.added.has(bit) && !c.killed.has(bit) {
				continue
			}
			if f.gone {
				// A job took it out since the last cut; a cut that took it out cleared its mark.
				if err := s.freezeMoved(t, c, f, build); err != nil {
					return 0, err
				}
				n++
				continue
			}
			differs, err := s.freezeFile(t, c, f, i >= c.stored, build)
			if err != nil {
				return 0, err
			}
			if differs {
				n++
			}
		}
		s.touch(c)
		c.added, c.killed, c.marksDirty = bits128{}, bits128{}, true
	}
	return n, nil
}

// changedChunks are the chunks of a table with change marks, ascending: those
// that the database knows of, and those since.
func (s *Store) changedChunks(t *table) ([]uint64, error) {
	prefix := key8(keyChange, uint64(t.id))
	it, err := s.iter(prefix)
	if err != nil {
		return nil, err
	}
	var bases []uint64
	for ok := it.First(); ok; ok = it.Next() {
		base := binary.BigEndian.Uint64(it.Key()[len(prefix):])
		if c := s.cached(chunkKey{t.id, base}); c == nil || !c.marksDirty {
			bases = append(bases, base)
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, readError(err)
	}
	for _, c := range s.touched {
		if c.key.table == t.id && c.marksDirty && !(c.added.empty() && c.killed.empty()) {
			bases = append(bases, c.key.base)
		}
	}
	slices.Sort(bases)
	return bases, nil
}

// freezeFile freezes one file; s.sets are its delete blocks that the database
// lacks, and fresh says that it lacks the file too.
func (s *Store) freezeFile(t *table, c *chunk, f *fileEntry, fresh bool, build int64) (bool, error) {
	dead, err := s.deadSet(t, f, fresh)
	if err == nil {
		dead, err = s.vectorNow(t, c, f.id, dead)
	}
	if err != nil {
		return false, err
	}
	count := uint64(0)
	if dead != nil {
		if count, err = dv.Count(dead); err != nil {
			return false, fmt.Errorf("%w: dead positions of file %d", ErrCorrupt, f.id)
		}
	}
	published := f.manifest != 0
	var old *Vector
	if published {
		if old, err = vector(s.get, t.id, f.id); err != nil {
			return false, err
		}
	}
	if int64(count) == f.rows {
		f.gone, c.dirty = true, true // its delete blocks are written no more
		if err := s.fileLeft(t, f, build); err != nil {
			return false, err
		}
		c.gone.set(uint(f.id & 127))
		t.totals.Files--
		t.totals.Rows -= f.rows
		t.totals.Bytes -= f.bytes
		if old != nil {
			t.totals.Dead -= old.Cardinality
		}
		if err := s.del(key16(keyDead, uint64(t.id), f.id)); err != nil {
			return false, err
		}
		if err := s.leavePartition(t, f); err != nil {
			return false, err
		}
		s.effect('g', int64(f.id))
		if !published {
			return false, nil // V7: never listed
		}
	} else {
		if published && (old == nil && count == 0 || old != nil && uint64(old.Cardinality) == count) {
			return false, nil
		}
		t.totals.Dead += int64(count)
		if old != nil {
			t.totals.Dead -= old.Cardinality
		}
	}
	if f.gone {
		dead, count = nil, uint64(f.rows)
	}
	s.effect('v', int64(f.id), int64(count))
	s.addFrozen(t.id, f.id, encodeFrozen(f, c.name(f.id), false, old, count, dead))
	return true, nil
}

// freezeMoved freezes a published file whose rows a job has carried over.
func (s *Store) freezeMoved(t *table, c *chunk, f *fileEntry, build int64) error {
	c.dirty = true
	if err := s.fileLeft(t, f, build); err != nil {
		return err
	}
	old, err := vector(s.get, t.id, f.id)
	if err != nil {
		return err
	}
	if old != nil {
		t.totals.Dead -= old.Cardinality
	}
	s.effect('o', int64(f.id))
	s.addFrozen(t.id, f.id, encodeFrozen(f, c.name(f.id), true, old, 0, nil))
	return nil
}

func encodeFrozen(f *fileEntry, name [16]byte, moved bool, old *Vector, count uint64, dead []byte) []byte {
	var e enc
	e.u(2)
	e.bool(f.manifest == 0)
	e.bool(f.gone)
	e.bool(moved)
	e.bool(name != [16]byte{})
	if name != [16]byte{} {
		e.raw(name[:])
	}
	e.i(f.rows)
	e.i(f.bytes)
	e.u(uint64(f.tuple))
	e.i(int64(f.schema))
	e.i(f.record)
	e.i(f.manifest)
	e.i(f.rowID)
	e.i(f.sequence)
	e.bool(old != nil)
	if old != nil {
		encVector(&e, old)
	}
	e.i(int64(count))
	e.byts(dead)
	return e.b
}

// leavePartition takes a file out of its partition's list of files, if it has one.
func (s *Store) leavePartition(t *table, f *fileEntry) error {
	if !slices.ContainsFunc(t.def.Specs, func(x schemas.Spec) bool { return len(x.Fields) > 0 }) {
		return nil // no partition of this table has a list
	}
	spec, _, err := tupleOf(s.remembered, t.id, f.tuple)
	if err != nil {
		return err
	}
	if x := t.def.Spec(spec); x == nil || len(x.Fields) == 0 {
		return nil
	}
	// One that the database lacks yet has no entry to come, once it is gone.
	return s.del(binary.BigEndian.AppendUint64(key16(keyMembers, uint64(t.id), uint64(f.tuple)), f.id))
}

// joinPartition enters a file in its partition's list again.
func (s *Store) joinPartition(t *table, f *fileEntry) error {
	spec, _, err := tupleOf(s.get, t.id, f.tuple)
	if err != nil {
		return err
	}
	if x := t.def.Spec(spec); x == nil || len(x.Fields) == 0 {
		return nil
	}
	return s.set(binary.BigEndian.AppendUint64(key16(keyMembers, uint64(t.id), uint64(f.tuple)), f.id), nil)
}

func encVector(e *enc, v *Vector) {
	e.str(v.Puffin)
	e.i(v.Offset)
	e.i(v.Length)
	e.i(v.Cardinality)
	e.i(v.Sequence)
	e.i(v.Manifest)
}

func decVector(d *dec) *Vector {
	return &Vector{Puffin: d.str(), Offset: d.i(), Length: d.i(), Cardinality: d.i(), Sequence: d.i(), Manifest: d.i()}
}

// getter reads a value, nil when absent.
type getter func(key []byte) ([]byte, error)

func vector(get getter, table int64, id uint64) (*Vector, error) {
	b, err := get(key16(keyVector, uint64(table), id))
	if err != nil || b == nil {
		return nil, err
	}
	d := dec{b: b}
	v := decVector(&d)
	return v, d.done("published vector")
}

// Frozen is the pending cut of a table, nil when there is none. What it returns
// never changes for one build offset.
func (s *Store) Frozen(tableID int64) (*FrozenCut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.frozenHead(tableID)
	if err != nil || b == nil {
		return nil, err
	}
	d := dec{b: b}
	if d.u() != frozenLayout {
		d.fail()
	}
	f := &FrozenCut{TableID: tableID, Cut: d.i(), Build: d.i(), TimeMs: d.i(), Manifests: map[int64]string{}}
	copy(f.Chain[:], d.raw(32))
	def := d.byts()
	d.i() // the definition's offset: SnapshotCommitted reads it
	f.DefChanged = d.bool()
	for n := d.count(); n > 0; n-- {
		f.Published = append(f.Published, d.str())
	}
	f.Head = decHead(&d)
	for n := d.count(); n > 0; n-- {
		f.Expire = append(f.Expire, d.i())
	}
	for n := d.count(); n > 0; n-- {
		f.Ranges = append(f.Ranges, ShardRange{d.str(), int32(d.i()), d.i()})
	}
	for _, v := range f.Totals.list() {
		*v = d.i()
	}
	d.i() // of the newest change of refs: SnapshotCommitted reads it
	f.Refs = decRefChanges(&d)
	d.i()
	d.i()
	f.Rollback = d.i()
	if err := d.done("frozen cut"); err != nil {
		return nil, err
	}
	if f.Definition, err = decodeDefinition(def); err != nil {
		return nil, err
	}
	tab, err := s.tableByID(tableID)
	if err != nil {
		return nil, err
	}
	if err := s.fillKnown(tab, f); err != nil {
		return nil, err
	}
	moved := map[int64]int64{}
	if err := s.frozenFiles(tableID, func(x *FrozenFile, tuple uint32) error {
		err := describe(s.get, tableID, x, tuple)
		if err == nil && x.Added {
			err = s.describeBody(tableID, x)
		}
		if err == nil && x.Manifest != 0 {
			x.Manifest, err = s.liveManifest(tableID, x.Manifest, f.Manifests, moved)
		}
		if err == nil && x.Vector != nil {
			x.Vector.Manifest, err = s.liveManifest(tableID, x.Vector.Manifest, f.Manifests, moved)
		}
		f.Files = append(f.Files, *x)
		return err
	}); err != nil {
		return nil, err
	}
	return f, nil
}

// fillKnown fills what is as of now, and not frozen.
func (s *Store) fillKnown(t *table, f *FrozenCut) error {
	f.Deployment, f.Partition = s.head.Deployment, s.head.Partition
	f.Known = Known{Definition: t.def, Ahead: t.defChange > t.defFrozen, Held: slices.Clone(t.held), TimestampMs: t.head.TimestampMs}
	for i := range t.snapshots {
		f.Known.Retained = append(f.Known.Retained, t.snapshots[i].ID)
	}
	return s.liveManifests(t.id, f.Manifests)
}

// Committed is a table's head as a cut without changes would have it for its base,
// nil when a cut is pending, or files are held, or nothing was ever committed: who
// looks at an outside catalog holds it against that (H2).
func (s *Store) Committed(tableID int64) (*FrozenCut, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.tableByID(tableID)
	if err != nil || t == nil || t.dropped || t.pending != nil || t.filesHeld() || t.head.Build < 0 {
		return nil, err
	}
	f := &FrozenCut{TableID: tableID, Cut: t.head.Build, Build: t.head.Build, TimeMs: s.head.TimeMs, Definition: t.def, Head: t.head, Manifests: map[int64]string{}}
	return f, s.fillKnown(t, f)
}

// describe fills what a file's entry refers to.
func describe(get getter, tableID int64, x *FrozenFile, ordinal uint32) error {
	var err error
	if x.SpecID, x.Partition, err = tupleOf(get, tableID, ordinal); err != nil {
		return err
	}
	if IsForeign(x.ID) {
		x.Epoch = -1
		b, err := get(foreignKey(tableID, x.ID))
		if err == nil && len(b) == 0 {
			err = fmt.Errorf("%w: the path of file %d", ErrCorrupt, x.ID)
		}
		x.Path = string(b)
		return err
	}
	if isOutput(x.ID) {
		x.Epoch = -1 // the name stands in the record (F5)
		return nil
	}
	b, err := get(key16(keyEpoch, uint64(tableID), x.ID>>writerShift))
	if err != nil {
		return err
	}
	d := dec{b: b}
	x.Epoch = d.i()
	return d.done("writer")
}

// tupleOf is the spec and partition tuple of an ordinal.
func tupleOf(get getter, tableID int64, ordinal uint32) (spec int32, tuple []byte, err error) {
	b, err := get(key16(keyTuple, uint64(tableID), uint64(ordinal)))
	if err != nil {
		return 0, nil, err
	}
	if len(b) < 4 {
		return 0, nil, fmt.Errorf("%w: partition tuple", ErrCorrupt)
	}
	return int32(binary.BigEndian.Uint32(b)), b[4:], nil
}

// describeBody finds the body of a file that no cut has published.
func (s *Store) describeBody(tableID int64, x *FrozenFile) error {
	c, err := s.chunk(tableID, x.ID)
	if err != nil {
		return err
	}
	var ok bool
	if x.Body, ok = c.body(x.Record); !ok {
		return fmt.Errorf("%w: the body of record %d is not known", ErrCorrupt, x.Record)
	}
	return nil
}

func (s *Store) frozenFiles(tableID int64, fn func(*FrozenFile, uint32) error) error {
	return s.eachFrozen(tableID, func(id uint64, value []byte) error {
		x, tuple, err := decodeFrozen(id, value)
		if err != nil {
			return err
		}
		return fn(x, tuple)
	})
}

func decodeFrozen(id uint64, value []byte) (*FrozenFile, uint32, error) {
	d := dec{b: value}
	layout := d.u()
	if layout != 1 && layout != 2 {
		d.fail()
	}
	x := &FrozenFile{ID: id, Added: d.bool(), Removed: d.bool()}
	if layout == 2 {
		x.Moved = d.bool()
		if d.bool() {
			copy(x.Name[:], d.raw(len(x.Name)))
		}
	}
	x.Rows, x.Bytes = d.i(), d.i()
	tuple := uint32(d.u())
	x.SchemaID = int32(d.i())
	x.Record = d.i()
	x.Manifest = d.i()
	x.RowID = d.i()
	x.Sequence = d.i()
	if d.bool() {
		x.Vector = decVector(&d)
	}
	x.DeadCount = d.i()
	if b := d.byts(); len(b) > 0 {
		x.Dead = b
	}
	return x, tuple, d.done("frozen file")
}

// liveManifests reads the numbers and paths of the manifests in use.
func (s *Store) liveManifests(tableID int64, into map[int64]string) error {
	prefix := key8(keyLive, uint64(tableID))
	it, err := s.iter(prefix)
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		n := int64(binary.BigEndian.Uint64(it.Key()[len(prefix):]))
		e, err := decodeManifest(keyLive, n, it.Value())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		into[n] = e.path
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return readError(err)
	}
	return nil
}

// liveManifest follows a manifest to the one that its live entries are in now.
// seen shortens the way of the next one.
func (s *Store) liveManifest(tableID, n int64, live map[int64]string, seen map[int64]int64) (int64, error) {
	from := n
	for live[n] == "" {
		to, ok := seen[n]
		if !ok {
			b, err := s.get(key16(keyManifest, uint64(tableID), uint64(n)))
			if err != nil {
				return 0, err
			}
			e, err := decodeManifest(keyManifest, n, b)
			if err != nil {
				return 0, err
			}
			to = e.target
		}
		n = to
	}
	seen[from] = n
	return n, nil
}

// snapshotCommitted: C3, S9.
func (s *Store) snapshotCommitted(r *Record, t *table, c *record.SnapshotCommitted) (outcomeOf, error) {
	if t.pending == nil {
		return reject(record.NoCutPending), nil
	}
	if c.Cut != t.pending.Cut || c.Build != t.pending.Build {
		return reject(record.WrongBuild, t.pending.Cut, t.pending.Build), nil
	}
	if c.Parent != t.head.SnapshotID {
		return reject(record.WrongParent, t.head.SnapshotID), nil
	}
	var files []*FrozenFile
	if err := s.frozenFiles(t.id, func(x *FrozenFile, _ uint32) error {
		files = append(files, x)
		return nil
	}); err != nil {
		return outcomeOf{}, err
	}
	if part := checkCommit(t, c, files); part != 0 {
		return reject(record.BadCommit, part), nil
	}
	manifests := s.manifestNumbers(t.id)
	for i := range c.Manifests {
		for _, old := range c.Manifests[i].Replaces {
			if live, err := manifests.live(old); err != nil {
				return outcomeOf{}, err
			} else if !live {
				return reject(record.BadCommit, 4), nil
			}
		}
	}
	numbers := make([]int64, len(c.Manifests))
	for i := range c.Manifests {
		n, err := manifests.place(t, &c.Manifests[i], c.Build)
		if err != nil {
			return outcomeOf{}, err
		}
		numbers[i] = n
	}
	for i := range c.Files {
		f := &c.Files[i]
		ch, err := s.chunk(t.id, f.File)
		if err != nil {
			return outcomeOf{}, err
		}
		x := ch.find(f.File)
		s.touch(ch)
		x.manifest, x.rowID = numbers[f.Manifest], f.FirstRowID
		if x.sequence == 0 { // an output of a job keeps its own (S3)
			x.sequence = c.Sequence
		}
		ch.dirty = true
		if err := manifests.use(x.manifest, 1); err != nil {
			return outcomeOf{}, err
		}
		t.content.file(listed, x.id, x.rowID)
		t.totals.Published++
		t.totals.PubRows += x.rows
		t.totals.PubBytes += x.bytes
	}
	puffins := map[string]int64{} // vectors that come and go
	for _, x := range files {
		if x.Vector != nil {
			puffins[x.Vector.Puffin]--
			t.content.vector(unlisted, x.ID, x.Vector.Puffin, x.Vector.Offset, x.Vector.Cardinality)
			t.totals.Vectors--
			t.totals.PubDead -= x.Vector.Cardinality
			t.totals.PubVecSize -= x.Vector.Length
			if err := manifests.use(x.Vector.Manifest, -1); err != nil {
				return outcomeOf{}, err
			}
		}
		if !x.Removed {
			continue
		}
		if err := manifests.use(x.Manifest, -1); err != nil {
			return outcomeOf{}, err
		}
		t.content.file(unlisted, x.ID, x.RowID)
		t.totals.Published--
		t.totals.PubRows -= x.Rows
		t.totals.PubBytes -= x.Bytes
		if err := s.del(key16(keyVector, uint64(t.id), x.ID)); err != nil {
			return outcomeOf{}, err
		}
	}
	for i := range c.Vectors {
		v := &c.Vectors[i]
		puffins[c.Puffins[v.Puffin].Path]++
		t.content.vector(listed, v.File, c.Puffins[v.Puffin].Path, v.Offset, v.Cardinality)
		var e enc
		encVector(&e, &Vector{
			Puffin: c.Puffins[v.Puffin].Path, Offset: v.Offset, Length: v.Length, Cardinality: v.Cardinality,
			Sequence: c.Sequence, Manifest: numbers[v.Manifest],
		})
		if err := s.set(key16(keyVector, uint64(t.id), v.File), e.b); err != nil {
			return outcomeOf{}, err
		}
		if err := manifests.use(numbers[v.Manifest], 1); err != nil {
			return outcomeOf{}, err
		}
		t.totals.Vectors++
		t.totals.PubDead += v.Cardinality
		t.totals.PubVecSize += v.Length
	}
	if err := errors.Join(manifests.write(), s.usePuffins(t, puffins, c.Build)); err != nil {
		return outcomeOf{}, err
	}
	b, err := s.frozenHead(t.id)
	if err != nil {
		return outcomeOf{}, err
	}
	tail, err := frozenTail(b)
	if err != nil {
		return outcomeOf{}, err
	}
	t.metaFrozen = tail.meta
	if tail.def >= t.defFrozen { // else another writer's change came from the catalog since the cut was frozen
		t.defFrozen, t.published = tail.def, tail.keys
	}
	t.refs.published(tail.meta)
	switch {
	case t.pending.Rollback != 0 && len(t.expiring) > 0:
		// A rollback removes no snapshot: what was asked for waits for the next cut.
		t.metaChange, t.lastChange = r.Offset, r.Offset
	case t.metaChange == tail.meta:
		t.expiring = nil // what a branch or tag names by now stays
	}
	t.expiring = slices.DeleteFunc(t.expiring, func(id int64) bool { return slices.Contains(tail.expire, id) })
	for _, id := range tail.expire {
		if t.holds(id) {
			continue // a tag made since: the catalog kept it
		}
		for i := range t.snapshots {
			if t.snapshots[i].ID == id {
				if err := s.snapshotLeft(t, &t.snapshots[i]); err != nil {
					return outcomeOf{}, err
				}
				t.snapshots = append(t.snapshots[:i], t.snapshots[i+1:]...)
				break
			}
		}
	}
	h := &t.head
	if c.SnapshotID != 0 {
		h.SnapshotID, h.Sequence = c.SnapshotID, c.Sequence
		h.NextRowID = c.FirstRowID + c.AddedRows
		h.ManifestList, h.Deletes = c.ManifestList, 0
		t.snapshots = append(t.snapshots, SnapshotRef{
			ID: c.SnapshotID, Sequence: c.Sequence, TimestampMs: c.TimestampMs, Build: c.Build, Attempts: t.pending.Attempts, Cause: t.pending.LastCause,
			List: c.ManifestList, Bytes: t.totals.PubBytes, Events: tail.events, Settled: tail.settled, content: t.content,
		})
	}
	if p := t.pending; p.Rollback != 0 {
		h.SnapshotID, h.ManifestList, h.Deletes = p.Rollback, p.List, 0 // a snapshot of ours
	}
	h.TimestampMs, h.MetadataVersion, h.MetadataPath, h.MetadataHash = c.TimestampMs, c.MetadataVersion, c.MetadataPath, c.MetadataHash
	if h.Through = c.Build; h.Build < 0 {
		h.Through = t.id
	}
	h.Build = c.Build
	s.clearFrozen(t.id)
	t.pending = nil
	t.dirty = true
	s.effect('m', t.id, h.SnapshotID, h.Sequence, h.NextRowID, h.TimestampMs, t.nextMan)
	return accepted(true, c.SnapshotID, c.Build), nil
}

// frozenRest is what of a frozen cut its SnapshotCommitted needs beside the files.
type frozenRest struct {
	def    int64    // offset of the definition
	keys   []string // of its properties
	specs  int      // how many it has
	expire []int64
	meta   int64 // offset of the newest change of refs
	// As of the build offset: events taken, and requests answered.
	events, settled int64
}

// frozenTail reads it.
func frozenTail(b []byte) (f frozenRest, err error) {
	d := dec{b: b}
	d.u()
	d.i()
	d.i()
	d.i()
	d.raw(32)
	text := d.byts()
	f.def = d.i()
	d.bool()
	for n := d.count(); n > 0; n-- {
		d.str()
	}
	decHead(&d)
	for n := d.count(); n > 0; n-- {
		f.expire = append(f.expire, d.i())
	}
	for n := d.count(); n > 0; n-- {
		d.str()
		d.i()
		d.i()
	}
	for range new(PublishedTotals).list() {
		d.i()
	}
	f.meta = d.i()
	decRefChanges(&d)
	f.events, f.settled = d.i(), d.i()
	if d.bad {
		return f, d.done("frozen cut")
	}
	x, err := decodeDefinition(text)
	if err != nil {
		return f, err
	}
	f.keys, f.specs = propertyKeys(x), len(x.Specs)
	return f, nil
}

// rowIDs is a range of row ids, to not included.
type rowIDs struct{ from, to int64 }

// checkCommit holds a SnapshotCommitted against the frozen cut: 0 when it is
// what a publisher of that cut must send, else which part is not.
func checkCommit(t *table, c *record.SnapshotCommitted, files []*FrozenFile) int64 {
	if c.TimestampMs < t.head.TimestampMs || c.MetadataVersion < t.head.MetadataVersion {
		return 1
	}
	// Delete files of others leave with the commit (H15).
	if (c.SnapshotID != 0) != makesSnapshot(len(files), t.pending.Rollback, &t.head) {
		return 2
	}
	if c.SnapshotID == 0 {
		if len(c.Manifests)+len(c.Files)+len(c.Vectors)+len(c.Puffins) > 0 {
			return 2
		}
		return 0
	}
	// C6: row ids and sequence numbers never go back, nor past the end of their range.
	if c.SnapshotID < 0 || c.Sequence <= t.head.Sequence || c.FirstRowID < t.head.NextRowID || c.AddedRows < 0 || c.AddedRows > math.MaxInt64-c.FirstRowID ||
		slices.ContainsFunc(t.snapshots, func(s SnapshotRef) bool { return s.ID == c.SnapshotID }) {
		return 3
	}
	replaced := map[int64]bool{}
	for i := range c.Manifests {
		if c.Manifests[i].Path == "" {
			return 4
		}
		for _, old := range c.Manifests[i].Replaces {
			if old < 1 || old >= t.nextMan || replaced[old] {
				return 4
			}
			replaced[old] = true
		}
	}
	find := func(id uint64) *FrozenFile {
		i := sort.Search(len(files), func(i int) bool { return files[i].ID >= id })
		if i < len(files) && files[i].ID == id {
			return files[i]
		}
		return nil
	}
	added, killed := 0, 0
	for _, x := range files {
		if x.Added {
			added++
		}
		if x.Dead != nil {
			killed++
		}
	}
	if added != len(c.Files) || killed != len(c.Vectors) {
		return 5
	}
	prev := uint64(0)
	ids := make([]rowIDs, len(c.Files))
	for i := range c.Files {
		f := &c.Files[i]
		x := find(f.File)
		if x == nil || !x.Added || f.File <= prev || f.Manifest < 0 || int(f.Manifest) >= len(c.Manifests) ||
			f.FirstRowID < c.FirstRowID || f.FirstRowID > c.FirstRowID+c.AddedRows-x.Rows {
			return 6
		}
		prev = f.File
		ids[i] = rowIDs{f.FirstRowID, f.FirstRowID + x.Rows}
	}
	slices.SortFunc(ids, func(a, b rowIDs) int { return cmp.Compare(a.from, b.from) })
	for i := 1; i < len(ids); i++ {
		if ids[i].from < ids[i-1].to {
			return 6
		}
	}
	prev = 0
	for i := range c.Vectors {
		v := &c.Vectors[i]
		x := find(v.File)
		if x == nil || x.Dead == nil || v.Cardinality != x.DeadCount || v.File <= prev ||
			v.Offset < 0 || v.Length < 0 || v.Puffin < 0 || int(v.Puffin) >= len(c.Puffins) || v.Manifest < 0 || int(v.Manifest) >= len(c.Manifests) {
			return 7
		}
		prev = v.File
	}
	return 0
}

// causes is the closed list of a SnapshotFailed: free text could hold key values (E1).
var causes = [...]string{"catalog", "conflict", "store", "unknown"}

// snapshotFailed: C3. The cut stays pending.
func (s *Store) snapshotFailed(t *table, f *record.SnapshotFailed) (outcomeOf, error) {
	if t.pending == nil {
		return reject(record.NoCutPending), nil
	}
	if f.Cut != t.pending.Cut || f.Build != t.pending.Build {
		return reject(record.WrongBuild, t.pending.Cut, t.pending.Build), nil
	}
	if !slices.Contains(causes[:], f.Cause) {
		return reject(record.BadCommit, 8), nil
	}
	t.pending.Attempts++
	t.pending.LastCause = f.Cause
	t.dirty = true
	s.effect('!', t.id, t.pending.Attempts)
	return accepted(false, t.pending.Attempts), nil
}
