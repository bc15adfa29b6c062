package matrix

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/varve-io/varve/processors/adopt"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
)

// upgradedTable has PyIceberg write a table of version 2, and DuckDB delete rows of it
// by position-delete files.
const upgradedTable = `
import datetime, importlib, json, os, sys, duckdb, pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import *
req = json.load(sys.stdin)
c = RestCatalog("c", uri=req["uri"], **req["pyiceberg"])
c.create_namespace("theirs")
t = c.create_table("theirs.people", Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "level", IntegerType()), NestedField(3, "name", StringType()),
    NestedField(4, "day", DateType())), properties={"format-version": "2"})
def of(row, name, read):
    return None if row[name] == "∅" else read(row[name])
for part in range(3):
    rows = req["rows"][part::3]
    t.append(pa.table([pa.array([int(r["id"]) for r in rows], pa.int64()), pa.array([of(r, "level", int) for r in rows], pa.int32()), pa.array([of(r, "name", str) for r in rows], pa.string()),
        pa.array([of(r, "day", datetime.date.fromisoformat) for r in rows], pa.date32())],
        schema=pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("level", pa.int32()), pa.field("name", pa.string()), pa.field("day", pa.date32())])))
con = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "1"})
for name in ("parquet", "avro", "httpfs", "iceberg"):
    base = os.path.dirname(importlib.import_module("duckdb_extension_" + name).__file__)
    con.execute(f"LOAD '{os.path.join(base, 'extensions', 'v' + duckdb.__version__, name + '.duckdb_extension')}'")
for k, v in req["duckdb"].items():
    con.execute(f"SET {k}='{v}'")
con.execute(f"ATTACH '' AS rest (TYPE iceberg, ENDPOINT '{req['uri']}', AUTHORIZATION_TYPE 'none')")
con.execute(f"DELETE FROM rest.theirs.people WHERE id IN ({','.join(req['deleted'])})")
t = c.load_table("theirs.people")
print(json.dumps({"version": t.format_version, "deletes": sum(len(x.delete_files) for x in t.scan().plan_files())}))
`

// takeUpgraded takes a table into w that was written under version 2 and upgraded:
// rows of keys that w has, of new ones, and dead rows of both. It returns the next
// new key.
func (w *written) takeUpgraded(t *testing.T, ctx context.Context, n *topology.Node, p *place, info *statestore.TableInfo, r *rand.Rand, next int) int {
	t.Helper()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
	}
	ids := slices.Sorted(maps.Keys(w.rows))[:20]
	for range inserts {
		ids = append(ids, strconv.Itoa(next))
		next++
	}
	pyiceberg := p.properties(readers.PyIceberg)
	req := struct {
		URI       string              `json:"uri"`
		PyIceberg map[string]string   `json:"pyiceberg"`
		DuckDB    map[string]string   `json:"duckdb"`
		Rows      []map[string]string `json:"rows"`
		Deleted   []string            `json:"deleted"`
	}{URI: p.reference.URI(), PyIceberg: pyiceberg, DuckDB: p.properties(readers.DuckDB)}
	for i, id := range ids {
		row := map[string]string{"id": id}
		for _, col := range w.columns {
			row[col.name] = col.value(r)
		}
		req.Rows = append(req.Rows, row)
		if i%5 == 1 {
			req.Deleted = append(req.Deleted, id) // says nothing of what we have under that key
			continue
		}
		w.rows[id] = row
	}
	in, err := json.Marshal(req)
	fail(err)
	cmd := exec.CommandContext(ctx, filepath.Join(readers.Folder(), "bin", "python"), "-W", "ignore", "-c", upgradedTable)
	cmd.Stdin = strings.NewReader(string(in))
	out, err := cmd.Output()
	if e, ok := err.(*exec.ExitError); ok {
		t.Fatalf("%s: %v: %s", w.name, err, e.Stderr)
	}
	fail(err)
	var made struct{ Version, Deletes int }
	fail(json.Unmarshal(out, &made))
	if made.Version != 2 || made.Deletes == 0 {
		t.Fatalf("%s: they made %s", w.name, out)
	}
	client, err := restclient.Open(ctx, restclient.Options{URI: p.reference.URI()})
	fail(err)
	id := restcat.IdentifierOf("theirs.people")
	_, err = client.Commit(ctx, &restcat.CommitTable{Identifier: id, Requirements: []restcat.Requirement{}, Updates: []restcat.Update{restcat.UpgradeFormat(3)}})
	fail(err)
	theirs, err := client.Load(ctx, id)
	fail(err)

	src, err := n.ReadIceberg(ctx, adopt.What{Location: theirs.MetadataLocation})
	fail(err)
	fit, err := src.Check(ctx, info.Definition, nil)
	fail(err)
	if src.FormatVersion != 3 || len(fit.Refused) > 0 || fit.Rows-fit.Dead != int64(len(ids)-len(req.Deleted)) || fit.Dead != int64(len(req.Deleted)) {
		t.Fatalf("%s: version %d, %+v", w.name, src.FormatVersion, fit)
	}
	took, err := n.Adopt(ctx, info, fit, "matrix", nil)
	fail(err)
	if took.Files != int64(len(fit.Items)) || took.Already != 0 {
		t.Fatalf("%s: %+v", w.name, took)
	}
	through, err := n.WaitKeysTaken(ctx, w.name, took.Offsets)
	fail(err)
	fail(n.WaitVisible(ctx, w.name, through))
	return next
}
