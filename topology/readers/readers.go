package readers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
)

// Engine is a reader of Iceberg tables.
type Engine string

// The engines. Versions are pinned in requirements.txt, install-slow.sh and go.mod.
const (
	DuckDB    Engine = "duckdb"
	PyIceberg Engine = "pyiceberg"
	IcebergGo Engine = "iceberg-go"
	Polars    Engine = "polars" // plans with PyIceberg, reads by itself
	Spark     Engine = "spark"
	Sail      Engine = "sail"
	Trino     Engine = "trino"
)

// All is the engines that every published table is read with.
var All = []Engine{IcebergGo, DuckDB, PyIceberg}

// Fast is the engines that install.sh installs and that start in a moment;
// Slow is those of install-slow.sh.
var (
	Fast = []Engine{IcebergGo, DuckDB, PyIceberg, Polars}
	Slow = []Engine{Spark, Sail, Trino}
)

// ErrAbsent marks that the engine is not installed.
var ErrAbsent = errors.New("engine not installed")

// Options chooses what is read; the zero value is the whole current snapshot.
type Options struct {
	Snapshot int64    // 0: the current one
	Columns  []string // none: all
	// Filter is a condition in the engine's own words (SQL, PyIceberg: its
	// filter text); iceberg-go takes none here. It is there to try pruning.
	Filter string
	// Lineage also reads _row_id and _last_updated_sequence_number, as the
	// first two columns. iceberg-go, DuckDB, Spark and Trino can.
	Lineage bool
	// Properties are the engine's: file IO properties of PyIceberg and
	// iceberg-go (s3.endpoint, …), settings of DuckDB (s3_endpoint, …), of Trino
	// those of a catalog: without REST, all of them.
	Properties map[string]string
	// Locate, if set, gives iceberg-go the local file of a location; a build
	// with its S3 driver takes minutes. The Python engines read where it says.
	Locate func(location string) string
	// REST, if any, is the catalog in which the table is looked up by its name.
	REST *REST
}

// REST is an Iceberg REST catalog.
type REST struct {
	URI   string
	Token string // none: without authorization
}

// Table is what an engine read. Null is nil; every other value is the text of
// schemas.AppendText: 2024-02-29T13:05:00.000001+00:00, hexadecimal bytes,
// decimals with their scale, floats in shortest form; of a struct, list or map
// that of NestedText. Row order is the engine's.
type Table struct {
	Columns []string
	Rows    [][]*string
}

// Sorted is every row as one line, sorted, columns by name, null as ∅:
// two engines read the same rows when these are equal.
func (t *Table) Sorted() []string {
	order := make([]int, len(t.Columns))
	for i := range order {
		order[i] = i
	}
	sort.Slice(order, func(i, j int) bool { return t.Columns[order[i]] < t.Columns[order[j]] })
	out := make([]string, len(t.Rows))
	for i, row := range t.Rows {
		parts := make([]string, len(order))
		for j, c := range order {
			v := "∅"
			if row[c] != nil {
				v = *row[c]
			}
			parts[j] = t.Columns[c] + "=" + v
		}
		out[i] = strings.Join(parts, " ")
	}
	sort.Strings(out)
	return out
}

// Column is one column's values in the order of the rows, null as "∅"; nil
// when there is no such column.
func (t *Table) Column(name string) []string {
	for c, n := range t.Columns {
		if n != name {
			continue
		}
		out := make([]string, len(t.Rows))
		for i, row := range t.Rows {
			out[i] = "∅"
			if row[c] != nil {
				out[i] = *row[c]
			}
		}
		return out
	}
	return nil
}

// Read reads a table by the path or URI of a metadata file, or with
// Options.REST by its full name. The Python engines share one process, started by the first call; calls take turns.
func Read(ctx context.Context, engine Engine, at string, o Options) (*Table, error) {
	var t *Table
	var err error
	switch engine {
	case IcebergGo:
		t, err = readIcebergGo(ctx, at, o)
	default:
		p := children[engine]
		if p == nil {
			return nil, fmt.Errorf("there is no engine %q", engine)
		}
		t, err = p.read(ctx, engine, at, o)
	}
	if err != nil {
		return nil, fmt.Errorf("%s reads %s: %w", engine, at, err)
	}
	return t, nil
}

// Folder is where the fast engines are installed.
func Folder() string { return FolderOf(DuckDB) }

// FolderOf is where an engine is installed.
func FolderOf(e Engine) string {
	name := "readers"
	switch e {
	case Spark, Sail, Trino:
		name = string(e)
	}
	if dir := os.Getenv("VARVE_TEST_TOOLS"); dir != "" {
		return filepath.Join(dir, name)
	}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "varve-test", name)
}

// Available says whether an engine can be used; the error is ErrAbsent.
func Available(engine Engine) error {
	if engine == IcebergGo {
		return nil
	}
	if !Wanted() {
		return fmt.Errorf("%w: %s is another process; VARVE_SERVERS=1 or VARVE_REQUIRE_READERS=1 runs it", ErrAbsent, engine)
	}
	if _, err := os.Stat(filepath.Join(FolderOf(engine), "installed.txt")); err != nil {
		script := "install.sh"
		if slices.Contains(Slow, engine) {
			script = "install-slow.sh " + string(engine)
		}
		return fmt.Errorf("%w: %s in %s; install it with topology/readers/%s", ErrAbsent, engine, FolderOf(engine), script)
	}
	return nil
}

// Wanted says whether the readers that are processes of their own shall run.
func Wanted() bool {
	return os.Getenv("VARVE_SERVERS") == "1" || os.Getenv("VARVE_REQUIRE_READERS") == "1"
}

// Need fails the test when an engine is not installed, and skips it where
// neither VARVE_SERVERS nor VARVE_REQUIRE_READERS is 1.
func Need(tb testing.TB, engine Engine) {
	tb.Helper()
	err := Available(engine)
	switch {
	case err == nil:
	case Wanted():
		tb.Fatal(err)
	default:
		tb.Skip(err)
	}
}
