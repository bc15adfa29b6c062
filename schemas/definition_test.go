package schemas

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestDefinitionJSON: a definition survives JSON, absent defaults too.
func TestDefinitionJSON(t *testing.T) {
	d := Definition{
		Name: "shop.orders", Location: "file:///lake/shop/orders", FormatVersion: 3, Mode: ModeDV,
		Schemas: []Schema{{ID: 0, Identifier: []int32{1}, Fields: []Field{
			{ID: 1, Name: "id", Type: Of(Long), Required: true},
			{ID: 2, Name: "level", Type: Of(Int), InitialDefault: json.RawMessage("1"), WriteDefault: json.RawMessage("2")},
		}}},
		LastColumnID: 2, Specs: []Spec{{Fields: []PartitionField{{SourceID: 2, FieldID: 1000, Name: "level", Transform: Bucket, N: 4}}}},
		LastPartitionID: 1000, Key: []int32{1}, Order: Order{Kind: OrderByPath, Path: "source.ts_ms"},
		SourceTopic: "orders", Format: "rows-json", FormatOptions: []Property{{Key: "a", Value: "b"}},
		Properties: []Property{{Key: "c", Value: "d"}}, CommitIntervalMs: 1, TombstoneTTLMs: 2, RetentionMs: 3, RetentionCount: 4,
	}
	text, err := json.Marshal(&d)
	if err != nil {
		t.Fatal(err)
	}
	var back Definition
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(d, back) {
		t.Errorf("%s\ncame back as\n%+v", text, back)
	}
	if !reflect.DeepEqual(d.Schemas[0].AppendJSON(nil), back.Schemas[0].AppendJSON(nil)) {
		t.Error("its schema is another one for Iceberg")
	}
}
