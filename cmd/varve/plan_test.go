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

// A plan of a table that is there says what the topic's records would change of
// it, and what a change of its format would: asked of a running node, or of the
// brokers alone. The table stays as it is.
func TestPlanOfATable(t *testing.T) {
	data := t.TempDir()
	config := writeFile(t, "varve.yaml", fmt.Sprintf(`
data: %s
log_level: warn
tables:
  - name: shop.t
    source: {topic: changes, format: debezium-json, options: {columns.new: refuse}}
    key: [id]
    commit_interval: 100ms
`, data))
	n := startNode(t, "--config", config)
	produce := func(lines ...string) {
		t.Helper()
		if code, _, errs := varveWith(t, nil, strings.Join(lines, "\n"), "produce", "--data", data, "--topic", "changes", "--records", "--quiet", "-"); code != exitDone {
			t.Fatal(errs, n.err.String())
		}
	}
	produce(`{"key":{"id":1},"value":{"before":null,"after":{"id":1,"name":"a"},"op":"c"}}`)
	eventually(t, func() error {
		if code, _, errs := varve(t, "table", "show", "shop.t", "--data", data); code != exitDone {
			return fmt.Errorf("%s %s", errs, n.err.String())
		}
		return nil
	})
	produce(`{"key":{"id":2},"value":{"before":null,"after":{"id":2,"name":"b","size":5},"op":"c"}}`,
		`{"key":{"id":3},"value":{"before":null,"after":{"id":3,"name":7},"op":"c"}}`, `{"key":{"id":1},"value":null}`)
	brokers := n.out.String()
	brokers = brokers[strings.Index(brokers, `"127.0.0.1:`)+1:]
	brokers = brokers[:strings.IndexByte(brokers, '"')]
	common := []string{"plan", "shop.t", "--from-beginning", "--quiet", "--output", "json"}
	for _, where := range [][]string{{"--data", data}, {"--brokers", brokers}} {
		out := run(t, append(append([]string(nil), common...), where...)...)
		wantLines(t, out, `"exists": true`, `"topic": "changes"`, `"format": "debezium-json"`, `"records_read": 4`, `"upserts": 1`, `"deletes": 1`, `"refused": 2`, `"code": "schema"`, `"code": "type"`, `"schema_changes": [`)
		out = run(t, append(append([]string(nil), common...), append(where, "--format-option", "columns.new=add", "--key", "name")...)...)
		wantLines(t, out, `"upserts": 2`, `"refused": 1`, `size long`, "varve table alter shop.t", "which does not change")
	}
	// Of the configuration file, before there is a table.
	other := writeFile(t, "other.yaml", fmt.Sprintf("data: %s\ntables:\n  - {name: shop.other, source: {topic: changes, format: rows-json}, append_only: true}\n", data))
	out := run(t, "plan", "shop.other", "--config", other, "--from-beginning", "--quiet", "--output", "json")
	wantLines(t, out, `"exists": false`, `"topic": "changes"`, `"format": "rows-json"`, `"column": "after"`)
	if code, out, errs := varve(t, "table", "list", "--data", data, "--output", "csv"); code != exitDone || strings.Contains(out, "shop.other") {
		t.Errorf("%s %s", out, errs)
	}
	wantLines(t, run(t, "table", "show", "shop.t", "--data", data, "--output", "json"), `"format": "debezium-json"`, `"option": "columns.new"`)
	code, _, errs := varve(t, "plan", "shop.t", "--data", t.TempDir())
	if code != exitUsage || !strings.Contains(errs, "--brokers") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}
