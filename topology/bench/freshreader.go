package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore/objstore"
)

const freshBytes = 256 << 20

// freshReader reads a table as an engine does that has just been started: the
// version hint, metadata, manifest list, manifests, vectors. It remembers
// nothing but where in a data file the watched rows lie, which never changes.
type freshReader struct {
	store  objstore.Store
	folder string
	hint   []byte
	places map[string]map[int64]uint64 // data file → watched id → position
}

func newFreshReader(store objstore.Store, table string) *freshReader {
	ns, name := schemas.SplitName(table)
	return &freshReader{store: store, folder: ns + "/" + name, places: map[string]map[int64]uint64{}}
}

// changed says whether the hint names another version than the one read last.
func (f *freshReader) changed(ctx context.Context) (bool, error) {
	b, err := f.store.ReadAll(ctx, f.folder+"/metadata/version-hint.text", 64)
	if errors.Is(err, objstore.ErrNotFound) {
		return false, nil
	}
	return !bytes.Equal(b, f.hint), err
}

// live are the watched rows, those with an id below zero, that a reader sees now.
func (f *freshReader) live(ctx context.Context) (map[int64]bool, error) {
	hint, err := f.store.ReadAll(ctx, f.folder+"/metadata/version-hint.text", 64)
	if err != nil {
		return nil, fmt.Errorf("read the version hint: %w", err)
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(hint)))
	if err != nil {
		return nil, fmt.Errorf("read the version hint: %w", err)
	}
	b, err := f.store.ReadAll(ctx, f.folder+"/metadata/v"+strconv.Itoa(n)+".metadata.json", freshBytes)
	if err != nil {
		return nil, fmt.Errorf("read metadata version %d: %w", n, err)
	}
	m, err := iceberg.ParseMetadata(b)
	if err != nil {
		return nil, err
	}
	f.hint = hint
	out := map[int64]bool{}
	s := m.Current()
	if s == nil {
		return out, nil
	}
	if b, err = f.read(ctx, s.ManifestList); err != nil {
		return nil, err
	}
	list, err := iceberg.ReadManifestList(b)
	if err != nil {
		return nil, err
	}
	var files []iceberg.DataFile
	vectors := map[string]*iceberg.DataFile{}
	for i := range list {
		if b, err = f.read(ctx, list[i].Path); err != nil {
			return nil, err
		}
		man, err := iceberg.ReadManifest(b)
		if err != nil {
			return nil, fmt.Errorf("manifest %s: %w", list[i].Path, err)
		}
		for j := range man.Entries {
			e := &man.Entries[j]
			switch {
			case e.Status == iceberg.Deleted:
			case e.File.ReferencedDataFile != nil:
				vectors[*e.File.ReferencedDataFile] = &e.File
			case e.File.Content == iceberg.Data && lowerID(&e.File) < 0:
				files = append(files, e.File)
			}
		}
	}
	for i := range files {
		if err := f.liveIn(ctx, &files[i], vectors[files[i].Path], out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// lowerID is the lower bound of the column id.
func lowerID(d *iceberg.DataFile) int64 {
	for i := range d.Lower {
		if d.Lower[i].ID == 1 && len(d.Lower[i].Value) == 8 {
			return int64(binary.LittleEndian.Uint64(d.Lower[i].Value))
		}
	}
	return -1
}

func (f *freshReader) liveIn(ctx context.Context, d, vector *iceberg.DataFile, out map[int64]bool) error {
	places, err := f.placesIn(ctx, d.Path)
	if err != nil {
		return err
	}
	dead := func(uint64) bool { return false }
	if vector != nil {
		if vector.ContentOffset == nil || vector.ContentSize == nil {
			return fmt.Errorf("the vector of %s has no place in its Puffin", d.Path)
		}
		b, err := f.read(ctx, vector.Path)
		if err != nil {
			return err
		}
		at, size := *vector.ContentOffset, *vector.ContentSize
		if at < 0 || size < 0 || at > int64(len(b)) || size > int64(len(b))-at {
			return fmt.Errorf("the vector of %s lies outside its Puffin", d.Path)
		}
		v, err := dv.Decode(b[at : at+size])
		if err != nil {
			return fmt.Errorf("the vector of %s: %w", d.Path, err)
		}
		dead = v.Contains
	}
	for id, pos := range places {
		if !dead(pos) {
			out[id] = true
		}
	}
	return nil
}

func (f *freshReader) placesIn(ctx context.Context, path string) (map[int64]uint64, error) {
	if p, ok := f.places[path]; ok {
		return p, nil
	}
	b, err := f.read(ctx, path)
	if err != nil {
		return nil, err
	}
	file, err := rows.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, fmt.Errorf("data file %s: %w", path, err)
	}
	cols, err := file.ReadColumns([]int32{1})
	if err != nil {
		return nil, fmt.Errorf("data file %s: %w", path, err)
	}
	p := map[int64]uint64{}
	for i, id := range cols[0].Ints {
		if id < 0 {
			p[id] = uint64(i)
		}
	}
	f.places[path] = p
	return p, nil
}

func (f *freshReader) read(ctx context.Context, location string) ([]byte, error) {
	key, ok := f.store.Key(location)
	if !ok {
		return nil, fmt.Errorf("%s is outside the warehouse", location)
	}
	b, err := f.store.ReadAll(ctx, key, freshBytes)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", location, err)
	}
	return b, nil
}
