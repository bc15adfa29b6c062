package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestReshardCommand (A6, A11): a source topic gains partitions. The node and a
// load say what to do and take nothing; after `varve table reshard` keys are
// updated, deleted by request and carried over by a job, wherever they now lie,
// and verify, explain and replay know the divided table.
func TestReshardCommand(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	events := func(value string, from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, `{"key":{"id":%d},"value":{"id":%d,"v":"%s%d"}}`+"\n", i, i, value, i)
		}
		return b.String()
	}
	args := func(more ...string) []string {
		return append([]string{"--data", data, "--table", "t", "--format", "rows-json", "--records", "-"}, more...)
	}
	for _, v := range []string{"a", "b", "c"} { // so that source offsets of the old partitions are the larger ones
		load(t, events(v, 0, 40), args("--key", "id", "--partitions", "2")...)
	}
	fails(t, exitUsage, []string{"--producers-stood-still"}, "table", "reshard", "t", "--data", data)
	fails(t, exitUsage, []string{"not more partitions"}, "table", "reshard", "t", "--data", data, "--producers-stood-still")
	fails(t, exitUsage, []string{"no such table"}, "table", "reshard", "u", "--data", data)

	n := startNode(t, "--data", data, "--catalog-listen", "off", "--log-level", "error")
	var told struct {
		Brokers []string `json:"brokers"`
	}
	if err := json.Unmarshal([]byte(n.out.String()), &told); err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(told.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	res, err := kadm.NewClient(cl).UpdatePartitions(t.Context(), 3, "t")
	if err == nil {
		err = res.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { // the table stops, and not the node
		if len(n.code) > 0 {
			return fmt.Errorf("the node ended: %s", n.err.String())
		}
		if out := run(t, "status", "--data", data, "--output", "json"); !strings.Contains(out, "varve table reshard t") {
			return fmt.Errorf("status says %s", out)
		}
		return nil
	})
	if code := n.end(t); code != exitDone {
		t.Fatalf("the node ended with %d: %s", code, n.err.String())
	}
	if code, _, errs := varveWith(t, nil, events("lost", 0, 40), append([]string{"load"}, args()...)...); code != exitFailed || !strings.Contains(errs, "varve table reshard t") {
		t.Fatalf("load: exit code %d: %s", code, errs)
	}

	out := run(t, "table", "reshard", "t", "--data", data, "--producers-stood-still", "--output", "csv")
	wantLines(t, out, "true,")
	fails(t, exitUsage, []string{"not more partitions"}, "table", "reshard", "t", "--data", data, "--producers-stood-still")
	load(t, events("d", 5, 40), args()...)
	run(t, "delete", "t", "--data", data, "--key", "id=3", "--key", "id=7")
	run(t, "compact", "t", "--data", data, "--strategy", "full", "--wait")
	load(t, events("e", 8, 12), args()...)
	run(t, "delete", "t", "--data", data, "--key", "id=9")
	load(t, events("f", 7, 8), args()...)

	want := []string{}
	for i := range 40 {
		switch v := "d"; {
		case i == 3 || i == 9:
			continue
		case i < 5:
			want = append(want, fmt.Sprintf("%d,c%d", i, i))
		default:
			if i == 7 {
				v = "f"
			} else if i >= 8 && i < 12 {
				v = "e"
			}
			want = append(want, fmt.Sprintf("%d,%s%d", i, v, i))
		}
	}

	slices.Sort(want)
	wantRows(t, scanned(t, data, "t"), want...)
	code, _, errs := varve(t, "verify", "t", "--data", data, "--deep", "--source")
	if code != exitDone || strings.Contains(errs, "not looked at") {
		t.Errorf("verify: exit code %d: %s", code, errs)
	}
	explained := run(t, "explain", "t", "9", "--data", data, "--output", "csv")
	for _, what := range []string{"a request asked to delete it", "carried over by a job"} {
		if strings.Count(explained, what) != 1 {
			t.Errorf("explain: not once %q:\n%s", what, explained)
		}
	}
	// Shards that began with what others knew say again that old rows died.
	if n := strings.Count(explained, "a version died"); n != 5 {
		t.Errorf("explain: %d deaths, not 5:\n%s", n, explained)
	}
	if code, _, errs := varve(t, "replay", "--data", data, "--into", filepath.Join(t.TempDir(), "again"), "--compare"); code != exitDone {
		t.Errorf("replay: exit code %d: %s", code, errs)
	}
}
