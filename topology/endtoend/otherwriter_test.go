package endtoend

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors/deletefiles"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/puffin"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/restclient"
)

// otherWriter commits to branch main of an outside deployment's table, as an engine
// that knows nothing of us does. It writes format version 3, which PyIceberg cannot.
type otherWriter struct {
	t *testing.T
	s *outside
	n int
	// before, if set, is called between the writer's reading and its commit.
	before func()
	// spec and tuple, if set, are of the files that it adds.
	spec  *schemas.Spec
	tuple []byte
}

// otherRow is a row of people.users.
type otherRow struct {
	name  string
	ver   *int64
	score int64
	null  bool // the score is null
	ok    *int64
	// Of a row that was read.
	rowID, seq *int64
}

// otherFile is a data file that a snapshot lists.
type otherFile struct {
	entry iceberg.Entry
	rows  []otherRow
	dead  *roaring.Bitmap
	dv    *iceberg.Entry
}

// otherHead is what main lists.
type otherHead struct {
	meta  *iceberg.Metadata
	lines []iceberg.ManifestFile
	in    map[string][]iceberg.Entry // by manifest
	files []*otherFile
}

func (w *otherWriter) local(path string) string {
	return "/" + strings.TrimLeft(strings.TrimPrefix(path, "file:"), "/")
}

func (w *otherWriter) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// read is a scan of the table.
func (w *otherWriter) read() *otherHead {
	w.t.Helper()
	h := &otherHead{meta: w.s.metadata(), in: map[string][]iceberg.Entry{}}
	cur := h.meta.Current()
	if cur == nil {
		return h
	}
	text, err := os.ReadFile(w.local(cur.ManifestList))
	w.must(err)
	h.lines, err = iceberg.ReadManifestList(text)
	w.must(err)
	vectors := map[string]iceberg.Entry{}
	for i := range h.lines {
		l := &h.lines[i]
		text, err := os.ReadFile(w.local(l.Path))
		w.must(err)
		m, err := iceberg.ReadManifest(text)
		w.must(err)
		w.must(m.Inherit(l))
		for _, e := range m.Entries {
			if e.Status == iceberg.Deleted {
				continue
			}
			h.in[l.Path] = append(h.in[l.Path], e)
			switch {
			case l.Content == iceberg.Data:
				h.files = append(h.files, &otherFile{entry: e, dead: roaring.New()})
			case e.File.Format == iceberg.FormatPuffin:
				vectors[*e.File.ReferencedDataFile] = e
			}
		}
	}
	for _, f := range h.files {
		if e, has := vectors[f.entry.File.Path]; has {
			text, err := os.ReadFile(w.local(e.File.Path))
			w.must(err)
			v, err := dv.Decode(text[*e.File.ContentOffset : *e.File.ContentOffset+*e.File.ContentSize])
			w.must(err)
			f.dead, _ = v.Bitmap32()
			f.dv = &e
		}
		w.rows(f)
	}
	return h
}

// rows reads a data file.
func (w *otherWriter) rows(f *otherFile) {
	w.t.Helper()
	text, err := os.ReadFile(w.local(f.entry.File.Path))
	w.must(err)
	file, err := rows.Open(bytes.NewReader(text), int64(len(text)))
	w.must(err)
	long := schemas.Of(schemas.Long)
	cols, err := file.Read([]schemas.Field{
		{ID: 1, Name: "name", Type: schemas.Of(schemas.String)}, {ID: 2, Name: "ver", Type: long}, {ID: 3, Name: "score", Type: schemas.Of(schemas.Int)}, {ID: 4, Name: "ok", Type: schemas.Of(schemas.Boolean)},
		{ID: schemas.RowIDField, Name: schemas.RowIDColumn, Type: long}, {ID: schemas.LastSeqField, Name: schemas.LastSeqName, Type: long},
	})
	w.must(err)
	for i := range cols[0].Len() {
		r := otherRow{name: string(cols[0].BytesAt(i)), score: cols[2].Ints[i], null: cols[2].IsNull(i)}
		if !cols[3].IsNull(i) {
			r.ok = &cols[3].Ints[i]
		}
		if !cols[1].IsNull(i) {
			r.ver = &cols[1].Ints[i]
		}
		id, seq := *f.entry.File.FirstRowID+int64(i), *f.entry.Sequence
		if !cols[4].IsNull(i) {
			id = cols[4].Ints[i]
		}
		if !cols[5].IsNull(i) {
			seq = cols[5].Ints[i]
		}
		r.rowID, r.seq = &id, &seq
		f.rows = append(f.rows, r)
	}
}

// change is what a commit does.
type change struct {
	op     string
	add    [][]otherRow               // files, rows in any order
	remove map[string]bool            // data files by path
	dead   map[string]*roaring.Bitmap // whole vectors by data file
	equal  []string                   // an equality-delete file of these keys
	by     []int32                    // its columns; nil: the key
	at     map[string]*roaring.Bitmap // a position-delete file, by data file
	older  *int64                     // the data sequence number of the added files; nil: the commit's
	renew  bool                       // every manifest is written anew
	clear  bool                       // the delete files leave
	// of, if set, is the spec of the delete files, and spoil changes their entries.
	of    *schemas.Spec
	spoil func(d *iceberg.DataFile)
}

// commit makes a change of what was read; another commit meanwhile is a conflict.
func (w *otherWriter) commit(h *otherHead, c change) error {
	w.t.Helper()
	w.n++
	m := h.meta
	cur := m.Current()
	id, seq, next := int64(7_000_000+1000*w.n)+m.LastSequence, m.LastSequence+1, m.NextRowID
	schema, err := m.Schema(m.CurrentSchema)
	w.must(err)
	var text []byte
	for i := range m.Schemas {
		if m.Schemas[i].ID == m.CurrentSchema {
			text = m.Schemas[i].JSON
		}
	}
	manifests := 0
	// A replay in these tests makes the folder metadata anew: what others wrote lies elsewhere.
	w.must(os.MkdirAll(w.local(m.Location+"/theirs"), 0o755))
	var lines []iceberg.ManifestFile
	first := next
	spec := &schemas.Spec{}
	manifest := func(content iceberg.Content, entries []iceberg.Entry) {
		if len(entries) == 0 {
			return
		}
		types, err := iceberg.PartitionTypes(spec, schema)
		w.must(err)
		b, stats, err := iceberg.WriteManifest(iceberg.ManifestOptions{
			SchemaJSON: text, SchemaID: int32(m.CurrentSchema), Spec: spec, PartitionTypes: types, Content: content, SnapshotID: id, Sequence: seq,
		}, entries)
		w.must(err)
		l := stats.File
		l.Path = fmt.Sprintf("%s/theirs/%d-m%d.avro", m.Location, w.n, manifests)
		manifests++
		if content == iceberg.Data {
			n := next
			l.FirstRowID = &n
			next += stats.NewRowIDs
		}
		w.must(os.WriteFile(w.local(l.Path), b, 0o644))
		lines = append(lines, l)
	}
	// Manifests that lose entries are written anew.
	for i := range h.lines {
		l := &h.lines[i]
		if l.Live() == 0 {
			continue
		}
		lost := c.renew
		var entries []iceberg.Entry
		for _, e := range h.in[l.Path] {
			e.Status = iceberg.Existing
			of := e.File.Path
			if e.File.Format == iceberg.FormatPuffin {
				of = *e.File.ReferencedDataFile
			}
			if c.remove[of] || l.Content != iceberg.Data && (c.dead[of] != nil || c.clear && deletefiles.Is(&e.File)) {
				e.Status, e.SnapshotID, lost = iceberg.Deleted, &id, true
			}
			entries = append(entries, e)
		}
		if lost {
			manifest(l.Content, entries)
		} else {
			lines = append(lines, *l)
		}
	}
	var added []iceberg.Entry
	for i, list := range c.add {
		path := fmt.Sprintf("%s/data/part-%d-%d-other.parquet", m.Location, w.n, i)
		n := w.write(path, schema, list)
		added = append(added, iceberg.Entry{Status: iceberg.Added, SnapshotID: &id, Sequence: c.older, File: iceberg.DataFile{
			Content: iceberg.Data, Path: path, Format: iceberg.FormatParquet, Records: int64(len(list)), Bytes: n, SpecID: spec.ID,
		}})
		if w.spec != nil {
			f := &added[i].File
			f.SpecID, f.Partition = w.spec.ID, w.tuple
		}
	}
	if w.spec != nil {
		spec = w.spec
	}
	manifest(iceberg.Data, added)
	spec = &schemas.Spec{}
	var vectors []iceberg.Entry
	if len(c.dead) > 0 {
		path := fmt.Sprintf("%s/theirs/%d.puffin", m.Location, w.n)
		var buf bytes.Buffer
		p := puffin.NewWriter(&buf, "other")
		for _, of := range sortedKeys(c.dead) {
			set, err := dv.AppendBitmap(nil, c.dead[of])
			w.must(err)
			blob, err := p.AddVector(of, set)
			w.must(err)
			vectors = append(vectors, iceberg.Entry{Status: iceberg.Added, SnapshotID: &id, File: iceberg.DataFile{
				Content: iceberg.PositionDeletes, Path: path, Format: iceberg.FormatPuffin, Records: int64(c.dead[of].GetCardinality()),
				ReferencedDataFile: &of, ContentOffset: &blob.Offset, ContentSize: &blob.Length,
			}})
		}
		size, err := p.Close()
		w.must(err)
		w.must(os.WriteFile(w.local(path), buf.Bytes(), 0o644))
		for i := range vectors {
			vectors[i].File.Bytes = size
		}
	}
	deletes := vectors // in one manifest
	if len(c.equal) > 0 {
		path := fmt.Sprintf("%s/theirs/%d-eq.parquet", m.Location, w.n)
		var list []otherRow
		for _, name := range c.equal {
			list = append(list, otherRow{name: name})
		}
		by := c.by
		if by == nil {
			by = []int32{1}
		}
		n := w.write(path, schema, list)
		deletes = append(deletes, iceberg.Entry{Status: iceberg.Added, SnapshotID: &id, File: iceberg.DataFile{
			Content: iceberg.EqualityDeletes, Path: path, Format: iceberg.FormatParquet, Records: int64(len(list)), Bytes: n, EqualityIDs: by,
		}})
	}
	if len(c.at) > 0 {
		path := fmt.Sprintf("%s/theirs/%d-pos.parquet", m.Location, w.n)
		s := &schemas.Schema{Fields: []schemas.Field{deletefiles.Path, deletefiles.Position}}
		b := rows.NewBatch(s)
		n := int64(0)
		for _, of := range sortedKeys(c.at) {
			for _, pos := range c.at[of].ToArray() {
				b.Cols[0].AppendBytes([]byte(of))
				b.Cols[1].AppendInt(int64(pos))
				b.AppendEvent(rows.Upsert, 0, 0, false)
				n++
			}
		}
		var out bytes.Buffer
		_, err := rows.Write(&out, rows.WriteOptions{Schema: s}, b, nil, rows.Extra{})
		w.must(err)
		w.must(os.WriteFile(w.local(path), out.Bytes(), 0o644))
		deletes = append(deletes, iceberg.Entry{Status: iceberg.Added, SnapshotID: &id, File: iceberg.DataFile{
			Content: iceberg.PositionDeletes, Path: path, Format: iceberg.FormatParquet, Records: n, Bytes: int64(out.Len()),
		}})
	}
	if c.of != nil {
		spec = c.of
	}
	for i := range deletes {
		if c.spoil != nil {
			c.spoil(&deletes[i].File)
		}
	}
	manifest(iceberg.Deletes, deletes)
	x := iceberg.Snapshot{ID: id, Sequence: seq, TimestampMs: m.LastUpdatedMs + 1, Operation: c.op, SchemaID: &m.CurrentSchema, FirstRowID: &first}
	o := iceberg.ListOptions{SnapshotID: id, Sequence: seq, FirstRowID: first}
	parent := int64(0)
	if cur != nil {
		parent = cur.ID
		x.ParentID, o.ParentID = &parent, &parent
	}
	rowsAdded := next - first
	x.AddedRows = &rowsAdded
	b, err := iceberg.WriteManifestList(o, lines)
	w.must(err)
	x.ManifestList = fmt.Sprintf("%s/theirs/snap-%d.avro", m.Location, w.n)
	w.must(os.WriteFile(w.local(x.ManifestList), b, 0o644))
	if w.before != nil {
		w.before()
	}
	_, err = w.s.client.Commit(longContext(w.t), &restcat.CommitTable{
		Identifier: w.s.id, Requirements: []restcat.Requirement{restcat.AssertRef(iceberg.MainBranch, parent)},
		Updates: []restcat.Update{restcat.AddSnapshot(&x), restcat.SetRef(iceberg.MainBranch, "branch", id, nil)},
	})
	return err
}

func sortedKeys(m map[string]*roaring.Bitmap) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// write writes a data file.
func (w *otherWriter) write(path string, schema *schemas.Schema, list []otherRow) int64 {
	w.t.Helper()
	b := rows.NewBatch(schema)
	sel := make([]uint32, len(list))
	var extra rows.Extra
	for i := range list {
		r := &list[i]
		b.Cols[0].AppendBytes([]byte(r.name))
		if r.ver == nil {
			b.Cols[1].AppendNull()
		} else {
			b.Cols[1].AppendInt(*r.ver)
		}
		if r.null {
			b.Cols[2].AppendNull()
		} else {
			b.Cols[2].AppendInt(r.score)
		}
		if r.ok == nil {
			b.Cols[3].AppendNull()
		} else {
			b.Cols[3].AppendInt(*r.ok)
		}
		b.AppendEvent(rows.Upsert, 0, 0, false)
		sel[i] = uint32(i)
		id, seq := int64(-1), int64(-1)
		if r.rowID != nil {
			id, seq = *r.rowID, *r.seq
		}
		extra.RowID, extra.LastSeq = append(extra.RowID, id), append(extra.LastSeq, seq)
	}
	w.must(os.MkdirAll(filepath.Dir(w.local(path)), 0o755))
	var out bytes.Buffer
	_, err := rows.Write(&out, rows.WriteOptions{Schema: schema}, b, sel, extra)
	w.must(err)
	w.must(os.WriteFile(w.local(path), out.Bytes(), 0o644))
	return int64(out.Len())
}

// do makes a change again and again while others commit in between.
func (w *otherWriter) do(what func(h *otherHead) change) {
	w.t.Helper()
	for range 200 {
		h := w.read()
		err := w.commit(h, what(h))
		if err == nil {
			return
		}
		if !errors.Is(err, restclient.ErrConflict) {
			w.t.Fatal(err)
		}
	}
	w.t.Fatal("the other writer never came through")
}
