package publisher

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// next is the version in the making.
type next struct {
	base      // what it will be
	location  string
	version   int64
	attempt   iceberg.Attempt
	id        int64 // snapshot id
	sequence  int64
	timestamp int64
	specs     map[int32]*specInfo
	schema    []byte // current schema's JSON
	json      []byte
	result    Result
}

// path is the location of a metadata file.
func (n *next) path(name string) string { return n.location + "/metadata/" + name }

// build makes everything of the next version but the commit.
func (p *Publisher) build(ctx context.Context, f *statestore.FrozenCut, b *base) (*next, error) {
	n := &next{location: f.Definition.Location, version: f.Head.MetadataVersion + 1}
	if err := n.begin(f, b); err != nil {
		return nil, err
	}
	if f.Makes() {
		if b.meta == nil {
			return nil, fmt.Errorf("%w: a first cut with files", ErrInconsistent)
		}
		if err := p.snapshot(ctx, f, b, n); err != nil {
			return nil, err
		}
	}
	if f.Rollback != 0 {
		s := b.meta.Snapshot(f.Rollback)
		if s == nil {
			return nil, fmt.Errorf("%w: the metadata has no snapshot %d to roll back to", ErrInconsistent, f.Rollback)
		}
		var err error
		if n.list, err = p.readList(ctx, s.ManifestList); err != nil {
			return nil, err
		}
	}
	return n, n.end(f, b)
}

// begin makes the next metadata without its snapshot.
func (n *next) begin(f *statestore.FrozenCut, b *base) (err error) {
	n.result.Committed = record.SnapshotCommitted{
		Cut: f.Cut, Build: f.Build, Parent: f.Head.SnapshotID, Sequence: f.Head.Sequence, FirstRowID: f.Head.NextRowID,
	}
	if b.meta == nil {
		n.timestamp = (&iceberg.Metadata{}).NextTimestamp(f.TimeMs)
		n.meta, err = iceberg.NewTable(f.Definition, identity(f).UUID(), n.timestamp)
		return err
	}
	n.meta = b.meta.Clone()
	n.list = b.list
	n.timestamp = b.meta.NextTimestamp(f.TimeMs)
	if f.DefChanged {
		return applyDefinition(n.meta, f.Definition)
	}
	return nil
}

// end expires snapshots, enters the base in the metadata log and makes the bytes.
func (n *next) end(f *statestore.FrozenCut, b *base) (err error) {
	c := &n.result.Committed
	if b.meta != nil {
		if c.SnapshotID == 0 {
			if err := n.meta.Touch(n.timestamp); err != nil {
				return err
			}
		}
		if f.Rollback != 0 { // S8
			if err := n.meta.SetRef(iceberg.MainBranch, "branch", f.Rollback); err != nil {
				return fmt.Errorf("%w: %w", ErrInconsistent, err)
			}
		}
		if err := applyRefs(n.meta, &f.Refs); err != nil {
			return fmt.Errorf("%w: %w", ErrInconsistent, err)
		}
		if err := n.meta.RemoveSnapshots(unreferenced(n.meta, f.Expire)); err != nil {
			return fmt.Errorf("%w: %w", ErrInconsistent, err)
		}
		n.meta.LogMetadata(f.Head.MetadataPath, b.meta.LastUpdatedMs, iceberg.MetadataLogLimit)
	}
	if n.json, err = n.meta.Marshal(); err != nil {
		return err
	}
	n.hash = sha256.Sum256(n.json)
	c.TimestampMs = n.timestamp
	c.MetadataVersion, c.MetadataPath, c.MetadataHash = n.version, metadataPath(n.location, n.version), n.hash
	return nil
}

// unreferenced leaves out snapshots that a branch or tag holds (S6).
func unreferenced(m *iceberg.Metadata, ids []int64) []int64 {
	var out []int64
next:
	for _, id := range ids {
		for i := range m.Refs {
			if m.Refs[i].SnapshotID == id {
				continue next
			}
		}
		out = append(out, id)
	}
	return out
}

// snapshot writes Puffins, manifests and list, and adds the snapshot to the
// next metadata.
func (p *Publisher) snapshot(ctx context.Context, f *statestore.FrozenCut, b *base, n *next) error {
	ident := identity(f)
	n.id, _ = ident.FreeSnapshotID(b.meta, f.Build, 0)
	n.sequence = b.meta.LastSequence + 1
	n.attempt = iceberg.Attempt{
		Table: *ident, BuildOffset: f.Build, ParentID: f.Head.SnapshotID, BaseSequence: b.meta.LastSequence, BaseNextRowID: b.meta.NextRowID,
	}
	if err := n.readSpecs(); err != nil {
		return err
	}
	added, err := p.addedFiles(ctx, f)
	if err != nil {
		return err
	}
	vectors, err := p.writePuffins(ctx, f, n)
	if err != nil {
		return err
	}
	c := &n.result.Committed
	c.Puffins, c.Vectors = vectors.puffins, vectors.vectors
	n.result.VectorBytes = vectors.bytes
	leave, err := p.others(ctx, f, b)
	if err != nil {
		return err
	}
	plan, err := n.plan(f, b, added, vectors, leave)
	if err != nil {
		return err
	}
	if err := p.writeManifests(ctx, n, plan); err != nil {
		return err
	}
	var parent *int64
	if f.Head.SnapshotID != 0 {
		id := f.Head.SnapshotID // a copy: the metadata is kept, and must not hold on to all of f
		parent = &id
	}
	first := b.meta.NextRowID
	text, err := iceberg.WriteManifestList(iceberg.ListOptions{SnapshotID: n.id, ParentID: parent, Sequence: n.sequence, FirstRowID: first}, n.list)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInconsistent, err)
	}
	c.ManifestList = n.path(n.attempt.ListName(n.id))
	if err := p.create(ctx, c.ManifestList, text); err != nil {
		return err
	}
	t := count(f, c.Vectors, leave)
	c.SnapshotID, c.Sequence, c.FirstRowID, c.Operation = n.id, n.sequence, first, t.operation()
	schemaID, rows := n.meta.CurrentSchema, c.AddedRows
	err = n.meta.AddSnapshot(iceberg.Snapshot{
		Sequence: n.sequence, ID: n.id, ParentID: parent, TimestampMs: n.timestamp, Operation: c.Operation,
		Summary: t.summary(f), ManifestList: c.ManifestList, SchemaID: &schemaID, FirstRowID: &first, AddedRows: &rows,
	})
	if err == nil {
		err = n.meta.SetRef(iceberg.MainBranch, "branch", n.id)
	}
	return err
}
