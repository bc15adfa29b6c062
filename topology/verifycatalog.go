package topology

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// maxListBytes bounds a manifest, a list and table metadata.
const maxListBytes = 1 << 30

// listed is what a snapshot says of a data file.
type listed struct {
	file     iceberg.DataFile
	sequence int64
	vector   *iceberg.DataFile
	vectorAt int64 // sequence number
}

// dataPath is the location of a data file.
func dataPath(t *statestore.TableInfo, f *statestore.FileInfo) string {
	name := schemas.DataFileName(t.ID, f.Epoch, statestore.FileCounter(f.ID))
	if f.Name != [16]byte{} {
		name = schemas.JobFileName(f.Name)
	}
	return t.Definition.Location + "/data/" + name
}

// catalog holds a table's state against its metadata, and that against the
// objects of the store.
func (v *verifier) catalog(ctx context.Context, t *statestore.TableInfo) error {
	files, err := v.committed(ctx, t)
	if err != nil {
		return err
	}
	looked := map[string]bool{} // Puffins
	var n, live, rowsLive, bytes, dead, vectors int64
	err = v.store.Files(t.ID, func(f *statestore.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		n++
		v.told("table "+t.Name+": files", n, t.Files)
		path := dataPath(t, f)
		if !f.Gone {
			live++
			rowsLive += f.Rows
			bytes += f.Bytes
		}
		if f.Published && f.Vector != nil {
			vectors++
			dead += f.Vector.Cardinality
		}
		v.out.Files++
		x := files[path]
		delete(files, path)
		if !f.Gone || x != nil { // of one that left, the state keeps that it was there
			if err := v.dataObject(ctx, t, f, path); err != nil {
				return err
			}
		}
		if files == nil || f.Gone && x == nil {
			return nil
		}
		switch {
		case x == nil && f.Published:
			v.find("catalog", t.Name, "data file %s is in the state's last snapshot, but no manifest lists it", path)
			return nil
		case x != nil && !f.Published:
			v.find("catalog", t.Name, "data file %s is listed by the snapshot, but the state has not published it", path)
			return nil
		case x == nil:
			return nil
		}
		if x.file.Records != f.Rows || x.file.Bytes != f.Bytes {
			v.find("catalog", t.Name, "data file %s: its manifest says %d rows and %d bytes, the state %d and %d", path, x.file.Records, x.file.Bytes, f.Rows, f.Bytes)
		}
		if x.file.FirstRowID != nil && *x.file.FirstRowID != f.RowID {
			v.find("catalog", t.Name, "data file %s: its manifest says first row id %d, the state %d", path, *x.file.FirstRowID, f.RowID)
		}
		if x.sequence != f.Sequence {
			v.find("catalog", t.Name, "data file %s: its manifest says sequence number %d, the state %d", path, x.sequence, f.Sequence)
		}
		return v.vector(ctx, t, f, path, x, looked)
	})
	if err != nil {
		return err
	}
	for path := range files {
		v.find("catalog", t.Name, "data file %s is listed by the snapshot, but the state does not know it", path)
	}
	if live != t.Files || rowsLive != t.Rows || bytes != t.Bytes || vectors != t.Vectors {
		v.find("state", t.Name, "the state counts %d files, %d rows, %d bytes and %d vectors; its entries are %d, %d, %d and %d",
			t.Files, t.Rows, t.Bytes, t.Vectors, live, rowsLive, bytes, vectors)
	}
	return nil
}

// object is Stat, whose findings name what is missing.
func (v *verifier) object(ctx context.Context, table, what, location string, want int64) (ok bool, err error) {
	key, inside := v.o.Store.Key(location)
	if !inside {
		v.skip("table %s: %s %s lies outside of the warehouse", table, what, location)
		return false, nil
	}
	info, err := v.o.Store.Stat(ctx, key)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		v.find("object", table, "%s %s is missing", what, location)
		return false, nil
	case err != nil:
		return false, err
	case want >= 0 && info.Size != want:
		v.find("object", table, "%s %s has %d bytes, not %d", what, location, info.Size, want)
		return false, nil
	}
	return true, nil
}

func (v *verifier) dataObject(ctx context.Context, t *statestore.TableInfo, f *statestore.FileInfo, path string) error {
	ok, err := v.object(ctx, t.Name, "data file", path, f.Bytes)
	if err != nil || !ok || !v.o.Deep {
		return err
	}
	key, _ := v.o.Store.Key(path)
	obj, err := v.o.Store.Open(ctx, key)
	if err != nil {
		return err
	}
	defer obj.Close()
	file, err := rows.Open(obj, obj.Size())
	switch {
	case err != nil:
		v.find("object", t.Name, "data file %s cannot be read: %v", path, err)
	case file.NumRows() != f.Rows:
		v.find("object", t.Name, "data file %s has %d rows by its footer, %d by the state", path, file.NumRows(), f.Rows)
	}
	return nil
}

// vector holds a file's vector against the state, and its bytes against both.
func (v *verifier) vector(ctx context.Context, t *statestore.TableInfo, f *statestore.FileInfo, path string, x *listed, looked map[string]bool) error {
	if f.Vector == nil && x.vector == nil {
		return nil
	}
	if f.Vector == nil || x.vector == nil {
		who := "the state"
		if f.Vector == nil {
			who = "the snapshot"
		}
		v.find("vector", t.Name, "data file %s: only %s has a vector of it", path, who)
		return nil
	}
	v.out.Vectors++
	d := x.vector
	puffin := f.Vector.Puffin
	if !strings.Contains(puffin, "://") && !strings.HasPrefix(puffin, "/") {
		puffin = t.Definition.Location + "/metadata/" + puffin
	}
	if d.Path != puffin || d.ContentOffset == nil || d.ContentSize == nil || *d.ContentOffset != f.Vector.Offset || *d.ContentSize != f.Vector.Length ||
		d.Records != f.Vector.Cardinality || x.vectorAt != f.Vector.Sequence {
		v.find("vector", t.Name, "data file %s: the snapshot's vector is another one than the state's %s", path, puffin)
		return nil
	}
	key, inside := v.o.Store.Key(d.Path)
	if !inside {
		return nil
	}
	if !looked[d.Path] {
		looked[d.Path] = true
		v.out.Objects++
		if ok, err := v.object(ctx, t.Name, "Puffin", d.Path, d.Bytes); err != nil || !ok {
			return err
		}
	}
	if !v.o.Deep {
		return nil
	}
	obj, err := v.o.Store.Open(ctx, key)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil // told
	}
	if err != nil {
		return err
	}
	defer obj.Close()
	if f.Vector.Offset < 0 || f.Vector.Length < 0 || f.Vector.Offset+f.Vector.Length > obj.Size() {
		v.find("vector", t.Name, "Puffin %s ends before the vector of %s", d.Path, path)
		return nil
	}
	blob := make([]byte, f.Vector.Length)
	if _, err := obj.ReadAt(blob, f.Vector.Offset); err != nil {
		return fmt.Errorf("read %s: %w", d.Path, err)
	}
	vec, err := dv.Decode(blob)
	if err != nil {
		v.find("vector", t.Name, "Puffin %s: the vector of %s is damaged: %v", d.Path, path, err)
		return nil
	}
	if n := vec.Cardinality(); n != uint64(f.Vector.Cardinality) {
		v.find("vector", t.Name, "Puffin %s: the vector of %s holds %d positions, not %d", d.Path, path, n, f.Vector.Cardinality)
	}
	if top, ok := vec.Max(); ok && top >= uint64(f.Rows) {
		v.find("vector", t.Name, "Puffin %s: the vector of %s names row %d of %d", d.Path, path, top, f.Rows)
		return nil
	}
	if f.Moved { // what a job carried over is in the vector, and dead elsewhere
		return nil
	}
	dead, err := dv.ReadBitmap(deadSet(f))
	if err != nil {
		return err
	}
	for p := range vec.All() {
		if !dead.Contains(uint32(p)) {
			v.find("vector", t.Name, "Puffin %s: the vector of %s names row %d, which is live", d.Path, path, p)
			break
		}
	}
	return nil
}

func deadSet(f *statestore.FileInfo) []byte {
	if f.Dead == nil {
		return dv.Empty()
	}
	return f.Dead
}

// committed reads the metadata that the state names, with the lists and
// manifests of all its snapshots, and gives the files of its current one by
// path. nil: there is none that can be read.
func (v *verifier) committed(ctx context.Context, t *statestore.TableInfo) (map[string]*listed, error) {
	if t.Head.Build < 0 {
		return map[string]*listed{}, nil // nothing was published
	}
	b, ok, err := v.read(ctx, t.Name, "metadata", t.Head.MetadataPath, -1)
	if err != nil || !ok {
		return nil, err
	}
	if t.Head.MetadataHash != (record.Hash{}) && record.Hash(sha256.Sum256(b)) != t.Head.MetadataHash {
		v.find("catalog", t.Name, "metadata %s has other bytes than the log confirmed", t.Head.MetadataPath)
		return nil, nil
	}
	m, err := iceberg.ParseMetadata(b)
	if err != nil {
		v.find("catalog", t.Name, "metadata %s: %v", t.Head.MetadataPath, err)
		return nil, nil
	}
	current := int64(0)
	if s := m.Current(); s != nil {
		current = s.ID
	}
	if current != t.Head.SnapshotID || m.LastSequence != t.Head.Sequence || m.NextRowID != t.Head.NextRowID {
		v.find("catalog", t.Name, "metadata %s has snapshot %d, sequence number %d and next row id %d, the state %d, %d and %d", t.Head.MetadataPath,
			current, m.LastSequence, m.NextRowID, t.Head.SnapshotID, t.Head.Sequence, t.Head.NextRowID)
	}
	for _, s := range t.Snapshots {
		if m.Snapshot(s.ID) == nil {
			v.find("catalog", t.Name, "snapshot %d is retained by the state, but not by metadata %s", s.ID, t.Head.MetadataPath)
		}
	}
	looked := map[string]bool{}
	out := map[string]*listed{}
	vectors := map[string]*listed{}
	for i := range m.Snapshots {
		s := &m.Snapshots[i]
		b, ok, err := v.read(ctx, t.Name, "manifest list", s.ManifestList, -1)
		if err != nil {
			return nil, err
		}
		if !ok {
			if s.ID == current {
				return nil, nil
			}
			continue
		}
		lines, err := iceberg.ReadManifestList(b)
		if err != nil {
			v.find("catalog", t.Name, "manifest list %s: %v", s.ManifestList, err)
			if s.ID == current {
				return nil, nil
			}
			continue
		}
		for j := range lines {
			line := &lines[j]
			if s.ID != current {
				if !looked[line.Path] {
					looked[line.Path] = true
					if err := v.olderManifest(ctx, t, line, looked); err != nil {
						return nil, err
					}
				}
				continue
			}
			if whole, err := v.manifest(ctx, t, line, out, vectors); err != nil || !whole {
				return nil, err
			}
		}
	}
	for path, x := range vectors {
		y := out[path]
		if y == nil {
			v.find("vector", t.Name, "the snapshot has a vector of %s, which it does not list", path)
			continue
		}
		y.vector, y.vectorAt = x.vector, x.vectorAt
	}
	return out, nil
}

// read is an object's bytes; a missing one is a finding.
func (v *verifier) read(ctx context.Context, table, what, location string, want int64) ([]byte, bool, error) {
	v.out.Objects++
	if ok, err := v.object(ctx, table, what, location, want); err != nil || !ok {
		return nil, false, err
	}
	key, _ := v.o.Store.Key(location)
	b, err := v.o.Store.ReadAll(ctx, key, maxListBytes)
	if errors.Is(err, objstore.ErrNotFound) || errors.Is(err, objstore.ErrTooLarge) {
		v.find("object", table, "%s %s: %v", what, location, err)
		return nil, false, nil
	}
	return b, err == nil, err
}

// olderManifest looks at the objects of a manifest of an older snapshot that is
// still retained.
func (v *verifier) olderManifest(ctx context.Context, t *statestore.TableInfo, line *iceberg.ManifestFile, looked map[string]bool) error {
	b, ok, err := v.read(ctx, t.Name, "manifest", line.Path, line.Length)
	if err != nil || !ok {
		return err
	}
	m, err := iceberg.ReadManifest(b)
	if err != nil {
		v.find("catalog", t.Name, "manifest %s: %v", line.Path, err)
		return nil
	}
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.Status == iceberg.Deleted || looked[e.File.Path] {
			continue
		}
		looked[e.File.Path] = true
		v.out.Objects++
		what := "data file"
		if e.File.Content != iceberg.Data {
			what = "Puffin"
		}
		if _, err := v.object(ctx, t.Name, what, e.File.Path, e.File.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// manifest adds what a manifest of the current snapshot lists.
func (v *verifier) manifest(ctx context.Context, t *statestore.TableInfo, line *iceberg.ManifestFile, out, vectors map[string]*listed) (whole bool, err error) {
	b, ok, err := v.read(ctx, t.Name, "manifest", line.Path, line.Length)
	if err != nil || !ok {
		return false, err
	}
	m, err := iceberg.ReadManifest(b)
	if err == nil {
		err = m.Inherit(line)
	}
	if err != nil {
		v.find("catalog", t.Name, "manifest %s: %v", line.Path, err)
		return false, nil
	}
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.Status == iceberg.Deleted {
			continue
		}
		seq := int64(-1)
		if e.Sequence != nil {
			seq = *e.Sequence
		}
		small := iceberg.DataFile{
			Path: e.File.Path, Records: e.File.Records, Bytes: e.File.Bytes, FirstRowID: e.File.FirstRowID,
			ContentOffset: e.File.ContentOffset, ContentSize: e.File.ContentSize,
		}
		path, to, x := e.File.Path, out, &listed{file: small, sequence: seq}
		if e.File.Content != iceberg.Data {
			if e.File.ReferencedDataFile == nil {
				v.find("catalog", t.Name, "manifest %s lists delete file %s, which is no vector", line.Path, e.File.Path)
				continue
			}
			path, to, x = *e.File.ReferencedDataFile, vectors, &listed{vector: &small, vectorAt: seq}
		}
		if to[path] != nil {
			v.find("catalog", t.Name, "the snapshot lists %s twice, or two vectors of it (manifest %s)", path, line.Path)
			continue
		}
		to[path] = x
	}
	return true, nil
}
