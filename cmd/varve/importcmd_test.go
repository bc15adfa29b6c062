package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// parquetOf is a Parquet file of ids and names; with ids the columns have those
// field ids. A negative id is a null.
func parquetOf(t *testing.T, name string, fields []schemas.Field, ids []int64, texts []string) string {
	t.Helper()
	s := &schemas.Schema{Fields: fields}
	b := rows.NewBatch(s)
	for i, id := range ids {
		if id < 0 {
			b.Cols[0].AppendNull()
		} else {
			b.Cols[0].AppendInt(id)
		}
		b.Cols[1].AppendBytes([]byte(texts[i]))
		b.AppendEvent(rows.Upsert, 0, 0, false)
	}
	var out bytes.Buffer
	if _, err := rows.Write(&out, rows.WriteOptions{Schema: s}, b, nil, rows.Extra{}); err != nil {
		t.Fatal(err)
	}
	return writeFile(t, name, out.String())
}

// TestTableImport (H1, T3): Parquet files enter a table, in any order of their rows;
// keys that the table has are replaced, and later upserts and deletes find the rows
// that came. iceberg-go reads what is there, before and after a compaction, and the
// log gives the same state again.
func TestTableImport(t *testing.T) {
	for _, how := range []string{"--key", "--append-only"} {
		t.Run(how, func(t *testing.T) {
			data := t.TempDir()
			load := func(lines ...string) {
				args := []string{"load", "--data", data, "--table", "t", "--format", "rows-json", writeFile(t, "events.jsonl", strings.Join(lines, "\n")+"\n")}
				if how == "--key" {
					args = append(args, how, "id")
				} else {
					args = append(args, how)
				}
				run(t, args...)
			}
			want := func(lines ...string) {
				t.Helper()
				if got := run(t, "scan", "t", "--data", data, "--columns", "id,name", "--output", "jsonl"); sortedLines(got) != sortedLines(strings.Join(lines, "\n")+"\n") {
					t.Errorf("rows are\n%swant %q", got, lines)
				}
			}
			row := func(id int, name string) string { return fmt.Sprintf(`{"id":%d,"name":%q}`, id, name) }
			load(row(1, "a"), row(2, "b"), row(3, "c"))
			fields := []schemas.Field{{ID: 1, Name: "id", Type: schemas.Of(schemas.Long)}, {ID: 2, Name: "name", Type: schemas.Of(schemas.String)}}
			good := parquetOf(t, "good.parquet", fields, []int64{5, 2, 4, 5}, []string{"e", "b2", "d", "e2"})
			wantLines(t, run(t, "table", "import", "t", good, "--data", data, "--dry-run"), "rows", "4", "imported", "false")
			want(row(1, "a"), row(2, "b"), row(3, "c"))
			wantLines(t, run(t, "table", "import", "t", good, "--data", data), "visible", "true")
			if how == "--key" {
				want(row(1, "a"), row(3, "c"), row(2, "b2"), row(4, "d"), row(5, "e2"))
				wantLines(t, run(t, "explain", "t", "2", "--data", data, "--output", "csv"), "written", "a version died", "added by a file")
				load(row(4, "d3"), row(6, "f"))
				run(t, "delete", "t", "--key", "id=5", "--data", data)
				all := []string{row(1, "a"), row(3, "c"), row(2, "b2"), row(4, "d3"), row(6, "f")}
				want(all...)
				run(t, "compact", "t", "--data", data, "--strategy", "full", "--wait")
				want(all...)
				load(row(2, "b4"))
				want(row(1, "a"), row(3, "c"), row(2, "b4"), row(4, "d3"), row(6, "f"))
			} else {
				want(row(1, "a"), row(2, "b"), row(3, "c"), row(2, "b2"), row(4, "d"), row(5, "e"), row(5, "e2"))
			}
			before := run(t, "scan", "t", "--data", data, "--columns", "id,name", "--output", "jsonl")
			other := []schemas.Field{{ID: 1, Name: "id", Type: schemas.Of(schemas.Long)}, {ID: 2, Name: "other", Type: schemas.Of(schemas.String)}}
			text := []schemas.Field{{ID: 1, Name: "id", Type: schemas.Of(schemas.Long)}, {ID: 9, Name: "secret", Type: schemas.Of(schemas.String)}}
			for _, c := range []struct{ path, want string }{
				{parquetOf(t, "other.parquet", other, []int64{7}, []string{"x"}), `its column "other" has the field id 2, which is another column of table t`},
				{parquetOf(t, "text.parquet", text, []int64{7}, []string{"x"}), `its column "secret" has the field id 9, which is another column of table t, or none`},
				{writeFile(t, "no.parquet", "no Parquet at all"), "no.parquet: "},
			} {
				code, _, errs := varve(t, "table", "import", "t", good, c.path, "--data", data)
				if code != exitFailed || !strings.Contains(errs, c.want) {
					t.Errorf("%s: exit code %d: %s", c.path, code, errs)
				}
			}
			if how == "--key" {
				null := parquetOf(t, "null.parquet", fields, []int64{7, -1}, []string{"x", "y"})
				if code, _, errs := varve(t, "table", "import", "t", null, "--data", data); code != exitFailed || !strings.Contains(errs, `column "id" is required, but row 1`) {
					t.Errorf("exit code %d: %s", code, errs)
				}
			}
			if got := run(t, "scan", "t", "--data", data, "--columns", "id,name", "--output", "jsonl"); got != before {
				t.Errorf("a refused import left rows:\n%s", got)
			}
			run(t, "verify", "t", "--data", data, "--full", "--deep", "--source")
			run(t, "replay", "--data", data, "--into", filepath.Join(t.TempDir(), "again"), "--compare")
		})
	}
}
