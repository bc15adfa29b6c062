package publisher

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/restclient"
)

// Remote is a catalog that writes the metadata itself and has other writers
// (W5). Errors are those of package restclient.
type Remote interface {
	// CreateNamespace makes a namespace and those above it; nil: it is there.
	CreateNamespace(ctx context.Context, namespace []string) error
	// Load is the table as it is now.
	Load(ctx context.Context, id restcat.Identifier) (*restclient.Table, error)
	// Commit applies all updates if all requirements hold.
	Commit(ctx context.Context, r *restcat.CommitTable) (*restclient.Table, error)
}

// BaseMoved says that the catalog knows of the table what the log does not: the
// caller appends the record, and publishes what the state then has frozen (H5).
type BaseMoved struct {
	Record record.CatalogBase
	Why    string
}

func (e *BaseMoved) Error() string { return "the table moved in the catalog: " + e.Why }

// publishRemote is one attempt at an outside catalog. The table is read first:
// what other writers did to it decides whether there is anything to build.
func (p *Publisher) publishRemote(ctx context.Context, f *statestore.FrozenCut, asOf time.Time) (Result, error) {
	if f.Head.Build >= 0 && f.Head.MetadataVersion != 0 {
		return Result{}, fmt.Errorf("%w: the table was published to the embedded catalog (%s); run without the outside one", ErrInconsistent, f.Head.MetadataPath)
	}
	id := restcat.IdentifierOf(f.Definition.Name)
	t, err := p.cfg.Remote.Load(ctx, id)
	if errors.Is(err, restclient.ErrNotFound) {
		if f.Head.Build >= 0 {
			return Result{}, fmt.Errorf("%w: the catalog has no table %s any more; register %s there again, or drop the table here", ErrForeign, id, f.Head.MetadataPath)
		}
		return p.createRemote(ctx, f, id)
	}
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", errCatalog, err)
	}
	meta, err := remoteMetadata(f, id, t)
	if err != nil {
		return Result{}, err
	}
	if f.Head.Build < 0 {
		return Result{Committed: p.remoteCommitted(f, meta, t)}, nil // made already, by this node or another
	}
	if own := ownSnapshot(f, meta); own != nil {
		return p.adoptRemote(ctx, f, meta, t, own)
	}
	if f.Rollback != 0 {
		if meta.Snapshot(f.Rollback) == nil {
			return Result{}, fmt.Errorf("%w: the catalog's table %s has no snapshot %d any more, to which it is to be rolled back; restore it there", ErrForeign, id, f.Rollback)
		}
		if mainOf(meta) == f.Rollback && f.Rollback != f.Head.SnapshotID {
			return Result{Committed: p.remoteCommitted(f, meta, t)}, nil // the answer was lost
		}
	}
	if err := checkMain(f, id, meta, p.location(t)); err != nil {
		return Result{}, err
	}
	if err := meta.CheckWritable(); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	if err := moved(f, meta, p.location(t)); err != nil {
		return Result{}, err
	}
	return p.commitRemote(ctx, f, id, meta, t, asOf)
}

// remoteMetadata reads the metadata and makes sure whose it is.
func remoteMetadata(f *statestore.FrozenCut, id restcat.Identifier, t *restclient.Table) (*iceberg.Metadata, error) {
	meta, err := iceberg.ParseMetadata(t.Metadata)
	if err != nil {
		return nil, fmt.Errorf("%w: the catalog's table %s cannot be read: %w", ErrForeign, id, err)
	}
	if want := identity(f).UUID(); meta.UUID != want {
		if f.Head.Build < 0 {
			return nil, fmt.Errorf("%w: the table %s is there already, and not ours, in the catalog: it has the UUID %s and format version %d, ours will have %s; "+
				"tables of other programs cannot be taken over: rename one of them, or drop the table here, and bring the rows of that one in with \"varve table import\"",
				ErrForeign, id, meta.UUID, meta.FormatVersion, want)
		}
		return nil, fmt.Errorf("%w: the table %s was dropped and made again in the catalog: it has the UUID %s, ours has %s; rename one of them, or drop the table here", ErrForeign, id, meta.UUID, want)
	}
	if meta.Location != f.Definition.Location {
		return nil, fmt.Errorf("%w: the catalog has the table %s at %s, its files are written at %s; a location cannot change", ErrForeign, id, meta.Location, f.Definition.Location)
	}
	return meta, nil
}

// ownSnapshot is this very cut's, nil when the catalog does not have it (C4).
func ownSnapshot(f *statestore.FrozenCut, meta *iceberg.Metadata) *iceberg.Snapshot {
	if !f.Makes() {
		return nil
	}
	for i := range meta.Snapshots {
		s := &meta.Snapshots[i]
		if isOurs(f, s) && offsetOf(s) == f.Build {
			return s
		}
	}
	return nil
}

// isOurs: snapshots of this deployment say so (H2).
func isOurs(f *statestore.FrozenCut, s *iceberg.Snapshot) bool {
	return summaryOf(s, SummaryDeployment) == hex.EncodeToString(f.Deployment[:])
}

// offsetOf is the build offset that a snapshot of ours tells, -1 when it does not.
func offsetOf(s *iceberg.Snapshot) int64 {
	n, err := strconv.ParseInt(summaryOf(s, SummaryOffset), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func summaryOf(s *iceberg.Snapshot, key string) string {
	for _, x := range s.Summary {
		if x.Key == key {
			return x.Value
		}
	}
	return ""
}

func mainOf(meta *iceberg.Metadata) int64 {
	if meta.CurrentSnapshot == nil {
		return 0
	}
	return *meta.CurrentSnapshot
}

// reaches says whether main's history leads to a snapshot.
func reaches(meta *iceberg.Metadata, from, to int64) bool {
	for range len(meta.Snapshots) + 1 {
		if from == to {
			return true
		}
		s := meta.Snapshot(from)
		if s == nil || s.ParentID == nil {
			return to == 0
		}
		from = *s.ParentID
	}
	return false
}

// checkMain tells a *HeadMoved of a branch main to which another writer committed
// (H2), and stops a table whose main does not descend from ours (H4).
func checkMain(f *statestore.FrozenCut, id restcat.Identifier, meta *iceberg.Metadata, at string) error {
	main := mainOf(meta)
	if main == f.Head.SnapshotID {
		return nil
	}
	s := meta.Snapshot(main)
	switch {
	case s == nil:
		return fmt.Errorf("%w: branch main of the table %s has no snapshot any more, ours was %d; set it back to that", ErrForeign, id, f.Head.SnapshotID)
	case isOurs(f, s) && offsetOf(s) > f.Build:
		// A publisher that slept wakes up: the log has gone on without it (C2).
		return fmt.Errorf("%w: the table %s has the snapshot of build %d, this one is %d", ErrBehind, id, offsetOf(s), f.Build)
	case isOurs(f, s):
		return fmt.Errorf("%w: branch main of the table %s is at our snapshot %d, the log says %d: it was rolled back, or another deployment with this identity publishes; set it to %d",
			ErrForeign, id, main, f.Head.SnapshotID, f.Head.SnapshotID)
	case reaches(meta, main, f.Head.SnapshotID) && f.Rollback != 0:
		return fmt.Errorf("%w: another writer committed snapshot %d (%s) to branch main of the table %s, and the log has rolled the table back to %d meanwhile; set main back to our %d, or to %d",
			ErrForeign, main, s.Operation, id, f.Rollback, f.Head.SnapshotID, f.Rollback)
	case reaches(meta, main, f.Head.SnapshotID):
		if err := meta.CheckWritable(); err != nil {
			return fmt.Errorf("%w: %w", ErrForeign, err)
		}
		// Columns and specs that others' files need the log has first.
		if err := errors.Join(schemaOnly(f, meta, at), foreignSpecs(f, meta)); err != nil {
			return err
		}
		moved, err := headMoved(f, meta, at)
		if err != nil {
			return err
		}
		return moved
	}
	return fmt.Errorf("%w: branch main of the table %s is at snapshot %d (%s), which does not descend from our %d; set it back to that", ErrForeign, id, main, s.Operation, f.Head.SnapshotID)
}

// moved is a *BaseMoved when the catalog has facts beside main that the state
// lacks (H5), nil when there are none.
func moved(f *statestore.FrozenCut, meta *iceberg.Metadata, at string) error {
	h, d := &f.Head, f.Known.Definition
	if meta.LastSequence < h.Sequence || meta.NextRowID < h.NextRowID {
		return fmt.Errorf("%w: the catalog has sequence number %d and next row id %d, the log %d and %d: they never fall (S1); the catalog was restored from an older copy",
			ErrForeign, meta.LastSequence, meta.NextRowID, h.Sequence, h.NextRowID)
	}
	r := record.CatalogBase{
		Snapshot: h.SnapshotID, Sequence: meta.LastSequence, NextRowID: meta.NextRowID,
		TimestampMs: max(meta.LastUpdatedMs, f.Known.TimestampMs), MetadataPath: at, LastColumnID: d.LastColumnID,
	}
	why := ""
	if meta.LastSequence > h.Sequence || meta.NextRowID > h.NextRowID {
		why = "a commit to another branch"
	}
	for _, id := range f.Known.Retained {
		if meta.Snapshot(id) == nil {
			r.Removed = append(r.Removed, id)
			why = "snapshots were removed"
		}
	}
	slices.Sort(r.Removed)
	if r.Held = heldBy(meta); !slices.Equal(r.Held, f.Known.Held) {
		why = "branches or tags"
	}
	if !f.Known.Ahead { // else ours are the later word, and their commit is yet to come
		for _, p := range d.Properties {
			i := slices.IndexFunc(meta.Properties, func(x schemas.Property) bool { return x.Key == p.Key })
			switch {
			case i < 0:
				r.Unset = append(r.Unset, p.Key)
			case meta.Properties[i].Value != p.Value:
				r.Set = append(r.Set, meta.Properties[i])
			default:
				continue
			}
			why = "its properties"
		}
	}
	if err := foreignSchemas(f, meta, &r); err != nil {
		return err
	}
	if len(r.Schemas) > 0 {
		why = "its schema"
	}
	if why == "" {
		if err := foreignSpecs(f, meta); err != nil {
			return err
		}
		return givenSchemas(f, meta)
	}
	return &BaseMoved{Record: r, Why: why}
}

// heldBy are the snapshots that branches and tags name, main apart.
func heldBy(meta *iceberg.Metadata) []int64 {
	var ids []int64
	for i := range meta.Refs {
		if r := &meta.Refs[i]; r.Name != iceberg.MainBranch {
			ids = append(ids, r.SnapshotID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// foreignSchemas fills the schema versions that the definition lacks. One that
// is already there under its id must be the same; a current one that is none of
// ours, and no successor of it, stops the table (S11).
func foreignSchemas(f *statestore.FrozenCut, meta *iceberg.Metadata, r *record.CatalogBase) error {
	d := f.Known.Definition
	stop := func(err error) error {
		return fmt.Errorf("%w: another writer changed the columns of the table to schema %d, which varve cannot write: %w; undo that change", ErrForeign, meta.CurrentSchema, err)
	}
	if f.Known.Ahead {
		// Ours may wait to be published while the catalog gave their ids to others'.
		for i := range d.Schemas {
			ours := &d.Schemas[i]
			if standIn(d, i) || !slices.ContainsFunc(meta.Schemas, func(x iceberg.Document) bool { return x.ID == int64(ours.ID) }) {
				continue
			}
			theirs, err := remoteSchema(meta, int64(ours.ID))
			if err != nil {
				return stop(err)
			}
			if !sameSchema(ours, theirs, d, meta) {
				// Files that are written already hold our field ids: ours cannot get others.
				return fmt.Errorf("%w: another writer changed the columns of the table to schema %d, which is another one than ours of that id that waits to be published, and field ids would be given twice: "+
					"set the current schema back to %d and remove schema %d from the catalog's table, as engines do with schemas that no snapshot needs; or, where one needs it, drop the table here and load it again",
					ErrForeign, ours.ID, ours.ID-1, ours.ID)
			}
		}
	}
	cur, last := d.Schema(), d.LastColumnID
	for id := int32(len(d.Schemas)); int64(id) <= meta.CurrentSchema; id++ {
		next, err := remoteSchema(meta, int64(id))
		if err == nil {
			err = cur.CheckNext(next, last)
		}
		if err != nil {
			if given := tookBack(f, meta); given != nil {
				return given
			}
			return stop(err)
		}
		r.Schemas = append(r.Schemas, *next)
		cur, last = next, max(last, next.HighestID())
	}
	if len(r.Schemas) > 0 {
		r.LastColumnID = max(last, meta.LastColumnID)
		return nil
	}
	theirs, err := remoteSchema(meta, meta.CurrentSchema)
	if err != nil {
		return stop(err)
	}
	ours := d.SchemaByID(int32(meta.CurrentSchema))
	if ours == nil || !sameSchema(ours, theirs, d, meta) {
		return stop(errors.New("it is another one than ours of that id"))
	}
	if !f.Known.Ahead && meta.CurrentSchema != int64(d.CurrentSchema) {
		return stop(fmt.Errorf("the current one is %d", d.CurrentSchema))
	}
	return nil
}

// sameSchema: each of them could follow the other.
func sameSchema(ours, theirs *schemas.Schema, d *schemas.Definition, meta *iceberg.Metadata) bool {
	return ours.CheckNext(theirs, d.LastColumnID) == nil && theirs.CheckNext(ours, meta.LastColumnID) == nil
}

// remoteSchema is a schema of the catalog's, its key columns in our order.
func remoteSchema(meta *iceberg.Metadata, id int64) (*schemas.Schema, error) {
	s, err := meta.Schema(id)
	if err != nil {
		return nil, err
	}
	slices.Sort(s.Identifier)
	return s, nil
}
