package sim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors/deletefiles"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/rows"
)

// theirEqual is an equality-delete file to be written: rows of a key, or of a key
// and a value.
type theirEqual struct {
	rows   []event
	values bool
}

// theirDelete is a delete file as another writer reads it.
type theirDelete struct {
	entry iceberg.Entry
	at    map[string]*roaring.Bitmap
	equal map[[2]int64]bool // keys, and values or zeros
	value bool
}

// ends says whether a row of a data file is dead by a delete file.
func (d *theirDelete) ends(of *iceberg.Entry, vector bool, at, key int, value int64) bool {
	if !bytes.Equal(of.File.Partition, d.entry.File.Partition) || of.File.SpecID != d.entry.File.SpecID {
		return false
	}
	if d.equal == nil {
		set := d.at[of.File.Path]
		return !vector && *of.Sequence <= *d.entry.Sequence && set != nil && set.Contains(uint32(at))
	}
	k := [2]int64{int64(key)}
	if d.value {
		k[1] = value
	}
	return *of.Sequence < *d.entry.Sequence && d.equal[k]
}

// drawEqual makes up deletes by equality of rows that are there, or never were; for
// some of the keys a row comes in the same commit, as engines write an upsert.
func (w *World) drawEqual(h *theirHead, c *theirChange, fresh func(key int) theirRow) {
	c.op = "delete"
	x := theirEqual{values: w.rng.Intn(4) == 0}
	var added []theirRow
	for _, f := range h.files {
		for i := range f.rows {
			if w.rng.Intn(5) > 0 {
				continue
			}
			x.rows = append(x.rows, f.rows[i].event)
			if w.rng.Intn(2) == 0 {
				added = append(added, fresh(f.rows[i].key))
			}
		}
	}
	if w.rng.Intn(3) == 0 || len(x.rows) == 0 {
		x.rows = append(x.rows, fresh(w.rng.Intn(w.opt.Keys)).event)
	}
	c.equal = append(c.equal, x)
	if len(added) > 0 {
		c.op, c.add = "overwrite", [][]theirRow{added}
	}
	w.saw["another writer's equality deletes"]++
}

// deletes writes the delete files of a change.
func (t *theirCommit) deletes(h *theirHead, c *theirChange) (out []iceberg.Entry, err error) {
	w := t.w
	enter := func(d iceberg.DataFile, b []byte) error {
		d.Path = fmt.Sprintf("%s/data/%d-deletes-%d.parquet", t.meta.Location, w.serial, len(out))
		d.Format, d.Bytes = iceberg.FormatParquet, int64(len(b))
		out = append(out, iceberg.Entry{Status: iceberg.Added, SnapshotID: &t.id, File: d})
		return t.put(d.Path, b)
	}
	tuples := map[string]bool{}
	for _, f := range h.files {
		tuples[string(f.entry.File.Partition)] = true
	}
	for _, x := range c.equal {
		b, err := w.batchOf(x.rows)
		if err != nil {
			return nil, err
		}
		var file bytes.Buffer
		if _, err := rows.Write(&file, rows.WriteOptions{Schema: w.def.Schema()}, b, nil, rows.Extra{}); err != nil {
			return nil, err
		}
		ids := []int32{w.def.Schema().Fields[0].ID}
		if x.values {
			ids = append(ids, w.def.Schema().Fields[1].ID)
		}
		for _, tuple := range slices.Sorted(maps.Keys(tuples)) {
			d := iceberg.DataFile{Content: iceberg.EqualityDeletes, EqualityIDs: ids, Records: int64(len(x.rows)), Partition: []byte(tuple)}
			if err := enter(d, file.Bytes()); err != nil {
				return nil, err
			}
		}
	}
	byTuple := map[string][]string{}
	for _, f := range h.files {
		if c.at[f.entry.File.Path] != nil {
			byTuple[string(f.entry.File.Partition)] = append(byTuple[string(f.entry.File.Partition)], f.entry.File.Path)
		}
	}
	s := &schemas.Schema{Fields: []schemas.Field{deletefiles.Path, deletefiles.Position}}
	for _, tuple := range slices.Sorted(maps.Keys(byTuple)) {
		b := rows.NewBatch(s)
		n := int64(0)
		for _, path := range byTuple[tuple] {
			for _, at := range c.at[path].ToArray() {
				b.Cols[0].AppendBytes([]byte(path))
				b.Cols[1].AppendInt(int64(at))
				b.AppendEvent(rows.Upsert, 0, 0, false)
				n++
			}
		}
		var file bytes.Buffer
		if _, err := rows.Write(&file, rows.WriteOptions{Schema: s}, b, nil, rows.Extra{}); err != nil {
			return nil, err
		}
		if err := enter(iceberg.DataFile{Content: iceberg.PositionDeletes, Records: n, Partition: []byte(tuple)}, file.Bytes()); err != nil {
			return nil, err
		}
		w.saw["another writer's position deletes"]++
	}
	return out, nil
}

// readDelete reads a delete file.
func (w *World) readDelete(e *iceberg.Entry) (*theirDelete, error) {
	b, err := w.read(e.File.Path)
	if err != nil {
		return nil, err
	}
	file, err := rows.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	d := &theirDelete{entry: *e}
	if e.File.Content == iceberg.PositionDeletes {
		cols, err := file.Read([]schemas.Field{deletefiles.Path, deletefiles.Position})
		if err != nil {
			return nil, err
		}
		d.at = map[string]*roaring.Bitmap{}
		for i := range cols[0].Len() {
			path := string(cols[0].BytesAt(i))
			if d.at[path] == nil {
				d.at[path] = roaring.New()
			}
			d.at[path].Add(uint32(cols[1].Ints[i]))
		}
		return d, nil
	}
	cols, err := file.Read(w.def.Schema().Fields[:2])
	if err != nil {
		return nil, err
	}
	d.equal, d.value = map[[2]int64]bool{}, len(e.File.EqualityIDs) == 2
	for i := range cols[0].Len() {
		k, err := w.keyOf(&cols[0], i)
		if err != nil {
			return nil, err
		}
		x := [2]int64{int64(k)}
		if d.value {
			x[1] = cols[1].Ints[i]
		}
		d.equal[x] = true
	}
	return d, nil
}
