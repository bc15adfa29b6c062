package publisher

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// adopt looks at a version above the base that is there already. When it is
// this very cut, whose SnapshotCommitted the log does not have, the record is
// made from the files that stand there (C4). Everything else is foreign.
func (p *Publisher) adopt(ctx context.Context, f *statestore.FrozenCut, b *base, version int64, text []byte) (Result, error) {
	path := metadataPath(f.Definition.Location, version)
	foreign := func(why string) (Result, error) {
		return Result{}, fmt.Errorf("%w: %s %s", ErrForeign, path, why)
	}
	var r Result
	var found *base
	if !f.Makes() {
		n, err := p.build(ctx, f, b)
		if err != nil {
			return Result{}, err
		}
		if !bytes.Equal(n.json, text) {
			if version == 1 {
				return foreign("is there, so another table has this location; choose another one")
			}
			return foreign("is there, and not ours; move it away, or wait until foreign commits can be taken in")
		}
		made := n.base
		r, found = n.result, &made
	} else {
		meta, err := iceberg.ParseMetadata(text)
		if err != nil {
			return foreign("cannot be read: " + err.Error())
		}
		id, _ := identity(f).FreeSnapshotID(b.meta, f.Build, 0)
		s := meta.Snapshot(id)
		if s == nil || meta.CurrentSnapshot == nil || *meta.CurrentSnapshot != id {
			return foreign("is there, and not ours; move it away, or wait until foreign commits can be taken in")
		}
		found = &base{hash: sha256.Sum256(text), meta: meta}
		if found.list, err = p.readList(ctx, s.ManifestList); err != nil {
			return Result{}, err
		}
		if r, err = p.recover(ctx, f, b, found, s); err != nil {
			return Result{}, fmt.Errorf("%s: %w", path, err)
		}
		r.Committed.MetadataVersion, r.Committed.MetadataPath, r.Committed.MetadataHash = version, path, found.hash
	}
	// The commit may have been cut off before its end; the same bytes finish it.
	// A newer version on top of ours is no matter of this cut.
	key, _ := p.cfg.Store.Key(f.Definition.Location)
	if err := p.cfg.Catalog.Commit(ctx, key, version, text); err != nil && !errors.Is(err, ErrConflict) {
		return Result{}, err
	}
	p.remember(key, found)
	p.cfg.Logger.Info("found published", "table", f.Definition.Name, "offset", f.Build, "version", version, "snapshot", r.Committed.SnapshotID)
	return r, nil
}

// recover makes the record of a snapshot of ours from its list and manifests.
func (p *Publisher) recover(ctx context.Context, f *statestore.FrozenCut, b, found *base, s *iceberg.Snapshot) (Result, error) {
	if s.FirstRowID == nil || s.AddedRows == nil {
		return Result{}, fmt.Errorf("%w: snapshot %d has no row ids", ErrInconsistent, s.ID)
	}
	r := Result{Committed: record.SnapshotCommitted{
		Cut: f.Cut, Build: f.Build, Parent: f.Head.SnapshotID, SnapshotID: s.ID, Sequence: s.Sequence, FirstRowID: *s.FirstRowID,
		AddedRows: *s.AddedRows, TimestampMs: s.TimestampMs, ManifestList: s.ManifestList, Operation: s.Operation,
	}}
	c := &r.Committed
	byPath := map[string]uint64{}
	for i := range f.Files {
		byPath[dataPath(f, &f.Files[i])] = f.Files[i].ID
	}
	kept := map[string]bool{}
	movedTo := map[identityOf]int{} // where an EXISTING entry is now
	type vector struct {
		record.VectorInfo
		puffin record.PuffinInfo
	}
	var vectors []vector
	for i := range found.list {
		line := &found.list[i]
		if line.AddedSnapshotID != s.ID {
			kept[line.Path] = true
			continue
		}
		at := len(c.Manifests)
		c.Manifests = append(c.Manifests, record.ManifestInfo{Path: line.Path, Bytes: line.Length, Content: uint8(line.Content), SpecID: line.SpecID})
		entries, err := p.entries(ctx, line)
		if err != nil {
			return Result{}, err
		}
		for j := range entries {
			e := &entries[j]
			d := &e.File
			switch {
			case e.Status != iceberg.Added:
				movedTo[entryIdentity(e)] = at
			case line.Content == iceberg.Data:
				id, ok := byPath[d.Path]
				if !ok || d.FirstRowID == nil {
					return Result{}, fmt.Errorf("%w: %s adds %s, which the cut does not", ErrInconsistent, line.Path, d.Path)
				}
				c.Files = append(c.Files, record.FileRowID{File: id, FirstRowID: *d.FirstRowID, Manifest: int32(at)})
			default:
				id, ok := uint64(0), false
				if d.ReferencedDataFile != nil {
					id, ok = byPath[*d.ReferencedDataFile]
				}
				if !ok || d.ContentOffset == nil || d.ContentSize == nil {
					return Result{}, fmt.Errorf("%w: %s adds a vector that the cut does not", ErrInconsistent, line.Path)
				}
				vectors = append(vectors, vector{record.VectorInfo{
					File: id, Offset: *d.ContentOffset, Length: *d.ContentSize, Cardinality: d.Records, Manifest: int32(at),
				}, record.PuffinInfo{Path: d.Path, Bytes: d.Bytes}})
			}
		}
	}
	slices.SortFunc(c.Files, func(a, b record.FileRowID) int { return cmp.Compare(a.File, b.File) })
	slices.SortFunc(vectors, func(a, b vector) int { return cmp.Compare(a.File, b.File) })
	puffins := map[string]int32{}
	for i := range vectors {
		v := &vectors[i]
		n, ok := puffins[v.puffin.Path]
		if !ok {
			n = int32(len(c.Puffins))
			puffins[v.puffin.Path] = n
			c.Puffins = append(c.Puffins, v.puffin)
			r.VectorBytes += v.puffin.Bytes
		}
		v.Puffin = n
		c.Vectors = append(c.Vectors, v.VectorInfo)
	}
	return r, p.replaced(ctx, f, b, c, kept, movedTo)
}

// replaced finds which new manifest took the place of each of the base's
// manifests that is no longer listed.
func (p *Publisher) replaced(ctx context.Context, f *statestore.FrozenCut, b *base, c *record.SnapshotCommitted, kept map[string]bool, movedTo map[identityOf]int) error {
	numbers := make(map[string]int64, len(f.Manifests))
	for k, path := range f.Manifests {
		numbers[path] = k
	}
	for i := range b.list {
		line := &b.list[i]
		number, ok := numbers[line.Path]
		if !ok || kept[line.Path] {
			continue
		}
		to := 0 // of a manifest without live entries
		if line.Live() > 0 {
			entries, err := p.entries(ctx, line)
			if err != nil {
				return err
			}
			found := false
			for j := range entries {
				if entries[j].Status != iceberg.Deleted {
					to, found = movedTo[entryIdentity(&entries[j])]
					break
				}
			}
			if !found {
				return fmt.Errorf("%w: nothing took the place of the manifest %s", ErrInconsistent, line.Path)
			}
		}
		c.Manifests[to].Replaces = append(c.Manifests[to].Replaces, number)
	}
	for i := range c.Manifests {
		slices.Sort(c.Manifests[i].Replaces)
	}
	return nil
}
