package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/topology"
)

// tableFlags are the flags by which load and table create describe a table.
type tableFlags struct {
	w       wish
	options []string
	props   []string
	commit  string
}

func (t *tableFlags) add(f *pflag.FlagSet) {
	f.StringVar(&t.w.topic, "topic", "", "source `topic` (default: the table's name)")
	f.StringVar(&t.w.format, "format", "", "`format` of the events: "+strings.Join(source.Formats(), ", "))
	f.StringSliceVar(&t.options, "format-option", nil, "option of the format as `name=value`; may be repeated")
	f.StringVar(&t.w.schemaFile, "schema", "", "`file` with the table's schema as Iceberg schema JSON (default: from the events)")
	f.StringSliceVar(&t.w.key, "key", nil, "key `columns`, separated by commas")
	f.BoolVar(&t.w.appendOnly, "append-only", false, "a table without a key, which only gains rows")
	f.StringVar(&t.w.repartition, "repartition", "", "`always`: events go through an internal topic in which the table's key decides the partition, for sources whose record keys do not; needs a cluster")
	f.StringVar(&t.w.order, "order", "", "ordering `column`, or a path in the event such as source.ts_ms (default: the log's order)")
	f.StringArrayVar(&t.w.partitions, "partition-by", nil, "partition `terms`: "+partitionForms+"; may be repeated")
	f.StringVar(&t.commit, "commit-interval", "", "a snapshot at most so often, as a `duration` (default 1s)")
	f.StringSliceVar(&t.props, "property", nil, "Iceberg table property as `name=value`; may be repeated")
}

// finish reads the flags that are lists of name=value.
func (t *tableFlags) finish() error {
	t.w.partitions = splitTerms(t.w.partitions)
	var err error
	if t.w.options, err = pairs("--format-option", t.options); err != nil {
		return err
	}
	if t.w.properties, err = pairs("--property", t.props); err != nil {
		return err
	}
	if t.commit != "" {
		d, err := parseDuration(t.commit)
		if err != nil {
			return usagef("--commit-interval: %w", err)
		}
		t.w.commitMs = d.Milliseconds()
	}
	return asUsage(t.w.check())
}

func pairs(flag string, list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, usagef("%s %q: write it as name=value", flag, kv)
		}
		out[k] = v
	}
	return out, nil
}

func (a *app) loadCommand() *cobra.Command {
	var (
		t          tableFlags
		records    bool
		partitions int
		onError    string
	)
	cmd := &cobra.Command{
		Use:   "load FILE…",
		Short: "Bring files of change events into a table and stop",
		Long: "Starts a node of its own, creates the table if it is not there, publishes the files'\n" +
			"events into the table's source topic, and waits until every one of them is in a\n" +
			"committed snapshot. - reads stdin. One line is one event; empty lines are passed over.\n\n" +
			"With --records each line is a whole Kafka record as JSON:\n  " + recordForm + ".\n" +
			"A key or value that is a JSON text stands for that text, a null value is a tombstone.\n\n" +
			"The schema comes from --schema, from the events' own schema, or is inferred from the\n" +
			"first 10,000 events and shown. Events that cannot be read go to the topic <topic>.dlq,\n" +
			"or stop the load with --on-error stop.\n\n" +
			"The result counts what came of this load. Nothing is left over: records read = applied +\n" +
			"control + elsewhere (of other tables, by route.by) + dead letters, and the events of those applied = upserts + superseded (by a later\n" +
			"event of the same key and append) + deletes + absent deletes + late ignored.\n" +
			"Loading a file again, also one whose load was interrupted, publishes its events again:\n" +
			"a table with a key ends with the same rows, an append-only table has them twice.",
		Example: "  varve load --data ./varve-data --table shop.orders --format debezium-json --key order_id events.jsonl\n" +
			"  zcat orders.jsonl.gz | varve load --table shop.orders --format rows-json --key order_id --order updated_at -\n" +
			"  varve load --table log.clicks --format rows-json --append-only --partition-by 'day(at)' clicks-*.jsonl",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if t.w.name == "" {
				return usagef("name the table with --table")
			}
			if onError != "dlq" && onError != "stop" {
				return usagef("--on-error %q: use dlq or stop", onError)
			}
			if partitions < 0 || partitions > 10_000 {
				return usagef("--partitions %d: a topic has 1 to 10000", partitions)
			}
			if err := t.finish(); err != nil {
				return err
			}
			src, err := newEventSource(args, a.in, records)
			if err != nil {
				return err
			}
			o, err := a.nodeOptions(allRoles...)
			if err != nil {
				return err
			}
			o.Tables, o.StopOnError = []string{t.w.name}, onError == "stop"
			shared(&o)
			r, err := a.load(cmd.Context(), o, &t.w, src, partitions)
			if err = errors.Join(err, src.close()); err != nil {
				return err
			}
			if dead := deadLetters(&r.counts); dead > 0 {
				a.notef("note: %d event(s) could not be taken and are in topic %s.dlq; \"varve dlq list %s\" says why", dead, r.topic, r.table)
			}
			return a.show(r.object())
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&t.w.name, "table", "", "`name` of the table: namespace.table")
	t.add(f)
	f.BoolVar(&records, "records", false, "each line is a whole Kafka record as JSON")
	f.IntVar(&partitions, "partitions", 0, "`number` of partitions of the source topic, when it is made (default 1)")
	f.StringVar(&onError, "on-error", "dlq", "what happens to an event that cannot be read: dlq or stop")
	return cmd
}

// loadResult is what load tells at its end.
type loadResult struct {
	table    string
	created  bool
	topic    string
	events   int64
	counts   record.Counts // of this load
	tally    ingest.Tally  // of the records read, whose events they are
	told     bool          // the tally is whole
	rows     int64
	files    int64
	vectors  int64
	snapshot int64
	metadata string
}

func deadLetters(c *record.Counts) int64 { return c.DeadUpserts + c.DeadDeletes + c.DeadOther }

func (r *loadResult) object() object {
	var snapshot, metadata any
	if r.snapshot != 0 {
		snapshot = r.snapshot
	}
	if r.metadata != "" {
		metadata = r.metadata
	}
	var records, applied, superseded, elsewhere any
	control := r.counts.Control
	if r.told {
		records, applied, superseded, elsewhere = r.tally.Records, r.tally.Applied, r.tally.Superseded, r.tally.Elsewhere
		control = r.tally.Control
	}
	return object{
		{"table", r.table}, {"created", r.created}, {"topic", r.topic}, {"events", r.events}, {"rows", r.rows},
		{"records_read", records}, {"records_applied", applied},
		{"upserts", r.counts.Upserts}, {"superseded", superseded}, {"deletes", r.counts.Deletes}, {"absent_deletes", r.counts.AbsentDeletes},
		{"late_ignored", r.counts.LateIgnored}, {"control", control}, {"elsewhere", elsewhere},
		{"dead_letters", deadLetters(&r.counts)}, {"files", r.files}, {"vectors", r.vectors},
		{"snapshot_id", snapshot}, {"metadata_location", metadata},
	}
}

// load opens a node, loads src into the table and closes the node.
func (a *app) load(ctx context.Context, o topology.NodeOptions, w *wish, src *eventSource, partitions int) (*loadResult, error) {
	n, err := a.openNode(ctx, o)
	if err != nil {
		return nil, err
	}
	r, err := a.loadInto(ctx, n, w, src, partitions)
	return r, errors.Join(err, closeNode(ctx, n))
}

func (a *app) loadInto(ctx context.Context, n *topology.Node, w *wish, src *eventSource, partitions int) (*loadResult, error) {
	def, err := a.define(ctx, &n.Conn, w, src)
	if err != nil {
		return nil, err
	}
	info, created, err := n.EnsureTable(ctx, *def)
	if err != nil {
		return nil, err
	}
	before := info.Counts
	def = info.Definition
	r := &loadResult{table: w.name, created: created, topic: def.SourceTopic}
	p := a.progress()
	defer p.done()
	// The topic first, so that ingest takes the events while they are published.
	if err := a.makeTopic(ctx, n.Brokers(), def.SourceTopic, partitions); err != nil {
		return nil, err
	}
	if err := n.Ingest(ctx, info); err != nil {
		return nil, err
	}
	if r.events, err = a.publish(ctx, n, def, src, partitions, p); err != nil {
		return nil, err
	}
	err = n.WaitLoaded(ctx, w.name, func(at topology.LoadProgress) {
		if at.Snapshot {
			p.set(1, "committing the snapshot")
			return
		}
		p.set(fraction(at.Read, at.Of), "%d of %d events are in the log", at.Read, at.Of)
	})
	if err != nil {
		return nil, err
	}
	if info, err = n.Table(ctx, w.name); err != nil {
		return nil, err
	}
	r.fill(info, &before)
	r.tally, r.told = n.Tally(ctx, info)
	return r, nil
}

func (r *loadResult) fill(t *statestore.TableInfo, before *record.Counts) {
	c := &t.Counts
	r.counts = record.Counts{
		Events: c.Events - before.Events, Upserts: c.Upserts - before.Upserts, Deletes: c.Deletes - before.Deletes,
		LateIgnored: c.LateIgnored - before.LateIgnored, AbsentDeletes: c.AbsentDeletes - before.AbsentDeletes, Control: c.Control - before.Control,
		DeadUpserts: c.DeadUpserts - before.DeadUpserts, DeadDeletes: c.DeadDeletes - before.DeadDeletes, DeadOther: c.DeadOther - before.DeadOther,
	}
	r.rows, r.files, r.vectors = t.Rows-t.Dead, t.Files, t.Vectors
	r.snapshot, r.metadata = t.Head.SnapshotID, t.Head.MetadataPath
}

func fraction(done, of int64) float64 {
	if of <= 0 {
		return -1
	}
	return float64(done) / float64(of)
}

// publish sends the events into the table's source topic.
func (a *app) publish(ctx context.Context, n *topology.Node, def *schemas.Definition, src *eventSource, partitions int, p *progress) (int64, error) {
	next, err := a.placed(ctx, &n.Conn, def, src, partitions)
	if err != nil {
		return 0, err
	}
	return n.Produce(ctx, def.SourceTopic, partitions, next, func(done int64) {
		p.set(fraction(src.read, src.total), "%d events published", done)
	})
}

// placed gives src's events with the partitions that they must go to.
func (a *app) placed(ctx context.Context, c *topology.Conn, def *schemas.Definition, src *eventSource, partitions int) (func() (*topology.SourceEvent, error), error) {
	have, err := a.topicPartitions(ctx, c.Brokers(), def.SourceTopic)
	if err != nil {
		return nil, err
	}
	if have == 0 {
		have = max(1, partitions)
	}
	var s *spread
	if have > 1 && def.Keyed() {
		if s, err = newSpread(def, have, a.registry); err != nil {
			return nil, err
		}
	}
	return func() (*topology.SourceEvent, error) {
		e, err := src.next()
		if err != nil {
			return nil, err
		}
		if e.Partition >= int32(have) {
			return nil, usagef("%s: the record names partition %d, and topic %s has 0 to %d; the records before it are published", src.whereGiven(), e.Partition, def.SourceTopic, have-1)
		}
		if s == nil {
			return e, nil
		}
		if err := s.place(e); err != nil {
			return nil, usagef("%s: %w", src.whereGiven(), err)
		}
		return e, nil
	}, nil
}

// define makes the table's definition: from the table itself when it is there,
// else over the schema that is given, or that the events show.
func (a *app) define(ctx context.Context, c *topology.Conn, w *wish, src *eventSource) (*schemas.Definition, error) {
	have, err := c.Table(ctx, w.name)
	if err != nil && !errors.Is(err, topology.ErrNoTable) {
		return nil, err
	}
	var schema schemas.Schema
	switch {
	case have != nil:
		if w.schemaFile != "" {
			a.notef("note: table %s is there; --schema is not read", w.name)
		}
		notes, err := w.unread(have.Definition)
		if err != nil {
			return nil, err
		}
		for _, n := range notes {
			a.notef("note: %s", n)
		}
		w.like(have.Definition)
		schema = *have.Definition.Schema()
	case w.schemaFile != "":
		if schema, err = readSchema(w.schemaFile); err != nil {
			return nil, err
		}
	default:
		if schema, err = a.discover(w, src); err != nil {
			return nil, err
		}
	}
	d, notes, err := w.definition(schema)
	if err != nil {
		return nil, err
	}
	if have == nil {
		for _, n := range notes {
			a.notef("note: %s", n)
		}
		a.showDefinition(&d)
	}
	return &d, nil
}

// maxSchemaBytes bounds a --schema file.
const maxSchemaBytes = 16 << 20

func readSchema(path string) (schemas.Schema, error) {
	st, err := os.Stat(path)
	if err != nil {
		return schemas.Schema{}, usagef("--schema: %w", err)
	}
	if st.Size() > maxSchemaBytes {
		return schemas.Schema{}, usagef("--schema: %s has more than %d bytes", path, maxSchemaBytes)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return schemas.Schema{}, usagef("--schema: %w", err)
	}
	s, err := schemas.ParseSchema(b)
	if err != nil {
		return schemas.Schema{}, usagef("--schema: %s: %w", path, err)
	}
	return s, nil
}

// discover proposes a schema from the first events.
func (a *app) discover(w *wish, src *eventSource) (schemas.Schema, error) {
	if w.format == "" {
		return schemas.Schema{}, usagef("table %s: name the format of its events with --format (%s)", w.name, strings.Join(source.Formats(), ", "))
	}
	ahead, err := src.sample(source.DiscoverEvents)
	if err != nil {
		return schemas.Schema{}, err
	}
	sample := make([]source.Record, len(ahead))
	for i, e := range ahead {
		sample[i] = source.Record{Key: e.Key, Value: e.Value}
		sample[i].Headers = headersOf(e)
	}
	return a.discoverFrom(w, sample)
}

func (a *app) discoverFrom(w *wish, sample []source.Record) (schemas.Schema, error) {
	s, notes, err := source.Discover(a.registry, w.format, sortedProperties(w.options), sample, w.key)
	if err != nil {
		return schemas.Schema{}, usagef("table %s: its schema cannot be taken from the events: %w; give it with --schema", w.name, err)
	}
	for _, n := range notes {
		if !w.appendOnly || !strings.Contains(n, "key") {
			a.notef("note: %s", n)
		}
	}
	return *s, nil
}

// showDefinition tells on stderr what table is made.
func (a *app) showDefinition(d *schemas.Definition) {
	if a.quiet {
		return
	}
	s := d.Schema()
	a.notef("table %s, from topic %s (%s):", d.Name, d.SourceTopic, d.Format)
	for i := range s.Fields {
		f := &s.Fields[i]
		mark := ""
		if slices.Contains(d.Key, f.ID) {
			mark = "  key"
		}
		if d.Order.Kind == schemas.OrderByColumn && d.Order.Column == f.ID {
			mark += "  order"
		}
		a.notef("  %-24s %s%s", f.Name, f.Type, mark)
	}
	if d.Order.Kind == schemas.OrderByPath {
		a.notef("  ordered by %s", d.Order.Path)
	}
	if names := readersLost(s); names != "" {
		a.notef("warning: %s", names)
	}
}

// readersLost names what T2 warns of.
func readersLost(s *schemas.Schema) string {
	for i := range s.Fields {
		switch s.Fields[i].Type.Kind {
		case schemas.Time, schemas.TimestampNs:
			return fmt.Sprintf("column %q is a %s: Spark cannot open the table at all", s.Fields[i].Name, s.Fields[i].Type)
		case schemas.TimestampTzNs:
			return fmt.Sprintf("column %q is a %s: neither Spark nor DuckDB can open the table at all", s.Fields[i].Name, s.Fields[i].Type)
		}
	}
	return ""
}
