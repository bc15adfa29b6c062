package statestore_test

import (
	"testing"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// TestCandidates: the files that a job may take are those of Files that are
// published, free and not all dead, with their dead rows counted, whether the
// database has what changed last or not, and however often the look is cut off.
func TestCandidates(t *testing.T) {
	l := newLog(t, t.TempDir())
	const files = 40_000 // more chunks than are looked at in one go
	id, first := jobFiles(t, l, files)
	ok := func(o record.OutcomeMessage) {
		t.Helper()
		if o.Outcome.Code != record.Accepted {
			t.Fatalf("%s: %s", o.Outcome.Code, o.Outcome.Reason)
		}
	}
	all := make([]uint32, 100)
	for i := range all {
		all[i] = uint32(i)
	}
	strike := func(from uint64) {
		var d record.DeletePositions
		for k := from; k < files; k += 1000 {
			set := positions(3, 5, 8)
			if k%7 == 0 {
				set = positions(all...)
			}
			d.Deletes = append(d.Deletes, record.DeleteBlock{File: first + k, Bitmap: set})
		}
		ok(l.do("t", id, &d))
	}
	strike(0)
	ok(l.do("t", id, &record.PlanJobs{Items: []record.PlanItem{{Inputs: []record.JobInput{{File: first + 1, Hi: 100}, {File: first + 2, Hi: 100}}}}}))
	// Files writes the state back, so the first look comes before it.
	before := candidates(t, l.st, id, 1<<40)
	if err := l.st.Files(id, func(*statestore.FileInfo) error { return nil }); err != nil {
		t.Fatal(err)
	}
	stored := candidates(t, l.st, id, 1<<40)
	equal(t, "written back", stored, before)
	strike(500)
	strike(1001) // chunks with sets in both places
	strike(1000)
	held := candidates(t, l.st, id, 1<<40)
	equal(t, "in parts", candidates(t, l.st, id, 777), held)
	var want []statestore.Candidate
	if err := l.st.Files(id, func(f *statestore.FileInfo) error {
		n := uint64(0)
		if f.Dead != nil {
			var err error
			if n, err = dv.Count(f.Dead); err != nil {
				return err
			}
		}
		if f.Published && !f.Gone && !f.Job && !f.Moved && int64(n) < f.Rows {
			want = append(want, statestore.Candidate{ID: f.ID, Hi: f.Rows, Rows: f.Rows, Bytes: f.Bytes, Dead: int64(n), Record: f.Record})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	equal(t, "held against all files", held, want)
	dead := 0
	for i := range want {
		if want[i].Dead > 0 {
			dead++
		}
	}
	if dead < 50 || len(want) > files-10 || len(want) < files-200 {
		t.Errorf("%d candidates, %d with dead rows", len(want), dead)
	}
}

func candidates(t *testing.T, st *statestore.Store, id int64, most int) (out []statestore.Candidate) {
	t.Helper()
	for from := uint64(0); ; {
		n := 0
		next, err := st.Candidates(id, from, func(c *statestore.Candidate) bool {
			x := *c
			x.Tuple = 0
			out = append(out, x)
			n++
			return n < most
		})
		if err != nil {
			t.Fatal(err)
		}
		if next == 0 {
			return out
		}
		from = next
	}
}

func equal(t *testing.T, what string, got, want []statestore.Candidate) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d candidates, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: %+v, want %+v", what, got[i], want[i])
		}
	}
}
