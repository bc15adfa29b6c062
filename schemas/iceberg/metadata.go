package iceberg

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/varve-io/varve/schemas"
)

// Document is a schema, partition spec, sort order or statistics entry as the
// metadata file holds it, found by its id. It is kept as read, so that what
// varve does not understand is not lost (S11).
type Document struct {
	ID   int64
	JSON json.RawMessage
}

// Snapshot is one snapshot of a table.
type Snapshot struct {
	Sequence     int64
	ID           int64
	ParentID     *int64
	TimestampMs  int64
	Operation    string             // append, delete, replace or overwrite (S5)
	Summary      []schemas.Property // in order, without the operation (S10)
	ManifestList string
	SchemaID     *int64
	FirstRowID   *int64 // format version 3
	AddedRows    *int64
	Extra        []Member // unknown keys
}

// Ref is a branch or tag.
type Ref struct {
	Name       string
	SnapshotID int64
	Type       string   // branch or tag
	Extra      []Member // retention and unknown keys
}

// MainBranch is the ref that is the table's current snapshot.
const MainBranch = "main"

// SnapshotLogEntry is a time at which main moved; MetadataLogEntry an earlier
// metadata file and its last-updated-ms.
type (
	SnapshotLogEntry struct {
		TimestampMs int64
		SnapshotID  int64
	}
	MetadataLogEntry struct {
		TimestampMs int64
		File        string
	}
)

// Metadata is a table's metadata file, format version 2 or 3.
type Metadata struct {
	FormatVersion    int32
	UUID             string
	Location         string
	LastSequence     int64
	LastUpdatedMs    int64
	LastColumnID     int32
	CurrentSchema    int64
	Schemas          []Document
	DefaultSpec      int64
	Specs            []Document
	LastPartitionID  int32
	DefaultSortOrder int64
	SortOrders       []Document
	Properties       []schemas.Property // sorted by key
	CurrentSnapshot  *int64             // nil: none
	NextRowID        int64              // format version 3
	Refs             []Ref              // sorted by name
	Snapshots        []Snapshot
	Statistics       []Document // by snapshot id
	PartitionStats   []Document // by snapshot id
	EncryptionKeys   json.RawMessage
	SnapshotLog      []SnapshotLogEntry
	MetadataLog      []MetadataLogEntry
	Extra            []Member // unknown keys
}

// ErrUnwritable marks a table whose metadata varve reads but may not replace.
var ErrUnwritable = fmt.Errorf("the table cannot be written")

// Snapshot is the snapshot with this id, or nil.
func (m *Metadata) Snapshot(id int64) *Snapshot {
	for i := range m.Snapshots {
		if m.Snapshots[i].ID == id {
			return &m.Snapshots[i]
		}
	}
	return nil
}

// Current is main's snapshot, or nil.
func (m *Metadata) Current() *Snapshot {
	if m.CurrentSnapshot == nil {
		return nil
	}
	return m.Snapshot(*m.CurrentSnapshot)
}

// Ref is the branch or tag of this name, or nil.
func (m *Metadata) Ref(name string) *Ref {
	for i := range m.Refs {
		if m.Refs[i].Name == name {
			return &m.Refs[i]
		}
	}
	return nil
}

// Property is the value of a property, or "".
func (m *Metadata) Property(key string) string {
	for i := range m.Properties {
		if m.Properties[i].Key == key {
			return m.Properties[i].Value
		}
	}
	return ""
}

func document(docs []Document, id int64) json.RawMessage {
	for i := range docs {
		if docs[i].ID == id {
			return docs[i].JSON
		}
	}
	return nil
}

// Schema is the schema with this id; nested columns are an error.
func (m *Metadata) Schema(id int64) (*schemas.Schema, error) {
	raw := document(m.Schemas, id)
	if raw == nil {
		return nil, fmt.Errorf("the metadata has no schema %d", id)
	}
	s, err := schemas.ParseSchema(raw)
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// Spec is the partition spec with this id; unknown transforms are an error.
func (m *Metadata) Spec(id int64) (*schemas.Spec, error) {
	raw := document(m.Specs, id)
	if raw == nil {
		return nil, fmt.Errorf("the metadata has no partition spec %d", id)
	}
	s, err := ParseSpec(raw)
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// KnownSpec is a partition spec in which the transforms that varve does not know are void.
func (m *Metadata) KnownSpec(id int64) (*schemas.Spec, error) {
	raw := document(m.Specs, id)
	if raw == nil {
		return nil, fmt.Errorf("the metadata has no partition spec %d", id)
	}
	s, err := ParseKnownSpec(raw)
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// CheckWritable says why varve may not write the table's next metadata (S11):
// encryption, an old format version, a current schema or spec that it does not
// understand. The error is ErrUnwritable.
func (m *Metadata) CheckWritable() error {
	if m.FormatVersion != 3 {
		return fmt.Errorf("%w: it has format version %d; upgrade it to 3 first", ErrUnwritable, m.FormatVersion)
	}
	if len(m.EncryptionKeys) > 0 || m.Property("encryption.key-id") != "" {
		return fmt.Errorf("%w: it is encrypted, which varve does not support", ErrUnwritable)
	}
	if _, err := m.Schema(m.CurrentSchema); err != nil {
		return fmt.Errorf("%w: current schema %d: %v", ErrUnwritable, m.CurrentSchema, err)
	}
	if _, err := m.Spec(m.DefaultSpec); err != nil {
		return fmt.Errorf("%w: default partition spec %d: %v", ErrUnwritable, m.DefaultSpec, err)
	}
	return nil
}

// Clone is a copy whose lists can be changed apart. Values inside (JSON,
// summaries) are shared and never changed in place.
func (m *Metadata) Clone() *Metadata {
	c := *m
	c.Schemas = slices.Clone(m.Schemas)
	c.Specs = slices.Clone(m.Specs)
	c.SortOrders = slices.Clone(m.SortOrders)
	c.Properties = slices.Clone(m.Properties)
	c.Refs = slices.Clone(m.Refs)
	c.Snapshots = slices.Clone(m.Snapshots)
	c.Statistics = slices.Clone(m.Statistics)
	c.PartitionStats = slices.Clone(m.PartitionStats)
	c.SnapshotLog = slices.Clone(m.SnapshotLog)
	c.MetadataLog = slices.Clone(m.MetadataLog)
	return &c
}

// validate checks what both a file as read and a file to be written must hold.
func (m *Metadata) validate() error {
	if m.FormatVersion != 2 && m.FormatVersion != 3 {
		return fmt.Errorf("format version %d is neither 2 nor 3", m.FormatVersion)
	}
	if m.UUID == "" || m.Location == "" {
		return corrupt("no table-uuid or no location")
	}
	if m.LastSequence < 0 || m.LastUpdatedMs < 0 || m.NextRowID < 0 || m.LastColumnID < 0 {
		return corrupt("a negative last-sequence-number, last-updated-ms, last-column-id or next-row-id")
	}
	if document(m.Schemas, m.CurrentSchema) == nil {
		return corrupt("current-schema-id %d is in no schema", m.CurrentSchema)
	}
	if document(m.Specs, m.DefaultSpec) == nil {
		return corrupt("default-spec-id %d is in no partition spec", m.DefaultSpec)
	}
	if m.DefaultSortOrder != 0 && document(m.SortOrders, m.DefaultSortOrder) == nil {
		return corrupt("default-sort-order-id %d is in no sort order", m.DefaultSortOrder)
	}
	ids := make(map[int64]bool, len(m.Snapshots))
	for i := range m.Snapshots {
		s := &m.Snapshots[i]
		if ids[s.ID] {
			return corrupt("snapshot %d stands twice", s.ID)
		}
		ids[s.ID] = true
		if s.Sequence > m.LastSequence {
			return corrupt("snapshot %d has sequence number %d, above last-sequence-number %d (S1)", s.ID, s.Sequence, m.LastSequence)
		}
		if m.FormatVersion == 3 && s.FirstRowID != nil && s.AddedRows != nil &&
			(*s.FirstRowID < 0 || *s.AddedRows < 0 || *s.FirstRowID > m.NextRowID-*s.AddedRows) {
			return corrupt("snapshot %d has row ids outside next-row-id %d (S1)", s.ID, m.NextRowID)
		}
	}
	if m.CurrentSnapshot != nil && !ids[*m.CurrentSnapshot] {
		return corrupt("current-snapshot-id %d is in no snapshot", *m.CurrentSnapshot)
	}
	for i := range m.Refs {
		r := &m.Refs[i]
		if !ids[r.SnapshotID] {
			return corrupt("ref %q names snapshot %d, which is not there", r.Name, r.SnapshotID)
		}
		if r.Type != "branch" && r.Type != "tag" {
			return corrupt("ref %q is a %.20q, neither branch nor tag", r.Name, r.Type)
		}
	}
	main := m.Ref(MainBranch)
	if (main != nil) != (m.CurrentSnapshot != nil) || main != nil && main.SnapshotID != *m.CurrentSnapshot {
		return corrupt("ref main and current-snapshot-id differ")
	}
	return nil
}

func sortProperties(ps []schemas.Property) {
	sort.SliceStable(ps, func(i, j int) bool { return ps[i].Key < ps[j].Key })
}

// NewTable is the metadata of an empty table: format version 3, no snapshot
// (S14), nothing but the definition in force. The property gc.enabled is false
// unless the definition says otherwise (S7).
func NewTable(def *schemas.Definition, uuid string, timestampMs int64) (*Metadata, error) {
	if def.FormatVersion != 3 {
		return nil, fmt.Errorf("table %s: format version %d is not written; use 3", def.Name, def.FormatVersion)
	}
	if def.Location == "" || strings.HasSuffix(def.Location, "/") || strings.ContainsAny(def.Location, "?#") {
		return nil, fmt.Errorf("table %s: location %q must be a full location without query or trailing slash (W1)", def.Name, def.Location)
	}
	if def.SchemaByID(def.CurrentSchema) == nil || def.Spec(def.DefaultSpec) == nil {
		return nil, fmt.Errorf("table %s: schema %d or partition spec %d is missing", def.Name, def.CurrentSchema, def.DefaultSpec)
	}
	m := &Metadata{
		FormatVersion: 3, UUID: uuid, Location: def.Location, LastUpdatedMs: timestampMs,
		LastColumnID: def.LastColumnID, CurrentSchema: int64(def.CurrentSchema),
		DefaultSpec: int64(def.DefaultSpec), LastPartitionID: max(def.LastPartitionID, 999),
		SortOrders: []Document{{0, json.RawMessage(`{"order-id":0,"fields":[]}`)}},
	}
	for i := range def.Schemas {
		m.Schemas = append(m.Schemas, Document{int64(def.Schemas[i].ID), def.Schemas[i].AppendJSON(nil)})
	}
	for i := range def.Specs {
		m.Specs = append(m.Specs, Document{int64(def.Specs[i].ID), AppendSpecJSON(nil, &def.Specs[i])})
	}
	m.SetProperty("gc.enabled", "false")
	for _, p := range def.Properties {
		m.SetProperty(p.Key, p.Value)
	}
	return m, m.validate()
}
