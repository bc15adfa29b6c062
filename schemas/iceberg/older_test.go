package iceberg

import (
	"strings"
	"testing"
)

const firstVersion = `{"format-version":1,"location":"file:///t","last-updated-ms":5,"last-column-id":2,
 "schema":{"type":"struct","fields":[{"id":1,"name":"id","required":true,"type":"long"},{"id":2,"name":"at","required":false,"type":"date"}]},
 "partition-spec":[{"name":"at_year","transform":"year","source-id":2,"field-id":1000}],
 "properties":{"a":"b"},"current-snapshot-id":7,
 "snapshots":[{"snapshot-id":7,"timestamp-ms":4,"manifest-list":"file:///t/list","summary":{"operation":"append"}}]}`

// TestOldMetadata: version 1 is read with what it leaves out; later versions as ever.
func TestOldMetadata(t *testing.T) {
	m, err := ParseOldMetadata([]byte(firstVersion))
	if err != nil {
		t.Fatal(err)
	}
	if s := m.Current(); m.FormatVersion != 1 || m.UUID != "file:///t" || m.LastSequence != 0 || s == nil || s.Sequence != 0 || s.ManifestList != "file:///t/list" {
		t.Errorf("got %+v", m)
	}
	schema, err := m.Schema(m.CurrentSchema)
	if err != nil || len(schema.Fields) != 2 || schema.Fields[1].Name != "at" {
		t.Errorf("schema %+v, %v", schema, err)
	}
	spec, err := m.Spec(m.DefaultSpec)
	if err != nil || len(spec.Fields) != 1 || spec.Fields[0].SourceID != 2 || spec.Fields[0].FieldID != 1000 {
		t.Errorf("spec %+v, %v", spec, err)
	}
	if err := m.CheckWritable(); err == nil {
		t.Error("metadata of version 1 can be written")
	}

	// Newer writers of version 1 say everything both ways.
	both := strings.Replace(firstVersion, `"properties"`, `"table-uuid":"u","current-schema-id":3,"default-spec-id":4,
 "schemas":[{"schema-id":3,"type":"struct","fields":[{"id":1,"name":"key","required":true,"type":"long"}]}],
 "partition-specs":[{"spec-id":4,"fields":[]}],"properties"`, 1)
	if m, err = ParseOldMetadata([]byte(both)); err != nil {
		t.Fatal(err)
	}
	schema, err = m.Schema(m.CurrentSchema)
	if err != nil || m.UUID != "u" || m.DefaultSpec != 4 || schema.Fields[0].Name != "key" {
		t.Errorf("got %+v, %+v, %v", m, schema, err)
	}

	for _, c := range []struct{ text, want string }{
		{`{"format-version":1}`, "no location"},
		{`{"format-version":4}`, "neither 2 nor 3"},
		{`{}`, "neither 2 nor 3"},
		{`[]`, "not a JSON object"},
		{strings.Replace(firstVersion, `"schema":`, `"other":`, 1), "no schema"},
		{strings.Replace(firstVersion, `"manifest-list"`, `"manifests"`, 1), "no manifest-list"},
	} {
		if _, err := ParseOldMetadata([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40s: %v, want %q", c.text, err, c.want)
		}
	}
}

func FuzzParseOldMetadata(f *testing.F) {
	f.Add([]byte(firstVersion))
	f.Add([]byte(`{"format-version":1,"schema":null,"schemas":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseOldMetadata(b)
		if err != nil {
			return
		}
		if m.UUID == "" || m.Location == "" || m.FormatVersion < 1 || m.FormatVersion > 3 {
			t.Fatalf("read %+v", m)
		}
	})
}
