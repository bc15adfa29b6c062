package ingest

import "testing"

// TestStood: of what was accepted up to a target's build offset, earlier rollbacks
// undid what lies between their own target and themselves, unless one of them was
// undone itself (G12).
func TestStood(t *testing.T) {
	for _, c := range []struct {
		what   string
		build  int64
		rolled []rolled
		stood  string // by offset, from 0 on
	}{
		{"none", 5, nil, "111111000"},
		{"one before the target", 7, []rolled{{5, 2}}, "111000110"},
		{"one behind the target", 4, []rolled{{6, 2}}, "111110000"},
		{"two, one after the other", 9, []rolled{{3, 1}, {7, 5}}, "1100110011"},
		{"the later one undid the earlier", 8, []rolled{{4, 2}, {7, 1}}, "1100000010"},
		{"to the branch that an earlier one left", 9, []rolled{{4, 1}, {7, 3}}, "1111000011"},
	} {
		w := &Rewind{build: c.build, rolled: c.rolled}
		got := ""
		for at := range int64(len(c.stood)) {
			if w.stood(at) {
				got += "1"
			} else {
				got += "0"
			}
		}
		if got != c.stood {
			t.Errorf("%s: %s, want %s", c.what, got, c.stood)
		}
	}
}
