package statestore_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// tableRules are the rules of the published table's files, by letter: vectors,
// manifests, snapshots, types, places. Each letter's are numbered from 1.
var tableRules = map[string]int{"V": 7, "M": 5, "S": 14, "T": 5, "W": 6}

// inactive are the rules of parts that are not built yet. Whoever builds one
// takes its rule off this list and cites it.
var inactive = map[string]string{
	"E2": "erasure", "W6": "version 2 companions",
}

var (
	definedRule = regexp.MustCompile(`\*\*([LAPFHKCGET]\d{1,2})\*\*`)
	citedRule   = regexp.MustCompile(`\b([LAPFHKCGEVMSTW])(\d{1,2})\b(?:[–-]([LAPFHKCGEVMSTW])(\d{1,2})\b)?`)
)

// TestRulesAreCited: every rule in force is cited by a test, by its letter and
// number: in a test file, its data, or the simulation.
func TestRulesAreCited(t *testing.T) {
	text, err := os.ReadFile("RULES.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string]bool{}
	for _, m := range definedRule.FindAllStringSubmatch(string(text), -1) {
		rules[m[1]] = true
	}
	if len(rules) < 50 {
		t.Fatalf("RULES.md has %d rules", len(rules))
	}
	for letter, n := range tableRules {
		for i := range n {
			rules[letter+strconv.Itoa(i+1)] = true
		}
	}
	cited := map[string]bool{}
	root := filepath.Join("..")
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if e.IsDir() {
			if strings.HasPrefix(e.Name(), ".") && rel != "." || rel == "testdata/fuzz" {
				return filepath.SkipDir
			}
			return nil
		}
		data := strings.Contains(rel, "/testdata/") && !strings.Contains(rel, "/fuzz/") && filepath.Base(rel) != "README.md"
		if rel == "statestore/rules_test.go" || !data && !strings.HasSuffix(rel, "_test.go") && !strings.HasPrefix(rel, "processors/sim/") {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil || len(b) > 1<<20 {
			return err
		}
		for _, m := range citedRule.FindAllStringSubmatch(string(b), -1) {
			cited[m[1]+m[2]] = true
			if m[3] != m[1] {
				continue
			}
			from, to := atoi(m[2]), atoi(m[4])
			for n := from; n <= to; n++ {
				cited[m[1]+strconv.Itoa(n)] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for r := range rules {
		switch part, off := inactive[r]; {
		case off && cited[r]:
			t.Logf("%s (%s) is cited: is it in force now?", r, part)
		case !off && !cited[r]:
			t.Errorf("no test cites %s", r)
		}
	}
	for r := range inactive {
		if !rules[r] {
			t.Errorf("there is no rule %s", r)
		}
	}
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}
