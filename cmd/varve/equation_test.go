package main

import (
	"strings"
	"testing"
)

// Of every format's records nothing is left over, and each is counted as what it
// is: upserts, a later one of the same key, a delete, one of an absent key, a
// control record, a bad one, and of a routed topic one of another table.
func TestEquationInAllFormats(t *testing.T) {
	debezium := []string{`{"after":{"id":1,"v":"a"},"source":{"table":"t"},"op":"c"}`, `{"before":null,"after":{"id":2,"v":"b"},"source":{"table":"t"},"op":"r"}`, `{"before":{"id":2},"after":{"id":2,"v":"c"},"source":{"table":"t"},"op":"u"}`,
		`{"before":{"id":1},"after":null,"source":{"table":"t"},"op":"d"}`, `{"before":{"id":9},"after":null,"source":{"table":"t"},"op":"d"}`, `{"op":"m","source":{"table":"t"},"message":{"prefix":"p"}}`, `{"after":{"id":null},"source":{"table":"t"},"op":"c"}`}
	for _, c := range []struct {
		name, format string
		options      []string
		lines        []string
		control      int64
		elsewhere    int64
	}{
		{"debezium", "debezium-json", nil, debezium, 1, 0},
		{"several", "debezium-json,rows-avro", nil, debezium, 1, 0},
		{"routed", "debezium-json", []string{"--format-option", "route.by=source.table", "--format-option", "route.match=t"},
			append([]string{`{"after":{"id":5,"x":1},"source":{"table":"u"},"op":"c"}`, `no JSON`}, debezium...), 1, 2},
		{"rows", "rows-json", nil, []string{`{"id":1,"v":"a"}`, `{"id":2,"v":"b"}`, `{"id":2,"v":"c"}`, `{"id":1,"v":"a","__deleted":"true"}`, `{"id":9,"__deleted":true}`, `{"id":null}`}, 0, 0},
		{"maxwell", "maxwell", nil, []string{`{"database":"d","table":"t","type":"insert","data":{"id":1,"v":"a"}}`, `{"database":"d","table":"t","type":"bootstrap-insert","data":{"id":2,"v":"b"}}`,
			`{"database":"d","table":"t","type":"update","data":{"id":2,"v":"c"},"old":{"v":"b"}}`, `{"database":"d","table":"t","type":"delete","data":{"id":1,"v":"a"}}`,
			`{"database":"d","table":"t","type":"delete","data":{"id":9}}`, `{"type":"bootstrap-start","database":"d","table":"t","data":{}}`, `{"database":"d","table":"t","type":"insert","data":{"id":null}}`}, 1, 0},
		{"canal", "canal-json", nil, []string{`{"database":"d","table":"t","type":"INSERT","isDdl":false,"data":[{"id":"1","v":"a"},{"id":"2","v":"b"}],"mysqlType":{"id":"bigint","v":"varchar(9)"}}`,
			`{"database":"d","table":"t","type":"UPDATE","isDdl":false,"data":[{"id":"2","v":"c"}],"old":[{"v":"b"}],"mysqlType":{"id":"bigint","v":"varchar(9)"}}`, `{"database":"d","table":"t","type":"DELETE","isDdl":false,"data":[{"id":"1","v":"a"},{"id":"9","v":"z"}],"mysqlType":{"id":"bigint","v":"varchar(9)"}}`,
			`{"database":"d","table":"t","type":"QUERY","isDdl":true,"sql":"x"}`, `{"database":"d","table":"t","type":"INSERT","isDdl":false,"data":[{"id":null}],"mysqlType":{"id":"bigint","v":"varchar(9)"}}`}, 1, 0},
		{"dms", "aws-dms", nil, []string{`{"data":{"id":1,"v":"a"},"metadata":{"record-type":"data","operation":"load"}}`, `{"data":{"id":2,"v":"b"},"metadata":{"record-type":"data","operation":"insert"}}`,
			`{"data":{"id":2,"v":"c"},"metadata":{"record-type":"data","operation":"update"}}`, `{"data":{"id":1,"v":"a"},"metadata":{"record-type":"data","operation":"delete"}}`, `{"data":{"id":9},"metadata":{"record-type":"data","operation":"delete"}}`,
			`{"control":{},"metadata":{"record-type":"control","operation":"create-table"}}`, `{"data":{"id":null},"metadata":{"record-type":"data","operation":"insert"}}`}, 1, 0},
		{"goldengate", "goldengate-json", nil, []string{`{"table":"T","op_type":"I","after":{"id":1,"v":"a"}}`, `{"table":"T","op_type":"I","after":{"id":2,"v":"b"}}`, `{"table":"T","op_type":"U","before":{"id":2,"v":"b"},"after":{"id":2,"v":"c"}}`,
			`{"table":"T","op_type":"D","before":{"id":1,"v":"a"}}`, `{"table":"T","op_type":"D","before":{"id":9}}`, `{"table":"T","op_type":"X"}`}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := t.TempDir()
			args := append([]string{"--data", data, "--table", "t", "--format", c.format, "--key", "id", "-"}, c.options...)
			r, _ := load(t, strings.Join(c.lines, "\n"), args...)
			if r.Rows != 1 || r.DeadLetters != 1 || r.Control != c.control || r.Elsewhere != c.elsewhere || r.Upserts+r.Superseded != 3 || r.Deletes+r.Absent != 2 || r.LateIgnored != 0 {
				t.Errorf("%+v", r)
			}
			wantRows(t, scanned(t, data, "t"), "2,c")
		})
	}
}
