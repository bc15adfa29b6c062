package main

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// The forms of every kind of value, in each mode.
func TestListingForms(t *testing.T) {
	cols := []string{"text", "n", "size", "at", "ok", "f", "list", "raw", "none"}
	first := []any{"a\"b", int64(-5), byteSize(1536), millis(0), true, 0.25, []string{"x", "y"}, json.RawMessage(`{"k": [1]}`), nil}
	second := []any{"", uint64(math.MaxUint64), byteSize(0), millis(1_785_542_400_123), false, math.Inf(-1), []string{}, json.RawMessage(nil), nil}
	want := map[outputMode]string{
		modeTable: "" +
			"text                     n    size  at                        ok        f  list  raw         none\n" +
			"────  ────────────────────  ──────  ────────────────────────  ─────  ────  ────  ──────────  ────\n" +
			"a\"b                     -5  1.5 kB  1970-01-01T00:00:00.000Z  true   0.25  x, y  {\"k\": [1]}  null\n" +
			"      18446744073709551615     0 B  2026-08-01T00:00:00.123Z  false  -Inf                    null\n",
		modeJSON: "[\n" +
			`  {"text":"a\"b","n":-5,"size":1536,"at":"1970-01-01T00:00:00.000Z","ok":true,"f":0.25,"list":["x","y"],"raw":{"k":[1]},"none":null},` + "\n" +
			`  {"text":"","n":18446744073709551615,"size":0,"at":"2026-08-01T00:00:00.123Z","ok":false,"f":"-Inf","list":[],"raw":null,"none":null}` + "\n]\n",
		modeJSONL: `{"text":"a\"b","n":-5,"size":1536,"at":"1970-01-01T00:00:00.000Z","ok":true,"f":0.25,"list":["x","y"],"raw":{"k":[1]},"none":null}` + "\n" +
			`{"text":"","n":18446744073709551615,"size":0,"at":"2026-08-01T00:00:00.123Z","ok":false,"f":"-Inf","list":[],"raw":null,"none":null}` + "\n",
		modeCSV: "text,n,size,at,ok,f,list,raw,none\n" +
			`"a""b",-5,1536,1970-01-01T00:00:00.000Z,true,0.25,"x,y","{""k"":[1]}",` + "\n" +
			`"",18446744073709551615,0,2026-08-01T00:00:00.123Z,false,-Inf,"",null,` + "\n",
	}
	for mode, want := range want {
		var b bytes.Buffer
		l := newListing(&b, mode, cols)
		for _, r := range [][]any{first, second} {
			if err := l.row(r...); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.close(); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("mode %d: got\n%s\nwant\n%s", mode, b.String(), want)
		}
		if mode == modeJSON && !json.Valid(b.Bytes()) {
			t.Error("the JSON form is not JSON")
		}
	}
}

func TestListingWithoutRows(t *testing.T) {
	for mode, want := range map[outputMode]string{modeTable: "a  b\n─  ─\n", modeJSON: "[]\n", modeJSONL: "", modeCSV: "a,b\n"} {
		var b bytes.Buffer
		if err := newListing(&b, mode, []string{"a", "b"}).close(); err != nil || b.String() != want {
			t.Errorf("mode %d: got %q, %v; want %q", mode, b.String(), err, want)
		}
	}
}

// Cells hold what other programs wrote: nothing of it may steer a terminal or
// break a line.
func TestTableCellsAreOneSafeLine(t *testing.T) {
	var b bytes.Buffer
	l := newListing(&b, modeTable, []string{"v"})
	for _, v := range []string{"a\nb", "\x1b[2J", "tab\there", "nul\x00", "\u202eright to left", "grüße 漢字"} {
		if err := l.row(v); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	want := "v\n───────────────────\na\\nb\n\\x1b[2J\ntab\\there\nnul\\x00\n\\u202eright to left\ngrüße 漢字\n"
	if got := b.String(); got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestTableStreamsBehindItsFirstRows(t *testing.T) {
	var b bytes.Buffer
	l := newListing(&b, modeTable, []string{"n"})
	for i := range holdRows + 1 {
		if err := l.row(int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(b.String(), "\n"); n != holdRows+3 {
		t.Errorf("%d lines are written before the end, want %d", n, holdRows+3)
	}
}

func TestShowForms(t *testing.T) {
	o := object{{"kind", "x"}, {"bytes", byteSize(2_500_000)}, {"rows", &rowset{cols: []string{"a", "b"}, rows: [][]any{{int64(1), "p"}, {int64(2), nil}}}}}
	want := map[string]string{
		"table": "kind   x\nbytes  2.5 MB\n\nrows\na  b\n─  ────\n1  p\n2  null\n",
		"json":  "{\n  \"kind\": \"x\",\n  \"bytes\": 2500000,\n  \"rows\": [\n    {\n      \"a\": 1,\n      \"b\": \"p\"\n    },\n    {\n      \"a\": 2,\n      \"b\": null\n    }\n  ]\n}\n",
		"jsonl": `{"kind":"x","bytes":2500000,"rows":[{"a":1,"b":"p"},{"a":2,"b":null}]}` + "\n",
		"csv":   "kind,bytes,rows\nx,2500000,\"[{\"\"a\"\":1,\"\"b\"\":\"\"p\"\"},{\"\"a\"\":2,\"\"b\"\":null}]\"\n",
	}
	for name, want := range want {
		mode, err := parseOutput(name)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		a := &app{streams: streams{out: &b}, mode: mode}
		if err := a.show(o); err != nil || b.String() != want {
			t.Errorf("%s: got\n%s%v\nwant\n%s", name, b.String(), err, want)
		}
	}
}
