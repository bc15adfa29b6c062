package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/linkedin/goavro/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
)

// Goals of one core, in events a second of processor time.
const (
	decodeJSONGoal = 400_000
	decodeAvroGoal = 500_000
	decodeEvents   = 1000 // distinct ones, decoded over and over
)

// decodeCase is one format's events and a plain decoder of them.
type decodeCase struct {
	name, format string
	goal         float64
	event        func(c *customer) ([]byte, error)
	beside       string
	plain        func([]byte) error
	schema       oneSchema
}

// decodeSchema is the Avro schema of a Debezium event of customers.
const decodeSchema = `{"type":"record","name":"Envelope","namespace":"inventory.customers","fields":[
	{"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"first_name","type":["null","string"]},
		{"name":"last_name","type":["null","string"]},{"name":"email","type":["null","string"]}]}],"default":null},
	{"name":"after","type":["null","Value"],"default":null},
	{"name":"source","type":{"type":"record","name":"Source","fields":[{"name":"version","type":"string"},{"name":"connector","type":"string"},
		{"name":"name","type":"string"},{"name":"ts_ms","type":"long"},{"name":"snapshot","type":["string","null"],"default":"false"},{"name":"db","type":"string"},
		{"name":"table","type":["null","string"]},{"name":"server_id","type":"long"},{"name":"file","type":"string"},{"name":"pos","type":"long"},{"name":"row","type":"int"}]}},
	{"name":"op","type":"string"},{"name":"ts_ms","type":["null","long"],"default":null}]}`

// decodeWrapper is what Kafka Connect's JsonConverter puts before an event.
const decodeWrapper = `{"schema":{"type":"struct","fields":[{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"},` +
	`{"type":"string","optional":true,"field":"first_name"},{"type":"string","optional":true,"field":"last_name"},{"type":"string","optional":true,"field":"email"}],` +
	`"optional":true,"name":"inventory.customers.Value","field":"before"},{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"},` +
	`{"type":"string","optional":true,"field":"first_name"},{"type":"string","optional":true,"field":"last_name"},{"type":"string","optional":true,"field":"email"}],` +
	`"optional":true,"name":"inventory.customers.Value","field":"after"}],"optional":false,"name":"inventory.customers.Envelope"},"payload":`

// decodeProto and decodeJSONSchema are the schemas of a plain row of customers.
const (
	decodeProto      = `syntax = "proto3"; message Customer { int64 id = 1; string first_name = 2; string last_name = 3; string email = 4; }`
	decodeJSONSchema = `{"type":"object","properties":{"id":{"type":"integer"},"first_name":{"type":"string"},"last_name":{"type":"string"},"email":{"type":"string"}}}`
)

// oneSchema is a registry that has one schema under every name.
type oneSchema struct{ kind, text string }

func (s oneSchema) WriterSchema(source.SchemaRef) (source.WriterSchema, error) {
	return source.WriterSchema{Type: s.kind, Text: s.text}, nil
}

// dynamicCustomers decodes customers in Protobuf as Go's own library does it
// without generated code.
func dynamicCustomers() (func([]byte) error, error) {
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("customer.proto"), Syntax: proto.String("proto3"), MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Customer")}},
	}
	for i, name := range []string{"id", "first_name", "last_name", "email"} {
		kind := descriptorpb.FieldDescriptorProto_TYPE_STRING
		if i == 0 {
			kind = descriptorpb.FieldDescriptorProto_TYPE_INT64
		}
		file.MessageType[0].Field = append(file.MessageType[0].Field, &descriptorpb.FieldDescriptorProto{
			Name: proto.String(name), Number: proto.Int32(int32(i + 1)), Type: &kind, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		})
	}
	fd, err := protodesc.NewFile(file, nil)
	if err != nil {
		return nil, err
	}
	m := dynamicpb.NewMessage(fd.Messages().Get(0))
	return func(v []byte) error { return proto.Unmarshal(v[6:], m) }, nil
}

func decodeCases() ([]decodeCase, error) {
	codec, err := goavro.NewCodec(decodeSchema)
	if err != nil {
		return nil, err
	}
	plainJSON := func(v []byte) error { return json.Unmarshal(v, new(map[string]any)) }
	row := func(c *customer) []byte {
		b := fmt.Appendf(nil, `{"id":%d,"first_name":"`, c.id)
		b = append(c.appendFirst(b), `","last_name":"`...)
		b = append(c.appendLast(b), `","email":"`...)
		return append(c.appendEmail(b), `"}`...)
	}
	around := func(before, after string) func(c *customer) ([]byte, error) {
		return func(c *customer) ([]byte, error) { return append(append([]byte(before), row(c)...), after...), nil }
	}
	type m = map[string]any
	avro := func(c *customer) ([]byte, error) {
		text := func(b []byte) m { return m{"string": string(b)} }
		return codec.BinaryFromNative(binary.BigEndian.AppendUint32([]byte{0}, 1), m{
			"before": nil, "op": "c", "ts_ms": m{"long": int64(1661327688868)},
			"after": m{"inventory.customers.Value": m{"id": c.id, "first_name": text(c.appendFirst(nil)), "last_name": text(c.appendLast(nil)), "email": text(c.appendEmail(nil))}},
			"source": m{"version": "2.7.0.Final", "connector": "mysql", "name": "dbserver1", "ts_ms": int64(1661327688868), "snapshot": m{"string": "false"}, "db": "inventory",
				"table": m{"string": "customers"}, "server_id": int64(223344), "file": "mysql-bin.000003", "pos": int64(157), "row": int32(0)},
		})
	}
	wrapped := func(c *customer) ([]byte, error) {
		b, err := debezium{}.upsert([]byte(decodeWrapper), c)
		return append(b, '}'), err
	}
	const stdlib = "encoding/json into maps"
	dynamic, err := dynamicCustomers()
	if err != nil {
		return nil, err
	}
	registered := binary.BigEndian.AppendUint32([]byte{0}, 1)
	inProto := func(c *customer) ([]byte, error) {
		b := append(append([]byte(nil), registered...), 0)
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(c.id))
		for i, text := range [][]byte{c.appendFirst(nil), c.appendLast(nil), c.appendEmail(nil)} {
			b = protowire.AppendBytes(protowire.AppendTag(b, protowire.Number(i+2), protowire.BytesType), text)
		}
		return b, nil
	}
	cases := []decodeCase{
		{"debezium-json", source.DebeziumJSON, decodeJSONGoal, func(c *customer) ([]byte, error) { return debezium{}.upsert(nil, c) }, stdlib, plainJSON, oneSchema{}},
		{"debezium-json-schema", source.DebeziumJSON, decodeJSONGoal, wrapped, stdlib, plainJSON, oneSchema{}},
		{"debezium-avro", source.DebeziumAvro, decodeAvroGoal, avro, "goavro into maps", func(v []byte) error {
			_, _, err := codec.NativeFromBinary(v[5:])
			return err
		}, oneSchema{}},
		{"rows-json", source.RowsJSON, decodeJSONGoal, around("", ""), stdlib, plainJSON, oneSchema{}},
		{"maxwell", source.Maxwell, decodeJSONGoal, around(`{"database":"d","table":"customers","type":"insert","ts":1666937996,"xid":1171,"commit":true,"data":`, `}`), stdlib, plainJSON, oneSchema{}},
		{"canal-json", source.Canal, decodeJSONGoal, around(`{"database":"d","table":"customers","type":"INSERT","es":1668673394000,"isDdl":false,"old":null,"data":[`, `]}`), stdlib, plainJSON, oneSchema{}},
		{"aws-dms", source.DMS, decodeJSONGoal, around(`{"data":`, `,"metadata":{"timestamp":"2024-10-27T12:39:03.210671Z","record-type":"data","operation":"insert","table-name":"customers"}}`), stdlib, plainJSON, oneSchema{}},
		{"goldengate-json", source.GoldenGate, decodeJSONGoal, around(`{"table":"d.customers","op_type":"I","op_ts":"2024-10-27 12:39:03.210671","pos":"00000000000000001234","after":`, `}`), stdlib, plainJSON, oneSchema{}},
		{"rows-json-schema", source.RowsJSONSchema, decodeJSONGoal, around(string(registered), ""), stdlib, func(v []byte) error { return plainJSON(v[5:]) }, oneSchema{}},
		{"rows-protobuf", source.RowsProtobuf, decodeAvroGoal, inProto, "dynamicpb", dynamic, oneSchema{}},
	}
	for i := range cases {
		switch cases[i].format {
		case source.RowsJSONSchema:
			cases[i].schema = oneSchema{source.TypeJSON, decodeJSONSchema}
		case source.RowsProtobuf:
			cases[i].schema = oneSchema{source.TypeProtobuf, decodeProto}
		default:
			cases[i].schema = oneSchema{source.TypeAvro, decodeSchema}
		}
	}
	return cases, nil
}

// runDecode measures the decoders of source topics' formats on one core.
func runDecode(ctx context.Context, o *Options) ([]Result, error) {
	n := o.Rows
	cases, err := decodeCases()
	if err != nil {
		return nil, err
	}
	var out []Result
	for i := range cases {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := cases[i].measure(o, n)
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", cases[i].name, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func (c *decodeCase) measure(o *Options, n int64) (Result, error) {
	r := rand.New(rand.NewPCG(o.Seed, 1))
	events := make([][]byte, decodeEvents)
	for i := range events {
		x := drawCustomer(r, int64(1_000_000+i))
		var err error
		if events[i], err = c.event(&x); err != nil {
			return Result{}, err
		}
	}
	def := customers("t", c.format, 1000)
	def.Order = schemas.Order{}
	dec, err := source.New(source.Options{Format: c.format, Def: &def, Schema: def.Schema(), Registry: c.schema})
	if err != nil {
		return Result{}, err
	}
	batch := rows.NewBatch(def.Schema())
	rec := &source.Record{}
	ours := func(v []byte) error {
		if batch.Len() == 8192 {
			batch.Reset()
		}
		rec.Value = v
		res, err := dec.Decode(batch, rec)
		if err == nil && res.Events != 1 {
			return fmt.Errorf("an event became %d", res.Events)
		}
		return err
	}
	cpu, err := decodeFor(ours, events, n)
	if err != nil {
		return Result{}, err
	}
	few := max(n/20, decodeEvents)
	plain, err := decodeFor(c.plain, events, few)
	if err != nil {
		return Result{}, err
	}
	x := Result{
		Bench: "decode." + c.name, Figure: float64(n) / cpu, Unit: "events/cpu-s", Better: Higher, Goal: c.goal,
		Beside: Beside{c.beside, float64(few) / plain}, CPU: cpu, Setup: o.setup(0, "none"),
	}
	x.Setup.Rows, x.Setup.Broker, x.Setup.Threads = n, "none", 1
	x.RSSPeak, err = rssPeak()
	return x, err
}

// decodeFor is the processor time that n calls of f take, in seconds.
func decodeFor(f func([]byte) error, events [][]byte, n int64) (float64, error) {
	for _, e := range events { // what is learned once is learned
		if err := f(e); err != nil {
			return 0, err
		}
	}
	start, err := cpuSeconds()
	if err != nil {
		return 0, err
	}
	for i := range n {
		if err := f(events[i%int64(len(events))]); err != nil {
			return 0, err
		}
	}
	end, err := cpuSeconds()
	return max(end-start, time.Microsecond.Seconds()), err
}
