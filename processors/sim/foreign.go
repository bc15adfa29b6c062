package sim

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors/deletefiles"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/puffin"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/restclient"
)

// theirRow is a row of a data file, as another writer reads it.
type theirRow struct {
	event
	id, seq int64
	own     bool // its file carries them
}

// theirFile is a data file that a snapshot lists.
type theirFile struct {
	entry  iceberg.Entry
	rows   []theirRow
	dead   *roaring.Bitmap
	vector *roaring.Bitmap // what of it a vector says, or has to
}

// theirHead is what branch main lists.
type theirHead struct {
	meta  *iceberg.Metadata
	lines []iceberg.ManifestFile
	in    map[string][]iceberg.Entry // by manifest
	files []*theirFile

	deletes []theirDelete
}

// theirChange is what a commit of another writer does.
type theirChange struct {
	op      string
	add     [][]theirRow
	born    [][]uint32                 // which of their rows a vector ends in the same commit
	lineage bool                       // the added files carry row ids
	remove  map[string]bool            // data files by path
	dead    map[string]*roaring.Bitmap // whole vectors by data file

	equal []theirEqual               // equality-delete files
	at    map[string]*roaring.Bitmap // a position-delete file, by data file
	drop  bool                       // the delete files go
}

// theirPlan is a change of what was read some time ago.
type theirPlan struct {
	head   *theirHead
	change theirChange
}

func (w *World) ident() restcat.Identifier { return restcat.IdentifierOf(tableName) }

func (w *World) publisher() *publisher.Publisher {
	cfg := publisher.Config{Store: w.mem, Bodies: w.bodies, Logger: w.logger}
	if w.opt.Foreign {
		cfg.Remote = w.cat
	}
	return publisher.New(cfg)
}

// catalogFault fails a commit, before or after it was taken.
func (w *World) catalogFault() error {
	if w.faults > 0 && w.rng.Intn(3) == 0 {
		w.faults--
		w.saw["catalog answer lost"]++
		return errors.Join(restclient.ErrUnknown, errInjected)
	}
	return nil
}

// foreignStep is what another writer does, or a member that looks for it.
func (w *World) foreignStep() error {
	m := w.pickMember()
	switch w.rng.Intn(8) {
	case 0:
		return w.look(m)
	case 1, 2:
		return w.upToDate(m)
	case 3:
		if err := w.look(m); err != nil {
			return err
		}
		return w.arrive(m)
	}
	if w.plan == nil {
		h, err := w.readHead()
		if err != nil || h == nil {
			return err
		}
		w.plan = &theirPlan{h, w.drawChange(h)}
		if w.rng.Intn(2) == 0 {
			return nil // it takes its time
		}
	}
	p := w.plan
	w.plan = nil
	return w.commitTheirs(p.head, p.change)
}

// upToDate has a member publish what is pending, and the log hear of it.
func (w *World) upToDate(m *member) error {
	if err := w.arrive(m); err != nil {
		return err
	}
	if err := w.publish(m, false); err != nil {
		return err
	}
	return w.arrive(m)
}

// arrive brings what a member sent into the log, and the log to the member.
func (w *World) arrive(m *member) error {
	for len(m.net.queue) > 0 {
		m.net.deliver()
	}
	return m.apply(1 << 20)
}

// drawChange makes up a change of what was read.
func (w *World) drawChange(h *theirHead) theirChange {
	fresh := func(key int) theirRow {
		w.values++
		return theirRow{event: event{key: key, value: w.values, order: 1 + int64(w.rng.Intn(12)), hasOrd: w.rng.Intn(5) > 0 || w.opt.Valued}}
	}
	kind := w.rng.Intn(9)
	if len(h.files) == 0 {
		kind = 0
	}
	c := theirChange{op: "append", remove: map[string]bool{}, dead: map[string]*roaring.Bitmap{}, at: map[string]*roaring.Bitmap{}}
	hit := func(n int) bool { return w.rng.Intn(n) == 0 }
	switch kind {
	case 0: // rows of any keys, two of one among them
		again := w.rng.Intn(w.opt.Keys)
		for range 1 + w.rng.Intn(2) {
			var list []theirRow
			for range 1 + w.rng.Intn(3) {
				x := fresh(w.rng.Intn(w.opt.Keys))
				if hit(2) {
					x.key, x.hasOrd = again, hit(2) || w.opt.Valued
				}
				list = append(list, x)
			}
			c.add = append(c.add, list)
			if hit(4) {
				c.born = append(c.born, []uint32{uint32(w.rng.Intn(len(list)))})
			} else {
				c.born = append(c.born, nil)
			}
		}
	case 1, 2: // deletes by vectors, or updates
		c.op = "delete"
		var list []theirRow
		for _, f := range h.files {
			for i := range f.rows {
				if f.dead.Contains(uint32(i)) || !hit(6) {
					continue
				}
				path := f.entry.File.Path
				if c.dead[path] == nil {
					c.dead[path] = f.vector.Clone()
				}
				c.dead[path].Add(uint32(i))
				if kind == 2 {
					list = append(list, fresh(f.rows[i].key))
				}
			}
		}
		if len(list) > 0 {
			c.op, c.add = "overwrite", [][]theirRow{list}
		}
	case 3, 4: // copy-on-write, or a compaction
		c.op, c.lineage = "overwrite", hit(2)
		if kind == 4 {
			c.op = "replace"
		}
		var list []theirRow
		for _, f := range h.files {
			if kind == 3 && !hit(3) {
				continue
			}
			c.remove[f.entry.File.Path] = true
			for i, r := range f.rows {
				switch {
				case f.dead.Contains(uint32(i)):
					continue
				case kind == 4 || !hit(3):
				case hit(2):
					continue // deleted
				default:
					x := fresh(r.key)
					x.id, x.seq = r.id, r.seq
					r = x
				}
				list = append(list, r)
			}
		}
		w.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for len(list) > 0 {
			n := min(len(list), 1+w.rng.Intn(6))
			c.add, list = append(c.add, list[:n:n]), list[n:]
		}
	case 5: // whole files go
		c.op = "delete"
		c.remove[h.files[w.rng.Intn(len(h.files))].entry.File.Path] = true
	case 6: // deletes by equality, and upserts in that way
		w.drawEqual(h, &c, fresh)
	case 7: // a position-delete file
		c.op = "delete"
		for _, f := range h.files {
			for i := range f.rows {
				if hit(5) && f.vector.IsEmpty() { // else the vector has to have it
					if c.at[f.entry.File.Path] == nil {
						c.at[f.entry.File.Path] = roaring.New()
					}
					c.at[f.entry.File.Path].Add(uint32(i))
				}
			}
		}
	case 8: // delete files become vectors
		c.op, c.drop = "replace", true
		for _, f := range h.files {
			if !f.dead.Equals(f.vector) {
				c.dead[f.entry.File.Path] = f.dead.Clone()
			}
		}
		c.drop = len(h.deletes) > 0
	}
	return c
}

// look takes in what others committed to a table that has nothing to publish (H12).
func (w *World) look(m *member) error {
	t, err := m.store.Table(tableName)
	if err != nil || t == nil || t.Pending != nil {
		return err
	}
	f, err := m.store.Committed(w.tableID)
	if err != nil || f == nil {
		return err
	}
	p := w.publisher()
	if err := w.whole(func() error { return p.Look(w.ctx, f) }); err != nil {
		return w.told(m, p, err)
	}
	return nil
}

// told enters what a publisher found in the catalog into the log. A member that is
// behind the log, or behind what another one published, may find anything.
func (w *World) told(m *member, p *publisher.Publisher, cause error) error {
	var head *publisher.HeadMoved
	var base *publisher.BaseMoved
	switch {
	case errors.As(cause, &base):
		return w.enqueue(m, &base.Record)
	case !errors.As(cause, &head):
		if w.behind(m) || w.unheard(m) {
			w.saw["a member is behind the catalog"]++
			return nil
		}
		return cause
	}
	f, err := m.store.Frozen(w.tableID)
	if err == nil && f == nil {
		f, err = m.store.Committed(w.tableID)
	}
	if err != nil {
		return err
	}
	err = w.whole(func() error {
		rec, err := p.ForeignSnapshot(w.ctx, m.store, f, head)
		if err != nil {
			return err
		}
		return w.enqueue(m, rec)
	})
	if errors.Is(err, publisher.ErrLater) {
		w.saw["taken in later"]++
		return nil
	}
	return err
}

// unheard says whether something was published that a member has not heard of.
func (w *World) unheard(m *member) bool {
	t, err := m.store.Table(tableName)
	if err != nil || t == nil {
		return true
	}
	for build := range w.published {
		if build > t.Head.Build {
			return true
		}
	}
	return false
}

// readHead is a scan of branch main; nil: there is none.
func (w *World) readHead() (*theirHead, error) {
	meta := w.cat.Metadata(w.ident())
	if meta == nil || meta.Current() == nil {
		return nil, nil
	}
	h := &theirHead{meta: meta, in: map[string][]iceberg.Entry{}}
	text, err := w.read(meta.Current().ManifestList)
	if err != nil {
		return nil, err
	}
	if h.lines, err = iceberg.ReadManifestList(text); err != nil {
		return nil, err
	}
	vectors := map[string]iceberg.Entry{}
	for i := range h.lines {
		l := &h.lines[i]
		if text, err = w.read(l.Path); err != nil {
			return nil, err
		}
		m, err := iceberg.ReadManifest(text)
		if err != nil {
			return nil, err
		}
		if err := m.Inherit(l); err != nil {
			return nil, err
		}
		for _, e := range m.Entries {
			switch {
			case e.Status == iceberg.Deleted:
				continue
			case l.Content == iceberg.Data:
				h.files = append(h.files, &theirFile{entry: e, dead: roaring.New(), vector: roaring.New()})
			case deletefiles.Is(&e.File):
				d, err := w.readDelete(&e)
				if err != nil {
					return nil, err
				}
				h.deletes = append(h.deletes, *d)
			default:
				vectors[*e.File.ReferencedDataFile] = e
			}
			h.in[l.Path] = append(h.in[l.Path], e)
		}
	}
	listing := map[string]*theirFile{}
	for _, f := range h.files {
		if e, has := vectors[f.entry.File.Path]; has {
			text, err := w.read(e.File.Path)
			if err != nil {
				return nil, err
			}
			v, err := dv.Decode(text[*e.File.ContentOffset : *e.File.ContentOffset+*e.File.ContentSize])
			if err != nil {
				return nil, err
			}
			f.vector, _ = v.Bitmap32()
		}
		if err := w.readTheirs(f); err != nil {
			return nil, fmt.Errorf("%s: %w", f.entry.File.Path, err)
		}
		f.dead = f.vector.Clone()
		_, has := vectors[f.entry.File.Path]
		for i := range h.deletes {
			d := &h.deletes[i]
			for at := range f.rows {
				if d.ends(&f.entry, has, at, f.rows[at].key, f.rows[at].value) {
					f.dead.Add(uint32(at))
					if d.equal == nil {
						f.vector.Add(uint32(at))
					}
				}
			}
		}
		listing[f.entry.File.Path] = f
	}
	w.heads[meta.Current().ID] = listing
	return h, nil
}

func (w *World) readTheirs(f *theirFile) error {
	b, err := w.read(f.entry.File.Path)
	if err != nil {
		return err
	}
	file, err := rows.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	long := schemas.Of(schemas.Long)
	cols, err := file.Read(append(slices.Clone(w.def.Schema().Fields[:3]),
		schemas.Field{ID: schemas.RowIDField, Name: schemas.RowIDColumn, Type: long}, schemas.Field{ID: schemas.LastSeqField, Name: schemas.LastSeqName, Type: long}))
	if err != nil {
		return err
	}
	for i := range cols[0].Len() {
		r := theirRow{id: *f.entry.File.FirstRowID + int64(i), seq: *f.entry.Sequence}
		if r.key, err = w.keyOf(&cols[0], i); err != nil {
			return err
		}
		r.value = cols[1].Ints[i]
		if !cols[2].IsNull(i) {
			r.hasOrd, r.order = true, cols[2].Ints[i]
		}
		if !cols[3].IsNull(i) {
			r.own, r.id = true, cols[3].Ints[i]
		}
		if !cols[4].IsNull(i) {
			r.seq = cols[4].Ints[i]
		}
		f.rows = append(f.rows, r)
	}
	return nil
}

// commitTheirs makes a change of what was read; another commit meanwhile is a conflict.
func (w *World) commitTheirs(h *theirHead, c theirChange) error {
	if len(c.add)+len(c.remove)+len(c.dead)+len(c.equal)+len(c.at) == 0 && !c.drop {
		return nil
	}
	w.serial++
	m := h.meta
	parent := m.Current().ID
	t := theirCommit{w: w, meta: m, id: int64(7_000_000+1000*w.serial) + m.LastSequence, seq: m.LastSequence + 1, next: m.NextRowID}
	for i := range m.Schemas {
		if m.Schemas[i].ID == m.CurrentSchema {
			t.schema = m.Schemas[i].JSON
		}
	}
	first := t.next
	for i := range h.lines { // manifests that lose entries are written anew
		l := &h.lines[i]
		if l.Live() == 0 {
			continue
		}
		lost := false
		var entries []iceberg.Entry
		for _, e := range h.in[l.Path] {
			e.Status = iceberg.Existing
			of := e.File.Path
			if deletefiles.Is(&e.File) {
				if c.drop {
					e.Status, e.SnapshotID, lost = iceberg.Deleted, &t.id, true
				}
				entries = append(entries, e)
				continue
			}
			if l.Content != iceberg.Data {
				of = *e.File.ReferencedDataFile
			}
			if c.remove[of] || l.Content != iceberg.Data && c.dead[of] != nil {
				e.Status, e.SnapshotID, lost = iceberg.Deleted, &t.id, true
			}
			entries = append(entries, e)
		}
		if !lost {
			t.lines = append(t.lines, *l)
		} else if err := t.manifest(l.Content, entries); err != nil {
			return err
		}
	}
	var added []iceberg.Entry
	tuples := map[string][]byte{}
	for _, f := range h.files {
		tuples[f.entry.File.Path] = f.entry.File.Partition
	}
	if w.opt.Partitioned {
		c.add, c.born = parted(c.add, func(x *theirRow) int64 { return x.value }), nil
	}
	dead := maps.Clone(c.dead)
	if dead == nil {
		dead = map[string]*roaring.Bitmap{}
	}
	for i, list := range c.add {
		path := fmt.Sprintf("%s/data/part-%d-%d-other.parquet", m.Location, w.serial, i)
		n, tuple, err := w.writeTheirs(path, list, c.lineage)
		if err != nil {
			return err
		}
		tuples[path] = tuple
		if i < len(c.born) && len(c.born[i]) > 0 {
			dead[path] = roaring.BitmapOf(c.born[i]...)
		}
		added = append(added, iceberg.Entry{Status: iceberg.Added, SnapshotID: &t.id, File: iceberg.DataFile{
			Content: iceberg.Data, Path: path, Format: iceberg.FormatParquet, Partition: tuple, Records: int64(len(list)), Bytes: n,
		}})
	}
	if err := t.manifest(iceberg.Data, added); err != nil {
		return err
	}
	deletes, err := t.deletes(h, &c)
	if err != nil {
		return err
	}
	if err := t.vectors(dead, tuples, deletes); err != nil {
		return err
	}
	count := t.next - first
	x := iceberg.Snapshot{
		ID: t.id, Sequence: t.seq, TimestampMs: m.LastUpdatedMs + 1, Operation: c.op, SchemaID: &m.CurrentSchema, FirstRowID: &first, ParentID: &parent, AddedRows: &count,
		ManifestList: fmt.Sprintf("%s/theirs/snap-%d.avro", m.Location, w.serial),
	}
	b, err := iceberg.WriteManifestList(iceberg.ListOptions{SnapshotID: t.id, Sequence: t.seq, FirstRowID: first, ParentID: &parent}, t.lines)
	if err == nil {
		err = t.put(x.ManifestList, b)
	}
	if err != nil {
		return err
	}
	_, err = w.cat.Commit(w.ctx, &restcat.CommitTable{
		Identifier: w.ident(), Requirements: []restcat.Requirement{restcat.AssertRef(iceberg.MainBranch, parent)},
		Updates: []restcat.Update{restcat.AddSnapshot(&x), restcat.SetRef(iceberg.MainBranch, "branch", t.id, nil)},
	})
	if errors.Is(err, restclient.ErrConflict) {
		w.saw["another writer's conflict"]++
		return nil
	}
	if err != nil {
		return err
	}
	w.saw["another writer's "+c.op]++
	w.trace("%d ms: another writer: %s, snapshot %d: %d files added, %d removed, %d vectors, %d equality deletes, %d position deletes", w.now, c.op, t.id, len(c.add), len(c.remove), len(c.dead), len(c.equal), len(c.at))
	_, err = w.readHead()
	return err
}

// theirCommit is a snapshot of another writer that is being made.
type theirCommit struct {
	w             *World
	meta          *iceberg.Metadata
	schema        []byte
	id, seq, next int64
	lines         []iceberg.ManifestFile
	manifests     int
}

func (t *theirCommit) put(path string, b []byte) error {
	key, ok := t.w.mem.Key(path)
	if !ok {
		return fmt.Errorf("%s does not lie in the store", path)
	}
	return t.w.mem.Create(t.w.ctx, key, b)
}

func (t *theirCommit) manifest(content iceberg.Content, entries []iceberg.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	spec := &t.w.def.Specs[0]
	types, err := iceberg.PartitionTypes(spec, t.w.def.Schema())
	if err != nil {
		return err
	}
	b, stats, err := iceberg.WriteManifest(iceberg.ManifestOptions{
		SchemaJSON: t.schema, SchemaID: int32(t.meta.CurrentSchema), Spec: spec, PartitionTypes: types, Content: content, SnapshotID: t.id, Sequence: t.seq,
	}, entries)
	if err != nil {
		return err
	}
	l := stats.File
	l.Path = fmt.Sprintf("%s/theirs/%d-m%d.avro", t.meta.Location, t.w.serial, t.manifests)
	t.manifests++
	if content == iceberg.Data {
		n := t.next
		l.FirstRowID = &n
		t.next += stats.NewRowIDs
	}
	t.lines = append(t.lines, l)
	return t.put(l.Path, b)
}

func (t *theirCommit) vectors(dead map[string]*roaring.Bitmap, tuples map[string][]byte, deletes []iceberg.Entry) error {
	if len(dead) == 0 {
		return t.manifest(iceberg.Deletes, deletes)
	}
	var entries []iceberg.Entry
	path := fmt.Sprintf("%s/theirs/%d.puffin", t.meta.Location, t.w.serial)
	var buf bytes.Buffer
	p := puffin.NewWriter(&buf, "other")
	for _, of := range slices.Sorted(maps.Keys(dead)) {
		set, err := dv.AppendBitmap(nil, dead[of])
		if err != nil {
			return err
		}
		blob, err := p.AddVector(of, set)
		if err != nil {
			return err
		}
		entries = append(entries, iceberg.Entry{Status: iceberg.Added, SnapshotID: &t.id, File: iceberg.DataFile{
			Content: iceberg.PositionDeletes, Path: path, Format: iceberg.FormatPuffin, Partition: tuples[of], Records: int64(dead[of].GetCardinality()),
			ReferencedDataFile: &of, ContentOffset: &blob.Offset, ContentSize: &blob.Length,
		}})
	}
	size, err := p.Close()
	if err == nil {
		err = t.put(path, buf.Bytes())
	}
	if err != nil {
		return err
	}
	for i := range entries {
		entries[i].File.Bytes = size
	}
	return t.manifest(iceberg.Deletes, append(entries, deletes...))
}

// parted divides files so that each has one partition value.
func parted[T any](files [][]T, value func(*T) int64) (out [][]T) {
	for _, list := range files {
		by := map[int32][]T{}
		for i := range list {
			b := schemas.BucketOf(schemas.HashInt(schemas.Of(schemas.Long), value(&list[i])), buckets)
			by[b] = append(by[b], list[i])
		}
		for _, b := range slices.Sorted(maps.Keys(by)) {
			out = append(out, by[b])
		}
	}
	return out
}

// writeTheirs writes a data file, its rows in any order, and gives its size and
// partition value.
func (w *World) writeTheirs(path string, list []theirRow, lineage bool) (int64, []byte, error) {
	events := make([]event, len(list))
	var extra rows.Extra
	for i := range list {
		events[i] = list[i].event
		if lineage {
			id, seq := int64(-1), int64(-1)
			if list[i].id != 0 || list[i].seq != 0 {
				id, seq = list[i].id, list[i].seq
			}
			extra.RowID, extra.LastSeq = append(extra.RowID, id), append(extra.LastSeq, seq)
		}
	}
	b, err := w.batchOf(events)
	if err != nil {
		return 0, nil, err
	}
	sel := make([]uint32, len(list))
	for i := range sel {
		sel[i] = uint32(i)
	}
	var out bytes.Buffer
	if _, err := rows.Write(&out, rows.WriteOptions{Schema: w.def.Schema()}, b, sel, extra); err != nil {
		return 0, nil, err
	}
	key, ok := w.mem.Key(path)
	if !ok {
		return 0, nil, fmt.Errorf("%s does not lie in the store", path)
	}
	var tuple []byte
	if w.opt.Partitioned {
		enc, err := rows.NewTupleEncoder(w.def.Schema(), &w.def.Specs[0])
		if err != nil {
			return 0, nil, err
		}
		if tuple, err = enc.Append(nil, b, 0); err != nil {
			return 0, nil, err
		}
	}
	return int64(out.Len()), tuple, w.mem.Create(w.ctx, key, out.Bytes())
}
