package restcat

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
)

func TestIdentifiers(t *testing.T) {
	for name, want := range map[string]Identifier{
		"people":      {[]string{"default"}, "people"},
		"shop.orders": {[]string{"shop"}, "orders"},
		"a.b.c":       {[]string{"a", "b"}, "c"},
	} {
		got := IdentifierOf(name)
		if !reflect.DeepEqual(got, want) || got.TableName() != name {
			t.Errorf("%s: %+v, back %s", name, got, got.TableName())
		}
	}
	if got := NamespacePath([]string{"a b", "c/d"}, Separator); got != "a%20b%1Fc%2Fd" {
		t.Errorf("path %s", got)
	}
	if got := ParseNamespace("a b\x1fc/d", "\x1f"); !slices.Equal(got, []string{"a b", "c/d"}) {
		t.Errorf("namespace %q", got)
	}
}

func TestServes(t *testing.T) {
	if !(&Config{}).Serves(EndpointCommitTable) {
		t.Error("a server that names no endpoints serves the old ones")
	}
	c := Config{Endpoints: []string{EndpointLoadTable}}
	if !c.Serves(EndpointLoadTable) || c.Serves(EndpointCommitTable) {
		t.Error("endpoints are those that are named")
	}
}

// The forms as the specification writes them.
func TestCommitForms(t *testing.T) {
	seven, two := int64(7), int64(2)
	s := iceberg.Snapshot{Sequence: 3, ID: 8, ParentID: &seven, TimestampMs: 9, Operation: "append",
		ManifestList: "s3://b/l.avro", SchemaID: new(int64), FirstRowID: &two, AddedRows: &seven}
	schema := schemas.Schema{ID: 1, Identifier: []int32{1}, Fields: []schemas.Field{{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: true}}}
	for _, x := range []struct {
		got  json.RawMessage
		want string
	}{
		{AssertCreate(), `{"type":"assert-create"}`},
		{AssertUUID("u"), `{"type":"assert-table-uuid","uuid":"u"}`},
		{AssertRef("main", 0), `{"ref":"main","snapshot-id":null,"type":"assert-ref-snapshot-id"}`},
		{AssertRef("main", 1<<62+1), `{"ref":"main","snapshot-id":4611686018427387905,"type":"assert-ref-snapshot-id"}`},
		{AssertCurrentSchema(1), `{"current-schema-id":1,"type":"assert-current-schema-id"}`},
		{AssertLastField(4), `{"last-assigned-field-id":4,"type":"assert-last-assigned-field-id"}`},
		{AddSchema(&schema, 4), `{"action":"add-schema","last-column-id":4,"schema":{"type":"struct","schema-id":1,"identifier-field-ids":[1],"fields":[{"id":1,"name":"id","required":true,"type":"long"}]}}`},
		{SetCurrentSchema(LastAdded), `{"action":"set-current-schema","schema-id":-1}`},
		{AddSpec(&schemas.Spec{}), `{"action":"add-spec","spec":{"spec-id":0,"fields":[]}}`},
		{SetProperties([]schemas.Property{{Key: "k", Value: "<v>"}}), `{"action":"set-properties","updates":{"k":"\u003cv\u003e"}}`},
		{RemoveProperties([]string{"k"}), `{"action":"remove-properties","removals":["k"]}`},
		{AddSnapshot(&s), `{"action":"add-snapshot","snapshot":{"sequence-number":3,"snapshot-id":8,"parent-snapshot-id":7,"timestamp-ms":9,"summary":{"operation":"append"},"manifest-list":"s3://b/l.avro","schema-id":0,"first-row-id":2,"added-rows":7}}`},
		{SetRef("main", "branch", 8, []iceberg.Member{{Key: "min-snapshots-to-keep", Value: json.RawMessage("3")}}), `{"action":"set-snapshot-ref","min-snapshots-to-keep":3,"ref-name":"main","snapshot-id":8,"type":"branch"}`},
		{RemoveSnapshots([]int64{1, 2}), `{"action":"remove-snapshots","snapshot-ids":[1,2]}`},
	} {
		if string(x.got) != x.want {
			t.Errorf("got  %s\nwant %s", x.got, x.want)
		}
	}
}
