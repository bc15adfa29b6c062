package statestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
)

// rollback: G1, G11. All that the target lists stands in the record; the state
// holds it against its own entries of these files and against the digest that it
// kept when the snapshot was committed.
func (s *Store) rollback(r *Record, now int64, t *table, x *record.Rollback) (outcomeOf, error) {
	switch {
	case t.pending != nil:
		return reject(record.CutPending, t.pending.Cut), nil
	case len(t.openDeletes) > 0:
		return reject(record.Unsettled, t.openDeletes[0].offset), nil
	case t.filesHeld():
		return reject(record.FilesHeld, t.adds[0].offset), nil
	case len(t.finds) > 0:
		return reject(record.Unsettled, t.finds[0].offset), nil
	case t.resharding != nil:
		return reject(record.ReshardOpen, t.resharding.Offset), nil
	}
	stays, err := s.stays(t, x.Snapshot)
	if err != nil {
		return outcomeOf{}, err
	}
	if !stays {
		return reject(record.NoSnapshot, x.Snapshot), nil
	}
	if x.Snapshot == t.head.SnapshotID && !t.changed {
		return reject(record.NoChange, 4), nil
	}
	to := &t.snapshots[slices.IndexFunc(t.snapshots, func(y SnapshotRef) bool { return y.ID == x.Snapshot })]
	// What the rules read lies in the database from here on: dead positions and
	// files are replaced whole.
	if err := s.writeBack(); err != nil {
		return outcomeOf{}, err
	}
	b := restore{s: s, t: t, r: r, x: x, to: to}
	if part, item, err := b.check(); err != nil {
		return outcomeOf{}, err
	} else if part != 0 {
		return reject(record.BadRollback, part, item), nil
	}
	unread, undone := t.totals.Counts.Events-to.Events, t.settled-to.Settled
	s.effect('U', t.id, x.Snapshot, int64(len(x.Files)), int64(len(x.Vectors)))
	if err := errors.Join(b.jobs(), b.files(), b.metadata()); err != nil {
		return outcomeOf{}, err
	}
	b.totals()
	for _, id := range t.shardOrder {
		sh := t.shards[id]
		closeEpoch(sh, r.Offset, false)
		// Its index is made of what the record lists: files that leave later are
		// needed until it has a checkpoint of its own.
		sh.index, sh.indexHorizon, sh.dirty = record.Ref{}, r.Offset, true
	}
	s.clearFrozen(t.id)
	t.rolled, t.lastChange, t.changed, t.dirty = r.Offset, r.Offset, false, true
	t.pending = &PendingCut{Cut: r.Offset, Build: r.Offset, Rollback: x.Snapshot, List: x.ManifestList}
	if err := s.freezeHead(r, now, t, 0); err != nil {
		return outcomeOf{}, err
	}
	return accepted(true, int64(len(x.Files)), int64(len(x.Vectors)), unread, undone, x.Snapshot), nil
}

// restore brings a table's references back to those of a snapshot.
type restore struct {
	s  *Store
	t  *table
	r  *Record
	x  *record.Rollback
	to *SnapshotRef

	vectors   map[uint64]*record.KeptVector
	manifests []int64 // numbers of x.Manifests
}

// Parts of a BadRollback.
const (
	rollbackForm    = 1
	rollbackFile    = 2
	rollbackVector  = 3
	rollbackContent = 4
)

// check changes nothing.
func (b *restore) check() (part, item int64, _ error) {
	x := b.x
	if x.ManifestList != b.to.List || x.Build != b.to.Build {
		return rollbackForm, 0, nil
	}
	for i := range x.Manifests {
		if x.Manifests[i].Path == "" || len(x.Manifests[i].Replaces) > 0 {
			return rollbackForm, 1, nil
		}
	}
	var sum contentSum
	prev := uint64(0)
	for i := range x.Files {
		f := &x.Files[i]
		if f.File <= prev || IsForeign(f.File) || f.Manifest < 0 || int(f.Manifest) >= len(x.Manifests) || len(f.Name) != 0 && len(f.Name) != 16 {
			return rollbackFile, int64(i), nil
		}
		prev = f.File
		same, err := b.known(f)
		if err != nil || !same {
			return rollbackFile, int64(i), err
		}
		sum.file(listed, f.File, f.FirstRowID)
	}
	b.vectors = make(map[uint64]*record.KeptVector, len(x.Vectors))
	prev = 0
	for i := range x.Vectors {
		v := &x.Vectors[i]
		at, found := slices.BinarySearchFunc(x.Files, v.File, func(f record.KeptFile, id uint64) int {
			switch {
			case f.File < id:
				return -1
			case f.File > id:
				return 1
			}
			return 0
		})
		if !found || v.File <= prev || v.Puffin < 0 || int(v.Puffin) >= len(x.Puffins) || v.Manifest < 0 || int(v.Manifest) >= len(x.Manifests) {
			return rollbackVector, int64(i), nil
		}
		prev = v.File
		info, err := dv.Inspect(v.Dead)
		if err != nil || info.Count == 0 || int64(info.Count) != v.Cardinality || int64(info.Max) >= x.Files[at].Rows {
			return rollbackVector, int64(i), nil
		}
		sum.vector(listed, v.File, x.Puffins[v.Puffin].Path, v.Offset, v.Cardinality)
		b.vectors[v.File] = v
	}
	if sum != b.to.content {
		return rollbackContent, 0, nil
	}
	return 0, 0, nil
}

// known says whether the state has the file as the record says.
func (b *restore) known(f *record.KeptFile) (bool, error) {
	c, done, err := b.chunk(f.File >> 7)
	if err != nil {
		return false, err
	}
	defer done()
	e := c.find(f.File)
	if e == nil || e.rows != f.Rows || e.rowID != f.FirstRowID || e.record != f.Record || e.manifest == 0 {
		return false, nil
	}
	y := FrozenFile{ID: e.id, Name: c.name(e.id)}
	if err := describe(b.s.get, b.t.id, &y, e.tuple); err != nil {
		return false, err
	}
	name := [16]byte{}
	copy(name[:], f.Name)
	return y.Name == name && y.Epoch == f.Epoch, nil
}

// chunk reads a chunk; done lets go of one that stayed as it was.
func (b *restore) chunk(base uint64) (c *chunk, done func(), err error) {
	k := chunkKey{b.t.id, base}
	had := b.s.cached(k) != nil
	c, err = b.s.chunk(b.t.id, base<<7)
	return c, func() {
		if !had && !c.touched {
			delete(b.s.chunks, k)
			b.s.near[k.near()] = nil
		}
	}, err
}

// jobs ends every open job, and forgets the ways through those that were
// completed after the target: their inputs live again, or never were.
func (b *restore) jobs() error {
	s, t := b.s, b.t
	type open struct {
		id  jobID
		job *openJob
	}
	var all []open
	if err := s.eachOpenJob(t.id, func(id jobID, j *openJob) error {
		all = append(all, open{id, j})
		return nil
	}); err != nil {
		return err
	}
	for _, o := range all {
		for i := range o.job.inputs {
			c, err := s.chunk(t.id, o.job.inputs[i].file)
			if err != nil {
				return err
			}
			if err := s.take(t, c, &o.job.inputs[i], nil); err != nil {
				return err
			}
		}
		if err := s.endJob(t, o.id, o.job); err != nil {
			return err
		}
		s.effect('R', t.id, o.id.plan, int64(o.id.item), 0)
	}
	prefix := key8(keyDone, uint64(t.id))
	it, err := s.iter(prefix)
	if err != nil {
		return err
	}
	var late [][]byte
	for ok := it.First(); ok; ok = it.Next() {
		j, err := decodeDoneJob(it.Value())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		if j.at > b.to.Build {
			late = append(late, bytes.Clone(it.Key()))
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return readError(err)
	}
	for _, k := range late {
		if err := s.del(k); err != nil {
			return err
		}
	}
	return nil
}

// files brings every file to what the target says of it.
func (b *restore) files() error {
	s, t := b.s, b.t
	b.manifests = make([]int64, len(b.x.Manifests))
	for i := range b.manifests {
		b.manifests[i] = t.nextMan
		t.nextMan++
	}
	prefix := key8(keyChunk, uint64(t.id))
	it, err := s.iter(prefix)
	if err != nil {
		return err
	}
	var bases []uint64
	for ok := it.First(); ok; ok = it.Next() {
		bases = append(bases, binary.BigEndian.Uint64(it.Key()[len(prefix):]))
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return readError(err)
	}
	next := 0
	for _, base := range bases {
		c, done, err := b.chunk(base)
		if err != nil {
			return err
		}
		if !c.added.empty() || !c.killed.empty() {
			s.touch(c)
			c.added, c.killed, c.marksDirty = bits128{}, bits128{}, true
		}
		c.dead, c.deadKnown = bits128{}, false
		for i := range c.entries {
			f := &c.entries[i]
			if next < len(b.x.Files) && b.x.Files[next].File == f.id {
				err = b.keep(c, f, &b.x.Files[next])
				next++
			} else {
				err = b.leave(c, f)
			}
			if err != nil {
				return err
			}
		}
		done()
	}
	if next != len(b.x.Files) {
		return fmt.Errorf("%w: %d files of a rollback were found", ErrCorrupt, next)
	}
	return nil
}

// keep makes a file live as the target lists it.
func (b *restore) keep(c *chunk, f *fileEntry, x *record.KeptFile) error {
	s, t := b.s, b.t
	s.touch(c)
	c.dirty = true
	bit := uint(f.id & 127)
	if f.gone {
		if f.left != 0 {
			if err := s.del(garbageKey(t.id, record.GarbageFile, f.left, f.id)); err != nil {
				return err
			}
		}
		f.gone, f.left = false, 0
		c.gone.clear(bit)
		c.out.clear(bit)
		if err := s.joinPartition(t, f); err != nil {
			return err
		}
		s.effect('u', int64(f.id))
	}
	c.setJob(f.id, nil)
	v := b.vectors[f.id]
	moved, _, err := b.references(c, f, v)
	if err != nil {
		return err
	}
	f.manifest = b.manifests[x.Manifest]
	if v == nil {
		return errors.Join(s.del(key16(keyDead, uint64(t.id), f.id)), s.del(key16(keyVector, uint64(t.id), f.id)))
	}
	set, err := dv.ReadBitmap(bytes.Clone(v.Dead))
	if err != nil {
		return fmt.Errorf("%w: a vector of a rollback", ErrCorrupt)
	}
	dead, err := dv.AppendBitmap(nil, set)
	if err == nil && moved != nil { // F7: apart
		dead, err = dv.Minus(nil, dead, moved)
	}
	if err != nil {
		return fmt.Errorf("%w: a vector of a rollback", ErrCorrupt)
	}
	c.dead.set(bit)
	if err := s.set(key16(keyDead, uint64(t.id), f.id), dead); err != nil {
		return err
	}
	s.effect('v', int64(f.id), v.Cardinality)
	s.effectBytes(dead)
	var e enc
	encVector(&e, &Vector{
		Puffin: b.x.Puffins[v.Puffin].Path, Offset: v.Offset, Length: v.Length, Cardinality: v.Cardinality, Sequence: v.Sequence, Manifest: b.manifests[v.Manifest],
	})
	return s.set(key16(keyVector, uint64(t.id), f.id), e.b)
}

// references frees the references to a file whose jobs are forgotten: their rows
// are where they were. What other jobs moved stays so. lost says that there were
// such. Where every row of such a reference is in the target's vector, a job had
// moved it by then that an earlier rollback forgot, and its rows are where nobody knows
// a way to (P3).
func (b *restore) references(c *chunk, f *fileEntry, v *record.KeptVector) (moved []byte, lost bool, _ error) {
	s, t := b.s, b.t
	parts, err := s.parts(t, c, f.id)
	if err != nil || parts == nil {
		return nil, false, err
	}
	var vector *roaring.Bitmap
	if v != nil {
		if vector, err = dv.ReadBitmap(bytes.Clone(v.Dead)); err != nil {
			return nil, false, fmt.Errorf("%w: a vector of a rollback", ErrCorrupt)
		}
	}
	changed := false
	for i := range parts {
		p := &parts[i]
		if p.state != partFree {
			done, err := s.doneJob(t.id, p.job)
			if err != nil {
				return nil, false, err
			}
			if done == nil {
				p.state, p.job, p.back, lost = partFree, jobID{}, true, true
			}
		}
		if p.state == partFree && p.back && vector != nil && covers(vector, p.lo, p.hi) {
			p.lose()
			changed = true
			s.effect('l', int64(f.id), p.lo, p.hi)
		}
	}
	if lost || changed {
		if err := s.setParts(t, c, f.id, parts); err != nil {
			return nil, false, err
		}
	}
	moved, err = movedSet(parts)
	return moved, lost, err
}

// covers says whether a set has every position of a range.
func covers(set *roaring.Bitmap, lo, hi int64) bool {
	n := set.Rank(uint32(hi - 1))
	if lo > 0 {
		n -= set.Rank(uint32(lo - 1))
	}
	return int64(n) == hi-lo
}

// leave takes a file out that the target does not list. What was added after the
// target leaves (H3): no block may name it. A file that was gone by then stays
// gone, and the way through its job is kept (P2).
func (b *restore) leave(c *chunk, f *fileEntry) error {
	s, t := b.s, b.t
	bit := uint(f.id & 127)
	if !f.gone {
		s.touch(c)
		c.dirty = true
		f.gone = true
		c.gone.set(bit)
		c.out.set(bit)
		c.setJob(f.id, nil)
		if _, _, err := b.references(c, f, nil); err != nil {
			return err
		}
		s.effect('g', int64(f.id))
		return errors.Join(
			s.fileLeft(t, f, b.r.Offset), s.leavePartition(t, f),
			s.del(key16(keyDead, uint64(t.id), f.id)), s.del(key16(keyVector, uint64(t.id), f.id)))
	}
	// It ended after the target, which does not list it: a job took it out by then
	// that an earlier rollback forgot, and its rows are where nobody knows a way to.
	elsewhere := f.left == 0 || f.left > b.to.Build || f.record > b.to.Build
	if f.left == 0 { // a job took it out since the last cut
		s.touch(c)
		c.dirty = true
		if err := errors.Join(s.fileLeft(t, f, b.r.Offset), s.del(key16(keyVector, uint64(t.id), f.id))); err != nil {
			return err
		}
	}
	if c.parted.has(bit) {
		_, lost, err := b.references(c, f, nil)
		if err == nil && (lost || elsewhere) && !c.out.has(bit) {
			s.touch(c)
			c.dirty = true
			c.out.set(bit)
		}
		return err
	}
	job := c.job(f.id)
	if job != nil {
		done, err := s.doneJob(t.id, *job)
		if err != nil {
			return err
		}
		if done != nil {
			return nil
		}
	}
	if (job != nil || elsewhere) && !c.out.has(bit) {
		s.touch(c)
		c.dirty = true
		c.setJob(f.id, nil)
		c.out.set(bit)
	}
	return nil
}

// metadata makes the target's manifests and Puffin files those of the head; the
// others leave, and what left before and is listed again has not left.
func (b *restore) metadata() error {
	s, t, x := b.s, b.t, b.x
	since := map[string]int64{}  // of the target's objects, where it is known
	wanted := map[string]int64{} // uses
	m := s.manifestNumbers(t.id)
	for i, n := range b.manifests {
		m.entries[n] = &manifestEntry{path: x.Manifests[i].Path, dirty: true}
		wanted[x.Manifests[i].Path] = 0
	}
	puffins := map[string]int64{}
	for i := range x.Files {
		m.entries[b.manifests[x.Files[i].Manifest]].uses++
	}
	for i := range x.Vectors {
		m.entries[b.manifests[x.Vectors[i].Manifest]].uses++
		puffins[x.Puffins[x.Vectors[i].Puffin].Path]++
	}
	// What the head had.
	type object struct {
		path  string
		since int64
	}
	var had []object
	live := key8(keyLive, uint64(t.id))
	if err := s.eachKey(live, func(k, v []byte) error {
		e, err := decodeManifest(keyLive, int64(binary.BigEndian.Uint64(k[len(live):])), v)
		if err == nil {
			had = append(had, object{e.path, e.since})
		}
		return err
	}); err != nil {
		return err
	}
	pre := key8(keyPuffin, uint64(t.id))
	if err := s.eachKey(pre, func(k, v []byte) error {
		d := dec{b: v}
		d.i()
		had = append(had, object{string(k[len(pre):]), d.i()})
		return d.done("Puffin file")
	}); err != nil {
		return err
	}
	moved := key8(keyManifest, uint64(t.id))
	for _, p := range [...][]byte{live, pre, moved} {
		if err := s.batch().DeleteRange(p, prefixEnd(p), nil); err != nil {
			return err
		}
	}
	listed := func(path string) bool {
		_, manifest := wanted[path]
		return manifest || puffins[path] > 0
	}
	for _, o := range had {
		if listed(o.path) {
			since[o.path] = o.since
		} else if err := s.metadataLeft(t, o.path, o.since, b.r.Offset); err != nil {
			return err
		}
	}
	// What left before.
	var back [][]byte
	gone := append(key8(keyGarbage, uint64(t.id)), byte(record.GarbageMetadata))
	if err := s.eachKey(gone, func(k, v []byte) error {
		o, err := readLeft(k, v)
		if err == nil && o.left != b.r.Offset && listed(o.path) {
			since[o.path] = o.since
			back = append(back, bytes.Clone(k))
		}
		return err
	}); err != nil {
		return err
	}
	for _, k := range back {
		if err := s.del(k); err != nil {
			return err
		}
	}
	for _, e := range m.entries {
		e.since = since[e.path]
	}
	if err := m.write(); err != nil {
		return err
	}
	for path, uses := range puffins {
		var e enc
		e.i(uses)
		e.i(since[path])
		if err := s.set(puffinKey(t.id, path), e.b); err != nil {
			return err
		}
	}
	return nil
}

func (b *restore) totals() {
	t := b.t
	old := t.totals
	t.totals = totals{Counts: old.Counts}
	n := &t.totals
	for i := range b.x.Files {
		f := &b.x.Files[i]
		n.Files++
		n.Rows += f.Rows
		n.Published++
		n.PubRows += f.Rows
	}
	n.Bytes, n.PubBytes = b.to.Bytes, b.to.Bytes
	for i := range b.x.Vectors {
		v := &b.x.Vectors[i]
		n.Vectors++
		n.Dead += v.Cardinality
		n.PubDead += v.Cardinality
		n.PubVecSize += v.Length
	}
	t.content = b.to.content
}
