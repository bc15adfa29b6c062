package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/testcluster"
)

func TestPlan(t *testing.T) {
	b, err := topology.OpenBroker(topology.BrokerOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	plan(t, b.Addr())
}

func TestPlanOnKafka(t *testing.T) { plan(t, strings.Join(testcluster.Start(t, 1).Brokers(), ",")) }

// A topic of Debezium's envelopes, not all of them good, and one key in two partitions.
func plan(t *testing.T, brokers string) {
	const topic = "db.shop.orders"
	var events []*topology.SourceEvent
	add := func(partition int32, key, value string) {
		events = append(events, &topology.SourceEvent{Key: []byte(key), Value: []byte(value), Partition: partition})
	}
	for i := range 50 {
		add(-1, fmt.Sprintf(`{"id":%d}`, i), fmt.Sprintf(`{"op":"c","before":null,"after":{"id":%d,"name":"n%d"}}`, i, i))
	}
	add(-1, `{"id":7}`, `{"op":"d","before":{"id":7},"after":null}`)
	add(-1, `{"id":8}`, `{"op":"u","after":{"id":8,"name":"__debezium_unavailable_value"}}`)
	add(-1, `{"id":9}`, `{"op":"u","after":{"id":9,"name":"x","size":5}}`)
	add(-1, `{"id":9}`, `{"op":"u","after":{"id":"nine-secret","name":"x"}}`)
	add(-1, `{"id":9}`, `{"ts_ms":1}`)
	add(0, `{"id":1000}`, `{"op":"c","after":{"id":1000,"name":"a"}}`)
	add(1, `{"id":1000}`, `{"op":"c","after":{"id":1000,"name":"b"}}`)
	n, err := topology.ProduceTo(context.Background(), topology.ClientOptions{Brokers: strings.Split(brokers, ",")}, topic, 2, func() (*topology.SourceEvent, error) {
		if len(events) == 0 {
			return nil, io.EOF
		}
		e := events[0]
		events = events[1:]
		return e, nil
	}, nil)
	if err != nil || n != 57 {
		t.Fatalf("%d events: %v", n, err)
	}
	out := run(t, "plan", "shop.orders", "--brokers", brokers, "--topic", topic, "--from-beginning", "--quiet", "--output", "json")
	wantLines(t, out, `"format": "debezium-json"`, `"format_guessed": true`, `"partitions": 2`, `"records_held": 57`, `"records_read": 57`, `"upserts": 54`, `"deletes": 1`, `"control": 1`,
		`"refused": 1`, `"unchanged_values": 1`, `"keys_in_several_partitions": 1`, `"code": "key"`, "repartition always", `"column": "name"`)
	if strings.Contains(out, "nine-secret") {
		t.Errorf("a value is shown: %s", out)
	}
	// Nothing was made: neither letters nor topics of varve's own.
	admin, err := topology.NewAdmin(topology.ClientOptions{Brokers: strings.Split(brokers, ",")})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.Topic(context.Background(), topology.LettersTopic(topic)); err == nil {
		t.Error("a plan made a topic")
	}
	out = run(t, "plan", "shop.orders", "--brokers", brokers, "--topic", topic, "--format", "debezium-json", "--key", "id", "--limit", "4", "--quiet", "--output", "json")
	wantLines(t, out, `"records_read": 4`, `"format_guessed": false`)
	for _, c := range [][2]string{{"--brokers=" + brokers + " --topic=nowhere", "nowhere"}, {"--topic=x", "--brokers"}, {"--brokers=" + brokers + " --limit=0", "--limit"}} {
		code, _, errs := varve(t, append([]string{"plan", "shop.orders"}, strings.Fields(c[0])...)...)
		if code == exitDone || !strings.Contains(errs, c[1]) {
			t.Errorf("%s: exit code %d, %s", c[0], code, errs)
		}
	}
}
