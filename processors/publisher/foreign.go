package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors/deletefiles"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// HeadMoved says that other writers committed to branch main, above the head that
// the log knows: the caller asks ForeignSnapshot for the record and appends it (H2).
type HeadMoved struct {
	Why  string
	meta *iceberg.Metadata
	at   string
	from []*iceberg.Snapshot // oldest first
}

func (e *HeadMoved) Error() string { return "branch main moved in the catalog: " + e.Why }

// headMoved collects what others committed between the head and main. A snapshot of
// this deployment among it is one that the log does not know.
func headMoved(f *statestore.FrozenCut, meta *iceberg.Metadata, at string) (*HeadMoved, error) {
	m := &HeadMoved{meta: meta, at: at}
	for id := mainOf(meta); id != f.Head.SnapshotID; {
		s := meta.Snapshot(id)
		if isOurs(f, s) {
			return nil, fmt.Errorf("%w: branch main of table %s has our snapshot %d of build %d below another writer's, and the log does not know it: another deployment with this identity publishes, or the log was restored from an older copy; set main back to %d",
				ErrForeign, f.Definition.Name, id, offsetOf(s), f.Head.SnapshotID)
		}
		m.from = append(m.from, s)
		if s.ParentID == nil {
			break
		}
		id = *s.ParentID
	}
	slices.Reverse(m.from)
	last := m.from[len(m.from)-1]
	m.Why = fmt.Sprintf("%d snapshots of other writers, the last is %d (%s)", len(m.from), last.ID, last.Operation)
	return m, nil
}

// Look reads a table of an outside catalog that has nothing to publish: nil: main
// is where the log says, a *HeadMoved: other writers committed to it (H2).
func (p *Publisher) Look(ctx context.Context, f *statestore.FrozenCut) error {
	if p.cfg.Remote == nil || f.Head.MetadataVersion != 0 {
		return nil
	}
	id := restcat.IdentifierOf(f.Definition.Name)
	t, err := p.cfg.Remote.Load(ctx, id)
	if err != nil {
		return fmt.Errorf("%w: %w", errCatalog, err)
	}
	meta, err := remoteMetadata(f, id, t)
	if err != nil {
		return err
	}
	return checkMain(f, id, meta, p.location(t))
}

// ForeignSnapshot reads what other writers committed, and makes the record that
// takes it into the log (H2). st is the state that f was frozen in. ErrForeign: the
// table stops until a person has looked.
func (p *Publisher) ForeignSnapshot(ctx context.Context, st *statestore.Store, f *statestore.FrozenCut, m *HeadMoved) (*record.ForeignSnapshot, error) {
	r := &foreignReader{p: p, f: f, m: m, rec: record.ForeignSnapshot{
		Base: f.Head.SnapshotID, Sequence: m.meta.LastSequence, NextRowID: m.meta.NextRowID, TimestampMs: m.meta.LastUpdatedMs, MetadataPath: m.at,
		AsOf: st.Head().Offset,
	}}
	if err := r.read(ctx, st); err != nil {
		return nil, fmt.Errorf("table %s, snapshot %d of another writer: %w", f.Definition.Name, mainOf(m.meta), err)
	}
	return &r.rec, nil
}

// foreignReader compares what two snapshots list.
type foreignReader struct {
	p   *Publisher
	f   *statestore.FrozenCut
	m   *HeadMoved
	rec record.ForeignSnapshot

	puffins map[string]int32
	ids     map[string]uint64             // of the files that the head lists and the record names
	was     map[uint64]*statestore.Vector // their vectors
	struck  map[string]*roaring.Bitmap    // what delete files end, by data file (H15)
}

// entryAt is a live entry and the manifest that lists it.
type entryAt struct {
	*iceberg.Entry
	manifest int32 // index into the record's, -1: one of the head's that left
}

// listing is what some manifests list: data files by path, vectors by the path of
// their data file, and delete files.
type listing struct {
	files, vectors map[string]entryAt
	deletes        []*iceberg.Entry
}

func newListing() listing { return listing{files: map[string]entryAt{}, vectors: map[string]entryAt{}} }

// stopped is why the table cannot go on by itself.
func (r *foreignReader) stopped(format string, args ...any) error {
	return fmt.Errorf("%w: "+format+"; set branch main back to our snapshot %d (its writer's rows go by that: add them to the source topic, or with `varve table import`)",
		append(append([]any{ErrForeign}, args...), r.f.Head.SnapshotID)...)
}

func (r *foreignReader) read(ctx context.Context, st *statestore.Store) error {
	for _, s := range r.m.from {
		r.rec.Snapshots = append(r.rec.Snapshots, record.ForeignCommit{
			ID: s.ID, Sequence: s.Sequence, TimestampMs: s.TimestampMs, ManifestList: s.ManifestList, Operation: s.Operation,
		})
	}
	var base []iceberg.ManifestFile
	var err error
	if r.f.Head.SnapshotID != 0 {
		if base, err = r.p.readList(ctx, r.f.Head.ManifestList); err != nil {
			return err
		}
	}
	list, err := r.p.readList(ctx, r.m.from[len(r.m.from)-1].ManifestList)
	if err != nil {
		return err
	}
	was, is := map[string]bool{}, map[string]bool{}
	for i := range base {
		was[base[i].Path] = true
	}
	for i := range list {
		is[list[i].Path] = true
	}
	numbers := make(map[string]int64, len(r.f.Manifests))
	for n, path := range r.f.Manifests {
		numbers[path] = n
	}
	before := newListing()
	for i := range base {
		l := &base[i]
		if is[l.Path] {
			continue
		}
		n, known := numbers[l.Path]
		if !known && l.Live() > 0 {
			return fmt.Errorf("%w: the state does not know the manifest %s of the head", ErrInconsistent, l.Path)
		}
		if known {
			r.rec.Gone = append(r.rec.Gone, n)
		}
		if err := r.list(ctx, l, -1, &before); err != nil {
			return err
		}
	}
	slices.Sort(r.rec.Gone)
	after, both := newListing(), newListing()
	for i := range list {
		l := &list[i]
		if was[l.Path] {
			continue
		}
		at := int32(len(r.rec.Manifests))
		r.rec.Manifests = append(r.rec.Manifests, record.ManifestInfo{Path: l.Path, Bytes: l.Length, Content: uint8(l.Content), SpecID: l.SpecID})
		if err := r.list(ctx, l, at, &after); err != nil {
			return err
		}
	}
	if r.f.Head.Deletes > 0 || len(after.deletes) > 0 {
		for i := range list {
			if l := &list[i]; was[l.Path] {
				if err := r.list(ctx, l, -1, &both); err != nil {
					return err
				}
			}
		}
		if err := r.strike(ctx, &after, &both); err != nil {
			return err
		}
	}
	if err := r.findIDs(st, &before, &after); err != nil {
		return err
	}
	if err := r.kept(ctx, &before, &after); err != nil {
		return err
	}
	var owes *debts
	if len(r.rec.Removed) > 0 {
		if owes, err = r.owed(ctx, st, &before, &both); err != nil {
			return err
		}
	}
	return r.added(ctx, &before, &after, owes)
}

// list takes the live entries of a manifest.
func (r *foreignReader) list(ctx context.Context, l *iceberg.ManifestFile, at int32, into *listing) error {
	if l.Live() == 0 {
		return nil
	}
	entries, err := r.p.entries(ctx, l)
	if err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		d := &e.File
		switch {
		case e.Status == iceberg.Deleted:
			continue
		case e.Sequence == nil:
			return r.stopped("%s lists %s without a sequence number", l.Path, d.Path)
		case l.Content == iceberg.Deletes && deletefiles.Is(d):
			into.deletes = append(into.deletes, e)
		case d.Content == iceberg.Data && l.Content == iceberg.Data:
			if _, twice := into.files[d.Path]; twice {
				return r.stopped("it lists %s twice", d.Path)
			}
			into.files[d.Path] = entryAt{e, at}
		case d.Content != iceberg.PositionDeletes || d.ReferencedDataFile == nil || d.ContentOffset == nil || d.ContentSize == nil:
			return r.stopped("%s lists %s, which is neither data nor a deletion vector that says of which file it is", l.Path, d.Path)
		default:
			if _, twice := into.vectors[*d.ReferencedDataFile]; twice {
				return r.stopped("it lists two vectors of %s", *d.ReferencedDataFile)
			}
			into.vectors[*d.ReferencedDataFile] = entryAt{e, at}
		}
	}
	return nil
}

// findIDs finds the ids of files that the head lists and the record has to name.
// Vectors of files that no head lists mean nothing, and are passed over.
func (r *foreignReader) findIDs(st *statestore.Store, before, after *listing) error {
	wanted := map[string]bool{}
	for path := range before.files {
		wanted[path] = true
	}
	for _, vectors := range [...]map[string]entryAt{before.vectors, after.vectors} {
		for path := range vectors {
			if _, added := after.files[path]; !added || before.files[path].Entry != nil {
				wanted[path] = true
			}
		}
	}
	for path := range r.struck {
		if _, added := after.files[path]; !added || before.files[path].Entry != nil {
			wanted[path] = true
		}
	}
	r.ids, r.was = make(map[string]uint64, len(wanted)), map[uint64]*statestore.Vector{}
	if len(wanted) > 0 {
		if err := st.Files(r.f.TableID, func(f *statestore.FileInfo) error {
			if !f.Published || f.Left > 0 && f.Left <= r.f.Head.Build {
				return nil
			}
			if path := f.At(r.f.Definition.Location, r.f.TableID); wanted[path] {
				r.ids[path] = f.ID
				if f.Vector != nil {
					r.was[f.ID] = f.Vector
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	for path := range wanted {
		if _, known := r.ids[path]; known {
			continue
		}
		if before.files[path].Entry != nil || r.struck[path] != nil {
			return fmt.Errorf("%w: the head lists %s, which the state does not know", ErrInconsistent, path)
		}
		delete(before.vectors, path)
		delete(after.vectors, path)
	}
	return nil
}

// kept compares what both list.
func (r *foreignReader) kept(ctx context.Context, before, after *listing) error {
	moved := map[uint64]*record.MovedFile{}
	move := func(path string) *record.MovedFile {
		id := r.ids[path]
		if moved[id] == nil {
			moved[id] = &record.MovedFile{File: id, Data: -1, Vector: -1}
		}
		return moved[id]
	}
	for path := range before.files {
		if now, still := after.files[path]; still {
			move(path).Data = now.manifest
		} else {
			r.rec.Removed = append(r.rec.Removed, r.ids[path])
		}
	}
	slices.Sort(r.rec.Removed)
	for path, id := range r.ids {
		if _, removed := slices.BinarySearch(r.rec.Removed, id); removed {
			delete(after.vectors, path) // its vector means nothing any more
		}
	}
	for path, old := range before.vectors {
		now, still := after.vectors[path]
		if !still {
			if _, removed := slices.BinarySearch(r.rec.Removed, r.ids[path]); !removed {
				return r.stopped("rows of %s that a deletion vector said were dead live again", path)
			}
			continue
		}
		if sameVector(old.Entry, now.Entry) {
			move(path).Vector = now.manifest
		}
	}
	for path, now := range after.vectors {
		if _, added := after.files[path]; added {
			if _, listed := before.files[path]; !listed {
				continue
			}
		}
		old, had := before.vectors[path]
		if had && sameVector(old.Entry, now.Entry) {
			continue
		}
		x := record.ForeignVector{File: r.ids[path], Vector: *r.place(now)}
		dead, err := r.vector(ctx, now.Entry)
		if err != nil {
			return err
		}
		if had {
			was, err := r.vector(ctx, old.Entry)
			if err != nil {
				return err
			}
			if n := was.GetCardinality(); roaring.And(was, dead).GetCardinality() != n {
				return r.stopped("rows of %s that a deletion vector said were dead live again", path)
			}
			dead.AndNot(was)
		}
		if ended := r.struck[path]; ended != nil {
			dead.Or(ended)
			delete(r.struck, path)
		}
		if !dead.IsEmpty() {
			if x.Dead, err = dv.AppendBitmap(nil, dead); err != nil {
				return fmt.Errorf("vector of %s: %w", path, err)
			}
		}
		r.rec.Vectors = append(r.rec.Vectors, x)
	}
	for path, dead := range r.struck {
		id, listed := r.ids[path]
		if _, removed := slices.BinarySearch(r.rec.Removed, id); !listed || removed {
			continue // of an added file, or gone with it
		}
		x := record.ForeignVector{File: id, Vector: record.NoVector}
		var err error
		if x.Dead, err = dv.AppendBitmap(nil, dead); err != nil {
			return fmt.Errorf("deletes of %s: %w", path, err)
		}
		r.rec.Vectors = append(r.rec.Vectors, x)
	}
	slices.SortFunc(r.rec.Vectors, func(a, b record.ForeignVector) int { return cmp.Compare(a.File, b.File) })
	for _, id := range slices.Sorted(maps.Keys(moved)) {
		r.rec.Moved = append(r.rec.Moved, *moved[id])
	}
	return nil
}

func sameVector(a, b *iceberg.Entry) bool { return entryIdentity(a) == entryIdentity(b) }

// place is where a vector lies.
func (r *foreignReader) place(e entryAt) *record.PlacedVector {
	d := &e.File
	n, ok := r.puffins[d.Path]
	if !ok {
		if r.puffins == nil {
			r.puffins = map[string]int32{}
		}
		n = int32(len(r.rec.Puffins))
		r.puffins[d.Path] = n
		r.rec.Puffins = append(r.rec.Puffins, record.PuffinInfo{Path: d.Path, Bytes: d.Bytes})
	}
	return &record.PlacedVector{Puffin: n, Offset: *d.ContentOffset, Length: *d.ContentSize, Cardinality: d.Records, Sequence: *e.Sequence, Manifest: e.manifest}
}

// vector reads a vector's positions.
func (r *foreignReader) vector(ctx context.Context, e *iceberg.Entry) (*roaring.Bitmap, error) {
	d := &e.File
	return r.blob(ctx, d.Path, *d.ContentOffset, *d.ContentSize, d.Records)
}

func (r *foreignReader) blob(ctx context.Context, path string, offset, length, cardinality int64) (*roaring.Bitmap, error) {
	obj, err := r.open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer obj.Close()
	if offset < 0 || length < 0 || offset > obj.Size()-length {
		return nil, r.stopped("%s has %d bytes, and no vector at %d", path, obj.Size(), offset)
	}
	blob := make([]byte, length)
	if _, err := obj.ReadAt(blob, offset); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	x, err := dv.Decode(blob)
	if err != nil {
		return nil, r.stopped("%s, vector at %d: %v", path, offset, err)
	}
	set, ok := x.Bitmap32()
	if !ok || int64(set.GetCardinality()) != cardinality {
		return nil, r.stopped("%s: its vector at %d does not have the %d positions that its manifest tells of", path, offset, cardinality)
	}
	return set, nil
}

func (r *foreignReader) open(ctx context.Context, path string) (objstore.Object, error) {
	key, ok := r.p.cfg.Store.Key(path)
	if !ok {
		return nil, r.stopped("%s does not lie in the warehouse %s", path, r.p.cfg.Store.Location(""))
	}
	obj, err := r.p.cfg.Store.Open(ctx, key)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, r.stopped("%s is missing", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return obj, nil
}

// added takes the files that the head does not list, in the order in which they
// were committed, and makes sure that they can be read.
func (r *foreignReader) added(ctx context.Context, before, after *listing, owes *debts) error {
	var paths []string
	for path := range after.files {
		if _, listed := before.files[path]; !listed {
			paths = append(paths, path)
		}
	}
	slices.SortFunc(paths, func(a, b string) int {
		x, y := after.files[a], after.files[b]
		return cmp.Or(cmp.Compare(*x.Sequence, *y.Sequence), cmp.Compare(x.manifest, y.manifest), cmp.Compare(a, b))
	})
	r.rec.Files = make([]record.ForeignFile, len(paths))
	var err error
	if err = atOnce(ctx, len(paths), func(i int) error {
		e := after.files[paths[i]]
		if err := r.check(ctx, e.Entry); err != nil {
			return err
		}
		d := &e.File
		r.rec.Files[i] = record.ForeignFile{
			Path: d.Path, Rows: d.Records, Bytes: d.Bytes, SpecID: d.SpecID, Partition: d.Partition, SchemaID: r.f.Known.Definition.CurrentSchema,
			Sequence: *e.Sequence, FirstRowID: *d.FirstRowID, Manifest: e.manifest,
		}
		return nil
	}); err != nil {
		return err
	}
	for i, path := range paths {
		x := &r.rec.Files[i]
		dead := roaring.New()
		if v, has := after.vectors[path]; has {
			if dead, err = r.vector(ctx, v.Entry); err != nil {
				return err
			}
			x.Vector = r.place(v)
		}
		if ended := r.struck[path]; ended != nil {
			dead.Or(ended)
		}
		if owes != nil {
			more, err := r.pay(ctx, owes, after.files[path])
			if err != nil {
				return err
			}
			dead.Or(more)
		}
		if dead.IsEmpty() {
			continue
		}
		if x.Dead, err = dv.AppendBitmap(nil, dead); err != nil {
			return fmt.Errorf("vector of %s: %w", path, err)
		}
	}
	return nil
}

// check makes sure that a data file of another writer can be read as one of the
// table's: L3 lets nobody look later.
func (r *foreignReader) check(ctx context.Context, e *iceberg.Entry) error {
	d, def := &e.File, r.f.Known.Definition
	switch {
	case d.Format != iceberg.FormatParquet:
		return r.stopped("%s is a %s file; only Parquet is read", d.Path, d.Format)
	case d.FirstRowID == nil:
		return r.stopped("%s has no row ids: its writer does not keep row lineage", d.Path)
	case def.Spec(d.SpecID) == nil:
		return r.stopped("%s has the partition spec %d, which the table's definition does not have", d.Path, d.SpecID)
	}
	if theirs, err := r.m.meta.Spec(int64(d.SpecID)); err != nil || !sameSpec(def.Spec(d.SpecID), theirs) {
		return r.stopped("%s has the partition spec %d, which varve cannot write", d.Path, d.SpecID) // another stands for it (T8)
	}
	obj, err := r.open(ctx, d.Path)
	if err != nil {
		return err
	}
	defer obj.Close()
	if obj.Size() != d.Bytes {
		return r.stopped("%s has %d bytes, not %d", d.Path, obj.Size(), d.Bytes)
	}
	file, err := rows.Open(obj, obj.Size())
	if err != nil {
		return r.stopped("%s: %v", d.Path, err)
	}
	if file.NumRows() != d.Records {
		return r.stopped("%s has %d rows, not %d", d.Path, file.NumRows(), d.Records)
	}
	if !file.HasFieldIDs() {
		return r.stopped("%s has no field ids", d.Path)
	}
	schema := def.Schema()
	for _, id := range def.Key {
		if !file.Has(id) {
			return r.stopped("%s has no column %q, which is of the table's key", d.Path, schema.Fields[schema.ByID(id)].Name)
		}
	}
	for _, c := range append(file.Columns(), file.Fields()...) {
		i := schema.ByID(c.ID)
		if i < 0 {
			continue // nobody reads it
		}
		if have := schema.Fields[i].Type; !file.Fits(&c, have) && !have.IsNested() {
			return r.stopped("%s has the column %q as %s, which no %s can hold", d.Path, schema.Fields[i].Name, c.Type, have)
		}
	}
	return nil
}

// schemaOnly is a BaseMoved of the columns that another writer added before it
// committed rows of them: the log has them first. nil: it added none.
func schemaOnly(f *statestore.FrozenCut, meta *iceberg.Metadata, at string) error {
	h := &f.Head
	r := record.CatalogBase{
		Snapshot: h.SnapshotID, Sequence: h.Sequence, NextRowID: h.NextRowID, TimestampMs: f.Known.TimestampMs, MetadataPath: at,
		LastColumnID: f.Known.Definition.LastColumnID, Held: f.Known.Held,
	}
	if err := foreignSchemas(f, meta, &r); err != nil {
		return err
	}
	if len(r.Schemas) == 0 {
		return nil
	}
	return &BaseMoved{Record: r, Why: "its schema"}
}
