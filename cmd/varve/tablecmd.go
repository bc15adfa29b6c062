package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/predicate"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/topology"
)

func (a *app) tableCommand() *cobra.Command {
	return group("table", "Create, list, show, alter and drop tables",
		"  varve table list\n  varve table show shop.orders\n  varve table alter shop.orders --add \"note string\"",
		a.tableCreateCommand(), a.tableListCommand(), a.tableShowCommand(), a.tableAlterCommand(), a.tableDropCommand(), a.tableImportCommand(),
		a.tableTagCommand(), a.tableBranchCommand(), a.tableRefsCommand(), a.tableTreeCommand(), a.tableReshardCommand(), a.tableSkipCommand(), a.tableRetireCommand())
}

func (a *app) tableCreateCommand() *cobra.Command {
	var t tableFlags
	var like otherTable
	cmd := &cobra.Command{
		Use:   "create TABLE",
		Short: "Create an empty table",
		Long: "Creates a table of the schema in --schema (Iceberg schema JSON). A table that is there\nalready, and is the same, is left as it is; one that differs is an error.\n\n" +
			"With --iceberg the columns, their field ids and the partitioning are those of another\n" +
			"Iceberg table in the warehouse, whose files \"varve table import --iceberg\" can then take.",
		Example: "  varve table create shop.orders --schema orders.schema.json --key order_id --format debezium-json\n" +
			"  varve table create log.clicks --schema clicks.schema.json --append-only --format rows-json --partition-by 'day(at)'\n" +
			"  varve table create shop.orders --iceberg s3://lake/old/orders --key order_id --format debezium-json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.w.name = args[0]
			if err := t.finish(); err != nil {
				return err
			}
			if err := like.check(); err != nil {
				return err
			}
			if (t.w.schemaFile == "") == (like.location == "") {
				return usagef("give the schema with --schema, or a table that has it with --iceberg; \"varve load\" takes it from the events")
			}
			var d schemas.Definition
			var notes []string
			if t.w.schemaFile != "" {
				schema, err := readSchema(t.w.schemaFile)
				if err != nil {
					return err
				}
				if d, notes, err = t.w.definition(schema); err != nil {
					return err
				}
			}
			return a.withNewDeployment(cmd.Context(), publishRoles, func(s *session) error {
				if like.location != "" {
					src, err := like.read(cmd.Context(), s)
					if err != nil {
						return err
					}
					if d, notes, err = t.w.definitionLike(src); err != nil {
						return err
					}
				}
				for _, n := range notes {
					a.notef("note: %s", n)
				}
				info, created, err := s.EnsureTable(cmd.Context(), d)
				if err != nil {
					return err
				}
				if info, err = a.visible(cmd.Context(), s, info); err != nil {
					return err
				}
				return a.show(object{{"table", info.Name}, {"table_id", info.ID}, {"created", created}, {"location", info.Definition.Location},
					{"metadata_location", textOrNull(info.Head.MetadataPath)}})
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	t.add(cmd.Flags())
	cmd.Flags().Lookup("schema").Usage = "`file` with the table's schema as Iceberg schema JSON"
	like.add(cmd.Flags())
	return cmd
}

// withNewDeployment is with, on a data folder that may be new.
func (a *app) withNewDeployment(ctx context.Context, roles []string, fn func(s *session) error) error {
	old, err := readNodeFacts(a.data)
	if err != nil {
		return err
	}
	if old != nil {
		return a.with(ctx, roles, fn)
	}
	o, err := a.nodeOptions(roles...)
	if err != nil {
		return err
	}
	n, err := a.openNode(ctx, o)
	if err != nil {
		return err
	}
	s := &session{Conn: &n.Conn, node: n, status: n.Status}
	return s.close(ctx, fn(s))
}

// visible waits until the table's committed metadata shows its newest change.
func (a *app) visible(ctx context.Context, s *session, t *statestore.TableInfo) (*statestore.TableInfo, error) {
	if err := s.WaitVisible(ctx, t.Name, max(t.LastChange, t.ID)); err != nil {
		return nil, err
	}
	return s.Table(ctx, t.Name)
}

func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (a *app) tableListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the deployment's tables",
		Example: "  varve table list\n  varve table list --output jsonl",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				tables, err := s.Tables(cmd.Context())
				if err != nil {
					return err
				}
				out := a.list("table", "table_id", "key", "topic", "format", "rows", "files", "vectors", "bytes", "snapshot_id", "committed")
				for _, t := range tables {
					format, _ := t.Definition.SourceFormat()
					if err := out.row(t.Name, t.ID, keyColumns(t.Definition), t.Definition.SourceTopic, format,
						t.Rows-t.Dead, t.Files, t.Vectors, byteSize(t.Bytes), idOrNull(t.Head.SnapshotID), millisOrNull(t.Head.TimestampMs)); err != nil {
						return err
					}
				}
				return out.close()
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	return cmd
}

func idOrNull(id int64) any {
	if id == 0 {
		return nil
	}
	return id
}

func millisOrNull(ms int64) any {
	if ms == 0 {
		return nil
	}
	return millis(ms)
}

func (a *app) tableShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show TABLE",
		Short:   "Show a table: schema, key, shards, files, vectors, size, freshness",
		Example: "  varve table show shop.orders\n  varve table show shop.orders --output json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				t, err := s.Table(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				lags, err := a.shardRows(cmd.Context(), s, []*statestore.TableInfo{t}, nil)
				if err != nil && lags == nil {
					return err
				}
				if err != nil {
					a.log.Warn("shards are shown without their lag", "error", err)
				}
				return a.show(tableObject(t, lags))
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	return cmd
}

func tableObject(t *statestore.TableInfo, shards *rowset) object {
	d := t.Definition
	format, options := d.SourceFormat()
	formatOptions := &rowset{cols: []string{"option", "value"}}
	for _, p := range options {
		formatOptions.rows = append(formatOptions.rows, []any{p.Key, p.Value})
	}
	specs := &rowset{cols: []string{"field", "transform", "column"}}
	if spec := d.Spec(d.DefaultSpec); spec != nil {
		for i := range spec.Fields {
			f := &spec.Fields[i]
			column := ""
			if j := d.Schema().ByID(f.SourceID); j >= 0 {
				column = d.Schema().Fields[j].Name
			}
			specs.rows = append(specs.rows, []any{f.Name, schemas.TransformName(f.Transform, f.N), column})
		}
	}
	properties := &rowset{cols: []string{"property", "value"}}
	for _, p := range d.Properties {
		properties.rows = append(properties.rows, []any{p.Key, p.Value})
	}
	o := object{
		{"table", t.Name}, {"table_id", t.ID}, {"location", d.Location}, {"format_version", d.FormatVersion}, {"delete_mode", string(d.Mode)},
		{"key", keyColumns(d)}, {"order", textOrNull(orderText(d))}, {"topic", d.SourceTopic}, {"format", format},
		{"commit_interval_ms", d.CommitIntervalMs}, {"tombstone_ttl_ms", d.TombstoneTTLMs}, {"retention_ms", d.RetentionMs}, {"retention_snapshots", d.RetentionCount},
		{"rows", t.Rows - t.Dead}, {"records", t.Rows}, {"deleted", t.Dead}, {"files", t.Files}, {"vectors", t.Vectors}, {"bytes", byteSize(t.Bytes)},
		{"events", t.Counts.Events}, {"late_ignored", t.Counts.LateIgnored}, {"dead_letters", deadLetters(&t.Counts)},
		{"snapshots", int64(len(t.Snapshots))}, {"requests_open", int64(len(t.Requests) + len(t.Finds))},
	}
	o = append(o, headFields(t)...)
	return append(o, field{"columns", columnRows(d.Schema().AppendJSON(nil))}, field{"partition_fields", specs}, field{"shards", shards}, field{"properties", properties}, field{"format_options", formatOptions})
}

// headFields is what of a table is committed and what waits. fresh is how old
// the newest change is that no snapshot shows, 0 when all is shown.
func headFields(t *statestore.TableInfo) object {
	var pending, attempts, cause any
	if t.Pending != nil {
		pending, attempts, cause = t.Pending.Build, t.Pending.Attempts, textOrNull(t.Pending.LastCause)
	}
	return object{
		{"snapshot_id", idOrNull(t.Head.SnapshotID)}, {"sequence", t.Head.Sequence}, {"committed", millisOrNull(t.Head.TimestampMs)},
		{"metadata_location", textOrNull(t.Head.MetadataPath)}, {"through_offset", t.Head.Through}, {"last_change", t.LastChange},
		{"fresh", t.Pending == nil && !t.Changes}, {"pending_cut", pending}, {"pending_attempts", attempts}, {"pending_cause", cause},
	}
}

func (a *app) tableAlterCommand() *cobra.Command {
	var add, widen, set, unset, parts []string
	var commit, age string
	var keep int64
	var unpartitioned bool
	var format formatChange
	cmd := &cobra.Command{
		Use:   "alter TABLE",
		Short: "Add columns, widen types, set properties, source format, partitioning, commit interval and retention",
		Long: "Adds columns (optional ones, with a default if given), gives columns a wider type\n" +
			"(int to long, float to double, a decimal more digits), sets and removes table\n" +
			"properties, changes how often the table is published and how long its snapshots\n" +
			"stay; all in one change, whole or not at all.\n\n" +
			"--format says how the source topic is read from now on, where its producers change. Of\n" +
			"several formats, separated by commas, each record is read by the one that its bytes are\n" +
			"of: name the old and the new one before a connector gets another converter, and no\n" +
			"event is refused whenever it is read. Without --format-option the options stay.\n\n" +
			"How the table is partitioned is a change of its own, after the others: rows that are\n" +
			"written from then on are partitioned so, files that are there stay as they are, and are\n" +
			"compacted within their own partitions.",
		Example: "  varve table alter shop.orders --add \"note string\" --add \"level int default 1\"\n" +
			"  varve table alter shop.orders --widen \"quantity long\" --set write.metadata.previous-versions-max=50\n" +
			"  varve table alter shop.orders --format debezium-avro,debezium-json\n" +
			"  varve table alter shop.orders --commit-interval 10s --retention-age 1h --retention-snapshots 20\n" +
			"  varve table alter shop.orders --partition-by \"bucket(16, order_id), day(placed)\"",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			alter, err := parseAlter(add, widen, set, unset)
			if err == nil {
				alter.Policy, err = parsePolicy(commit, age, keep, a.given("retention-snapshots"))
			}
			if err != nil {
				return asUsage(err)
			}
			parts = splitTerms(parts)
			repartitioned := unpartitioned || a.given("partition-by")
			switch changes := len(alter.Add)+len(alter.Widen)+len(alter.Set)+len(alter.Remove) > 0 || alter.Policy != nil || format.asked(); {
			case a.given("partition-by") && (unpartitioned || len(parts) == 0):
				return usagef("--partition-by names how the table is partitioned; --unpartitioned alone, that it is not")
			case !changes && !repartitioned:
				return usagef("name a change: --add, --widen, --set, --unset, --format, --format-option, --partition-by, --unpartitioned, --commit-interval, --retention-age or --retention-snapshots")
			case !changes:
				alter = nil
			}
			return a.with(cmd.Context(), publishRoles, func(s *session) error {
				t, err := s.Table(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if format.asked() {
					if err := format.into(alter, t.Definition); err != nil {
						return usagef("table %s: %w", t.Name, err)
					}
					if err := a.checkUnread(cmd.Context(), s, t, &format); err != nil {
						return err
					}
				}
				var out record.OutcomeMessage
				changed := false
				request := func(what string, change any) error {
					out, err = s.Request(cmd.Context(), t.Name, t.ID, change)
					if err == nil {
						err = accepted(&out, t.Name, what)
					}
					if err == nil {
						t, err = s.Table(cmd.Context(), t.Name)
					}
					changed = changed || out.Outcome.Changed
					return err
				}
				if alter != nil {
					if err := request("alter", alter); err != nil {
						return err
					}
				}
				if repartitioned {
					spec, err := alterSpec(parts, t.Definition)
					if err == nil {
						err = request("partition", spec)
					}
					if err != nil && alter != nil {
						err = fmt.Errorf("%w; the other changes of table %s are made", err, t.Name)
					}
					if err != nil {
						return err
					}
				}
				if t, err = a.visible(cmd.Context(), s, t); err != nil {
					return err
				}
				return a.show(object{{"table", t.Name}, {"offset", out.Offset}, {"changed", changed}, {"schema_id", t.Definition.CurrentSchema},
					{"spec_id", t.Definition.DefaultSpec}, {"partition_by", partitionTerms(t.Definition)}, {"format", formatText(t.Definition)},
					{"commit_interval_ms", t.Definition.CommitIntervalMs}, {"retention_ms", t.Definition.RetentionMs}, {"retention_snapshots", t.Definition.RetentionCount},
					{"metadata_location", textOrNull(t.Head.MetadataPath)}, {"columns", columnRows(t.Definition.Schema().AppendJSON(nil))}})
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringArrayVar(&add, "add", nil, "a new column as `\"name type [default VALUE]\"`; may be repeated")
	f.StringArrayVar(&widen, "widen", nil, "a column's wider type as `\"name type\"`; may be repeated")
	f.StringArrayVar(&set, "set", nil, "a table property as `name=value`; may be repeated")
	f.StringArrayVar(&unset, "unset", nil, "`name` of a table property to remove; may be repeated")
	f.StringArrayVar(&parts, "partition-by", nil, "partition what is written from now on by these `terms`, such as \"bucket(16, id), day(ts)\"; may be repeated")
	f.BoolVar(&unpartitioned, "unpartitioned", false, "do not partition what is written from now on")
	f.StringVar(&format.format, "format", "", "`format` of the events from now on, or several, separated by commas, that their bytes tell apart")
	f.StringArrayVar(&format.options, "format-option", nil, "option of the format as `name=value`, without a value to take it away; may be repeated")
	f.BoolVar(&format.unread, "unread-too", false, "leave a format though the topic has records that were not read yet")
	f.StringVar(&commit, "commit-interval", "", "a snapshot at most so often, as a `duration`")
	f.StringVar(&age, "retention-age", "", "a snapshot goes when it is older than this `duration` …")
	f.Int64Var(&keep, "retention-snapshots", 0, "… and is not among so `many` newest")
	return cmd
}

// parsePolicy is nil when no flag was given.
func parsePolicy(commit, age string, keep int64, hasKeep bool) (*record.Policy, error) {
	p := &record.Policy{RetentionCount: keep}
	for _, x := range []struct {
		flag, text string
		to         *int64
	}{{"--commit-interval", commit, &p.CommitIntervalMs}, {"--retention-age", age, &p.RetentionMs}} {
		if x.text == "" {
			continue
		}
		d, err := parseDuration(x.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", x.flag, err)
		}
		if *x.to = d.Milliseconds(); *x.to <= 0 {
			return nil, fmt.Errorf("%s %s: name a millisecond or more", x.flag, x.text)
		}
	}
	if hasKeep && keep <= 0 {
		return nil, fmt.Errorf("--retention-snapshots %d: at least one snapshot stays", keep)
	}
	if *p == (record.Policy{}) {
		return nil, nil
	}
	return p, nil
}

// parseColumn reads "name type" with an optional "default VALUE". A name with
// spaces stands in double quotes.
func parseColumn(flag, s string) (name string, t schemas.Type, def string, err error) {
	rest := strings.TrimSpace(s)
	if strings.HasPrefix(rest, `"`) {
		var ok bool
		if name, rest, ok = predicate.CutQuoted(rest); !ok {
			return "", t, "", fmt.Errorf("%s: a quote is not closed", flag)
		}
	} else {
		name, rest, _ = strings.Cut(rest, " ")
	}
	typeText, value, hasDefault := strings.Cut(strings.TrimSpace(rest), " default ")
	if name == "" || typeText == "" {
		return "", t, "", fmt.Errorf("%s %q: write it as \"name type\"", flag, s)
	}
	if t, err = schemas.ParseType(strings.TrimSpace(typeText)); err != nil {
		return "", t, "", fmt.Errorf("%s, column %s: %w", flag, name, err)
	}
	if hasDefault {
		single, err := schemas.ParseText(t, strings.Trim(strings.TrimSpace(value), "'"))
		if err != nil {
			return "", t, "", fmt.Errorf("%s, default of column %s: %w", flag, name, err)
		}
		b, err := schemas.AppendJSONValue(nil, t, single)
		if err != nil {
			return "", t, "", fmt.Errorf("%s, default of column %s: %w", flag, name, err)
		}
		def = string(b)
	}
	return name, t, def, nil
}

func parseAlter(add, widen, set, unset []string) (*record.AlterTable, error) {
	out := &record.AlterTable{}
	for _, s := range add {
		name, t, def, err := parseColumn("--add", s)
		if err != nil {
			return nil, err
		}
		out.Add = append(out.Add, record.AddColumn{Name: name, Type: t, Default: def})
	}
	for _, s := range widen {
		name, t, def, err := parseColumn("--widen", s)
		if err != nil {
			return nil, err
		}
		if def != "" {
			return nil, fmt.Errorf("--widen, column %s: a wider type brings no default", name)
		}
		out.Widen = append(out.Widen, record.WidenColumn{Name: name, Type: t})
	}
	m, err := pairs("--set", set)
	if err != nil {
		return nil, err
	}
	out.Set = sortedProperties(m)
	out.Remove = slices.Sorted(slices.Values(unset))
	return out, nil
}

// accepted is nil for an outcome that decided yes.
func accepted(out *record.OutcomeMessage, table, what string) error {
	switch out.Outcome.Code {
	case record.Accepted, record.Already, record.Partly:
		return nil
	}
	err := fmt.Errorf("%s table %s: %w: %s (log offset %d)", what, table, topology.ErrRejected, out.Outcome.Reason, out.Offset)
	switch out.Outcome.Reason {
	case record.BadAlter:
		if out.Type == record.TypeAlterSpec {
			return usagef("%w; a term takes a column that it can, once, shows no key, and its field's name stands for no other term or column; "+
				"\"varve table show %s\" has them", err, table)
		}
		return usagef("%w; new columns need a new name and a type that can be stored, wider types must hold all that was there, "+
			"a commit interval is 10 ms or more", err)
	case record.NoTable:
		return usagef("%w; \"varve table list\" shows the tables", err)
	case record.NoShard:
		return usagef("%w; \"varve table show %s\" lists its shards", err, table)
	case record.BadReshard:
		return badReshard(out, err)
	case record.NoSnapshot, record.SnapshotHeld:
		return refusedSnapshot(out, table, err)
	case record.ReshardOpen:
		return fmt.Errorf("%w: the topic is being divided anew already; \"varve table show %s\" tells how far", err, table)
	case record.SourceRange:
		return usagef("%w: the shard's end is not --from; \"varve status\" shows it", err)
	}
	return err
}

func (a *app) tableDropCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "drop TABLE",
		Short:   "Take a table out of the deployment; its files stay",
		Long:    "Drops the table: varve no longer writes it, and its name is free. Its files and\nmetadata stay where they are and can still be read.",
		Example: "  varve table drop shop.orders --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return usagef("dropping %s cannot be undone; say so with --yes", args[0])
			}
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				t, err := s.Table(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				out, err := s.Request(cmd.Context(), t.Name, t.ID, &record.DropTable{})
				if err != nil {
					return err
				}
				if err := accepted(&out, t.Name, "drop"); err != nil {
					return err
				}
				return a.show(object{{"table", t.Name}, {"table_id", t.ID}, {"offset", out.Offset}, {"location", t.Definition.Location}})
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// shardOf finds a table's shard of a partition.
func shardOf(t *statestore.TableInfo, partition int32) (*statestore.ShardInfo, error) {
	for i := range t.Shards {
		if s := &t.Shards[i]; s.Partition == partition && !s.Retired {
			return s, nil
		}
	}
	return nil, usagef("table %s has no shard of partition %d; \"varve table show %s\" lists its shards", t.Name, partition, t.Name)
}

func (a *app) tableSkipCommand() *cobra.Command {
	var (
		partition int32
		to        int64
		cause     string
	)
	cmd := &cobra.Command{
		Use:   "skip TABLE",
		Short: "Move a shard past source offsets that are gone or poisoned",
		Long: "Moves the end of a shard forward to a source offset: the events before it are not\n" +
			"read, and what they would have changed is missing from the table. For events that the\n" +
			"topic lost, or that stop the shard and may not become dead letters.",
		Example: "  varve table skip shop.orders --partition 3 --to 81237 --cause \"retention removed them\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !a.given("to") || cause == "" {
				return usagef("name the offset to go on at with --to, and why with --cause")
			}
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				t, err := s.Table(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				sh, err := shardOf(t, partition)
				if err != nil {
					return err
				}
				if to <= sh.SourceEnd {
					return usagef("--to %d: partition %d of %s is read up to %d already", to, partition, sh.Topic, sh.SourceEnd)
				}
				out, err := s.Request(cmd.Context(), t.Name, t.ID, &record.SkipSource{
					Shard: record.ShardKey{TopicID: sh.TopicID, Topic: sh.Topic, Partition: partition}, From: sh.SourceEnd, To: to, Cause: cause,
				})
				if err != nil {
					return err
				}
				if err := accepted(&out, t.Name, "skip in"); err != nil {
					return err
				}
				return a.show(object{{"table", t.Name}, {"topic", sh.Topic}, {"partition", partition}, {"from", sh.SourceEnd}, {"to", to}, {"offset", out.Offset}})
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.Int32Var(&partition, "partition", 0, "`number` of the source partition")
	f.Int64Var(&to, "to", 0, "first source `offset` to read")
	f.StringVar(&cause, "cause", "", "`why`; it stands in the log")
	return cmd
}

func (a *app) tableRetireCommand() *cobra.Command {
	var partition int32
	cmd := &cobra.Command{
		Use:   "retire TABLE",
		Short: "End the part of a table's shards in requests, when their topic is gone",
		Long: "Retires a table's shards (or one, with --partition): nobody reads their source again,\n" +
			"and requests such as deletes wait for them no longer. For a topic that was removed or\n" +
			"made again under its name.",
		Example: "  varve table retire shop.orders\n  varve table retire shop.orders --partition 3",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				t, err := s.Table(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				retired := &rowset{cols: []string{"topic", "partition", "offset"}}
				for i := range t.Shards {
					sh := &t.Shards[i]
					if sh.Retired || a.given("partition") && sh.Partition != partition {
						continue
					}
					out, err := s.Request(cmd.Context(), t.Name, t.ID, &record.RetireShard{Shard: record.ShardKey{TopicID: sh.TopicID, Topic: sh.Topic, Partition: sh.Partition}})
					if err != nil {
						return err
					}
					if err := accepted(&out, t.Name, "retire a shard of"); err != nil {
						return err
					}
					retired.rows = append(retired.rows, []any{sh.Topic, sh.Partition, out.Offset})
				}
				if len(retired.rows) == 0 {
					return usagef("table %s has no such shard that is not retired; \"varve table show %s\" lists them", t.Name, t.Name)
				}
				return a.showRows(object{{"table", t.Name}, {"retired", retired}}, "retired")
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	cmd.Flags().Int32Var(&partition, "partition", 0, "only the shard of this source `partition`")
	return cmd
}
