package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/varve-io/varve/topology/testcluster"
)

// The commands of a deployment on a real cluster: the broker is named once,
// the data folder remembers it.
func TestCommandsOnKafka(t *testing.T) {
	brokers := strings.Join(testcluster.Start(t, 1).Brokers(), ",")
	data := t.TempDir()
	var in strings.Builder
	for i := range 200 {
		fmt.Fprintf(&in, `{"key":{"id":%d},"value":{"id":%d,"n":%d}}`+"\n", i%20, i%20, i)
	}
	r, _ := load(t, in.String(), "--data", data, "--brokers", brokers, "--table", "shop.t", "--format", "rows-json", "--key", "id", "--partitions", "3", "--records", "-")
	if r.Events != 200 || r.Rows != 20 {
		t.Errorf("%+v", r)
	}
	n := startNode(t, "--data", data, "--log-level", "warn")
	wantLines(t, n.out.String(), brokers)
	// Straight to the brokers, from a machine that has no data folder.
	code, out, errs := varveWith(t, nil, `{"key":{"id":7},"value":{"id":7,"n":777}}`+"\n"+`{"key":{"id":8},"value":null}`+"\n", "produce", "--data", t.TempDir(), "--brokers", brokers,
		"--table", "shop.t", "--records", "-", "--output", "csv")
	if code != exitDone || out != "topic,events\nshop.t,2\n" {
		t.Fatalf("produce: exit code %d, %s%s", code, out, errs)
	}
	eventually(t, func() error {
		got := scanned(t, data, "shop.t", "--where", "id >= 7 and id <= 9")
		if !slices.Equal(got, []string{"7,777", "9,189"}) {
			return fmt.Errorf("rows %q", got)
		}
		return nil
	})
	code, out, errs = varve(t, "delete", "shop.t", "--data", data, "--key", "id=9", "--output", "json")
	if code != exitDone {
		t.Fatalf("delete: exit code %d, %s", code, errs)
	}
	wantLines(t, out, `"rows_deleted": 1`)
	wantLines(t, run(t, "status", "--data", data, "--output", "csv"), "shop.t,shop.t,0,running,", "shop.t,shop.t,2,running,")
	if code := n.end(t); code != exitDone {
		t.Errorf("the node ended with %d: %s", code, n.err.String())
	}
	wantLines(t, run(t, "table", "list", "--data", data, "--output", "csv"), "shop.t,", ",18,")
}
