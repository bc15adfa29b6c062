package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) configCommand() *cobra.Command {
	return group("config", "Check, show or begin a configuration file",
		"  varve config example > varve.yaml\n  varve config check --config varve.yaml",
		a.configCheckCommand(), a.configShowCommand(), a.configExampleCommand(), a.configConvertCommand())
}

func (a *app) configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Read a configuration file and say what is wrong with it",
		Long: "Reads a configuration file as run does, in the same environment. Unknown keys, wrong\n" +
			"values, unknown formats, files that are not there and tables without a key are errors\n" +
			"(exit code 2). Brokers and stores are not asked. Settings are called by their flags.\n" +
			"Of a Kafka Connect Iceberg sink's JSON or Debezium-server's application.properties it\n" +
			"lists each option with what says the same here, and those that nothing does.",
		Example: "  varve config check varve.yaml\n  varve config check --config varve.yaml --output json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg := a.cfg
			if len(args) == 1 {
				if read, err := a.checkForeign(args[0]); read || err != nil {
					return err
				}
				var err error
				if cfg, err = readConfig(args[0]); err != nil {
					return err
				}
			}
			if cfg.path == "" {
				return usagef("no configuration file is named; name it: varve config check varve.yaml")
			}
			if err := cfg.check(); err != nil {
				return err
			}
			if err := a.checkAsRun(cmd.Context(), cfg.path); err != nil {
				return err
			}
			names := make([]string, len(cfg.Tables))
			for i := range cfg.Tables {
				names[i] = cfg.Tables[i].Name
			}
			return a.show(object{{"file", cfg.path}, {"ok", true}, {"tables", names}})
		},
	}
}

// checkAsRun says what varve run, in the same environment, would not take of a
// file's settings.
func (a *app) checkAsRun(ctx context.Context, path string) error {
	b := &app{streams: streams{in: strings.NewReader(""), out: io.Discard, err: io.Discard, env: a.env}, dry: true}
	root := b.root()
	root.SetArgs([]string{"run", "--config", path})
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(ctx); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (a *app) configShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show the settings in force and where each comes from",
		Example: "  VARVE_DATA=/var/lib/varve varve config show --config varve.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.cfg.check(); err != nil {
				return err
			}
			l := a.list("setting", "value", "from")
			var err error
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if f.Name != "help" && err == nil {
					from := a.origins[f.Name]
					if f.Name == "config" {
						from = map[bool]string{true: "command line or environment", false: "default"}[a.file != ""]
					}
					err = l.row(strings.ReplaceAll(f.Name, "-", "_"), flagText(f), from)
				}
			})
			for i := range a.cfg.Tables {
				t := &a.cfg.Tables[i]
				for _, kv := range t.settings() {
					if err == nil {
						err = l.row("tables."+t.Name+"."+kv[0], kv[1], "file")
					}
				}
			}
			if err != nil {
				return err
			}
			return l.close()
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	return cmd
}

// flagText is a flag's value without the brackets of a list.
func flagText(f *pflag.Flag) string {
	if secretFlags[f.Name] {
		if f.Value.String() == f.DefValue {
			return ""
		}
		return "(not shown)"
	}
	if s, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Join(s.GetSlice(), ",")
	}
	return f.Value.String()
}

// settings is what the file says about a table, in the file's order of keys.
func (t *tableConfig) settings() [][2]string {
	var out [][2]string
	add := func(k, v string) {
		if v != "" {
			out = append(out, [2]string{k, v})
		}
	}
	maps := func(prefix string, m map[string]string) {
		keys := make([]string, 0, len(m))
		for k := range m {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			out = append(out, [2]string{prefix + k, m[k]})
		}
	}
	ms := func(k string, d duration) {
		if d != 0 {
			add(k, fmt.Sprintf("%d ms", d.millis()))
		}
	}
	add("source.topic", t.Source.Topic)
	add("source.topic_pattern", t.Source.TopicPattern)
	add("source.route_by", t.Source.RouteBy)
	add("source.route_match", t.Source.RouteMatch)
	add("source.format", t.Source.Format)
	add("source.repartition", t.Source.Repartition)
	maps("source.options.", t.Source.Options)
	add("schema", t.Schema)
	add("key", strings.Join(t.Key, ","))
	if t.AppendOnly {
		add("append_only", "true")
	}
	add("order_by", t.OrderBy)
	add("partition_by", strings.Join(t.PartitionBy, ", "))
	ms("commit_interval", t.CommitInterval)
	ms("tombstone_ttl", t.TombstoneTTL)
	ms("retention.age", t.Retention.Age)
	if t.Retention.Snapshots != 0 {
		add("retention.snapshots", fmt.Sprint(t.Retention.Snapshots))
	}
	maps("properties.", t.Properties)
	if t.MaxTables != 0 {
		add("max_tables", fmt.Sprint(t.MaxTables))
	}
	return out
}

func (a *app) configExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "example",
		Short:   "Print a configuration file with every key explained",
		Example: "  varve config example > varve.yaml",
		Args:    cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(a.out, configExample)
			return err
		},
	}
}

const configExample = `# varve's configuration. Flags win over VARVE_… variables, those over this file.

# Local state, the embedded broker and the embedded lake.
data: ./varve-data

# Kafka brokers. Empty: the embedded broker, for one machine and a first look.
brokers: []

# How to reach brokers that are not open to all. Passwords stand in files, or in
# VARVE_KAFKA_PASSWORD, never here.
kafka:
  tls: false         # implied by the next four
  ca: ""             # PEM file of the brokers' authorities; empty: the system's
  cert: ""           # PEM files of this client's certificate and key
  key: ""
  server_name: ""    # what the brokers' certificates are for; empty: the host
  sasl: ""           # PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM
  user: ""
  password_file: ""
  token_file: ""     # OAUTHBEARER: a token's file, a command that prints it,
  token_command: ""
  token_url: ""      # or a token endpoint for user and password as client credentials
  scope: ""

# Where the schemas of events are, for formats whose events name them by id. The
# password may stand in VARVE_SCHEMA_REGISTRY_PASSWORD, a bearer token in
# VARVE_SCHEMA_REGISTRY_TOKEN.
schema_registry:
  urls: []
  ca: ""
  cert: ""
  key: ""
  user: ""
  password_file: ""
  token_file: ""

# Where the tables are: a folder, or s3://bucket/prefix?endpoint=…&region=…; in
# a binary built with -tags gcs,azure also gs://bucket/prefix and
# azblob://container/prefix. Empty: DATA/lake.
warehouse: ""

# The name of this deployment: the prefix of its topics.
deployment: varve

# Partitions of the transactions topic, recorded at the first start and never
# changed. 0: 8 on a cluster, 1 on the embedded broker.
log_partitions: 0

# What this process does: ingest, state, publisher. Empty: all of them.
roles: []

# On a cluster: the tables that this node ingests, names or patterns as shop.*
# (empty: all), and the source partitions that it takes without sharing them
# with other nodes, as 0-3,7 (empty: what the group gives it).
ingest_tables: []
partitions: ""

# What events that are not in the log yet may take, of all tables of this node
# together, in bytes.
buffer_bytes: 536870912

# On a cluster: this node's name among those of the deployment (empty: made of
# host and data folder), the silence after which others take over what it has,
# and how long dividing the work anew may take.
node_id: ""
session_timeout: 45s
rebalance_timeout: 60s
# Where the node serves its tables as a read-only Iceberg REST catalog (empty:
# 127.0.0.1:8181, or a free port where that is taken; off: nowhere), and the file
# with the token that clients must bring. Beyond this machine a token is needed.
catalog_listen: ""
catalog_token_file: ""

# Where the node can be watched: /metrics for Prometheus, /healthz, /readyz,
# /status, and with pprof Go's profiles. Empty: a free port of this machine.
# Beyond this machine a token is needed for all but the probes: in
# VARVE_ADMIN_TOKEN, or in a file.
admin_listen: ""
admin_token_file: ""
pprof: false

# OpenTelemetry traces of publishing and of jobs: the collector's address for OTLP
# over HTTP, as http://127.0.0.1:4318 (empty: none), and the share of Kafka records
# that are traced too, 0 to 1.
traces: ""
trace_records: 0

# When a checkpoint of the state goes to the object store: after so long (off:
# never) or so many records of the log; and how many of a partition stay. 0 and
# empty: the defaults of varve run.
checkpoint_interval: 15m
checkpoint_records: 0
checkpoint_keep: 3

log_level: info  # debug, info, warn, error
log_format: text # text, json

# Where tables are published. embedded: in their own folders (version-hint.text
# and vN.metadata.json). rest: an Iceberg REST catalog, which others may write to.
# Where it was once published a table stays.
catalog:
  type: embedded  # or rest, or sql
  uri: ""         # rest: https://catalog.example:8181, what stands before /v1; sql: postgres://user@host/database
  warehouse: ""   # what the catalog calls its set of tables, if it needs that; sql: the catalog's name, "default" else
  prefix: ""      # of its paths; most catalogs name it themselves
  token: ""       # a bearer token; better in VARVE_CATALOG_ACCESS_TOKEN
  credential: ""  # or an OAuth2 client, id:secret; sql: user:password; better in VARVE_CATALOG_CREDENTIAL
  token_uri: ""   # where its token is asked; default: the catalog's v1/oauth/tokens
  scope: ""       # of that token; default: catalog
  signing_region: "" # AWS: requests are signed for this region (default: AWS_REGION's) ...
  signing_name: ""   # ... and this service: glue (https://glue.REGION.amazonaws.com/iceberg) or s3tables
  headers: {}     # sent with every request
  ca_file: ""     # certificates (PEM) that are trusted besides the system's

tables:
  - name: shop.orders
    source:
      topic: dbserver1.shop.orders # default: the table's name
      # repartition: always        # when equal keys may be in different partitions
      format: debezium-json        # several, separated by commas, where their bytes tell them apart
      options: {}                  # of the format, for example timestamp.unit: millis
    key: [order_id]                # or append_only: true
    order_by: source.ts_ms         # a column, or a path in the event; default: the log's order
    partition_by: [day(created_at), "bucket(16, order_id)"]
    commit_interval: 1s            # a snapshot at most so often
    tombstone_ttl: 7d              # how long a deleted key's ordering value is remembered
    retention:                     # a snapshot goes when it is older than age
      age: 10m                     # and not among the last so many
      snapshots: 100
    properties: {}                 # Iceberg table properties
    # schema: orders.schema.json   # Iceberg schema JSON; default: from the events

  # A table for each topic of a pattern (a regular expression of whole names), made
  # as soon as the topic has events. $1 is the pattern's first group, ${topic} the
  # topic. Without a key the columns of the record keys are it.
  # - name: inventory.$1
  #   source: {topic_pattern: 'dbserver1\.inventory\.(.+)', format: debezium-json}
  #   max_tables: 1000

  # A table for each text of a field, or of a record header (header:NAME), of one
  # topic's events; ${route} is the text. Each table reads the whole topic.
  # - name: audit.${route}
  #   source: {topic: audit, format: debezium-json, route_by: source.table, route_match: '[a-z_]+'}

  # One table of some of a topic's events.
  # - name: audit.logins
  #   source: {topic: audit, format: rows-json, route_by: kind, route_match: 'login|logout'}
  #   key: [id]
`
