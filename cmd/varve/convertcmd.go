package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas/source"
)

func (a *app) configConvertCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "convert FILE",
		Short: "Make a configuration file of a Kafka Connect Iceberg sink's",
		Long: "Reads a Kafka Connect Iceberg sink's configuration (JSON: the properties, or the whole\n" +
			"request with name and config) and prints varve's for the same tables. What has no\n" +
			"counterpart stands in comments at its head, each with what to do instead, and on stderr.\n" +
			"Passwords and tokens are not printed: the comments say where they go. - reads stdin.",
		Example: "  varve config convert sink.json > varve.yaml && varve config check varve.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			in := a.in
			if args[0] != "-" {
				f, err := os.Open(filepath.Clean(args[0]))
				if err != nil {
					return usagef("%w", err)
				}
				defer f.Close()
				in = f
			}
			b, err := io.ReadAll(io.LimitReader(in, maxConfigBytes+1))
			if err != nil {
				return err
			}
			if len(b) > maxConfigBytes {
				return usagef("%s has more than %d bytes", args[0], maxConfigBytes)
			}
			props, err := sinkProperties(b)
			if err != nil {
				return usagef("%s: %w", args[0], err)
			}
			c := convertSink(props)
			text := c.yaml()
			if cfg, err := parseConfig("converted", []byte(text)); err != nil {
				return err
			} else if err := cfg.check(); err != nil {
				c.notes = append(c.notes, "the file is not whole yet: "+err.Error())
				text = c.yaml()
			}
			for _, n := range append(append([]string(nil), c.notes...), c.left()...) {
				a.notef("note: %s", n)
			}
			_, err = io.WriteString(a.out, text)
			return err
		},
	}
}

// sinkProperties reads {"name": …, "config": {…}} or the properties alone.
func sinkProperties(b []byte) (map[string]string, error) {
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, errors.New("it is no JSON object of a connector's properties")
	}
	if inner, ok := doc["config"].(map[string]any); ok {
		doc = inner
	}
	out := map[string]string{}
	for k, v := range doc {
		switch v := v.(type) {
		case string:
			out[k] = v
		case bool:
			out[k] = strconv.FormatBool(v)
		case float64:
			out[k] = strconv.FormatFloat(v, 'f', -1, 64)
		case nil:
		default:
			return nil, fmt.Errorf("property %s is no text, number or boolean", k)
		}
	}
	return out, nil
}

// converted is varve's configuration for a sink's.
type converted struct {
	props map[string]string
	used  map[string]bool
	notes []string

	brokers   []string
	registry  []string
	user      string
	warehouse string
	catalog   [][2]string
	tables    []convertedTable
}

type convertedTable struct {
	pattern, routeBy, routeMatch string

	name, topic, format string
	key, partition      []string
	commitMs            int64
	options             [][2]string
	properties          [][2]string
}

// take gives a property and notes that it was seen.
func (c *converted) take(name string) string {
	c.used[name] = true
	return strings.TrimSpace(c.props[name])
}

func (c *converted) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

func (c *converted) truth(name string) bool { return strings.EqualFold(c.take(name), "true") }

func list(s string) (out []string) {
	// A comma inside parentheses belongs to a transform: bucket(id, 16).
	depth, from := 0, 0
	add := func(part string) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	for i, r := range s {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				add(s[from:i])
				from = i + 1
			}
		}
	}
	add(s[from:])
	return out
}

// gone are properties without a counterpart, by name or by what they begin with
// ("…."), and what there is instead.
var gone = [][2]string{
	{"name", ""}, {"tasks.max", "shards are shared among the nodes that run"}, {"connector.class", ""},
	{"iceberg.control.topic", "the log is varve's own topic, <deployment>.transactions"},
	{"iceberg.control.group-id", "source offsets stand in the log, not in a group"},
	{"iceberg.control.group-id-prefix", "source offsets stand in the log, not in a group"},
	{"iceberg.control.commit.timeout-ms", "a commit waits for no worker"}, {"iceberg.control.commit.threads", ""},
	{"iceberg.coordinator.transactional.prefix", "no Kafka transactions are used"},
	{"iceberg.coordinator-executor-keep-alive-timeout-ms", ""},
	{"iceberg.tables.auto-create-enabled", "tables that do not exist are made when a node starts"},
	{"iceberg.tables.schema-force-optional", "only key columns are required"},
	{"iceberg.catalog", ""}, {"iceberg.catalog.io-impl", "the store is varve's own"},
	{"iceberg.hadoop.", "Hadoop is not used"}, {"iceberg.hadoop-conf-dir", "Hadoop is not used"},
	{"errors.tolerance", "refused events go to <topic>.dlq; --on-error stop stops instead"},
	{"errors.log.enable", ""}, {"errors.log.include.messages", "values are never logged"},
	{"errors.deadletterqueue.topic.name", "the topic is <topic>.dlq"}, {"errors.deadletterqueue.topic.replication.factor", ""},
	{"errors.deadletterqueue.context.headers.enable", "the headers are always there"}, {"errors.retry.timeout", ""}, {"errors.retry.delay.max.ms", ""},
	{"consumer.override.", ""}, {"producer.override.", ""}, {"offset.", ""},
}

func convertSink(props map[string]string) *converted {
	c := &converted{props: props, used: map[string]bool{}}
	if class := props["connector.class"]; class != "" && !strings.Contains(class, "Iceberg") {
		c.note("connector.class %s is no Iceberg sink; its properties are read as if it were", class)
	}
	format := c.format()
	topics, tables := list(c.take("topics")), list(c.take("iceberg.tables"))
	regex, field, dynamic := c.take("topics.regex"), c.take("iceberg.tables.route-field"), c.truth("iceberg.tables.dynamic-enabled")
	routed := field != "" && len(topics) == 1
	switch {
	case field != "" && !routed:
		c.note("iceberg.tables.route-field %s: of one topic events are routed by a field; of several each has its tables, so that each needs entries of its own", field)
	case dynamic && !routed:
		c.note("iceberg.tables.dynamic-enabled: a table is made for each text of route-field in one topic's events; name the topic and the field")
	}
	switch {
	case routed && dynamic:
		tables = []string{"${route}"}
		c.note("iceberg.tables.route-field %s: a table is made for each of its texts, which is the table's name; each reads the whole topic", field)
	case routed && len(tables) > 0:
		c.note("iceberg.tables.route-field %s: each table reads the whole topic and takes its own events", field)
	case regex != "":
		// Each topic has a table of its name; the sink would put them all into one.
		tables, topics = []string{"${topic}"}, nil
		c.note("topics.regex: a table is made for each topic that it matches, with the topic's name; a table reads one topic")
	case len(topics) > 1 && len(tables) == 1:
		c.note("topics: table %s would read %d topics; a table reads one: the first is taken", tables[0], len(topics))
	case len(topics) > 1 && len(topics) != len(tables):
		c.note("topics: %d topics for %d tables; a table reads one topic: check which", len(topics), len(tables))
	case len(topics) == 0 && regex == "":
		c.note("topics: none is named; a table's topic is its name then")
	}
	if len(tables) == 0 {
		tables = topics
	}
	commit := int64(300_000)
	if s := c.take("iceberg.control.commit.interval-ms"); s != "" {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil && n > 0 {
			commit = n
		} else {
			c.note("iceberg.control.commit.interval-ms: it is no number of milliseconds")
		}
	} else {
		c.note("commit_interval is the sink's default, 5m; varve's is 1s")
	}
	cdc := c.take("iceberg.tables.cdc-field")
	upserts := c.truth("iceberg.tables.upsert-mode-enabled")
	if cdc != "" && cdc != "_cdc" && cdc != "_cdc.op" && format != source.DebeziumJSON && format != source.DebeziumAvro && format != source.DMS {
		c.note("iceberg.tables.cdc-field %s: the operation is read from _cdc.op, __op or __deleted, or from the events of a tool; rename the field, or read the tool's own events", cdc)
	}
	byKey := cdc != "" || upserts || format == source.DebeziumJSON || format == source.DebeziumAvro || format == source.DMS
	ids, parts := c.take("iceberg.tables.default-id-columns"), c.take("iceberg.tables.default-partition-by")
	evolve := c.truth("iceberg.tables.evolve-schema-enabled")
	if branch := c.take("iceberg.tables.default-commit-branch"); branch != "" && branch != "main" {
		c.note("iceberg.tables.default-commit-branch %s: varve writes the branch main", branch)
	}
	if c.truth("iceberg.tables.schema-case-insensitive") {
		c.note("iceberg.tables.schema-case-insensitive: column names are taken as they are; two that differ only in case are refused")
	}
	for i, name := range tables {
		t := convertedTable{name: name, format: format, commitMs: commit}
		switch {
		case i < len(topics):
			t.topic = topics[i]
		case len(topics) > 0:
			t.topic = topics[0]
		}
		own := "iceberg.table." + name + "."
		id, part := c.take(own+"id-columns"), c.take(own+"partition-by")
		if id == "" {
			id = ids
		}
		if part == "" {
			part = parts
		}
		re := c.take(own + "route-regex")
		switch {
		case routed && dynamic:
			t.routeBy = field
		case routed && re == "":
			c.note("table %s: no route-regex says which texts of %s are its own; the sink would give it none", name, field)
			t.routeBy, t.routeMatch = field, regexp.QuoteMeta(name)
		case routed:
			t.routeBy, t.routeMatch = field, re
		case re != "":
			c.note("%sroute-regex: it says nothing without iceberg.tables.route-field and one topic", own)
		case regex != "" && len(topics) == 0:
			t.pattern = regex
		}
		if branch := c.take(own + "commit-branch"); branch != "" && branch != "main" {
			c.note("%scommit-branch: varve writes the branch main", own)
		}
		switch {
		case byKey && id == "":
			c.note("table %s: its events change rows by key, and no id-columns are named; name the key", name)
			t.key = []string{"id"}
		case byKey:
			t.key = list(id)
		case id != "":
			c.note("table %s: the sink only appends, whatever its id-columns; it stays append_only. With key: [%s] rows are kept true to the newest event of each key", name, strings.Join(list(id), ", "))
		}
		t.partition = c.transforms(name, list(part))
		if !evolve {
			t.options = append(t.options, [2]string{"columns.new", "refuse"})
		}
		for _, prefix := range []string{"iceberg.tables.auto-create-props.", "iceberg.tables.write-props."} {
			for _, k := range slices.Sorted(maps.Keys(props)) {
				if rest, ok := strings.CutPrefix(k, prefix); ok {
					t.properties = append(t.properties, [2]string{rest, c.take(k)})
				}
			}
		}
		c.tables = append(c.tables, t)
	}
	c.kafka()
	c.lake()
	c.rest()
	return c
}

// format is what the converters and transforms say of the topic's bytes.
func (c *converted) format() string {
	value := c.take("value.converter")
	name := value[strings.LastIndexByte(value, '.')+1:]
	form := ""
	switch name {
	case "JsonConverter", "":
		form = "json"
		if value == "" {
			c.note("value.converter: it stands in the worker's configuration; JSON is assumed")
		}
	case "AvroConverter":
		form = "avro"
	case "JsonSchemaConverter":
		form = "json-schema"
	case "ProtobufConverter":
		form = "protobuf"
	default:
		c.note("value.converter %s: no format reads what it reads; JSON is assumed", value)
		form = "json"
	}
	c.take("key.converter")
	for k := range c.props {
		if strings.HasPrefix(k, "value.converter.") || strings.HasPrefix(k, "key.converter.") {
			switch {
			case strings.HasSuffix(k, ".schema.registry.url"):
				for _, u := range list(c.take(k)) {
					if !slices.Contains(c.registry, u) {
						c.registry = append(c.registry, u)
					}
				}
			case strings.HasSuffix(k, ".basic.auth.user.info"):
				c.user, _, _ = strings.Cut(c.take(k), ":")
			case strings.HasSuffix(k, ".schemas.enable"), strings.HasSuffix(k, ".basic.auth.credentials.source"):
				c.used[k] = true
			}
		}
	}
	slices.Sort(c.registry)
	if c.user != "" {
		c.note("the schema registry's password is not printed; put it in VARVE_SCHEMA_REGISTRY_PASSWORD or schema_registry.password_file")
	}
	envelope := "rows"
	for _, t := range list(c.take("transforms")) {
		kind := c.take("transforms." + t + ".type")
		for k := range c.props {
			if strings.HasPrefix(k, "transforms."+t+".") {
				c.used[k] = true
			}
		}
		switch short := kind[strings.LastIndexByte(kind, '.')+1:]; short {
		case "DebeziumTransform", "ExtractNewRecordState":
			envelope = "debezium" // the topic holds the whole envelopes
		case "DmsTransform":
			envelope = "dms"
		default:
			c.note("transforms %s (%s): events are not transformed on their way; the table's format reads the topic as it is", t, short)
		}
	}
	switch {
	case envelope == "dms":
		if form != "json" {
			c.note("DMS events are read in JSON only")
		}
		return source.DMS
	case envelope == "debezium" && form == "json":
		return source.DebeziumJSON
	case envelope == "debezium" && form == "avro":
		return source.DebeziumAvro
	case envelope == "debezium":
		c.note("Debezium's envelopes are read in JSON and Avro; flatten them at their source, or write them in Avro")
	}
	switch form {
	case "avro":
		return source.RowsAvro
	case "json-schema":
		return source.RowsJSONSchema
	case "protobuf":
		return source.RowsProtobuf
	}
	return source.RowsJSON
}

// transforms are partition fields in varve's words: bucket(16, id), not bucket(id, 16).
func (c *converted) transforms(table string, fields []string) (out []string) {
	for _, f := range fields {
		name, args, call := strings.Cut(strings.TrimSuffix(f, ")"), "(")
		if !call {
			out = append(out, f)
			continue
		}
		in := list(args)
		name = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(name)), "s")
		switch {
		case (name == "bucket" || name == "truncate") && len(in) == 2:
			if _, err := strconv.Atoi(in[0]); err != nil {
				in[0], in[1] = in[1], in[0]
			}
			out = append(out, fmt.Sprintf("%s(%s, %s)", name, in[0], in[1]))
		case slices.Contains([]string{"year", "month", "day", "hour"}, name) && len(in) == 1:
			out = append(out, fmt.Sprintf("%s(%s)", name, in[0]))
		default:
			c.note("table %s: partition field %s is none that varve knows", table, f)
		}
	}
	return out
}

func (c *converted) kafka() {
	for _, k := range []string{"iceberg.kafka.bootstrap.servers", "bootstrap.servers"} {
		if s := c.take(k); s != "" && len(c.brokers) == 0 {
			c.brokers = list(s)
		}
	}
	if len(c.brokers) == 0 {
		c.note("the brokers stand in the worker's configuration (bootstrap.servers); name them under brokers, and their login under kafka")
	}
	for k := range c.props {
		if strings.HasPrefix(k, "iceberg.kafka.") && !c.used[k] {
			c.used[k] = true
			c.note("%s: the brokers' login and TLS stand under kafka", k)
		}
	}
}

func (c *converted) lake() {
	w := c.take("iceberg.catalog.warehouse")
	scheme, _, isURL := strings.Cut(w, "://")
	endpoint, region := c.take("iceberg.catalog.s3.endpoint"), c.take("iceberg.catalog.client.region")
	if r := c.take("iceberg.catalog.s3.region"); region == "" {
		region = r
	}
	pathStyle := c.take("iceberg.catalog.s3.path-style-access")
	_ = pathStyle // an endpoint is spoken to in that way
	for _, k := range []string{"iceberg.catalog.s3.access-key-id", "iceberg.catalog.s3.secret-access-key", "iceberg.catalog.s3.session-token"} {
		if c.take(k) != "" {
			c.note("%s is not printed; put it in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), a profile or the machine's role", k)
		}
	}
	if isURL {
		if scheme == "s3a" || scheme == "s3n" {
			w = "s3" + strings.TrimPrefix(w, scheme)
		}
		q := url.Values{}
		if endpoint != "" {
			q.Set("endpoint", endpoint)
		}
		if region != "" {
			q.Set("region", region)
		}
		if len(q) > 0 && strings.HasPrefix(w, "s3://") {
			w += "?" + q.Encode()
		}
		c.warehouse = w
		return
	}
	if w != "" {
		c.catalog = append(c.catalog, [2]string{"warehouse", w})
	}
	c.note("warehouse: name the store that varve writes to (s3://bucket/prefix?region=…)")
}

func (c *converted) rest() {
	kind, uri := c.take("iceberg.catalog.type"), c.take("iceberg.catalog.uri")
	impl := c.take("iceberg.catalog.catalog-impl")
	switch {
	case kind == "rest" || kind == "" && strings.HasSuffix(impl, "RESTCatalog"):
		c.catalog = append([][2]string{{"type", "rest"}, {"uri", uri}}, c.catalog...)
		for ours, theirs := range map[string]string{"scope": "scope", "token_uri": "oauth2-server-uri", "prefix": "prefix"} {
			if v := c.take("iceberg.catalog." + theirs); v != "" {
				c.catalog = append(c.catalog, [2]string{ours, v})
			}
		}
		slices.SortFunc(c.catalog[2:], func(x, y [2]string) int { return strings.Compare(x[0], y[0]) })
		if c.take("iceberg.catalog.token") != "" {
			c.note("iceberg.catalog.token is not printed; put it in VARVE_CATALOG_ACCESS_TOKEN")
		}
		if c.take("iceberg.catalog.credential") != "" {
			c.note("iceberg.catalog.credential is not printed; put it in VARVE_CATALOG_CREDENTIAL")
		}
	default:
		c.catalog = nil
		if kind == "" {
			kind = impl
		}
		if kind != "" {
			c.note("iceberg.catalog.type %s: tables are published to their own folders, or to an Iceberg REST catalog; engines read them through the catalog that varve run serves", kind)
		}
	}
}

// left are the properties that nothing was made of.
func (c *converted) left() (out []string) {
	for _, k := range slices.Sorted(maps.Keys(c.props)) {
		if c.used[k] {
			continue
		}
		why, known := "", false
		for _, g := range gone {
			if k == g[0] || strings.HasSuffix(g[0], ".") && strings.HasPrefix(k, g[0]) {
				why, known = g[1], true
			}
		}
		switch {
		case known && why == "":
		case known:
			out = append(out, k+": "+why)
		default:
			out = append(out, k+": it has no counterpart")
		}
	}
	return out
}

// yaml is the configuration. Values are written as JSON, which is YAML.
func (c *converted) yaml() string {
	var b strings.Builder
	quote := func(v any) string {
		var out strings.Builder
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return `""` // text and lists of it have a form
		}
		return strings.TrimSpace(out.String())
	}
	b.WriteString("# Made from a Kafka Connect sink's configuration.\n")
	for _, n := range append(append([]string(nil), c.notes...), c.left()...) {
		b.WriteString("# - " + strings.Join(strings.Fields(n), " ") + "\n")
	}
	if len(c.brokers) > 0 {
		fmt.Fprintf(&b, "brokers: %s\n", quote(c.brokers))
	}
	if len(c.registry) > 0 {
		fmt.Fprintf(&b, "schema_registry:\n  urls: %s\n", quote(c.registry))
		if c.user != "" {
			fmt.Fprintf(&b, "  user: %s\n", quote(c.user))
		}
	}
	if c.warehouse != "" {
		fmt.Fprintf(&b, "warehouse: %s\n", quote(c.warehouse))
	}
	if len(c.catalog) > 0 {
		b.WriteString("catalog:\n")
		for _, kv := range c.catalog {
			fmt.Fprintf(&b, "  %s: %s\n", kv[0], quote(kv[1]))
		}
	}
	b.WriteString("tables:\n")
	if len(c.tables) == 0 {
		b.WriteString("  []\n")
	}
	for i := range c.tables {
		t := &c.tables[i]
		fmt.Fprintf(&b, "  - name: %s\n    source:\n", quote(t.name))
		if t.topic != "" {
			fmt.Fprintf(&b, "      topic: %s\n", quote(t.topic))
		}
		for _, kv := range [][2]string{{"topic_pattern", t.pattern}, {"route_by", t.routeBy}, {"route_match", t.routeMatch}} {
			if kv[1] != "" {
				fmt.Fprintf(&b, "      %s: %s\n", kv[0], quote(kv[1]))
			}
		}
		fmt.Fprintf(&b, "      format: %s\n", t.format)
		pairs := func(indent, name string, kv [][2]string) {
			if len(kv) == 0 {
				return
			}
			fmt.Fprintf(&b, "%s%s:\n", indent, name)
			for _, x := range kv {
				fmt.Fprintf(&b, "%s  %s: %s\n", indent, quote(x[0]), quote(x[1]))
			}
		}
		pairs("      ", "options", t.options)
		if len(t.key) > 0 {
			fmt.Fprintf(&b, "    key: %s\n", quote(t.key))
		} else {
			b.WriteString("    append_only: true\n")
		}
		if len(t.partition) > 0 {
			fmt.Fprintf(&b, "    partition_by: %s\n", quote(t.partition))
		}
		fmt.Fprintf(&b, "    commit_interval: %dms\n", t.commitMs)
		pairs("    ", "properties", t.properties)
	}
	return b.String()
}
