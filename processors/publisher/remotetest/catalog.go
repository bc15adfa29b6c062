// Package remotetest is an outside catalog in memory, for tests that break what
// a real one keeps whole.
//
// Owns: tables as metadata, requirements and updates as the REST protocol has
// them, faults. May touch: nothing. Never enters: anything but tests.
package remotetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/restclient"
)

// Catalog holds tables. Its methods may be called concurrently.
type Catalog struct {
	// Before and After, if given, are called around the effect of a commit; an
	// error ends it, before or after it was taken. Set them before use.
	Before, After func() error

	mu     sync.Mutex
	tables map[string]*table
}

type table struct {
	meta    *iceberg.Metadata
	version int
}

// New is an empty catalog.
func New() *Catalog { return &Catalog{tables: map[string]*table{}} }

// CreateNamespace: there are all.
func (c *Catalog) CreateNamespace(context.Context, []string) error { return nil }

// Load is the table as it is now.
func (c *Catalog) Load(_ context.Context, id restcat.Identifier) (*restclient.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tables[id.String()]
	if t == nil {
		return nil, fmt.Errorf("%w: %s", restclient.ErrNotFound, id)
	}
	return t.answer()
}

func (t *table) answer() (*restclient.Table, error) {
	text, err := t.meta.Marshal()
	if err != nil {
		return nil, err
	}
	return &restclient.Table{MetadataLocation: t.at(), Metadata: text}, nil
}

func (t *table) at() string {
	return fmt.Sprintf("%s/metadata/%05d.metadata.json", t.meta.Location, t.version)
}

// Metadata is a table's metadata, not to be changed; nil: there is no such table.
func (c *Catalog) Metadata(id restcat.Identifier) *iceberg.Metadata {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tables[id.String()]; t != nil {
		return t.meta
	}
	return nil
}

// Drop drops a table.
func (c *Catalog) Drop(id restcat.Identifier) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tables, id.String())
}

// Commit takes a commit whole or not at all.
func (c *Catalog) Commit(_ context.Context, r *restcat.CommitTable) (*restclient.Table, error) {
	if c.Before != nil {
		if err := c.Before(); err != nil {
			return nil, err
		}
	}
	out, err := c.commit(r)
	if err == nil && c.After != nil {
		if err := c.After(); err != nil {
			return nil, err
		}
	}
	return out, err
}

func (c *Catalog) commit(r *restcat.CommitTable) (*restclient.Table, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.tables[r.Identifier.String()]
	next := &table{meta: &iceberg.Metadata{LastPartitionID: 999}}
	if old != nil {
		next.meta, next.version = old.meta.Clone(), old.version+1
	}
	for _, raw := range r.Requirements {
		if err := require(old, raw); err != nil {
			return nil, err
		}
	}
	changed := &change{m: next.meta, base: next.meta.LastUpdatedMs}
	for _, raw := range r.Updates {
		if err := changed.apply(raw); err != nil {
			return nil, fmt.Errorf("%w: %w", restclient.ErrConflict, err)
		}
	}
	if old != nil {
		next.meta.LogMetadata(old.at(), old.meta.LastUpdatedMs, iceberg.MetadataLogLimit)
		if next.meta.LastUpdatedMs == changed.base {
			next.meta.LastUpdatedMs++ // its own clock is slow
		}
	}
	out, err := next.answer()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", restclient.ErrConflict, err)
	}
	c.tables[r.Identifier.String()] = next
	return out, nil
}

func require(t *table, raw json.RawMessage) error {
	var r struct {
		Type     string `json:"type"`
		UUID     string `json:"uuid"`
		Ref      string `json:"ref"`
		Snapshot *int64 `json:"snapshot-id"`
		Schema   int64  `json:"current-schema-id"`
		Field    int32  `json:"last-assigned-field-id"`
		Spec     int64  `json:"default-spec-id"`
		Part     int32  `json:"last-assigned-partition-id"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	if t == nil {
		if r.Type == "assert-create" {
			return nil
		}
		return restclient.ErrNotFound
	}
	ok := false
	switch r.Type {
	case "assert-table-uuid":
		ok = r.UUID == t.meta.UUID
	case "assert-ref-snapshot-id":
		ref := t.meta.Ref(r.Ref)
		ok = ref == nil && r.Snapshot == nil || ref != nil && r.Snapshot != nil && ref.SnapshotID == *r.Snapshot
	case "assert-current-schema-id":
		ok = r.Schema == t.meta.CurrentSchema
	case "assert-last-assigned-field-id":
		ok = r.Field == t.meta.LastColumnID
	case "assert-default-spec-id":
		ok = r.Spec == t.meta.DefaultSpec
	case "assert-last-assigned-partition-id":
		ok = r.Part == t.meta.LastPartitionID
	}
	if !ok {
		return fmt.Errorf("%w: requirement failed: %s", restclient.ErrConflict, raw)
	}
	return nil
}

// change is a commit under way.
type change struct {
	m    *iceberg.Metadata
	base int64
}

type update struct {
	Action    string            `json:"action"`
	UUID      string            `json:"uuid"`
	Format    int32             `json:"format-version"`
	Location  string            `json:"location"`
	Schema    json.RawMessage   `json:"schema"`
	LastID    int32             `json:"last-column-id"`
	SchemaID  int64             `json:"schema-id"`
	Spec      json.RawMessage   `json:"spec"`
	SpecID    int64             `json:"spec-id"`
	Order     json.RawMessage   `json:"sort-order"`
	Set       map[string]string `json:"updates"`
	Removals  []string          `json:"removals"`
	Snapshot  json.RawMessage   `json:"snapshot"`
	RefName   string            `json:"ref-name"`
	RefType   string            `json:"type"`
	RefID     int64             `json:"snapshot-id"`
	Snapshots []int64           `json:"snapshot-ids"`
}

func (c *change) apply(raw json.RawMessage) error {
	var u update
	if err := json.Unmarshal(raw, &u); err != nil {
		return err
	}
	m := c.m
	switch u.Action {
	case "assign-uuid":
		m.UUID = u.UUID
	case "upgrade-format-version":
		m.FormatVersion = u.Format
	case "set-location":
		m.Location = u.Location
	case "add-schema":
		s, err := schemas.ParseSchema(u.Schema)
		if err != nil {
			return err
		}
		s.ID = int32(len(m.Schemas)) // catalogs number them themselves
		m.Schemas = append(m.Schemas, iceberg.Document{ID: int64(s.ID), JSON: s.AppendJSON(nil)})
		m.LastColumnID = max(m.LastColumnID, u.LastID, s.HighestID())
	case "set-current-schema":
		if m.CurrentSchema = u.SchemaID; u.SchemaID == restcat.LastAdded {
			m.CurrentSchema = int64(len(m.Schemas) - 1)
		}
	case "add-spec":
		s, err := iceberg.ParseSpec(u.Spec)
		if err != nil {
			return err
		}
		s.ID = int32(len(m.Specs)) // catalogs number them themselves
		m.Specs = append(m.Specs, iceberg.Document{ID: int64(s.ID), JSON: iceberg.AppendSpecJSON(nil, &s)})
		for i := range s.Fields {
			m.LastPartitionID = max(m.LastPartitionID, s.Fields[i].FieldID)
		}
	case "set-default-spec":
		m.DefaultSpec = u.SpecID
	case "add-sort-order":
		m.SortOrders = append(m.SortOrders, iceberg.Document{JSON: u.Order})
	case "set-default-sort-order":
	case "set-properties":
		for k, v := range u.Set {
			m.SetProperty(k, v)
		}
	case "remove-properties":
		for _, k := range u.Removals {
			m.RemoveProperty(k)
		}
	case "add-snapshot":
		return c.add(u.Snapshot)
	case "set-snapshot-ref":
		return m.SetRef(u.RefName, u.RefType, u.RefID)
	case "remove-snapshot-ref":
		return m.RemoveRef(u.RefName)
	case "remove-snapshots":
		for _, id := range u.Snapshots { // as the reference catalog does
			m.Refs = slices.DeleteFunc(m.Refs, func(r iceberg.Ref) bool { return r.SnapshotID == id && r.Name != iceberg.MainBranch })
		}
		return m.RemoveSnapshots(u.Snapshots)
	default:
		return fmt.Errorf("unknown update %q", u.Action)
	}
	return nil
}

func (c *change) add(raw json.RawMessage) error {
	var s struct {
		Sequence int64             `json:"sequence-number"`
		ID       int64             `json:"snapshot-id"`
		Parent   *int64            `json:"parent-snapshot-id"`
		Time     int64             `json:"timestamp-ms"`
		Summary  map[string]string `json:"summary"`
		List     string            `json:"manifest-list"`
		Schema   *int64            `json:"schema-id"`
		FirstRow *int64            `json:"first-row-id"`
		Added    *int64            `json:"added-rows"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	x := iceberg.Snapshot{Sequence: s.Sequence, ID: s.ID, ParentID: s.Parent, TimestampMs: s.Time, Operation: s.Summary["operation"],
		ManifestList: s.List, SchemaID: s.Schema, FirstRowID: s.FirstRow, AddedRows: s.Added}
	for k, v := range s.Summary {
		if k != "operation" {
			x.Summary = append(x.Summary, schemas.Property{Key: k, Value: v})
		}
	}
	slices.SortFunc(x.Summary, func(a, b schemas.Property) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	return c.m.AddSnapshot(x)
}

// Foreign commits as another program does, without requirements.
func (c *Catalog) Foreign(id restcat.Identifier, updates ...restcat.Update) error {
	_, err := c.commit(&restcat.CommitTable{Identifier: id, Updates: updates})
	return err
}

// ForeignSnapshot commits another program's snapshot to a branch: the current
// list again, and rows that it says it added. It returns its id.
func (c *Catalog) ForeignSnapshot(id restcat.Identifier, branch string, aheadMs int64) (int64, error) {
	m := c.Metadata(id)
	if m == nil || m.Current() == nil {
		return 0, errors.New("there is nothing to branch from")
	}
	cur, rows := m.Current(), int64(3)
	x := iceberg.Snapshot{
		ID: 1_000_000 + m.LastSequence, Sequence: m.LastSequence + 1, ParentID: &cur.ID, TimestampMs: m.NextTimestamp(0) + aheadMs, Operation: "append",
		ManifestList: cur.ManifestList, SchemaID: &m.CurrentSchema, FirstRowID: &m.NextRowID, AddedRows: &rows,
	}
	return x.ID, c.Foreign(id, restcat.AddSnapshot(&x), restcat.SetRef(branch, "branch", x.ID, nil))
}
