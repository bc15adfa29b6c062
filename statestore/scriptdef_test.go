package statestore_test

import (
	"strings"

	"github.com/varve-io/varve/schemas"
)

// scriptDefinition is the definition of a create command.
func scriptDefinition(a *args) schemas.Definition {
	d := definition(a.table())
	d.Schemas[0].Fields = append(d.Schemas[0].Fields, schemas.Field{ID: 3, Name: "v", Type: schemas.Of(schemas.Int)})
	d.LastColumnID = 3
	if a.has("no-key") {
		d.Key, d.Schemas[0].Identifier, d.Schemas[0].Fields[0].Required = nil, nil, false
	}
	if c := a.str("order", ""); c != "" {
		d.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: d.Schemas[0].Fields[d.Schemas[0].ByName(c)].ID}
	}
	if p := a.str("order-path", ""); p != "" {
		d.Order = schemas.Order{Kind: schemas.OrderByPath, Path: p}
	}
	if p := a.str("partition", ""); p != "" {
		name, column, _ := strings.Cut(strings.TrimSuffix(p, ")"), "(")
		k, n, err := schemas.ParseTransformName(name)
		if err != nil {
			a.t.Fatal(err)
		}
		d.LastPartitionID = 1000
		d.Specs = []schemas.Spec{{Fields: []schemas.PartitionField{{
			SourceID: d.Schemas[0].Fields[d.Schemas[0].ByName(column)].ID, FieldID: 1000, Name: "part", Transform: k, N: n,
		}}}}
	}
	if r, ok := a.vals["retention"]; ok {
		d.RetentionCount, d.RetentionMs = number(a.t, r[0]), number(a.t, r[1])
	}
	if bad := a.str("bad", ""); bad != "" {
		breakDefinition(a, &d, bad)
	}
	return d
}

// breakDefinition makes one fault.
func breakDefinition(a *args, d *schemas.Definition, what string) {
	s := &d.Schemas[0]
	part := func(k schemas.TransformKind, n, source int32) {
		d.LastPartitionID = 1000
		d.Specs[0].Fields = []schemas.PartitionField{{SourceID: source, FieldID: 1000, Name: "p", Transform: k, N: n}}
	}
	switch what {
	case "name":
		d.Name = "other"
	case "format-version-2":
		d.FormatVersion = 2
	case "mode":
		d.Mode = "position"
	case "no-schema":
		d.Schemas = nil
	case "no-columns":
		s.Fields = nil
	case "no-spec":
		d.Specs = nil
	case "no-location":
		d.Location = ""
	case "location-slash":
		d.Location += "/"
	case "location-query":
		d.Location += "?x"
	case "current-schema":
		d.CurrentSchema = 1
	case "schema-id":
		s.ID, d.CurrentSchema = 1, 1
	case "default-spec":
		d.DefaultSpec = 1
	case "column-id-above-last":
		d.LastColumnID = 2
	case "column-id-twice":
		s.Fields[2].ID = 2
	case "column-name-case":
		s.Fields[2].Name = "NAME"
	case "column-name-reserved":
		s.Fields[2].Name = "_row_id"
	case "key-optional":
		s.Fields[0].Required = false
	case "key-float":
		s.Fields[0].Type = schemas.Of(schemas.Double)
	case "key-unknown":
		d.Key, s.Identifier = []int32{9}, []int32{9}
	case "key-not-identifier":
		d.Key = nil
	case "column-required":
		s.Fields[1].Required = true
	case "default-not-json":
		s.Fields[1].InitialDefault = []byte("none")
	case "default-other-type":
		s.Fields[2].WriteDefault = []byte(`"one"`)
	case "order-unknown-column":
		d.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: 9}
	case "order-string":
		d.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: 2}
	case "order-empty-path":
		d.Order = schemas.Order{Kind: schemas.OrderByPath}
	case "order-without-key":
		d.Key, s.Identifier, s.Fields[0].Required = nil, nil, false
		d.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: 3}
	case "partition-by-key":
		part(schemas.Identity, 0, 1)
	case "partition-truncates-key":
		part(schemas.Truncate, 10, 1)
	case "partition-unknown-column":
		part(schemas.Identity, 0, 9)
	case "partition-bucket-0":
		part(schemas.Bucket, 0, 2)
	case "partition-day-of-string":
		part(schemas.Day, 0, 2)
	case "partition-id-above-last":
		part(schemas.Identity, 0, 2)
		d.LastPartitionID = 999
	case "partition-id-twice":
		part(schemas.Identity, 0, 2)
		f := d.Specs[0].Fields[0]
		f.Name = "q"
		d.Specs[0].Fields = append(d.Specs[0].Fields, f)
	case "properties-unsorted":
		d.Properties = []schemas.Property{{Key: "b"}, {Key: "a"}}
	case "properties-many":
		for i := range 1001 {
			d.Properties = append(d.Properties, schemas.Property{Key: string([]byte{'a' + byte(i/100), 'a' + byte(i/10%10), 'a' + byte(i%10)})})
		}
	case "interval-0":
		d.CommitIntervalMs = 0
	case "tombstones-0":
		d.TombstoneTTLMs = 0
	case "tombstones-for-ever":
		d.TombstoneTTLMs = 1 << 62
	case "retention-0":
		d.RetentionCount = 0
	default:
		a.t.Fatalf("bad=%s", what)
	}
}
