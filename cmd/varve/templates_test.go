package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestTemplateNames(t *testing.T) {
	entry := func(name string, s sourceConfig) *tableConfig {
		s.Format = "debezium-json"
		return &tableConfig{Name: name, Source: s}
	}
	pattern := sourceConfig{TopicPattern: `db1\.(shop)\.(?P<table>.+)`}
	route := sourceConfig{Topic: "all", RouteBy: "source.table", RouteMatch: `t_(\w+)`}
	for _, c := range []struct {
		e                 *tableConfig
		topic, text, want string
	}{
		{entry("$1.$2", pattern), "db1.shop.orders", "", "shop.orders"},
		{entry("x.${table}", pattern), "db1.shop.orders", "", "x.orders"},
		{entry("x.${topic}", pattern), "db1.shop.orders", "", "x.db1.shop.orders"},
		{entry("x.$2", pattern), "db1.shop.a b/c", "", "x.a_b_c"},
		{entry("x.$2", pattern), "db2.shop.orders", "", ""},
		{entry("x.$2", pattern), "adb1.shop.orders", "", ""},
		{entry("y.$1", route), "all", "t_people", "y.people"},
		{entry("y.${route}", route), "all", "t_people", "y.t_people"},
		{entry("y.${route}", sourceConfig{Topic: "all", RouteBy: "kind"}), "all", "a$1", "y.a_1"},
		{entry("y.$1", route), "all", "people", ""},
	} {
		if err := c.e.checkTemplate(); err != nil {
			t.Errorf("%s: %v", c.e.Name, err)
		}
		got, ok := c.e.expand(c.topic, c.text)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s of %s %s: %q", c.e.Name, c.topic, c.text, got)
		}
	}
	for want, e := range map[string]*tableConfig{
		"no group":                   entry("x.$3", pattern),
		"${tabel} is no group":       entry("x.${tabel}", pattern),
		"is made from":               entry("x.$1", sourceConfig{Topic: "t"}),
		"regular expression":         entry("x.$1", sourceConfig{TopicPattern: "("}),
		"a table reads one topic":    entry("x.y", pattern),
		"leave one of them out":      entry("x.$1", sourceConfig{Topic: "t", TopicPattern: "(.*)"}),
		"needs source.route_by":      entry("x.y", sourceConfig{Topic: "t", RouteMatch: "a"}),
		"needs source.route_match":   entry("x.y", sourceConfig{Topic: "t", RouteBy: "a"}),
		"name the topic":             entry("x.$1", sourceConfig{RouteBy: "a"}),
		"not both":                   entry("x.$1", sourceConfig{RouteBy: "a", TopicPattern: "(.*)"}),
		"path of a field":            entry("x.$1", sourceConfig{RouteBy: "a..b", Topic: "t"}),
		"max_tables is of entries":   {Name: "x.y", MaxTables: 3},
		"max_tables is 1 or more":    {Name: "x.$1", MaxTables: -3, Source: pattern},
		"whole text at source.route": entry("x.$1", sourceConfig{RouteBy: "a", Topic: "t", RouteMatch: "["}),
	} {
		if err := e.checkTemplate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s %+v: %v, want %q", e.Name, e.Source, err, want)
		}
	}
}

// Tables are made of the topics of a pattern, also of those that come later, and
// of the texts of a field; what is of no table is counted, and one that cannot be
// made does not stop the others.
func TestManyTablesOfPatterns(t *testing.T) {
	data := t.TempDir()
	config := writeFile(t, "varve.yaml", fmt.Sprintf(`
data: %s
log_level: warn
tables:
  - name: inv.$1
    source: {topic_pattern: 'db\.inv\.(.+)', format: debezium-json}
    commit_interval: 100ms
    max_tables: 3
  - name: log.${route}
    source: {topic: all, format: debezium-json, route_by: source.table, route_match: '[a-z]+'}
    key: [id]
    commit_interval: 100ms
  - name: log.both
    source: {topic: all, format: debezium-json, route_by: source.table, route_match: 'x1|x2'}
    key: [id]
    commit_interval: 100ms
`, data))
	n := startNode(t, "--config", config)
	produce := func(topic string, lines ...string) {
		t.Helper()
		code, _, errs := varveWith(t, nil, strings.Join(lines, "\n"), "produce", "--data", data, "--topic", topic, "--records", "--log-level", "warn", "-")
		if code != exitDone {
			t.Fatal(errs, n.err.String())
		}
	}
	record := func(id int, table string) string {
		return fmt.Sprintf(`{"key":{"id":%d},"value":{"before":null,"after":{"id":%d,"of":%q},"source":{"table":%q},"op":"c"}}`, id, id, table, table)
	}
	produce("db.inv.a", record(1, "a"), record(2, "a"))
	produce("other.b", record(1, "b"))
	produce("all", record(1, "p"), record(2, "q"), record(1, "q"), record(9, "x1"), record(8, "x2"), record(7, "Nobody"), `{"key":{"id":1},"value":"no JSON"}`, `{"key":{"id":1},"value":null}`)
	shown := func(table string, want ...string) {
		t.Helper()
		eventually(t, func() error {
			code, out, errs := varve(t, "scan", table, "--data", data, "--output", "csv", "--log-level", "error")
			if code != exitDone {
				return fmt.Errorf("%s\n%s", errs, n.err.String())
			}
			for _, w := range want {
				if !strings.Contains(out, w) {
					return fmt.Errorf("%s: no %s in %s", table, w, out)
				}
			}
			if got := strings.Count(strings.TrimSpace(out), "\n"); got != len(want) {
				return fmt.Errorf("%s: %d rows: %s", table, got, out)
			}
			return nil
		})
	}
	shown("inv.a", "1,a", "2,a")
	shown("log.p", "1,p")
	shown("log.q", "1,q", "2,q")
	shown("log.both", "9,x1", "8,x2")
	produce("db.inv.b", record(5, "b"))
	produce("all", `{"key":{"id":1},"value":{"after":{"id":1,"of":"mixed"},"source":{"table":"mixed"},"op":"c"}}`, `{"key":{"id":2},"value":{"after":{"id":2,"of":[1,{"b":2}]},"source":{"table":"mixed"},"op":"c"}}`)
	shown("log.mixed", "1,mixed")                         // its second event is a dead letter
	produce("db.inv.é c", `{"key":{"id":1},"value":[1]}`) // nothing to make a table of
	produce("all", record(3, "late"), record(4, "p"))
	shown("inv.b", "5,b")
	shown("log.late", "3,late")
	shown("log.p", "1,p", "4,p")
	eventually(t, func() error {
		code, out, errs := varve(t, "status", "--data", data, "--output", "json", "--log-level", "error")
		if code != exitDone {
			return fmt.Errorf("%s", errs)
		}
		// Nobody, what is no JSON, and the tombstone, whose delete came before.
		if i := strings.Index(out, `"unrouted"`); i < 0 || !strings.Contains(out[i:], `"records": 3`) {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if code, out, _ := varve(t, "scan", "other.b", "--data", data, "--log-level", "error"); code == exitDone {
		t.Errorf("a table of a topic that no pattern matches: %s", out)
	}
	// Made again, a node knows its tables, and goes on.
	if code := n.end(t); code != exitDone {
		t.Fatalf("exit code %d: %s", code, n.err.String())
	}
	n = startNode(t, "--config", config)
	produce("all", record(6, "p"), record(10, "new"))
	produce("db.inv.c", record(7, "c"))
	produce("db.inv.d", record(7, "d")) // one too many
	shown("log.p", "1,p", "4,p", "6,p")
	shown("log.new", "10,new")
	shown("inv.c", "7,c")
	eventually(t, func() error {
		if !strings.Contains(n.err.String(), "max_tables") {
			return fmt.Errorf("nothing is said of the table too many: %s", n.err.String())
		}
		return nil
	})
}
