//go:build simfault

package sim

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The simulation must find faults: each of these is one fault in the code that
// it drives, by the rule that it breaks, and is found within so many seeds of
// each shape, or, with no seeds, by a case of its own. The code is changed in a copy that only the compiler sees; a
// fault whose place is no longer there fails the test. It takes some minutes:
//
//	go test -tags simfault ./processors/sim -run TestFaultsAreFound -timeout 60m
var mutants = []mutant{
	{"a valueless delete forgets the remembered value", "K2", 10, []edit{{"processors/ingest/flush.go",
		"live, indexLive, v.row, v.rowID, v.listed = false, false, -1, -1, true",
		"live, indexLive, v.row, v.rowID, v.listed = false, false, -1, -1, true\n\t\t\t\tv.hasOrd = v.hasOrd && b.batch.HasOrder[at] != 0"}}},
	{"deleted keys are kept out of the log", "K3", 40, []edit{{"processors/ingest/flush.go",
		"if v.listed {\n\t\t\t\tc :=", "if false {\n\t\t\t\tc :="}}},
	{"a late event is taken", "K2", 10, []edit{{"processors/ingest/flush.go",
		"if o := b.batch.Order[at]; v.hasOrd && o < v.order {",
		"if o := b.batch.Order[at]; v.hasOrd && o < v.order-5 {"}}},
	{"any source range is accepted", "A3", 60, []edit{{"statestore/apply_shard.go",
		"if a.SourceFrom != sh.sourceEnd || a.SourceTo < a.SourceFrom {",
		"if a.SourceTo < a.SourceFrom {"}}},
	{"neither epochs nor blocks are checked", "A3", 60, []edit{
		{"statestore/apply_shard.go", "if a.Epoch != sh.epoch {\n\t\treturn reject(record.EpochClosed, sh.epoch, 1), nil\n\t}\n\tif !sh.open {\n\t\treturn reject(record.EpochClosed, sh.closedBy, flag(sh.closedByClaim)), nil\n\t}\n\tif a.Counter <= sh.counter {",
			"if a.Counter <= sh.counter && a.Epoch == sh.epoch {"},
		{"statestore/apply_shard.go", "if f.ID <= last || f.ID>>writerShift != uint64(sh.writer) {", "if false && f.ID <= last {"},
		{"statestore/apply_shard.go", "case s.aimRows < 0:\n\t\treturn record.NoBase, nil", "case s.aimRows < 0:\n\t\treturn record.ReasonNone, nil"},
	}},
	{"dead positions replace the older ones", "C5", 10, []edit{{"statestore/merge.go",
		"m.sets = append(m.sets, bytes.Clone(v))", "m.sets = [][]byte{bytes.Clone(v)}"}}},
	{"a changed vector is not published again", "C5", 10, []edit{{"statestore/apply_cut.go",
		"if published && (old == nil && count == 0 || old != nil && uint64(old.Cardinality) == count) {",
		"if published && (old == nil && count == 0 || old != nil) {"}}},
	{"a snapshot of another cut is accepted", "C3", 60, []edit{{"statestore/apply_cut.go",
		"if c.Cut != t.pending.Cut || c.Build != t.pending.Build {", "if false {"},
		{"statestore/apply_cut.go", "if c.Parent != t.head.SnapshotID {", "if false {"},
		{"statestore/apply_cut.go", "if part := checkCommit(t, c, files); part != 0 {", "if part := checkCommit(t, c, files); part > 7 {"},
	}},
	{"writers are numbered alike", "A3", 20, []edit{{"statestore/apply_shard.go", "t.nextWriter++", ""}}},
	{"requests are not answered", "A5", 10, []edit{{"processors/ingest/flush.go",
		"if s.buf.len() == 0 && len(answers) == 0 && len(s.side.Debts) == 0 {", "answers = nil\n\tif s.buf.len() == 0 && len(answers) == 0 && len(s.side.Debts) == 0 {"}}},
	{"the request range is one too long", "A5", 30, []edit{{"processors/ingest/flush.go",
		"requestTo := max(s.requestEnd, s.decided+1)", "requestTo := max(s.requestEnd, s.decided+2)"}}},
	{"a request kills what was accepted above it", "A5", 20, []edit{{"processors/ingest/flush.go",
		"} else if v.row >= 0 || indexLive && s.placeOf(f) >= a.req.Offset {",
		"} else if v.row >= 0 {"}}},
	{"a request is settled one answer too early", "A5", 20, []edit{{"statestore/apply_shard.go",
		"return !sh.retired && sh.requestEnd <= o.offset", "return !sh.retired && sh.requestEnd < o.offset"}}},
	{"a kept row id is the file's first", "C6", 20, []edit{{"processors/ingest/flush.go",
		"return f.FirstRow + int64(e.Pos)", "return f.FirstRow"}}},
	{"a row id outlives its row's deletion", "C6", 40, []edit{{"processors/ingest/flush.go",
		"live, indexLive, v.row, v.rowID, v.listed = false, false, -1, -1, true",
		"live, indexLive, v.row, v.listed = false, false, -1, true"}}},
	{"the overlay outlives its epoch", "A7", 40, []edit{{"processors/ingest/fold.go",
		"s.stage = Idle\n}", "s.stage = Idle\n}\n\nvar _ = errors.New"},
		{"processors/ingest/shard.go", "s.index.DropOverlays()", "for i := range s.flight {\n\t\t\ts.index.ConfirmAt(uint64(s.flight[i].counter), s.decided, s.decidedTime)\n\t\t}"},
	}},
	{"a fold passes over key change lists", "K4", 20, []edit{{"processors/ingest/fold.go",
		"for i := range body.Changes {", "for i := range body.Changes[:0] {"}}},
	{"a fold passes over answers", "K4", 20, []edit{{"processors/ingest/fold.go",
		"for i := range answers {", "for i := range answers[:0] {"}}},
	{"a fold forgets by its own time", "K8", 300, []edit{{"processors/ingest/fold.go",
		"forget(f, by.Forgets)", "forget(f, m.TimeMs-s.def.TombstoneTTLMs)"}}},
	{"a tombstone is forgotten although a request waits", "K3", 40, []edit{{"processors/ingest/import.go",
		"if open := s.side.pending(from, to); len(open) > 0 {", "if open := s.side.pending(from, to); len(open) > 1<<40 {"}}},
	{"requests are pruned while their answers are in flight", "A5", 300, []edit{{"processors/ingest/side.go",
		"s.side.prune(s.answered, beforeMs)", "s.side.prune(s.requestEnd, beforeMs)"}}},
	{"a restart forgets open requests", "A5", 40, []edit{{"processors/ingest/side.go",
		"s.Requests = append(s.Requests, q)", "_ = append(s.Requests, q)"}}},
	{"an append does not wait for its dead letters", "A4", 10, []edit{{"processors/ingest/run.go",
		"s.letters == 0 && len(s.flight)", "len(s.flight)"}}},
	{"the event behind a schema change is lost", "A3", 10, []edit{{"processors/ingest/run.go",
		"s.parked, s.parkedTo = copyRecords(recs[i:]), next", "s.parked, s.parkedTo = copyRecords(recs[min(i+1, len(recs)-1):]), next"}}},
	{"gaps do not move the source range", "A1", 20, []edit{{"processors/ingest/run.go",
		"s.position = max(s.position, next)\n\treturn nil", "return nil"}}},
	{"late events are counted as deletes", "A4", 10, []edit{{"processors/ingest/flush.go",
		"p.counts.LateIgnored++", "p.counts.Deletes++"}}},
	{"a frozen cut loses its files in a write-back", "C1", 40, []edit{{"statestore/frozen.go",
		"for i := range f.files {\n\t\tif err := b.Set", "for i := range f.files[:0] {\n\t\tif err := b.Set"}}},
	{"a written outbox is empty", "L11", 40, []edit{{"statestore/writeback.go",
		"if err := s.storeOutbox(b); err != nil {", "if err := error(nil); err != nil {"}}},
	{"a moved manifest is forgotten while a file names it", "M3", 40, []edit{{"statestore/manifests.go",
		"if e.uses == 0 {", "if e.uses <= 1 {"}}},
	{"table time follows the broker's clock back", "L4", 40, []edit{{"statestore/apply.go",
		"t := max(h.TimeMs, r.TimeMs)", "t := r.TimeMs"}}},
	{"what loses to an added row lives on", "H1", 0, []edit{{"processors/ingest/import.go",
		"\t\tif v.live() {\n\t\t\tp.kills = append", "\t\tif false {\n\t\t\tp.kills = append"}}},
	{"an added row beats what is in flight", "H6", 0, []edit{{"processors/ingest/import.go",
		"if f.Pending && !known {\n\t\treturn math.MaxInt64", "if f.Pending && !known {\n\t\treturn 0"}}},
	{"an added row without a value wins by its place", "H7", 0, []edit{{"processors/ingest/import.go",
		"v.HasOrder && (!x.HasOrder || x.Order < v.Order)", "v.HasOrder && x.HasOrder && x.Order < v.Order"}}},
	{"nobody is owed what was added before the first claim", "H8", 0, []edit{{"processors/ingest/import.go",
		"s.side.Debts = append(s.side.Debts, p.kills...)", ""}}},
	{"rows that another table had deleted say what becomes of their keys", "H14", 20, []edit{{"processors/ingest/import.go",
		"at != neverRow && at < until", "at < until"}, {"processors/ingest/import.go", "return at == neverRow", "return false"}}},
	{"files are live when the first shard took them", "H1", 0, []edit{{"statestore/apply_import.go",
		"sh.requestEnd < least", "sh.requestEnd > least"}}},
}

// mutant is one planted fault.
type mutant struct {
	name  string
	rule  string
	seeds int // of each shape, at most; 0: a case finds it
	edits []edit
}

// edit replaces every occurrence of a text in a file of the repository.
type edit struct{ file, from, to string }

var (
	foundBySeed = regexp.MustCompile(`seed (\d+): .*`)
	foundByCase = regexp.MustCompile(`--- FAIL: Test\S+`)
)

func TestFaultsAreFound(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			overlay := plant(t, root, m.edits)
			args, pattern := []string{"-run", "^TestSeeds$" + shapesOf(m.rule), ".", "-seeds", itoa(m.seeds)}, foundBySeed
			if m.seeds == 0 {
				args, pattern = []string{"-skip", "^TestSeeds$", "."}, foundByCase
			}
			cmd := exec.Command("go", append([]string{"test", "-timeout", "60m", "-overlay", overlay}, args...)...)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Run()
			found := pattern.FindString(out.String())
			switch {
			case err == nil:
				t.Fatalf("%s: not found within %d seeds", m.rule, m.seeds)
			case found == "":
				t.Fatalf("%s: the test failed otherwise:\n%s", m.rule, out.String())
			}
			t.Logf("%s: %s", m.rule, found)
		})
	}
}

// shapesOf are the shapes that can meet a fault of a rule, as part of -run: all but
// those of garbage collect nothing, all but those of time roll nothing back.
func shapesOf(rule string) string {
	if rule == "G1" || rule == "G11" || rule == "G12" {
		return "/^time"
	}
	if rule == "G6" || rule == "G7" || rule == "G8" || rule == "F15" {
		return "/^garbage"
	}
	if rule == "H14" {
		return "/^adopts"
	}
	if rule == "H10" || rule == "H13" || rule == "H15" {
		return "/^foreign"
	}
	if rule == "C10" {
		return "/^where"
	}
	if rule == "F7" || rule == "F8" || rule == "F22" {
		return "/^tree"
	}
	return ""
}

// plant writes the changed files and the overlay that puts them in the place
// of the real ones.
func plant(t *testing.T, root string, edits []edit) string {
	t.Helper()
	dir := t.TempDir()
	texts := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(root, filepath.FromSlash(e.file))
		if _, ok := texts[path]; !ok {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(b)
		}
		if !strings.Contains(texts[path], e.from) {
			t.Fatalf("%s no longer has %q: plant the fault where it is now", e.file, e.from)
		}
		texts[path] = strings.ReplaceAll(texts[path], e.from, e.to)
	}
	replace := map[string]string{}
	for path, text := range texts {
		copied := filepath.Join(dir, itoa(len(replace))+"-"+filepath.Base(path))
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		replace[path] = copied
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return overlay
}

func itoa(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}
