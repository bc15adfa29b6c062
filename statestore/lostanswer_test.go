package statestore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// A publisher gives up after a timeout although its commit had landed (C3, C4).
// Two publishers look at the state, commit to a catalog later, and tell the log
// or do not; what they tell comes late, twice, or never; changes and cuts go on
// meanwhile. Every schedule up to a length is run. At the end everything comes
// to rest: each change must be in exactly one snapshot, in order, and the
// state's head must be the catalog's.

// faults are what can be planted in the model.
type lostFaults struct {
	anyCut     bool // SnapshotCommitted of any cut confirms the pending one
	unasked    bool // SnapshotCommitted is accepted while no cut is pending
	failDrops  bool // SnapshotFailed gives the cut up
	neverAdopt bool // a publisher does not look for its own snapshot
}

// view is what a publisher read of the state.
type view struct {
	build, parent int
	changes       []int
}

// snap is a snapshot of the catalog.
type snap struct {
	build, parent int
	changes       []int
}

type told struct{ build, parent int }

// action is one step; n picks a publisher or a message.
type action struct {
	what string
	n    int
}

type lost struct {
	bad     lostFaults
	changes int
	waiting []int // changes since the last cut
	pending int   // build of the pending cut, 0 none
	frozen  []int
	head    int
	builds  int
	catalog []snap
	views   [2]*view
	tells   []told
	records []told // as delivered to the log, 0 build: a cut, -1 build: a change, -2 build: failed
	oks     []bool
}

func (m *lost) clone() *lost {
	c := *m
	c.waiting, c.frozen, c.catalog = slices.Clone(m.waiting), slices.Clone(m.frozen), slices.Clone(m.catalog)
	c.tells, c.records, c.oks = slices.Clone(m.tells), slices.Clone(m.records), slices.Clone(m.oks)
	return &c
}

func (m *lost) catalogHead() int {
	if len(m.catalog) == 0 {
		return 0
	}
	return m.catalog[len(m.catalog)-1].build
}

func (m *lost) log(r told, ok bool) {
	m.records, m.oks = append(m.records, r), append(m.oks, ok)
}

func (m *lost) do(a action) {
	switch a.what {
	case "change":
		m.changes++
		m.waiting = append(m.waiting, m.changes)
		m.log(told{build: -1}, true)
	case "cut":
		ok := m.pending == 0 && len(m.waiting) > 0
		if ok {
			m.builds++
			m.pending, m.frozen, m.waiting = m.builds, m.waiting, nil
		}
		m.log(told{}, ok)
	case "fail":
		m.log(told{build: -2}, m.pending != 0)
		if m.bad.failDrops && m.pending != 0 {
			m.waiting = append(m.frozen, m.waiting...)
			m.pending, m.frozen = 0, nil
		}
	case "look":
		m.views[a.n] = &view{m.pending, m.head, m.frozen}
	case "commit", "commit unheard":
		v := m.views[a.n]
		m.views[a.n] = nil
		switch {
		case m.catalogHead() == v.build && !m.bad.neverAdopt: // ours, found
		case m.catalogHead() == v.parent:
			m.catalog = append(m.catalog, snap(*v))
		default:
			return // a conflict
		}
		if a.what == "commit" {
			m.tells = append(m.tells, told{v.build, v.parent})
		}
	case "tell": // the message stays: it may come again
		r := m.tells[a.n]
		ok := m.pending != 0 && r.build == m.pending && r.parent == m.head
		if m.bad.anyCut {
			ok = m.pending != 0
		}
		if m.bad.unasked && m.pending == 0 {
			ok = true
		}
		if ok {
			m.head, m.pending, m.frozen = r.build, 0, nil
		}
		m.log(r, ok)
	}
}

// next are the steps that can come now.
func (m *lost) next() []action {
	var out []action
	if m.changes < 3 {
		out = append(out, action{what: "change"})
	}
	if m.builds < 2 && len(m.waiting) > 0 && m.pending == 0 {
		out = append(out, action{what: "cut"})
	}
	for p, v := range m.views {
		switch {
		case v != nil:
			out = append(out, action{"commit", p}, action{"commit unheard", p})
		case m.pending != 0 && (p == 0 || m.views[0] != nil): // the two are alike
			out = append(out, action{"look", p})
		}
	}
	if m.pending != 0 && m.bad.failDrops {
		out = append(out, action{what: "fail"})
	}
	for i := range m.tells {
		out = append(out, action{"tell", i})
	}
	return out
}

// rest lets everything come to rest and says what is wrong then.
func (m *lost) rest() string {
	for range 6 {
		if m.pending == 0 && len(m.waiting) > 0 {
			m.do(action{what: "cut"})
		}
		if m.pending == 0 {
			break
		}
		m.views[0] = nil
		m.do(action{"look", 0})
		n := len(m.tells)
		m.do(action{"commit", 0})
		if len(m.tells) == n {
			return "the publisher conflicts for ever"
		}
		m.do(action{"tell", n})
	}
	if m.pending != 0 || len(m.waiting) > 0 {
		return "changes are never published"
	}
	var all []int
	for _, s := range m.catalog {
		all = append(all, s.changes...)
	}
	for i := range m.changes {
		if i >= len(all) || all[i] != i+1 {
			return fmt.Sprintf("the catalog has the changes %v of %d", all, m.changes)
		}
	}
	if len(all) != m.changes {
		return fmt.Sprintf("the catalog has the changes %v of %d", all, m.changes)
	}
	if m.head != m.catalogHead() {
		return fmt.Sprintf("the state's head is %d, the catalog's %d", m.head, m.catalogHead())
	}
	return ""
}

// everyLoss runs fn with every schedule of up to so many steps, as it is when
// it has come to rest, until fn says false.
func everyLoss(bad lostFaults, steps int, fn func(m *lost, wrong string) bool) {
	var search func(m *lost, left int) bool
	search = func(m *lost, left int) bool {
		end := m.clone()
		if !fn(end, end.rest()) {
			return false
		}
		if left == 0 {
			return true
		}
		for _, a := range m.next() {
			c := m.clone()
			c.do(a)
			if !search(c, left-1) {
				return false
			}
		}
		return true
	}
	search(&lost{bad: bad}, steps)
}

func TestLostAnswerExhaustive(t *testing.T) {
	for _, c := range []struct {
		bad   lostFaults
		holds bool
	}{
		{lostFaults{}, true},
		{lostFaults{anyCut: true}, false},
		{lostFaults{unasked: true}, false},
		{lostFaults{failDrops: true}, false},
		{lostFaults{neverAdopt: true}, false},
	} {
		runs, first := 0, ""
		everyLoss(c.bad, 11, func(m *lost, wrong string) bool {
			runs++
			first = wrong
			return wrong == ""
		})
		if (first == "") != c.holds {
			t.Errorf("%+v: after %d schedules: %q", c.bad, runs, first)
		}
		t.Logf("%+v: %d schedules: %s", c.bad, runs, first)
	}
}

// TestLostAnswerApply: Apply decides the records of every schedule as the model
// does, and freezes the same changes.
func TestLostAnswerApply(t *testing.T) {
	st, err := openMem(vfs.NewMem(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	l := &logBuilder{t: t, st: st, timeMs: startMs}
	t.Cleanup(func() { st.Close() })
	l.genesis()
	seen := map[string]bool{}
	everyLoss(lostFaults{}, 9, func(m *lost, _ string) bool {
		if key := fmt.Sprint(m.records); !seen[key] {
			seen[key] = true
			replayLoss(t, l, m, fmt.Sprintf("t%d", len(seen)))
		}
		return true
	})
	t.Logf("%d logs", len(seen))
}

func replayLoss(t *testing.T, l *logBuilder, m *lost, name string) {
	id := l.do(name, -1, &record.CreateTable{Definition: definition(name)}).TableID
	claim := l.do(name, id, &record.ClaimShard{Shard: shardKey(0)})
	commit := func(c *record.SnapshotCommitted) bool {
		return l.do(name, id, c).Outcome.Code == record.Accepted
	}
	cut := l.do(name, id, &record.Cut{}) // the empty table
	if !commit(&record.SnapshotCommitted{Cut: cut.Offset, Build: cut.Offset, TimestampMs: 1, MetadataVersion: 1, MetadataPath: "v"}) {
		t.Fatal("the empty table is not published")
	}
	commits := map[int]*record.SnapshotCommitted{} // by the model's build
	changes, builds := int64(0), 0
	for i, r := range m.records {
		ok := true
		switch r.build {
		case -1:
			changes++
			ok = l.do(name, id, &record.AppendRows{
				Shard: shardKey(0), Epoch: claim.Offset, Counter: changes, SourceFrom: changes - 1, SourceTo: changes,
				RequestFrom: claim.Offset, RequestTo: claim.Offset, Files: []record.DataFile{{ID: statestore.FileID(1, uint64(changes)), Rows: 1, Bytes: 1}}, Changes: ref(1),
			}).Outcome.Code == record.Accepted
		case 0:
			out := l.do(name, id, &record.Cut{})
			if ok = out.Outcome.Code == record.Accepted; ok {
				builds++
				l.commit()
				f, err := l.st.Frozen(id)
				if err != nil {
					t.Fatal(err)
				}
				var got []int
				c := &record.SnapshotCommitted{
					Cut: f.Cut, Build: f.Build, Parent: f.Head.SnapshotID, SnapshotID: f.Build, Sequence: f.Head.Sequence + 1, FirstRowID: f.Head.NextRowID,
					AddedRows: int64(len(f.Files)), TimestampMs: f.Head.TimestampMs + 1, MetadataVersion: f.Head.MetadataVersion + 1, MetadataPath: "v",
					Manifests: []record.ManifestInfo{{Path: fmt.Sprintf("m%d", f.Build)}},
				}
				for k, x := range f.Files {
					got = append(got, int(statestore.FileCounter(x.ID)))
					c.Files = append(c.Files, record.FileRowID{File: x.ID, FirstRowID: c.FirstRowID + int64(k)})
				}
				commits[builds] = c
				if want := m.catalogOf(builds); !slices.Equal(got, want) {
					t.Fatalf("records %v: cut %d freezes the changes %v, the model %v", m.records, builds, got, want)
				}
			}
		default:
			ok = commit(commits[r.build])
		}
		if ok != m.oks[i] {
			t.Fatalf("records %v: number %d is accepted: %t, the model says %t", m.records, i, ok, m.oks[i])
		}
	}
}

// catalogOf are the changes of a snapshot, by its build.
func (m *lost) catalogOf(build int) []int {
	for _, s := range m.catalog {
		if s.build == build {
			return s.changes
		}
	}
	return nil
}
