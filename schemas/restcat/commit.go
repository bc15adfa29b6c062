package restcat

import (
	"encoding/json"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
)

// Requirement is what must hold for a commit, Update one change of it. Both
// are JSON objects, made by the functions of this file.
type (
	Requirement = json.RawMessage
	Update      = json.RawMessage
)

// object is the JSON of a map with sorted keys; its values always encode.
func object(m map[string]any) json.RawMessage {
	b, err := json.Marshal(m)
	if err != nil {
		panic("restcat: " + err.Error())
	}
	return b
}

// AssertCreate: there is no such table.
func AssertCreate() Requirement { return object(map[string]any{"type": "assert-create"}) }

// AssertUUID: the table is this one.
func AssertUUID(uuid string) Requirement {
	return object(map[string]any{"type": "assert-table-uuid", "uuid": uuid})
}

// AssertRef: a branch or tag is at this snapshot; 0: it is not there.
func AssertRef(ref string, snapshot int64) Requirement {
	var id any
	if snapshot != 0 {
		id = snapshot
	}
	return object(map[string]any{"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": id})
}

// AssertCurrentSchema: nobody made another schema the current one.
func AssertCurrentSchema(id int64) Requirement {
	return object(map[string]any{"type": "assert-current-schema-id", "current-schema-id": id})
}

// AssertLastField: nobody gave a field id since.
func AssertLastField(id int32) Requirement {
	return object(map[string]any{"type": "assert-last-assigned-field-id", "last-assigned-field-id": id})
}

// AssertDefaultSpec: nobody made another partition spec the default one.
func AssertDefaultSpec(id int64) Requirement {
	return object(map[string]any{"type": "assert-default-spec-id", "default-spec-id": id})
}

// AssertLastPartition: nobody gave a partition field id since.
func AssertLastPartition(id int32) Requirement {
	return object(map[string]any{"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": id})
}

// AssignUUID gives a new table its UUID.
func AssignUUID(uuid string) Update {
	return object(map[string]any{"action": "assign-uuid", "uuid": uuid})
}

// UpgradeFormat sets the format version.
func UpgradeFormat(version int32) Update {
	return object(map[string]any{"action": "upgrade-format-version", "format-version": version})
}

// SetLocation sets the table's location.
func SetLocation(location string) Update {
	return object(map[string]any{"action": "set-location", "location": location})
}

// AddSchema adds a schema version. Servers give it the next free id, whatever
// id it carries.
func AddSchema(s *schemas.Schema, lastColumnID int32) Update {
	return object(map[string]any{"action": "add-schema", "schema": json.RawMessage(s.AppendJSON(nil)), "last-column-id": lastColumnID})
}

// LastAdded is the id that means the one just added.
const LastAdded = -1

// SetCurrentSchema makes a schema version the current one.
func SetCurrentSchema(id int32) Update {
	return object(map[string]any{"action": "set-current-schema", "schema-id": id})
}

// AddSpec adds a partition spec.
func AddSpec(s *schemas.Spec) Update {
	return object(map[string]any{"action": "add-spec", "spec": json.RawMessage(iceberg.AppendSpecJSON(nil, s))})
}

// SetDefaultSpec makes a partition spec the default one.
func SetDefaultSpec(id int32) Update {
	return object(map[string]any{"action": "set-default-spec", "spec-id": id})
}

// Unsorted is the sort order of tables without one.
const Unsorted = `{"order-id":0,"fields":[]}`

// AddUnsorted and SetDefaultOrder give a new table its sort order.
func AddUnsorted() Update {
	return object(map[string]any{"action": "add-sort-order", "sort-order": json.RawMessage(Unsorted)})
}

// SetDefaultOrder makes a sort order the default one.
func SetDefaultOrder(id int32) Update {
	return object(map[string]any{"action": "set-default-sort-order", "sort-order-id": id})
}

// SetProperties sets table properties.
func SetProperties(ps []schemas.Property) Update {
	m := make(map[string]string, len(ps))
	for _, p := range ps {
		m[p.Key] = p.Value
	}
	return object(map[string]any{"action": "set-properties", "updates": m})
}

// RemoveProperties removes table properties.
func RemoveProperties(keys []string) Update {
	return object(map[string]any{"action": "remove-properties", "removals": keys})
}

// AddSnapshot adds a snapshot; no branch moves to it.
func AddSnapshot(s *iceberg.Snapshot) Update {
	return object(map[string]any{"action": "add-snapshot", "snapshot": json.RawMessage(s.AppendJSON(nil))})
}

// SetRef moves or makes a branch or tag. Extra are its other settings, which a
// server takes as they stand here or not at all (S11).
func SetRef(name, kind string, snapshot int64, extra []iceberg.Member) Update {
	m := map[string]any{}
	for _, x := range extra {
		m[x.Key] = x.Value
	}
	m["action"], m["ref-name"], m["type"], m["snapshot-id"] = "set-snapshot-ref", name, kind, snapshot
	return object(m)
}

// RemoveRef drops a branch or tag.
func RemoveRef(name string) Update {
	return object(map[string]any{"action": "remove-snapshot-ref", "ref-name": name})
}

// RemoveSnapshots expires snapshots.
func RemoveSnapshots(ids []int64) Update {
	return object(map[string]any{"action": "remove-snapshots", "snapshot-ids": ids})
}
