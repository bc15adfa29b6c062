package schemas

import (
	"fmt"
	"strings"
)

// TransformKind is a partition transform of the Iceberg specification.
type TransformKind uint8

// The transforms; their numbers stand in records and must not change.
const (
	Identity TransformKind = iota + 1
	Bucket
	Truncate
	Year
	Month
	Day
	Hour
	Void
)

// PartitionField maps a source column through a transform. N is the bucket
// count or the truncation width, 0 otherwise.
type PartitionField struct {
	SourceID  int32
	FieldID   int32 // 1000 and above, never reused
	Name      string
	Transform TransformKind
	N         int32
}

// Spec is one partition spec of a table; no fields: unpartitioned.
type Spec struct {
	ID     int32
	Fields []PartitionField
}

// Property is one table property. Lists of properties are sorted by Key.
type Property struct{ Key, Value string }

// OrderKind says where a table's ordering value comes from (K2).
type OrderKind uint8

const (
	OrderNone     OrderKind = 0 // source order decides
	OrderByColumn OrderKind = 1 // a column of the table
	OrderByPath   OrderKind = 2 // a path in the event outside the row, kept in _varve_order
)

// Order is the table's ordering value.
type Order struct {
	Kind   OrderKind
	Column int32  // field id, when Kind is OrderByColumn
	Path   string // e.g. source.ts_ms, when Kind is OrderByPath
}

// DeleteMode is how a table's deletes are published (semantics.md §11).
type DeleteMode string

// ModeDV publishes deletion vectors (format version 3). It is the only mode so far.
const ModeDV DeleteMode = "dv"

// Definition is what CreateTable and AlterTable decide about a table.
type Definition struct {
	Name             string // namespace.table; without a dot the namespace is "default"
	Location         string // full location, W1
	FormatVersion    int32  // 3
	Mode             DeleteMode
	Schemas          []Schema // every version, by id from 0
	CurrentSchema    int32
	LastColumnID     int32
	Specs            []Spec
	DefaultSpec      int32
	LastPartitionID  int32 // 999 when no field was ever made
	Key              []int32
	Order            Order
	SourceTopic      string
	Format           string
	FormatOptions    []Property
	Properties       []Property
	CommitIntervalMs int64
	TombstoneTTLMs   int64
	RetentionMs      int64 // S6: a snapshot goes when older than this …
	RetentionCount   int64 // … and not among the last so many
}

// Defaults of a definition.
const (
	DefaultCommitIntervalMs = 1000
	DefaultTombstoneTTLMs   = 7 * 24 * 3600 * 1000
	DefaultRetentionMs      = 10 * 60 * 1000
	DefaultRetentionCount   = 100
)

// Schema is the current schema.
func (d *Definition) Schema() *Schema {
	for i := range d.Schemas {
		if d.Schemas[i].ID == d.CurrentSchema {
			return &d.Schemas[i]
		}
	}
	panic(fmt.Sprintf("table %s has no schema %d", d.Name, d.CurrentSchema))
}

// SchemaByID is the schema version with this id, or nil.
func (d *Definition) SchemaByID(id int32) *Schema {
	for i := range d.Schemas {
		if d.Schemas[i].ID == id {
			return &d.Schemas[i]
		}
	}
	return nil
}

// Spec is the partition spec with this id, or nil.
func (d *Definition) Spec(id int32) *Spec {
	for i := range d.Specs {
		if d.Specs[i].ID == id {
			return &d.Specs[i]
		}
	}
	return nil
}

// Property is the value of a table property, or "".
func (d *Definition) Property(key string) string {
	for i := range d.Properties {
		if d.Properties[i].Key == key {
			return d.Properties[i].Value
		}
	}
	return ""
}

// Keyed says whether the table has a key.
func (d *Definition) Keyed() bool { return len(d.Key) > 0 }

// SplitName is a table name's namespace and table: the last dot parts them.
func SplitName(name string) (namespace, table string) {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return "default", name
}

// MaxTableName bounds a table name, in bytes.
const MaxTableName = 200

// CheckTableName refuses names that are no object-store path (W1).
func CheckTableName(name string) error {
	if name == "" || len(name) > MaxTableName {
		return fmt.Errorf("a table name has 1 to %d bytes", MaxTableName)
	}
	for _, part := range strings.Split(name, ".") {
		if part == "" || part[0] == '_' {
			return fmt.Errorf("table name %q: every part between dots starts with a letter or digit", name)
		}
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("table name %q: only A-Z a-z 0-9 . _ - are allowed", name)
		}
	}
	return nil
}

// PropertyRepartition is the table property that sends a source topic's events
// through an internal topic, in which the typed key decides the partition (K5).
// Its one value is RepartitionAlways.
const (
	PropertyRepartition = "varve.repartition"
	RepartitionAlways   = "always"
)

// Rekeyed says whether the table's events go through an internal topic (K5).
func (d *Definition) Rekeyed() bool {
	for i := range d.Properties {
		if d.Properties[i].Key == PropertyRepartition {
			return d.Properties[i].Value == RepartitionAlways
		}
	}
	return false
}

// PropertyFormat is the table property that changes how a table's source is
// read, where it is no longer the format that the table was made with, and
// properties that begin with PropertyFormatOption are that format's options.
// Decoding is none of the state's: a change counts for what an owner reads from
// then on.
const (
	PropertyFormat       = "varve.source.format"
	PropertyFormatOption = "varve.source.option."
)

// SourceFormat is how the table's source is read now, and with which options.
func (d *Definition) SourceFormat() (format string, options []Property) {
	format = d.Property(PropertyFormat)
	if format == "" {
		return d.Format, d.FormatOptions
	}
	for _, p := range d.Properties {
		if name, ok := strings.CutPrefix(p.Key, PropertyFormatOption); ok {
			options = append(options, Property{Key: name, Value: p.Value})
		}
	}
	return format, options
}
