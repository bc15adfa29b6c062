package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// syncBuffer is a buffer that a running command writes and a test reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// node is a varve run, or another command that goes on, under test.
type node struct {
	out, err syncBuffer
	stop     context.CancelFunc
	code     chan int
}

func startNode(t *testing.T, args ...string) *node {
	t.Helper()
	return startCommand(t, append([]string{"run"}, args...)...)
}

func startCommand(t *testing.T, args ...string) *node {
	t.Helper()
	n := &node{code: make(chan int, 1)}
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		n.code <- execute(ctx, streams{in: strings.NewReader(""), out: &n.out, err: &n.err}, append(args, "--output", "json"))
	}()
	t.Cleanup(func() { n.end(t) })
	eventually(t, func() error {
		select {
		case code := <-n.code:
			t.Fatalf("the node ended with %d: %s", code, n.err.String())
		default:
		}
		if !json.Valid([]byte(n.out.String())) {
			return fmt.Errorf("the node does not listen yet: %s", n.err.String())
		}
		return nil
	})
	return n
}

// end stops the node and returns its exit code.
func (n *node) end(t *testing.T) int {
	n.stop()
	select {
	case code := <-n.code:
		n.code <- code
		return code
	case <-time.After(time.Minute):
		t.Fatal("the node does not end")
		return -1
	}
}

func eventually(t *testing.T, fn func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = fn(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// A node with a configured table: it takes its schema from the first events,
// commands reach it by its data folder, and it drains when told to stop.
func TestRunProduceDeleteStatus(t *testing.T) {
	data := t.TempDir()
	config := writeFile(t, "varve.yaml", fmt.Sprintf(`
data: %s
log_level: warn
tables:
  - name: shop.t
    source: {topic: changes, format: rows-json}
    key: [id]
    commit_interval: 100ms
`, data))
	n := startNode(t, "--config", config)
	wantLines(t, n.out.String(), `"deployment": "varve"`, `"brokers": [`, `"127.0.0.1:`)

	produce := func(in string, args ...string) string {
		t.Helper()
		code, out, errs := varveWith(t, nil, in, append([]string{"produce", "--data", data, "--log-level", "warn", "--output", "csv", "-"}, args...)...)
		if code != exitDone {
			t.Fatalf("produce: exit code %d, %s", code, errs)
		}
		return out
	}
	if got := produce("{\"id\":1,\"v\":\"a\"}\n{\"id\":2,\"v\":\"b\"}\n{\"id\":3,\"v\":\"c\"}\n", "--topic", "changes"); got != "topic,events\nchanges,3\n" {
		t.Errorf("produce: got %q", got)
	}
	rows := func(want ...string) {
		t.Helper()
		eventually(t, func() error {
			code, out, errs := varve(t, "scan", "shop.t", "--data", data, "--output", "csv", "--columns", "id,v")
			if got := strings.ReplaceAll(strings.TrimSpace(out), "\n", " "); code != exitDone || got != strings.Join(append([]string{"id,v"}, want...), " ") {
				return fmt.Errorf("rows %q, stderr %q; want %q", got, errs, want)
			}
			return nil
		})
	}
	rows("1,a", "2,b", "3,c")
	produce(`{"key":{"id":2},"value":null}`+"\n", "--table", "shop.t", "--records")
	rows("1,a", "3,c")

	code, out, errs := varveWith(t, nil, "3\n{\"id\":1}\n3\n", "delete", "shop.t", "--data", data, "--keys", "-", "--output", "json", "--log-level", "warn")
	if code != exitDone {
		t.Fatalf("delete: exit code %d, %s", code, errs)
	}
	wantLines(t, out, `"keys": 2`, `"settled": true`, `"rows_deleted": 2`, `"snapshot_id": `)
	if got := scanned(t, data, "shop.t"); len(got) != 0 {
		t.Errorf("after the delete: rows %q", got)
	}

	wantLines(t, run(t, "status", "--data", data, "--log-level", "warn"), "running     true", "changes          0  running")
	wantLines(t, run(t, "table", "list", "--data", data, "--output", "csv", "--log-level", "warn"), "shop.t,", ",id,changes,rows-json,0,")
	list := run(t, "transaction", "list", "shop.t", "--data", data, "--output", "csv", "--log-level", "warn")
	wantLines(t, list, ",CreateTable,shop.t,accepted,", ",AppendRows,shop.t,accepted,", ",DeleteKeys,shop.t,accepted,", "2 keys", ",settled,")

	// A table made while the node runs is ingested as soon as its topic is there.
	schema := writeFile(t, "s.json", `{"type":"struct","fields":[{"id":1,"name":"id","type":"long","required":true}]}`)
	wantLines(t, run(t, "table", "create", "other", "--data", data, "--schema", schema, "--key", "id", "--format", "rows-json", "--output", "csv", "--log-level", "warn"), "other,", ",true,")
	produce("{\"id\":7}\n", "--table", "other")
	eventually(t, func() error {
		if got := scanned(t, data, "other"); len(got) != 1 || got[0] != "7" {
			return fmt.Errorf("rows of the other table: %q", got)
		}
		return nil
	})

	// Dropped while it is ingested, and made again under its name: the node goes on, and every command means the new one.
	wantLines(t, run(t, "table", "drop", "other", "--yes", "--data", data, "--log-level", "warn"), "location")
	wantLines(t, run(t, "table", "create", "other", "--data", data, "--schema", schema, "--key", "id", "--format", "rows-json", "--output", "csv", "--log-level", "warn"), "other,", ",true,", "/lake/default/other-")
	produce("{\"id\":8}\n", "--table", "other")
	eventually(t, func() error {
		if got := scanned(t, data, "other"); len(got) != 2 || got[0] != "7" || got[1] != "8" { // the new table reads its topic from the start
			return fmt.Errorf("rows of the table made again: %q, want 7 and 8; the node says %s", got, n.err.String())
		}
		return nil
	})
	// A table that is only called like one made again is another table.
	wantLines(t, run(t, "table", "create", "other-999", "--data", data, "--schema", schema, "--key", "id", "--format", "rows-json", "--log-level", "warn"), "other-999")
	if got := scanned(t, data, "other"); len(got) != 2 {
		t.Errorf("rows beside a table of a longer name: %q", got)
	}

	// The folder belongs to the node.
	if code, _, errs := varve(t, "load", "--data", data, "--table", "x", "--format", "rows-json", "--key", "id", schema); code != exitFailed || !strings.Contains(errs, "stop it, or choose another folder") {
		t.Errorf("load beside a node: exit code %d, %s", code, errs)
	}
	if code := n.end(t); code != exitDone {
		t.Fatalf("the node ended with %d: %s", code, n.err.String())
	}
	if code, _, errs := varveWith(t, nil, "", "produce", "--data", data, "--table", "shop.t", "-"); code != exitUsage || !strings.Contains(errs, "varve run") {
		t.Errorf("produce without a node: exit code %d, %s", code, errs)
	}
}

// Commands on a stopped folder open it for themselves.
func TestCommandsOnAStoppedFolder(t *testing.T) {
	data := t.TempDir()
	load(t, "{\"id\":1,\"n\":5}\n{\"id\":2,\"n\":6}\n", "--data", data, "--table", "t", "--format", "rows-json", "--key", "id", "-")
	quiet := func(args ...string) string {
		t.Helper()
		return run(t, append(args, "--data", data, "--log-level", "warn", "--output", "json")...)
	}
	wantLines(t, quiet("delete", "t", "--key", "id=2"), `"settled": true`, `"rows_deleted": 1`)
	wantLines(t, quiet("table", "alter", "t", "--add", "note string default none", "--set", "a.b=c"), `"changed": true`, `"name": "note"`)
	wantRows(t, scanned(t, data, "t"), "1,5,none")
	wantLines(t, quiet("table", "alter", "t", "--commit-interval", "250ms", "--retention-age", "1h", "--retention-snapshots", "7"),
		`"changed": true`, `"commit_interval_ms": 250`, `"retention_ms": 3600000`, `"retention_snapshots": 7`)
	wantLines(t, quiet("table", "alter", "t", "--commit-interval", "250ms"), `"changed": false`)
	// A delete takes no shards but its table's.
	load(t, "{\"id\":1}\n", "--data", data, "--table", "beside", "--format", "rows-json", "--key", "id", "-")
	if code, _, errs := varve(t, "delete", "t", "--key", "id=3", "--data", data, "--log-level", "debug"); code != exitDone || !strings.Contains(errs, "shard claimed\" table=t ") || strings.Contains(errs, "table=beside") {
		t.Errorf("delete of one table: exit code %d, stderr %s", code, errs)
	}
	wantLines(t, quiet("table", "drop", "beside", "--yes"), "location")
	wantLines(t, quiet("status"), `"running": false`, `"lag": 0`)
	wantLines(t, quiet("transaction", "show", "t", "1"), `"type": "CreateTable"`, `"code": "accepted"`, `"source_topic": "t"`)
	// For people, what is nested has a line each.
	wantLines(t, run(t, "transaction", "show", "t", "1", "--data", data, "--log-level", "warn"), "offset  1", "record\n{", "\n    \"source_topic\": \"t\"")
	others := strings.Fields(run(t, "transaction", "list", "beside", "--data", data, "--log-level", "warn", "--output", "csv"))
	offset, _, _ := strings.Cut(others[1], ",")

	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"delete", "t"}, exitUsage, "--key or --keys"},
		{[]string{"delete", "t", "--where", "n = 'secret'"}, exitUsage, "takes a number, not a text"},
		{[]string{"delete", "t", "--where", "secret = 5"}, exitUsage, "no column of this name"},
		{[]string{"delete", "t", "--key", "idd=1"}, exitUsage, `did you mean "id"`},
		{[]string{"delete", "t", "--key", "id=secret"}, exitUsage, "key column id"},
		{[]string{"delete", "t", "--key", "id"}, exitUsage, "column=value"},
		{[]string{"delete", "t", "--key", "id=1", "--order", "5"}, exitUsage, "no ordering column"},
		{[]string{"delete", "x", "--key", "id=1"}, exitUsage, "no such table"},
		{[]string{"table", "show", "x"}, exitUsage, "no such table"},
		{[]string{"table", "alter", "t"}, exitUsage, "name a change"},
		{[]string{"table", "alter", "t", "--add", "n"}, exitUsage, "name type"},
		{[]string{"table", "alter", "t", "--commit-interval", "1ms"}, exitUsage, "10 ms or more"},
		{[]string{"table", "alter", "t", "--commit-interval", "soon"}, exitUsage, "--commit-interval"},
		{[]string{"table", "alter", "t", "--retention-snapshots", "0"}, exitUsage, "at least one snapshot stays"},
		{[]string{"transaction", "show", "t", offset}, exitUsage, "is of table beside"},
		{[]string{"table", "alter", "t", "--add", "m text"}, exitUsage, "type \"text\""},
		{[]string{"table", "alter", "t", "--widen", "n string"}, exitUsage, "bad alter"},
		{[]string{"table", "drop", "t"}, exitUsage, "--yes"},
		{[]string{"table", "skip", "t", "--partition", "4", "--to", "9", "--cause", "x"}, exitUsage, "no shard of partition 4"},
		{[]string{"table", "skip", "t", "--to", "1", "--cause", "x"}, exitUsage, "is read up to 2 already"},
		{[]string{"transaction", "show", "t", "999"}, exitUsage, "no record at offset 999"},
		{[]string{"transaction", "append", "t", "--type", "Cutt", "-"}, exitUsage, `did you mean "Cut"`},
	}
	for _, tc := range tests {
		code, out, errs := varve(t, append(tc.args, "--data", data, "--log-level", "error")...)
		if code != tc.code || out != "" || !strings.Contains(errs, tc.want) || strings.Contains(errs, "secret") {
			t.Errorf("%v: exit code %d, want %d; stdout %q; stderr %q, want %q in it", tc.args, code, tc.code, out, errs, tc.want)
		}
	}
	code, out, errs := varveWith(t, nil, "{}", "transaction", "append", "t", "--type", "Cut", "-", "--data", data, "--log-level", "error", "--output", "csv")
	if code != exitFailed || !strings.Contains(out, ",rejected,nothing to cut,") || !strings.Contains(errs, "nothing to cut") {
		t.Errorf("a Cut without changes: exit code %d, stdout %q, stderr %q", code, out, errs)
	}

	// Retired and dropped: the name is free, the files stay.
	wantLines(t, quiet("table", "retire", "t"), `"topic": "t"`)
	wantLines(t, quiet("table", "drop", "t", "--yes"), `"location": "file://`)
	if got := quiet("table", "list"); strings.TrimSpace(got) != "[]" {
		t.Errorf("tables after the drop: %s", got)
	}
	wantRows(t, scanned(t, data, "t"), "1,5,none")

	// Another table of that name lies elsewhere, and is the one that is read.
	r, _ := load(t, "{\"k\":8}\n", "--data", data, "--table", "t", "--topic", "t2", "--format", "rows-json", "--key", "k", "-")
	if !r.Created || r.Rows != 1 || r.Metadata == nil || strings.Contains(*r.Metadata, "/default/t/") {
		t.Errorf("a table made again: %+v", r)
	}
	wantRows(t, scanned(t, data, "t"), "8")
}

func TestCommandsWithoutADeployment(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"table", "list"}, {"delete", "t", "--key", "a=1"}, {"transaction", "list", "t"}} {
		dir := t.TempDir()
		if code, _, errs := varve(t, append(args, "--data", dir)...); code != exitUsage || !strings.Contains(errs, "there is no deployment in "+dir) {
			t.Errorf("%v: exit code %d, stderr %q", args, code, errs)
		}
	}
	for _, args := range [][]string{{"--roles", "publisher"}, {"--roles", "state,ingst"}, {"--on-error", "x"}} {
		if code, _, errs := varve(t, append([]string{"run", "--data", t.TempDir()}, args...)...); code != exitUsage || errs == "" {
			t.Errorf("run %v: exit code %d, stderr %q", args, code, errs)
		}
	}
}

// A load that is interrupted ends with its own exit code.
func TestLoadInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, feed := newPipe()
	var out, errs syncBuffer
	code := make(chan int, 1)
	data := t.TempDir()
	schema := writeFile(t, "s.json", `{"type":"struct","fields":[{"id":1,"name":"id","type":"long","required":true}]}`)
	go func() {
		code <- execute(ctx, streams{in: in, out: &out, err: &errs}, []string{"load", "--data", data, "--table", "t", "--format", "rows-json", "--key", "id", "--schema", schema, "-"})
	}()
	for i := range 100 {
		feed <- fmt.Appendf(nil, "{\"id\":%d}\n", i)
	}
	cancel()
	close(feed)
	if got := <-code; got != exitStopped || out.String() != "" {
		t.Errorf("exit code %d, want %d; stdout %q; stderr %q", got, exitStopped, out.String(), errs.String())
	}
	// What was published is in the topic; the next load takes it along.
	if r, _ := load(t, "{\"id\":1}\n", "--data", data, "--table", "t", "-"); r.Events != 1 || r.Rows < 1 {
		t.Errorf("the load after it: %+v", r)
	}
}

// pipe reads what is sent to a channel.
type pipe struct {
	from <-chan []byte
	rest []byte
}

func newPipe() (*pipe, chan<- []byte) {
	c := make(chan []byte)
	return &pipe{from: c}, c
}

func (p *pipe) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		next, ok := <-p.from
		if !ok {
			return 0, context.Canceled
		}
		p.rest = next
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}
