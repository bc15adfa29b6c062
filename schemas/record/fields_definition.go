package record

import "github.com/varve-io/varve/schemas"

var (
	transformNames = []string{
		schemas.Identity: "identity", schemas.Bucket: "bucket", schemas.Truncate: "truncate",
		schemas.Year: "year", schemas.Month: "month", schemas.Day: "day", schemas.Hour: "hour",
		schemas.Void: "void",
	}
	orderNames = []string{
		schemas.OrderNone: "none", schemas.OrderByColumn: "column", schemas.OrderByPath: "path",
	}
)

func definitionFields(v visitor, d *schemas.Definition) {
	v.str("name", &d.Name)
	v.str("location", &d.Location)
	v.int32("format_version", &d.FormatVersion)
	v.str("mode", (*string)(&d.Mode))
	records(v, "schemas", &d.Schemas, 3, schemaFields)
	v.int32("current_schema", &d.CurrentSchema)
	v.int32("last_column_id", &d.LastColumnID)
	records(v, "specs", &d.Specs, 2, specFields)
	v.int32("default_spec", &d.DefaultSpec)
	v.int32("last_partition_id", &d.LastPartitionID)
	ints(v, "key", &d.Key)
	nested(v, "order", &d.Order, orderFields)
	v.str("source_topic", &d.SourceTopic)
	v.str("format", &d.Format)
	records(v, "format_options", &d.FormatOptions, 2, propertyFields)
	records(v, "properties", &d.Properties, 2, propertyFields)
	v.long("commit_interval_ms", &d.CommitIntervalMs)
	v.long("tombstone_ttl_ms", &d.TombstoneTTLMs)
	v.long("retention_ms", &d.RetentionMs)
	v.long("retention_count", &d.RetentionCount)
}

func schemaFields(v visitor, s *schemas.Schema) {
	v.int32("id", &s.ID)
	records(v, "fields", &s.Fields, 10, columnFields)
	ints(v, "identifier", &s.Identifier)
}

func columnFields(v visitor, f *schemas.Field) {
	v.int32("id", &f.ID)
	v.str("name", &f.Name)
	v.columnType("type", &f.Type)
	v.bool("required", &f.Required)
	v.text("doc", &f.Doc)
	optionalJSON(v, "initial_default", &f.InitialDefault)
	optionalJSON(v, "write_default", &f.WriteDefault)
}

func specFields(v visitor, s *schemas.Spec) {
	v.int32("id", &s.ID)
	records(v, "fields", &s.Fields, 5, partitionFieldFields)
}

func partitionFieldFields(v visitor, f *schemas.PartitionField) {
	v.int32("source_id", &f.SourceID)
	v.int32("field_id", &f.FieldID)
	v.str("name", &f.Name)
	v.enum("transform", (*uint8)(&f.Transform), transformNames)
	v.int32("n", &f.N)
}

func orderFields(v visitor, o *schemas.Order) {
	v.enum("kind", (*uint8)(&o.Kind), orderNames)
	v.int32("column", &o.Column)
	v.text("path", &o.Path)
}
