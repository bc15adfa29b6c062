package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/topology/readers"
	"github.com/varve-io/varve/topology/testcluster"
)

// theirTable is a table that PyIceberg and DuckDB keep in a catalog of their own,
// whose warehouse lies in that of a deployment.
type theirTable struct {
	t       *testing.T
	cat     *testcluster.Catalog
	Version int
	At      string // metadata file
	Files   []string
	Deletes int // delete files
	Rows    []string
	First   string // the oldest snapshot
}

const theirColumns = `Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()), NestedField(5, "n", IntegerType()))`

// python runs a program on the table t of the catalog c, if there is one yet, and
// reads again what is there.
func (x *theirTable) python(program string) {
	x.t.Helper()
	begin := fmt.Sprintf(`
import json, os, importlib, pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.partitioning import PartitionSpec, PartitionField
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import *
uri = %q
c = RestCatalog('c', uri=uri)
t = c.load_table('shop.people') if c.namespace_exists('shop') and c.table_exists('shop.people') else None
def rows(*ids, name='n'):
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"{name}{i}" for i in ids], "n": pa.array([i * 10 for i in ids], pa.int32())},
        schema=pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), pa.field("n", pa.int32())]))
def duckdb(sql):
    import duckdb
    con = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "1"})
    for name in ("parquet", "avro", "httpfs", "iceberg"):
        base = os.path.dirname(importlib.import_module("duckdb_extension_" + name).__file__)
        con.execute(f"LOAD '{os.path.join(base, 'extensions', 'v' + duckdb.__version__, name + '.duckdb_extension')}'")
    con.execute(f"ATTACH '' AS rest (TYPE iceberg, ENDPOINT '{uri}', AUTHORIZATION_TYPE 'none')")
    con.execute(sql)
    con.close()
`, x.cat.URI())
	end := `
t = c.load_table('shop.people')
plan = list(t.scan().plan_files())
print(json.dumps({'Version': t.format_version, 'At': t.metadata_location, 'Files': [x.file.file_path for x in plan],
    'Deletes': len({d.file_path for x in plan for d in x.delete_files}),
    'First': str(t.snapshots()[0].snapshot_id), 'Rows': [f"{r['id']},{r['name']},{r['n']}" for r in t.scan().to_arrow().to_pylist()]}))
`
	out, err := exec.Command(filepath.Join(readers.Folder(), "bin", "python"), "-W", "ignore", "-c", begin+program+end).Output()
	if err != nil {
		x.t.Fatalf("PyIceberg: %v: %s", err, err.(*exec.ExitError).Stderr)
	}
	if err := json.Unmarshal(out, x); err != nil {
		x.t.Fatalf("%v: %s", err, out)
	}
	slices.Sort(x.Rows)
}

// upgrade raises the table's format version to 3.
func (x *theirTable) upgrade() {
	x.t.Helper()
	client, err := restclient.Open(x.t.Context(), restclient.Options{URI: x.cat.URI()})
	if err == nil {
		_, err = client.Commit(x.t.Context(), &restcat.CommitTable{Identifier: restcat.IdentifierOf("shop.people"), Requirements: []restcat.Requirement{}, Updates: []restcat.Update{restcat.UpgradeFormat(3)}})
	}
	if err != nil {
		x.t.Fatal(err)
	}
	x.python("")
}

// readAlike compares what engines read of our table with the model.
func readAlike(t *testing.T, data, table string, want map[int]string) {
	t.Helper()
	at := shownField(t, run(t, "table", "show", table, "--data", data, "--output", "json"), "metadata_location")
	var lines []string
	for _, line := range want {
		id, rest, _ := strings.Cut(line, ",")
		name, n, _ := strings.Cut(rest, ",")
		if n == "" {
			n = "∅"
		}
		lines = append(lines, "id="+id+" n="+n+" name="+name)
	}
	slices.Sort(lines)
	for _, engine := range readers.All {
		o := readers.Options{}
		if engine == readers.IcebergGo { // by itself it unescapes the paths of a local folder
			o.Locate = func(location string) string { return strings.TrimPrefix(location, "file://") }
		}
		got, err := readers.Read(t.Context(), engine, at, o)
		if err != nil {
			t.Errorf("%s: %v", engine, err)
			continue
		}
		if s := got.Sorted(); !slices.Equal(s, lines) {
			t.Errorf("%s reads\n  %s\nwant\n  %s", engine, strings.Join(s, "\n  "), strings.Join(lines, "\n  "))
		}
	}
}

// shownField is a field of a JSON object.
func shownField(t *testing.T, text, name string) string {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	s, _ := o[name].(string)
	return s
}

// TestImportIceberg (H14, H1): a table of format version 2 with position deletes, and
// its upgrade to version 3, come in without a byte copied; keys that our table has are
// replaced, later upserts and deletes find the rows that came, three engines read the
// model's rows, and the log gives the same again.
func TestImportIceberg(t *testing.T) {
	readers.Need(t, readers.PyIceberg)
	for _, upgraded := range []bool{false, true} {
		t.Run(map[bool]string{false: "version 2", true: "upgraded"}[upgraded], func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "d")
			x := &theirTable{t: t, cat: testcluster.StartCatalog(t, "file://"+filepath.Join(data, "lake", "theirs"))}
			x.python(`
c.create_namespace("shop")
t = c.create_table("shop.people", ` + theirColumns + `, properties={"format-version": "2"})
t.append(rows(1, 2, 3, 4, 5))
t.append(rows(6, 7, 8))
duckdb("DELETE FROM rest.shop.people WHERE id IN (2, 4, 7)")
c.load_table('shop.people').append(rows(4, name='again'))
`)
			if x.Version != 2 || len(x.Files) != 3 || x.Deletes == 0 || len(x.Rows) != 6 {
				t.Fatalf("they made %+v", x)
			}
			if upgraded {
				x.upgrade()
				if x.Version != 3 {
					t.Fatalf("they made %+v", x)
				}
			}
			table := []string{"shop.ours", "--data", data}
			if code, _, errs := varve(t, "table", "import", "shop.ours", "--iceberg", x.At, "--data", data); code != exitUsage {
				t.Errorf("exit code %d: %s", code, errs)
			}
			run(t, append([]string{"table", "create", "--iceberg", x.At, "--key", "id", "--format", "rows-json"}, table...)...)
			code, _, errs := varve(t, append([]string{"table", "import", "--iceberg", x.At}, table...)...)
			if code != exitUsage || !strings.Contains(errs, "no source topic") {
				t.Errorf("exit code %d: %s", code, errs)
			}
			model := map[int]string{}
			load := func(ids ...int) {
				t.Helper()
				var lines []string
				for _, id := range ids {
					name := "ours" + strconv.Itoa(len(model)) + "-" + strconv.Itoa(id)
					lines = append(lines, fmt.Sprintf(`{"id":%d,"name":%q,"n":%d}`, id, name, id))
					model[id] = fmt.Sprintf("%d,%s,%d", id, name, id)
				}
				run(t, "load", "--data", data, "--table", "shop.ours", "--format", "rows-json", "--key", "id", writeFile(t, "events.jsonl", strings.Join(lines, "\n")+"\n"))
			}
			check := func() {
				t.Helper()
				var want []string
				for _, line := range model {
					want = append(want, line)
				}
				slices.Sort(want)
				wantRows(t, scanned(t, data, "shop.ours"), want...)
			}
			// Of key 2 the other table has a dead row alone: that is nothing to us.
			load(2, 6, 50)
			imports := append([]string{"table", "import", "--iceberg", strings.TrimPrefix(x.At, "file://")}, table...)
			wantLines(t, run(t, append(imports, "--dry-run")...), "files", "3", "rows", "6", "deleted", "3", "imported", "false")
			check()
			wantLines(t, run(t, imports...), "files_taken", "3", "files_there", "0", "visible", "true")
			for _, line := range x.Rows {
				id, err := strconv.Atoi(line[:strings.IndexByte(line, ',')])
				if err != nil {
					t.Fatal(err)
				}
				model[id] = line
			}
			check()
			// No byte was copied.
			files := run(t, "files", "shop.ours", "--data", data, "--output", "csv")
			for _, f := range x.Files {
				if !strings.Contains(files, strings.TrimPrefix(strings.TrimPrefix(f, "file:"), "//")) {
					t.Errorf("%s is none of the files\n%s", f, files)
				}
			}
			wantLines(t, run(t, imports...), "files_taken", "0", "files_there", "3", "visible", "false")
			check()
			load(1, 4, 60)
			run(t, "delete", "shop.ours", "--key", "id=3", "--data", data)
			run(t, "delete", "shop.ours", "--key", "id=50", "--data", data)
			delete(model, 3)
			delete(model, 50)
			check()
			readAlike(t, data, "shop.ours", model)
			run(t, "compact", "shop.ours", "--data", data, "--strategy", "full", "--wait")
			run(t, "delete", "shop.ours", "--where", "n >= 80", "--data", data)
			for id, line := range model {
				if n, err := strconv.Atoi(line[strings.LastIndexByte(line, ',')+1:]); err != nil || n >= 80 {
					delete(model, id)
				}
			}
			load(8, 3)
			check()
			readAlike(t, data, "shop.ours", model)
			wantLines(t, run(t, "explain", "shop.ours", "1", "--data", data, "--output", "csv"), "added by a file", "a version died")
			run(t, "verify", "shop.ours", "--data", data, "--full", "--deep", "--source")
			run(t, "replay", "--data", data, "--into", filepath.Join(t.TempDir(), "again"), "--compare")
			x.python("") // their table is as it was
			if len(x.Rows) != 6 {
				t.Errorf("their table has %q", x.Rows)
			}
		})
	}
}

// TestImportFirstVersion (H14): a partitioned table of format version 1 whose key is
// optional; tables with and without a key take it, by the snapshot that is named.
func TestImportFirstVersion(t *testing.T) {
	readers.Need(t, readers.PyIceberg)
	data := filepath.Join(t.TempDir(), "d")
	x := &theirTable{t: t, cat: testcluster.StartCatalog(t, "file://"+filepath.Join(data, "lake", "theirs"))}
	x.python(`
c.create_namespace("shop")
t = c.create_table("shop.people", Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()), NestedField(3, "n", IntegerType())),
    partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")), properties={"format-version": "1"})
t.append(rows(1, 2, 3, 4, 5))
t.append(rows(6, 7))
t.append(rows(8, name='São Tomé/% '))
`)
	if x.Version != 1 || len(x.Files) != 8 {
		t.Fatalf("they made %+v", x)
	}
	model := map[int]string{}
	for id := 1; id <= 7; id++ {
		model[id] = fmt.Sprintf("%d,n%d,%d", id, id, id*10)
	}
	model[8] = "8,São Tomé/% 8,80" // in the path, too
	folder := filepath.Dir(filepath.Dir(strings.TrimPrefix(x.At, "file://")))
	// Without a key: as they lie, at once.
	run(t, "table", "create", "shop.loose", "--data", data, "--iceberg", folder, "--append-only", "--format", "rows-json")
	// An import goes on where one ended too early: by what it has taken, not by order.
	wantLines(t, run(t, "table", "import", "shop.loose", "--data", data, "--iceberg", folder, "--snapshot", x.First), "from_snapshot_id", x.First, "files_taken", "5", "visible", "true")
	wantLines(t, run(t, "table", "import", "shop.loose", "--data", data, "--iceberg", folder), "format_version", "1", "files_taken", "3", "files_there", "5", "visible", "true")
	readAlike(t, data, "shop.loose", model)
	// With one, which is required there.
	run(t, "table", "create", "shop.ours", "--data", data, "--iceberg", x.At, "--key", "id", "--format", "rows-json")
	run(t, "load", "--data", data, "--table", "shop.ours", "--format", "rows-json", "--key", "id", writeFile(t, "first.jsonl", `{"id":2,"name":"old","n":1}`+"\n"+`{"id":9,"name":"nine","n":9}`+"\n"))
	model[9] = "9,nine,9"
	wantLines(t, run(t, "table", "import", "shop.ours", "--data", data, "--iceberg", folder), "files_taken", "8", "visible", "true")
	readAlike(t, data, "shop.ours", model)
	run(t, "load", "--data", data, "--table", "shop.ours", "--format", "rows-json", "--key", "id", writeFile(t, "more.jsonl", `{"id":2,"name":"new","n":2}`+"\n"+`{"id":7,"name":"new","n":7}`+"\n"))
	run(t, "delete", "shop.ours", "--data", data, "--key", "id=1")
	model[2], model[7] = "2,new,2", "7,new,7"
	delete(model, 1)
	readAlike(t, data, "shop.ours", model)
	if got := scanned(t, data, "shop.ours"); !slices.Contains(got, model[8]) {
		t.Errorf("a scan gives %q", got)
	}
	run(t, "verify", "--data", data, "--full", "--deep", "--source")
	run(t, "replay", "--data", data, "--into", filepath.Join(t.TempDir(), "again"), "--compare")

	// What cannot be taken is said.
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--iceberg", shownField(t, run(t, "table", "show", "shop.ours", "--data", data, "--output", "json"), "metadata_location")}, exitFailed, "is of a table of this deployment, shop.ours"},
		{[]string{"--iceberg", t.TempDir()}, exitFailed, "does not lie in the warehouse"},
		{[]string{"--iceberg", filepath.Join(data, "lake", "nothing")}, exitFailed, "there is no metadata file"},
		{[]string{"--iceberg", folder, "--snapshot", "5"}, exitUsage, "it has no snapshot 5"},
		{[]string{"--iceberg", folder, "--ref", "gone"}, exitUsage, `no branch or tag "gone"`},
		{[]string{"--iceberg", folder, "--ref", "main", "--snapshot", "5"}, exitUsage, "give one of"},
		{[]string{"--iceberg", folder, "a.parquet"}, exitUsage, "name either"},
		{[]string{"--snapshot", "5", "a.parquet"}, exitUsage, "the table that --iceberg names"},
		{nil, exitUsage, "name Parquet files"},
	} {
		code, _, errs := varve(t, append([]string{"table", "import", "shop.loose", "--data", data}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit code %d: %s", c.args, code, errs)
		}
	}
}

// TestImportOfSpark (H14): what Spark writes merge-on-read, partitioned, under version
// 2, and after the upgrade with deletion vectors beside its older position deletes, and an equality
// delete that Iceberg's own writer made.
func TestImportOfSpark(t *testing.T) {
	if os.Getenv("VARVE_SPARK") != "1" {
		t.Skip("set VARVE_SPARK=1: Spark takes minutes")
	}
	readers.Need(t, readers.Spark)
	readers.Need(t, readers.PyIceberg)
	data := filepath.Join(t.TempDir(), "d")
	x := &theirTable{t: t, cat: testcluster.StartCatalog(t, "file://"+filepath.Join(data, "lake", "theirs"))}
	spark := func(equality bool, statements ...string) []string {
		t.Helper()
		list, err := json.Marshal(statements)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(filepath.Join(readers.FolderOf(readers.Spark), "bin", "python"), "-c", fmt.Sprintf(`
import glob, json, os, sys
from pyspark.sql import SparkSession
b = SparkSession.builder.master("local[1]").config("spark.ui.showConsoleProgress", "false").config("spark.jars", ",".join(glob.glob(os.path.join(sys.prefix, "jars", "*.jar"))))
for k, v in {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions", "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1",
    "spark.sql.catalog.o": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.o.type": "rest", "spark.sql.catalog.o.uri": %q,
    "spark.sql.catalog.o.cache-enabled": "false", "spark.sql.session.timeZone": "UTC",
}.items():
    b = b.config(k, v)
s = b.getOrCreate()
s.sparkContext.setLogLevel("ERROR")
for q in json.loads(%q):
    s.sql(q).collect()
if "%t" == "true": # deletes by equality, which SQL does not make
    j = s._jvm
    t = j.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(s._jsparkSession, "o.shop.people")
    names = j.java.util.ArrayList()
    names.add("name")
    by = t.schema().select(names)
    ids = s._sc._gateway.new_array(j.int, 1)
    ids[0] = t.schema().findField("name").fieldId()
    made = j.org.apache.iceberg.data.GenericAppenderFactory(t.schema(), t.spec(), ids, by, None)
    out = j.org.apache.iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(t.io().newOutputFile(t.location() + "/data/equal.parquet"))
    w = made.newEqDeleteWriter(out, j.org.apache.iceberg.FileFormat.PARQUET, t.newScan().planFiles().iterator().next().file().partition())
    for name in ("merged", "updated", "n11", "n13", "n17", "nobody"):
        row = j.org.apache.iceberg.data.GenericRecord.create(by)
        row.setField("name", name)
        w.write(row)
    w.close()
    t.newRowDelta().addDeletes(w.toDeleteFile()).commit()
for r in s.table("o.shop.people").collect():
    print(f"{r.id},{r.name},{r.n}")
`, x.cat.URI(), list, equality)).Output()
		if err != nil {
			t.Fatalf("Spark: %v: %s", err, err.(*exec.ExitError).Stderr)
		}
		rows := lines(string(out))
		slices.Sort(rows)
		return rows
	}
	want := spark(true,
		"CREATE NAMESPACE o.shop",
		`CREATE TABLE o.shop.people (id bigint NOT NULL, name string, n int) USING iceberg PARTITIONED BY (bucket(3, id))
TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read')`,
		"INSERT INTO o.shop.people SELECT id, concat('n', id), cast(id AS int) FROM range(1, 40)",
		"DELETE FROM o.shop.people WHERE id % 7 = 0",
		"UPDATE o.shop.people SET name = 'updated' WHERE id % 5 = 0",
		`MERGE INTO o.shop.people t USING (SELECT id FROM range(35, 45)) s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET t.n = -1 WHEN NOT MATCHED THEN INSERT (id, name, n) VALUES (s.id, 'merged', 0)`,
		"ALTER TABLE o.shop.people SET TBLPROPERTIES ('format-version'='3')",
		"DELETE FROM o.shop.people WHERE id IN (2, 3, 5, 41)",
		"INSERT INTO o.shop.people VALUES (5, 'again', 1)",
	)
	client, err := restclient.Open(t.Context(), restclient.Options{URI: x.cat.URI()})
	if err != nil {
		t.Fatal(err)
	}
	at := func() string {
		t.Helper()
		table, err := client.Load(t.Context(), restcat.IdentifierOf("shop.people"))
		if err != nil {
			t.Fatal(err)
		}
		return table.MetadataLocation
	}
	table := []string{"shop.ours", "--data", data}
	run(t, append([]string{"table", "create", "--iceberg", at(), "--key", "id", "--format", "rows-json"}, table...)...)
	run(t, "load", "--data", data, "--table", "shop.ours", "--format", "rows-json", "--key", "id", writeFile(t, "first.jsonl", `{"id":6,"name":"old","n":1}`+"\n"))
	wantLines(t, run(t, append([]string{"table", "import", "--iceberg", at()}, table...)...), "format_version", "3", "rows", strconv.Itoa(len(want)), "files_there", "0", "visible", "true")
	model := map[int]string{}
	for _, line := range want {
		id, err := strconv.Atoi(line[:strings.IndexByte(line, ',')])
		if err != nil {
			t.Fatal(err)
		}
		model[id] = line
	}
	readAlike(t, data, "shop.ours", model)
	run(t, "load", "--data", data, "--table", "shop.ours", "--format", "rows-json", "--key", "id", writeFile(t, "more.jsonl", `{"id":5,"name":"new","n":2}`+"\n"+`{"id":44,"name":"new","n":2}`+"\n"))
	run(t, "delete", "shop.ours", "--data", data, "--key", "id=1")
	model[5], model[44] = "5,new,2", "44,new,2"
	delete(model, 1)
	readAlike(t, data, "shop.ours", model)
	run(t, "verify", "--data", data, "--full", "--deep", "--source")

	// An update under version 3 writes row ids into its files.
	spark(false, "UPDATE o.shop.people SET name = 'third' WHERE id = 9")
	code, _, errs := varve(t, append([]string{"table", "import", "--iceberg", at()}, table...)...)
	if code != exitFailed || !strings.Contains(errs, "it has a column _row_id") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
