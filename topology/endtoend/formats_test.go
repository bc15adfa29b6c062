package endtoend

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/linkedin/goavro/v2"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
)

const (
	changeSchema = `{"type":"record","name":"Envelope","namespace":"shop","fields":[
		{"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"qty","type":["null","int"],"default":null}]}],"default":null},
		{"name":"after","type":["null","Value"],"default":null},{"name":"op","type":"string"}]}`
	keySchema = `{"type":"record","name":"Key","namespace":"shop","fields":[{"name":"id","type":"long"}]}`
)

// framed writes values of one schema behind a registry's framing.
func framedWith(t *testing.T, reg *srfake.Registry, subject, schema string) func(value map[string]any) []byte {
	t.Helper()
	id, _, err := reg.RegisterSchema(subject, sr.Schema{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	c, err := goavro.NewCodec(schema)
	if err != nil {
		t.Fatal(err)
	}
	return func(value map[string]any) []byte {
		b, err := c.BinaryFromNative(binary.BigEndian.AppendUint32([]byte{0}, uint32(id)), value)
		if err != nil {
			t.Error(err)
		}
		return b
	}
}

// TestFormatsInTurn: a connector writes Avro, and after a change of its converter
// JSON. The table is told of both first, and then of JSON alone; records of
// before and after, read in any order and by an owner that began anew, are rows,
// and none is a dead letter. The last change is of the keys' converter: equal
// keys may be in two partitions then, and the shard stops (K5), unless the events
// go through an internal topic.
func TestFormatsInTurn(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { formatsInTurn(t, backend{}, false) })
	t.Run("repartition", func(t *testing.T) { formatsInTurn(t, kafkaBackend(t), true) })
}

func formatsInTurn(t *testing.T, b backend, repartition bool) {
	reg := srfake.New()
	defer reg.Close()
	value := framedWith(t, reg, "orders-value", changeSchema)
	avroKey := framedWith(t, reg, "orders-key", keySchema)
	registry, err := topology.NewRegistry(topology.RegistryOptions{URLs: []string{reg.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	r := rng(seed(t), 11)
	def := definition("shop.turns", "debezium-avro", []schemas.Field{{Name: "id", Type: schemas.Of(schemas.Long)}, {Name: "qty", Type: schemas.Of(schemas.Int)}})
	if repartition {
		def.Properties = []schemas.Property{{Key: schemas.PropertyRepartition, Value: schemas.RepartitionAlways}}
	}
	const partitions = 2
	want := map[int64]string{}
	var avroEvents, jsonEvents, tombstones int
	event := func(json bool) *topology.SourceEvent {
		id, qty := int64(r.IntN(60)), int32(r.IntN(1000))
		e := &topology.SourceEvent{Key: fmt.Appendf(nil, `{"id":%d}`, id), Partition: -1}
		image := map[string]any{"shop.Value": map[string]any{"id": id, "qty": map[string]any{"int": qty}}}
		switch x := r.IntN(10); {
		case x == 0: // a delete without the row, whose key is in the record key
			e.Value = value(map[string]any{"before": nil, "after": nil, "op": "d"})
			if json {
				e.Value = []byte(`{"before":null,"after":null,"op":"d"}`)
			}
			delete(want, id)
		case x == 1:
			tombstones++
			delete(want, id)
		default:
			e.Value = value(map[string]any{"before": nil, "after": image, "op": "u"})
			if json {
				e.Value = fmt.Appendf(nil, `{"before":null,"after":{"id":%d,"qty":%d},"op":"u"}`, id, qty)
			}
			want[id] = fmt.Sprintf("id=%d qty=%d", id, qty)
		}
		if json {
			jsonEvents++
		} else {
			avroEvents++
		}
		return e
	}
	ctx := longContext(t)
	dir, lake := dataDir(t), t.TempDir()
	open := func() *topology.Node {
		return start(t, topology.NodeOptions{Data: dir, Registry: registry, Brokers: b.brokers, Warehouse: lake})
	}
	n := open()
	produce := func(events int, json func(i int) bool) {
		t.Helper()
		i := 0
		if _, err := n.Produce(ctx, def.SourceTopic, partitions, func() (*topology.SourceEvent, error) {
			if i++; i > events {
				return nil, io.EOF
			}
			return event(json(i)), nil
		}, nil); err != nil {
			t.Fatal(err)
		}
	}
	alter := func(format string) {
		t.Helper()
		info, err := n.Table(ctx, def.Name)
		if err != nil {
			t.Fatal(err)
		}
		out, err := n.Request(ctx, def.Name, info.ID, &record.AlterTable{Set: []schemas.Property{{Key: schemas.PropertyFormat, Value: format}}})
		if err != nil || out.Outcome.Code != record.Accepted {
			t.Fatalf("%v %v", out.Outcome, err)
		}
	}
	loaded := func() {
		t.Helper()
		if err := n.WaitLoaded(ctx, def.Name, nil); err != nil {
			t.Fatal(err)
		}
		info, err := n.Table(ctx, def.Name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readers.Read(ctx, readers.IcebergGo, info.Head.MetadataPath, readers.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, l := range want {
			lines = append(lines, l)
		}
		slices.Sort(lines)
		diff(t, fmt.Sprintf("after %d Avro and %d JSON events", avroEvents, jsonEvents), got.Sorted(), lines)
		c := &info.Counts
		if dead := c.DeadUpserts + c.DeadDeletes + c.DeadOther; dead != 0 || c.Events != int64(avroEvents+jsonEvents) {
			t.Fatalf("%d events of %d are in the log, and %d dead letters", c.Events, avroEvents+jsonEvents, dead)
		}
		tally, told := n.Tally(ctx, info)
		if err := tally.Check(); !told || err != nil {
			t.Fatalf("%t %v", told, err)
		}
	}
	produce(200, func(int) bool { return false })
	info, _, err := n.EnsureTable(ctx, def)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Ingest(ctx, info); err != nil {
		t.Fatal(err)
	}
	// Not all of the first events are read yet; the first of the other format come
	// as soon as the change is decided, whether or not the shards know of it.
	alter("debezium-avro,debezium-json")
	produce(200, func(i int) bool { return i > 50 })
	loaded()
	produce(100, func(i int) bool { return i%3 > 0 }) // two connectors for a while
	stop(t, n)
	n = open()
	if info, err = n.Table(ctx, def.Name); err != nil {
		t.Fatal(err)
	}
	if err := n.Ingest(ctx, info); err != nil {
		t.Fatal(err)
	}
	loaded()
	alter("debezium-json")
	produce(100, func(int) bool { return true })
	loaded()
	if avroEvents < 100 || jsonEvents < 200 || tombstones == 0 {
		t.Fatalf("%d Avro, %d JSON events, %d tombstones", avroEvents, jsonEvents, tombstones)
	}
	alter("debezium-json,debezium-avro")
	if repartition {
		jsonEvents++
		want[1] = "id=1 qty=1"
	}
	left := 1
	if _, err := n.Produce(ctx, def.SourceTopic, partitions, func() (*topology.SourceEvent, error) {
		if left--; left < 0 {
			return nil, io.EOF
		}
		return &topology.SourceEvent{Key: avroKey(map[string]any{"id": int64(1)}), Value: []byte(`{"after":{"id":1,"qty":1},"op":"u"}`), Partition: -1}, nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	if repartition {
		loaded()
		stop(t, n)
		return
	}
	select {
	case err := <-n.Fatal():
		if !strings.Contains(err.Error(), "framing of the record keys changed") || !strings.Contains(err.Error(), "repartition") {
			t.Fatal(err)
		}
	case <-time.After(longTime):
		t.Fatal("keys of another framing are taken")
	}
	if err := n.Close(ctx); err == nil || !strings.Contains(err.Error(), "framing") {
		t.Log("close: ", err)
	}
}
