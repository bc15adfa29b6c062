package main

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/linkedin/goavro/v2"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
)

// framedAvro is a value in Confluent's framing, as base64.
func framedAvro(t *testing.T, id int, schema string, value any) string {
	t.Helper()
	c, err := goavro.NewCodec(schema)
	if err != nil {
		t.Fatal(err)
	}
	b := binary.BigEndian.AppendUint32([]byte{0}, uint32(id))
	if b, err = c.BinaryFromNative(b, value); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b)
}

// Debezium's Avro from a registry: the table's schema comes from there, a
// column joins with the second writer's schema, and while the registry is away
// events wait; none becomes a dead letter that is none.
func TestLoadFromRegistry(t *testing.T) {
	reg := srfake.New()
	defer reg.Close()
	type m = map[string]any
	envelope := func(extra string) string {
		return `{"type":"record","name":"Envelope","fields":[
			{"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"v","type":["null","string"]}` + extra + `]}],"default":null},
			{"name":"after","type":["null","Value"],"default":null},{"name":"op","type":"string"}]}`
	}
	register := func(schema string) int {
		id, _, err := reg.RegisterSchema("t-value", sr.Schema{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	one, two := envelope(""), envelope(`,{"name":"n","type":"int","default":7}`)
	idOne, idTwo := register(one), register(two)
	heartbeat := `{"type":"record","name":"Heartbeat","fields":[{"name":"ts_ms","type":"long"}]}`
	beat := register(heartbeat)

	row := func(id int64, v string) m { return m{"Value": m{"id": id, "v": m{"string": v}}} }
	line := func(value string) string { return fmt.Sprintf(`{"key":null,"value_base64":%q}`, value) }
	first := strings.Join([]string{
		line(framedAvro(t, idOne, one, m{"before": nil, "after": row(1, "a"), "op": "c"})),
		line(framedAvro(t, idOne, one, m{"before": nil, "after": row(2, "b"), "op": "r"})),
		line(framedAvro(t, idOne, one, m{"before": row(2, "b"), "after": row(3, "c"), "op": "u"})),
		line(framedAvro(t, beat, heartbeat, m{"ts_ms": int64(1)})),
		line(base64.StdEncoding.EncodeToString([]byte{0, 0, 0, 0, byte(idOne), 9})),
	}, "\n")
	data := t.TempDir()
	args := []string{"--data", data, "--table", "t", "--format", "debezium-avro", "--key", "id", "--records", "--schema-registry", reg.URL(), "-"}
	r, _ := load(t, first, args...)
	if r.Events != 5 || r.Rows != 2 || r.DeadLetters != 1 {
		t.Fatalf("%+v", r)
	}
	wantRows(t, scanned(t, data, "t"), "1,a", "3,c")

	var refused atomic.Int32
	reg.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		if refused.Load() == 3 {
			return false
		}
		refused.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	added := m{"Value": m{"id": int64(4), "v": nil, "n": int32(8)}}
	r, errs := load(t, line(framedAvro(t, idTwo, two, m{"before": nil, "after": added, "op": "c"})), args...)
	if r.Rows != 3 || r.DeadLetters != 0 || refused.Load() != 3 || !strings.Contains(errs, "the schema registry is away") {
		t.Fatalf("%+v, %d refusals\n%s", r, refused.Load(), errs)
	}
	wantRows(t, scanned(t, data, "t"), "1,a,7", "3,c,7", "4,,8")
}

// Protobuf values and keys, with a schema that refers to another; JSON rows by
// their JSON Schema.
func TestLoadProtobufAndJSONSchema(t *testing.T) {
	reg := srfake.New()
	defer reg.Close()
	register := func(subject string, s sr.Schema) int {
		t.Helper()
		id, _, err := reg.RegisterSchema(subject, s)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	register("status", sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; package shop; enum Status { NEW = 0; PAID = 1; }`})
	value := register("o-value", sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; import "status.proto"; message Order { int64 id = 1; optional string v = 2; shop.Status s = 3; }`,
		References: []sr.SchemaReference{{Name: "status.proto", Subject: "status", Version: 1}}})
	key := register("o-key", sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; message Key { int64 id = 1; }`})
	frame := func(id int, body ...byte) string {
		return base64.StdEncoding.EncodeToString(append(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), 0), body...))
	}
	in := strings.Join([]string{
		fmt.Sprintf(`{"key_base64":%q,"value_base64":%q}`, frame(key, 0x08, 1), frame(value, 0x08, 1, 0x12, 1, 'a', 0x18, 1)),
		fmt.Sprintf(`{"key_base64":%q,"value_base64":%q}`, frame(key, 0x08, 2), frame(value, 0x08, 2)),
		fmt.Sprintf(`{"key_base64":%q,"value_base64":%q}`, frame(key, 0x08, 3), frame(value, 0x08, 3, 0x12, 1, 'c')),
		fmt.Sprintf(`{"key_base64":%q,"value":null}`, frame(key, 0x08, 3)),
		fmt.Sprintf(`{"key_base64":%q,"value_base64":%q}`, frame(key, 0x08, 4), frame(value, 0x08)),
	}, "\n")
	data := t.TempDir()
	r, _ := load(t, in, "--data", data, "--table", "o", "--format", "rows-protobuf", "--key", "id", "--records", "--schema-registry", reg.URL(), "-")
	if r.Events != 5 || r.Rows != 2 || r.DeadLetters != 1 {
		t.Fatalf("%+v", r)
	}
	wantRows(t, scanned(t, data, "o"), "1,a,PAID", "2,,NEW")

	rows := register("j-value", sr.Schema{Type: sr.TypeJSON, Schema: `{"type":"object","properties":{"id":{"type":"integer"},"at":{"type":"string","format":"date-time"}},"required":["id"]}`})
	line := fmt.Sprintf(`{"value_base64":%q}`, base64.StdEncoding.EncodeToString(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(rows)), `{"id":1,"at":"2026-08-01T10:00:00Z"}`...)))
	r, _ = load(t, line, "--data", data, "--table", "j", "--format", "rows-json-schema", "--key", "id", "--records", "--schema-registry", reg.URL(), "-")
	if r.Rows != 1 || r.DeadLetters != 0 {
		t.Fatalf("%+v", r)
	}
	wantLines(t, run(t, "table", "show", "j", "--data", data), "timestamptz")
}
