package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
)

// maxConfigBytes bounds a configuration file.
const maxConfigBytes = 4 << 20

// fileConfig is the configuration file. Keys of the top level that are also
// flags give those flags their values; the tags are the keys.
type fileConfig struct {
	Data             string         `yaml:"data"`
	Brokers          []string       `yaml:"brokers"`
	Kafka            kafkaConfig    `yaml:"kafka"`
	SchemaRegistry   registryConfig `yaml:"schema_registry"`
	Warehouse        string         `yaml:"warehouse"`
	Deployment       string         `yaml:"deployment"`
	LogPartitions    int            `yaml:"log_partitions"`
	Roles            []string       `yaml:"roles"`
	IngestTables     []string       `yaml:"ingest_tables"`
	BufferBytes      int64          `yaml:"buffer_bytes"`
	Partitions       string         `yaml:"partitions"`
	NodeID           string         `yaml:"node_id"`
	SessionTimeout   duration       `yaml:"session_timeout"`
	RebalanceTimeout duration       `yaml:"rebalance_timeout"`
	// Where and with which token the node serves its tables.
	CatalogListen    string `yaml:"catalog_listen"`
	CatalogTokenFile string `yaml:"catalog_token_file"`
	// Where the node can be watched, and with which token.
	AdminListen    string `yaml:"admin_listen"`
	AdminTokenFile string `yaml:"admin_token_file"`
	Pprof          bool   `yaml:"pprof"`
	// Where traces go, and which share of records is traced.
	Traces       string  `yaml:"traces"`
	TraceRecords float64 `yaml:"trace_records"`
	// When the state is kept in the object store.
	CheckpointInterval string        `yaml:"checkpoint_interval"`
	CheckpointRecords  int64         `yaml:"checkpoint_records"`
	CheckpointKeep     int           `yaml:"checkpoint_keep"`
	LogLevel           string        `yaml:"log_level"`
	LogFormat          string        `yaml:"log_format"`
	Catalog            catalogConfig `yaml:"catalog"`
	Tables             []tableConfig `yaml:"tables"`

	path string
}

// catalogConfig is where tables are published.
type catalogConfig struct {
	Type          string            `yaml:"type"`
	URI           string            `yaml:"uri"`
	Warehouse     string            `yaml:"warehouse"`
	Prefix        string            `yaml:"prefix"`
	Token         string            `yaml:"token"`
	Credential    string            `yaml:"credential"`
	TokenURI      string            `yaml:"token_uri"`
	Scope         string            `yaml:"scope"`
	SigningRegion string            `yaml:"signing_region"`
	SigningName   string            `yaml:"signing_name"`
	Headers       map[string]string `yaml:"headers"`
	CAFile        string            `yaml:"ca_file"`
}

type tableConfig struct {
	Name           string            `yaml:"name"`
	Source         sourceConfig      `yaml:"source"`
	Schema         string            `yaml:"schema"`
	Key            []string          `yaml:"key"`
	AppendOnly     bool              `yaml:"append_only"`
	OrderBy        string            `yaml:"order_by"`
	PartitionBy    []string          `yaml:"partition_by"`
	CommitInterval duration          `yaml:"commit_interval"`
	TombstoneTTL   duration          `yaml:"tombstone_ttl"`
	Retention      retentionConfig   `yaml:"retention"`
	Properties     map[string]string `yaml:"properties"`
	// MaxTables bounds the tables of an entry that makes many.
	MaxTables int `yaml:"max_tables"`
}

type sourceConfig struct {
	Topic   string            `yaml:"topic"`
	Format  string            `yaml:"format"`
	Options map[string]string `yaml:"options"`
	// Repartition "always" sends the events through an internal topic, where the
	// table's key decides the partition (K5).
	Repartition string `yaml:"repartition"`
	// TopicPattern, instead of Topic, are the topics that have a table each.
	TopicPattern string `yaml:"topic_pattern"`
	// RouteBy is the field, or header, that says of which table an event is, and
	// RouteMatch which of its texts are this entry's.
	RouteBy    string `yaml:"route_by"`
	RouteMatch string `yaml:"route_match"`
}

type retentionConfig struct {
	Age       duration `yaml:"age"`
	Snapshots int64    `yaml:"snapshots"`
}

// duration is a length of time of at least a millisecond; 0: not given.
type duration time.Duration

func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := parseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*d = duration(v)
	return nil
}

func (d duration) millis() int64 { return time.Duration(d).Milliseconds() }

// parseDuration reads 250ms, 1.5s, 10m, 24h, and also whole days, 7d.
func parseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil && n > 0 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	v, err := time.ParseDuration(s)
	if err != nil || v < time.Millisecond {
		return 0, fmt.Errorf("%q is no duration; write it as 250ms, 1s, 10m, 24h or 7d", s)
	}
	return v, nil
}

// readConfig reads a configuration file strictly.
func readConfig(path string) (*fileConfig, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usagef("configuration file: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, usagef("configuration file %s: %w", path, err)
	}
	if len(b) > maxConfigBytes {
		return nil, usagef("configuration file %s has more than %d bytes", path, maxConfigBytes)
	}
	return parseConfig(path, b)
}

func parseConfig(path string, b []byte) (*fileConfig, error) {
	cfg := &fileConfig{path: path}
	decoder := yaml.NewDecoder(bytes.NewReader(b))
	var doc yaml.Node
	if err := decoder.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return cfg, nil // empty, or only comments
		}
		return nil, usagef("configuration file %s is not YAML: %w", path, err)
	}
	var second yaml.Node
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, usagef("configuration file %s: more than one YAML document; keep one", path)
	}
	if err := checkKeys(path, "", doc.Content[0], reflect.TypeFor[fileConfig]()); err != nil {
		return nil, err
	}
	if err := doc.Decode(cfg); err != nil {
		return nil, usagef("configuration file %s: %w", path, err)
	}
	return cfg, nil
}

// checkKeys refuses keys that t has no field for, naming the nearest it has.
// (The YAML library refuses them too, but does not say what was meant.)
func checkKeys(path, at string, n *yaml.Node, t reflect.Type) error {
	switch {
	case n.Kind == yaml.AliasNode:
		return usagef("%s:%d: aliases are not allowed; write the value out", path, n.Line)
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			if err := checkKeys(path, fmt.Sprintf("%s[%d]", at, i), item, t.Elem()); err != nil {
				return err
			}
		}
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode:
		known := yamlKeys(t)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			field, ok := known[key.Value]
			if !ok {
				where := ""
				if at != "" {
					where = " in " + at
				}
				names := make([]string, 0, len(known))
				for k := range known {
					names = append(names, k)
				}
				slices.Sort(names)
				near, _ := nearest(key.Value, names)
				return usagef("%s:%d: unknown key %q%s; the nearest known key is %q (known: %s)",
					path, key.Line, key.Value, where, near, strings.Join(names, ", "))
			}
			next := key.Value
			if at != "" {
				next = at + "." + next
			}
			if err := checkKeys(path, next, value, field); err != nil {
				return err
			}
		}
	}
	return nil
}

// yamlKeys is the keys of a struct of the file, with their types.
func yamlKeys(t reflect.Type) map[string]reflect.Type {
	out := make(map[string]reflect.Type, t.NumField())
	for i := range t.NumField() {
		if tag, ok := t.Field(i).Tag.Lookup("yaml"); ok {
			out[tag] = t.Field(i).Type
		}
	}
	return out
}

// flagValues is what the file says about flags, by flag name.
func (c *fileConfig) flagValues() map[string][]string {
	out := map[string][]string{}
	text := func(name, v string) {
		if v != "" {
			out[name] = []string{v}
		}
	}
	text("data", c.Data)
	text("warehouse", c.Warehouse)
	text("deployment", c.Deployment)
	c.Kafka.flagValues(text)
	c.SchemaRegistry.flagValues(out)
	text("catalog-listen", c.CatalogListen)
	text("catalog-token-file", c.CatalogTokenFile)
	text("admin-listen", c.AdminListen)
	text("admin-token-file", c.AdminTokenFile)
	if c.Pprof {
		out["pprof"] = []string{"true"}
	}
	text("traces", c.Traces)
	if c.TraceRecords != 0 {
		out["trace-records"] = []string{strconv.FormatFloat(c.TraceRecords, 'g', -1, 64)}
	}
	text("checkpoint-interval", c.CheckpointInterval)
	if c.CheckpointRecords != 0 {
		out["checkpoint-records"] = []string{strconv.FormatInt(c.CheckpointRecords, 10)}
	}
	if c.CheckpointKeep != 0 {
		out["checkpoint-keep"] = []string{strconv.Itoa(c.CheckpointKeep)}
	}
	text("log-level", c.LogLevel)
	text("log-format", c.LogFormat)
	text("partitions", c.Partitions)
	text("node-id", c.NodeID)
	for name, d := range map[string]duration{"session-timeout": c.SessionTimeout, "rebalance-timeout": c.RebalanceTimeout} {
		if d != 0 {
			text(name, time.Duration(d).String())
		}
	}
	if c.BufferBytes != 0 {
		out["buffer-bytes"] = []string{strconv.FormatInt(c.BufferBytes, 10)}
	}
	if len(c.IngestTables) > 0 {
		out["tables"] = c.IngestTables
	}
	if c.LogPartitions != 0 {
		out["log-partitions"] = []string{strconv.Itoa(c.LogPartitions)}
	}
	if len(c.Brokers) > 0 {
		out["brokers"] = c.Brokers
	}
	if len(c.Roles) > 0 {
		out["roles"] = c.Roles
	}
	c.Catalog.values(out)
	return out
}

// envName is the environment variable of a flag.
func envName(flag string) string {
	return "VARVE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// bind gives every flag that the command line did not set its value from the
// environment, else from the file.
func (a *app) bind(cmd *cobra.Command) error {
	a.cfg, a.origins = &fileConfig{}, map[string]string{}
	flags := cmd.Flags()
	if f := flags.Lookup("config"); f != nil && !f.Changed {
		if v, ok := a.lookupEnv(envName("config")); ok {
			a.file = v
		}
	}
	if a.file != "" {
		cfg, err := readConfig(a.file)
		if err != nil {
			return err
		}
		a.cfg = cfg
	}
	fromFile := a.cfg.flagValues()
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		switch {
		case failed != nil || f.Name == "help" || f.Name == "config":
		case f.Changed:
			a.origins[f.Name] = "flag"
		default:
			values, where := fromFile[f.Name], "file"
			origin := a.file + ": " + strings.ReplaceAll(f.Name, "-", "_")
			if v, ok := a.lookupEnv(envName(f.Name)); ok && v != "" {
				values, where, origin = []string{v}, "environment", envName(f.Name)
			}
			if values == nil {
				a.origins[f.Name] = "default"
				return
			}
			a.origins[f.Name] = where
			for _, v := range values {
				if err := f.Value.Set(v); err != nil {
					failed = usagef("%s: %w", origin, err)
				}
			}
			// Changed stays false: it says what the command line did. Commands
			// that must know whether a flag was given ask given.
		}
	})
	return failed
}

// given says whether a flag got its value from anywhere but its default.
func (a *app) given(flag string) bool {
	o := a.origins[flag]
	return o != "" && o != "default"
}

// secretEnvs are the variables that hold secrets, which have no flag.
var secretEnvs = []string{adminTokenEnv, catalogTokenEnv, kafkaPasswordEnv, registryPasswordEnv, registryTokenEnv}

// warnEnvironment warns of VARVE_ variables that are nearly a flag's: they do
// nothing, and their user should know.
func (a *app) warnEnvironment(root *cobra.Command) {
	known := map[string]bool{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		add := func(f *pflag.Flag) { known[envName(f.Name)] = true }
		c.Flags().VisitAll(add)
		c.PersistentFlags().VisitAll(add)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	for _, name := range secretEnvs {
		known[name] = true
	}
	names := make([]string, 0, len(known))
	for n := range known {
		names = append(names, n)
	}
	for _, kv := range a.env {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "VARVE_") || known[name] {
			continue
		}
		if near, d := nearest(name, names); d <= 2 {
			a.log.Warn("an environment variable is no flag's and does nothing", "name", name, "nearest", near)
		}
	}
}

// check says what is wrong with a configuration beyond its keys.
func (c *fileConfig) check() error {
	if err := c.Catalog.check(); err != nil {
		return usagef("%s: catalog: %w", c.path, err)
	}
	seen := map[string]bool{}
	for i := range c.Tables {
		t := &c.Tables[i]
		if err := t.check(); err != nil {
			return usagef("%s: tables[%d]: %w", c.path, i, err)
		}
		if seen[t.Name] {
			return usagef("%s: tables[%d]: table %s stands there twice", c.path, i, t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

func (t *tableConfig) check() error {
	if err := t.checkTemplate(); err != nil {
		return err
	}
	if !t.isTemplate() {
		if err := schemas.CheckTableName(t.Name); err != nil {
			return err
		}
	}
	if f := t.Source.Format; f != "" {
		if !strings.Contains(f, ",") && !slices.Contains(source.Formats(), f) {
			return fmt.Errorf("table %s: unknown source format %q%s (known: %s)", t.Name, f,
				didYouMean(f, source.Formats()), strings.Join(source.Formats(), ", "))
		}
		if _, err := source.SplitFormats(f); err != nil {
			return fmt.Errorf("table %s: %w", t.Name, err)
		}
	}
	if r := t.Source.Repartition; r != "" && r != schemas.RepartitionAlways {
		return fmt.Errorf("table %s: repartition is %q; it can only be %q, or left out", t.Name, r, schemas.RepartitionAlways)
	}
	if len(t.Key) > 0 && t.AppendOnly {
		return fmt.Errorf("table %s: a table has a key or is append_only, not both", t.Name)
	}
	if len(t.Key) == 0 && !t.AppendOnly && !t.isTemplate() {
		return fmt.Errorf("table %s: name its key columns, or set append_only: true for a table that only gains rows", t.Name)
	}
	if t.OrderBy != "" && t.AppendOnly {
		return fmt.Errorf("table %s: order_by decides between versions of a key, and an append_only table has no key", t.Name)
	}
	for _, p := range t.PartitionBy {
		if _, _, _, err := schemas.ParseTransform(p); err != nil {
			return fmt.Errorf("table %s: %w; write it as %s", t.Name, err, partitionForms)
		}
	}
	return nil
}
