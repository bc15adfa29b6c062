package iceberg

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
)

func testDefinition() *schemas.Definition {
	return &schemas.Definition{
		Name: "shop.orders", Location: "file:///lake/shop/orders", FormatVersion: 3, Mode: schemas.ModeDV,
		Schemas: []schemas.Schema{{ID: 0, Identifier: []int32{1}, Fields: []schemas.Field{
			{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true},
			{ID: 2, Name: "total", Type: schemas.DecimalOf(12, 2)},
		}}},
		LastColumnID: 2,
		Specs: []schemas.Spec{{ID: 0, Fields: []schemas.PartitionField{
			{SourceID: 1, FieldID: 1000, Name: "id_bucket", Transform: schemas.Bucket, N: 8}}}},
		LastPartitionID: 1000, Key: []int32{1},
		Properties: []schemas.Property{{Key: "owner", Value: "a \"quoted\" name"}},
	}
}

var testTable = TableIdentity{Deployment: [16]byte{0xd0, 1, 2}, Partition: 3, TableID: 42}

func newTable(t *testing.T) *Metadata {
	t.Helper()
	m, err := NewTable(testDefinition(), testTable.UUID(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// An empty table, byte by byte (C7): no snapshot and no current-snapshot-id
// (S14), gc.enabled false (S7).
func TestNewTable(t *testing.T) {
	b, err := newTable(t).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"format-version":3,"table-uuid":"` + testTable.UUID() + `","location":"file:///lake/shop/orders",` +
		`"last-sequence-number":0,"last-updated-ms":1000,"last-column-id":2,"current-schema-id":0,` +
		`"schemas":[{"type":"struct","schema-id":0,"identifier-field-ids":[1],"fields":[` +
		`{"id":1,"name":"id","required":true,"type":"long"},{"id":2,"name":"total","required":false,"type":"decimal(12, 2)"}]}],` +
		`"default-spec-id":0,"partition-specs":[{"spec-id":0,"fields":[{"name":"id_bucket","transform":"bucket[8]","source-id":1,"field-id":1000}]}],` +
		`"last-partition-id":1000,"default-sort-order-id":0,"sort-orders":[{"order-id":0,"fields":[]}],` +
		`"properties":{"gc.enabled":"false","owner":"a \"quoted\" name"},"next-row-id":0,"refs":{},"snapshots":[],` +
		`"statistics":[],"partition-statistics":[],"snapshot-log":[],"metadata-log":[]}`
	if string(b) != want {
		t.Errorf("got\n%s\nwant\n%s", b, want)
	}
	for _, location := range []string{"", "file:///a/", "s3://b/k?x=1"} {
		def := testDefinition()
		def.Location = location
		if _, err := NewTable(def, "u", 1); err == nil {
			t.Errorf("location %q was accepted (W1)", location)
		}
	}
}

// snapshot is the next one that m accepts.
func snapshot(m *Metadata, id, rows int64) Snapshot {
	return Snapshot{
		Sequence: m.LastSequence + 1, ID: id, ParentID: m.CurrentSnapshot, TimestampMs: m.NextTimestamp(0), Operation: "append",
		Summary:      []schemas.Property{{Key: "varve.offset", Value: "7"}, {Key: "added-records", Value: fmt.Sprint(rows)}},
		ManifestList: fmt.Sprintf("file:///lake/shop/orders/metadata/snap-%d.avro", id), SchemaID: ptr(int64(0)),
		FirstRowID: ptr(m.NextRowID), AddedRows: ptr(rows),
	}
}

func mustCommit(t *testing.T, m *Metadata, id, rows int64) {
	t.Helper()
	if err := m.AddSnapshot(snapshot(m, id, rows)); err != nil {
		t.Fatal(err)
	}
	if err := m.SetRef(MainBranch, "branch", id); err != nil {
		t.Fatal(err)
	}
}

func reparse(t *testing.T, m *Metadata) *Metadata {
	t.Helper()
	b, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseMetadata(b)
	if err != nil {
		t.Fatal(err)
	}
	c, err := again.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != string(c) {
		t.Errorf("read and written again:\n%s\nwas\n%s", c, b)
	}
	return again
}

// Two snapshots move sequence number, row ids, time, log and current snapshot
// (S1, S2, S14); the summary keeps its order (S10).
func TestSnapshots(t *testing.T) {
	m := newTable(t)
	mustCommit(t, m, 11, 5)
	m.LogMetadata("file:///lake/shop/orders/metadata/v1.metadata.json", 1000, MetadataLogLimit)
	mustCommit(t, m, 12, 0)
	got := reparse(t, m)
	if got.LastSequence != 2 || got.NextRowID != 5 || got.LastUpdatedMs != 1002 || *got.CurrentSnapshot != 12 {
		t.Errorf("sequence %d, next row id %d, updated %d, current %d", got.LastSequence, got.NextRowID, got.LastUpdatedMs, *got.CurrentSnapshot)
	}
	if want := []SnapshotLogEntry{{1001, 11}, {1002, 12}}; !reflect.DeepEqual(got.SnapshotLog, want) {
		t.Errorf("snapshot log %v, want %v", got.SnapshotLog, want)
	}
	if !reflect.DeepEqual(got.Snapshots, m.Snapshots) || got.Current().ID != 12 || *got.Current().ParentID != 11 {
		t.Errorf("snapshots %+v", got.Snapshots)
	}
	b, _ := got.Marshal()
	if want := `"summary":{"operation":"append","varve.offset":"7","added-records":"5"}`; !strings.Contains(string(b), want) {
		t.Errorf("no %s in %s", want, b)
	}
}

// S1, S2, S5: what does not fit the base is refused, and says so.
func TestAddSnapshotRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Snapshot)
		base   bool
	}{
		{"sequence number jumps", func(s *Snapshot) { s.Sequence++ }, true},
		{"sequence number stays", func(s *Snapshot) { s.Sequence-- }, true},
		{"row ids begin elsewhere", func(s *Snapshot) { s.FirstRowID = ptr(int64(4)) }, true},
		{"no row ids", func(s *Snapshot) { s.FirstRowID = nil }, true},
		{"id in use", func(s *Snapshot) { s.ID = 11 }, true},
		{"unknown parent", func(s *Snapshot) { s.ParentID = ptr(int64(99)) }, true},
		{"time does not move", func(s *Snapshot) { s.TimestampMs = 1001 }, true},
		{"negative added rows", func(s *Snapshot) { s.AddedRows = ptr(int64(-1)) }, false},
		{"no manifest list", func(s *Snapshot) { s.ManifestList = "" }, false},
		{"unknown schema", func(s *Snapshot) { s.SchemaID = ptr(int64(8)) }, false},
		{"unknown operation", func(s *Snapshot) { s.Operation = "merge" }, false},
	} {
		m := newTable(t)
		mustCommit(t, m, 11, 5)
		before, _ := m.Marshal()
		s := snapshot(m, 12, 1)
		c.change(&s)
		if err := m.AddSnapshot(s); err == nil || errors.Is(err, ErrBase) != c.base {
			t.Errorf("%s: error %v (to be built anew: want %v)", c.name, err, c.base)
		}
		if after, _ := m.Marshal(); string(before) != string(after) {
			t.Errorf("%s: a refused snapshot changed the metadata", c.name)
		}
	}
}

// S2: time goes past everything that the metadata holds, whatever the clock.
func TestNextTimestamp(t *testing.T) {
	m := newTable(t)
	m.SnapshotLog = []SnapshotLogEntry{{3000, 1}, {2000, 2}}
	m.MetadataLog = []MetadataLogEntry{{2500, "f"}}
	for table, want := range map[int64]int64{0: 3001, 3000: 3001, 3001: 3001, 9000: 9000} {
		if got := m.NextTimestamp(table); got != want {
			t.Errorf("table time %d: %d, want %d", table, got, want)
		}
	}
	m.MetadataLog[0].TimestampMs = 4000
	if got := m.NextTimestamp(0); got != 4001 {
		t.Errorf("metadata log at 4000: %d", got)
	}
}

// Rollback moves main back; numbers never fall (S1, S8).
func TestRollback(t *testing.T) {
	m := newTable(t)
	mustCommit(t, m, 11, 5)
	mustCommit(t, m, 12, 7)
	if err := m.Touch(m.NextTimestamp(5000)); err != nil {
		t.Fatal(err)
	}
	if err := m.SetRef(MainBranch, "branch", 11); err != nil {
		t.Fatal(err)
	}
	got := reparse(t, m)
	if *got.CurrentSnapshot != 11 || got.LastSequence != 2 || got.NextRowID != 12 {
		t.Errorf("current %d, sequence %d, next row id %d", *got.CurrentSnapshot, got.LastSequence, got.NextRowID)
	}
	if want := (SnapshotLogEntry{5000, 11}); got.SnapshotLog[2] != want {
		t.Errorf("log %v", got.SnapshotLog)
	}
	s := snapshot(got, 13, 1)
	if s.Sequence != 3 || *s.ParentID != 11 || *s.FirstRowID != 12 {
		t.Errorf("next snapshot %+v", s)
	}
}

// Expiry takes snapshots with their statistics, and the log up to the last
// entry of one that went (S6, S11, S14); refs hold theirs.
func TestRemoveSnapshots(t *testing.T) {
	m := newTable(t)
	for id := int64(11); id <= 15; id++ {
		mustCommit(t, m, id, 1)
	}
	if err := m.SetRef("audit", "tag", 12); err != nil {
		t.Fatal(err)
	}
	m.Statistics = []Document{{11, json.RawMessage(`{"snapshot-id":11}`)}, {14, json.RawMessage(`{"snapshot-id":14}`)}}
	if err := m.RemoveSnapshots([]int64{11, 13}); err != nil {
		t.Fatal(err)
	}
	got := reparse(t, m)
	var ids []int64
	for _, s := range got.Snapshots {
		ids = append(ids, s.ID)
	}
	if !reflect.DeepEqual(ids, []int64{12, 14, 15}) {
		t.Errorf("snapshots %v", ids)
	}
	if want := []SnapshotLogEntry{{1004, 14}, {1005, 15}}; !reflect.DeepEqual(got.SnapshotLog, want) {
		t.Errorf("log %v, want %v: entries before an expired one go", got.SnapshotLog, want)
	}
	if len(got.Statistics) != 1 || got.Statistics[0].ID != 14 {
		t.Errorf("statistics %v", got.Statistics)
	}
	for _, id := range []int64{12, 15, 99} {
		if err := m.RemoveSnapshots([]int64{id}); !errors.Is(err, ErrBase) {
			t.Errorf("snapshot %d (tag, main, unknown): %v", id, err)
		}
	}
	if err := m.RemoveRef("audit"); err != nil {
		t.Fatal(err)
	}
	if err := m.RemoveSnapshots([]int64{12}); err != nil {
		t.Error(err)
	}
	if m.RemoveRef(MainBranch) == nil || !errors.Is(m.RemoveRef("audit"), ErrBase) {
		t.Error("main or an unknown ref was removed")
	}
}

func TestRefs(t *testing.T) {
	m := newTable(t)
	mustCommit(t, m, 11, 1)
	if m.SetRef(MainBranch, "tag", 11) == nil || m.SetRef("x", "twig", 11) == nil || !errors.Is(m.SetRef("x", "tag", 5), ErrBase) {
		t.Error("a wrong ref was set")
	}
	logged := len(m.SnapshotLog)
	if err := m.SetRef("b", "branch", 11); err != nil {
		t.Fatal(err)
	}
	if err := m.SetRef(MainBranch, "branch", 11); err != nil {
		t.Fatal(err)
	}
	if len(m.SnapshotLog) != logged {
		t.Error("the snapshot log grew though main did not move (S14)")
	}
	if !errors.Is(m.SetRef("b", "tag", 11), ErrBase) {
		t.Error("a branch became a tag")
	}
}

func TestMetadataLogLimit(t *testing.T) {
	m := newTable(t)
	var dropped []MetadataLogEntry
	for i := int64(0); i < 103; i++ {
		dropped = append(dropped, m.LogMetadata(fmt.Sprintf("v%d", i+1), i, MetadataLogLimit)...)
	}
	if len(m.MetadataLog) != 100 || m.MetadataLog[0].File != "v4" || m.MetadataLog[99].File != "v103" {
		t.Errorf("log of %d entries from %s", len(m.MetadataLog), m.MetadataLog[0].File)
	}
	if want := []MetadataLogEntry{{0, "v1"}, {1, "v2"}, {2, "v3"}}; !reflect.DeepEqual(dropped, want) {
		t.Errorf("dropped %v, want %v", dropped, want)
	}
}

func TestSchemaSpecProperties(t *testing.T) {
	m := newTable(t)
	wider := testDefinition().Schemas[0]
	wider.ID = 1
	wider.Fields = append(wider.Fields, schemas.Field{ID: 5, Name: "note", Type: schemas.Of(schemas.String)})
	spec := schemas.Spec{ID: 1, Fields: []schemas.PartitionField{{SourceID: 5, FieldID: 1003, Name: "note", Transform: schemas.Identity}}}
	if err := m.SetSchema(&wider); err != nil {
		t.Fatal(err)
	}
	if err := m.SetSpec(&spec); err != nil {
		t.Fatal(err)
	}
	m.SetProperty("a", "1")
	m.SetProperty("owner", "b")
	m.RemoveProperty("gc.enabled")
	got := reparse(t, m)
	if got.LastColumnID != 5 || got.CurrentSchema != 1 || len(got.Schemas) != 2 || got.DefaultSpec != 1 || got.LastPartitionID != 1003 {
		t.Errorf("%+v", got)
	}
	if want := []schemas.Property{{Key: "a", Value: "1"}, {Key: "owner", Value: "b"}}; !reflect.DeepEqual(got.Properties, want) {
		t.Errorf("properties %v", got.Properties)
	}
	if s, err := got.Spec(1); err != nil || !reflect.DeepEqual(*s, spec) {
		t.Errorf("spec %+v, %v", s, err)
	}
	if err := m.SetSchema(&testDefinition().Schemas[0]); err != nil || m.CurrentSchema != 0 || m.LastColumnID != 5 {
		t.Errorf("back to schema 0: %v", err)
	}
	wider.Fields[2].Name = "other"
	if err := m.SetSchema(&wider); !errors.Is(err, ErrBase) {
		t.Errorf("another schema 1: %v", err)
	}
	spec.Fields[0].Name = "other"
	if err := m.SetSpec(&spec); !errors.Is(err, ErrBase) {
		t.Errorf("another spec 1: %v", err)
	}
}

// A clone's changes stay its own.
func TestClone(t *testing.T) {
	m := newTable(t)
	mustCommit(t, m, 11, 1)
	before, _ := m.Marshal()
	c := m.Clone()
	mustCommit(t, c, 12, 1)
	c.SetProperty("owner", "x")
	if err := c.SetRef("t", "tag", 11); err != nil {
		t.Fatal(err)
	}
	if after, _ := m.Marshal(); string(before) != string(after) {
		t.Error("the clone's changes reached the original")
	}
}

// Another writer's file: everything that varve does not know stays (S11),
// -1 is no snapshot, unknown structure under known keys too.
const foreignMetadata = `{
 "format-version": 3, "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1", "location": "s3://bucket/t",
 "last-sequence-number": 34, "last-updated-ms": 1602638573590, "last-column-id": 3, "next-row-id": 9007199254740993,
 "current-schema-id": 1,
 "schemas": [
  {"type":"struct","schema-id":0,"fields":[{"id":1,"name":"x","required":true,"type":"long","initial-default":1,"later":{"a":1.50}}]},
  {"schema-id":1,"type":"struct","fields":[{"id":2,"name":"l","required":false,"type":{"type":"list","element-id":3,"element":"variant","element-required":false}}]}],
 "default-spec-id": 0, "partition-specs": [{"spec-id":0,"fields":[]}], "last-partition-id": 1000,
 "default-sort-order-id": 3, "sort-orders": [{"order-id":3,"fields":[{"transform":"identity","source-id":2,"direction":"asc","null-order":"nulls-first"}]}],
 "properties": {"z":"1","a":"2"}, "current-snapshot-id": 5, "refs": {"main":{"snapshot-id":5,"type":"branch","min-snapshots-to-keep":3},"old":{"snapshot-id":4,"type":"tag"}},
 "snapshots": [
  {"snapshot-id":4,"timestamp-ms":1,"sequence-number":33,"summary":{"z":"1","operation":"append","a":"2"},"manifest-list":"s3://bucket/t/l4","key-id":"k"},
  {"snapshot-id":5,"parent-snapshot-id":4,"timestamp-ms":2,"sequence-number":34,"manifest-list":"s3://bucket/t/l5","schema-id":1,"first-row-id":0,"added-rows":9007199254740993}],
 "statistics": [{"snapshot-id":5,"statistics-path":"s3://bucket/s","odd":[1, 2]}],
 "snapshot-log": [{"snapshot-id":5,"timestamp-ms":2}], "metadata-log": [{"metadata-file":"s3://bucket/m","timestamp-ms":1}],
 "of-tomorrow": {"deep": [1, {"b": null}]}, "next-thing": 12345678901234567890
}`

func TestForeignMetadata(t *testing.T) {
	m, err := ParseMetadata([]byte(foreignMetadata))
	if err != nil {
		t.Fatal(err)
	}
	if m.NextRowID != 9007199254740993 { // above 2^53: no float64 on the way
		t.Errorf("next row id %d", m.NextRowID)
	}
	b, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var before, after map[string]json.RawMessage
	for text, into := range map[string]*map[string]json.RawMessage{foreignMetadata: &before, string(b): &after} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	for k, v := range before {
		if !sameJSON(t, v, after[k]) {
			t.Errorf("%s: %s, was %s", k, after[k], v)
		}
	}
	for _, want := range []string{`"later":{"a":1.50}`, `"of-tomorrow":{"deep":[1,{"b":null}]},"next-thing":12345678901234567890}`,
		`"summary":{"operation":"append","z":"1","a":"2"}`, `"key-id":"k"`, `"min-snapshots-to-keep":3`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
	reparse(t, m)
	if err := m.CheckWritable(); !errors.Is(err, ErrUnwritable) || !strings.Contains(err.Error(), `"l"`) {
		t.Errorf("a list of a type that varve does not store in the current schema: %v", err)
	}
	m.CurrentSchema = 0
	if err := m.CheckWritable(); err != nil {
		t.Errorf("a current schema that varve stores: %v", err)
	}
	m.SetProperty("encryption.key-id", "k")
	if err := m.CheckWritable(); !errors.Is(err, ErrUnwritable) {
		t.Errorf("encryption: %v", err)
	}
}

// sameJSON compares as JSON values: order of keys does not count.
func sameJSON(t *testing.T, a, b json.RawMessage) bool {
	t.Helper()
	var x, y any
	for raw, into := range map[*json.RawMessage]*any{&a: &x, &b: &y} {
		d := json.NewDecoder(strings.NewReader(string(*raw)))
		d.UseNumber()
		if err := d.Decode(into); err != nil {
			return false
		}
	}
	return reflect.DeepEqual(x, y)
}

func TestMetadataOfJava(t *testing.T) {
	text := fixture(t, "TableMetadataV3ValidMinimal.json")
	m, err := ParseMetadata(text)
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var before, after map[string]json.RawMessage
	if err := json.Unmarshal(text, &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &after); err != nil {
		t.Fatal(err)
	}
	for k, v := range before {
		if !sameJSON(t, v, after[k]) {
			t.Errorf("%s: %s, was %s", k, after[k], v)
		}
	}
	if m.Current() != nil || m.DefaultSortOrder != 3 || m.LastSequence != 34 {
		t.Errorf("%+v", m)
	}
	s, err := m.Schema(0)
	if err != nil || s.Fields[0].Name != "x" || string(s.Fields[0].InitialDefault) != "1" {
		t.Errorf("schema %+v, %v", s, err)
	}
	if err := m.CheckWritable(); err != nil {
		t.Error(err)
	}
	mustCommit(t, m, 7, 3)
	reparse(t, m)
}

// Metadata that does not hold together is refused.
func TestParseMetadataRefusals(t *testing.T) {
	for name, change := range map[string][2]string{
		"version 1":            {`"format-version": 3`, `"format-version": 1`},
		"version 4":            {`"format-version": 3`, `"format-version": 4`},
		"no next-row-id":       {`"next-row-id"`, `"next-row-i"`},
		"no location":          {`"location"`, `"locatio"`},
		"unknown schema":       {`"current-schema-id": 1`, `"current-schema-id": 2`},
		"unknown spec":         {`"default-spec-id": 0`, `"default-spec-id": 1`},
		"unknown sort order":   {`"default-sort-order-id": 3`, `"default-sort-order-id": 2`},
		"unknown snapshot":     {`"current-snapshot-id": 5`, `"current-snapshot-id": 6`},
		"main elsewhere":       {`"current-snapshot-id": 5`, `"current-snapshot-id": 4`},
		"ref to nothing":       {`"old":{"snapshot-id":4`, `"old":{"snapshot-id":3`},
		"sequence above last":  {`"last-sequence-number": 34`, `"last-sequence-number": 33`},
		"row ids above next":   {`"next-row-id": 9007199254740993`, `"next-row-id": 5`},
		"a key twice":          {`"properties"`, `"location"`},
		"snapshot twice":       {`{"snapshot-id":4,"timestamp-ms"`, `{"snapshot-id":5,"timestamp-ms"`},
		"a property no string": {`"z":"1","a":"2"}, "cur`, `"z":1,"a":"2"}, "cur`},
		"trailing bytes":       {"12345678901234567890\n}", "12345678901234567890\n}{}"},
	} {
		text := strings.Replace(foreignMetadata, change[0], change[1], 1)
		if text == foreignMetadata {
			t.Fatalf("%s: nothing replaced", name)
		}
		if _, err := ParseMetadata([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A table of format version 2: read, refused for snapshots, upgraded (S13).
func TestUpgrade(t *testing.T) {
	text := strings.Replace(foreignMetadata, `"format-version": 3`, `"format-version": 2`, 1)
	text = strings.Replace(text, `"next-row-id": 9007199254740993,`, ``, 1)
	text = strings.Replace(text, `"current-snapshot-id": 5`, `"current-snapshot-id": -1`, 1)
	text = strings.Replace(text, `"main"`, `"kept"`, 1)
	text = strings.Replace(text, `"current-schema-id": 1`, `"current-schema-id": 0`, 1)
	text = strings.Replace(text, `,"first-row-id":0,"added-rows":9007199254740993`, ``, 1)
	m, err := ParseMetadata([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if m.Current() != nil {
		t.Error("-1 was taken for a snapshot")
	}
	if !errors.Is(m.CheckWritable(), ErrUnwritable) || m.AddSnapshot(snapshot(m, 7, 1)) == nil {
		t.Error("a table of version 2 was written")
	}
	if b, err := m.Marshal(); err != nil || strings.Contains(string(b), "next-row-id") {
		t.Errorf("version 2 written: %s, %v", b, err)
	}
	if err := m.Upgrade(); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, m, 7, 1)
	got := reparse(t, m)
	if got.FormatVersion != 3 || got.NextRowID != 1 || *got.Current().FirstRowID != 0 {
		t.Errorf("upgraded: %+v", got)
	}
	if !errors.Is(m.Upgrade(), ErrBase) {
		t.Error("upgraded twice")
	}
}
