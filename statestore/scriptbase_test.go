package statestore_test

import (
	"slices"
	"strings"

	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// baseFrom: what the command does not say is as the state has it.
func (s *script) baseFrom(t *testing.T, a *args) *record.CatalogBase {
	c := &record.CatalogBase{MetadataPath: "elsewhere"}
	var cur schemas.Schema
	if i := s.info(t, a.table()); i != nil {
		h := &i.Head
		c.Snapshot, c.Sequence, c.NextRowID, c.TimestampMs = h.SnapshotID, h.Sequence, h.NextRowID, h.TimestampMs
		c.LastColumnID = i.Definition.LastColumnID
		cur = *i.Definition.Schema()
	}
	c.Snapshot, c.Sequence, c.NextRowID = a.num("snapshot", c.Snapshot), a.num("sequence", c.Sequence), a.num("next-row", c.NextRowID)
	c.TimestampMs, c.LastColumnID = a.num("timestamp", c.TimestampMs), int32(a.num("last-column", int64(c.LastColumnID)))
	for _, v := range a.vals["removed"] {
		c.Removed = append(c.Removed, number(t, v))
	}
	for _, v := range a.vals["held"] {
		c.Held = append(c.Held, number(t, v))
	}
	typ := func(name string) schemas.Type {
		x, err := schemas.ParseType(name)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, l := range a.lines {
		f := strings.Fields(l)
		var last *schemas.Schema
		if n := len(c.Schemas); n > 0 {
			last = &c.Schemas[n-1]
		}
		switch f[0] {
		case "set":
			k, v, _ := strings.Cut(f[1], "=")
			c.Set = append(c.Set, schemas.Property{Key: k, Value: v})
		case "unset":
			c.Unset = append(c.Unset, f[1])
		case "schema":
			cur.Fields = slices.Clone(cur.Fields)
			cur.ID = int32(number(t, f[1]))
			c.Schemas = append(c.Schemas, cur)
		case "add":
			id := int32(number(t, strings.TrimPrefix(f[3], "id=")))
			last.Fields = append(last.Fields, schemas.Field{ID: id, Name: f[1], Type: typ(f[2])})
			cur = *last
		case "widen":
			last.Fields[last.ByName(f[1])].Type = typ(f[2])
		case "drop":
			i := last.ByName(f[1])
			last.Fields = slices.Delete(last.Fields, i, i+1)
		default:
			t.Fatalf("base: %s", l)
		}
	}
	return c
}
