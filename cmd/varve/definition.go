package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
)

// wish is what flags or a configuration file say about a table; empty fields
// leave the choice to what is there, or to the defaults.
type wish struct {
	name       string
	topic      string
	format     string
	options    map[string]string
	schemaFile string
	key        []string
	appendOnly bool
	order      string
	partitions []string
	commitMs   int64
	tombstones int64
	retainMs   int64
	retain     int64
	properties map[string]string
	// repartition is "always" or empty (K5).
	repartition string
}

func (t *tableConfig) wish() *wish {
	options := maps.Clone(t.Source.Options)
	if t.Source.RouteBy != "" {
		if options == nil {
			options = map[string]string{}
		}
		options["route.by"], options["route.match"] = t.Source.RouteBy, t.Source.routeMatch()
	}
	return &wish{
		name: t.Name, topic: t.Source.Topic, format: t.Source.Format, options: options, repartition: t.Source.Repartition, schemaFile: t.Schema,
		key: t.Key, appendOnly: t.AppendOnly, order: t.OrderBy, partitions: t.PartitionBy,
		commitMs: t.CommitInterval.millis(), tombstones: t.TombstoneTTL.millis(),
		retainMs: t.Retention.Age.millis(), retain: t.Retention.Snapshots, properties: t.Properties,
	}
}

func (w *wish) check() error {
	t := tableConfig{
		Name: w.name, Source: sourceConfig{Topic: w.topic, Format: w.format}, Key: w.key, AppendOnly: w.appendOnly, OrderBy: w.order, PartitionBy: w.partitions,
	}
	// Record keys may name the key, and a table that exists has its own.
	if len(w.key) == 0 {
		t.AppendOnly = true
		if !w.appendOnly {
			t.OrderBy = ""
		}
	}
	return t.check()
}

func sortedProperties(m map[string]string) []schemas.Property {
	var out []schemas.Property
	for k, v := range m {
		out = append(out, schemas.Property{Key: k, Value: v})
	}
	slices.SortFunc(out, func(a, b schemas.Property) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// like fills what w leaves open from a table that exists.
func (w *wish) like(d *schemas.Definition) {
	if w.topic == "" {
		w.topic = d.SourceTopic
	}
	w.format, _ = d.SourceFormat() // of which the one that is named is one (unread)
	if len(w.key) == 0 && !w.appendOnly {
		w.key = keyColumns(d)
		w.appendOnly = len(w.key) == 0
	}
	if w.order == "" {
		w.order = orderText(d)
	}
}

// unread is what w says of a table that is there and has it otherwise: err for
// what decides what its rows are, notes for what the table keeps of its own.
func (w *wish) unread(d *schemas.Definition) (notes []string, err error) {
	spec, err := partitionSpec(w.partitions, d.Schema())
	if err != nil {
		return nil, usagef("table %s: %w", d.Name, err)
	}
	same := func(a, b schemas.PartitionField) bool {
		return a.SourceID == b.SourceID && a.Transform == b.Transform && a.N == b.N
	}
	if have := d.Spec(d.DefaultSpec); len(w.partitions) > 0 && (have == nil || !slices.EqualFunc(have.Fields, spec.Fields, same)) {
		return nil, usagef("table %s is partitioned otherwise; leave the partition terms out to use the table as it is, change it with \"varve table alter %s --partition-by\", or use another name", d.Name, d.Name)
	}
	if w.repartition != "" && !d.Rekeyed() {
		return nil, usagef("table %s takes its source's partitions as they are; leave repartition out to use the table as it is, or use another name", d.Name)
	}
	format, have := d.SourceFormat()
	if w.format != "" && w.format != format && !slices.Contains(strings.Split(format, ","), w.format) {
		return nil, usagef("table %s has format %s, not %s; leave it out to use the table as it is, change it with \"varve table alter %s --format\", or use another name", d.Name, format, w.format, d.Name)
	}
	for _, p := range sortedProperties(w.options) {
		if !slices.Contains(have, p) {
			return nil, usagef("table %s reads its events without the option %s=%s; leave it out to use the table as it is, or change it with \"varve table alter %s --format-option\"", d.Name, p.Key, p.Value, d.Name)
		}
	}
	for _, s := range []struct {
		what, unit string
		want, have int64
		flag       string
	}{
		{"commit interval", " ms", w.commitMs, d.CommitIntervalMs, "--commit-interval"}, {"tombstone time", " ms", w.tombstones, d.TombstoneTTLMs, ""},
		{"retention age", " ms", w.retainMs, d.RetentionMs, "--retention-age"}, {"number of retained snapshots", "", w.retain, d.RetentionCount, "--retention-snapshots"},
	} {
		if s.want == 0 || s.want == s.have {
			continue
		}
		note := fmt.Sprintf("table %s keeps its own %s, %d%s", d.Name, s.what, s.have, s.unit)
		if s.flag != "" {
			note += fmt.Sprintf("; change it with \"varve table alter %s %s\"", d.Name, s.flag)
		}
		notes = append(notes, note)
	}
	for _, p := range sortedProperties(w.properties) {
		if !slices.Contains(d.Properties, p) {
			notes = append(notes, fmt.Sprintf("table %s keeps its own property %s; set it with \"varve table alter %s --set\"", d.Name, p.Key, d.Name))
		}
	}
	return notes, nil
}

// keyColumns is the names of a table's key columns.
func keyColumns(d *schemas.Definition) []string {
	s := d.Schema()
	var out []string
	for _, id := range d.Key {
		if i := s.ByID(id); i >= 0 {
			out = append(out, s.Fields[i].Name)
		}
	}
	return out
}

// orderText is a table's ordering value as --order takes it; "" for none.
func orderText(d *schemas.Definition) string {
	switch d.Order.Kind {
	case schemas.OrderByColumn:
		if i := d.Schema().ByID(d.Order.Column); i >= 0 {
			return d.Schema().Fields[i].Name
		}
	case schemas.OrderByPath:
		return d.Order.Path
	}
	return ""
}

// definition makes the table's definition over a schema, and says what of the
// schema it changed.
func (w *wish) definition(s schemas.Schema) (schemas.Definition, []string, error) {
	fail := func(format string, args ...any) (schemas.Definition, []string, error) {
		return schemas.Definition{}, nil, usagef("table "+w.name+": "+format, args...)
	}
	var notes []string
	s.ID, s.Fields = 0, slices.Clone(s.Fields)
	key := w.key
	if len(key) == 0 && !w.appendOnly {
		for _, id := range s.Identifier {
			if i := s.ByID(id); i >= 0 {
				key = append(key, s.Fields[i].Name)
			}
		}
		if len(key) == 0 {
			return fail("name its key columns with --key, or make it a table that only gains rows with --append-only")
		}
	}
	s.Identifier = nil
	for _, name := range key {
		i := s.ByName(name)
		if i < 0 {
			return fail("key column %q is no column%s", name, didYouMean(name, columnNames(&s)))
		}
		if slices.Contains(s.Identifier, s.Fields[i].ID) {
			return fail("key column %q is named twice", name)
		}
		s.Identifier = append(s.Identifier, s.Fields[i].ID)
	}
	slices.Sort(s.Identifier)
	for i := range s.Fields {
		f := &s.Fields[i]
		isKey := slices.Contains(s.Identifier, f.ID)
		if f.Required && !isKey {
			notes = append(notes, fmt.Sprintf("column %q is optional in the table: only key columns are required", f.Name))
		}
		f.Required = isKey
	}
	if err := s.Validate(); err != nil {
		return fail("%w", err)
	}
	d := schemas.Definition{
		Name: w.name, FormatVersion: 3, Mode: schemas.ModeDV, Schemas: []schemas.Schema{s}, LastColumnID: s.HighestID(),
		LastPartitionID: 999, Key: s.Identifier, SourceTopic: w.topic, Format: w.format,
		FormatOptions: sortedProperties(w.options), Properties: sortedProperties(w.allProperties()),
		CommitIntervalMs: orDefault(w.commitMs, schemas.DefaultCommitIntervalMs), TombstoneTTLMs: orDefault(w.tombstones, schemas.DefaultTombstoneTTLMs),
		RetentionMs: orDefault(w.retainMs, schemas.DefaultRetentionMs), RetentionCount: orDefault(w.retain, schemas.DefaultRetentionCount),
	}
	if d.SourceTopic == "" {
		d.SourceTopic = w.name
	}
	if d.Format == "" {
		return fail("name the format of its events with --format (%s)", strings.Join(source.Formats(), ", "))
	}
	if w.order != "" {
		if i := s.ByName(w.order); i >= 0 {
			if !s.Fields[i].Type.OrderUsable() {
				return fail("ordering column %q is a %s; an ordering column is a whole number, a decimal of at most 18 digits, a date or a time", w.order, s.Fields[i].Type)
			}
			d.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: s.Fields[i].ID}
		} else if strings.Contains(w.order, ".") {
			d.Order = schemas.Order{Kind: schemas.OrderByPath, Path: w.order}
		} else {
			return fail("ordering column %q is no column%s (a path in the event, such as source.ts_ms, has a dot)", w.order, didYouMean(w.order, columnNames(&s)))
		}
	}
	spec, err := partitionSpec(w.partitions, &s)
	if err != nil {
		return fail("%w", err)
	}
	d.Specs = []schemas.Spec{spec}
	for _, f := range spec.Fields {
		d.LastPartitionID = max(d.LastPartitionID, f.FieldID)
	}
	return d, notes, nil
}

// allProperties are the table's properties with those that have a name of their own.
func (w *wish) allProperties() map[string]string {
	if w.repartition == "" {
		return w.properties
	}
	all := map[string]string{schemas.PropertyRepartition: w.repartition}
	maps.Copy(all, w.properties)
	return all
}

func orDefault(v, def int64) int64 {
	if v == 0 {
		return def
	}
	return v
}

func columnNames(s *schemas.Schema) []string {
	out := make([]string, len(s.Fields))
	for i := range s.Fields {
		out[i] = s.Fields[i].Name
	}
	return out
}
