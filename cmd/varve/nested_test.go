package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Structs, lists and maps go the whole way: from events without a schema to a
// table that iceberg-go reads, over a change of what is nested, and back in
// verify (kind 11 of the inputs).
func TestLoadNested(t *testing.T) {
	data := t.TempDir()
	load := func(want int, events ...string) string {
		t.Helper()
		file := writeFile(t, "e.jsonl", strings.Join(events, "\n")+"\n")
		code, out, errs := varve(t, "load", "--data", data, "--table", "shop.orders", "--format", "rows-json", "--key", "id", "--log-level", "warn", file)
		if code != want {
			t.Fatalf("load: exit code %d, stderr %q", code, errs)
		}
		return out
	}
	scan := func(want ...string) {
		t.Helper()
		code, out, errs := varve(t, "scan", "shop.orders", "--data", data, "--output", "jsonl")
		if code != 0 || out != strings.Join(want, "\n")+"\n" {
			t.Fatalf("scan: exit code %d, stderr %q, stdout\n%swant\n%s", code, errs, out, strings.Join(want, "\n"))
		}
	}
	load(0,
		`{"id":1,"s":{"x":1,"y":"t"},"tags":["p",null],"items":[{"sku":"k","n":2}]}`,
		`{"id":2,"s":null,"tags":[],"items":[]}`,
		`{"id":3,"s":{"x":null,"y":""},"tags":null,"items":[null]}`)
	scan(
		`{"id":1,"s":{"x":1,"y":"t"},"tags":["p",null],"items":[{"sku":"k","n":2}]}`,
		`{"id":2,"s":null,"tags":[],"items":[]}`,
		`{"id":3,"s":{"x":null,"y":""},"tags":null,"items":[null]}`)
	// New fields, in a struct and in a list's: older rows have null there. A row
	// goes, one is updated, one is new.
	load(0,
		`{"id":1,"s":{"y":"u","z":{"deep":[1.5]}},"tags":[""],"items":[{"sku":"a","price":0.1},{"n":9}]}`,
		`{"id":4,"s":{},"more":{"k":{"v":true}}}`)
	scan(
		`{"id":2,"s":null,"tags":[],"items":[],"more":null}`,
		`{"id":3,"s":{"x":null,"y":"","z":null},"tags":null,"items":[null],"more":null}`,
		`{"id":1,"s":{"x":null,"y":"u","z":{"deep":[1.5]}},"tags":[""],"items":[{"sku":"a","n":null,"price":0.1},{"sku":null,"n":9,"price":null}],"more":null}`,
		`{"id":4,"s":{"x":null,"y":null,"z":null},"tags":null,"items":null,"more":{"k":{"v":true}}}`)
	// What does not fit is a dead letter; the rest of the load goes on.
	if out := load(0, `{"id":5,"s":{"x":"no number"}}`, `{"id":6,"tags":["q"]}`); !strings.Contains(out, "dead_letters       1") {
		t.Errorf("load says\n%s", out)
	}
	if code, out, errs := varve(t, "verify", "--data", data, "--deep", "--source"); code != 0 {
		t.Errorf("verify: exit code %d, stdout %q, stderr %q", code, out, errs)
	}
	// A file of it says what it holds, and the schema that a user would pass.
	if code, out, _ := varve(t, "table", "show", "shop.orders", "--data", data); code != 0 || !strings.Contains(out, `"name":"price","required":false,"type":"double"`) {
		t.Errorf("table show: exit code %d\n%s", code, out)
	}
}

// An array or map that the database did not send because it did not change is the
// older row's (K10), from the buffer and from a data file.
func TestLoadNestedUnchanged(t *testing.T) {
	data := t.TempDir()
	load := func(events ...string) {
		t.Helper()
		file := writeFile(t, "e.jsonl", strings.Join(events, "\n")+"\n")
		if code, _, errs := varve(t, "load", "--data", data, "--table", "t", "--format", "debezium-json", "--key", "id", "--log-level", "warn", file); code != 0 {
			t.Fatalf("load: exit code %d, stderr %q", code, errs)
		}
	}
	scan := func(want string) {
		t.Helper()
		if code, out, errs := varve(t, "scan", "t", "--data", data, "--output", "jsonl"); code != 0 || out != want+"\n" {
			t.Fatalf("scan: exit code %d, stderr %q, stdout\n%swant\n%s", code, errs, out, want)
		}
	}
	const marker = `"__debezium_unavailable_value"`
	load(`{"op":"c","after":{"id":1,"v":1,"tags":["a",null],"s":{"x":[1,2]}}}`,
		`{"op":"u","after":{"id":1,"v":2,"tags":[`+marker+`],"s":`+marker+`}}`)
	scan(`{"id":1,"v":2,"tags":["a",null],"s":{"x":[1,2]}}`)
	load(`{"op":"u","after":{"id":1,"v":3,"tags":[` + marker + `],"s":{"x":[]}}}`)
	scan(`{"id":1,"v":3,"tags":["a",null],"s":{"x":[]}}`)
}

// Geometry as Debezium captured it from MySQL: structs of well-known bytes.
func TestLoadGeometry(t *testing.T) {
	dir := os.Getenv("VARVE_FIXTURES")
	if dir == "" {
		t.Skip("VARVE_FIXTURES is not set: captured events are not tried")
	}
	data := t.TempDir()
	file := filepath.Join(dir, "data", "cdc", "debezium-mysql-alltypes.jsonl")
	if code, _, errs := varve(t, "load", "--data", data, "--table", "t", "--format", "debezium-json", "--key", "_id", "--log-level", "warn", file); code != 0 {
		t.Fatalf("load: exit code %d, stderr %q", code, errs)
	}
	code, out, errs := varve(t, "scan", "t", "--data", data, "--output", "jsonl")
	if code != 0 {
		t.Fatalf("scan: exit code %d, stderr %q", code, errs)
	}
	wantLines(t, out, `"_point":{"x":1,"y":1,"wkb":"0101000000000000000000f03f000000000000f03f","srid":null}`,
		`"_geometry":{"wkb":"0103000000010000000500`, `"_geometrycollection":{"wkb":"010700000003000000`)
}
