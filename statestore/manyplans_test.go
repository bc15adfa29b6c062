package statestore_test

import (
	"maps"
	"testing"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// TestManyPlans: a PlanJobs of 100,000 jobs is one transaction: one bad item
// blocks no other (L12), and the same plan once more
// takes none (F1); what it holds of memory is bounded.
func TestManyPlans(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	const each = 2
	l := newLog(t, t.TempDir())
	id, first := jobFiles(t, l, each*n)
	p := &record.PlanJobs{}
	for i := range n {
		item := record.PlanItem{Strategy: "many"}
		for j := range each {
			item.Inputs = append(item.Inputs, record.JobInput{File: first + uint64(each*i+j), Hi: 100})
		}
		p.Items = append(p.Items, item)
	}
	const bad, taken = 7, 8
	p.Items[bad].Inputs[1].Hi-- // no such reference
	p.Items[taken].Inputs[1].File = p.Items[taken-2].Inputs[0].File
	before := heap()
	plan := l.do("t", id, p)
	l.commit()
	l.made = l.made[:0]
	o := plan.Outcome
	if o.Code != record.Partly || o.Numbers[0] != int64(n-2) || o.Numbers[1] != 2 {
		t.Fatalf("%s: %s %v", o.Code, o.Reason, o.Numbers)
	}
	rejected := map[int]record.Reason{}
	if err := o.RejectedItems(n, func(i int, r record.Reason) { rejected[i] = r }); err != nil {
		t.Fatal(err)
	}
	if want := map[int]record.Reason{bad: record.BadRange, taken: record.FileTaken}; !maps.Equal(rejected, want) {
		t.Errorf("rejected: %v", rejected)
	}
	if err := l.st.Flush(); err != nil {
		t.Fatal(err)
	}
	if grown := heap() - before; grown > 256<<20 {
		t.Errorf("%d MiB more are held after %d plans", grown>>20, n)
	}
	open, inputs := 0, 0
	if err := l.st.OpenJobs(id, func(j *statestore.JobInfo) error {
		open++
		inputs += j.Inputs
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if open != n-2 || inputs != each*(n-2) {
		t.Errorf("%d jobs are open, on %d files", open, inputs)
	}
	again := l.do("t", id, p).Outcome
	if again.Code != record.Rejected || again.Numbers[0] != 0 || again.Numbers[1] != int64(n) {
		t.Errorf("once more: %s: %v", again.Code, again.Numbers)
	}
}
