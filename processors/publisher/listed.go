package publisher

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// ReadListed fills a Rollback with all that its manifest list names, and with what
// the state knows of it, and makes sure that every file of it is there (G1, G11).
func ReadListed(ctx context.Context, store objstore.Store, st *statestore.Store, t *statestore.TableInfo, rec *record.Rollback) error {
	p := listReader{store: store, t: t, rec: rec}
	return p.read(ctx, st)
}

// listReader reads what a snapshot lists.
type listReader struct {
	store objstore.Store
	t     *statestore.TableInfo
	rec   *record.Rollback
}

// drillAtOnce is how many objects are looked at at a time.
const drillAtOnce = 16

func (p *listReader) read(ctx context.Context, st *statestore.Store) error {
	text, err := p.object(ctx, p.rec.ManifestList, 256<<20)
	if err != nil {
		return err
	}
	lines, err := iceberg.ReadManifestList(text)
	if err != nil {
		return fmt.Errorf("%s: %w", p.rec.ManifestList, err)
	}
	type place struct {
		manifest int32
		rowID    int64
		bytes    int64
	}
	files := map[string]place{}
	vectors := map[string]*record.KeptVector{}
	puffins := map[string]int32{}
	for i := range lines {
		l := &lines[i]
		if l.Live() == 0 {
			continue
		}
		at := int32(len(p.rec.Manifests))
		p.rec.Manifests = append(p.rec.Manifests, record.ManifestInfo{Path: l.Path, Bytes: l.Length, Content: uint8(l.Content), SpecID: l.SpecID})
		text, err := p.object(ctx, l.Path, l.Length)
		if err != nil {
			return err
		}
		m, err := iceberg.ReadManifest(text)
		if err == nil {
			err = m.Inherit(l)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.Path, err)
		}
		for j := range m.Entries {
			e := &m.Entries[j]
			f := &e.File
			switch {
			case e.Status == iceberg.Deleted:
			case l.Content == iceberg.Data:
				if f.FirstRowID == nil {
					return fmt.Errorf("%s: data file %s has no row ids", l.Path, f.Path)
				}
				files[f.Path] = place{at, *f.FirstRowID, f.Bytes}
			case f.ReferencedDataFile == nil || f.ContentOffset == nil || f.ContentSize == nil || e.Sequence == nil:
				return fmt.Errorf("%s: it lists %s, which is no deletion vector", l.Path, f.Path)
			default:
				n, ok := puffins[f.Path]
				if !ok {
					n = int32(len(p.rec.Puffins))
					puffins[f.Path] = n
					p.rec.Puffins = append(p.rec.Puffins, record.PuffinInfo{Path: f.Path, Bytes: f.Bytes})
				}
				vectors[*f.ReferencedDataFile] = &record.KeptVector{
					Puffin: n, Offset: *f.ContentOffset, Length: *f.ContentSize, Cardinality: f.Records, Sequence: *e.Sequence, Manifest: at,
				}
			}
		}
	}
	if err := p.dead(ctx, vectors); err != nil {
		return err
	}
	var paths []string
	var sizes []int64
	if err := st.Files(p.t.ID, func(f *statestore.FileInfo) error {
		path := f.At(p.t.Definition.Location, p.t.ID)
		at, ok := files[path]
		if !ok {
			return nil
		}
		if f.Path != "" {
			return fmt.Errorf("it lists %s, which another writer brought: a table is not rolled back to a snapshot with such files", path)
		}
		delete(files, path)
		k := record.KeptFile{File: f.ID, Rows: f.Rows, FirstRowID: at.rowID, Record: f.Record, Epoch: f.Epoch, Manifest: at.manifest}
		if f.Name != [16]byte{} {
			name := f.Name
			k.Name = name[:]
		}
		p.rec.Files = append(p.rec.Files, k)
		if v := vectors[path]; v != nil {
			v.File = f.ID
			p.rec.Vectors = append(p.rec.Vectors, *v)
			delete(vectors, path)
		}
		paths, sizes = append(paths, path), append(sizes, at.bytes)
		return nil
	}); err != nil {
		return err
	}
	for path := range files {
		return fmt.Errorf("it lists %s, which the state does not know any more", path)
	}
	for path := range vectors {
		return fmt.Errorf("it lists a vector of %s, and not that file", path)
	}
	return p.drill(ctx, paths, sizes)
}

// dead reads what the vectors hold.
func (p *listReader) dead(ctx context.Context, vectors map[string]*record.KeptVector) error {
	byPuffin := make([][]*record.KeptVector, len(p.rec.Puffins))
	for _, v := range vectors {
		byPuffin[v.Puffin] = append(byPuffin[v.Puffin], v)
	}
	return atOnce(ctx, len(byPuffin), func(i int) error {
		path := p.rec.Puffins[i].Path
		key, ok := p.store.Key(path)
		if !ok {
			return fmt.Errorf("%s does not lie in the warehouse", path)
		}
		obj, err := p.store.Open(ctx, key)
		if errors.Is(err, objstore.ErrNotFound) {
			return fmt.Errorf("%s is missing", path)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		defer obj.Close()
		for _, v := range byPuffin[i] {
			if v.Offset < 0 || v.Length < 0 || v.Offset > obj.Size()-v.Length {
				return fmt.Errorf("%s has %d bytes, and no vector at %d", path, obj.Size(), v.Offset)
			}
			blob := make([]byte, v.Length)
			if _, err := obj.ReadAt(blob, v.Offset); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			x, err := dv.Decode(blob)
			if err != nil {
				return fmt.Errorf("%s, vector at %d: %w", path, v.Offset, err)
			}
			set, ok := x.Bitmap32()
			if !ok {
				return fmt.Errorf("%s, vector at %d: it has positions past 2^32", path, v.Offset)
			}
			if v.Dead, err = dv.AppendBitmap(nil, set); err != nil {
				return fmt.Errorf("%s, vector at %d: %w", path, v.Offset, err)
			}
		}
		return nil
	})
}

// drill makes sure that data files are there, as long as the manifests say.
func (p *listReader) drill(ctx context.Context, paths []string, sizes []int64) error {
	return atOnce(ctx, len(paths), func(i int) error {
		key, ok := p.store.Key(paths[i])
		if !ok {
			return fmt.Errorf("%s does not lie in the warehouse", paths[i])
		}
		info, err := p.store.Stat(ctx, key)
		switch {
		case errors.Is(err, objstore.ErrNotFound):
			return fmt.Errorf("%s is missing", paths[i])
		case err != nil:
			return fmt.Errorf("%s: %w", paths[i], err)
		case info.Size != sizes[i]:
			return fmt.Errorf("%s has %d bytes, not %d", paths[i], info.Size, sizes[i])
		}
		return nil
	})
}

func (p *listReader) object(ctx context.Context, path string, limit int64) ([]byte, error) {
	key, ok := p.store.Key(path)
	if !ok {
		return nil, fmt.Errorf("%s does not lie in the warehouse", path)
	}
	b, err := p.store.ReadAll(ctx, key, limit)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, fmt.Errorf("%s is missing", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// atOnce calls fn with 0 … n−1, some at a time, and ends at the first error.
func atOnce(ctx context.Context, n int, fn func(i int) error) error {
	g, some := errgroup.WithContext(ctx)
	g.SetLimit(drillAtOnce)
	for i := 0; i < n && some.Err() == nil; i++ {
		g.Go(func() error { return fn(i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}
