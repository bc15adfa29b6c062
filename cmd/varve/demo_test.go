package main

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var writeDemo = flag.Bool("write-demo", false, "write demo/orders.jsonl anew from the story in this file")

// The demo's events are written from this story: orders of a small shop, as
// Debezium's PostgreSQL connector captures them, with the schema part that its
// JSON converter adds.
type demoOrder struct {
	id       int64
	customer string
	status   string
	cents    int64
	country  string
	placed   int64 // ms since the first
	note     *string
}

const (
	demoStart = int64(1_785_571_200_000) // 2026-08-01T08:00:00Z
	demoKey   = `{"type":"struct","fields":[{"type":"int64","optional":false,"field":"order_id"}],"optional":false,"name":"shop.shop.orders.Key"}`
	demoRow   = `[{"type":"int64","optional":false,"field":"order_id"},{"type":"string","optional":false,"field":"customer"},{"type":"string","optional":false,"field":"status"},{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2","connect.decimal.precision":"10"},"field":"amount"},{"type":"string","optional":true,"field":"country"},{"type":"int64","optional":false,"name":"io.debezium.time.MicroTimestamp","version":1,"field":"placed_at"},{"type":"string","optional":true,"field":"note"}]`
	demoFrom  = `{"type":"struct","fields":[{"type":"string","optional":false,"field":"connector"},{"type":"int64","optional":false,"field":"ts_ms"},{"type":"string","optional":true,"field":"snapshot"},{"type":"string","optional":false,"field":"schema"},{"type":"string","optional":false,"field":"table"},{"type":"int64","optional":true,"field":"lsn"}],"optional":false,"name":"io.debezium.connector.postgresql.Source","field":"source"}`
)

type demoStory struct {
	b   strings.Builder
	n   int64
	now int64
}

func (s *demoStory) record(key, value string, headers string) {
	fmt.Fprintf(&s.b, `{"key":%s,"value":%s`, key, value)
	if headers != "" {
		fmt.Fprintf(&s.b, `,"headers":%s`, headers)
	}
	s.b.WriteString("}\n")
}

func demoKeyOf(id int64) string {
	return fmt.Sprintf(`{"schema":%s,"payload":{"order_id":%d}}`, demoKey, id)
}

func demoRowOf(o *demoOrder) string {
	if o == nil {
		return "null"
	}
	cents := o.cents
	raw := []byte{byte(cents)}
	for v := cents >> 8; v != 0 || raw[0]&0x80 != 0; v >>= 8 {
		raw = append([]byte{byte(v)}, raw...)
		if v == 0 {
			break
		}
	}
	note := "null"
	if o.note != nil {
		b, _ := json.Marshal(*o.note)
		note = string(b)
	}
	country := "null"
	if o.country != "" {
		country = `"` + o.country + `"`
	}
	return fmt.Sprintf(`{"order_id":%d,"customer":%q,"status":%q,"amount":%q,"country":%s,"placed_at":%d,"note":%s}`,
		o.id, o.customer, o.status, base64.StdEncoding.EncodeToString(raw), country, (demoStart+o.placed)*1000, note)
}

func (s *demoStory) event(op string, before, after *demoOrder, headers string) {
	s.n++
	s.now += 1700
	o := after
	if o == nil {
		o = before
	}
	snapshot := "false"
	if op == "r" {
		snapshot = "true"
	}
	schema := fmt.Sprintf(`{"type":"struct","fields":[{"type":"struct","fields":%s,"optional":true,"name":"shop.shop.orders.Value","field":"before"},{"type":"struct","fields":%s,"optional":true,"name":"shop.shop.orders.Value","field":"after"},%s,{"type":"string","optional":false,"field":"op"},{"type":"int64","optional":true,"field":"ts_ms"}],"optional":false,"name":"shop.shop.orders.Envelope"}`, demoRow, demoRow, demoFrom)
	value := fmt.Sprintf(`{"schema":%s,"payload":{"before":%s,"after":%s,"source":{"connector":"postgresql","ts_ms":%d,"snapshot":%q,"schema":"shop","table":"orders","lsn":%d},"op":%q,"ts_ms":%d}}`,
		schema, demoRowOf(before), demoRowOf(after), demoStart+s.now, snapshot, 24_000_000+s.n*184, op, demoStart+s.now+12)
	s.record(demoKeyOf(o.id), value, headers)
}

func tellDemo() string {
	s := &demoStory{}
	text := func(v string) *string { return &v }
	customers := []string{"Ada", "Bruno", "Chloé", "Dmitri", "Eun-ji", "Farah", "Gustav", "Hana", "Iñigo", "João"}
	countries := []string{"PT", "FR", "DE", "", "KR"}
	state := map[int64]*demoOrder{}
	order := func(i int64) *demoOrder {
		return &demoOrder{id: 1000 + i, customer: customers[i%10], status: "placed", cents: (i*i*137 + 499) % 25_000, country: countries[i%5], placed: i * 45_000}
	}
	// What was there when the connector first looked, then what was placed since.
	for i := int64(0); i < 24; i++ {
		o := order(i)
		state[o.id] = o
		op := "c"
		if i < 8 {
			op = "r"
		}
		s.event(op, nil, o, "")
	}
	update := func(id int64, change func(o *demoOrder)) {
		before := *state[id]
		after := before
		change(&after)
		state[id] = &after
		s.event("u", &before, &after, "")
	}
	for i := int64(0); i < 20; i++ {
		update(1000+i, func(o *demoOrder) { o.status = "paid" })
	}
	update(1003, func(o *demoOrder) { o.cents += 250; o.note = text("gift wrap") })
	update(1007, func(o *demoOrder) { o.country = "JP" })
	update(1011, func(o *demoOrder) { o.note = text("ring the bell, \"twice\"\nthen wait") })
	update(1003, func(o *demoOrder) { o.status = "shipped" })
	// Cancelled orders: a delete and its tombstone.
	for _, id := range []int64{1005, 1013, 1021} {
		s.event("d", state[id], nil, "")
		s.record(demoKeyOf(id), "null", "")
		delete(state, id)
	}
	// An order gets another number: Debezium writes a delete of the old key, a
	// tombstone, and a create of the new one.
	moved := *state[1017]
	moved.id = 2017
	s.event("d", state[1017], nil, fmt.Sprintf(`{"__debezium.newkey":%s}`, demoKeyOf(2017)))
	s.record(demoKeyOf(1017), "null", "")
	s.event("c", nil, &moved, fmt.Sprintf(`{"__debezium.oldkey":%s}`, demoKeyOf(1017)))
	delete(state, 1017)
	state[2017] = &moved
	// Somebody wrote into the topic by hand: this one goes to the dead letters.
	s.record(`"by hand"`, `"order 1099: two apples, please"`, "")
	late := order(24)
	state[late.id] = late
	s.event("c", nil, late, "")
	update(2017, func(o *demoOrder) { o.status = "shipped" })
	return s.b.String()
}

func TestDemoEventsAreTheStory(t *testing.T) {
	want := tellDemo()
	if *writeDemo {
		if err := os.WriteFile("demo/orders.jsonl", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if string(demoEvents) != want {
		t.Error("demo/orders.jsonl is not what the story tells; write it anew with: go test ./cmd/varve -run TestDemoEvents -write-demo")
	}
	if n := strings.Count(want, "\n"); n < 55 || n > 70 {
		t.Errorf("the demo has %d events, want about 60", n)
	}
}
