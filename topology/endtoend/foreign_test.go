package endtoend

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
	"github.com/varve-io/varve/topology/testcluster"
)

// foreignProgram executes Python, one JSON text a line, and answers each with a
// JSON object. What stands in "result" is given back.
const foreignProgram = `
import json, os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
env = {}
for line in sys.stdin:
    try:
        env["result"] = None
        exec(json.loads(line), env)
        answer = {"result": env["result"]}
    except Exception as e:
        answer = {"error": f"{type(e).__name__}: {e}"[:4000]}
    out.write(json.dumps(answer) + "\n")
    out.flush()
`

// foreignWriter is another program that writes to the tables of the catalog.
type foreignWriter struct {
	t    *testing.T
	name readers.Engine
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

func startForeign(t *testing.T, e readers.Engine) *foreignWriter {
	t.Helper()
	w := &foreignWriter{t: t, name: e, cmd: exec.Command(filepath.Join(readers.FolderOf(e), "bin", "python"), "-u", "-c", foreignProgram)}
	w.cmd.Stderr = os.Stderr
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.out = bufio.NewReaderSize(out, 1<<16)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.in.Close()
		_ = w.cmd.Process.Kill() // it may have ended with its input
		_ = w.cmd.Wait()
	})
	return w
}

// do executes Python; refused is what the writer or the catalog said to it.
func (w *foreignWriter) do(program string) (result json.RawMessage, refused string) {
	w.t.Helper()
	line, err := json.Marshal(program)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.in.Write(append(line, '\n')); err != nil {
		w.t.Fatalf("%s: %v", w.name, err)
	}
	type answer struct {
		Result json.RawMessage
		Error  string
	}
	got := make(chan answer, 1)
	go func() {
		var a answer
		b, err := w.out.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(b, &a)
		}
		if err != nil {
			a.Error = err.Error()
		}
		got <- a
	}()
	select {
	case a := <-got:
		return a.Result, a.Error
	case <-time.After(3 * time.Minute):
		w.t.Fatalf("%s does not answer", w.name)
		return nil, ""
	}
}

// clockAhead is how much the clock of a foreign writer is ahead at last (S2).
const clockAhead = 10 * time.Minute

// foreigners change a table of the catalog beside us: properties, tags,
// branches and commits to these. What they did must be there in the end.
type foreigners struct {
	t       *testing.T
	catalog *testcluster.Catalog
	table   string
	py      *foreignWriter
	spark   *foreignWriter // nil: not installed, or the run is short
	step    int
	ahead   int64 // timestamp of the commit by a clock that is ahead; 0: none yet

	properties map[string]string
	tags       map[string]int64
	rows       map[string]bool // ids that are on Spark's branch; false: deleted there
	did        map[string]int
}

func startForeigners(t *testing.T, c *testcluster.Catalog, l *s3Lake, table string, withSpark bool) *foreigners {
	t.Helper()
	readers.Need(t, readers.PyIceberg)
	f := &foreigners{t: t, catalog: c, table: table, properties: map[string]string{}, tags: map[string]int64{}, rows: map[string]bool{}, did: map[string]int{}}
	f.py = startForeign(t, readers.PyIceberg)
	ctx := longContext(t)
	waitUntil(t, "the table has a snapshot", func() bool {
		m, _, err := f.load(ctx)
		if err != nil && !errors.Is(err, restclient.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil && m.Current() != nil
	})
	f.must(f.py, fmt.Sprintf(`
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table.snapshots import Snapshot, Summary, Operation
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, AssertTableUUID
import time
catalog = RestCatalog("c", uri=%q, **{"s3.endpoint": %q, "s3.region": "us-east-1", "s3.access-key-id": %q, "s3.secret-access-key": %q})
def load():
    return catalog.load_table(%q)
def branch(name, ahead=0):
    table = load()
    m, cur = table.metadata, table.current_snapshot()
    now = max(int(time.time() * 1000) + ahead, m.last_updated_ms + 1)
    s = Snapshot(**{"snapshot-id": 10**15 + m.last_sequence_number, "parent-snapshot-id": cur.snapshot_id, "sequence-number": m.last_sequence_number + 1,
        "timestamp-ms": now, "manifest-list": cur.manifest_list, "summary": Summary(Operation.APPEND), "schema-id": m.current_schema_id,
        "first-row-id": m.next_row_id, "added-rows": 7})
    catalog.commit_table(table, (AssertTableUUID(uuid=m.table_uuid),), (AddSnapshotUpdate(snapshot=s),
        SetSnapshotRefUpdate(ref_name=name, type="branch", snapshot_id=s.snapshot_id)))
    return now
`, c.URI(), l.gateway.Endpoint(), testcluster.S3AccessKey, testcluster.S3SecretKey, table))
	if !withSpark || readers.Available(readers.Spark) != nil {
		return f
	}
	f.spark = startForeign(t, readers.Spark)
	f.must(f.spark, fmt.Sprintf(`
import glob, os, sys
from pyspark.sql import SparkSession
b = SparkSession.builder.master("local[1]").config("spark.ui.showConsoleProgress", "false").config("spark.jars", ",".join(glob.glob(os.path.join(sys.prefix, "jars", "*.jar"))))
for k, v in {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions", "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1",
    "spark.sql.catalog.o": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.o.type": "rest", "spark.sql.catalog.o.uri": %q,
    "spark.sql.catalog.o.cache-enabled": "false", "spark.sql.catalog.o.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "spark.sql.catalog.o.s3.endpoint": %q, "spark.sql.catalog.o.s3.path-style-access": "true", "spark.sql.catalog.o.client.region": "us-east-1",
    "spark.sql.catalog.o.s3.access-key-id": %q, "spark.sql.catalog.o.s3.secret-access-key": %q,
}.items():
    b = b.config(k, v)
spark = b.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
`, c.URI(), l.gateway.Endpoint(), testcluster.S3AccessKey, testcluster.S3SecretKey))
	return f
}

func (f *foreigners) must(w *foreignWriter, program string) {
	f.t.Helper()
	if _, refused := w.do(program); refused != "" {
		f.t.Fatalf("%s: %s", w.name, refused)
	}
}

// try does it again while other commits get in between. Once a clock was ahead
// the reference catalog itself refuses what its own clock dates before main's
// last snapshot: that is counted, no failure of ours.
func (f *foreigners) try(w *foreignWriter, what, program string) (json.RawMessage, bool) {
	f.t.Helper()
	for end := time.Now().Add(longTime); time.Now().Before(end); {
		result, refused := w.do(program)
		if refused == "" {
			f.did[string(w.name)+": "+what]++
			return result, true
		}
		switch {
		case f.ahead > 0 && strings.Contains(refused, "timestamp"):
			f.did[string(w.name)+": refused, since a clock was ahead"]++
			return nil, false
		case strings.Contains(refused, "CommitStateUnknown"): // the catalog answered 5xx: nobody knows
			f.did[string(w.name)+": not known whether it was taken"]++
			return nil, false
		case strings.Contains(refused, "CommitFailed"), strings.Contains(refused, "Requirement failed"), strings.Contains(refused, "Cannot commit"), strings.Contains(refused, "Cannot add snapshot"),
			strings.Contains(refused, "INCOMPATIBLE_DATA_FOR_TABLE"): // the columns changed meanwhile
		default:
			f.t.Fatalf("%s, %s: %s", w.name, what, refused)
		}
	}
	f.t.Fatalf("%s: %s never came through", w.name, what)
	return nil, false
}

// act is one thing that another program does. last: by a clock that is ahead.
func (f *foreigners) act(last bool) {
	f.t.Helper()
	f.step++
	if last && f.ahead == 0 {
		if b, ok := f.try(f.py, "a commit to a branch, ten minutes ahead", fmt.Sprintf("result = branch('ahead', %d)", clockAhead.Milliseconds())); ok {
			if err := json.Unmarshal(b, &f.ahead); err != nil {
				f.t.Fatal(err)
			}
		}
		return
	}
	kinds := 3
	if f.spark != nil {
		kinds = 7
	}
	n := f.step
	value := fmt.Sprint("v", n)
	setProperty := func(w *foreignWriter, name, program string) {
		if _, ok := f.try(w, "a property", program); ok {
			f.properties[name] = value
		} else {
			delete(f.properties, name)
		}
	}
	tagged := func(w *foreignWriter, name, program string) {
		if b, ok := f.try(w, "a tag", program); ok {
			var id int64
			if err := json.Unmarshal(b, &id); err != nil {
				f.t.Fatal(err)
			}
			f.tags[name] = id
		}
	}
	sql := func(statements ...string) string {
		var b strings.Builder
		for _, s := range statements {
			fmt.Fprintf(&b, "spark.sql(%q)\n", s)
		}
		return b.String()
	}
	o := "o." + f.table
	switch (n - 1) % kinds {
	case 0:
		tag := fmt.Sprint("py-", n)
		tagged(f.py, tag, fmt.Sprintf("t = load()\nresult = t.current_snapshot().snapshot_id\nt.manage_snapshots().create_tag(result, %q).commit()", tag))
	case 1:
		f.try(f.py, "a commit to a branch", "result = branch('py')")
	case 2:
		setProperty(f.py, "theirs.py", fmt.Sprintf("load().transaction().set_properties({'theirs.py': %q}).commit_transaction()", value))
	case 3, 6:
		var ids []string
		for i := range 5 {
			ids = append(ids, fmt.Sprint(-n*10-i))
		}
		insert := fmt.Sprintf(`
columns = spark.table(%q).columns
rows = ", ".join("(" + ", ".join({"id": i, "region": "'theirs'", "qty": "%d"}.get(c, "NULL") for c in columns) + ")" for i in %q.split())
spark.sql("INSERT INTO %s.branch_sp VALUES " + rows)
`, o, n, strings.Join(ids, " "), o)
		branch := fmt.Sprintf("ALTER TABLE %s CREATE BRANCH IF NOT EXISTS sp", o)
		if _, ok := f.try(f.spark, "rows on a branch", sql(branch)+insert); ok {
			for _, id := range ids {
				f.rows[id] = true
			}
		}
	case 4:
		set := fmt.Sprintf("ALTER TABLE %s SET TBLPROPERTIES ('theirs.spark' = '%s', 'write.delete.mode' = 'merge-on-read')", o, value)
		setProperty(f.spark, "theirs.spark", sql(set))
	case 5:
		tag := fmt.Sprint("sp-", n)
		tagged(f.spark, tag, sql(fmt.Sprintf("ALTER TABLE %s CREATE TAG `%s`", o, tag))+
			fmt.Sprintf("result = spark.sql(\"SELECT snapshot_id FROM %s.refs WHERE name = '%s'\").collect()[0][0]", o, tag))
		for id, there := range f.rows { // and a vector of theirs
			if there {
				if _, ok := f.try(f.spark, "a delete on a branch", sql(fmt.Sprintf("DELETE FROM %s.branch_sp WHERE id = %s", o, id))); ok {
					f.rows[id] = false
				} else {
					delete(f.rows, id)
				}
				break
			}
		}
	}
}

// load is what the catalog has now.
func (f *foreigners) load(ctx context.Context) (*iceberg.Metadata, string, error) {
	c, err := restclient.Open(ctx, restclient.Options{URI: f.catalog.URI()})
	if err != nil {
		return nil, "", err
	}
	x, err := c.Load(ctx, restcat.IdentifierOf(f.table))
	if err != nil {
		return nil, "", err
	}
	m, err := iceberg.ParseMetadata(x.Metadata)
	return m, x.MetadataLocation, err
}

// check: all that others did is still there; times never fell; each build has
// one snapshot.
func (f *foreigners) check(ctx context.Context) {
	t := f.t
	t.Helper()
	m, location, err := f.load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range f.properties {
		if got := m.Property(k); got != v {
			t.Errorf("property %s is %q, another writer set %q (S11)", k, got, v)
		}
	}
	for name, id := range f.tags {
		if r := m.Ref(name); r == nil || r.Type != "tag" || r.SnapshotID != id {
			t.Errorf("the tag %s is %+v, want snapshot %d", name, r, id)
		}
	}
	consistent(t, m)
	if f.ahead > 0 && (m.LastUpdatedMs <= f.ahead || m.Current().TimestampMs <= f.ahead) {
		t.Errorf("last update %d, current snapshot of %d, the other writer's commit of %d (S2)", m.LastUpdatedMs, m.Current().TimestampMs, f.ahead)
	}
	if len(f.rows) == 0 {
		return
	}
	r := m.Ref("sp")
	if r == nil {
		t.Fatal("Spark's branch is gone")
	}
	got, err := readLake(ctx, readers.IcebergGo, location, readers.Options{Snapshot: r.SnapshotID})
	if err != nil {
		t.Fatal("Spark's branch: ", err)
	}
	ids := got.Column("id")
	for id, there := range f.rows {
		if slices.Contains(ids, id) != there {
			t.Errorf("row %s on Spark's branch: there %t, want %t", id, !there, there)
		}
	}
}

// TestOutsideWriters: PyIceberg, and Spark where it is installed, set properties
// and tags and commit to branches while we publish and compact, at last by a
// clock that is ahead. Nobody's work is lost, and columns change even then.
func TestOutsideWriters(t *testing.T) {
	l := startLake(t)
	c := testcluster.StartCatalog(t, l.location, l.gateway.CatalogProperties()...)
	ctx := longContext(t)
	n := start(t, topology.NodeOptions{
		Data: dataDir(t), Warehouse: l.url, Deployment: "writers", Partitions: 1, Roles: topology.Roles(), Jobs: quickJobs, Remote: &restclient.Options{URI: c.URI()},
	})
	f := newFeed(orders("shop.orders", 40, 200), seed(t))
	if err := prepare(ctx, n, f.workload); err != nil {
		t.Fatal(err)
	}
	load := func() {
		t.Helper()
		if _, err := n.Produce(ctx, f.def.SourceTopic, f.partitions, f.take(40), nil); err != nil {
			t.Fatal(err)
		}
		if err := n.WaitLoaded(ctx, f.def.Name, nil); err != nil {
			t.Fatal(err)
		}
	}
	load()
	others := startForeigners(t, c, l, f.def.Name, true)
	for range 12 {
		others.act(false)
		load()
	}
	others.act(true)
	load()
	info, err := n.Table(ctx, f.def.Name)
	if err != nil {
		t.Fatal(err)
	}
	out, err := n.Request(ctx, f.def.Name, info.ID, &record.AlterTable{Add: []record.AddColumn{{Name: "late", Type: schemas.Of(schemas.String)}}})
	if err != nil || out.Outcome.Code != record.Accepted {
		t.Fatalf("%+v, %v", out, err)
	}
	load()
	jobsOver(ctx, t, n, f.def.Name)
	settle(ctx, t, n, f, f.model())
	others.check(ctx)
	t.Log(others.did)
	stop(t, n)
}
