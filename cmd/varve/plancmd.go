package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
)

func (a *app) planCommand() *cobra.Command {
	var (
		t      tableFlags
		oldest bool
		limit  int
	)
	cmd := &cobra.Command{
		Use:   "plan TABLE",
		Short: "Look at a topic, and say what a table of it would be, or how one would change; write nothing",
		Long: "Reads records of a topic and says what varve would make of them: the format (guessed\n" +
			"where --format does not name it), the framing, the schema and key, how many upserts and\n" +
			"deletes, what would be refused and why, whether equal keys are in one partition, and how\n" +
			"large the rows are. Of a table that the deployment has, it says what the records would\n" +
			"change: its columns, and what of them it would refuse as it is; with --format and\n" +
			"--format-option, what it would after they are altered. A table of the configuration file\n" +
			"is planned as it stands there. It joins no group and writes nothing, to no broker and no\n" +
			"store; without --brokers it asks the node that runs on the data folder.",
		Example: "  varve plan shop.orders --brokers kafka-1:9092 --topic dbserver1.shop.orders\n" +
			"  varve plan shop.orders --brokers kafka-1:9092 --format debezium-json --from-beginning --limit 100000 --output json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.w.name = args[0]
			if limit < 1 || limit > 10_000_000 {
				return usagef("--limit %d: from 1 to 10000000 records", limit)
			}
			if err := t.finishPlan(); err != nil {
				return err
			}
			if err := a.configuredWish(&t.w); err != nil {
				return err
			}
			have, err := a.planned(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if t.w.topic == "" && have != nil {
				t.w.topic = have.SourceTopic
			}
			if t.w.topic == "" {
				t.w.topic = args[0]
			}
			s, err := topology.SampleTopic(cmd.Context(), a.client(a.brokers...), t.w.topic, oldest, limit)
			if err != nil {
				return err
			}
			p, err := a.plan(cmd.Context(), &t.w, s, have)
			if err != nil {
				return err
			}
			return a.show(p)
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	t.add(f)
	f.BoolVar(&oldest, "from-beginning", false, "read the oldest records (default: the newest)")
	f.IntVar(&limit, "limit", 10_000, "at most so many `records`, as many of each partition")
	return cmd
}

// finishPlan reads the flags that are lists; a plan may lack the format.
func (t *tableFlags) finishPlan() (err error) {
	t.w.partitions = splitTerms(t.w.partitions)
	if t.w.options, err = pairs("--format-option", t.options); err != nil {
		return err
	}
	t.w.properties, err = pairs("--property", t.props)
	return err
}

// framingOf names how a value says which schema it is of.
func framingOf(r *source.Record) string {
	for i := range r.Headers {
		if r.Headers[i].Key == "__value_schema_id" {
			return "header"
		}
	}
	switch v := r.Value; {
	case v == nil:
		return ""
	case len(v) >= 5 && v[0] == 0:
		return "schema id"
	case len(v) >= 17 && v[0] == 1:
		return "GUID"
	}
	return "none"
}

// guessFormat says which format a sample's values look like.
func (a *app) guessFormat(sample []source.Record) (string, error) {
	votes := map[string]int{}
	for i := range sample {
		r := &sample[i]
		if r.Value == nil {
			continue
		}
		if f := source.Guess(a.registry, r); f != "" {
			votes[f]++
		}
	}
	best, total := "", 0
	for f, n := range votes {
		if total += n; best == "" || n > votes[best] || n == votes[best] && f < best {
			best = f
		}
	}
	// A topic may have several formats in turn, where their bytes tell them apart.
	for _, f := range source.Formats() {
		if both := best + "," + f; f != best && votes[f]*20 >= total && best != "" && votes[f] > 0 {
			if _, err := source.SplitFormats(both); err == nil {
				best = both
			}
		}
	}
	if best == "" {
		return "", usagef("the format of the events cannot be told; name it with --format (%s), and with --schema-registry the registry that has their schemas", strings.Join(source.Formats(), ", "))
	}
	return best, nil
}

// configuredWish takes what the configuration file says of a table, where flags
// do not say otherwise.
func (a *app) configuredWish(w *wish) error {
	if err := a.cfg.check(); err != nil {
		return err
	}
	for i := range a.cfg.Tables {
		if a.cfg.Tables[i].Name != w.name {
			continue
		}
		c := a.cfg.Tables[i].wish()
		w.topic, w.format, w.schemaFile, w.order, w.repartition = cmp.Or(w.topic, c.topic), cmp.Or(w.format, c.format), cmp.Or(w.schemaFile, c.schemaFile), cmp.Or(w.order, c.order), cmp.Or(w.repartition, c.repartition)
		w.commitMs = cmp.Or(w.commitMs, c.commitMs)
		if len(w.key) == 0 && !w.appendOnly {
			w.key, w.appendOnly = c.key, c.appendOnly
		}
		if len(w.partitions) == 0 {
			w.partitions = c.partitions
		}
		for k, v := range c.options {
			if _, given := w.options[k]; !given {
				w.options[k] = v
			}
		}
	}
	return nil
}

// planned finds the table that is planned, nil: it is not there yet. Where no
// brokers are named, they are those of the node on the data folder.
func (a *app) planned(ctx context.Context, name string) (*schemas.Definition, error) {
	if len(a.brokers) > 0 {
		return topology.DefinitionInLog(ctx, a.client(a.brokers...), a.deployment, name)
	}
	conn, _, err := topology.Dial(ctx, a.data, a.client())
	if errors.Is(err, topology.ErrNotRunning) {
		return nil, usagef("name the brokers of the topic with --brokers, or the folder of a running node with --data")
	}
	if err != nil {
		return nil, err
	}
	a.brokers = conn.Brokers()
	t, err := conn.Table(ctx, name)
	if errors.Is(err, topology.ErrNoTable) {
		return nil, conn.CloseConn()
	}
	if err = errors.Join(err, conn.CloseConn()); err != nil {
		return nil, err
	}
	return t.Definition, nil
}

// planExisting is the definition of a table that is there, with the change of
// format that is asked for, and what of the wishes it would not take.
func planExisting(w *wish, have *schemas.Definition) (def schemas.Definition, notes []string, err error) {
	def = *have
	was, options := have.SourceFormat()
	c := formatChange{format: w.format}
	for _, p := range sortedProperties(w.options) {
		if !slices.Contains(options, p) {
			c.options = append(c.options, p.Key+"="+p.Value)
		}
	}
	if c.format == was {
		c.format = ""
	}
	if c.asked() {
		alter := record.AlterTable{}
		if err := c.into(&alter, have); err != nil {
			return def, nil, usagef("table %s: %w", have.Name, err)
		}
		set := map[string]string{}
		for _, p := range have.Properties {
			if !slices.Contains(alter.Remove, p.Key) {
				set[p.Key] = p.Value
			}
		}
		for _, p := range alter.Set {
			set[p.Key] = p.Value
		}
		def.Properties = sortedProperties(set)
		notes = append(notes, fmt.Sprintf("the table reads %s now: this is what it would do after \"varve table alter %s\" with these --format and --format-option", was, have.Name))
	}
	same := *w
	same.format, same.options = "", nil
	more, err := same.unread(have)
	if err != nil {
		more = append(more, err.Error())
	}
	if key := keyColumns(have); len(w.key) > 0 && !slices.Equal(w.key, key) || w.appendOnly && len(key) > 0 {
		more = append(more, fmt.Sprintf("the table has the key %s, which does not change", strings.Join(key, ", ")))
	}
	if o := orderText(have); w.order != "" && w.order != o {
		more = append(more, fmt.Sprintf("the table's ordering value is %q, which does not change", o))
	}
	if w.topic != have.SourceTopic {
		more = append(more, fmt.Sprintf("the table reads topic %s, which does not change", have.SourceTopic))
	}
	w.format, _ = def.SourceFormat()
	return def, append(notes, more...), nil
}

func (a *app) plan(ctx context.Context, w *wish, s *topology.TopicSample, have *schemas.Definition) (object, error) {
	if len(s.Records) == 0 {
		return nil, usagef("topic %s holds no records", w.topic)
	}
	if have != nil {
		def, notes, err := planExisting(w, have)
		if err != nil {
			return nil, err
		}
		d := a.dryRunOf(def, s)
		d.exists = true
		if err := d.run(ctx, s.Records); err != nil {
			return nil, err
		}
		return d.object(w, s, false, notes)
	}
	guessed := w.format == ""
	if guessed {
		var err error
		if w.format, err = a.guessFormat(s.Records); err != nil {
			return nil, err
		}
	}
	schema, err := a.planSchema(w, s)
	if err != nil {
		return nil, err
	}
	def, notes, err := w.definition(schema)
	if err != nil {
		return nil, err
	}
	d := a.dryRunOf(def, s)
	if err := d.run(ctx, s.Records); err != nil {
		return nil, err
	}
	return d.object(w, s, guessed, notes)
}

func (a *app) dryRunOf(def schemas.Definition, s *topology.TopicSample) *dryRun {
	return &dryRun{def: def, registry: a.registry, partitions: s.Partitions, refused: map[string]*refusal{}, framings: map[string]int64{}, keyFramings: map[uint64]bool{}, keyIn: map[string]int32{}}
}

func (a *app) planSchema(w *wish, s *topology.TopicSample) (schemas.Schema, error) {
	if w.schemaFile != "" {
		return readSchema(w.schemaFile)
	}
	// Events that differ in their types give no schema together: then the first
	// few do, and the others are refused by it.
	schema, err := a.discoverFrom(w, s.Records)
	for n := 1000; err != nil && n > 0; n /= 10 {
		if n >= len(s.Records) {
			continue
		}
		if first, e := a.discoverFrom(w, s.Records[:n]); e == nil {
			a.notef("note: the schema is that of the first %d records: %v", n, err)
			return first, nil
		}
	}
	return schema, err
}

type refusal struct {
	code, reason string
	count        int64
}

// maxPlanKeys bounds the keys whose partitions are compared, maxRefusals the reasons told.
const (
	maxPlanKeys = 1 << 20
	maxRefusals = 100
)

// dryRun decodes a sample as ingest would.
type dryRun struct {
	def        schemas.Definition
	registry   source.SchemaSource
	partitions int
	decoder    source.Decoder
	keys       *rows.KeyEncoder
	batch      *rows.Batch

	exists bool // the table is there

	records, control, letters int64
	elsewhere                 int64 // of control: of other tables of the topic
	upserts, deletes          int64
	carried                   int64
	added                     []string
	refused                   map[string]*refusal
	framings                  map[string]int64
	keyFramings               map[uint64]bool
	keyIn                     map[string]int32 // typed keys' partitions
	apart                     int64            // keys in several partitions
	byHash, hashed            int64            // records that are where Kafka's own partitioner puts their key
	firstMs, lastMs           int64
}

func (d *dryRun) open() (err error) {
	if d.decoder, err = source.Open(&d.def, d.def.Schema(), d.registry); err != nil {
		return asUsage(err)
	}
	if d.def.Keyed() {
		d.keys, err = rows.NewKeyEncoder(d.def.Schema(), d.def.Key)
	}
	d.batch = rows.NewBatch(d.def.Schema())
	return err
}

func (d *dryRun) run(ctx context.Context, sample []source.Record) error {
	if err := d.open(); err != nil {
		return err
	}
	var scratch []byte
	for i := range sample {
		if err := ctx.Err(); err != nil {
			return err
		}
		r := &sample[i]
		d.records++
		if r.TimeMs > 0 {
			if d.firstMs == 0 || r.TimeMs < d.firstMs {
				d.firstMs = r.TimeMs
			}
			d.lastMs = max(d.lastMs, r.TimeMs)
		}
		if f := framingOf(r); f != "" {
			d.framings[f]++
		}
		if r.Key != nil {
			d.hashed++
			if int32(schemas.Murmur2(r.Key)&0x7fffffff)%int32(d.partitions) == r.Partition {
				d.byHash++
			}
		}
		before := d.batch.Len()
		carries := len(d.batch.Carries)
		res, err := d.decoder.Decode(d.batch, r)
		var change *source.SchemaChange
		for n := 0; errors.As(err, &change) && n < schemas.MaxColumns; n++ {
			if err := d.grow(change); err != nil {
				return err
			}
			before, carries = 0, 0
			res, err = d.decoder.Decode(d.batch, r)
		}
		var reject *source.Reject
		switch {
		case errors.As(err, &reject):
			d.refuse(reject)
			continue
		case err != nil:
			return fmt.Errorf("partition %d, offset %d: %w", r.Partition, r.Offset, err)
		case res.Control:
			d.control++
			if res.Elsewhere {
				d.elsewhere++
			}
			continue
		}
		if len(d.batch.Carries) > carries {
			d.carried++
		}
		for j := before; j < d.batch.Len(); j++ {
			if d.batch.Ops[j] == rows.Delete {
				d.deletes++
			} else {
				d.upserts++
			}
			if d.keys == nil || d.partitions < 2 {
				continue
			}
			if scratch, err = d.keys.Append(scratch[:0], d.batch, j); err != nil {
				return err
			}
			if p, seen := d.keyIn[string(scratch)]; seen && p != r.Partition && p >= 0 {
				d.apart++
				d.keyIn[string(scratch)] = -1
			} else if !seen && len(d.keyIn) < maxPlanKeys {
				d.keyIn[string(scratch)] = r.Partition
			}
		}
		if d.keys != nil {
			if f := d.decoder.Framing(r.Key); len(d.keyFramings) < 100 {
				d.keyFramings[f] = true
			}
		}
	}
	return nil
}

func (d *dryRun) refuse(j *source.Reject) {
	d.letters++
	k := j.Code + "\x00" + j.Reason
	x := d.refused[k]
	if x == nil {
		if len(d.refused) >= maxRefusals {
			k, j = "\x00", &source.Reject{Reason: "other reasons"}
			x = d.refused[k]
		}
		if x == nil {
			x = &refusal{code: j.Code, reason: j.Reason}
			d.refused[k] = x
		}
	}
	x.count++
}

// grow takes the columns that an event brings, as the table would. Rows decoded
// before are dropped: they were counted.
func (d *dryRun) grow(c *source.SchemaChange) error {
	next := *d.def.Schema()
	next.Fields = slices.Clone(next.Fields)
	for _, f := range c.Add {
		next.Fields = append(next.Fields, f)
		d.added = append(d.added, f.Name+" "+f.Type.String())
	}
	for _, f := range c.Widen {
		if i := next.ByID(f.ID); i >= 0 {
			next.Fields[i].Type = f.Type
			d.added = append(d.added, next.Fields[i].Name+" becomes "+f.Type.String())
		}
	}
	next.AssignIDs(next.HighestID())
	d.def.Schemas = []schemas.Schema{next}
	d.def.CurrentSchema = next.ID
	return d.open()
}

// rowBytes is what a row takes in a data file, by those decoded last; 0: none was.
func (d *dryRun) rowBytes() (float64, error) {
	var sel []uint32
	for i := range d.batch.Len() {
		if d.batch.Ops[i] == rows.Upsert {
			sel = append(sel, uint32(i))
		}
	}
	if len(sel) == 0 {
		return 0, nil
	}
	info, err := rows.Write(io.Discard, rows.WriteOptions{Schema: d.def.Schema()}, d.batch, sel, rows.Extra{})
	if err != nil {
		return 0, err
	}
	return float64(info.Bytes) / float64(info.Rows), nil
}

func (d *dryRun) object(w *wish, s *topology.TopicSample, guessed bool, notes []string) (object, error) {
	perRow, err := d.rowBytes()
	if err != nil {
		return nil, err
	}
	columns := &rowset{cols: []string{"column", "type", "key"}}
	for _, f := range d.def.Schema().Fields {
		columns.rows = append(columns.rows, []any{f.Name, f.Type.String(), slices.Contains(d.def.Key, f.ID)})
	}
	refused := &rowset{cols: []string{"code", "reason", "records"}}
	var all []*refusal
	for _, x := range d.refused {
		all = append(all, x)
	}
	slices.SortFunc(all, func(x, y *refusal) int {
		if x.count != y.count {
			return int(y.count - x.count)
		}
		return strings.Compare(x.reason, y.reason)
	})
	for _, x := range all {
		refused.rows = append(refused.rows, []any{x.code, x.reason, x.count})
	}
	framings := make([]string, 0, len(d.framings))
	for f := range d.framings {
		framings = append(framings, f)
	}
	slices.Sort(framings)
	var rate, partitioner, perSnapshot any
	commit := max(1, d.def.CommitIntervalMs)
	if span := d.lastMs - d.firstMs; span > 0 {
		each := float64(d.records) * 1000 / float64(span)
		rate = each
		perSnapshot = byteSize(each * float64(commit) / 1000 * perRow * float64(d.upserts) / float64(max(1, d.records)))
	}
	if d.hashed > 0 {
		partitioner = float64(d.byHash) / float64(d.hashed)
	}
	switch {
	case d.apart > 0:
		notes = append(notes, fmt.Sprintf("%d keys are in several partitions: give the table repartition always, or publish them by one partitioner", d.apart))
	case d.keys != nil && d.partitions > 1 && len(d.keyFramings) > 1:
		notes = append(notes, "record keys are framed in several ways: the same key may come to be in two partitions, at which a shard stops; repartition always takes them")
	}
	if d.carried > 0 {
		notes = append(notes, fmt.Sprintf("%d events leave out unchanged values, which older versions of their rows must have: load the topic from a snapshot on", d.carried))
	}
	if d.def.Keyed() && d.def.Order.Kind == schemas.OrderNone {
		notes = append(notes, "the order of the topic decides between two events of a key; --order names a column or path that does")
	}
	estimate := int64(perRow * float64(s.Held) * float64(d.upserts) / float64(max(1, d.records)))
	return object{
		{"table", w.name}, {"exists", d.exists}, {"topic", w.topic}, {"partitions", int64(s.Partitions)}, {"format", w.format}, {"format_guessed", guessed}, {"framing", framings},
		{"records_held", s.Held}, {"records_read", d.records}, {"bytes_read", byteSize(s.Bytes)}, {"upserts", d.upserts}, {"deletes", d.deletes}, {"control", d.control - d.elsewhere}, {"elsewhere", d.elsewhere},
		{"refused", d.letters}, {"unchanged_values", d.carried}, {"schema_changes", d.added}, {"keys_in_several_partitions", d.apart}, {"key_framings", int64(len(d.keyFramings))},
		{"default_partitioner_share", partitioner}, {"records_per_second", rate}, {"bytes_per_row", perRow}, {"bytes_of_all_rows_at_most", byteSize(estimate)},
		{"snapshots_per_hour_at_most", 3_600_000 / commit}, {"flushes_per_hour_at_most", 2 * 3_600_000 / commit * int64(s.Partitions)}, {"bytes_per_snapshot", perSnapshot}, {"notes", notes}, {"columns", columns}, {"refusals", refused},
	}, nil
}
