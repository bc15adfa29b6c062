package iceberg

import (
	"fmt"
	"slices"
	"sort"

	"github.com/varve-io/varve/schemas"
)

// ErrBase marks a change that does not fit the metadata it is made on: another
// writer moved a sequence number, a row id, a ref (S1). The caller reads the
// metadata again and builds anew.
var ErrBase = fmt.Errorf("the change does not fit the table's metadata")

// MetadataLogLimit is how many earlier metadata files are kept (S6).
const MetadataLogLimit = 100

// NextTimestamp is the time of the next change (S2): the table time, or one
// millisecond after the latest time that the metadata holds.
func (m *Metadata) NextTimestamp(tableTimeMs int64) int64 {
	latest := m.LastUpdatedMs
	for _, e := range m.SnapshotLog {
		latest = max(latest, e.TimestampMs)
	}
	for _, e := range m.MetadataLog {
		latest = max(latest, e.TimestampMs)
	}
	return max(tableTimeMs, latest+1)
}

// Touch sets the time of a change that adds no snapshot (S12).
func (m *Metadata) Touch(timestampMs int64) error {
	if timestampMs < m.NextTimestamp(0) {
		return fmt.Errorf("%w: time %d is not after the metadata's latest time %d (S2)", ErrBase, timestampMs, m.NextTimestamp(0)-1)
	}
	m.LastUpdatedMs = timestampMs
	return nil
}

// AddSnapshot adds a snapshot and moves sequence number, row ids and time. It
// moves no ref.
func (m *Metadata) AddSnapshot(s Snapshot) error {
	switch {
	case m.FormatVersion != 3:
		return fmt.Errorf("%w: snapshot for a table of format version %d", ErrUnwritable, m.FormatVersion)
	case s.ID <= 0 || m.Snapshot(s.ID) != nil:
		return fmt.Errorf("%w: snapshot id %d is in use or not positive (S4)", ErrBase, s.ID)
	case s.ParentID != nil && m.Snapshot(*s.ParentID) == nil:
		return fmt.Errorf("%w: parent %d of snapshot %d is not there", ErrBase, *s.ParentID, s.ID)
	case s.Sequence != m.LastSequence+1:
		return fmt.Errorf("%w: snapshot %d has sequence number %d, the next is %d (S1)", ErrBase, s.ID, s.Sequence, m.LastSequence+1)
	case s.FirstRowID == nil || *s.FirstRowID != m.NextRowID:
		return fmt.Errorf("%w: snapshot %d does not begin at next-row-id %d (S1)", ErrBase, s.ID, m.NextRowID)
	case s.AddedRows == nil || *s.AddedRows < 0:
		return fmt.Errorf("snapshot %d has no number of added rows (M4)", s.ID)
	case s.ManifestList == "":
		return fmt.Errorf("snapshot %d has no manifest list", s.ID)
	case s.SchemaID == nil || document(m.Schemas, *s.SchemaID) == nil:
		return fmt.Errorf("snapshot %d names a schema that the metadata does not have", s.ID)
	}
	switch s.Operation {
	case "append", "delete", "replace", "overwrite":
	default:
		return fmt.Errorf("snapshot %d has operation %q, none of append, delete, replace, overwrite (S5)", s.ID, s.Operation)
	}
	if err := m.Touch(s.TimestampMs); err != nil {
		return fmt.Errorf("snapshot %d: %w", s.ID, err)
	}
	m.Snapshots = append(m.Snapshots, s)
	m.LastSequence = s.Sequence
	m.NextRowID += *s.AddedRows
	return nil
}

// SetRef makes or moves a branch or tag. Main's move is the table's current
// snapshot and an entry of the snapshot log at the time of the change, which
// AddSnapshot or Touch has set (S8, S14). A ref that exists keeps its type and
// retention.
func (m *Metadata) SetRef(name, kind string, snapshotID int64) error {
	if m.Snapshot(snapshotID) == nil {
		return fmt.Errorf("%w: ref %q to snapshot %d, which is not there", ErrBase, name, snapshotID)
	}
	if kind != "branch" && kind != "tag" || name == "" || name == MainBranch && kind != "branch" {
		return fmt.Errorf("ref %q cannot be a %q", name, kind)
	}
	if r := m.Ref(name); r != nil {
		if r.Type != kind {
			return fmt.Errorf("%w: ref %q is a %s", ErrBase, name, r.Type)
		}
		if r.SnapshotID == snapshotID {
			return nil
		}
		r.SnapshotID = snapshotID
	} else {
		m.Refs = append(m.Refs, Ref{Name: name, SnapshotID: snapshotID, Type: kind})
		sort.Slice(m.Refs, func(i, j int) bool { return m.Refs[i].Name < m.Refs[j].Name })
	}
	if name == MainBranch {
		id := snapshotID
		m.CurrentSnapshot = &id
		m.SnapshotLog = append(m.SnapshotLog, SnapshotLogEntry{m.LastUpdatedMs, snapshotID})
	}
	return nil
}

// RemoveRef drops a branch or tag; main cannot go.
func (m *Metadata) RemoveRef(name string) error {
	if name == MainBranch {
		return fmt.Errorf("branch main cannot be removed")
	}
	i := slices.IndexFunc(m.Refs, func(r Ref) bool { return r.Name == name })
	if i < 0 {
		return fmt.Errorf("%w: no ref %q", ErrBase, name)
	}
	m.Refs = slices.Delete(m.Refs, i, i+1)
	return nil
}

// RemoveSnapshots expires snapshots with their statistics. The snapshot log
// loses every entry up to the last one of an expired snapshot (S14). A
// snapshot that a ref names is not removed, an unknown one is an error.
func (m *Metadata) RemoveSnapshots(ids []int64) error {
	gone := make(map[int64]bool, len(ids))
	for _, id := range ids {
		if m.Snapshot(id) == nil {
			return fmt.Errorf("%w: snapshot %d to expire is not there", ErrBase, id)
		}
		gone[id] = true
	}
	for i := range m.Refs {
		if gone[m.Refs[i].SnapshotID] {
			return fmt.Errorf("%w: snapshot %d to expire is named by ref %q (S6)", ErrBase, m.Refs[i].SnapshotID, m.Refs[i].Name)
		}
	}
	m.Snapshots = slices.DeleteFunc(m.Snapshots, func(s Snapshot) bool { return gone[s.ID] })
	m.Statistics = slices.DeleteFunc(m.Statistics, func(d Document) bool { return gone[d.ID] })
	m.PartitionStats = slices.DeleteFunc(m.PartitionStats, func(d Document) bool { return gone[d.ID] })
	keep := 0
	for i, e := range m.SnapshotLog {
		if gone[e.SnapshotID] {
			keep = i + 1
		}
	}
	m.SnapshotLog = m.SnapshotLog[keep:]
	return nil
}

// LogMetadata enters the metadata file that this one replaces, and returns the
// entries that fell out of the log beyond limit (S6).
func (m *Metadata) LogMetadata(file string, lastUpdatedMs int64, limit int) (dropped []MetadataLogEntry) {
	m.MetadataLog = append(m.MetadataLog, MetadataLogEntry{lastUpdatedMs, file})
	if n := len(m.MetadataLog) - limit; n > 0 {
		dropped = slices.Clone(m.MetadataLog[:n])
		m.MetadataLog = slices.Clone(m.MetadataLog[n:])
	}
	return dropped
}

// SetSchema adds a schema version, unless one of this id and these bytes is
// there, and makes it current.
func (m *Metadata) SetSchema(s *schemas.Schema) error {
	text := s.AppendJSON(nil)
	if old := document(m.Schemas, int64(s.ID)); old != nil {
		if string(old) != string(text) {
			return fmt.Errorf("%w: schema %d is there with other columns", ErrBase, s.ID)
		}
	} else {
		m.Schemas = append(m.Schemas, Document{int64(s.ID), text})
	}
	m.CurrentSchema = int64(s.ID)
	m.LastColumnID = max(m.LastColumnID, s.HighestID())
	return nil
}

// SetSpec adds a partition spec, unless one of this id and these bytes is
// there, and makes it the default.
func (m *Metadata) SetSpec(s *schemas.Spec) error {
	text := AppendSpecJSON(nil, s)
	if old := document(m.Specs, int64(s.ID)); old != nil {
		if string(old) != string(text) {
			return fmt.Errorf("%w: partition spec %d is there with other fields", ErrBase, s.ID)
		}
	} else {
		m.Specs = append(m.Specs, Document{int64(s.ID), text})
	}
	m.DefaultSpec = int64(s.ID)
	for i := range s.Fields {
		m.LastPartitionID = max(m.LastPartitionID, s.Fields[i].FieldID)
	}
	return nil
}

// SetProperty sets one table property.
func (m *Metadata) SetProperty(key, value string) {
	for i := range m.Properties {
		if m.Properties[i].Key == key {
			m.Properties[i].Value = value
			return
		}
	}
	m.Properties = append(m.Properties, schemas.Property{Key: key, Value: value})
	sortProperties(m.Properties)
}

// RemoveProperty drops one table property, if it is there.
func (m *Metadata) RemoveProperty(key string) {
	m.Properties = slices.DeleteFunc(m.Properties, func(p schemas.Property) bool { return p.Key == key })
}

// Upgrade makes a table of format version 2 one of version 3 (S13). Its
// snapshots stay as they are; row ids begin at 0.
func (m *Metadata) Upgrade() error {
	if m.FormatVersion != 2 {
		return fmt.Errorf("%w: a table of format version %d is not upgraded to 3", ErrBase, m.FormatVersion)
	}
	m.FormatVersion, m.NextRowID = 3, 0
	return nil
}
