package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type checkpointLine struct {
	Partition  int    `json:"partition"`
	Checkpoint string `json:"checkpoint"`
	Offset     int64  `json:"offset"`
	Own        int64  `json:"own"`
	Shared     int64  `json:"shared"`
	Chain      string `json:"chain_hash"`
	Tables     int    `json:"tables"`
	Error      string `json:"error"`
}

func checkpointLines(t *testing.T, args ...string) (out []checkpointLine) {
	t.Helper()
	text := run(t, append(append([]string{"checkpoint"}, args...), "--output", "json")...)
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// TestCheckpointCommands: a checkpoint of a running node and of its stopped
// folder, listed, restored into the folder without its state, deleted.
func TestCheckpointCommands(t *testing.T) {
	data := t.TempDir()
	events := writeFile(t, "events.jsonl", `{"id":1,"v":"a"}`+"\n"+`{"id":2,"v":"b"}`+"\n")
	run(t, "load", "--data", data, "--table", "t", "--format", "rows-json", "--key", "id", events)
	n := startNode(t, "--data", data, "--catalog-listen", "off", "--checkpoint-interval", "off", "--log-level", "warn")
	first := checkpointLines(t, "create", "--data", data)
	if len(first) != 1 || first[0].Offset < 5 {
		t.Fatalf("made %+v", first)
	}
	wantLines(t, run(t, "status", "--data", data, "--output", "json"), `"checkpoint": "`+first[0].Checkpoint+`"`)
	if code := n.end(t); code != exitDone {
		t.Fatal(n.err.String())
	}
	second := checkpointLines(t, "create", "--data", data)
	es := checkpointLines(t, "list", "--data", data, "--partition", "0")
	if len(second) != 1 || len(es) < 1 || es[len(es)-1].Offset != second[0].Offset || es[0].Tables != 1 || len(es[0].Chain) != 64 || es[0].Own+es[0].Shared == 0 {
		t.Fatalf("made %+v, listed %+v", second, es)
	}

	// A folder with a state is not overwritten.
	if code, _, errs := varve(t, "checkpoint", "restore", "--data", data); code != exitUsage || !strings.Contains(errs, "move") {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if err := os.RemoveAll(filepath.Join(data, "state")); err != nil {
		t.Fatal(err)
	}
	got := checkpointLines(t, "restore", "--data", data, "--partition", "0", "--checkpoint", first[0].Checkpoint)
	if len(got) != 1 || got[0].Checkpoint != first[0].Checkpoint {
		t.Fatalf("restored %+v", got)
	}
	wantLines(t, run(t, "scan", "t", "--data", data, "--output", "csv"), "1,a", "2,b")
	run(t, "load", "--data", data, "--table", "t", "--format", "rows-json", "--key", "id", writeFile(t, "more.jsonl", `{"id":2,"v":"c"}`+"\n"))
	wantLines(t, run(t, "scan", "t", "--data", data, "--output", "csv"), "1,a", "2,c")

	run(t, "checkpoint", "delete", first[0].Checkpoint, "--data", data)
	for _, e := range checkpointLines(t, "list", "--data", data) {
		if e.Checkpoint == first[0].Checkpoint {
			t.Fatal("it is still there")
		}
	}
	for _, wrong := range [][]string{
		{"delete", "1-abc"},
		{"restore", "--checkpoint", "1-abc"},
		{"create", "--partition", "-2"},
		{"create", "--partition", "7"},
	} {
		if code, _, errs := varve(t, append(append([]string{"checkpoint"}, wrong...), "--data", data)...); code == exitDone || errs == "" {
			t.Errorf("%v: exit code %d, %q", wrong, code, errs)
		}
	}
	if code, _, errs := varve(t, "run", "--data", data, "--checkpoint-interval", "soon"); code != exitUsage || !strings.Contains(errs, "checkpoint-interval") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
