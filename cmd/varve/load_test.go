package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// loaded is a load's result in JSON.
type loaded struct {
	Table       string  `json:"table"`
	Created     bool    `json:"created"`
	Events      int64   `json:"events"`
	Rows        int64   `json:"rows"`
	DeadLetters int64   `json:"dead_letters"`
	LateIgnored int64   `json:"late_ignored"`
	Records     *int64  `json:"records_read"`
	Applied     int64   `json:"records_applied"`
	Control     int64   `json:"control"`
	Upserts     int64   `json:"upserts"`
	Superseded  int64   `json:"superseded"`
	Elsewhere   int64   `json:"elsewhere"`
	Deletes     int64   `json:"deletes"`
	Absent      int64   `json:"absent_deletes"`
	Snapshot    *int64  `json:"snapshot_id"`
	Metadata    *string `json:"metadata_location"`
}

func load(t *testing.T, stdin string, args ...string) (loaded, string) {
	t.Helper()
	code, out, errs := varveWith(t, nil, stdin, append([]string{"load", "--output", "json", "--log-level", "warn"}, args...)...)
	if code != exitDone {
		t.Fatalf("load %v: exit code %d\n%s", args, code, errs)
	}
	var r loaded
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("load %v: %v in\n%s", args, err, out)
	}
	// Nothing is lost in silence: what was published was read, and came to something.
	if r.Records == nil || *r.Records != r.Events || *r.Records != r.Applied+r.Control+r.Elsewhere+r.DeadLetters ||
		r.Applied > r.Upserts+r.Superseded+r.Deletes+r.Absent+r.LateIgnored {
		t.Errorf("load %v: the events do not add up: %s", args, out)
	}
	return r, errs
}

// scanned is a table's rows as CSV lines, sorted.
func scanned(t *testing.T, data, table string, args ...string) []string {
	t.Helper()
	out := lines(run(t, append([]string{"scan", table, "--data", data, "--output", "csv"}, args...)...))[1:]
	slices.Sort(out)
	return out
}

func wantRows(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got rows\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// Rows keyed by the record key, with deletes, a tombstone, an unreadable event
// and a second load into the same table.
func TestLoadRecords(t *testing.T) {
	data := t.TempDir()
	events := strings.Join([]string{
		`{"key":{"id":1},"value":{"id":1,"v":"a"}}`,
		`{"key":{"id":2},"value":{"id":2,"v":"b"},"headers":{"h":"x","n":7}}`,
		`{"key":"{\"id\":3}","value":"{\"id\":3,\"v\":\"text\"}"}`,
		``,
		`{"key_base64":"eyJpZCI6NH0=","value_base64":"eyJpZCI6NCwidiI6ImI2NCJ9","partition":0}`,
		`{"key":{"id":1},"value":{"id":1,"v":"a2"}}`,
		`{"key":{"id":2},"value":null}`,
		`{"key":{"id":5},"value":"no JSON"}`,
	}, "\n")
	r, errs := load(t, events, "--data", data, "--table", "t", "--format", "rows-json", "--key", "id", "--records", "-")
	if !r.Created || r.Events != 7 || r.Rows != 3 || r.DeadLetters != 1 || r.Snapshot == nil || r.Metadata == nil || !strings.HasSuffix(*r.Metadata, ".metadata.json") {
		t.Errorf("first load: %+v", r)
	}
	wantLines(t, errs, "table t, from topic t (rows-json):", "id                       long  key")
	wantRows(t, scanned(t, data, "t"), "1,a2", "3,text", "4,b64")

	// The table's format and key are known now; a new column appears by itself.
	r, _ = load(t, `{"key":{"id":3},"value":{"id":3,"v":"c","w":1.5}}`+"\n", "--data", data, "--table", "t", "--records", "-")
	if r.Created || r.Events != 1 || r.Rows != 3 || r.DeadLetters != 0 {
		t.Errorf("second load: %+v", r)
	}
	wantRows(t, scanned(t, data, "t"), "1,a2,", "3,c,1.5", "4,b64,")

	r, _ = load(t, "", "--data", data, "--table", "t", "--records", "-")
	if r.Events != 0 || r.Rows != 3 {
		t.Errorf("load of nothing: %+v", r)
	}
}

// The same events over four partitions give the same rows, with record keys
// and without (K5).
func TestLoadOverPartitions(t *testing.T) {
	var plain, records strings.Builder
	for i := range 400 {
		id, op := i%40, `"after":{"id":%d,"n":%d},"op":"u"`
		if i%7 == 6 {
			op = `"before":{"id":%d,"n":%d},"after":null,"op":"d"`
		}
		value := fmt.Sprintf("{"+op+"}", id, i)
		fmt.Fprintf(&plain, "%s\n", value)
		fmt.Fprintf(&records, `{"key":{"id":%d},"value":%s}`+"\n", id, value)
	}
	want := map[int]int{}
	for i := range 400 {
		if want[i%40] = i; i%7 == 6 {
			delete(want, i%40)
		}
	}
	var rows []string
	for id, n := range want {
		rows = append(rows, fmt.Sprintf("%d,%d", id, n))
	}
	slices.Sort(rows)
	for name, in := range map[string]string{"plain": plain.String(), "records": records.String()} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--data", t.TempDir(), "--table", "shop.t", "--format", "debezium-json", "--key", "id", "--partitions", "4", "-"}
			if name == "records" {
				args = append(args, "--records")
			}
			r, _ := load(t, in, args...)
			if r.Events != 400 || r.Rows != int64(len(rows)) || r.DeadLetters != 0 {
				t.Errorf("%+v", r)
			}
			wantRows(t, scanned(t, args[1], "shop.t"), rows...)
			shards := lines(run(t, "status", "--data", args[1], "--output", "csv", "--log-level", "warn"))
			if len(shards) != 5 {
				t.Errorf("status shows %d shards, want 4:\n%s", len(shards)-1, strings.Join(shards, "\n"))
			}
		})
	}
}

func TestLoadOrderAndPartitionsOfTheTable(t *testing.T) {
	data := t.TempDir()
	file := writeFile(t, "rows.jsonl", `{"id":1,"at":30,"region":"eu"}
{"id":1,"at":20,"region":"us"}
{"id":2,"at":10,"region":"us"}
{"id":3,"at":null,"region":null}
`)
	schema := writeFile(t, "schema.json", `{"type":"struct","fields":[
		{"id":1,"name":"id","type":"int","required":true},{"id":2,"name":"at","type":"long","required":true},{"id":3,"name":"region","type":"string","required":false}]}`)
	r, errs := load(t, "", "--data", data, "--table", "t", "--format", "rows-json", "--key", "id", "--order", "at",
		"--partition-by", "region, bucket(4, id)", "--schema", schema, "--property", "owner=me", file)
	if r.Rows != 3 || r.LateIgnored != 1 {
		t.Errorf("%+v", r)
	}
	wantLines(t, errs, `note: column "at" is optional in the table`, "long  order")
	wantRows(t, scanned(t, data, "t"), "1,30,eu", "2,10,us", "3,,")
	out := run(t, "files", "t", "--data", data, "--output", "csv")
	wantLines(t, out, ",region=eu/id_bucket=", ",region=us/id_bucket=", ",region=null/id_bucket=")
	wantLines(t, run(t, "table", "show", "t", "--data", data, "--log-level", "warn"),
		"order                at\n", "region     identity   region\n", "id_bucket  bucket[4]  id\n", "owner     me\n", "late_ignored         1\n")
}

func TestLoadAppendOnly(t *testing.T) {
	data := t.TempDir()
	r, _ := load(t, "{\"a\":1}\n{\"a\":1}\n", "--data", data, "--table", "log.t", "--format", "rows-json", "--append-only", "-")
	if r.Rows != 2 {
		t.Errorf("%+v", r)
	}
	wantRows(t, scanned(t, data, "log.t"), "1", "1")
}

func TestLoadDemoEvents(t *testing.T) {
	data := filepath.Join(t.TempDir(), "demo")
	code, out, errs := varve(t, "demo", "--data", data, "--log-level", "warn")
	if code != exitDone {
		t.Fatal(errs)
	}
	wantLines(t, out, "2017  Hana      shipped", "iceberg_scan('"+data+"/lake/shop/orders')", "v3.metadata.json", "overwrite", "dv0.puffin")
	wantLines(t, errs, "24 rows now, 0 dead letters", "22 rows now, 1 dead letters")
	got := scanned(t, data, "shop.orders", "--columns", "order_id,status,amount,note")
	if len(got) != 23 || got[3] != "1003,shipped,19.82,gift wrap" {
		t.Errorf("rows of the demo (one of them over two lines):\n%s", strings.Join(got, "\n"))
	}
	// Again: what is there is shown. Anew: only a folder of the demo is removed.
	if code, out, errs = varve(t, "demo", "--data", data, "--log-level", "warn"); code != exitDone || !strings.Contains(errs, "--fresh") || !strings.Contains(out, "2017") {
		t.Errorf("a second time: exit code %d, stderr %q", code, errs)
	}
	other := t.TempDir()
	if code, _, errs = varve(t, "demo", "--fresh", "--data", other); code != exitUsage || !strings.Contains(errs, "not made by the demo") {
		t.Errorf("--fresh on another folder: exit code %d, stderr %q", code, errs)
	}
}

func TestLoadRefuses(t *testing.T) {
	file := writeFile(t, "rows.jsonl", `{"id":1,"f":0.5,"o":[1,"x"]}`+"\n")
	good := writeFile(t, "good.jsonl", `{"id":1,"f":0.5}`+"\n")
	base := []string{"--table", "t", "--format", "rows-json"}
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"no table", []string{"--format", "rows-json", "--key", "id", good}, "--table"},
		{"no file", append(base, "--key", "id", "nowhere.jsonl"), "nowhere.jsonl"},
		{"no files", append(base, "--key", "id"), "usage: varve load FILE"},
		{"no key", append(base, good), "--append-only"},
		{"key and append-only", append(base, "--key", "id", "--append-only", good), "not both"},
		{"unknown format", []string{"--table", "t", "--format", "rows-jso", "--key", "id", good}, `did you mean "rows-json"`},
		{"no format", []string{"--table", "t", "--key", "id", good}, "--format"},
		{"column of several types", append(base, "--key", "id", file), `"o"`},
		{"key is no column", append(base, "--key", "idd", good), `"idd"`},
		{"key is a float", append(base, "--key", "f", good), "floats cannot be keys"},
		{"order is no column", append(base, "--key", "id", "--order", "ff", good), `did you mean "f"`},
		{"order is a float", append(base, "--key", "id", "--order", "f", good), "ordering column"},
		{"partition of no column", append(base, "--key", "id", "--partition-by", "day(at)", good), `"at" is no column`},
		{"partition of a wrong type", append(base, "--key", "id", "--partition-by", "day(id)", good), "cannot take a long"},
		{"on-error", append(base, "--key", "id", "--on-error", "skip", good), "dlq or stop"},
		{"format option", append(base, "--key", "id", "--format-option", "x", good), "name=value"},
		{"unknown format option", append(base, "--key", "id", "--format-option", "x=1", good), "x"},
		{"no schema file", append(base, "--key", "id", "--schema", "none.json", good), "none.json"},
		{"commit interval", append(base, "--key", "id", "--commit-interval", "soon", good), "is no duration"},
		{"no events", append(base, "--key", "id", "/dev/null"), "there are no events; give it with --schema"},
		{"partition of a record", append(base, "--records", writeFile(t, "records.jsonl", "{\"key\":{\"id\":1},\"value\":{\"v\":1}}\n\n{\"key\":{\"id\":1},\"value\":{\"v\":2},\"partition\":1}\n{\"key\":{\"id\":2}}\n")),
			"records.jsonl:3: the record names partition 1, and topic t has 0 to 0"},
		{"record", append(base, "--key", "id", "--records", good), "no record: unknown field \"id\""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := varve(t, append([]string{"load", "--data", t.TempDir(), "--log-level", "warn"}, tc.args...)...)
			if code != exitUsage || out != "" || !strings.Contains(errs, tc.want) {
				t.Errorf("exit code %d, want %d; stdout %q; stderr %q, want %q in it", code, exitUsage, out, errs, tc.want)
			}
		})
	}
}

// An event that cannot be taken is counted and told of, and its letter says where it was and why.
func TestLoadLetters(t *testing.T) {
	data := t.TempDir()
	schema := writeFile(t, "s.json", `{"type":"struct","fields":[{"id":1,"name":"id","type":"long","required":true},{"id":2,"name":"n","type":"int"}]}`)
	args := []string{"--data", data, "--table", "shop.t", "--format", "rows-json", "--key", "id", "--schema", schema, "-"}
	if r, errs := load(t, "{\"id\":1,\"n\":2}\n", args...); r.DeadLetters != 0 || strings.Contains(errs, "varve dlq") {
		t.Errorf("a good load: %+v, stderr %q", r, errs)
	}
	if got := run(t, "dlq", "list", "shop.t", "--each", "--data", data, "--output", "json", "--log-level", "warn"); strings.TrimSpace(got) != "[]" {
		t.Errorf("letters before there are any: %s", got)
	}
	r, errs := load(t, "{\"id\":2,\"n\":\"secret\"}\n{\"id\":3}\nno JSON\n", args...)
	if r.DeadLetters != 2 || r.Rows != 2 || !strings.Contains(errs, `2 event(s) could not be taken and are in topic shop.t.dlq; "varve dlq list shop.t" says why`) {
		t.Errorf("a load with letters: %+v, stderr %q", r, errs)
	}
	got := lines(run(t, "dlq", "list", "shop.t", "--each", "--data", data, "--output", "csv", "--log-level", "warn"))
	if len(got) != 3 || !strings.Contains(got[1], ",shop.t,0,1,shop.t,varve.") || !strings.Contains(got[1], "column \"\"n\"\"") || !strings.Contains(got[2], ",shop.t,0,3,shop.t,varve.") ||
		strings.Contains(strings.Join(got, "\n"), "secret") {
		t.Errorf("letters %q", got)
	}
	if got := lines(run(t, "dlq", "list", "shop.t", "--each", "--data", data, "--output", "csv", "--limit", "1", "--log-level", "warn")); len(got) != 2 {
		t.Errorf("one letter: %q", got)
	}
}

func TestLoadStopsOnError(t *testing.T) {
	code, out, errs := varveWith(t, nil, "{\"id\":1}\nno JSON\n{\"id\":2}\n", "load", "--data", t.TempDir(), "--table", "t", "--format", "rows-json", "--key", "id",
		"--on-error", "stop", "--log-level", "error", "-")
	if code != exitFailed || out != "" || !strings.Contains(errs, "offset 1") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out, errs)
	}
}

// Values of several megabytes, in good events and in bad ones (inputs, text edges).
func TestLoadLargeValues(t *testing.T) {
	data := t.TempDir()
	large := strings.Repeat("é", 2_500_000)
	schema := writeFile(t, "schema.json", `{"type":"struct","fields":[
		{"id":1,"name":"id","type":"long","required":true},{"id":2,"name":"s","type":"string","required":false}]}`)
	events := fmt.Sprintf(`{"id":1,"s":"%s"}`+"\n"+`{"id":"x","s":"%s"}`+"\n"+`{"id":2,"s":"b"}`, large, large)
	r, _ := load(t, events, "--data", data, "--table", "t", "--format", "rows-json", "--key", "id", "--schema", schema, "-")
	if r.Events != 3 || r.Rows != 2 || r.DeadLetters != 1 {
		t.Errorf("%+v", r)
	}
	got := scanned(t, data, "t")
	if len(got) != 2 || got[0] != "1,"+large || got[1] != "2,b" {
		t.Errorf("%d rows, the first of %d bytes", len(got), len(got[0]))
	}
}

// A configuration that differs from the table is wrong usage.
func TestLoadIntoAnotherDefinition(t *testing.T) {
	data := t.TempDir()
	in := "{\"id\":1,\"b\":2}\n"
	load(t, in, "--data", data, "--table", "t", "--format", "rows-json", "--key", "id", "-")
	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--key", "b"}, exitUsage, "table t has key id, not b; leave it out"},
		{[]string{"--append-only"}, exitUsage, "table t has key id and cannot be one that only gains rows"},
		{[]string{"--format", "debezium-json"}, exitUsage, "table t has format rows-json, not debezium-json"},
		{[]string{"--order", "b"}, exitUsage, "table t has another ordering column"},
		{[]string{"--topic", "other"}, exitUsage, "table t has source topic t, not other"},
		{[]string{"--partition-by", "bucket(4, id)"}, exitUsage, "table t is partitioned otherwise"},
		{[]string{"--format-option", "tombstone=ignore"}, exitUsage, "without the option tombstone=ignore"},
		{[]string{"--partitions", "3"}, exitUsage, "source topic t has 1 partition(s), not 3"},
		{[]string{"--commit-interval", "5s"}, exitDone, "note: table t keeps its own commit interval, 1000 ms; change it with \"varve table alter t --commit-interval\""},
		{[]string{"--commit-interval", "1s"}, exitDone, ""},
		{[]string{"--property", "a=b"}, exitDone, `note: table t keeps its own property a; set it with "varve table alter t --set"`},
	}
	for _, tc := range tests {
		code, _, errs := varveWith(t, nil, in, append([]string{"load", "--data", data, "--table", "t", "-", "--log-level", "error"}, tc.args...)...)
		if code != tc.code || !strings.Contains(errs, tc.want) || tc.want == "" && errs != "" {
			t.Errorf("%v: exit code %d, want %d; stderr %q, want %q in it", tc.args, code, tc.code, errs, tc.want)
		}
	}
}

func TestParseRecord(t *testing.T) {
	for line, want := range map[string]string{
		`{"key":null,"value":{"a":1}}`:                          `nil {"a":1} -1`,
		`{"value":[1, 2]}`:                                      `nil [1, 2] -1`,
		`{"key":5,"value":null,"partition":3}`:                  `5 nil 3`,
		`{"key":"k\u00e9y","value":""}`:                         `kéy  -1`,
		`{"key_base64":"AAE=","value":"x"}`:                     "\x00\x01 x -1",
		`{"key":null,"key_base64":"AAE=","value":true}`:         "\x00\x01 true -1",
		`{"value":1,"headers":{"b":null,"a":"t","c":{"x": 1}}}`: `nil 1 -1 a=t b=nil c={"x": 1}`,
		`{"value":12345678901234567890,"headers":{}}`:           `nil 12345678901234567890 -1`,
		`{"k":1}`:                             `error: unknown field "k"`,
		`{"key":1,"key_base64":"AAE="}`:       `error: one form only`,
		`{"key_base64":"?"}`:                  `error: base64`,
		`{"value":1} x`:                       `error: text behind`,
		`{"value":1`:                          `error: ends too early`,
		`[1]`:                                 `error: wrong type`,
		`{"partition":-1,"value":1}`:          `error: partition is -1`,
		`{"partition":"a","value":1}`:         `error: partition is of the wrong type`,
		`{"value":1,"headers":[1]}`:           `error: headers is of the wrong type`,
		`nonsense`:                            `error: ill-formed JSON at byte`,
		`{"value":1,"partition":99999999999}`: `error: partition is of the wrong type`,
		`{"value":1,"headers":{"a":"\ud800"},"key":{"a":"\""}} `: "{\"a\":\"\\\"\"} 1 -1 a=\ufffd",
	} {
		e, err := parseRecord([]byte(line))
		if want, isErr := strings.CutPrefix(want, "error: "); isErr {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %+v, %v; want an error with %q", line, e, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		text := func(b []byte) string {
			if b == nil {
				return "nil"
			}
			return string(b)
		}
		got := fmt.Sprintf("%s %s %d", text(e.Key), text(e.Value), e.Partition)
		for _, h := range e.Headers {
			got += " " + h.Key + "=" + text(h.Value)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"key":{"id":1},"value":null,"headers":{"a":"b"},"partition":1}`))
	f.Add([]byte(`{"key_base64":"AAE=","value_base64":""}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := parseRecord(line)
		if (e == nil) == (err == nil) {
			t.Errorf("%q: record %v, error %v", line, e, err)
		}
	})
}

func FuzzParseWhere(f *testing.F) {
	for _, s := range []string{"a = 1", "a is not null and `b c` <> 'x''y'", "\"q\" >= 2026-08-01T00:00:00Z", "a ="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		cs, err := parseWhere(s)
		if (len(cs) == 0) == (err == nil) {
			t.Errorf("%q: %v, error %v", s, cs, err)
		}
	})
}

func TestSplitTerms(t *testing.T) {
	got := splitTerms([]string{"day(a), bucket(16, b)", "c", "", "truncate(4,`d,e`),f"})
	if want := []string{"day(a)", "bucket(16, b)", "c", "truncate(4,`d,e`)", "f"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Without record keys a row that moves to another key cannot go to two
// partitions at once (K5).
func TestLoadKeyChangeOverPartitions(t *testing.T) {
	var in strings.Builder
	for i := range 20 {
		fmt.Fprintf(&in, `{"before":{"id":%d},"after":{"id":%d},"op":"u"}`+"\n", i, i+100)
	}
	args := []string{"load", "--table", "t", "--format", "debezium-json", "--key", "id", "-"}
	code, _, errs := varveWith(t, nil, in.String(), append(args, "--data", t.TempDir(), "--partitions", "8")...)
	if code != exitUsage || !strings.Contains(errs, "stdin:") || !strings.Contains(errs, "--records") {
		t.Errorf("over partitions: exit code %d, stderr %q", code, errs)
	}
	if code, _, errs = varveWith(t, nil, in.String(), append(args, "--data", t.TempDir())...); code != exitDone {
		t.Errorf("in one partition: exit code %d, stderr %q", code, errs)
	}
}

func TestProgress(t *testing.T) {
	var out strings.Builder
	a := &app{streams: streams{err: &out}}
	p := a.progress()
	p.set(0.5, "early")
	p.last = p.last.Add(-progressLines)
	p.set(0.256, "%d events published", 7)
	p.last = p.last.Add(-progressLines)
	p.set(-1, "of no known end")
	p.terminal, p.last = true, p.last.Add(-progressBar)
	p.set(1, "done")
	p.last = p.last.Add(-progressBar)
	p.set(-1, "x")
	p.done()
	bar := "[" + strings.Repeat("█", barWidth) + "] 100%  done"
	want := "7 events published (26%)\nof no known end\n\r" + bar + "\rx" + strings.Repeat(" ", textWidth(bar)-1) + "\r \r"
	if got := out.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	a.quiet = true
	p = a.progress()
	p.last = p.last.Add(-progressLines)
	p.set(0.5, "quiet")
	if out.String() != want {
		t.Error("--quiet is not quiet")
	}
}

// A value that no column can hold is a dead letter, also among the events that
// the schema is taken from. The row that it would have changed stays as it was,
// and the next good event heals it (K7).
func TestLoadSampledOutOfRange(t *testing.T) {
	data := t.TempDir()
	r, notes := load(t, "{\"id\":1,\"n\":5}\n{\"id\":2,\"n\":99999999999999999999}\n{\"id\":3,\"n\":6}\n{\"id\":3,\"n\":99999999999999999999}\n",
		"--data", data, "--table", "t", "--format", "rows-json", "--key", "id", "-")
	if r.Events != 4 || r.DeadLetters != 2 || !strings.Contains(notes, `column "n" is a long`) || !strings.Contains(notes, "decimal") {
		t.Errorf("%+v, %s", r, notes)
	}
	wantRows(t, scanned(t, data, "t"), "1,5", "3,6")
	if r, _ = load(t, "{\"id\":3,\"n\":7}\n{\"id\":2,\"n\":8}\n", "--data", data, "--table", "t", "-"); r.DeadLetters != 0 {
		t.Errorf("%+v", r)
	}
	wantRows(t, scanned(t, data, "t"), "1,5", "2,8", "3,7")
}
