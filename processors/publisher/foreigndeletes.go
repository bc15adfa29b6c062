package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors/deletefiles"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/statestore"
)

// strike finds the rows that the new head's delete files end (H15). Those that the
// head had already end what they ended before: nothing, where a row is dead.
func (r *foreignReader) strike(ctx context.Context, after, both *listing) error {
	deletes := slices.Concat(after.deletes, both.deletes)
	r.rec.Deletes = int64(len(deletes))
	// Their entries leave in manifests that we write (T8).
	for _, e := range deletes {
		ours := r.f.Known.Definition.Spec(e.File.SpecID)
		if theirs, err := r.m.meta.Spec(int64(e.File.SpecID)); ours == nil || err != nil || !sameSpec(ours, theirs) {
			return r.stopped("%s is a delete file of the partition spec %d, which varve cannot write", e.File.Path, e.File.SpecID)
		}
	}
	var err error
	r.struck, err = r.find(ctx, deletes, [...]*listing{after, both}, func(string) bool { return true })
	return err
}

// ended is what the head's own delete files had ended of some of its files.
func (r *foreignReader) ended(ctx context.Context, before, both *listing, of func(path string) bool) (map[string]*roaring.Bitmap, error) {
	return r.find(ctx, slices.Concat(before.deletes, both.deletes), [...]*listing{before, both}, of)
}

// find finds what delete files end of some of the files that two listings have.
func (r *foreignReader) find(ctx context.Context, deletes []*iceberg.Entry, in [2]*listing, of func(path string) bool) (map[string]*roaring.Bitmap, error) {
	if len(deletes) == 0 {
		return nil, nil
	}
	var data []deletefiles.Data
	for _, l := range in {
		for path, e := range l.files {
			if !of(path) {
				continue
			}
			x := deletefiles.Data{File: &e.File, Sequence: *e.Sequence, Dead: roaring.New()}
			for _, l := range in {
				if v, has := l.vectors[path]; has && *v.Sequence >= x.Sequence {
					x.Vector = true
				}
			}
			data = append(data, x)
		}
	}
	if len(data) == 0 {
		return nil, nil
	}
	r.p.cfg.Logger.Info("looking for the rows that delete files of another writer end", "table", r.f.Definition.Name,
		"snapshot", mainOf(r.m.meta), "delete_files", len(deletes), "data_files", len(data))
	finder := deletefiles.Finder{
		Open:   r.open,
		Schema: r.f.Known.Definition.Schema(),
		Spec: func(id int32) *schemas.Spec {
			if s, err := r.m.meta.Spec(int64(id)); err == nil {
				return s
			}
			return nil
		},
	}
	err := finder.Find(ctx, deletes, data)
	if errors.Is(err, deletefiles.ErrDeletes) {
		return nil, r.stopped("%v", err)
	}
	if err != nil {
		return nil, err
	}
	out := map[string]*roaring.Bitmap{}
	for i := range data {
		if !data[i].Dead.IsEmpty() {
			out[data[i].File.Path] = data[i].Dead
		}
	}
	return out, nil
}

// leaving is a delete file of another writer, and the path of the manifest that
// lists it.
type leaving struct {
	*iceberg.Entry
	manifest string
}

// others finds the delete files of other writers that the base lists: they leave
// with this commit, because all that they end is dead in the state, and its vectors
// have it (H15).
func (p *Publisher) others(ctx context.Context, f *statestore.FrozenCut, b *base) (out []leaving, err error) {
	if f.Head.Deletes == 0 {
		return nil, nil
	}
	for i := range b.list {
		l := &b.list[i]
		if l.Content != iceberg.Deletes || l.Live() == 0 {
			continue
		}
		entries, err := p.entries(ctx, l)
		if err != nil {
			return nil, err
		}
		for j := range entries {
			if e := &entries[j]; e.Status != iceberg.Deleted && deletefiles.Is(&e.File) {
				out = append(out, leaving{e, l.Path})
			}
		}
	}
	if int64(len(out)) != f.Head.Deletes {
		return nil, fmt.Errorf("%w: the base lists %d delete files of other writers, the state counts %d", ErrInconsistent, len(out), f.Head.Deletes)
	}
	return out, nil
}
