package publisher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/restclient"
)

// createRemote makes the table, empty, with the UUID that follows from its
// place in the log: a plain request to make one gives the catalog no way to
// take it, a commit of a new table does.
func (p *Publisher) createRemote(ctx context.Context, f *statestore.FrozenCut, id restcat.Identifier) (Result, error) {
	d := f.Definition
	if _, ok := p.cfg.Store.Key(d.Location); !ok {
		return Result{}, fmt.Errorf("%w: the location %s does not lie in the store %s; configure the warehouse that holds it", ErrInconsistent, d.Location, p.cfg.Store.Location(""))
	}
	if err := p.cfg.Remote.CreateNamespace(ctx, id.Namespace); err != nil {
		return Result{}, fmt.Errorf("%w: %w", errCatalog, err)
	}
	c := restcat.CommitTable{Identifier: id, Requirements: []restcat.Requirement{restcat.AssertCreate()}}
	add := func(u ...restcat.Update) { c.Updates = append(c.Updates, u...) }
	add(restcat.AssignUUID(identity(f).UUID()), restcat.UpgradeFormat(d.FormatVersion), restcat.SetLocation(d.Location))
	for i := range d.Schemas {
		add(restcat.AddSchema(&d.Schemas[i], d.LastColumnID))
	}
	add(restcat.SetCurrentSchema(d.CurrentSchema))
	for i := range d.Specs {
		add(restcat.AddSpec(&d.Specs[i]))
	}
	add(restcat.SetDefaultSpec(d.DefaultSpec), restcat.AddUnsorted(), restcat.SetDefaultOrder(0), restcat.SetProperties(wantedProperties(d)))
	t, err := p.cfg.Remote.Commit(ctx, &c)
	if err != nil {
		return Result{}, err
	}
	meta, err := remoteMetadata(f, id, t)
	if err != nil {
		return Result{}, err
	}
	return Result{Committed: p.remoteCommitted(f, meta, t)}, nil
}

// wantedProperties are the definition's, and gc.enabled=false unless it says otherwise (S7).
func wantedProperties(d *schemas.Definition) []schemas.Property {
	ps := slices.Clone(d.Properties)
	if d.Property(propertyGC) == "" {
		ps = append(ps, schemas.Property{Key: propertyGC, Value: "false"})
	}
	return ps
}

const propertyGC = "gc.enabled"

// location is where the catalog's metadata lies, as our store spells it: some
// catalogs write file:/ with fewer slashes.
func (p *Publisher) location(t *restclient.Table) string {
	if key, ok := p.cfg.Store.Key(t.MetadataLocation); ok {
		return p.cfg.Store.Location(key)
	}
	return t.MetadataLocation
}

// remoteCommitted is the record of a commit without a snapshot.
func (p *Publisher) remoteCommitted(f *statestore.FrozenCut, meta *iceberg.Metadata, t *restclient.Table) record.SnapshotCommitted {
	return record.SnapshotCommitted{
		Cut: f.Cut, Build: f.Build, Parent: f.Head.SnapshotID, Sequence: f.Head.Sequence, FirstRowID: f.Head.NextRowID,
		TimestampMs: max(meta.LastUpdatedMs, f.Known.TimestampMs), MetadataPath: p.location(t),
	}
}

// commitRemote builds on what was read and commits.
func (p *Publisher) commitRemote(ctx context.Context, f *statestore.FrozenCut, id restcat.Identifier, meta *iceberg.Metadata, read *restclient.Table, asOf time.Time) (Result, error) {
	n, err := p.buildRemote(ctx, f, meta)
	if err != nil {
		return Result{}, err
	}
	c := restcat.CommitTable{Identifier: id, Requirements: []restcat.Requirement{
		restcat.AssertUUID(meta.UUID), restcat.AssertRef(iceberg.MainBranch, f.Head.SnapshotID),
	}}
	defined := false
	if f.DefChanged {
		u, err := definitionUpdates(f, meta)
		if err != nil {
			return Result{}, err
		}
		if len(u) > 0 {
			c.Requirements = append(c.Requirements, restcat.AssertCurrentSchema(meta.CurrentSchema), restcat.AssertLastField(meta.LastColumnID))
			c.Updates, defined = append(c.Updates, u...), true
		}
		if u, err = specUpdates(f, meta); err != nil {
			return Result{}, err
		}
		if len(u) > 0 {
			c.Requirements = append(c.Requirements, restcat.AssertDefaultSpec(meta.DefaultSpec), restcat.AssertLastPartition(meta.LastPartitionID))
			c.Updates, defined = append(c.Updates, u...), true
		}
	}
	if n.result.Committed.SnapshotID != 0 {
		var kept []iceberg.Member // main's own retention settings
		if r := meta.Ref(iceberg.MainBranch); r != nil {
			kept = r.Extra
		}
		c.Updates = append(c.Updates, restcat.AddSnapshot(n.meta.Snapshot(n.id)), restcat.SetRef(iceberg.MainBranch, "branch", n.id, kept))
	}
	if f.Rollback != 0 && f.Rollback != f.Head.SnapshotID { // S8
		var kept []iceberg.Member
		if r := meta.Ref(iceberg.MainBranch); r != nil {
			kept = r.Extra
		}
		c.Updates = append(c.Updates, restcat.SetRef(iceberg.MainBranch, "branch", f.Rollback, kept))
	}
	asserts, refs := refUpdates(meta, &f.Refs)
	c.Requirements, c.Updates = append(c.Requirements, asserts...), append(c.Updates, refs...)
	expire, at, err := p.expiring(ctx, f, id, meta, read, n.id != 0)
	if err != nil {
		return Result{}, err
	}
	if len(expire) > 0 {
		c.Base = at
		c.Updates = append(c.Updates, restcat.RemoveSnapshots(expire))
	}
	if defined || len(refs) > 0 {
		c.Base = read.MetadataLocation // what it changes was read there
	}
	if len(c.Updates) == 0 {
		// A change of the definition, or of refs, that the catalog has already.
		return Result{Committed: p.remoteCommitted(f, meta, read)}, nil
	}
	if old := time.Since(asOf); n.id == 0 && old > p.cfg.Fresh {
		return Result{}, fmt.Errorf("%w: what the state says is of %s ago, and others may have gone on since; it is tried again", restclient.ErrConflict, old.Round(time.Millisecond))
	}
	t, err := p.cfg.Remote.Commit(ctx, &c)
	if errors.Is(err, restclient.ErrNotFound) {
		return Result{}, fmt.Errorf("%w: the table %s was dropped in the catalog while it was published: %w", ErrForeign, id, err)
	}
	if err != nil {
		return Result{}, err
	}
	after, err := remoteMetadata(f, id, t)
	if err == nil {
		err = checkCommitted(n, after)
	}
	if err != nil {
		// What the catalog says it took is not what was asked: look again.
		return Result{}, fmt.Errorf("%w: %w", restclient.ErrUnknown, err)
	}
	p.lookForLost(ctx, f, after, expire, at)
	r := n.result
	r.Committed.TimestampMs, r.Committed.MetadataPath = max(after.LastUpdatedMs, f.Known.TimestampMs), p.location(t)
	p.cfg.Logger.Debug("published", "table", f.Definition.Name, "offset", f.Build, "snapshot", n.id, "metadata", t.MetadataLocation,
		"files", len(r.Committed.Files), "vectors", len(r.Committed.Vectors), "manifests", len(r.Committed.Manifests), "vector_bytes", r.VectorBytes)
	return r, nil
}

// checkCommitted holds the catalog's metadata against what was asked.
func checkCommitted(n *next, after *iceberg.Metadata) error {
	if n.id == 0 {
		return nil
	}
	s := after.Snapshot(n.id)
	want := n.meta.Snapshot(n.id)
	if s == nil || mainOf(after) != n.id || s.Sequence != n.sequence || s.FirstRowID == nil || *s.FirstRowID != *want.FirstRowID ||
		s.AddedRows == nil || *s.AddedRows != *want.AddedRows || s.ManifestList != want.ManifestList {
		return fmt.Errorf("the catalog answers a commit with a table that does not have snapshot %d as it was sent", n.id)
	}
	return nil
}

// buildRemote writes everything of the snapshot. What it writes follows from
// the frozen cut alone: schemas and specs are the definition's, and sequence
// number and row ids are those of the state, which the metadata was found to
// have too (C1, C7).
func (p *Publisher) buildRemote(ctx context.Context, f *statestore.FrozenCut, meta *iceberg.Metadata) (*next, error) {
	n := &next{location: f.Definition.Location}
	n.result.Committed = record.SnapshotCommitted{
		Cut: f.Cut, Build: f.Build, Parent: f.Head.SnapshotID, Sequence: f.Head.Sequence, FirstRowID: f.Head.NextRowID,
	}
	n.timestamp = meta.NextTimestamp(f.TimeMs)
	n.result.Committed.TimestampMs = n.timestamp
	if !f.Makes() {
		return n, nil
	}
	b, err := p.remoteBase(ctx, f, meta)
	if err != nil {
		return nil, err
	}
	n.meta, n.list = b.meta.Clone(), b.list
	return n, p.snapshot(ctx, f, b, n)
}

// remoteBase is the base of a build: the metadata, with the definition's
// schemas and specs, and the head's list.
func (p *Publisher) remoteBase(ctx context.Context, f *statestore.FrozenCut, meta *iceberg.Metadata) (*base, error) {
	m, err := iceberg.NewTable(f.Definition, meta.UUID, meta.LastUpdatedMs)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInconsistent, err)
	}
	m.LastSequence, m.NextRowID = f.Head.Sequence, f.Head.NextRowID
	m.Snapshots, m.SnapshotLog, m.MetadataLog = slices.Clone(meta.Snapshots), meta.SnapshotLog, meta.MetadataLog
	b := &base{meta: m}
	if f.Head.SnapshotID == 0 {
		return b, nil
	}
	if m.Snapshot(f.Head.SnapshotID) == nil {
		return nil, fmt.Errorf("%w: the catalog no longer has our snapshot %d", ErrForeign, f.Head.SnapshotID)
	}
	id := f.Head.SnapshotID
	m.CurrentSnapshot = &id
	m.Refs = []iceberg.Ref{{Name: iceberg.MainBranch, SnapshotID: id, Type: "branch"}}
	b.list, err = p.readList(ctx, f.Head.ManifestList)
	return b, err
}

// added are the updates that bring to the catalog what is above the highest id
// there. It gives the next id itself, so that must be ours.
func added[T any](what string, highest int64, all []T, id func(*T) int32, add func(*T) restcat.Update) (out []restcat.Update, _ error) {
	for i := range all {
		n := int64(id(&all[i]))
		if n <= highest {
			continue
		}
		if n != highest+1 {
			return nil, fmt.Errorf("%w: the catalog would give %s %d the id %d", ErrForeign, what, n, highest+1)
		}
		highest++
		out = append(out, add(&all[i]))
	}
	return out, nil
}

// definitionUpdates bring the catalog to the definition, as far as it is not there.
func definitionUpdates(f *statestore.FrozenCut, meta *iceberg.Metadata) ([]restcat.Update, error) {
	d := f.Definition
	highest := int64(-1)
	for i := range meta.Schemas {
		highest = max(highest, meta.Schemas[i].ID)
	}
	out, err := added("schema", highest, d.Schemas, func(s *schemas.Schema) int32 { return s.ID }, func(s *schemas.Schema) restcat.Update {
		return restcat.AddSchema(s, d.LastColumnID)
	})
	if err != nil {
		return nil, err
	}
	// One that is above ours another writer made since the cut was frozen.
	if meta.CurrentSchema < int64(d.CurrentSchema) {
		out = append(out, restcat.SetCurrentSchema(d.CurrentSchema))
	}
	var set []schemas.Property
	var gone []string
	for _, p := range wantedProperties(d) {
		if !slices.Contains(meta.Properties, p) {
			set = append(set, p)
		}
	}
	// What the definition lost; all else is of other writers (S11).
	for _, k := range f.Published {
		has := func(p schemas.Property) bool { return p.Key == k }
		if k != propertyGC && !slices.ContainsFunc(d.Properties, has) && slices.ContainsFunc(meta.Properties, has) {
			gone = append(gone, k)
		}
	}
	if len(set) > 0 {
		out = append(out, restcat.SetProperties(set))
	}
	if len(gone) > 0 {
		out = append(out, restcat.RemoveProperties(gone))
	}
	return out, nil
}

// adoptRemote: the catalog has this cut's snapshot, of which the log does not
// know (C4). The record is made from the files as they stand there.
func (p *Publisher) adoptRemote(ctx context.Context, f *statestore.FrozenCut, meta *iceberg.Metadata, t *restclient.Table, s *iceberg.Snapshot) (Result, error) {
	if !reaches(meta, mainOf(meta), s.ID) {
		return Result{}, fmt.Errorf("%w: our snapshot %d was committed, and branch main was set back from it; set it to %d", ErrForeign, s.ID, s.ID)
	}
	b := &base{}
	var err error
	if f.Head.SnapshotID != 0 {
		if b.list, err = p.readList(ctx, f.Head.ManifestList); err != nil {
			return Result{}, err
		}
	}
	found := &base{meta: meta}
	if found.list, err = p.readList(ctx, s.ManifestList); err != nil {
		return Result{}, err
	}
	r, err := p.recover(ctx, f, b, found, s)
	if err != nil {
		return Result{}, fmt.Errorf("snapshot %d: %w", s.ID, err)
	}
	r.Committed.TimestampMs, r.Committed.MetadataPath = max(meta.LastUpdatedMs, f.Known.TimestampMs), p.location(t)
	p.cfg.Logger.Info("found published", "table", f.Definition.Name, "offset", f.Build, "snapshot", s.ID)
	return r, nil
}
