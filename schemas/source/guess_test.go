package source

import "testing"

func TestGuess(t *testing.T) {
	for value, want := range map[string]string{
		`{"op":"c","after":{"id":1}}`: DebeziumJSON, `{"schema":{},"payload":{"op":"d","before":{"id":1}}}`: DebeziumJSON, `{"id":1}`: RowsJSON,
		`{"op_type":"I","after":{}}`: GoldenGate, `{"mysqlType":{},"data":[]}`: Canal, `{"database":"d","table":"t","type":"insert","data":{}}`: Maxwell,
		`{"data":{},"metadata":{}}`: DMS, "x": "", "": "", "[1]": "", "\x00\x00\x00\x00\x01{\"id\":1}": RowsJSON,
	} {
		if got := Guess(nil, &Record{Value: []byte(value)}); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
	name := "a"
	for _, d := range dialects(t) {
		want := d.format
		if want == VarveAvro {
			continue // its header is no registry's
		}
		if got := Guess(suiteRegistry, &Record{Value: d.upsert(t, 1, &name, 1)}); got != want {
			t.Errorf("%s looks like %q", d.format, got)
		}
	}
}
