package sim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/processors/deletefiles"
	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/processors/state"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/keyindex"
)

// snapshotData is what a reader finds in one snapshot.
type snapshotData struct {
	rows map[int]row
	ids  map[int]int64
	dead map[int]int64 // the largest ordering values of dead rows, by key
}

// check holds the settled world against the model.
func (w *World) check() error {
	w.snapshots = map[int64]*snapshotData{}
	last := int64(-1)
	for build, c := range w.published {
		if c.SnapshotID == 0 {
			continue
		}
		got := w.kept[build]
		if !w.opt.Garbage && !w.opt.Time {
			var err error
			if got, err = w.readSnapshot(c); err != nil {
				return fmt.Errorf("snapshot of the cut at %d: %w", build, err)
			}
		}
		w.snapshots[build] = got
		last = max(last, build)
	}
	if w.opt.Garbage || w.opt.Time {
		if err := w.checkRetained(); err != nil {
			return err
		}
	}
	m := newModel(w)
	if err := m.fold(); err != nil {
		return err
	}
	for p := range w.sources {
		if m.ends[p] != int64(len(w.sources[p])) {
			return fmt.Errorf("shard %d ends at source offset %d of %d", p, m.ends[p], len(w.sources[p]))
		}
	}
	newest := map[int]row{}
	if w.opt.Time {
		build, err := w.checkRefs(m)
		if err != nil {
			return err
		}
		last = build
	}
	switch {
	case w.opt.Foreign:
		var err error
		if newest, err = w.mainRows(); err != nil {
			return err
		}
	case last >= 0:
		newest = w.snapshots[last].rows
	}
	if d := differ(rowsOf(m.live), newest); d != "equal" {
		return fmt.Errorf("the last snapshot: %s", d)
	}
	if err := w.checkFiles(); err != nil {
		return err
	}
	if err := w.checkMembers(); err != nil {
		return err
	}
	for _, o := range w.owners {
		if err := w.checkIndex(o); err != nil {
			return fmt.Errorf("owner %s: %w", o.name, err)
		}
	}
	return nil
}

// checkFiles: no job is open, so a file that has live rows is free to be planned,
// and no map leads away from it (F1, G1).
func (w *World) checkFiles() error {
	return w.members[0].store.Files(w.tableID, func(f *statestore.FileInfo) error {
		if !f.Gone && (f.Job || f.Moved) {
			return fmt.Errorf("file %d has live rows, and a job still has it (over: %t)", f.ID, f.Moved)
		}
		return checkParts(f)
	})
}

func differ(want, got map[int]row) string {
	for _, k := range slices.Sorted(maps.Keys(want)) {
		v, ok := got[k]
		if !ok {
			return fmt.Sprintf("key %d is missing (%d rows, %d wanted)", k, len(got), len(want))
		}
		if v != want[k] {
			return fmt.Sprintf("key %d is %v, not %v (%d rows, %d wanted)", k, v, want[k], len(got), len(want))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[k]; !ok {
			return fmt.Sprintf("key %d should not be there (%d rows, %d wanted)", k, len(got), len(want))
		}
	}
	return "equal"
}

func (w *World) read(location string) ([]byte, error) {
	key, ok := w.mem.Key(location)
	if !ok {
		return nil, fmt.Errorf("%s is not in the store", location)
	}
	return w.mem.ReadAll(w.ctx, key, 1<<30)
}

// readSnapshot reads rows from the files alone, as a reader would.
func (w *World) readSnapshot(c *record.SnapshotCommitted) (*snapshotData, error) {
	list, err := w.read(c.ManifestList)
	if err != nil {
		return nil, err
	}
	manifests, err := iceberg.ReadManifestList(list)
	if err != nil {
		return nil, err
	}
	var data, deletes []iceberg.Entry
	specs := map[int32]*schemas.Spec{}
	for i := range manifests {
		b, err := w.read(manifests[i].Path)
		if err != nil {
			return nil, err
		}
		m, err := iceberg.ReadManifest(b)
		if err != nil {
			return nil, err
		}
		if err := m.Inherit(&manifests[i]); err != nil {
			return nil, err
		}
		spec, err := iceberg.ParseSpec(fmt.Appendf(nil, `{"spec-id":%d,"fields":%s}`, m.SpecID, m.SpecJSON))
		if err != nil {
			return nil, err
		}
		specs[m.SpecID] = &spec
		for _, e := range m.Entries {
			if e.Status == iceberg.Deleted {
				continue
			}
			if e.File.Content == iceberg.Data {
				data = append(data, e)
			} else {
				deletes = append(deletes, e)
			}
		}
	}
	vectors := map[string]*dv.Vector{}
	var theirs []*theirDelete
	for i := range deletes {
		f := &deletes[i].File
		if deletefiles.Is(&deletes[i].File) {
			if c.SnapshotID != 0 {
				return nil, fmt.Errorf("our snapshot %d lists the delete file %s of another writer (H15)", c.SnapshotID, f.Path)
			}
			d, err := w.readDelete(&deletes[i])
			if err != nil {
				return nil, err
			}
			theirs = append(theirs, d)
			continue
		}
		if j := slices.IndexFunc(data, func(e iceberg.Entry) bool { return e.File.Path == *f.ReferencedDataFile }); j >= 0 &&
			(data[j].File.SpecID != f.SpecID || !bytes.Equal(data[j].File.Partition, f.Partition)) {
			return nil, fmt.Errorf("the vector of %s is in spec %d", data[j].File.Path, f.SpecID)
		}
		if vectors[*f.ReferencedDataFile] != nil {
			return nil, fmt.Errorf("two vectors for %s", *f.ReferencedDataFile)
		}
		b, err := w.read(f.Path)
		if err != nil {
			return nil, err
		}
		if vectors[*f.ReferencedDataFile], err = dv.Decode(b[*f.ContentOffset : *f.ContentOffset+*f.ContentSize]); err != nil {
			return nil, err
		}
	}
	out := &snapshotData{rows: map[int]row{}, ids: map[int]int64{}, dead: map[int]int64{}}
	ids := map[int64]bool{}
	for i := range data {
		f := &data[i].File
		v := vectors[f.Path]
		delete(vectors, f.Path)
		if err := w.readFile(&data[i], specs[f.SpecID], v, theirs, out, ids); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	if len(vectors) > 0 {
		return nil, fmt.Errorf("%d vectors name no live file", len(vectors))
	}
	return out, nil
}

var extraField = schemas.Field{ID: 4, Name: "w", Type: schemas.Of(schemas.Long)}

// readFile adds a data file's live rows. A row id is the one that stands in
// the file, or else the file's first one plus its position.
func (w *World) readFile(e *iceberg.Entry, spec *schemas.Spec, dead *dv.Vector, deletes []*theirDelete, out *snapshotData, ids map[int64]bool) error {
	f := &e.File
	b, err := w.read(f.Path)
	if err != nil {
		return err
	}
	file, err := rows.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	rowID := schemas.Field{ID: schemas.RowIDField, Name: schemas.RowIDColumn, Type: schemas.Of(schemas.Long)}
	order := schemas.Field{ID: schemas.OrderField, Name: schemas.OrderColumn, Type: schemas.Of(schemas.Long)}
	cols, err := file.Read(append(slices.Clone(w.def.Schema().Fields[:2]), extraField, rowID, order, w.def.Schema().Fields[2]))
	if err != nil {
		return err
	}
	if f.FirstRowID == nil || int64(cols[0].Len()) != f.Records {
		return fmt.Errorf("%d rows of %d, first row id %v", cols[0].Len(), f.Records, f.FirstRowID)
	}
	for i := range cols[0].Len() {
		id := *f.FirstRowID + int64(i)
		if !cols[3].IsNull(i) {
			id = cols[3].Ints[i]
		}
		if err := checkPartition(spec, f.Partition, cols[1].Ints[i]); err != nil {
			return err
		}
		if dead != nil && dead.Contains(uint64(i)) {
			if err := w.noteDead(cols, i, out); err != nil {
				return err
			}
			continue
		}
		k := int(cols[1].Ints[i])
		if !w.opt.NoKey {
			if k, err = w.keyOf(&cols[0], i); err != nil {
				return err
			}
		}
		if slices.ContainsFunc(deletes, func(d *theirDelete) bool { return d.ends(e, dead != nil, i, k, cols[1].Ints[i]) }) {
			continue
		}
		if _, doubled := out.rows[k]; doubled {
			return fmt.Errorf("key %d lives twice", k)
		}
		if ids[id] {
			return fmt.Errorf("row id %d is there twice", id)
		}
		ids[id] = true
		r := row{value: cols[1].Ints[i]}
		if !cols[2].IsNull(i) {
			r.extra = cols[2].Ints[i]
		}
		out.rows[k], out.ids[k] = r, id
	}
	return nil
}

// noteDead notes the ordering value of a dead row.
func (w *World) noteDead(cols []rows.Column, i int, out *snapshotData) error {
	if !w.opt.Ordered || !w.opt.Time {
		return nil
	}
	k, err := w.keyOf(&cols[0], i)
	if err != nil {
		return err
	}
	for _, c := range cols[4:6] {
		if !c.IsNull(i) {
			if last, has := out.dead[k]; !has || c.Ints[i] > last {
				out.dead[k] = c.Ints[i]
			}
			break // the remembered value stands before the row's own
		}
	}
	return nil
}

// checkPartition: the file's tuple is the bucket of the row's value, if its spec
// has one.
func checkPartition(spec *schemas.Spec, tuple []byte, value int64) error {
	v, err := schemas.DecodeTuple(tuple, len(spec.Fields))
	if err != nil || len(v) == 0 {
		return err
	}
	want := schemas.BucketOf(schemas.HashInt(schemas.Of(schemas.Long), value), spec.Fields[0].N)
	got, err := schemas.IntValue(schemas.Of(schemas.Int), v[0])
	if err != nil {
		return err
	}
	if got != int64(want) {
		return fmt.Errorf("a row of bucket %d is in a file of bucket %d", want, got)
	}
	return nil
}

func (w *World) keyOf(c *rows.Column, row int) (int, error) {
	if !w.opt.Strings {
		return int(c.Ints[row]), nil
	}
	var k int
	_, err := fmt.Sscanf(string(bytes.TrimLeft(c.BytesAt(row), "key-x")), "%d", &k)
	return k, err
}

// checkMembers compares every hash that members sent, and a member that
// replays the whole log with one that lived through it.
func (w *World) checkMembers() error {
	fresh := &member{w: w, fs: vfs.NewMem(), hashes: map[int64]record.Hash{}}
	if err := fresh.open(); err != nil {
		return err
	}
	defer fresh.store.Close()
	for fresh.machine.Next() < int64(len(w.log)) {
		if err := fresh.apply(1 + w.rng.Intn(50)); err != nil {
			return err
		}
	}
	if err := fresh.machine.OnLog(w.ctx, w.now, nil, true); err != nil {
		return err
	}
	want, err := dump(fresh.store)
	if err != nil {
		return err
	}
	for i, m := range w.members {
		if err := m.machine.OnLog(w.ctx, w.now, nil, true); err != nil {
			return err
		}
		for off, h := range m.hashes {
			if d := w.ownOutcome(off); d != h {
				return fmt.Errorf("member %d has another hash at log offset %d", i, off)
			}
		}
		if m.store.Head().Chain != fresh.store.Head().Chain {
			return fmt.Errorf("member %d and a replay differ in their last hash", i)
		}
		got, err := dump(m.store)
		if err != nil {
			return err
		}
		if k := firstDifference(want, got); k != "" {
			return fmt.Errorf("member %d and a replay differ at state key %q", i, k)
		}
	}
	return nil
}

func (w *World) ownOutcome(off int64) record.Hash {
	for i := range w.decided {
		if d := &w.decided[i].Outcome; d.Offset == off && !d.Derived {
			return d.Chain
		}
	}
	return record.Hash{}
}

func dump(s *statestore.Store) (map[string]string, error) {
	out := map[string]string{}
	return out, s.Dump(func(k, v []byte) error {
		out[string(k)] = string(v)
		return nil
	})
}

func firstDifference(a, b map[string]string) string {
	for _, k := range slices.Sorted(maps.Keys(a)) {
		if v, ok := b[k]; !ok || v != a[k] {
			return k
		}
	}
	for _, k := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[k]; !ok {
			return k
		}
	}
	return ""
}

// checkIndex: K4. An index folded from the log alone equals the owner's.
func (w *World) checkIndex(o *owner) error {
	if o.shard.Stage() != ingest.Running {
		return nil
	}
	twin := &owner{w: w, name: o.name + "-refold", partition: o.partition, fs: vfs.NewMem(), fromLog: true, base: o.base}
	if err := twin.open(); err != nil {
		return err
	}
	twin.shard.OnDecided(w.ctx, w.decided[twin.next:o.next])
	if err := twin.shard.Err(); err != nil {
		return err
	}
	want, err := entries(twin.shard)
	if err != nil {
		return err
	}
	got, err := entries(o.shard)
	if err != nil {
		return err
	}
	if len(want) != len(got) {
		return fmt.Errorf("the index has %d entries, one folded from the log %d", len(got), len(want))
	}
	for i := range want {
		if want[i] != got[i] {
			return fmt.Errorf("index entry %d is %+v, folded from the log %+v", i, got[i], want[i])
		}
	}
	return twin.shard.Abandon()
}

func entries(s *ingest.Shard) ([]keyindex.Entry, error) {
	var out []keyindex.Entry
	err := s.Entries(func(e *keyindex.Entry) error {
		out = append(out, *e)
		return nil
	})
	return out, err
}

// Close releases what the world holds.
func (w *World) Close() error {
	var err error
	for _, o := range w.owners {
		if e := o.shard.Abandon(); e != nil {
			err = e
		}
	}
	for _, m := range w.members {
		if e := m.store.Close(); e != nil {
			err = e
		}
	}
	return err
}

var _ state.Outcomes = (*member)(nil)
