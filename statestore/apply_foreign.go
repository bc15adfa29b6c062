package statestore

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
)

// maxForeignPath bounds the path of a file that another writer brought.
const maxForeignPath = 2048

func foreignKey(table int64, id uint64) []byte { return key16(keyForeign, uint64(table), id) }

// foreignSnapshot: H2, H3, H10. The head becomes that of branch main in the
// catalog. A pending cut is given up: what it had frozen is in the next one.
func (s *Store) foreignSnapshot(r *Record, t *table, x *record.ForeignSnapshot) (outcomeOf, error) {
	h := &t.head
	switch {
	case h.Build < 0 || h.MetadataVersion != 0 || x.Base != h.SnapshotID:
		return reject(record.HeadMoved, h.SnapshotID), nil
	case t.pending != nil && t.pending.Rollback != 0:
		return reject(record.CutPending, t.pending.Cut), nil
	case t.filesHeld():
		return reject(record.FilesHeld, t.adds[0].offset), nil
	case len(x.Removed) > 0 && len(t.finds) > 0:
		// What it finds in a file that left is nowhere (H3): it ends first.
		return reject(record.Unsettled, t.finds[0].offset), nil
	case len(x.Removed) > 0 && len(t.openDeletes) > 0 && t.openDeletes[0].offset < h.Through:
		// Rows of the base that it deletes would come back with their copies.
		return reject(record.Unsettled, t.openDeletes[0].offset), nil
	}
	if len(x.Removed) > 0 {
		// Deaths by another path that the sender had not read of are owed too (H3).
		if at, err := s.byOthers(t.id); err != nil {
			return outcomeOf{}, err
		} else if at > x.AsOf {
			return reject(record.TooOld, at), nil
		}
	}
	// What the rules read lies in the database from here on.
	if err := s.writeBack(); err != nil {
		return outcomeOf{}, err
	}
	f := foreign{s: s, t: t, r: r, x: x, read: s.manifestNumbers(t.id)}
	part, item, err := f.check()
	if err != nil {
		return outcomeOf{}, err
	}
	if part == foreignKnown {
		return reject(record.FileNotNew, item), nil
	}
	if part != 0 {
		return reject(record.BadForeign, part, item), nil
	}
	if err := s.unfreeze(t); err != nil {
		return outcomeOf{}, err
	}
	t.pending = nil
	place := h.Through
	s.effect('Y', t.id, x.Base, f.head().ID, x.Sequence, x.NextRowID, int64(len(x.Snapshots)), place)
	for _, part := range [...]func() error{f.metadata, f.vectors, f.entries, f.remove, f.add} {
		if err := part(); err != nil {
			return outcomeOf{}, err
		}
	}
	f.commit()
	held := int64(0)
	if len(x.Files) > 0 && t.def.Keyed() {
		t.adds, held = append(t.adds, openAdd{r.Offset, f.first, int64(len(x.Files))}), 1
	}
	t.dirty, t.changed = true, true
	return accepted(t.lastChange == r.Offset, int64(len(x.Files)), int64(len(x.Removed)), int64(f.first), held, place, f.head().ID), nil
}

// Parts of a BadForeign.
const (
	foreignForm      = 1
	foreignManifests = 2
	foreignFile      = 3
	foreignRemoved   = 4
	foreignMoved     = 5
	foreignVector    = 6
	foreignListed    = 7
	foreignKnown     = -1 // an added file is not new
)

// foreign takes a ForeignSnapshot in.
type foreign struct {
	s *Store
	t *table
	r *Record
	x *record.ForeignSnapshot

	read       *manifestNumbers
	frozenGone map[uint64]bool // files that a pending cut takes out
	gone       map[int64]bool  // x.Gone
	numbers    []int64         // of x.Manifests
	first      uint64          // id of the first added file
	sets       []target        // where rows die that the new head lists elsewhere, or not at all
	same       []target        // what vectors of listed files have beside
	struck     bool            // delete files end rows that no vector has
}

func (f *foreign) head() *record.ForeignCommit { return &f.x.Snapshots[len(f.x.Snapshots)-1] }

// check changes nothing but what is read.
func (f *foreign) check() (part, item int64, err error) {
	s, t, x, h := f.s, f.t, f.x, &f.t.head
	if len(x.Snapshots) == 0 || x.Deletes < 0 || x.NextRowID < h.NextRowID || x.TimestampMs < 0 || x.AsOf >= f.r.Offset {
		return foreignForm, 0, nil
	}
	last := int64(0)
	for i := range x.Snapshots {
		c := &x.Snapshots[i]
		if c.ID < 1 || c.Sequence <= last || c.TimestampMs < 0 || c.ManifestList == "" || c.ID == h.SnapshotID || t.retained(c.ID) {
			return foreignForm, int64(i + 1), nil
		}
		last = c.Sequence
	}
	// A commit to a branch that main was set to may be older than the newest number (H5).
	if last > x.Sequence || x.Sequence < h.Sequence {
		return foreignForm, 0, nil
	}
	f.frozenGone = map[uint64]bool{}
	if err := s.frozenFiles(t.id, func(y *FrozenFile, _ uint32) error {
		if y.Removed {
			f.frozenGone[y.ID] = true
		}
		return nil
	}); err != nil {
		return 0, 0, err
	}
	f.gone = map[int64]bool{}
	m := s.manifestNumbers(t.id)
	for i, n := range x.Gone {
		live, err := m.live(n)
		if err != nil {
			return 0, 0, err
		}
		if !live || i > 0 && n <= x.Gone[i-1] {
			return foreignManifests, int64(i), nil
		}
		f.gone[n] = true
	}
	f.numbers = make([]int64, len(x.Manifests))
	for i := range x.Manifests {
		if x.Manifests[i].Path == "" || len(x.Manifests[i].Replaces) > 0 {
			return foreignManifests, int64(i), nil
		}
		f.numbers[i] = t.nextMan + int64(i)
	}
	for i := range x.Puffins {
		if x.Puffins[i].Path == "" {
			return foreignForm, 0, nil
		}
	}
	for _, part := range [...]func() (int64, int64, error){f.checkAdded, f.checkRemoved, f.checkMoved, f.checkVectors} {
		if n, item, err := part(); n != 0 || err != nil {
			return n, item, err
		}
	}
	// What the manifests that left listed is listed by others, or nowhere.
	if err := f.account(m); err != nil {
		return 0, 0, err
	}
	if err := m.settle(); err != nil {
		return foreignListed, 0, nil
	}
	for i, n := range x.Gone {
		if e, err := m.entry(n); err != nil || e.uses != 0 {
			return foreignListed, int64(i), err
		}
	}
	return 0, 0, nil
}

func (f *foreign) manifest(i int32) bool { return i >= 0 && int(i) < len(f.numbers) }

func (f *foreign) checkAdded() (part, item int64, err error) {
	s, t, x := f.s, f.t, f.x
	next, err := s.nextForeign(t.id, foreignNext)
	if err != nil {
		return 0, 0, err
	}
	f.first = FileID(ForeignWriter, next)
	if next+uint64(len(x.Files)) > 1<<writerShift-1 {
		return foreignFile, 0, nil
	}
	paths := map[string]bool{}
	for i := range x.Files {
		a := &x.Files[i]
		bad := a.Path == "" || len(a.Path) > maxForeignPath || a.Rows < 1 || a.Rows > MaxFileRows || a.Bytes < 1 || a.Bytes > maxFileBytes ||
			!t.hasTuple(&record.DataFile{SpecID: a.SpecID, Partition: a.Partition}) || t.def.SchemaByID(a.SchemaID) == nil ||
			a.Sequence < 1 || a.Sequence > x.Sequence || a.FirstRowID < 0 || a.FirstRowID > x.NextRowID-a.Rows || !f.manifest(a.Manifest)
		if bad {
			return foreignFile, int64(i), nil
		}
		dead := int64(0)
		if len(a.Dead) > 0 {
			info, err := dv.Inspect(a.Dead)
			if err != nil || info.Count == 0 || int64(info.Max) >= a.Rows {
				return foreignFile, int64(i), nil
			}
			dead = int64(info.Count)
		}
		if v := a.Vector; v != nil && (!f.placed(v) || v.Cardinality > dead) {
			return foreignFile, int64(i), nil
		}
		// A path that the state knows is never added (H2). Those of our own forms are ours.
		known, err := s.get(nameKey(t.id, record.PathName(a.Path)))
		if err != nil {
			return 0, 0, err
		}
		if known != nil || paths[a.Path] || t.ownPath(a.Path) {
			return foreignKnown, int64(i), nil
		}
		paths[a.Path] = true
	}
	return 0, 0, nil
}

// ownPath says that a path is of a form that only varve gives to data files.
func (t *table) ownPath(path string) bool {
	name, found := strings.CutPrefix(path, t.def.Location+"/data/")
	return found && schemas.IsDataFileName(name)
}

func (f *foreign) placed(v *record.PlacedVector) bool {
	return v.Puffin >= 0 && int(v.Puffin) < len(f.x.Puffins) && v.Offset >= 0 && v.Length > 0 && v.Offset <= math.MaxInt64-v.Length &&
		v.Cardinality > 0 && v.Sequence > 0 && v.Sequence <= f.x.Sequence && f.manifest(v.Manifest)
}

// listed finds a file that the head lists, and its vector; nil: it does not.
func (f *foreign) listed(id uint64) (*chunk, *fileEntry, *Vector, error) {
	c, err := f.s.chunk(f.t.id, id)
	if err != nil {
		return nil, nil, nil, err
	}
	e := c.find(id)
	if e == nil || e.manifest == 0 || e.left != 0 && !f.frozenGone[id] {
		return nil, nil, nil, nil
	}
	v, err := vector(f.s.get, f.t.id, id)
	return c, e, v, err
}

// leaves says whether a manifest number leads to a manifest that left.
func (f *foreign) leaves(n int64) (bool, error) {
	for {
		e, err := f.read.entry(n)
		if err != nil {
			return false, err
		}
		if e == nil {
			return false, fmt.Errorf("%w: there is no manifest %d", ErrCorrupt, n)
		}
		if e.target == 0 {
			return f.gone[n], nil
		}
		n = e.target
	}
}

// checkRemoved finds where the rows of removed files are now (H3).
func (f *foreign) checkRemoved() (part, item int64, err error) {
	s, t, x := f.s, f.t, f.x
	for i, id := range x.Removed {
		c, e, _, err := f.listed(id) // a vector may stay in its manifest, and means nothing
		if err != nil {
			return 0, 0, err
		}
		if e == nil || i > 0 && id <= x.Removed[i-1] {
			return foreignRemoved, int64(i), nil
		}
		left, err := f.leaves(e.manifest)
		if err != nil {
			return 0, 0, err
		}
		if !left {
			return foreignRemoved, int64(i), nil
		}
		if !e.gone && !c.moved.has(uint(id&127)) || f.frozenGone[id] && c.job(id) == nil && !c.parted.has(uint(id&127)) {
			continue
		}
		if f.sets, err = s.forwardBlock(t, id, fullSet(e.rows), f.sets); err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, nil
}

// fullSet is every position of a file.
func fullSet(rows int64) []byte {
	b := roaring.New()
	b.AddRange(0, uint64(rows))
	set, err := dv.AppendBitmap(nil, b)
	if err != nil {
		panic(err) // a range within limits
	}
	return set
}

func (f *foreign) checkMoved() (part, item int64, err error) {
	x := f.x
	for i := range x.Moved {
		y := &x.Moved[i]
		_, e, v, err := f.listed(y.File)
		if err != nil {
			return 0, 0, err
		}
		_, removed := slices.BinarySearch(x.Removed, y.File)
		if e == nil || i > 0 && y.File <= x.Moved[i-1].File || removed || y.Data < 0 && y.Vector < 0 ||
			y.Data >= 0 && !f.manifest(y.Data) || y.Vector >= 0 && (v == nil || !f.manifest(y.Vector)) {
			return foreignMoved, int64(i), nil
		}
		left := true
		if y.Data >= 0 {
			left, err = f.leaves(e.manifest)
		}
		if err == nil && left && y.Vector >= 0 {
			left, err = f.leaves(v.Manifest)
		}
		if !left || err != nil {
			return foreignMoved, int64(i), err
		}
	}
	return 0, 0, nil
}

func (f *foreign) checkVectors() (part, item int64, err error) {
	x := f.x
	for i := range x.Vectors {
		y := &x.Vectors[i]
		c, e, old, err := f.listed(y.File)
		if err != nil {
			return 0, 0, err
		}
		_, removed := slices.BinarySearch(x.Removed, y.File)
		at, moved := slices.BinarySearchFunc(x.Moved, y.File, func(m record.MovedFile, id uint64) int {
			switch {
			case m.File < id:
				return -1
			case m.File > id:
				return 1
			}
			return 0
		})
		none := y.Vector == record.NoVector
		if e == nil || i > 0 && y.File <= x.Vectors[i-1].File || removed ||
			none && len(y.Dead) == 0 || !none && (moved && x.Moved[at].Vector >= 0 || !f.placed(&y.Vector)) {
			return foreignVector, int64(i), nil
		}
		had, died := int64(0), int64(0)
		if old != nil && !none {
			had = old.Cardinality
			if left, err := f.leaves(old.Manifest); err != nil || !left {
				return foreignVector, int64(i), err
			}
		}
		if len(y.Dead) > 0 {
			info, err := dv.Inspect(y.Dead)
			if err != nil || info.Count == 0 || int64(info.Max) >= e.rows {
				return foreignVector, int64(i), nil
			}
			died = int64(info.Count)
			if err := f.aim(c, e, y); err != nil {
				return 0, 0, err
			}
		}
		// Delete files end rows that no vector has (H15).
		if !none && (y.Vector.Cardinality < had || y.Vector.Cardinality > had+died) {
			return foreignVector, int64(i), nil
		}
		f.struck = f.struck || none || y.Vector.Cardinality < had+died
	}
	return 0, 0, nil
}

// aim finds where the rows are now that a new vector says are dead.
func (f *foreign) aim(c *chunk, e *fileEntry, y *record.ForeignVector) (err error) {
	switch {
	case f.frozenGone[e.id] && c.job(e.id) == nil: // all of it is dead
	case !e.gone && !c.moved.has(uint(e.id&127)):
		f.same = append(f.same, target{chunk: c, file: e.id, set: y.Dead})
	default:
		f.sets, err = f.s.forwardBlock(f.t, e.id, y.Dead, f.sets)
	}
	return err
}

// account counts which manifest lists what, before and after.
func (f *foreign) account(m *manifestNumbers) error {
	x := f.x
	for i, n := range f.numbers {
		m.entries[n] = &manifestEntry{path: x.Manifests[i].Path, since: f.r.Offset, dirty: true}
	}
	move := func(from, to int64) error {
		err := m.use(from, -1)
		if err == nil && to != 0 {
			err = m.use(to, 1)
		}
		return err
	}
	for _, id := range x.Removed {
		_, e, v, err := f.listed(id)
		if err == nil {
			err = move(e.manifest, 0)
		}
		if err == nil && v != nil {
			err = move(v.Manifest, 0)
		}
		if err != nil {
			return err
		}
	}
	for i := range x.Moved {
		y := &x.Moved[i]
		_, e, v, err := f.listed(y.File)
		if err == nil && y.Data >= 0 {
			err = move(e.manifest, f.numbers[y.Data])
		}
		if err == nil && y.Vector >= 0 {
			err = move(v.Manifest, f.numbers[y.Vector])
		}
		if err != nil {
			return err
		}
	}
	for i := range x.Vectors {
		y := &x.Vectors[i]
		if y.Vector == record.NoVector {
			continue
		}
		_, _, old, err := f.listed(y.File)
		if err == nil && old != nil {
			err = move(old.Manifest, 0)
		}
		if err == nil {
			err = m.use(f.numbers[y.Vector.Manifest], 1)
		}
		if err != nil {
			return err
		}
	}
	for i := range x.Files {
		a := &x.Files[i]
		err := m.use(f.numbers[a.Manifest], 1)
		if err == nil && a.Vector != nil {
			err = m.use(f.numbers[a.Vector.Manifest], 1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// metadata brings manifests and Puffin files to what the new head lists. What the
// head alone listed leaves behind this record: a snapshot between them may list it.
func (f *foreign) metadata() error {
	s, t, x := f.s, f.t, f.x
	m := s.manifestNumbers(t.id)
	puffins := map[string]int64{}
	for _, id := range x.Removed {
		if _, _, v, err := f.listed(id); err != nil {
			return err
		} else if v != nil {
			puffins[v.Puffin]--
		}
	}
	for i := range x.Vectors {
		if x.Vectors[i].Vector == record.NoVector {
			continue
		}
		_, _, old, err := f.listed(x.Vectors[i].File)
		if err != nil {
			return err
		}
		if old != nil {
			puffins[old.Puffin]--
		}
		puffins[x.Puffins[x.Vectors[i].Vector.Puffin].Path]++
	}
	for i := range x.Files {
		if v := x.Files[i].Vector; v != nil {
			puffins[x.Puffins[v.Puffin].Path]++
		}
	}
	if err := f.account(m); err != nil {
		return err
	}
	for _, n := range x.Gone {
		e, err := m.entry(n)
		if err != nil {
			return err
		}
		e.gone, e.dirty = true, true
		if err := s.metadataLeft(t, e.path, e.since, f.r.Offset+1); err != nil {
			return err
		}
	}
	if err := m.write(); err != nil {
		return err
	}
	t.nextMan += int64(len(f.numbers))
	more, fewer := map[string]int64{}, map[string]int64{}
	for path, n := range puffins {
		if n > 0 {
			more[path] = n
		} else {
			fewer[path] = n
		}
	}
	if err := errors.Join(s.usePuffins(t, more, f.r.Offset), s.usePuffins(t, fewer, f.r.Offset+1)); err != nil {
		return err
	}
	return nil
}

// entries brings what the state keeps of files and vectors to the new head.
func (f *foreign) entries() error {
	s, t, x := f.s, f.t, f.x
	for i := range x.Moved {
		y := &x.Moved[i]
		c, e, v, err := f.listed(y.File)
		if err != nil {
			return err
		}
		if y.Data >= 0 {
			s.touch(c)
			e.manifest, c.dirty = f.numbers[y.Data], true
		}
		if y.Vector >= 0 {
			v.Manifest = f.numbers[y.Vector]
			if err := s.setVector(t, y.File, v); err != nil {
				return err
			}
		}
	}
	for i := range x.Vectors {
		if x.Vectors[i].Vector == record.NoVector {
			continue
		}
		if err := s.setVector(t, x.Vectors[i].File, f.vector(&x.Vectors[i].Vector)); err != nil {
			return err
		}
	}
	return nil
}

func (f *foreign) vector(v *record.PlacedVector) *Vector {
	return &Vector{Puffin: f.x.Puffins[v.Puffin].Path, Offset: v.Offset, Length: v.Length, Cardinality: v.Cardinality, Sequence: v.Sequence, Manifest: f.numbers[v.Manifest]}
}

func (s *Store) setVector(t *table, file uint64, v *Vector) error {
	var e enc
	encVector(&e, v)
	return s.set(key16(keyVector, uint64(t.id), file), e.b)
}

// remove takes files out that the new head does not list: their rows have left
// (H3). Jobs that hold them end; epochs close, for what is on its way names them.
func (f *foreign) remove() error {
	s, t, x := f.s, f.t, f.x
	if len(x.Removed) == 0 {
		return nil
	}
	for _, id := range x.Removed {
		c, err := s.chunk(t.id, id)
		if err != nil {
			return err
		}
		e := c.find(id)
		v, err := vector(s.get, t.id, id)
		if err != nil {
			return err
		}
		if err := f.endJobsOf(c, id); err != nil {
			return err
		}
		s.touch(c)
		bit := uint(id & 127)
		c.dirty = true
		c.killed.clear(bit)
		c.marksDirty = true
		c.out.set(bit)
		if !e.gone {
			e.gone = true
			c.gone.set(bit)
			t.totals.Files--
			t.totals.Rows -= e.rows
			t.totals.Bytes -= e.bytes
			if err := errors.Join(s.del(key16(keyDead, uint64(t.id), id)), s.leavePartition(t, e)); err != nil {
				return err
			}
		}
		if err := errors.Join(s.del(key16(keyVector, uint64(t.id), id)), s.fileLeft(t, e, f.r.Offset+1)); err != nil {
			return err
		}
		t.content.file(unlisted, id, e.rowID)
		t.totals.Published--
		t.totals.PubRows -= e.rows
		t.totals.PubBytes -= e.bytes
		f.unlistVector(id, v)
		s.effect('U', int64(id))
	}
	for _, id := range t.shardOrder {
		closeEpoch(t.shards[id], f.r.Offset, false)
	}
	return nil
}

func (f *foreign) unlistVector(id uint64, v *Vector) {
	if v == nil {
		return
	}
	t := f.t
	t.content.vector(unlisted, id, v.Puffin, v.Offset, v.Cardinality)
	t.totals.Vectors--
	t.totals.PubDead -= v.Cardinality
	t.totals.PubVecSize -= v.Length
	t.totals.Dead -= v.Cardinality
}

func (f *foreign) listVector(id uint64, v *Vector) {
	t := f.t
	t.content.vector(listed, id, v.Puffin, v.Offset, v.Cardinality)
	t.totals.Vectors++
	t.totals.PubDead += v.Cardinality
	t.totals.PubVecSize += v.Length
	t.totals.Dead += v.Cardinality
	f.s.effect('V', int64(id), v.Cardinality)
}

// endJobsOf ends the open jobs that hold a file, or a part of it.
func (f *foreign) endJobsOf(c *chunk, id uint64) error {
	s, t := f.s, f.t
	jobs, err := s.jobsOf(t, c, id)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		j, err := s.openJob(t.id, job)
		if err != nil {
			return err
		}
		if j == nil {
			continue // completed
		}
		for i := range j.inputs {
			o, err := s.chunk(t.id, j.inputs[i].file)
			if err != nil {
				return err
			}
			if err := s.take(t, o, &j.inputs[i], nil); err != nil {
				return err
			}
		}
		s.effect('R', t.id, job.plan, int64(job.item), 0)
		if err := s.endJob(t, job, j); err != nil {
			return err
		}
	}
	return nil
}

// vectors kills the rows that vectors of others say are dead, and those of
// removed files that jobs have carried over.
func (f *foreign) vectors() error {
	s, t := f.s, f.t
	for i := range f.x.Vectors {
		y := &f.x.Vectors[i]
		if y.Vector == record.NoVector {
			continue
		}
		old, err := vector(s.get, t.id, y.File)
		if err != nil {
			return err
		}
		f.unlistVector(y.File, old)
		f.listVector(y.File, f.vector(&y.Vector))
	}
	s.targets = append(s.targets[:0], f.same...)
	s.strike(t)
	s.targets = append(s.targets[:0], f.sets...)
	if s.strike(t) || f.struck || f.x.Deletes > 0 {
		t.lastChange = f.r.Offset
	}
	return nil
}

// add enters the files of others.
func (f *foreign) add() error {
	s, t, x := f.s, f.t, f.x
	for i := range x.Files {
		a := &x.Files[i]
		id := f.first + uint64(i)
		tuple, err := s.tupleOrdinal(t, a.SpecID, a.Partition)
		if err != nil {
			return err
		}
		c, err := s.chunk(t.id, id)
		if err != nil {
			return err
		}
		s.touch(c)
		name := record.PathName(a.Path)
		c.add(fileEntry{
			id: id, rows: a.Rows, bytes: a.Bytes, tuple: tuple, record: f.r.Offset, schema: a.SchemaID, manifest: f.numbers[a.Manifest],
			rowID: a.FirstRowID, sequence: a.Sequence, member: len(t.def.Spec(a.SpecID).Fields) > 0,
		})
		c.names = append(c.names, outputName{uint8(id & 127), name})
		c.dirty = true
		s.held += heldFile
		var e enc
		e.u(id)
		if err := errors.Join(s.set(nameKey(t.id, name), e.b), s.set(foreignKey(t.id, id), []byte(a.Path))); err != nil {
			return err
		}
		t.totals.Files++
		t.totals.Rows += a.Rows
		t.totals.Bytes += a.Bytes
		t.totals.Published++
		t.totals.PubRows += a.Rows
		t.totals.PubBytes += a.Bytes
		t.content.file(listed, id, a.FirstRowID)
		s.effect('F', int64(id), a.Rows)
		if len(a.Dead) > 0 {
			s.kill(c, &record.DeleteBlock{File: id, Bitmap: a.Dead})
			if n, err := dv.Count(a.Dead); err == nil && (a.Vector == nil || int64(n) > a.Vector.Cardinality) {
				t.lastChange = f.r.Offset
			}
			s.effect('d', int64(id))
			s.effectBytes(a.Dead)
		}
		if a.Vector != nil {
			v := f.vector(a.Vector)
			f.listVector(id, v)
			if err := s.setVector(t, id, v); err != nil {
				return err
			}
		}
	}
	if len(x.Files) == 0 {
		return nil
	}
	var e enc
	e.u(FileCounter(f.first) + uint64(len(x.Files)))
	return s.set(foreignKey(t.id, foreignNext), e.b)
}

// nextForeign is the counter of the next file that another writer brings, or an
// AdoptFiles.
func (s *Store) nextForeign(table int64, of uint64) (uint64, error) {
	b, err := s.get(foreignKey(table, of))
	if err != nil || b == nil {
		return 1, err
	}
	d := dec{b: b}
	n := d.u()
	return n, d.done("counter of others' files")
}

// commit makes the new head the state's.
func (f *foreign) commit() {
	t, x, h := f.t, f.x, &f.t.head
	var events, settled int64
	if n := len(t.snapshots); n > 0 {
		events, settled = t.snapshots[n-1].Events, t.snapshots[n-1].Settled
	}
	for i := range x.Snapshots {
		c := &x.Snapshots[i]
		t.snapshots = append(t.snapshots, SnapshotRef{
			ID: c.ID, Sequence: c.Sequence, TimestampMs: c.TimestampMs, Build: f.r.Offset, List: c.ManifestList,
			Bytes: t.totals.PubBytes, Events: events, Settled: settled, Cause: foreignCause,
		})
	}
	to := f.head()
	h.SnapshotID, h.ManifestList = to.ID, to.ManifestList
	h.Sequence, h.NextRowID, h.TimestampMs, h.MetadataPath = x.Sequence, x.NextRowID, max(h.TimestampMs, x.TimestampMs), x.MetadataPath
	h.Build, h.Deletes = f.r.Offset, x.Deletes
}

// foreignCause stands for the cause of a failed attempt in a snapshot that
// another writer made.
const foreignCause = "foreign"

// Foreign says that another writer made a snapshot.
func (r *SnapshotRef) Foreign() bool { return r.Cause == foreignCause }

// unfreeze gives a pending cut up: what it had frozen differs from the last commit
// as before.
func (s *Store) unfreeze(t *table) error {
	type frozen struct {
		*FrozenFile
		tuple uint32
	}
	var all []frozen
	if err := s.frozenFiles(t.id, func(x *FrozenFile, tuple uint32) error {
		all = append(all, frozen{x, tuple})
		return nil
	}); err != nil {
		return err
	}
	s.clearFrozen(t.id)
	for _, x := range all {
		c, err := s.chunk(t.id, x.ID)
		if err != nil {
			return err
		}
		s.touch(c)
		c.marksDirty = true
		bit := uint(x.ID & 127)
		if x.Added {
			c.added.set(bit)
		} else {
			c.killed.set(bit)
		}
		if x.Vector != nil {
			t.totals.Dead += x.Vector.Cardinality
		}
		if !x.Removed {
			t.totals.Dead -= x.DeadCount
			continue
		}
		if err := s.back(t, c, x.FrozenFile); err != nil {
			return err
		}
	}
	return nil
}

// back undoes that a cut took a file out. What a job has carried over stays out.
func (s *Store) back(t *table, c *chunk, x *FrozenFile) error {
	f := c.find(x.ID)
	if f == nil {
		return fmt.Errorf("%w: file %d of a frozen cut", ErrCorrupt, x.ID)
	}
	if err := s.del(garbageKey(t.id, record.GarbageFile, f.left, f.id)); err != nil {
		return err
	}
	f.left, c.dirty = 0, true
	if x.Moved {
		return nil
	}
	if job := c.job(f.id); job != nil {
		if done, err := s.doneJob(t.id, *job); err != nil || done != nil {
			return err
		}
	}
	// Every row of it is dead, or was carried over by a job that took a part (F7).
	dead := fullSet(f.rows)
	parts, err := s.parts(t, c, f.id)
	if err != nil {
		return err
	}
	if moved, err := movedSet(parts); err != nil {
		return err
	} else if moved != nil {
		if dead, err = dv.Minus(nil, dead, moved); err != nil {
			return fmt.Errorf("%w: dead positions of file %d", ErrCorrupt, f.id)
		}
		if n, err := dv.Count(dead); err != nil || n == 0 {
			return err
		}
	}
	f.gone = false
	c.gone.clear(uint(f.id & 127))
	c.dead.set(uint(f.id & 127))
	t.totals.Files++
	t.totals.Rows += f.rows
	t.totals.Bytes += f.bytes
	if err := s.joinPartition(t, f); err != nil {
		return err
	}
	return s.set(key16(keyDead, uint64(t.id), f.id), dead)
}
