package statestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/varve-io/varve/schemas/record"
)

// left is an object that no snapshot from a build offset on lists, and that a
// snapshot from since on may list.
type leftObject struct {
	kind  record.Garbage
	left  int64
	id    uint64
	since int64
	path  string // of a metadata object
}

func garbageKey(table int64, kind record.Garbage, left int64, id uint64) []byte {
	k := append(key8(keyGarbage, uint64(table)), byte(kind))
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(k, uint64(left)), id)
}

func (s *Store) setLeft(t *table, x *leftObject) error {
	var e enc
	e.i(x.since)
	e.str(x.path)
	return s.set(garbageKey(t.id, x.kind, x.left, x.id), e.b)
}

func decodeLeft(kind record.Garbage, left int64, id uint64, b []byte) (*leftObject, error) {
	d := dec{b: b}
	x := &leftObject{kind: kind, left: left, id: id, since: d.i(), path: d.str()}
	return x, d.done("object that left")
}

// fileLeft notes that the cut of a build offset takes a file out.
func (s *Store) fileLeft(t *table, f *fileEntry, build int64) error {
	f.left = build
	if IsForeign(f.id) {
		return nil // whoever wrote it may need it elsewhere: it is not ours to delete
	}
	x := leftObject{kind: record.GarbageFile, left: build, id: f.id, since: f.record}
	if f.manifest == 0 {
		x.since = build // no snapshot ever listed it
	}
	return s.setLeft(t, &x)
}

// metadataLeft notes that the snapshot of a build offset lists a manifest or
// Puffin file no more.
func (s *Store) metadataLeft(t *table, path string, since, build int64) error {
	if path == "" {
		return nil
	}
	x := leftObject{kind: record.GarbageMetadata, left: build, id: uint64(t.nextGarbage), since: since, path: path}
	t.nextGarbage++
	t.dirty = true
	return s.setLeft(t, &x)
}

// snapshotLeft notes that a snapshot is not retained any more: no other one
// reaches its manifest list.
func (s *Store) snapshotLeft(t *table, x *SnapshotRef) error {
	return s.metadataLeft(t, x.List, x.Build, x.Build)
}

func puffinKey(table int64, path string) []byte {
	return append(key8(keyPuffin, uint64(table)), path...)
}

// usePuffins counts the published vectors of each Puffin file; one whose last
// vector went is listed no more.
func (s *Store) usePuffins(t *table, change map[string]int64, build int64) error {
	for _, path := range slices.Sorted(maps.Keys(change)) {
		if change[path] == 0 {
			continue
		}
		k := puffinKey(t.id, path)
		b, err := s.get(k)
		if err != nil {
			return err
		}
		uses, since := int64(0), build
		if b != nil {
			d := dec{b: b}
			uses, since = d.i(), d.i()
			if err := d.done("Puffin file"); err != nil {
				return err
			}
		}
		if uses += change[path]; uses < 0 {
			return fmt.Errorf("%w: the Puffin file %s has %d vectors", ErrCorrupt, path, uses)
		}
		if uses == 0 {
			err = errors.Join(s.del(k), s.metadataLeft(t, path, since, build))
		} else {
			var e enc
			e.i(uses)
			e.i(since)
			err = s.set(k, e.b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Keeper is what still needs an object that left (G2).
type Keeper uint8

const (
	KeptByNothing  Keeper = iota
	KeptByCut             // the cut that takes it out is not committed
	KeptBySnapshot        // a retained snapshot lists it
	KeptByRef             // a branch or tag whose snapshot the log does not know may reach it
	KeptByIndex           // a shard's index would be built anew from before it left
	KeptByReshard         // shards of a divided topic begin from before it left
	KeptByJob             // an open job reads it
)

var keeperTexts = [...]string{
	KeptByNothing: "", KeptByCut: "a cut that is not committed", KeptBySnapshot: "a retained snapshot",
	KeptByRef: "a branch or tag that the log does not know", KeptByIndex: "a shard's index checkpoint",
	KeptByReshard: "the division of the source topic", KeptByJob: "an open job",
}

func (k Keeper) String() string { return keeperTexts[k] }

// Kept says what keeps an object: of a snapshot its id, of a shard its partition
// and index horizon, of a job its plan and item.
type Kept struct {
	By      Keeper
	Numbers [2]int64
}

// keeper is what of G2 still needs an object, as of the newest record.
func (s *Store) keeper(t *table, x *leftObject) (Kept, error) {
	if x.left > t.head.Build {
		return Kept{By: KeptByCut}, nil
	}
	i, _ := slices.BinarySearchFunc(t.snapshots, x.since, func(r SnapshotRef, build int64) int {
		switch {
		case r.Build < build:
			return -1
		case r.Build > build:
			return 1
		}
		return 0
	})
	if i < len(t.snapshots) && t.snapshots[i].Build < x.left {
		return Kept{KeptBySnapshot, [2]int64{t.snapshots[i].ID}}, nil
	}
	for _, id := range t.held {
		if !slices.ContainsFunc(t.snapshots, func(r SnapshotRef) bool { return r.ID == id }) {
			return Kept{KeptByRef, [2]int64{id}}, nil
		}
	}
	if x.kind != record.GarbageFile {
		return Kept{}, nil
	}
	if len(t.finds) > 0 && x.left > t.finds[0].offset {
		return Kept{KeptByJob, [2]int64{t.finds[0].offset}}, nil
	}
	if k := t.indexKeeper(x.left); k.By != KeptByNothing {
		return k, nil
	}
	c, err := s.chunk(t.id, x.id)
	if err != nil {
		return Kept{}, err
	}
	jobs, err := s.jobsOf(t, c, x.id)
	if err != nil {
		return Kept{}, err
	}
	for _, id := range jobs {
		open, err := s.openJob(t.id, id)
		if err != nil {
			return Kept{}, err
		}
		if open != nil {
			return Kept{KeptByJob, [2]int64{id.plan, int64(id.item)}}, nil
		}
	}
	return Kept{}, nil
}

// indexKeeper is which shard may still name a file that left at a build offset,
// or fold the record that brought it.
func (t *table) indexKeeper(left int64) Kept {
	if !t.def.Keyed() {
		return Kept{} // there is no index
	}
	if b := t.base; b != nil && left > t.baseFloor {
		for p := range b.Partitions {
			sh := t.shards[shardID{b.TopicID, p}]
			// Until it has a checkpoint of its own a shard begins with the fold of those
			// of before. An owner makes none before what that owes is paid.
			if sh == nil || sh.index.Path == "" {
				return Kept{KeptByReshard, [2]int64{int64(p), b.Offset}}
			}
		}
	}
	for _, id := range t.shardOrder {
		if sh := t.shards[id]; sh.indexHorizon < left {
			return Kept{KeptByIndex, [2]int64{int64(id.partition), sh.indexHorizon}}
		}
	}
	return Kept{}
}

// Left is an object that left a table, and what keeps it.
type Left struct {
	record.CollectItem
	Path string
	Kept Kept
}

// LeftObjects calls fn with what left a table and was not collected, data files
// first, in the order in which they left.
func (s *Store) LeftObjects(tableID int64, fn func(*Left) error) error {
	_, err := s.eachLeft(tableID, nil, fn)
	return err
}

// maxLeftScan bounds how many objects one call of Collectable looks at.
const maxLeftScan = 1 << 16

var errStopScan = errors.New("the scan has seen enough")

// Collectable finds up to limit objects that a CollectFiles would take now. It
// begins behind after, nil: the first; the result's next is where the next call
// goes on, nil: it came to the end.
func (s *Store) Collectable(tableID int64, after []byte, limit int) (items []record.CollectItem, next []byte, err error) {
	seen := 0
	next, err = s.eachLeft(tableID, after, func(x *Left) error {
		if x.Kept.By == KeptByNothing {
			items = append(items, x.CollectItem)
		}
		if seen++; len(items) == limit || seen == maxLeftScan {
			return errStopScan
		}
		return nil
	})
	if errors.Is(err, errStopScan) {
		err = nil
	}
	return items, next, err
}

// eachLeft calls fn without the lock; after an error it returns the key it was at.
func (s *Store) eachLeft(tableID int64, after []byte, fn func(*Left) error) ([]byte, error) {
	const page = 512
	for {
		all, keys, err := s.leftPage(tableID, after, page)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if err := fn(&all[i]); err != nil {
				return keys[i], err
			}
		}
		if len(all) < page {
			return nil, nil
		}
		after = keys[len(keys)-1]
	}
}

func (s *Store) leftPage(tableID int64, after []byte, n int) (all []Left, keys [][]byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.tableByID(tableID)
	if err != nil || t == nil || t.dropped {
		return nil, nil, err
	}
	var found []*leftObject
	prefix := key8(keyGarbage, uint64(tableID))
	from := prefix
	if after != nil {
		from = append(bytes.Clone(after), 0)
	}
	it, err := s.iterRange(from, prefixEnd(prefix))
	if err != nil {
		return nil, nil, err
	}
	for ok := it.First(); ok && len(found) < n; ok = it.Next() {
		x, err := readLeft(it.Key(), it.Value())
		if err != nil {
			return nil, nil, errors.Join(err, it.Close())
		}
		found, keys = append(found, x), append(keys, bytes.Clone(it.Key()))
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, nil, readError(err)
	}
	for _, x := range found {
		l := Left{CollectItem: record.CollectItem{Kind: x.kind, Left: x.left, ID: x.id}}
		if l.Kept, err = s.keeper(t, x); err != nil {
			return nil, nil, err
		}
		if l.Path, err = s.leftPath(t, x); err != nil {
			return nil, nil, err
		}
		all = append(all, l)
	}
	return all, keys, nil
}

func readLeft(k, v []byte) (*leftObject, error) {
	if len(k) != 26 {
		return nil, fmt.Errorf("%w: key of an object that left", ErrCorrupt)
	}
	return decodeLeft(record.Garbage(k[9]), int64(binary.BigEndian.Uint64(k[10:])), binary.BigEndian.Uint64(k[18:]), v)
}

// leftPath is the location of an object that left.
func (s *Store) leftPath(t *table, x *leftObject) (string, error) {
	if x.kind != record.GarbageFile {
		return x.path, nil
	}
	c, err := s.chunk(t.id, x.id)
	if err != nil {
		return "", err
	}
	f := c.find(x.id)
	if f == nil || !f.gone || f.left != x.left {
		return "", fmt.Errorf("%w: file %d, which left", ErrCorrupt, x.id)
	}
	y := FrozenFile{ID: f.id, Name: c.name(f.id)}
	if err := describe(s.get, t.id, &y, f.tuple); err != nil {
		return "", err
	}
	return y.At(t.def.Location, t.id), nil
}

// Collection is an accepted CollectFiles whose objects are not deleted yet.
type Collection struct {
	Offset  int64 // of the CollectFiles
	TimeMs  int64 // table time of it
	Objects []string
}

// Collections are what a table's CollectFiles decided to delete, in order.
func (s *Store) Collections(tableID int64) ([]Collection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.collections(tableID)
}

func (s *Store) collections(tableID int64) (all []Collection, err error) {
	prefix := key8(keyCollect, uint64(tableID))
	it, err := s.iter(prefix)
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		x, err := decodeCollection(int64(binary.BigEndian.Uint64(it.Key()[len(prefix):])), it.Value())
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		all = append(all, *x)
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, readError(err)
	}
	return all, nil
}

func (c *Collection) encode() []byte {
	var e enc
	e.u(1)
	e.i(c.TimeMs)
	e.u(uint64(len(c.Objects)))
	for _, p := range c.Objects {
		e.str(p)
	}
	return e.b
}

func decodeCollection(offset int64, b []byte) (*Collection, error) {
	d := dec{b: b}
	if d.u() != 1 {
		d.fail()
	}
	c := &Collection{Offset: offset, TimeMs: d.i()}
	for n := d.count(); n > 0; n-- {
		c.Objects = append(c.Objects, d.str())
	}
	return c, d.done("collection")
}
