package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// foreignOption is an option of another tool, or what a group of them begins
// with ("…."): ours is what says the same here, "" where nothing does, and why
// what there is to know.
type foreignOption struct{ name, ours, why string }

const serverIceberg = "debezium.sink.iceberg."

// serverOptions are the options of Debezium-server with its Iceberg sink. That
// process reads the database and writes the table; here Debezium writes a topic
// (debezium.sink.type=kafka, or Kafka Connect), and varve reads it.
var serverOptions = []foreignOption{
	{"debezium.sink.type", "brokers", "set it to kafka: varve reads the topic that Debezium writes"},
	{"debezium.sink.kafka.", "", "they stay with Debezium"},
	{serverIceberg + "warehouse", "warehouse", "s3a:// becomes s3://"},
	{serverIceberg + "type", "catalog.type", "rest, sql for a JDBC catalog in PostgreSQL, or varve's own catalog, which engines read by REST; Hive, Nessie, Glue and Hadoop are not written"},
	{serverIceberg + "catalog-impl", "catalog.type", "RESTCatalog is rest"},
	{serverIceberg + "uri", "catalog.uri", ""},
	{serverIceberg + "catalog-name", "", "a deployment has one catalog"},
	{serverIceberg + "table-namespace", "tables[].name", "the part of a table's name before its last dot"},
	{serverIceberg + "table-prefix", "tables[].name", "what stands before $1 or ${topic}"},
	{serverIceberg + "destination-regexp", "tables[].source.topic_pattern", "a table for each topic"},
	{serverIceberg + "destination-regexp-replace", "tables[].name", "with $1 and ${topic}"},
	{serverIceberg + "destination-uppercase-table-names", "tables[].name", ""},
	{serverIceberg + "destination-lowercase-table-names", "tables[].name", ""},
	{serverIceberg + "upsert", "tables[].key, tables[].append_only", "false is append_only: true"},
	{serverIceberg + "upsert-keep-deletes", "", "a deleted row leaves the table; its older versions stay in snapshots and tags"},
	{serverIceberg + "upsert-dedup-column", "tables[].order", "the ordering column; without one the order of the topic decides"},
	{serverIceberg + "upsert-op-field", "tables[].source.format", "the operation is read from the events as Debezium writes them"},
	{serverIceberg + "create-identifier-fields", "tables[].key", ""},
	{serverIceberg + "allow-field-addition", "tables[].source.options.columns.new", "false is refuse"},
	{serverIceberg + "preserve-required-property", "", "key columns are required, all others optional"},
	{serverIceberg + "excluded-columns", "tables[].source.options.columns.exclude", ""},
	{serverIceberg + "partition-field", "tables[].partition_by", "day(column) rather than a column made for it"},
	{serverIceberg + "nested-as-variant", "", "what is nested becomes struct, list and map columns"},
	{serverIceberg + "write.", "tables[].properties", "table properties, without the prefix"},
	{serverIceberg + "table-property.", "tables[].properties", ""},
	{serverIceberg + "io-impl", "", "the store is varve's own"},
	{serverIceberg + "s3.endpoint", "warehouse", "?endpoint=… of the store's URL"},
	{serverIceberg + "s3.", "", "credentials come from the environment, as the AWS tools take them"},
	{serverIceberg + "client.region", "warehouse", "?region=… of the store's URL"},
	{serverIceberg + "fs.", "", "Hadoop is not used"},
	{serverIceberg + "hadoop.", "", "Hadoop is not used"},
	{"debezium.sink.batch.", "tables[].commit_interval", "a commit is made so often, whatever the number of events"},
	{"debezium.format.value", "tables[].source.format", "json: debezium-json; avro: debezium-avro"},
	{"debezium.format.key", "tables[].source.format", "keys are read as values are"},
	{"debezium.format.value.schemas.enable", "", "both forms are read; true is better, for the types are then known"},
	{"debezium.format.key.schemas.enable", "", "both forms are read"},
	{"debezium.transforms", "tables[].source.format", "leave ExtractNewRecordState out (debezium-json), or read its rows with rows-json"},
	{"debezium.transforms.", "", "they stay with Debezium"},
	{"debezium.source.offset.", "", "Debezium's own; source offsets of varve stand in its log"},
	{"debezium.source.schema.history.", "", "Debezium's own"},
	{"debezium.source.", "", "they stay with Debezium, which reads the database"},
	{"debezium.predicates", "", "they stay with Debezium"},
	{"debezium.predicates.", "", "they stay with Debezium"},
	{"quarkus.", "", "that process's own"},
}

func (o *foreignOption) is(name string) bool {
	return name == o.name || strings.HasSuffix(o.name, ".") && strings.HasPrefix(name, o.name)
}

// serverProperties reads a Java properties file of Debezium-server's; ok is
// false for any other.
func serverProperties(b []byte) (names []string, ok bool) {
	for _, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		i := strings.IndexAny(line, "=: \t")
		if i <= 0 {
			continue
		}
		name := line[:i]
		names = append(names, name)
		ok = ok || strings.HasPrefix(name, "debezium.") && line[i] != ':'
	}
	return names, ok
}

// checkForeign lists the options of another tool's configuration and what says
// the same here; read is false for a file that is none.
func (a *app) checkForeign(path string) (read bool, err error) {
	b, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return false, nil // varve's own reader says so
	}
	if len(b) > maxConfigBytes {
		return true, usagef("%s has more than %d bytes", path, maxConfigBytes)
	}
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) {
		props, err := sinkProperties(b)
		if err != nil || !isSink(props) {
			return false, nil
		}
		return true, a.checkSink(path, props)
	}
	names, ok := serverProperties(b)
	if !ok {
		return false, nil
	}
	l := a.list("option", "varve", "note")
	missing := 0
	for _, name := range names {
		o := foreignOption{why: "it has no counterpart"}
		for i := range serverOptions {
			if serverOptions[i].is(name) {
				o = serverOptions[i]
				break
			}
		}
		var ours any
		if o.ours != "" {
			ours = o.ours
		} else {
			missing++
		}
		if err := l.row(name, ours, o.why); err != nil {
			return true, err
		}
	}
	if err := l.close(); err != nil {
		return true, err
	}
	a.notef("note: %s is Debezium-server's configuration: %d of its %d options have no counterpart in varve's", path, missing, len(names))
	return true, nil
}

func isSink(props map[string]string) bool {
	for name := range props {
		if strings.HasPrefix(name, "iceberg.") {
			return true
		}
	}
	return strings.Contains(props["connector.class"], "Iceberg")
}

// checkSink lists the properties of a Kafka Connect Iceberg sink.
func (a *app) checkSink(path string, props map[string]string) error {
	c := convertSink(props)
	left := map[string]string{}
	for _, line := range c.left() {
		name, why, _ := strings.Cut(line, ": ")
		left[name] = why
	}
	l := a.list("option", "varve", "note")
	missing := 0
	for _, name := range slices.Sorted(maps.Keys(props)) {
		var ours any
		why := left[name]
		if c.used[name] {
			ours = "see varve config convert"
		} else {
			missing++
		}
		for _, n := range c.notes {
			if rest, ok := strings.CutPrefix(n, name); ok && strings.HasPrefix(strings.TrimLeft(rest, " "), ":") || ok && strings.HasPrefix(rest, " ") {
				why = strings.TrimLeft(rest, " :")
			}
		}
		if err := l.row(name, ours, why); err != nil {
			return err
		}
	}
	if err := l.close(); err != nil {
		return err
	}
	for _, n := range c.notes {
		a.notef("note: %s", n)
	}
	a.notef("note: %s is a Kafka Connect Iceberg sink's configuration: %d of its %d options have no counterpart in varve's; varve config convert makes a file of it", path, missing, len(props))
	return nil
}

// serverTable is the options of Debezium-server for people, as Markdown.
func serverTable() string {
	var b strings.Builder
	b.WriteString("| Debezium-server | varve | |\n|---|---|---|\n")
	for _, o := range serverOptions {
		name, ours := "`"+o.name+"`", "—"
		if strings.HasSuffix(o.name, ".") {
			name = "`" + o.name + "*`"
		}
		if o.ours != "" {
			ours = "`" + o.ours + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, ours, o.why)
	}
	return b.String()
}
