package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// threeLoads is a data folder with table t: three loads with updates and a delete.
func threeLoads(t *testing.T) string {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	for i, lines := range []string{
		`{"id":1,"v":"a"}` + "\n" + `{"id":2,"v":"b"}` + "\n" + `{"id":3,"v":"c"}` + "\n" + `{"id":5,"v":"e"}` + "\n" + `{"id":6,"v":"f"}` + "\n",
		`{"id":2,"v":"bb"}` + "\n" + `{"id":4,"v":"d"}` + "\n",
		`{"id":1,"v":"aa"}` + "\n",
	} {
		args := []string{"load", "--data", data, "--table", "t", "--format", "rows-json"}
		if i == 0 {
			args = append(args, "--key", "id")
		}
		run(t, append(args, writeFile(t, "events.jsonl", lines))...)
	}
	run(t, "delete", "t", "--data", data, "--key", "id=3")
	return data
}

func fails(t *testing.T, want int, words []string, args ...string) {
	t.Helper()
	code, _, errs := varve(t, args...)
	if code != want {
		t.Errorf("varve %s: exit code %d, not %d: %s", strings.Join(args, " "), code, want, errs)
	}
	for _, w := range words {
		if !strings.Contains(errs, w) {
			t.Errorf("varve %s: no %q in %s", strings.Join(args, " "), w, errs)
		}
	}
}

// filesUnder are the files whose path ends in suffix.
func filesUnder(t *testing.T, dir, suffix string) (out []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(p, suffix) {
			out = append(out, p)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatalf("no file %s under %s", suffix, dir)
	}
	return out
}

// flip changes one bit in the middle of a file.
func flip(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

type replayedLine struct {
	Offset int64  `json:"offset"`
	Chain  string `json:"chain_hash"`
}

func replayed(t *testing.T, args ...string) replayedLine {
	t.Helper()
	var out []replayedLine
	text := run(t, append([]string{"replay", "--output", "json"}, args...)...)
	if err := json.Unmarshal([]byte(text), &out); err != nil || len(out) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	return out[0]
}

// TestReplayCommand: the topic and an export of it, of a stopped folder and of
// a running node, give one state and the lake's own metadata; --to ends sooner.
func TestReplayCommand(t *testing.T) {
	data := threeLoads(t)
	file := filepath.Join(t.TempDir(), "t.varvelog")
	run(t, "transaction", "export", "t", file, "--data", data)
	fails(t, exitUsage, []string{"there already", file}, "transaction", "export", "t", file, "--data", data)
	into := func() string { return filepath.Join(t.TempDir(), "again") }

	code, _, notes := varve(t, "replay", "--data", data, "--into", into(), "--compare")
	if code != exitDone || !strings.Contains(notes, "1 states are the same") || !strings.Contains(notes, "snapshots made again") {
		t.Fatalf("exit code %d: %s", code, notes)
	}
	fromTopic := replayed(t, "--data", data, "--into", into())
	fromFile := replayed(t, "--data", data, "--into", into(), "--from", file, "--compare")
	if fromFile != fromTopic || len(fromTopic.Chain) != 64 || fromTopic.Offset < 10 {
		t.Fatalf("the topic gives %+v, the file %+v", fromTopic, fromFile)
	}

	// To an offset, a snapshot and a time.
	if got := replayed(t, "--data", data, "--into", into(), "--to", "4"); got.Offset != 4 {
		t.Errorf("to offset 4: %+v", got)
	}
	var snapshots []struct {
		ID json.Number `json:"snapshot_id"`
	}
	text := run(t, "snapshots", "t", "--data", data, "--output", "json")
	if err := json.Unmarshal([]byte(text), &snapshots); err != nil || len(snapshots) < 3 || snapshots[0].ID == "" {
		t.Fatalf("%v: %s", err, text)
	}
	if got := replayed(t, "--data", data, "--into", into(), "--to", "snapshot:"+snapshots[0].ID.String(), "--compare"); got.Offset >= fromTopic.Offset || got.Offset < 4 {
		t.Errorf("to a snapshot: %+v of %+v", got, fromTopic)
	}
	if got := replayed(t, "--data", data, "--into", into(), "--to", "2001-01-01"); got.Offset != -1 {
		t.Errorf("to a time before all: %+v", got)
	}
	fails(t, exitUsage, []string{"no snapshot 77"}, "replay", "--data", data, "--into", into(), "--to", "snapshot:77")
	fails(t, exitUsage, []string{"there is no 99999"}, "replay", "--data", data, "--into", into(), "--to", "99999")
	fails(t, exitUsage, []string{"snapshot:"}, "replay", "--data", data, "--into", into(), "--to", "6712355512301123")

	// Beside a running node.
	n := startNode(t, "--data", data, "--catalog-listen", "off", "--log-level", "warn")
	if got := replayed(t, "--data", data, "--into", into(), "--compare"); got.Offset < fromTopic.Offset {
		t.Errorf("beside a node: %+v", got)
	}
	if code := n.end(t); code != exitDone {
		t.Fatal(n.err.String())
	}
}

// TestReplayDiffers: damage of the lake or of the state is exit code 3, and named.
func TestReplayDiffers(t *testing.T) {
	data := threeLoads(t)
	for _, c := range []struct{ name, suffix string }{
		{"vector", ".puffin"}, {"manifest", "-m0.avro"}, {"metadata", "v2.metadata.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := filesUnder(t, filepath.Join(data, "lake"), c.suffix)
			flip(t, files[0])
			defer flip(t, files[0])
			fails(t, exitDiffers, []string{"table t", "build offset", filepath.Base(files[0])},
				"replay", "--data", data, "--into", filepath.Join(t.TempDir(), "x"), "--compare")
		})
	}
}

// TestReplayDiffersFromState: a state whose content is not what the log gives is
// told, with the table, the partition, the offset and the kind of the first key
// that differs.
func TestReplayDiffersFromState(t *testing.T) {
	data := threeLoads(t)
	compare := func() []string {
		return []string{"replay", "--data", data, "--into", filepath.Join(t.TempDir(), "x"), "--compare"}
	}
	run(t, compare()...)
	for _, c := range []struct {
		space byte
		kind  string
		alter func(v []byte) []byte // nil: the key goes
	}{
		{'f', `"files"`, func(v []byte) []byte { v[len(v)-1] ^= 1; return v }},
		{'v', `"published vector"`, nil},
	} {
		key, old := alterState(t, filepath.Join(data, "state", "0"), c.space, c.alter)
		fails(t, exitDiffers, []string{"table t", "partition 0", "offset ", "in kind " + c.kind}, compare()...)
		putState(t, filepath.Join(data, "state", "0"), key, old)
	}
	run(t, compare()...)
}

// openStatePebble opens the database of a stopped state behind its back.
func openStatePebble(t *testing.T, dir string) *pebble.DB {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{
		Merger: &pebble.Merger{Name: "varve.dead.1", Merge: pebble.DefaultMerger.Merge}, DisableAutomaticCompactions: true, // nothing is merged
		FormatMajorVersion: pebble.FormatNewest, Logger: noLogger{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

type noLogger struct{}

func (noLogger) Infof(string, ...any)  {}
func (noLogger) Errorf(string, ...any) {}
func (noLogger) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// alterState changes, or removes, the first key of a space of a stopped state.
func alterState(t *testing.T, dir string, space byte, alter func([]byte) []byte) (key, old []byte) {
	t.Helper()
	db := openStatePebble(t, dir)
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}})
	if err != nil {
		t.Fatal(err)
	}
	if !it.First() {
		t.Fatalf("the state has no key of space %q", space)
	}
	key, old = bytes.Clone(it.Key()), bytes.Clone(it.Value())
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	if alter == nil {
		err = db.Delete(key, pebble.Sync)
	} else {
		err = db.Set(key, alter(bytes.Clone(old)), pebble.Sync)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return key, old
}

func putState(t *testing.T, dir string, key, value []byte) {
	t.Helper()
	db := openStatePebble(t, dir)
	if err := errors.Join(db.Set(key, value, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestReplayBadInput: what cannot be replayed is refused by name, and nothing
// is overwritten.
func TestReplayBadInput(t *testing.T) {
	data := threeLoads(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "t.varvelog")
	run(t, "transaction", "export", "0", file, "--data", data)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flipped := bytes.Clone(whole)
	flipped[len(whole)/2] ^= 4
	newer := bytes.Clone(whole)
	newer[11] = 9
	for _, c := range []struct {
		path  string
		code  int
		words []string
	}{
		{put("cut.varvelog", whole[:len(whole)*2/3]), exitFailed, []string{"cut.varvelog", "cut off", "log offset"}},
		{put("flipped.varvelog", flipped), exitFailed, []string{"flipped.varvelog", "log offset"}},
		{put("newer.varvelog", newer), exitUsage, []string{"newer.varvelog", "newer version"}},
		{put("other.varvelog", []byte(`{"id":1}`+"\n"+`{"id":2}`+"\n")), exitUsage, []string{"other.varvelog", "not an exported log"}},
		{filepath.Join(dir, "none"), exitUsage, []string{"none"}},
		{file + "," + put("double.varvelog", whole), exitUsage, []string{"both of partition 0"}},
	} {
		into := filepath.Join(t.TempDir(), "into")
		fails(t, c.code, c.words, "replay", "--data", data, "--from", c.path, "--into", into)
		if _, err := os.Stat(into); err == nil {
			t.Errorf("%s left something", c.path)
		}
	}

	other := threeLoads(t)
	fails(t, exitUsage, []string{"deployment", "t.varvelog"}, "replay", "--data", other, "--from", file, "--into", filepath.Join(dir, "into"))

	full := t.TempDir()
	kept := filepath.Join(full, "mine")
	if err := os.WriteFile(kept, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	fails(t, exitUsage, []string{"not empty"}, "replay", "--data", data, "--into", full)
	if b, err := os.ReadFile(kept); err != nil || string(b) != "mine" {
		t.Error("a file was overwritten")
	}
}
