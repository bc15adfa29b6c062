package main

import (
	"os"
	"strings"
	"testing"
)

// A configuration of Debezium-server's: each of its options is named, with what
// says the same here or that nothing does.
func TestConfigCheckDebeziumServer(t *testing.T) {
	file := writeFile(t, "application.properties", `# people's own
debezium.sink.type=iceberg
debezium.sink.iceberg.upsert=true
debezium.sink.iceberg.upsert-keep-deletes=true
debezium.sink.iceberg.s3.secret-access-key=hidden-1
debezium.source.database.password=hidden-2
debezium.sink.iceberg.something-new=1
quarkus.log.level=INFO
`)
	code, out, errs := varve(t, "config", "check", file, "--output", "csv")
	if code != exitDone || strings.Contains(out+errs, "hidden-") {
		t.Fatalf("exit code %d, stdout %s, stderr %s", code, out, errs)
	}
	wantLines(t, out, "debezium.sink.type,brokers,", `debezium.sink.iceberg.upsert,"tables[].key, tables[].append_only",`,
		"debezium.sink.iceberg.upsert-keep-deletes,,", "debezium.sink.iceberg.something-new,,it has no counterpart", "debezium.source.database.password,,")
	wantLines(t, errs, "5 of its 7 options have no counterpart")
}

// A sink's properties: what nothing was made of is named.
func TestConfigCheckConnectSink(t *testing.T) {
	file := writeFile(t, "sink.json", sinkJSON)
	code, out, errs := varve(t, "config", "check", file, "--output", "csv")
	if code != exitDone || strings.Contains(out+errs, "hidden-") {
		t.Fatalf("exit code %d, stdout %s, stderr %s", code, out, errs)
	}
	wantLines(t, out, "iceberg.tables,see varve config convert,", "iceberg.control.topic,,", "iceberg.catalog.s3.sse.type,,it has no counterpart")
	wantLines(t, errs, "options have no counterpart")
}

// The page for those who come from elsewhere says what the code knows.
func TestElsewherePage(t *testing.T) {
	b, err := os.ReadFile("ELSEWHERE.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), serverTable()) {
		t.Errorf("ELSEWHERE.md has another table of Debezium-server's options than the code:\n%s", serverTable())
	}
	for _, g := range gone {
		if g[1] != "" && !strings.Contains(string(b), "`"+strings.TrimSuffix(g[0], ".")) {
			t.Errorf("ELSEWHERE.md does not name the sink's option %s", g[0])
		}
	}
}
