package topology

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/varve-io/varve/processors/deletefiles"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// maxListBytes bounds a manifest, a list and table metadata.
const maxListBytes = 1 << 30

// listed is what the current snapshot says of a data file, or of its vector.
type listed struct {
	path          string // of the Puffin
	records       int64
	bytes         int64
	firstRowID    int64 // -1: none
	contentOffset int64 // of the vector, -1: none
	contentSize   int64
	sequence      int64
}

func (l *listed) encode(dst []byte) []byte {
	for _, n := range [...]int64{l.records, l.bytes, l.firstRowID, l.contentOffset, l.contentSize, l.sequence} {
		dst = binary.AppendVarint(dst, n)
	}
	return append(dst, l.path...)
}

var errScratch = errors.New("the scratch folder was changed by another program")

func decodeListed(b []byte) (*listed, error) {
	l := &listed{}
	for _, n := range [...]*int64{&l.records, &l.bytes, &l.firstRowID, &l.contentOffset, &l.contentSize, &l.sequence} {
		x, size := binary.Varint(b)
		if size <= 0 {
			return nil, errScratch
		}
		*n, b = x, b[size:]
	}
	l.path = string(b)
	return l, nil
}

// takeListed is what the snapshot says of a data file or its vector, nil: nothing.
// What is left at the end nobody knew.
func (v *verifier) takeListed(space byte, table int64, path string) (*listed, error) {
	b, err := v.names.take(space, table, path)
	if b == nil || err != nil {
		return nil, err
	}
	return decodeListed(b)
}

// firstLook says that an object of a table was not looked at before.
func (v *verifier) firstLook(table int64, path string) (bool, error) {
	return v.names.put(scratchLooked, table, path, nil)
}

// dataPath is the location of a data file.
func dataPath(t *statestore.TableInfo, f *statestore.FileInfo) string {
	return f.At(t.Definition.Location, t.ID)
}

// catalog holds a table's state against its metadata, and that against the
// objects of the store.
func (v *verifier) catalog(ctx context.Context, t *statestore.TableInfo) error {
	read, err := v.committed(ctx, t)
	if err != nil {
		return err
	}
	// Puffins are looked at again: an older snapshot may have named another length.
	if err := v.names.drop(t.ID, scratchLooked); err != nil {
		return err
	}
	var n, live, rowsLive, bytes, vectors int64
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
		}
		v.out.Files++
		x, err := v.takeListed(scratchFile, t.ID, path)
		if err != nil {
			return err
		}
		y, err := v.takeListed(scratchVector, t.ID, path)
		if err != nil {
			return err
		}
		if !f.Gone || x != nil { // of one that left, the state keeps that it was there
			if err := v.dataObject(ctx, t, f, path); err != nil {
				return err
			}
		}
		if !read {
			return nil
		}
		if x == nil && y != nil {
			v.find("vector", t.Name, "the snapshot has a vector of %s, which it does not list", path)
		}
		switch {
		case x == nil && f.Gone:
			return nil
		case x == nil && f.Published:
			v.find("catalog", t.Name, "data file %s is in the state's last snapshot, but no manifest lists it", path)
			return nil
		case x != nil && !f.Published:
			v.find("catalog", t.Name, "data file %s is listed by the snapshot, but the state has not published it", path)
			return nil
		case x == nil:
			return nil
		}
		if x.records != f.Rows || x.bytes != f.Bytes {
			v.find("catalog", t.Name, "data file %s: its manifest says %d rows and %d bytes, the state %d and %d", path, x.records, x.bytes, f.Rows, f.Bytes)
		}
		if x.firstRowID >= 0 && x.firstRowID != f.RowID {
			v.find("catalog", t.Name, "data file %s: its manifest says first row id %d, the state %d", path, x.firstRowID, f.RowID)
		}
		if x.sequence != f.Sequence {
			v.find("catalog", t.Name, "data file %s: its manifest says sequence number %d, the state %d", path, x.sequence, f.Sequence)
		}
		return v.vector(ctx, t, f, path, y)
	})
	if err != nil {
		return err
	}
	if read {
		if err := v.names.each(scratchFile, t.ID, func(path string, _ []byte) error {
			v.find("catalog", t.Name, "data file %s is listed by the snapshot, but the state does not know it", path)
			return nil
		}); err != nil {
			return err
		}
		if err := v.names.each(scratchVector, t.ID, func(path string, _ []byte) error {
			if x, err := v.names.get(scratchFile, t.ID, path); x != nil || err != nil {
				return err // told
			}
			v.find("vector", t.Name, "the snapshot has a vector of %s, which it does not list", path)
			return nil
		}); err != nil {
			return err
		}
	}
	if live != t.Files || rowsLive != t.Rows || bytes != t.Bytes || vectors != t.Vectors {
		v.find("state", t.Name, "the state counts %d files, %d rows, %d bytes and %d vectors; its entries are %d, %d, %d and %d",
			t.Files, t.Rows, t.Bytes, t.Vectors, live, rowsLive, bytes, vectors)
	}
	return v.names.drop(t.ID, scratchFile, scratchVector, scratchLooked)
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
func (v *verifier) vector(ctx context.Context, t *statestore.TableInfo, f *statestore.FileInfo, path string, d *listed) error {
	if f.Vector == nil && d == nil {
		return nil
	}
	if f.Vector == nil || d == nil {
		who := "the state"
		if f.Vector == nil {
			who = "the snapshot"
		}
		v.find("vector", t.Name, "data file %s: only %s has a vector of it", path, who)
		return nil
	}
	v.out.Vectors++
	puffin := f.Vector.Puffin
	if !strings.Contains(puffin, "://") && !strings.HasPrefix(puffin, "/") {
		puffin = t.Definition.Location + "/metadata/" + puffin
	}
	if d.path != puffin || d.contentOffset != f.Vector.Offset || d.contentSize != f.Vector.Length ||
		d.records != f.Vector.Cardinality || d.sequence != f.Vector.Sequence {
		v.find("vector", t.Name, "data file %s: the snapshot's vector is another one than the state's %s", path, puffin)
		return nil
	}
	key, inside := v.o.Store.Key(d.path)
	if !inside {
		return nil
	}
	fresh, err := v.firstLook(t.ID, d.path)
	if err != nil {
		return err
	}
	if fresh {
		v.out.Objects++
		if ok, err := v.object(ctx, t.Name, "Puffin", d.path, d.bytes); err != nil || !ok {
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
		v.find("vector", t.Name, "Puffin %s ends before the vector of %s", d.path, path)
		return nil
	}
	blob := make([]byte, f.Vector.Length)
	if _, err := obj.ReadAt(blob, f.Vector.Offset); err != nil {
		return fmt.Errorf("read %s: %w", d.path, err)
	}
	vec, err := dv.Decode(blob)
	if err != nil {
		v.find("vector", t.Name, "Puffin %s: the vector of %s is damaged: %v", d.path, path, err)
		return nil
	}
	if n := vec.Cardinality(); n != uint64(f.Vector.Cardinality) {
		v.find("vector", t.Name, "Puffin %s: the vector of %s holds %d positions, not %d", d.path, path, n, f.Vector.Cardinality)
	}
	if top, ok := vec.Max(); ok && top >= uint64(f.Rows) {
		v.find("vector", t.Name, "Puffin %s: the vector of %s names row %d of %d", d.path, path, top, f.Rows)
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
			v.find("vector", t.Name, "Puffin %s: the vector of %s names row %d, which is live", d.path, path, p)
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
// manifests of all its snapshots, and keeps the files and vectors of its current
// one by path. false: not all of it can be read.
func (v *verifier) committed(ctx context.Context, t *statestore.TableInfo) (whole bool, err error) {
	if t.Head.Build < 0 {
		return true, nil // nothing was published
	}
	b, ok, err := v.read(ctx, t.Name, "metadata", t.Head.MetadataPath, -1)
	if err != nil || !ok {
		return false, err
	}
	if t.Head.MetadataHash != (record.Hash{}) && record.Hash(sha256.Sum256(b)) != t.Head.MetadataHash {
		v.find("catalog", t.Name, "metadata %s has other bytes than the log confirmed", t.Head.MetadataPath)
		return false, nil
	}
	m, err := iceberg.ParseMetadata(b)
	if err != nil {
		v.find("catalog", t.Name, "metadata %s: %v", t.Head.MetadataPath, err)
		return false, nil
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
	deletes := int64(0)
	for i := range m.Snapshots {
		s := &m.Snapshots[i]
		b, ok, err := v.read(ctx, t.Name, "manifest list", s.ManifestList, -1)
		if err != nil {
			return false, err
		}
		if !ok {
			if s.ID == current {
				return false, nil
			}
			continue
		}
		lines, err := iceberg.ReadManifestList(b)
		if err != nil {
			v.find("catalog", t.Name, "manifest list %s: %v", s.ManifestList, err)
			if s.ID == current {
				return false, nil
			}
			continue
		}
		for j := range lines {
			line := &lines[j]
			if s.ID != current {
				fresh, err := v.firstLook(t.ID, line.Path)
				if err == nil && fresh {
					err = v.olderManifest(ctx, t, s.ManifestList, line)
				}
				if err != nil {
					return false, err
				}
				continue
			}
			n, whole, err := v.manifest(ctx, t, s.ManifestList, line)
			if err != nil || !whole {
				return false, err
			}
			deletes += n
		}
	}
	if deletes != t.Head.Deletes {
		v.find("catalog", t.Name, "the snapshot lists %d delete files that are no vectors, the state counts %d (H15)", deletes, t.Head.Deletes)
	}
	return true, nil
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
func (v *verifier) olderManifest(ctx context.Context, t *statestore.TableInfo, list string, line *iceberg.ManifestFile) error {
	b, ok, err := v.read(ctx, t.Name, "manifest (of the list "+list+")", line.Path, line.Length)
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
		if e.Status == iceberg.Deleted {
			continue
		}
		if fresh, err := v.firstLook(t.ID, e.File.Path); err != nil {
			return err
		} else if !fresh {
			continue
		}
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

// manifest adds what a manifest of the current snapshot lists, and counts the delete
// files of other writers in it.
func (v *verifier) manifest(ctx context.Context, t *statestore.TableInfo, list string, line *iceberg.ManifestFile) (deletes int64, whole bool, err error) {
	b, ok, err := v.read(ctx, t.Name, "manifest (of the list "+list+")", line.Path, line.Length)
	if err != nil || !ok {
		return 0, false, err
	}
	m, err := iceberg.ReadManifest(b)
	if err == nil {
		err = m.Inherit(line)
	}
	if err != nil {
		v.find("catalog", t.Name, "manifest %s: %v", line.Path, err)
		return 0, false, nil
	}
	var scratch []byte
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.Status == iceberg.Deleted {
			continue
		}
		seq := int64(-1)
		if e.Sequence != nil {
			seq = *e.Sequence
		}
		x := listed{records: e.File.Records, bytes: e.File.Bytes, firstRowID: -1, contentOffset: -1, contentSize: -1, sequence: seq}
		for _, n := range [...]struct{ from, to *int64 }{
			{e.File.FirstRowID, &x.firstRowID}, {e.File.ContentOffset, &x.contentOffset}, {e.File.ContentSize, &x.contentSize},
		} {
			if n.from != nil {
				*n.to = *n.from
			}
		}
		space, path := byte(scratchFile), e.File.Path
		if e.File.Content != iceberg.Data {
			if deletefiles.Is(&e.File) {
				deletes++
				v.out.Objects++
				if _, err := v.object(ctx, t.Name, "delete file", e.File.Path, e.File.Bytes); err != nil {
					return 0, false, err
				}
				continue
			}
			if e.File.ReferencedDataFile == nil {
				v.find("catalog", t.Name, "manifest %s lists a vector in %s, which does not say of which file it is", line.Path, e.File.Path)
				continue
			}
			space, path, x.path = scratchVector, *e.File.ReferencedDataFile, e.File.Path
		}
		scratch = x.encode(scratch[:0])
		fresh, err := v.names.put(space, t.ID, path, scratch)
		if err != nil {
			return 0, false, err
		}
		if !fresh {
			v.find("catalog", t.Name, "the snapshot lists %s twice, or two vectors of it (manifest %s)", path, line.Path)
		}
	}
	return deletes, true, nil
}
