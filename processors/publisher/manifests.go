package publisher

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// specInfo is a partition spec with the types of its tuples.
type specInfo struct {
	spec  *schemas.Spec
	types []schemas.Type
}

// readSpecs reads the specs and the current schema of the next metadata. A
// spec's source column is looked for in the current schema, then in older ones.
func (n *next) readSpecs() error {
	m := n.meta
	current, err := m.Schema(m.CurrentSchema)
	if err != nil {
		return err
	}
	from := []*schemas.Schema{current}
	for i := len(m.Schemas) - 1; i >= 0; i-- {
		if m.Schemas[i].ID == m.CurrentSchema {
			n.schema = m.Schemas[i].JSON
		} else if s, err := m.Schema(m.Schemas[i].ID); err == nil {
			from = append(from, s)
		}
	}
	n.specs = map[int32]*specInfo{}
	for i := range m.Specs {
		spec, err := m.Spec(m.Specs[i].ID)
		if err != nil {
			return err
		}
		types, err := iceberg.PartitionTypes(spec, from...)
		if err != nil {
			return err
		}
		n.specs[spec.ID] = &specInfo{spec, types}
	}
	return nil
}

// manifestPlan is one manifest to be written: new entries, or what is left of
// older manifests.
type manifestPlan struct {
	content  iceberg.Content
	spec     int32
	added    []iceberg.Entry
	files    []uint64               // the added entries' data files
	replaces []iceberg.ManifestFile // in the base's order
	numbers  []int64                // theirs
}

// identityOf is what makes a manifest entry one of its kind (V4).
type identityOf struct {
	path   string
	offset int64
}

func entryIdentity(e *iceberg.Entry) identityOf {
	id := identityOf{path: e.File.Path, offset: -1}
	if e.File.ContentOffset != nil {
		id.offset = *e.File.ContentOffset
	}
	return id
}

// snapshotPlan is what becomes of the manifests.
type snapshotPlan struct {
	keep []iceberg.ManifestFile // listed as they are
	new  []manifestPlan         // data first, ascending by spec: added, then rewritten
	gone map[string]map[identityOf]bool
	dead []int64 // numbers of manifests that the base lists for the last time
}

// kind is a spec and a content: what one manifest holds (M3).
type kind struct {
	content iceberg.Content
	spec    int32
}

// plan decides which manifests are written, rewritten, merged and kept.
func (n *next) plan(f *statestore.FrozenCut, b *base, added map[uint64]iceberg.DataFile, v *published, leave []leaving) (*snapshotPlan, error) {
	out := &snapshotPlan{gone: map[string]map[identityOf]bool{}}
	snapshotID := n.id // a copy: cached entries must not hold on to all of n
	fresh := map[kind]*manifestPlan{}
	enter := func(content iceberg.Content, id uint64, d iceberg.DataFile, sequence *int64) {
		k := kind{content, d.SpecID}
		m := fresh[k]
		if m == nil {
			m = &manifestPlan{content: content, spec: d.SpecID}
			fresh[k] = m
		}
		m.added = append(m.added, iceberg.Entry{Status: iceberg.Added, SnapshotID: &snapshotID, Sequence: sequence, File: d})
		m.files = append(m.files, id)
	}
	loseFrom := func(path string, id identityOf) {
		if out.gone[path] == nil {
			out.gone[path] = map[identityOf]bool{}
		}
		out.gone[path][id] = true
	}
	lose := func(number int64, id identityOf) error {
		path := f.Manifests[number]
		if path == "" {
			return fmt.Errorf("%w: the state has no manifest %d, which lists %s", ErrInconsistent, number, id.path)
		}
		loseFrom(path, id)
		return nil
	}
	for i := range leave {
		loseFrom(leave[i].manifest, entryIdentity(leave[i].Entry))
	}
	for i := range f.Files {
		x := &f.Files[i]
		if d, ok := added[x.ID]; ok {
			var sequence *int64 // the snapshot's
			if x.Sequence != 0 {
				n := x.Sequence // an output of a job has its plan's (S3)
				sequence = &n
			}
			enter(iceberg.Data, x.ID, d, sequence)
		}
		if d, ok := v.files[x.ID]; ok {
			enter(iceberg.Deletes, x.ID, d, nil)
		}
		if x.Removed {
			if err := lose(x.Manifest, identityOf{dataPath(f, x), -1}); err != nil {
				return nil, err
			}
		}
		if x.Vector != nil {
			if err := lose(x.Vector.Manifest, identityOf{x.Vector.Puffin, x.Vector.Offset}); err != nil {
				return nil, err
			}
		}
	}
	numbers := make(map[string]int64, len(f.Manifests))
	for k, path := range f.Manifests {
		numbers[path] = k
	}
	return out, out.arrange(b, fresh, numbers)
}

// arrange sorts the base's manifests into kept, rewritten and merged ones.
func (s *snapshotPlan) arrange(b *base, fresh map[kind]*manifestPlan, numbers map[string]int64) error {
	lines := map[kind][]*iceberg.ManifestFile{}
	seen := 0
	for i := range b.list {
		l := &b.list[i]
		if l.Live() == 0 { // M2
			if num, ok := numbers[l.Path]; ok {
				s.dead = append(s.dead, num)
			}
			continue
		}
		k := kind{l.Content, l.SpecID}
		lines[k] = append(lines[k], l)
		if s.gone[l.Path] != nil {
			seen++
		}
	}
	if seen != len(s.gone) {
		return fmt.Errorf("%w: the base lists %d of the %d manifests that lose entries", ErrInconsistent, seen, len(s.gone))
	}
	kinds := map[kind]bool{}
	for k := range lines {
		kinds[k] = true
	}
	for k := range fresh {
		kinds[k] = true
	}
	for _, k := range sortedKinds(kinds) {
		if m := fresh[k]; m != nil {
			s.new = append(s.new, *m)
		}
		small := 0
		if fresh[k] != nil {
			small = 1
		}
		for _, l := range lines[k] {
			if l.Length < MergeBelowBytes {
				small++
			}
		}
		merge := small > MergeAbove
		var open *manifestPlan // takes whole manifests until it is full
		var size int64
		for _, l := range lines[k] {
			if s.gone[l.Path] == nil && !(merge && l.Length < MergeBelowBytes) {
				s.keep = append(s.keep, *l)
				continue
			}
			number, ok := numbers[l.Path]
			if !ok {
				return fmt.Errorf("%w: the state has no number for the manifest %s", ErrInconsistent, l.Path)
			}
			if open == nil || size+l.Length > MergeBelowBytes {
				s.new = append(s.new, manifestPlan{content: k.content, spec: k.spec})
				open, size = &s.new[len(s.new)-1], 0
			}
			open.replaces, open.numbers = append(open.replaces, *l), append(open.numbers, number)
			size += l.Length
		}
	}
	return nil
}

func sortedKinds(m map[kind]bool) []kind {
	out := make([]kind, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b kind) int {
		if a.content != b.content {
			return int(a.content) - int(b.content)
		}
		return int(a.spec) - int(b.spec)
	})
	return out
}

// rewrite is the entries of a manifest that takes the place of others: what
// leaves is DELETED by this snapshot, the rest EXISTING with its own numbers.
// Entries that an earlier snapshot removed are not carried (M2).
func (p *Publisher) rewrite(ctx context.Context, n *next, s *snapshotPlan, m *manifestPlan) ([]iceberg.Entry, error) {
	var out []iceberg.Entry
	snapshotID := n.id
	for i := range m.replaces {
		line := &m.replaces[i]
		entries, err := p.entries(ctx, line)
		if err != nil {
			return nil, err
		}
		gone, left := s.gone[line.Path], 0
		for j := range entries {
			e := entries[j]
			if e.Status == iceberg.Deleted {
				continue
			}
			e.Status = iceberg.Existing
			if gone[entryIdentity(&e)] {
				e.Status, e.SnapshotID = iceberg.Deleted, &snapshotID
				left++
			}
			out = append(out, e)
		}
		if left != len(gone) {
			return nil, fmt.Errorf("%w: the manifest %s has %d of the %d entries that leave it", ErrInconsistent, line.Path, left, len(gone))
		}
	}
	return out, nil
}

// writeManifests writes the new manifests and makes the lines of the list and
// the record's entries.
func (p *Publisher) writeManifests(ctx context.Context, n *next, s *snapshotPlan) error {
	c := &n.result.Committed
	rowID := n.meta.NextRowID
	var data, deletes []iceberg.ManifestFile
	for i := range s.keep {
		if s.keep[i].Content == iceberg.Data {
			data = append(data, s.keep[i])
		} else {
			deletes = append(deletes, s.keep[i])
		}
	}
	vectorAt := make(map[uint64]int, len(c.Vectors))
	for i := range c.Vectors {
		vectorAt[c.Vectors[i].File] = i
	}
	for i := range s.new {
		m := &s.new[i]
		entries := m.added
		if m.replaces != nil {
			var err error
			if entries, err = p.rewrite(ctx, n, s, m); err != nil {
				return err
			}
		}
		spec := n.specs[m.spec]
		if spec == nil {
			return fmt.Errorf("%w: the table has no partition spec %d", ErrInconsistent, m.spec)
		}
		text, stats, err := iceberg.WriteManifest(iceberg.ManifestOptions{
			SchemaJSON: n.schema, SchemaID: int32(n.meta.CurrentSchema), Spec: spec.spec, PartitionTypes: spec.types,
			Content: m.content, SnapshotID: n.id, Sequence: n.sequence,
		}, entries)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInconsistent, err)
		}
		line := stats.File
		line.Path = n.path(n.attempt.ManifestName(n.id, i))
		if err := p.create(ctx, line.Path, text); err != nil {
			return err
		}
		at := int32(len(c.Manifests))
		if m.content == iceberg.Data {
			first := rowID
			start := first
			line.FirstRowID = &start
			rowID += stats.NewRowIDs
			data = append(data, line)
			for j, id := range m.files {
				c.Files = append(c.Files, record.FileRowID{File: id, FirstRowID: first, Manifest: at})
				first += entries[j].File.Records
			}
		} else {
			deletes = append(deletes, line)
			for _, id := range m.files {
				c.Vectors[vectorAt[id]].Manifest = at
			}
		}
		c.Manifests = append(c.Manifests, record.ManifestInfo{
			Path: line.Path, Bytes: line.Length, Content: uint8(m.content), SpecID: m.spec, Replaces: m.numbers,
		})
		if err := p.keepEntries(&line, entries); err != nil {
			return err
		}
	}
	// Numbers of manifests without live entries end with any new manifest.
	if len(s.dead) > 0 {
		c.Manifests[0].Replaces = append(slices.Clone(c.Manifests[0].Replaces), s.dead...)
	}
	for i := range c.Manifests {
		slices.Sort(c.Manifests[i].Replaces)
	}
	slices.SortFunc(c.Files, func(a, b record.FileRowID) int { return cmp.Compare(a.File, b.File) })
	c.AddedRows = rowID - n.meta.NextRowID
	n.list = append(data, deletes...)
	return nil
}

// keepEntries puts a manifest just written into the cache, as reading it would.
func (p *Publisher) keepEntries(line *iceberg.ManifestFile, entries []iceberg.Entry) error {
	m := iceberg.Manifest{Entries: slices.Clone(entries)}
	if err := m.Inherit(line); err != nil {
		return fmt.Errorf("%w: %w", ErrInconsistent, err)
	}
	p.cache.put(line.Path, m.Entries)
	return nil
}
