package restcat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
)

// Why a commit is not taken.
var (
	// ErrUnmet: a requirement does not hold.
	ErrUnmet = errors.New("a requirement does not hold")
	// ErrNoTable: there is no table, and the commit does not make one.
	ErrNoTable = errors.New("there is no such table")
)

// Require says which requirement of a commit a table does not meet; m is nil
// where there is none.
func Require(m *iceberg.Metadata, all []Requirement) error {
	if m == nil && len(all) == 0 {
		return ErrNoTable
	}
	for _, raw := range all {
		if err := require(m, raw); err != nil {
			return err
		}
	}
	return nil
}

// Apply makes the changes of a commit, as a catalog does that writes the
// metadata itself. After an error m is of no use.
func Apply(m *iceberg.Metadata, updates []Update) error {
	for _, raw := range updates {
		if err := apply(m, raw); err != nil {
			return err
		}
	}
	return nil
}

func require(m *iceberg.Metadata, raw json.RawMessage) error {
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
	if m == nil {
		if r.Type == "assert-create" {
			return nil
		}
		return ErrNoTable
	}
	ok := false
	switch r.Type {
	case "assert-table-uuid":
		ok = r.UUID == m.UUID
	case "assert-ref-snapshot-id":
		ref := m.Ref(r.Ref)
		ok = ref == nil && r.Snapshot == nil || ref != nil && r.Snapshot != nil && ref.SnapshotID == *r.Snapshot
	case "assert-current-schema-id":
		ok = r.Schema == m.CurrentSchema
	case "assert-last-assigned-field-id":
		ok = r.Field == m.LastColumnID
	case "assert-default-spec-id":
		ok = r.Spec == m.DefaultSpec
	case "assert-last-assigned-partition-id":
		ok = r.Part == m.LastPartitionID
	}
	if !ok {
		return fmt.Errorf("%w: %s", ErrUnmet, raw)
	}
	return nil
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

// apply makes one change.
func apply(m *iceberg.Metadata, raw json.RawMessage) error {
	var u update
	if err := json.Unmarshal(raw, &u); err != nil {
		return err
	}
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
		s.ID = 0 // catalogs number them themselves
		for i := range m.Schemas {
			s.ID = max(s.ID, int32(m.Schemas[i].ID)+1)
		}
		m.Schemas = append(m.Schemas, iceberg.Document{ID: int64(s.ID), JSON: s.AppendJSON(nil)})
		m.LastColumnID = max(m.LastColumnID, u.LastID, s.HighestID())
	case "set-current-schema":
		if m.CurrentSchema = u.SchemaID; u.SchemaID == LastAdded && len(m.Schemas) > 0 {
			m.CurrentSchema = m.Schemas[len(m.Schemas)-1].ID
		}
	case "add-spec":
		s, err := iceberg.ParseSpec(u.Spec)
		if err != nil {
			return err
		}
		for i := range m.Specs { // one that is there is that one
			if old, err := m.Spec(m.Specs[i].ID); err == nil && slices.Equal(old.Fields, s.Fields) {
				return nil
			}
		}
		s.ID = 0 // catalogs number them themselves
		for i := range m.Specs {
			s.ID = max(s.ID, int32(m.Specs[i].ID)+1)
		}
		m.Specs = append(m.Specs, iceberg.Document{ID: int64(s.ID), JSON: iceberg.AppendSpecJSON(nil, &s)})
		for i := range s.Fields {
			m.LastPartitionID = max(m.LastPartitionID, s.Fields[i].FieldID)
		}
	case "set-default-spec":
		if m.DefaultSpec = u.SpecID; u.SpecID == LastAdded && len(m.Specs) > 0 {
			m.DefaultSpec = m.Specs[len(m.Specs)-1].ID
		}
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
		return addSnapshot(m, u.Snapshot)
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

func addSnapshot(m *iceberg.Metadata, raw json.RawMessage) error {
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
	slices.SortFunc(x.Summary, func(a, b schemas.Property) int { return strings.Compare(a.Key, b.Key) })
	return m.AddSnapshot(x)
}
