package main

import (
	"strings"
	"testing"

	"github.com/varve-io/varve/topology/testcluster"
)

func TestDeadLetterCommands(t *testing.T) { deadLetterCommands(t) }

func TestDeadLetterCommandsOnKafka(t *testing.T) {
	deadLetterCommands(t, "--brokers", strings.Join(testcluster.Start(t, 1).Brokers(), ","))
}

// Letters are counted, shown without values, and published again once their
// cause is mended: then the newer event of a key wins, whichever came last (K2).
func deadLetterCommands(t *testing.T, where ...string) {
	data := t.TempDir()
	schema := writeFile(t, "s.json", `{"type":"struct","fields":[{"id":1,"name":"id","type":"long","required":true},{"id":2,"name":"n","type":"int"},{"id":3,"name":"o","type":"long"}]}`)
	in := strings.Join([]string{
		`{"key":{"id":1},"value":{"id":1,"n":3000000001,"o":5},"headers":{"who":"secret-1"}}`,
		`{"key":{"id":1},"value":{"id":1,"n":7,"o":9}}`,
		`{"key":{"id":2},"value":{"id":2,"n":3000000002,"o":5}}`,
		`{"key":{"id":3},"value":"secret-3"}`,
	}, "\n")
	args := append([]string{"--data", data, "--table", "t", "--format", "rows-json", "--key", "id", "--order", "o", "--schema", schema, "--records"}, where...)
	r, _ := load(t, in, append(args, "-")...)
	if r.DeadLetters != 3 || r.Rows != 1 {
		t.Fatalf("%+v", r)
	}
	quiet := func(args ...string) string {
		return run(t, append(args, "--data", data, "--log-level", "error", "--quiet")...)
	}
	got := lines(quiet("dlq", "list", "--output", "csv"))
	if len(got) != 3 || !strings.HasPrefix(got[1], "t,t,varve.range,") || !strings.Contains(got[1], ",2,0,1,") || !strings.HasPrefix(got[2], "t,t,varve.malformed,") {
		t.Errorf("list: %q", got)
	}
	if got := lines(quiet("dlq", "list", "t", "--each", "--output", "csv")); len(got) != 4 || !strings.Contains(got[1], ",t,0,0,t,varve.range,") {
		t.Errorf("list --each: %q", got)
	}
	out := quiet("dlq", "show", "t", "0", "--output", "json")
	wantLines(t, out, `"code": "varve.range"`, `"key_bytes": 8`, `"header": "who"`)
	if strings.Contains(out, "secret") || strings.Contains(out, "3000000001") {
		t.Errorf("values are shown without being asked for: %s", out)
	}
	wantLines(t, quiet("dlq", "show", "t", "0", "--values", "--output", "json"), "secret-1", "3000000001")
	code, _, errs := varve(t, "dlq", "show", "t", "9", "--data", data)
	if code != exitUsage || !strings.Contains(errs, "has no letter 9") {
		t.Errorf("a letter that is not there: exit code %d, %s", code, errs)
	}

	wantLines(t, quiet("dlq", "retry", "t", "--code", "range", "--dry-run", "--output", "json"), `"letters": 2`, `"published": 0`)
	// The cause stands yet.
	wantLines(t, quiet("dlq", "retry", "t", "1", "--output", "json"), `"published": 1`, `"refused_again": 1`, `"upserts": 0`)
	quiet("table", "alter", "t", "--widen", "n long")
	wantLines(t, quiet("dlq", "retry", "t", "0", "1", "--output", "json"), `"published": 2`, `"refused_again": 0`, `"late_ignored": 1`, `"upserts": 1`)
	wantRows(t, scanned(t, data, "t"), "1,7,9", "2,3000000002,5")
	if got := lines(quiet("dlq", "list", "t", "--each", "--output", "csv")); len(got) != 5 || !strings.Contains(got[4], ",1,") {
		t.Errorf("the letter of an event that was refused again says which it was: %q", got)
	}
}

// Without an ordering column an event published again would be the newest.
func TestRetryNeedsAnOrder(t *testing.T) {
	data := t.TempDir()
	r, _ := load(t, "{\"id\":1,\"n\":1}\n{\"id\":2,\"n\":\"x\"}\n", "--data", data, "--table", "t", "--format", "rows-json", "--key", "id",
		"--schema", writeFile(t, "s.json", `{"type":"struct","fields":[{"id":1,"name":"id","type":"long","required":true},{"id":2,"name":"n","type":"int"}]}`), "-")
	if r.DeadLetters != 1 {
		t.Fatalf("%+v", r)
	}
	code, _, errs := varve(t, "dlq", "retry", "t", "0", "--data", data, "--log-level", "error")
	if code != exitUsage || !strings.Contains(errs, "--as-newest") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	wantLines(t, run(t, "dlq", "retry", "t", "0", "--as-newest", "--data", data, "--log-level", "error", "--quiet", "--output", "json"), `"published": 1`, `"refused_again": 1`)
	code, _, errs = varve(t, "dlq", "retry", "t", "--data", data)
	if code != exitUsage || !strings.Contains(errs, "--all") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}
