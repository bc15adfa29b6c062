package restcat

import (
	"errors"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
)

// Apply numbers schemas and specs as catalogs do, whatever id they bring; a spec
// that is there is that one.
func TestApply(t *testing.T) {
	s := &schemas.Schema{ID: 7, Fields: []schemas.Field{{ID: 1, Name: "day", Type: schemas.Of(schemas.Date)}}}
	byDay := schemas.Spec{ID: 5, Fields: []schemas.PartitionField{{SourceID: 1, FieldID: 1000, Name: "day", Transform: schemas.Identity}}}
	m := &iceberg.Metadata{LastPartitionID: 999}
	if err := Apply(m, []Update{
		AssignUUID("u"), UpgradeFormat(3), SetLocation("mem://s/t"), AddSchema(s, 1), SetCurrentSchema(LastAdded), AddSpec(&schemas.Spec{}), AddUnsorted(), SetDefaultOrder(0),
		AddSpec(&byDay), SetDefaultSpec(LastAdded), AddSpec(&byDay), AddSchema(s, 1), SetProperties([]schemas.Property{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}), RemoveProperties([]string{"a"}),
	}); err != nil {
		t.Fatal(err)
	}
	if len(m.Specs) != 2 || m.DefaultSpec != 1 || m.LastPartitionID != 1000 || len(m.Schemas) != 2 || m.CurrentSchema != 0 || m.LastColumnID != 1 || m.Property("a") != "" || m.Property("b") != "2" {
		t.Errorf("%+v", m)
	}
	for _, ok := range []Requirement{AssertUUID("u"), AssertRef("main", 0), AssertCurrentSchema(0), AssertLastField(1), AssertDefaultSpec(1), AssertLastPartition(1000)} {
		if err := Require(m, []Requirement{ok}); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []Requirement{
		AssertCreate(), AssertUUID("v"), AssertRef("main", 4), AssertCurrentSchema(1), AssertLastField(2), AssertDefaultSpec(0), AssertLastPartition(999), []byte(`{"type":"assert-else"}`),
	} {
		if err := Require(m, []Requirement{bad}); !errors.Is(err, ErrUnmet) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := Require(nil, []Requirement{AssertCreate()}); err != nil {
		t.Error(err)
	}
	for _, r := range [][]Requirement{nil, {AssertUUID("u")}} {
		if err := Require(nil, r); !errors.Is(err, ErrNoTable) {
			t.Errorf("%s: %v", r, err)
		}
	}
	for _, bad := range []string{`{"action":"else"}`, `[]`, `{"action":"add-schema","schema":5}`, `{"action":"add-spec","spec":{"fields":[{"transform":"no"}]}}`, `{"action":"remove-snapshot-ref","ref-name":"x"}`} {
		if err := Apply(m, []Update{Update(bad)}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
