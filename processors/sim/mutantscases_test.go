//go:build simfault

package sim

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Planted faults that no schedule of one deployment of one build over its own
// catalog can show, or hardly ever does: the tests of another package find them.
var elsewhere = []struct {
	name  string
	rule  string
	in    string
	edits []edit
}{
	{"a cut that was frozen again keeps its older vectors", "C3", "./statestore", []edit{{"statestore/apply_base.go",
		"if err == nil && x.Removed {", "if err == nil && (x.Removed || !x.Added) {"}}},
	{"whether a body can be read is decided by the build, not by the version in force", "L8", "./statestore", []edit{{"statestore/apply.go",
		"typeVersion == 0 || typeVersion > active[version][typ]", "typeVersion == 0"}}},
	{"a rollback keeps jobs that were done after its target", "G1", "./statestore", []edit{{"statestore/apply_rollback.go",
		"if j.at > b.to.Build {", "if j.at > b.to.Build+1<<40 {"}}},
	{"a range whose job a rollback forgot is dead and not out", "G11", "./statestore", []edit{{"statestore/apply_rollback.go",
		"if p.state == partFree && p.back", "if false && p.back"}}},
	{"a block on a collected file is rejected", "F15", "./statestore", []edit{{"statestore/apply_shard.go",
		"case s.aimRows < 0 && owner && to.chunk.collected", "case false && s.aimRows < 0 && owner && to.chunk.collected"}}},
}

func TestFaultsAreFoundElsewhere(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range elsewhere {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			cmd := exec.Command("go", "test", "-timeout", "20m", "-short", "-overlay", plant(t, root, m.edits), m.in)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			switch found := foundByCase.FindString(string(out)); {
			case err == nil:
				t.Fatalf("%s: not found by the tests of %s", m.rule, m.in)
			case found == "":
				t.Fatalf("%s: the tests of %s failed otherwise:\n%s", m.rule, m.in, out)
			default:
				t.Logf("%s: %s", m.rule, found)
			}
		})
	}
}
