package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
)

// othersProgram writes files as PyArrow and DuckDB do, and says by DuckDB's SQL which
// rows a table must have.
//
//go:embed testdata/importothers.py
var othersProgram string

// others runs it.
func others(t *testing.T, into any, args ...string) {
	t.Helper()
	python := filepath.Join(readers.Folder(), "bin", "python")
	cmd := exec.CommandContext(t.Context(), python, append([]string{"-c", othersProgram}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		var why []byte
		if e, ok := err.(*exec.ExitError); ok {
			why = e.Stderr
		}
		t.Fatalf("%v: %s", err, why)
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestImportOfOtherPrograms: many small Parquet files that PyArrow and DuckDB wrote, in
// many encodings, come into a table with a key, while upserts and deletes of the same
// keys come and jobs compact what is there. DuckDB computes from files and events which
// rows that must give, by SQL alone, and finds just these in the table, as PyIceberg
// does. A compaction of all of it, while more events come, leaves the row ids and
// sequence numbers of all that these do not touch (H1, H7, K2, C6).
func TestImportOfOtherPrograms(t *testing.T) {
	readers.Need(t, readers.DuckDB)
	readers.Need(t, readers.PyIceberg)
	dir, data := t.TempDir(), t.TempDir()
	var made struct{ Files, Events []string }
	others(t, &made, "make", dir)
	if len(made.Files) < 40 || len(made.Events) != 10 {
		t.Fatalf("%d files, %d lists of events", len(made.Files), len(made.Events))
	}
	run(t, "table", "create", "people", "--data", data, "--schema", filepath.Join(dir, "schema.json"), "--key", "id", "--order", "ver", "--format", "rows-json",
		"--partition-by", "bucket(3, id)", "--commit-interval", "200ms", "--property", "varve.compaction.strategy=full")
	startNode(t, "--data", data, "--catalog-listen", "off", "--log-level", "warn", "--plan-interval", "200ms")
	produced := int64(0)
	produce := func(events string) error {
		text, err := os.ReadFile(events)
		if err != nil {
			return err
		}
		lines := slices.Collect(strings.Lines(string(text)))
		for some := range slices.Chunk(lines, 20) { // they do not come all at once
			if code, out, errs := varveWith(t, nil, strings.Join(some, ""), "produce", "--data", data, "--table", "people", "--log-level", "warn", "-"); code != exitDone {
				return fmt.Errorf("produce: exit code %d: %s%s", code, out, errs)
			}
			produced += int64(len(some))
		}
		return nil
	}
	// beside produces events while what follows is done.
	beside := func(events string, what func()) {
		t.Helper()
		var err error
		var done sync.WaitGroup
		done.Go(func() { err = produce(events) })
		what()
		done.Wait()
		if err != nil {
			t.Fatal(err)
		}
	}
	rounds := made.Events[:len(made.Events)-2]
	for i, events := range rounds {
		beside(events, func() {
			from, to := len(made.Files)*i/len(rounds), len(made.Files)*(i+1)/len(rounds)
			run(t, append([]string{"table", "import", "people", "--data", data}, made.Files[from:to]...)...)
		})
	}
	conn, _, err := topology.Dial(t.Context(), data, topology.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseConn()
	// quiet waits until no job is open and all is published, and gives the metadata.
	quiet := func() string {
		t.Helper()
		for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
			info, err := conn.Table(t.Context(), "people")
			if err != nil {
				t.Fatal(err)
			}
			taken := int64(0)
			for _, s := range info.Shards {
				taken += s.SourceEnd
			}
			if taken == produced && info.OpenJobs == 0 && !info.Changes && info.Pending == nil && len(info.Held) == 0 {
				return info.Head.MetadataPath
			}
			if time.Now().After(end) {
				t.Fatalf("it never came to rest: %+v", info)
			}
		}
	}
	check := func(events ...string) {
		t.Helper()
		var got struct {
			Want, DuckDB, PyIceberg int
			Differ                  []string
			Keys                    []int64 // of rows that differ
		}
		others(t, &got, append([]string{"check", dir, quiet()}, events...)...)
		for _, id := range got.Keys {
			t.Log(run(t, "explain", "people", fmt.Sprint(id), "--data", data, "--output", "csv"))
			var all []string
			others(t, &all, append([]string{"versions", dir, fmt.Sprint(id)}, events...)...)
			t.Log("all versions that there are:\n", strings.Join(all, "\n"))
		}
		if len(got.Differ) > 0 || got.Want == 0 || got.DuckDB != got.Want || got.PyIceberg != got.Want {
			t.Fatalf("%d rows by SQL, %d read by DuckDB, %d by PyIceberg; they differ in %v", got.Want, got.DuckDB, got.PyIceberg, got.Differ)
		}
		t.Logf("%d rows, the same by SQL over files and events, by DuckDB and by PyIceberg", got.Want)
	}
	check(rounds...)
	before := lineageOf(t, quiet())
	last := made.Events[len(made.Events)-2:]
	beside(last[0], func() { run(t, "compact", "people", "--data", data, "--strategy", "full", "--wait") })
	if err := produce(last[1]); err != nil {
		t.Fatal(err)
	}
	run(t, "compact", "people", "--data", data, "--strategy", "full", "--wait")
	check(made.Events...)
	var touched []int64
	others(t, &touched, append([]string{"keys", dir}, last...)...)
	now := lineageOf(t, quiet())
	for _, id := range touched {
		delete(before, fmt.Sprint(id))
	}
	if len(before) < 100 {
		t.Fatalf("%d rows were left alone", len(before))
	}
	for id, was := range before {
		if now[id] != was {
			t.Errorf("key %s: row id and sequence number were %v, and are %v", id, was, now[id])
		}
	}
	jobs, records := 0, 0
	if err := conn.Transactions(context.WithoutCancel(t.Context()), "people", 0, func(d *processors.Decided) error {
		if o := &d.Outcome; o.Type == record.TypeCompleteJob && !o.Derived && o.Outcome.Code != record.Rejected {
			jobs, records = jobs+int(o.Outcome.Numbers[0]), records+1
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if jobs < 5 {
		t.Errorf("%d jobs in all", jobs)
	}
	t.Logf("%d files, %d jobs in %d records; %d rows kept their lineage", len(made.Files), jobs, records, len(before))
	run(t, "verify", "people", "--data", data, "--deep")
}

// lineageOf is row id and sequence number of each key's row, as DuckDB reads them.
func lineageOf(t *testing.T, metadata string) map[string][2]string {
	t.Helper()
	got, err := readers.Read(t.Context(), readers.DuckDB, metadata, readers.Options{Lineage: true})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][2]string{}
	ids, rows, seqs := got.Column("id"), got.Column("_row_id"), got.Column("_last_updated_sequence_number")
	seen := map[string]bool{}
	for i, id := range ids {
		if _, twice := out[id]; twice || seen[rows[i]] || rows[i] == "" {
			t.Fatalf("key %s or its row id %q is there twice", id, rows[i])
		}
		out[id], seen[rows[i]] = [2]string{rows[i], seqs[i]}, true
	}
	return out
}
