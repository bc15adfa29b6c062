package iceberg

import (
	"encoding/json"
	"fmt"
	"sort"

	"github.com/varve-io/varve/schemas"
)

// ParseMetadata reads a metadata file of format version 2 or 3. Unknown keys
// are kept (S11).
func ParseMetadata(b []byte) (*Metadata, error) {
	members, err := parseObject(b)
	if err != nil {
		return nil, fmt.Errorf("table metadata: %w", err)
	}
	m := &Metadata{LastPartitionID: 999}
	has := map[string]bool{}
	for _, mem := range members {
		if err := m.parseMember(mem); err != nil {
			return nil, fmt.Errorf("table metadata: %s: %w", mem.Key, err)
		}
		has[mem.Key] = true
	}
	if m.FormatVersion != 2 && m.FormatVersion != 3 {
		return nil, fmt.Errorf("table metadata: format version %d is neither 2 nor 3", m.FormatVersion)
	}
	required := []string{"table-uuid", "location", "last-sequence-number", "last-updated-ms", "last-column-id", "schemas",
		"current-schema-id", "partition-specs", "default-spec-id"}
	if m.FormatVersion == 3 {
		required = append(required, "next-row-id")
	}
	for _, k := range required {
		if !has[k] {
			return nil, fmt.Errorf("table metadata: %w", corrupt("no %s", k))
		}
	}
	if m.CurrentSnapshot != nil && !has["refs"] {
		m.Refs = []Ref{{Name: MainBranch, SnapshotID: *m.CurrentSnapshot, Type: "branch"}}
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("table metadata: %w", err)
	}
	return m, nil
}

func (m *Metadata) parseMember(mem Member) (err error) {
	raw := mem.Value
	switch mem.Key {
	case "format-version":
		return unmarshal(raw, &m.FormatVersion)
	case "table-uuid":
		return unmarshal(raw, &m.UUID)
	case "location":
		return unmarshal(raw, &m.Location)
	case "last-sequence-number":
		return unmarshal(raw, &m.LastSequence)
	case "last-updated-ms":
		return unmarshal(raw, &m.LastUpdatedMs)
	case "last-column-id":
		return unmarshal(raw, &m.LastColumnID)
	case "current-schema-id":
		return unmarshal(raw, &m.CurrentSchema)
	case "schemas":
		m.Schemas, err = parseDocuments(raw, "schema-id")
	case "default-spec-id":
		return unmarshal(raw, &m.DefaultSpec)
	case "partition-specs":
		m.Specs, err = parseDocuments(raw, "spec-id")
	case "last-partition-id":
		return unmarshal(raw, &m.LastPartitionID)
	case "default-sort-order-id":
		return unmarshal(raw, &m.DefaultSortOrder)
	case "sort-orders":
		m.SortOrders, err = parseDocuments(raw, "order-id")
	case "properties":
		m.Properties, err = parseProperties(raw)
		sortProperties(m.Properties)
	case "current-snapshot-id":
		var id *int64
		if err := unmarshal(raw, &id); err != nil {
			return err
		}
		if id != nil && *id != -1 {
			m.CurrentSnapshot = id
		}
	case "next-row-id":
		return unmarshal(raw, &m.NextRowID)
	case "refs":
		m.Refs, err = parseRefs(raw)
	case "snapshots":
		m.Snapshots, err = parseSnapshots(raw)
	case "statistics":
		m.Statistics, err = parseDocuments(raw, "snapshot-id")
	case "partition-statistics":
		m.PartitionStats, err = parseDocuments(raw, "snapshot-id")
	case "encryption-keys":
		if s := string(raw); s != "null" && s != "[]" && s != "{}" {
			m.EncryptionKeys = raw
		}
	case "snapshot-log":
		var log []struct {
			TimestampMs int64 `json:"timestamp-ms"`
			SnapshotID  int64 `json:"snapshot-id"`
		}
		err = unmarshal(raw, &log)
		for _, e := range log {
			m.SnapshotLog = append(m.SnapshotLog, SnapshotLogEntry(e))
		}
	case "metadata-log":
		var log []struct {
			TimestampMs int64  `json:"timestamp-ms"`
			File        string `json:"metadata-file"`
		}
		err = unmarshal(raw, &log)
		for _, e := range log {
			m.MetadataLog = append(m.MetadataLog, MetadataLogEntry(e))
		}
	default:
		m.Extra = append(m.Extra, mem)
	}
	return err
}

func parseDocuments(raw json.RawMessage, idKey string) ([]Document, error) {
	items, err := parseArray(raw)
	if err != nil {
		return nil, err
	}
	var out []Document
	for i, item := range items {
		members, err := parseObject(item)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		d := Document{JSON: item}
		found := false
		for _, mem := range members {
			if mem.Key == idKey {
				found = true
				if err := unmarshal(mem.Value, &d.ID); err != nil {
					return nil, fmt.Errorf("item %d: %w", i, err)
				}
			}
		}
		if !found {
			return nil, corrupt("item %d has no %s", i, idKey)
		}
		out = append(out, d)
	}
	return out, nil
}

// parseProperties keeps the order of the file: a summary's counts.
func parseProperties(raw json.RawMessage) ([]schemas.Property, error) {
	if string(raw) == "null" {
		return nil, nil
	}
	members, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	var out []schemas.Property
	for _, mem := range members {
		var v string
		if err := unmarshal(mem.Value, &v); err != nil {
			return nil, fmt.Errorf("%.40q: %w", mem.Key, err)
		}
		out = append(out, schemas.Property{Key: mem.Key, Value: v})
	}
	return out, nil
}

func parseRefs(raw json.RawMessage) ([]Ref, error) {
	if string(raw) == "null" {
		return nil, nil
	}
	members, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	var out []Ref
	for _, mem := range members {
		inner, err := parseObject(mem.Value)
		if err != nil {
			return nil, fmt.Errorf("%.40q: %w", mem.Key, err)
		}
		r := Ref{Name: mem.Key}
		found := false
		for _, in := range inner {
			switch in.Key {
			case "snapshot-id":
				found = true
				err = unmarshal(in.Value, &r.SnapshotID)
			case "type":
				err = unmarshal(in.Value, &r.Type)
			default:
				if string(in.Value) != "null" {
					r.Extra = append(r.Extra, in)
				}
			}
			if err != nil {
				return nil, fmt.Errorf("%.40q: %w", mem.Key, err)
			}
		}
		if !found {
			return nil, corrupt("%.40q has no snapshot-id", mem.Key)
		}
		out = append(out, r)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

func parseSnapshots(raw json.RawMessage) ([]Snapshot, error) {
	items, err := parseArray(raw)
	if err != nil {
		return nil, err
	}
	var out []Snapshot
	for i, item := range items {
		s, err := parseSnapshot(item)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		out = append(out, s)
	}
	return out, nil
}

func parseSnapshot(raw json.RawMessage) (Snapshot, error) {
	var s Snapshot
	members, err := parseObject(raw)
	if err != nil {
		return s, err
	}
	has := map[string]bool{}
	for _, mem := range members {
		has[mem.Key] = true
		switch mem.Key {
		case "sequence-number":
			err = unmarshal(mem.Value, &s.Sequence)
		case "snapshot-id":
			err = unmarshal(mem.Value, &s.ID)
		case "parent-snapshot-id":
			err = unmarshal(mem.Value, &s.ParentID)
		case "timestamp-ms":
			err = unmarshal(mem.Value, &s.TimestampMs)
		case "summary":
			var pairs []schemas.Property
			pairs, err = parseProperties(mem.Value)
			for _, p := range pairs {
				if p.Key == "operation" {
					s.Operation = p.Value
				} else {
					s.Summary = append(s.Summary, p)
				}
			}
		case "manifest-list":
			err = unmarshal(mem.Value, &s.ManifestList)
		case "schema-id":
			err = unmarshal(mem.Value, &s.SchemaID)
		case "first-row-id":
			err = unmarshal(mem.Value, &s.FirstRowID)
		case "added-rows":
			err = unmarshal(mem.Value, &s.AddedRows)
		default:
			s.Extra = append(s.Extra, mem)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %w", mem.Key, err)
		}
	}
	if !has["snapshot-id"] || !has["timestamp-ms"] {
		return s, corrupt("a snapshot without snapshot-id or timestamp-ms")
	}
	if s.ManifestList == "" {
		return s, fmt.Errorf("snapshot %d has no manifest-list; one that names its manifests itself, as version 1 allowed, is not read", s.ID)
	}
	return s, nil
}

// Marshal is the metadata file: keys in Iceberg's order, no white space, the
// same bytes for equal metadata (C7). It refuses metadata that does not hold
// together.
func (m *Metadata) Marshal() ([]byte, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("table metadata of %s: %w", m.Location, err)
	}
	if n := len(m.SnapshotLog); n > 0 && m.CurrentSnapshot != nil && m.SnapshotLog[n-1].SnapshotID != *m.CurrentSnapshot {
		return nil, fmt.Errorf("table metadata of %s: the snapshot-log's last entry is not the current snapshot (S14)", m.Location)
	}
	w := beginObject(nil)
	w.int("format-version", int64(m.FormatVersion))
	w.string("table-uuid", m.UUID)
	w.string("location", m.Location)
	w.int("last-sequence-number", m.LastSequence)
	w.int("last-updated-ms", m.LastUpdatedMs)
	w.int("last-column-id", int64(m.LastColumnID))
	w.int("current-schema-id", m.CurrentSchema)
	w.raws("schemas", rawsOf(m.Schemas))
	w.int("default-spec-id", m.DefaultSpec)
	w.raws("partition-specs", rawsOf(m.Specs))
	w.int("last-partition-id", int64(m.LastPartitionID))
	w.int("default-sort-order-id", m.DefaultSortOrder)
	w.raws("sort-orders", rawsOf(m.SortOrders))
	w.properties("properties", m.Properties)
	w.optInt("current-snapshot-id", m.CurrentSnapshot)
	if m.FormatVersion == 3 {
		w.int("next-row-id", m.NextRowID)
	}
	if m.EncryptionKeys != nil {
		w.raw("encryption-keys", m.EncryptionKeys)
	}
	w.key("refs")
	refs := beginObject(w.b)
	for i := range m.Refs {
		r := &m.Refs[i]
		refs.key(r.Name)
		o := beginObject(refs.b)
		o.int("snapshot-id", r.SnapshotID)
		o.string("type", r.Type)
		o.members(r.Extra)
		refs.b = o.end()
	}
	w.b = refs.end()
	w.key("snapshots")
	w.b = append(w.b, '[')
	for i := range m.Snapshots {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = m.Snapshots[i].AppendJSON(w.b)
	}
	w.b = append(w.b, ']')
	w.raws("statistics", rawsOf(m.Statistics))
	w.raws("partition-statistics", rawsOf(m.PartitionStats))
	w.key("snapshot-log")
	w.b = append(w.b, '[')
	for i, e := range m.SnapshotLog {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		o := beginObject(w.b)
		o.int("timestamp-ms", e.TimestampMs)
		o.int("snapshot-id", e.SnapshotID)
		w.b = o.end()
	}
	w.b = append(w.b, ']')
	w.key("metadata-log")
	w.b = append(w.b, '[')
	for i, e := range m.MetadataLog {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		o := beginObject(w.b)
		o.int("timestamp-ms", e.TimestampMs)
		o.string("metadata-file", e.File)
		w.b = o.end()
	}
	w.b = append(w.b, ']')
	w.members(m.Extra)
	return w.end(), nil
}

func rawsOf(docs []Document) []json.RawMessage {
	out := make([]json.RawMessage, len(docs))
	for i := range docs {
		out[i] = docs[i].JSON
	}
	return out
}

// AppendJSON appends the snapshot as table metadata and the REST protocol's
// add-snapshot hold it.
func (s *Snapshot) AppendJSON(dst []byte) []byte {
	w := beginObject(dst)
	w.int("sequence-number", s.Sequence)
	w.int("snapshot-id", s.ID)
	w.optInt("parent-snapshot-id", s.ParentID)
	w.int("timestamp-ms", s.TimestampMs)
	if s.Operation != "" || len(s.Summary) > 0 {
		w.key("summary")
		o := beginObject(w.b)
		if s.Operation != "" {
			o.string("operation", s.Operation)
		}
		for _, p := range s.Summary {
			o.string(p.Key, p.Value)
		}
		w.b = o.end()
	}
	w.string("manifest-list", s.ManifestList)
	w.optInt("schema-id", s.SchemaID)
	w.optInt("first-row-id", s.FirstRowID)
	w.optInt("added-rows", s.AddedRows)
	w.members(s.Extra)
	return w.end()
}
