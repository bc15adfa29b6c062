package main

import (
	"strings"
	"testing"
)

// Every type, at its edges, from an event through a data file and an
// independent reader to a row of scan, and as a value of --where.
func TestScanEveryType(t *testing.T) {
	const id = "123e4567-e89b-12d3-a456-426614174000"
	columns := []struct{ name, typ, event, want, where string }{
		{"bo", "boolean", `true`, `true`, "= true"},
		{"i", "int", `-2147483648`, `-2147483648`, "<= -2147483648"},
		{"l", "long", `9223372036854775807`, `9223372036854775807`, "= 9223372036854775807"},
		{"f", "float", `0.1`, `0.1`, "= 0.1"},
		{"d", "double", `1e-320`, `1e-320`, "> 0"},
		{"de", "decimal(38, 10)", `"-1234567890123456789012345678.0123456789"`, `"-1234567890123456789012345678.0123456789"`, "< -1234567890123456789012345678.0123456788"},
		{"ds", "decimal(9, 2)", `"0.05"`, `"0.05"`, "= 0.05"},
		{"da", "date", `"1969-12-31"`, `"1969-12-31"`, "< 1970-01-01"},
		{"ti", "time", `"23:59:59.999999"`, `"23:59:59.999999"`, "> 23:59:59"},
		{"ts", "timestamp", `"0001-01-01T00:00:00"`, `"0001-01-01T00:00:00.000000"`, "< 0001-01-02"},
		{"tz", "timestamptz", `"2026-08-01T12:00:00.000001+02:00"`, `"2026-08-01T10:00:00.000001+00:00"`, "= 2026-08-01T10:00:00.000001Z"},
		{"tn", "timestamp_ns", `"2026-08-01T12:00:00.123456789"`, `"2026-08-01T12:00:00.123456789"`, "> 2026-08-01T12:00:00.123456788"},
		{"tzn", "timestamptz_ns", `"1969-12-31T23:59:59.999999999Z"`, `"1969-12-31T23:59:59.999999999+00:00"`, "< 1970-01-01"},
		{"s", "string", `"x'y\u0000\n"`, `"x'y\u0000\n"`, ">= 'x''y'"},
		{"fx", "fixed[3]", `"AAEC"`, `"000102"`, "is not null"},
		{"bi", "binary", `"3q2+7w=="`, `"deadbeef"`, "is not null"},
	}
	schema := `{"type":"struct","fields":[{"id":1,"name":"id","type":"uuid","required":true}`
	event, want, nulls := `{"id":"`+id+`"`, `{"id":"`+id+`"`, `{"id":"00000000-0000-0000-0000-000000000001"`
	for i, c := range columns {
		schema += `,{"id":` + string(appendJSON(nil, i+2)) + `,"name":"` + c.name + `","type":"` + c.typ + `","required":false}`
		event += `,"` + c.name + `":` + c.event
		want += `,"` + c.name + `":` + c.want
		nulls += `,"` + c.name + `":null`
	}
	data := t.TempDir()
	_, errs := load(t, event+"}\n"+`{"id":"00000000-0000-0000-0000-000000000001"}`+"\n", "--data", data, "--table", "t", "--format", "rows-json", "--key", "id",
		"--schema", writeFile(t, "schema.json", schema+"]}"), "-")
	wantLines(t, errs, `warning: column "ti" is a time`)
	if got := run(t, "scan", "t", "--data", data, "--output", "jsonl"); got != nulls+"}\n"+want+"}\n" {
		t.Errorf("got\n%swant\n%s}\n%s}\n", got, nulls, want)
	}
	for _, c := range append(columns, struct{ name, typ, event, want, where string }{"id", "uuid", "", "", "= " + id}) {
		if got := run(t, "scan", "t", "--data", data, "--output", "csv", "--columns", "id", "--where", c.name+" "+c.where); got != "id\n"+id+"\n" {
			t.Errorf("%s %s: got %q", c.name, c.where, got)
		}
	}
	for _, name := range []string{"fx", "bi"} {
		if code, _, errs := varve(t, "scan", "t", "--data", data, "--where", name+" = 00"); code != exitUsage || !strings.Contains(errs, "does not compare") {
			t.Errorf("%s: exit code %d, stderr %q", name, code, errs)
		}
	}
}

func TestNaNInWhere(t *testing.T) {
	data := t.TempDir()
	load(t, "{\"id\":1,\"d\":\"NaN\"}\n{\"id\":2,\"d\":1.5}\n{\"id\":3}\n", "--data", data, "--table", "t", "--format", "rows-json", "--key", "id",
		"--schema", writeFile(t, "s.json", `{"type":"struct","fields":[{"id":1,"name":"id","type":"long","required":true},{"id":2,"name":"d","type":"double","required":false}]}`), "-")
	for where, want := range map[string]string{"d > 1": "2", "d != 1.5": "1", "d is null": "3", "d < 9": "2"} {
		wantRows(t, scanned(t, data, "t", "--where", where, "--columns", "id"), want)
	}
}
