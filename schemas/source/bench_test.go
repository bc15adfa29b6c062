//go:build unix

package source

import (
	"bytes"
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/linkedin/goavro/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// customer is a Debezium event of 423 bytes.
func customer(id int) []byte {
	return fmt.Appendf(nil, `{"before":null,"after":{"id":%07d,"first_name":"Sally","last_name":"Thomas","email":"sally.thomas@acme.com"},`+
		`"source":{"version":"2.7.0.Final","connector":"mysql","name":"dbserver1","ts_ms":1661327688868,"snapshot":"false",`+
		`"db":"inventory","sequence":null,"table":"customers","server_id":223344,"gtid":null,"file":"mysql-bin.000003",`+
		`"pos":157,"row":0,"thread":7,"query":null},"op":"c","ts_ms":1661327688868,"transaction":null}`, 1000000+id)
}

const customerColumns = "id int\nfirst_name string\nlast_name string\nemail string"

const customerRow = `{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"},` +
	`{"type":"string","optional":false,"field":"first_name"},{"type":"string","optional":false,"field":"last_name"},` +
	`{"type":"string","optional":false,"field":"email"}],"optional":true,"name":"dbserver1.inventory.customers.Value","field":`

const customerSchema = `{"type":"struct","fields":[` + customerRow + `"before"},` + customerRow + `"after"},` +
	`{"type":"struct","fields":[{"type":"string","optional":false,"field":"version"},{"type":"string","optional":false,"field":"connector"},` +
	`{"type":"string","optional":false,"field":"name"},{"type":"int64","optional":false,"field":"ts_ms"},` +
	`{"type":"string","optional":true,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"true,last,false,incremental"},"default":"false","field":"snapshot"},` +
	`{"type":"string","optional":false,"field":"db"},{"type":"string","optional":true,"field":"sequence"},{"type":"string","optional":true,"field":"table"},` +
	`{"type":"int64","optional":false,"field":"server_id"},{"type":"string","optional":true,"field":"gtid"},{"type":"string","optional":false,"field":"file"},` +
	`{"type":"int64","optional":false,"field":"pos"},{"type":"int32","optional":false,"field":"row"},{"type":"int64","optional":true,"field":"thread"},` +
	`{"type":"string","optional":true,"field":"query"}],"optional":false,"name":"io.debezium.connector.mysql.Source","field":"source"},` +
	`{"type":"string","optional":false,"field":"op"},{"type":"int64","optional":true,"field":"ts_ms"},` +
	`{"type":"struct","fields":[{"type":"string","optional":false,"field":"id"},{"type":"int64","optional":false,"field":"total_order"},` +
	`{"type":"int64","optional":false,"field":"data_collection_order"}],"optional":true,"field":"transaction"}],"optional":false,"name":"dbserver1.inventory.customers.Envelope"}`

// stdEvent is what a reader by encoding/json fills.
type stdEvent struct {
	Before, After *struct {
		ID        int32  `json:"id"`
		FirstName string `json:"first_name"`
		LastName  string `json:"last_name"`
		Email     string `json:"email"`
	}
	Source struct {
		TsMs int64 `json:"ts_ms"`
	}
	Op string
}

// cpu is the processor time of this process: benchmarks compare it, because
// neighbours on a shared machine take turns in elapsed time.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano())
}

// benchEvents decodes n distinct events over and over, and encoding/json
// beside it: the ratio says how many times faster the decoder is.
func benchEvents(b *testing.B, dec Decoder, def *schemas.Definition, events [][]byte, std func([]byte) error) {
	benchBeside(b, dec, def, events, "x-encoding/json", std)
}

func benchBeside(b *testing.B, dec Decoder, def *schemas.Definition, events [][]byte, beside string, std func([]byte) error) {
	batch := rows.NewBatch(def.Schema())
	rec := &Record{}
	run := func(n int) time.Duration {
		start := cpu(b)
		for i := range n {
			if batch.Len() == 8192 {
				batch.Reset()
			}
			rec.Value = events[i%len(events)]
			if _, err := dec.Decode(batch, rec); err != nil {
				b.Fatal(err)
			}
		}
		return cpu(b) - start
	}
	run(20000)
	b.SetBytes(int64(len(events[0])))
	b.ReportAllocs()
	b.ResetTimer()
	took := run(b.N)
	b.StopTimer()
	if std == nil || b.N < 1000 {
		return
	}
	n := min(b.N, 20000)
	start := cpu(b)
	for i := range n {
		if err := std(events[i%len(events)]); err != nil {
			b.Fatal(err)
		}
	}
	ours := took.Seconds() / float64(b.N)
	b.ReportMetric(ours*1e9, "cpu-ns/op")
	b.ReportMetric((cpu(b)-start).Seconds()/float64(n)/ours, beside)
}

func BenchmarkDebeziumJSON(b *testing.B) {
	var events, wrapped, updates [][]byte
	for i := range 1000 {
		e := customer(i)
		events = append(events, e)
		wrapped = append(wrapped, fmt.Appendf(nil, `{"schema":%s,"payload":%s}`, customerSchema, e))
		after := e[bytes.Index(e, []byte(`"after":`))+8:]
		after = after[:bytes.IndexByte(after, '}')+1]
		u := bytes.Replace(e, []byte(`"before":null`), append([]byte(`"before":`), after...), 1)
		updates = append(updates, bytes.Replace(u, []byte(`"op":"c"`), []byte(`"op":"u"`), 1))
	}
	def := table(b, customerColumns, "id")
	def.Order = schemas.Order{Kind: schemas.OrderByPath, Path: "source.ts_ms"}
	std := func(v []byte) error { return json.Unmarshal(v, new(stdEvent)) }
	b.Run("create", func(b *testing.B) { benchEvents(b, decoder(b, DebeziumJSON, def), def, events, std) })
	b.Run("update", func(b *testing.B) { benchEvents(b, decoder(b, DebeziumJSON, def), def, updates, std) })
	b.Run("wrapped", func(b *testing.B) {
		benchEvents(b, decoder(b, DebeziumJSON, def), def, wrapped, func(v []byte) error {
			return json.Unmarshal(v, &struct {
				Schema  connectSchema
				Payload stdEvent
			}{})
		})
	})
}

func BenchmarkRowsJSON(b *testing.B) {
	var events [][]byte
	for i := range 1000 {
		events = append(events, fmt.Appendf(nil, `{"id":%d,"first_name":"Sally","last_name":"Thomas","email":"sally.thomas@acme.com"}`, i))
	}
	def := table(b, customerColumns, "id")
	benchEvents(b, decoder(b, RowsJSON, def), def, events, func(v []byte) error {
		return json.Unmarshal(v, &struct {
			ID        int32  `json:"id"`
			FirstName string `json:"first_name"`
			LastName  string `json:"last_name"`
			Email     string `json:"email"`
		}{})
	})
}

func BenchmarkFraming(b *testing.B) {
	dec := decoder(b, DebeziumJSON, table(b, customerColumns, "id"))
	for name, key := range map[string]string{
		"plain":   `{"id":1000001}`,
		"wrapped": `{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],"optional":false,"name":"dbserver1.inventory.customers.Key"},"payload":{"id":1000001}}`,
	} {
		b.Run(name, func(b *testing.B) {
			k := []byte(key)
			start := cpu(b)
			for range b.N {
				dec.Framing(k)
			}
			b.ReportMetric(float64(cpu(b)-start)/float64(b.N), "cpu-ns/op")
		})
	}
}

// customerEnvelope is the Avro schema of customer's events.
const customerEnvelope = `{"type":"record","name":"Envelope","namespace":"dbserver1.inventory.customers","fields":[
	{"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"id","type":"int"},{"name":"first_name","type":"string"},
		{"name":"last_name","type":"string"},{"name":"email","type":"string"}]}],"default":null},
	{"name":"after","type":["null","Value"],"default":null},
	{"name":"source","type":{"type":"record","name":"Source","fields":[{"name":"version","type":"string"},{"name":"connector","type":"string"},
		{"name":"name","type":"string"},{"name":"ts_ms","type":"long"},{"name":"snapshot","type":["string","null"],"default":"false"},{"name":"db","type":"string"},
		{"name":"table","type":["null","string"]},{"name":"server_id","type":"long"},{"name":"file","type":"string"},{"name":"pos","type":"long"},{"name":"row","type":"int"}]}},
	{"name":"op","type":"string"},{"name":"ts_ms","type":["null","long"],"default":null}]}`

// BenchmarkRegistryAvro decodes Debezium's Avro in Confluent's framing, and
// goavro beside it into its maps.
func BenchmarkRegistryAvro(b *testing.B) {
	codec, err := goavro.NewCodec(customerEnvelope)
	if err != nil {
		b.Fatal(err)
	}
	var creates, updates [][]byte
	for i := range 1000 {
		row := m{"dbserver1.inventory.customers.Value": m{"id": int32(1000000 + i), "first_name": "Sally", "last_name": "Thomas", "email": "sally.thomas@acme.com"}}
		event := m{"before": nil, "after": row, "op": "c", "ts_ms": m{"long": int64(1661327688868)},
			"source": m{"version": "2.7.0.Final", "connector": "mysql", "name": "dbserver1", "ts_ms": int64(1661327688868), "snapshot": m{"string": "false"}, "db": "inventory",
				"table": m{"string": "customers"}, "server_id": int64(223344), "file": "mysql-bin.000003", "pos": int64(157), "row": int32(0)}}
		creates = append(creates, confluent(b, 9, customerEnvelope, event))
		event["before"], event["op"] = row, "u"
		updates = append(updates, confluent(b, 9, customerEnvelope, event))
	}
	reg := &registry{byRef: map[SchemaRef]WriterSchema{{ID: 9}: {Type: TypeAvro, Text: customerEnvelope}}}
	def := table(b, customerColumns, "id")
	def.Order = schemas.Order{Kind: schemas.OrderByPath, Path: "source.ts_ms"}
	for _, c := range []struct {
		name   string
		events [][]byte
	}{{"create", creates}, {"update", updates}} {
		b.Run(c.name, func(b *testing.B) {
			dec, err := New(Options{Format: DebeziumAvro, Def: def, Schema: def.Schema(), Registry: reg})
			if err != nil {
				b.Fatal(err)
			}
			benchBeside(b, dec, def, c.events, "x-goavro", func(v []byte) error {
				_, _, err := codec.NativeFromBinary(v[5:])
				return err
			})
		})
	}
}

// BenchmarkChanges decodes the envelopes of other tools.
func BenchmarkChanges(b *testing.B) {
	const row = `{"id":%d,"first_name":"Sally","last_name":"Thomas","email":"sally.thomas@acme.com"}`
	for _, c := range []struct{ format, event string }{
		{Maxwell, `{"database":"inventory","table":"customers","type":"insert","ts":1666937996,"xid":1171,"commit":true,"data":` + row + `}`},
		{Canal, `{"data":[{"id":"%d","first_name":"Sally","last_name":"Thomas","email":"sally.thomas@acme.com"}],"database":"inventory","es":1668673394000,"id":5,"isDdl":false,` +
			`"mysqlType":{"id":"int","first_name":"varchar(40)","last_name":"varchar(40)","email":"varchar(40)"},"old":null,"pkNames":null,"sql":"","table":"customers","ts":1668673394788,"type":"INSERT"}`},
		{DMS, `{"data":` + row + `,"metadata":{"timestamp":"2024-10-27T12:39:03.210671Z","record-type":"data","operation":"insert","partition-key-type":"schema-table","schema-name":"test","table-name":"product"}}`},
		{GoldenGate, `{"table":"S.T","op_type":"I","op_ts":"2024-10-27 12:39:03.210671","current_ts":"2024-10-27T12:39:05","pos":"00000000000000001234","after":` + row + `}`},
	} {
		b.Run(c.format, func(b *testing.B) {
			var events [][]byte
			for i := range 1000 {
				events = append(events, fmt.Appendf(nil, c.event, 1000000+i))
			}
			def := table(b, customerColumns, "id")
			benchEvents(b, decoder(b, c.format, def), def, events, func(v []byte) error { return json.Unmarshal(v, new(map[string]any)) })
		})
	}
}
