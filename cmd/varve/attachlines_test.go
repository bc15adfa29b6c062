package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/varve-io/varve/topology/readers"
)

// attachLines are the blocks of README.md by which engines attach to varve's own
// catalog, by their first line.
func attachLines(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(b), "\n### From other engines\n")
	section, _, ended := strings.Cut(section, "\n### ")
	if !found || !ended {
		t.Fatal("README.md has no section From other engines, or nothing after it")
	}
	blocks := map[string]string{}
	for block := range strings.SplitSeq(section, "\n\n") {
		var lines []string
		for line := range strings.Lines(strings.Trim(block, "\n")) {
			code, indented := strings.CutPrefix(line, "    ")
			if !indented {
				lines = nil
				break
			}
			lines = append(lines, code)
		}
		if lines != nil {
			blocks[strings.TrimSpace(lines[0])] = strings.Join(lines, "")
		}
	}
	return blocks
}

// pasted runs lines of DuckDB or PyIceberg and prints the rows of the last as JSON.
// DuckDB installs its extensions from a repository of the installed ones.
const pasted = `
import ast, gzip, importlib, json, os, shutil, sys
engine, lines, work = sys.argv[1:]
if engine == "duckdb":
    import duckdb
    con = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "1", "extension_directory": work + "/installed",
        "custom_extension_repository": work + "/repository", "autoinstall_extension_repository": work + "/repository"})
    into = f"{work}/repository/v{duckdb.__version__}/" + con.execute("PRAGMA platform").fetchone()[0]
    os.makedirs(into)
    for name in ("parquet", "avro", "httpfs", "iceberg"):
        base = os.path.dirname(importlib.import_module("duckdb_extension_" + name).__file__)
        with open(os.path.join(base, "extensions", "v" + duckdb.__version__, name + ".duckdb_extension"), "rb") as f, gzip.open(f"{into}/{name}.duckdb_extension.gz", "wb", 1) as g:
            shutil.copyfileobj(f, g)
    rows = con.execute(lines).fetchall()
else:
    tree = ast.parse(lines)
    names = {"print": lambda table: table}
    exec(compile(ast.Module(tree.body[:-1], []), "README.md", "exec"), names)
    table = eval(compile(ast.Expression(tree.body[-1].value), "README.md", "eval"), names)
    rows = [list(r.values()) for r in table.to_pylist()]
print(json.dumps([["NULL" if v is None else str(v) for v in r] for r in rows]))
`

// The lines of README.md that attach engines to varve's catalog do so as they
// stand there, all but the port, and give the table's rows. Spark and Trino run
// where VARVE_MATRIX names them (all: both), as they take minutes.
func TestAttachLines(t *testing.T) {
	blocks := attachLines(t)
	data := t.TempDir()
	event := func(op string, id int, row string) string {
		if op == "d" {
			return fmt.Sprintf(`{"before":{"order_id":%d},"after":null,"op":"d"}`, id) + "\n"
		}
		return fmt.Sprintf(`{"before":null,"after":{"order_id":%d,%s},"op":%q}`, id, row, op) + "\n"
	}
	load := func(events ...string) {
		t.Helper()
		run(t, "load", "--data", data, "--table", "shop.orders", "--format", "debezium-json", "--key", "order_id", "--log-level", "warn",
			writeFile(t, "orders.jsonl", strings.Join(events, "")))
	}
	load(event("c", 1, `"city":"Bergen","pieces":3`), event("c", 2, `"city":"São Tomé","pieces":1`), event("c", 3, `"city":"Porto","pieces":7`), event("c", 4, `"city":null,"pieces":2`))
	load(event("u", 2, `"city":"Lisboa","pieces":5`), event("d", 3, ""), event("c", 5, `"city":"Seoul","pieces":null`))
	want := [][]string{{"1", "Bergen", "3"}, {"2", "Lisboa", "5"}, {"4", "NULL", "2"}, {"5", "Seoul", "NULL"}}
	n := startNode(t, "--data", data, "--log-level", "warn", "--catalog-listen", "127.0.0.1:0")
	url := catalogOf(t, n.out.String())

	for _, tc := range []struct {
		engine readers.Engine
		first  string
		rows   func(t *testing.T, lines string) [][]string
	}{
		{readers.DuckDB, "-- DuckDB 1.5", pastedRows(readers.DuckDB)},
		{readers.PyIceberg, "# PyIceberg 0.12", pastedRows(readers.PyIceberg)},
		{readers.Spark, "# Spark 4.0 with Iceberg 1.10", sparkRows},
		{readers.Trino, "# Trino, etc/catalog/lake.properties (fs.hadoop.enabled only for a lake in a local folder)", trinoRows},
	} {
		t.Run(string(tc.engine), func(t *testing.T) {
			lines := blocks[tc.first]
			if strings.Count(lines, "http://127.0.0.1:8181") != 1 {
				t.Fatalf("README.md has no block %q that names http://127.0.0.1:8181 once", tc.first)
			}
			needed(t, tc.engine)
			got := tc.rows(t, strings.ReplaceAll(lines, "http://127.0.0.1:8181", url))
			slices.SortFunc(got, slices.Compare[[]string])
			if !slices.EqualFunc(got, want, slices.Equal[[]string]) {
				t.Errorf("rows %q, want %q", got, want)
			}
		})
	}
}

// needed skips a test of an engine that is not wanted.
func needed(t *testing.T, e readers.Engine) {
	t.Helper()
	if slices.Contains(readers.Slow, e) {
		if chosen := "," + os.Getenv("VARVE_MATRIX") + ","; chosen != ",all," && !strings.Contains(chosen, ","+string(e)+",") {
			t.Skipf("%s takes minutes: VARVE_MATRIX=%[1]s or all runs it", e)
		}
	}
	readers.Need(t, e)
}

// What the demo prints to be pasted elsewhere gives the demo's rows there.
func TestDemoLines(t *testing.T) {
	data := filepath.Join(t.TempDir(), "demo")
	out := run(t, "demo", "--data", data, "--log-level", "warn")
	_, out, found := strings.Cut(out, "Open it elsewhere\n")
	if !found {
		t.Fatal("the demo prints no lines")
	}
	lines := func(head string) string {
		_, block, found := strings.Cut(out, "\n"+head+":\n")
		block, _, ended := strings.Cut(block, "\n\n")
		if !found || !ended {
			t.Fatalf("the demo prints no lines of %s", head)
		}
		return strings.ReplaceAll("\n"+block, "\n  ", "\n")
	}
	var want, sums [][]string // order and status; status, orders and what they amount to
	count, cents := map[string]int{}, map[string]int{}
	for line := range strings.Lines(run(t, "scan", "shop.orders", "--data", data, "--columns", "order_id,status,amount", "--output", "jsonl", "--log-level", "warn")) {
		var row struct {
			ID             int `json:"order_id"`
			Status, Amount string
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		want = append(want, []string{strconv.Itoa(row.ID), row.Status})
		c, err := strconv.Atoi(strings.Replace(row.Amount, ".", "", 1))
		if err != nil {
			t.Fatal(err)
		}
		count[row.Status]++
		cents[row.Status] += c
	}
	for status, n := range count {
		sums = append(sums, []string{status, strconv.Itoa(n), fmt.Sprintf("%d.%02d", cents[status]/100, cents[status]%100)})
	}
	for _, tc := range []struct {
		engine  readers.Engine
		head    string
		rows    func(t *testing.T, lines string) [][]string
		columns []int
		want    [][]string
	}{
		{readers.DuckDB, "DuckDB 1.5", pastedRows(readers.DuckDB), []int{0, 1, 2}, sums},
		{readers.PyIceberg, "PyIceberg 0.12", pastedRows(readers.PyIceberg), []int{0, 2}, want},
		{readers.Spark, "Spark 4.0 with Iceberg 1.10", sparkRows, []int{0, 2}, want},
	} {
		t.Run(string(tc.engine), func(t *testing.T) {
			needed(t, tc.engine)
			var got [][]string
			for _, row := range tc.rows(t, lines(tc.head)) {
				if len(row) <= slices.Max(tc.columns) {
					continue // the second line of a text that has one
				}
				var some []string
				for _, c := range tc.columns {
					some = append(some, row[c])
				}
				got = append(got, some)
			}
			slices.SortFunc(got, slices.Compare[[]string])
			slices.SortFunc(tc.want, slices.Compare[[]string])
			if !slices.EqualFunc(got, tc.want, slices.Equal[[]string]) || len(got) == 0 {
				t.Errorf("rows %q, want %q", got, tc.want)
			}
		})
	}
}

// output is what a program prints that was started in a folder of its own.
func output(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, b, errs.Bytes())
	}
	return b
}

func pastedRows(e readers.Engine) func(*testing.T, string) [][]string {
	return func(t *testing.T, lines string) (rows [][]string) {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), filepath.Join(readers.FolderOf(e), "bin", "python"), "-W", "ignore", "-c", pasted, string(e), lines, dir)
		cmd.Dir = dir
		if err := json.Unmarshal(output(t, cmd), &rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
}

// sparkRows pastes the lines into a shell that finds spark-sql.
func sparkRows(t *testing.T, lines string) (rows [][]string) {
	dir := t.TempDir()
	conf := "spark.jars.ivy " + dir + "/ivy\nspark.driver.bindAddress 127.0.0.1\nspark.driver.host 127.0.0.1\nspark.ui.enabled false\nspark.master local[1]\nspark.driver.memory 1g\n"
	if err := os.WriteFile(filepath.Join(dir, "spark-defaults.conf"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", lines)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SPARK_CONF_DIR="+dir, "PATH="+filepath.Join(readers.FolderOf(readers.Spark), "bin")+":"+os.Getenv("PATH"))
	for line := range strings.Lines(string(output(t, cmd))) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return rows
}

// trinoRows makes a catalog of the properties alone.
func trinoRows(t *testing.T, lines string) (rows [][]string) {
	properties := map[string]string{}
	for line := range strings.Lines(lines) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			properties[name] = value
		}
	}
	if properties["connector.name"] != "iceberg" {
		t.Fatalf("the connector is %q", properties["connector.name"])
	}
	delete(properties, "connector.name") // it is an argument of the engine's call
	defer readers.Stop(readers.Trino)
	got, err := readers.Read(t.Context(), readers.Trino, "shop.orders", readers.Options{Properties: properties, Columns: []string{"order_id", "city", "pieces"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range got.Rows {
		texts := make([]string, len(row))
		for i, v := range row {
			if texts[i] = "NULL"; v != nil {
				texts[i] = *v
			}
		}
		rows = append(rows, texts)
	}
	return rows
}
