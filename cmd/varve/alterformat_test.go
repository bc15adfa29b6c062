package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
)

// Files of Avro, and after a change of the converter of JSON, into one table: its
// format is altered before, and what its records were is read either way.
func TestAlterFormat(t *testing.T) {
	reg := srfake.New()
	defer reg.Close()
	type m = map[string]any
	const schema = `{"type":"record","name":"Envelope","namespace":"shop","fields":[
		{"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"at","type":["null",{"type":"long","connect.name":"io.debezium.time.Timestamp"}],"default":null}]}],"default":null},
		{"name":"after","type":["null","Value"],"default":null},{"name":"op","type":"string"}]}`
	id, _, err := reg.RegisterSchema("t-value", sr.Schema{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	avro := func(n, at int64) string {
		image := m{"shop.Value": m{"id": n, "at": m{"long": at}}}
		return fmt.Sprintf(`{"value_base64":%q}`, framedAvro(t, id, schema, m{"before": nil, "after": image, "op": "c"}))
	}
	data := t.TempDir()
	args := []string{"--data", data, "--table", "t", "--records", "--schema-registry", reg.URL(), "-"}
	r, _ := load(t, avro(1, 1000)+"\n"+avro(2, 2000), append([]string{"--format", "debezium-avro", "--key", "id"}, args...)...)
	if r.Rows != 2 || r.DeadLetters != 0 {
		t.Fatalf("%+v", r)
	}
	refuse := func(want string, args ...string) {
		t.Helper()
		code, _, errs := varve(t, append([]string{"table", "alter", "t", "--data", data}, args...)...)
		if code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
	refuse("not told apart", "--format", "debezium-avro,rows-avro")
	refuse("is unknown", "--format", "debezium-avro,jason")
	refuse("no option", "--format-option", "timestamp.unit=millis")
	refuse("--format", "--set", "varve.source.format=rows-json", "--format", "rows-json")
	refuse("one of millis", "--format", "debezium-avro,debezium-json", "--format-option", "timestamp.unit=weeks")
	run(t, "table", "alter", "t", "--data", data, "--format", "debezium-avro,debezium-json", "--format-option", "timestamp.unit=millis", "--quiet")
	wantLines(t, run(t, "table", "show", "t", "--data", data, "--output", "json"), `"format": "debezium-avro,debezium-json"`, `"option": "timestamp.unit"`)
	line := func(id, at int) string {
		b, err := json.Marshal(fmt.Sprintf(`{"before":null,"after":{"id":%d,"at":%d},"op":"u"}`, id, at))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{"value":%s}`, b)
	}
	r, _ = load(t, line(2, 5000)+"\n"+avro(3, 3000)+"\n"+line(4, 4000), append([]string{"--format", "debezium-json"}, args...)...)
	if r.Rows != 4 || r.DeadLetters != 0 {
		t.Fatalf("%+v", r)
	}
	if code, _, errs := varveWith(t, nil, "", append([]string{"load", "--format", "maxwell"}, args...)...); code != exitUsage || !strings.Contains(errs, "not maxwell") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	// All is read: the old format may go, and with it nothing but its options.
	run(t, "table", "alter", "t", "--data", data, "--format", "debezium-json", "--quiet")
	r, _ = load(t, line(5, 6000), args...)
	if r.Rows != 5 || r.DeadLetters != 0 {
		t.Fatalf("%+v", r)
	}
	wantRows(t, scanned(t, data, "t"), "1,1970-01-01T00:00:01.000000", "2,1970-01-01T00:00:05.000000", "3,1970-01-01T00:00:03.000000", "4,1970-01-01T00:00:04.000000", "5,1970-01-01T00:00:06.000000")
	code, out, errs := varve(t, "verify", "t", "--data", data, "--source")
	if code != exitDone || !strings.Contains(out+errs, "format of its source was changed") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	// An event that nobody has read yet may be of the format that would go.
	n := startNode(t, "--data", data, "--roles", "state,publisher", "--log-level", "warn")
	if code, _, errs := varveWith(t, nil, line(6, 7000), "produce", "--data", data, "--table", "t", "--records", "--quiet", "-"); code != exitDone {
		t.Fatal(errs, n.err.String())
	}
	refuse("has not read 1 records", "--format", "debezium-avro")
	refuse("--format debezium-json,debezium-avro", "--format", "debezium-avro")
	refuse("stop the producers", "--format", "rows-json")
	run(t, "table", "alter", "t", "--data", data, "--format", "rows-json", "--unread-too", "--quiet")
}
