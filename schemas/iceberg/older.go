package iceberg

import (
	"encoding/json"
	"fmt"
)

// ParseOldMetadata is ParseMetadata that also reads format version 1, for who only
// takes the table's files: what that version leaves out is filled in as the
// specification says. The metadata of such a table cannot be written.
func ParseOldMetadata(b []byte) (*Metadata, error) {
	members, err := parseObject(b)
	if err != nil {
		return nil, fmt.Errorf("table metadata: %w", err)
	}
	find := func(key string) json.RawMessage {
		for i := range members {
			if members[i].Key == key && string(members[i].Value) != "null" {
				return members[i].Value
			}
		}
		return nil
	}
	version := 0
	if raw := find("format-version"); raw != nil {
		if err := unmarshal(raw, &version); err != nil {
			return nil, fmt.Errorf("table metadata: format-version: %w", err)
		}
	}
	if version != 1 {
		return ParseMetadata(b)
	}
	w := beginObject(nil)
	w.int("format-version", 2)
	absent := func(key string, value func() (json.RawMessage, error)) {
		if find(key) != nil || err != nil {
			return
		}
		var raw json.RawMessage
		if raw, err = value(); err == nil {
			w.raw(key, raw)
		}
	}
	text := func(s string) func() (json.RawMessage, error) {
		return func() (json.RawMessage, error) { return json.RawMessage(s), nil }
	}
	absent("last-sequence-number", text("0"))
	absent("table-uuid", func() (json.RawMessage, error) {
		if raw := find("location"); raw != nil {
			return raw, nil
		}
		return nil, corrupt("no location")
	})
	absent("schemas", func() (json.RawMessage, error) {
		one, err := withID(find("schema"), "schema", "schema-id")
		return append(append([]byte{'['}, one...), ']'), err
	})
	if find("schemas") == nil {
		absent("current-schema-id", func() (json.RawMessage, error) {
			var s struct {
				ID int64 `json:"schema-id"`
			}
			err := unmarshal(find("schema"), &s)
			return json.RawMessage(fmt.Sprint(s.ID)), err
		})
	}
	absent("partition-specs", func() (json.RawMessage, error) {
		fields := find("partition-spec")
		if fields == nil {
			fields = json.RawMessage("[]")
		}
		return append(append([]byte(`[{"spec-id":0,"fields":`), fields...), "}]"...), nil
	})
	absent("default-spec-id", text("0"))
	if err != nil {
		return nil, fmt.Errorf("table metadata: %w", err)
	}
	for _, m := range members {
		if m.Key != "format-version" && string(m.Value) != "null" {
			w.raw(m.Key, m.Value)
		}
	}
	m, err := ParseMetadata(w.end())
	if err != nil {
		return nil, err
	}
	m.FormatVersion = 1
	return m, nil
}

// withID is an object with an id of 0 where it has none.
func withID(raw json.RawMessage, what, key string) (json.RawMessage, error) {
	if raw == nil {
		return nil, corrupt("no %s", what)
	}
	members, err := parseObject(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	for i := range members {
		if members[i].Key == key {
			return raw, nil
		}
	}
	w := beginObject(nil)
	w.int(key, 0)
	w.members(members)
	return w.end(), nil
}
