package statestore_test

import (
	"errors"
	"testing"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// TestNeedsMaps: a record with many completions asks for all the maps that are
// not at hand at once, before anything changes.
func TestNeedsMaps(t *testing.T) {
	const jobs = 20
	l := newLog(t, t.TempDir())
	id, first := jobFiles(t, l, 2*jobs)
	l.made = nil
	p := &record.PlanJobs{}
	for i := range uint64(jobs) {
		p.Items = append(p.Items, record.PlanItem{Strategy: "test", Inputs: []record.JobInput{{File: first + 2*i, Hi: 100}, {File: first + 2*i + 1, Hi: 100}}})
	}
	l.do("t", id, p)
	box := l.commit()
	c := &record.CompleteJob{Metrics: ref(2)}
	for i := range box.Jobs {
		c.Items = append(c.Items, completion(t, l.st, &box.Jobs[i], uint64(i+1)))
	}
	done := l.raw("t", id, c)
	done.Offset, done.TimeMs = l.next, l.timeMs
	dir := t.TempDir()
	if err := l.st.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := l.st.Checkpoint(dir + "/again"); err != nil {
		t.Fatal(err)
	}
	st, err := statestore.Open(dir+"/again", statestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	var wait *statestore.NeedsMap
	if _, err := st.Apply(&done); !errors.As(err, &wait) || len(wait.Refs) != jobs {
		t.Fatalf("%v, want the %d maps asked for", err, jobs)
	}
	for i, r := range wait.Refs {
		if r != c.Items[i].Map {
			t.Errorf("map %d: %v", i, r)
		}
		done.LostMaps = append(done.LostMaps, r.Hash)
	}
	o, err := st.Apply(&done)
	if err != nil || o.Outcome.Code != record.Rejected || o.Outcome.Reason != record.BadMap {
		t.Errorf("%+v, %v", o.Outcome, err)
	}
	if o, err := l.st.Apply(&done); err != nil || o.Outcome.Code != record.Rejected {
		t.Errorf("where they are at hand: %+v, %v", o.Outcome, err)
	}
}
