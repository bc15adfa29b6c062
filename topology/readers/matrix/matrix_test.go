package matrix

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/apache/iceberg-go/io/gocloud/s3" // iceberg-go's own reading of s3://

	"github.com/varve-io/varve/processors/planner"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/source"
	_ "github.com/varve-io/varve/statestore/objstore/s3store" // s3://
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
	"github.com/varve-io/varve/topology/testcluster"
)

const (
	rounds  = 4
	thenAt  = 2  // the round after which time travel looks
	inserts = 60 // of a round
	updates = 25
	deletes = 12
)

// written is a table with its model.
type written struct {
	tableCase
	location string
	rows     map[string]map[string]string // by key, by column
	columns  []column
	snapshot int64    // after the round thenAt
	then     *written // rows and columns of that snapshot
	lineage  []string // the rows of now with their lineage
}

// query is one read of a table and what it must give.
type query struct {
	what string
	o    readers.Options
	want []string
}

// Every engine gives the model's rows of every table, or says what it is known
// to say: of a lake in a local folder, and of one on S3.
func TestMatrix(t *testing.T) {
	engines := wanted()
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Minute)
	t.Cleanup(cancel)
	t.Cleanup(func() {
		for _, e := range engines {
			if slices.Contains(readers.Slow, e) {
				readers.Stop(e)
			}
		}
	})
	m := newMatrix(engines)
	for _, p := range []place{{name: "folder"}, {name: "S3"}, {name: "S3, reference catalog"}} {
		t.Run(p.name, func(t *testing.T) {
			if p.name != "folder" {
				p.s3 = testcluster.StartS3(t)
			}
			if p.name == "S3, reference catalog" {
				p.reference = testcluster.StartCatalog(t, "s3://"+testcluster.S3Bucket+"/matrix", p.s3.CatalogProperties()...)
			}
			n := startNode(t, ctx, &p)
			p.catalog = n.Catalog()
			if p.reference != nil {
				p.catalog = p.reference.URI()
			}
			var tables []*written
			for i, c := range chosen() {
				if c.upgraded && (p.reference == nil || readers.Available(readers.DuckDB) != nil) {
					continue
				}
				tables = append(tables, write(t, ctx, n, &p, c, uint64(i)))
			}
			for _, engine := range engines {
				t.Run(string(engine), func(t *testing.T) {
					if engine == readers.Sail { // it stays with the first endpoint of a bucket
						defer readers.Stop(engine)
					}
					if err := readers.Available(engine); err != nil {
						m.absent(engine, err)
						if slices.Contains(readers.Slow, engine) {
							t.Skip(err)
						}
						readers.Need(t, engine)
					}
					for _, w := range tables {
						t.Run(w.name, func(t *testing.T) { m.put(engine, w.name, p.name, w.read(t, ctx, engine, &p)) })
					}
				})
			}
		})
	}
	text := m.markdown(chosen())
	if path := os.Getenv("VARVE_MATRIX_OUT"); path != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Log("\n" + text)
}

// chosen is the tables whose names begin as VARVE_MATRIX_TABLES says: all of them.
func chosen() []tableCase {
	return slices.DeleteFunc(cases(), func(c tableCase) bool { return !strings.HasPrefix(c.name, os.Getenv("VARVE_MATRIX_TABLES")) })
}

// place is where a lake is, and where its catalog.
type place struct {
	name      string
	s3        *testcluster.S3      // nil: a local folder
	reference *testcluster.Catalog // nil: our catalog
	catalog   string
}

// properties are what an engine must be told to read the files of a place,
// beside what the catalog tells: credentials, and what it does not heed.
func (p *place) properties(engine readers.Engine) map[string]string {
	if p.s3 == nil {
		return nil
	}
	switch engine {
	case readers.DuckDB:
		return map[string]string{
			"s3_endpoint": p.s3.Addr(), "s3_url_style": "path", "s3_use_ssl": "false", "s3_region": "us-east-1",
			"s3_access_key_id": testcluster.S3AccessKey, "s3_secret_access_key": testcluster.S3SecretKey,
		}
	case readers.Spark:
		return p.told(map[string]string{"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "s3.access-key-id": testcluster.S3AccessKey, "s3.secret-access-key": testcluster.S3SecretKey},
			"s3.path-style-access", "true", "client.region", "us-east-1")
	case readers.Trino:
		return map[string]string{
			"fs.native-s3.enabled": "true", "s3.endpoint": p.s3.Endpoint(), "s3.region": "us-east-1", "s3.path-style-access": "true",
			"s3.aws-access-key": testcluster.S3AccessKey, "s3.aws-secret-key": testcluster.S3SecretKey,
		}
	case readers.Sail:
		return map[string]string{"endpoint": p.s3.Endpoint(), "access-key-id": testcluster.S3AccessKey, "secret-access-key": testcluster.S3SecretKey}
	}
	return p.told(map[string]string{"s3.access-key-id": testcluster.S3AccessKey, "s3.secret-access-key": testcluster.S3SecretKey}, "s3.region", "us-east-1")
}

// told adds what our catalog tells its clients of the store, and the reference
// catalog does not.
func (p *place) told(properties map[string]string, more ...string) map[string]string {
	if p.reference != nil {
		properties["s3.endpoint"] = p.s3.Endpoint()
		for i := 0; i < len(more); i += 2 {
			properties[more[i]] = more[i+1]
		}
	}
	return properties
}

// wanted is the engines that VARVE_MATRIX names, or all of them; else the fast.
func wanted() []readers.Engine {
	switch v := os.Getenv("VARVE_MATRIX"); v {
	case "":
		return readers.Fast
	case "all":
		return append(slices.Clone(readers.Fast), readers.Slow...)
	default:
		var out []readers.Engine
		for name := range strings.SplitSeq(v, ",") {
			out = append(out, readers.Engine(name))
		}
		return out
	}
}

func startNode(t *testing.T, ctx context.Context, p *place) *topology.Node {
	t.Helper()
	warehouse := ""
	if p.s3 != nil {
		warehouse = p.s3.URL("matrix")
	}
	var remote *restclient.Options
	if p.reference != nil {
		remote = &restclient.Options{URI: p.reference.URI()}
	}
	n, err := topology.OpenNode(ctx, topology.NodeOptions{
		Warehouse: warehouse, Remote: remote,
		Data: t.TempDir(), Catalog: &topology.CatalogOptions{Address: "127.0.0.1:0"},
		Roles: topology.Roles(), Jobs: topology.JobOptions{PlanEvery: time.Hour},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return n
}

// define is the definition of a case's table: the key first.
func define(c *tableCase) schemas.Definition {
	s := schemas.Schema{Fields: []schemas.Field{{ID: 1, Name: "id", Type: schemas.Of(schemas.Long), Required: !c.appendOnly}}}
	for i, col := range c.columns {
		s.Fields = append(s.Fields, schemas.Field{ID: int32(i + 2), Name: col.name, Type: col.typ})
	}
	last := s.AssignIDs(s.HighestID())
	d := schemas.Definition{
		Name: c.name, FormatVersion: 3, Mode: schemas.ModeDV, LastColumnID: last, Specs: []schemas.Spec{{}}, LastPartitionID: 999,
		SourceTopic: c.name, Format: source.RowsJSON, CommitIntervalMs: 100, TombstoneTTLMs: schemas.DefaultTombstoneTTLMs,
		RetentionMs: schemas.DefaultRetentionMs, RetentionCount: schemas.DefaultRetentionCount,
		Properties: []schemas.Property{{Key: "varve.compaction.paused", Value: "true"}}, // compact does it, when it is time
	}
	if !c.appendOnly {
		s.Identifier, d.Key = []int32{1}, []int32{1}
	}
	d.Schemas = []schemas.Schema{s}
	if c.partition != nil {
		d.Specs[0].Fields = c.partition(&s)
		d.LastPartitionID += int32(len(d.Specs[0].Fields))
	}
	return d
}

// write makes a table of a few rounds of events, each in its own snapshots, so
// that vectors lie on several files.
func write(t *testing.T, ctx context.Context, n *topology.Node, p *place, c tableCase, seed uint64) *written {
	t.Helper()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	info, _, err := n.EnsureTable(ctx, define(&c))
	fail(err)
	w := &written{tableCase: c, location: info.Definition.Location, rows: map[string]map[string]string{}, columns: c.columns}
	r := rand.New(rand.NewPCG(seed, 9))
	next := 0
	var before *readers.Table // the compaction, with lineage
	touched := map[string]bool{}
	for round := 1; round <= rounds; round++ {
		if c.compacted && round == rounds {
			before = w.withLineage(t, ctx, p)
			compact(t, ctx, n, c.name)
			if d := difference(w.withLineage(t, ctx, p).Sorted(), before.Sorted()); d != "" {
				t.Fatalf("%s: rows and lineage before and after the compaction: %s", c.name, d)
			}
			clear(touched)
		}
		if c.upgraded && round == 2 {
			next = w.takeUpgraded(t, ctx, n, p, info, r, next)
		}
		if a := c.alter; a != nil && round == rounds {
			out, err := n.Request(ctx, c.name, info.ID, &a.change)
			fail(err)
			if out.Outcome.Code != record.Accepted {
				t.Fatalf("%s: %+v", c.name, out.Outcome)
			}
			w.columns = a.columns
			for _, row := range w.rows {
				maps.Copy(row, a.old)
				if a.rewrite != nil {
					a.rewrite(row)
				}
			}
		}
		if terms, ok := c.respec[round]; ok {
			out, err := n.Request(ctx, c.name, info.ID, &record.AlterSpec{Terms: terms})
			fail(err)
			if out.Outcome.Code != record.Accepted || !out.Outcome.Changed {
				t.Fatalf("%s: %+v", c.name, out.Outcome)
			}
		}
		var events []*topology.SourceEvent
		upsert := func(id string) {
			row := map[string]string{"id": id}
			for _, col := range w.columns {
				row[col.name] = col.value(r)
			}
			w.rows[id], touched[id] = row, true
			e := &topology.SourceEvent{Value: w.event(t, row), Partition: -1}
			if !c.appendOnly {
				e.Key = []byte(`{"id":` + id + `}`)
			}
			events = append(events, e)
		}
		if !c.appendOnly && next > 0 {
			ids := slices.Sorted(maps.Keys(w.rows))
			r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			for _, id := range ids[:deletes] {
				delete(w.rows, id)
				events = append(events, &topology.SourceEvent{Key: []byte(`{"id":` + id + `}`), Partition: -1})
			}
			for _, id := range ids[deletes : deletes+updates] {
				upsert(id)
			}
		}
		for range inserts {
			upsert(strconv.Itoa(next))
			next++
		}
		_, err := n.Produce(ctx, c.name, 1, func() (*topology.SourceEvent, error) {
			if len(events) == 0 {
				return nil, io.EOF
			}
			e := events[0]
			events = events[1:]
			return e, nil
		}, nil)
		fail(err)
		fail(n.Ingest(ctx, info))
		fail(n.WaitLoaded(ctx, c.name, func(topology.LoadProgress) {}))
		info, err = n.Table(ctx, c.name)
		fail(err)
		if round == thenAt {
			w.snapshot, w.then = info.Head.SnapshotID, &written{rows: map[string]map[string]string{}, columns: w.columns}
			for id, row := range w.rows {
				w.then.rows[id] = maps.Clone(row)
			}
		}
	}
	if dead := info.Counts.DeadUpserts + info.Counts.DeadDeletes + info.Counts.DeadOther; dead != 0 || info.Rows-info.Dead != int64(len(w.rows)) {
		t.Fatalf("%s: %d dead letters, %d rows, the model has %d", c.name, dead, info.Rows-info.Dead, len(w.rows))
	}
	now := w.withLineage(t, ctx, p)
	w.lineage = now.Sorted()
	w.keepsLineage(t, before, now, touched)
	if !c.appendOnly && !c.compacted && info.Vectors < 2 {
		t.Fatalf("%s: %d vectors, too tame", c.name, info.Vectors)
	}
	return w
}

// compact merges all files of a table and waits for the snapshot that has what came out.
func compact(t *testing.T, ctx context.Context, n *topology.Node, table string) {
	t.Helper()
	p, err := n.Compact(ctx, table, []planner.Strategy{planner.Full})
	if err != nil || p.Jobs == 0 {
		t.Fatalf("%s: compaction: %+v, %v", table, p, err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		info, err := n.Table(ctx, table)
		if err != nil {
			t.Fatal(err)
		}
		if info.OpenJobs == 0 && !info.Changes && info.Pending == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %d jobs are open after a minute", table, info.OpenJobs)
		}
	}
}

// withLineage is the table as iceberg-go reads it, with _row_id and
// _last_updated_sequence_number.
func (w *written) withLineage(t *testing.T, ctx context.Context, p *place) *readers.Table {
	t.Helper()
	got, err := readers.Read(ctx, readers.IcebergGo, w.name, readers.Options{
		REST: &readers.REST{URI: p.catalog}, Properties: p.properties(readers.IcebergGo), Lineage: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// keepsLineage: every row has an id of its own; one that was not touched since
// the compaction has the lineage that it had before, one that was has a later
// sequence number (C6).
func (w *written) keepsLineage(t *testing.T, before, now *readers.Table, touched map[string]bool) {
	t.Helper()
	seen := map[string]bool{}
	for _, id := range now.Column("_row_id") {
		if id == null || seen[id] {
			t.Fatalf("%s: the row id %s is there twice, or none", w.name, id)
		}
		seen[id] = true
	}
	if before == nil {
		return
	}
	old := map[string][2]string{}
	ids, sequences := before.Column("_row_id"), before.Column("_last_updated_sequence_number")
	for i, key := range before.Column("id") {
		old[key] = [2]string{ids[i], sequences[i]}
	}
	ids, sequences = now.Column("_row_id"), now.Column("_last_updated_sequence_number")
	for i, key := range now.Column("id") {
		switch was, there := old[key]; {
		case !touched[key] && was != [2]string{ids[i], sequences[i]}:
			t.Fatalf("%s: row %s was not touched: its lineage was %v, it is %s, %s", w.name, key, was, ids[i], sequences[i])
		case touched[key] && there && was[1] == sequences[i]:
			t.Fatalf("%s: row %s was written again: its sequence number is still %s", w.name, key, sequences[i])
		}
	}
}

// event is a row as rows-json has it.
func (w *written) event(t *testing.T, row map[string]string) []byte {
	v := map[string]any{"id": json.Number(row["id"])}
	for _, c := range w.columns {
		text := row[c.name]
		if text == null {
			v[c.name] = nil
			continue
		}
		switch c.typ.Kind {
		case schemas.Boolean:
			v[c.name] = text == "true"
		case schemas.Int, schemas.Long:
			v[c.name] = json.Number(text)
		case schemas.Float, schemas.Double:
			switch text {
			case "+Inf", "-Inf":
				text = strings.Replace(text, "Inf", "Infinity", 1)
				v[c.name] = strings.TrimPrefix(text, "+")
			case "NaN":
				v[c.name] = text
			default:
				v[c.name] = json.Number(text)
			}
		case schemas.Binary, schemas.Fixed:
			b, err := hex.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			v[c.name] = base64.StdEncoding.EncodeToString(b)
		case schemas.Struct, schemas.List, schemas.Map:
			v[c.name] = nestedEvent(c.typ, parsed(text))
		default:
			v[c.name] = text
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (w *written) names() []string {
	out := []string{"id"}
	for _, c := range w.columns {
		out = append(out, c.name)
	}
	return out
}

// lines is the model's rows as readers.Table.Sorted has them of an engine.
func (w *written) lines(engine readers.Engine, keep func(row map[string]string) bool) []string {
	names := w.names()
	sort.Strings(names)
	var out []string
	for _, row := range w.rows {
		if keep != nil && !keep(row) {
			continue
		}
		if engine == readers.PyIceberg {
			row = w.emptied(row)
		}
		parts := make([]string, len(names))
		for i, n := range names {
			parts[i] = n + "=" + row[n]
		}
		out = append(out, strings.Join(parts, " "))
	}
	sort.Strings(out)
	return out
}

func (w *written) queries(engine readers.Engine) []query {
	qs := []query{
		{"now", readers.Options{}, w.lines(engine, nil)},
		{"then", readers.Options{Snapshot: w.snapshot, Columns: w.then.names()}, w.then.lines(engine, nil)},
	}
	switch engine {
	case readers.DuckDB, readers.Spark, readers.Trino:
		qs = append(qs, query{"row lineage", readers.Options{Lineage: true}, w.lineage})
	}
	for _, f := range w.filters {
		o := readers.Options{Filter: f.sql}
		switch {
		case engine == readers.IcebergGo, engine == readers.Polars && !f.sqlForPolars:
			continue
		case engine == readers.PyIceberg:
			o.Filter = f.py
		}
		qs = append(qs, query{f.sql, o, w.lines(engine, func(row map[string]string) bool { return f.holds(row[f.column]) })})
	}
	return qs
}

// read asks an engine for the table in every way. What the engine refuses, and
// is known to, is the text of the answer; nothing else may fail.
func (w *written) read(t *testing.T, ctx context.Context, engine readers.Engine, p *place) string {
	t.Helper()
	known, result := w.refused[engine], "✓"
	if engine == readers.PyIceberg && !slices.Equal(w.lines(engine, nil), w.lines("", nil)) {
		result += emptiedNote
	}
	for _, q := range w.queries(engine) {
		q.o.REST = &readers.REST{URI: p.catalog}
		q.o.Properties = p.properties(engine)
		if engine == readers.Sail { // it is given the folder, and shows a uuid as bytes
			q.o.Properties = map[string]string{"location": w.location, "uuid": "u"}
			maps.Copy(q.o.Properties, p.properties(engine))
		}
		known := known
		if f := w.filterRefused[engine]; known == "" && q.o.Filter != "" {
			known = f
		}
		got, err := readers.Read(ctx, engine, w.name, q.o)
		switch {
		case err != nil && known != "" && errors.Is(err, readers.ErrEngine) && strings.Contains(err.Error(), known):
			result = known
		case err != nil:
			result = "fails"
			t.Errorf("%s: %v", q.what, err)
		case known != "":
			t.Errorf("%s: it is read now; it was refused: %s", q.what, known)
		default:
			if d := difference(got.Sorted(), q.want); d != "" {
				result = "✗"
				t.Errorf("%s: %s", q.what, d)
			}
		}
	}
	return result
}

// difference is the first rows that two sorted lists do not share.
func difference(got, want []string) string {
	if slices.Equal(got, want) {
		return ""
	}
	only := func(a, b []string) []string {
		var out []string
		for _, s := range a {
			if _, ok := slices.BinarySearch(b, s); !ok && len(out) < 4 {
				out = append(out, s)
			}
		}
		return out
	}
	return fmt.Sprintf("%d rows, want %d\n only read: %q\nonly model: %q", len(got), len(want), only(got, want), only(want, got))
}

// matrix is the answers of the engines, by table and place.
type matrix struct {
	engines []readers.Engine
	cells   map[readers.Engine]map[string]map[string]string
	why     map[readers.Engine]error
}

func newMatrix(engines []readers.Engine) *matrix {
	return &matrix{engines: engines, cells: map[readers.Engine]map[string]map[string]string{}, why: map[readers.Engine]error{}}
}

func (m *matrix) absent(e readers.Engine, err error) { m.why[e] = err }

func (m *matrix) put(e readers.Engine, table, where, text string) {
	if m.cells[e] == nil {
		m.cells[e] = map[string]map[string]string{}
	}
	if m.cells[e][table] == nil {
		m.cells[e][table] = map[string]string{}
	}
	m.cells[e][table][where] = text
}

// markdown is the matrix with what engines refuse as footnotes.
func (m *matrix) markdown(tables []tableCase) string {
	var b strings.Builder
	b.WriteString("| table |")
	for _, e := range m.engines {
		fmt.Fprintf(&b, " %s |", e)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(m.engines)) + "\n")
	var notes []string
	for i := range tables {
		fmt.Fprintf(&b, "| %s |", tables[i].what)
		for _, e := range m.engines {
			said := map[string][]string{} // places by what was said there
			for _, where := range slices.Sorted(maps.Keys(m.cells[e][tables[i].name])) {
				text := m.cells[e][tables[i].name][where]
				said[text] = append(said[text], where)
			}
			var cell []string
			for _, text := range slices.Sorted(maps.Keys(said)) {
				short := text
				if text != "✓" && text != "✗" && text != "fails" {
					read, _ := strings.CutPrefix(text, "✓")
					note := fmt.Sprintf("%s: %s", e, strings.TrimSpace(read))
					at := slices.Index(notes, note)
					if at < 0 {
						at = len(notes)
						notes = append(notes, note)
					}
					short = fmt.Sprintf("no (%d)", at+1)
					if read != text {
						short = fmt.Sprintf("✓ (%d)", at+1)
					}
				}
				if len(said) > 1 {
					short = strings.Join(said[text], ", ") + ": " + short
				}
				cell = append(cell, short)
			}
			if cell == nil {
				cell = []string{"—"}
			}
			fmt.Fprintf(&b, " %s |", strings.Join(cell, "; "))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for i, n := range notes {
		fmt.Fprintf(&b, "(%d) %s\n", i+1, n)
	}
	for _, e := range m.engines {
		if err := m.why[e]; err != nil {
			fmt.Fprintf(&b, "%s was not run: %v\n", e, err)
		}
	}
	return b.String()
}
