package sim

import (
	"testing"

	"github.com/varve-io/varve/processors/compactor"
	"github.com/varve-io/varve/processors/splitter"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// divide splits the root at the median of its files' keys.
func (p *play) divide() {
	p.t.Helper()
	x, err := splitter.New(p.mem, p.bodies, &p.def)
	p.must(err)
	var refs []splitter.Ref
	var files []uint64
	p.must(p.m.store.References(p.tableID, 0, func(r *statestore.Reference) bool {
		refs = append(refs, splitter.Ref{File: r.File, Lo: r.Lo, Hi: r.Hi, Rows: r.Rows})
		files = append(files, r.File)
		return true
	}))
	paths, err := p.m.store.FilePaths(p.tableID, files)
	p.must(err)
	for i := range refs {
		refs[i].Path = paths[i]
	}
	item, keys, err := x.Divide(p.ctx, 0, refs, 2)
	p.must(err)
	body, err := p.separators(&record.TreeBody{Items: []record.TreeKeys{{Keys: keys}}})
	p.must(err)
	if out := p.told(&record.SplitPartition{Items: []record.SplitItem{item}, Separators: body}); out.Code != record.Accepted {
		p.t.Fatalf("the split was %s: %s", out.Code, out.Reason)
	}
}

// compactLeaf executes a job of all that is on a leaf. It is not completed.
func (p *play) compactLeaf(node int64) []*compactor.Done {
	p.t.Helper()
	p.publish()
	item := record.PlanItem{Strategy: "test"}
	for _, f := range p.files() {
		for _, x := range f.Parts {
			if x.Node == node && !x.Moved {
				item.Inputs = append(item.Inputs, record.JobInput{File: f.ID, Lo: x.Lo, Hi: x.Hi})
			}
		}
	}
	p.dispatched = nil
	if out := p.told(&record.PlanJobs{Items: []record.PlanItem{item}}); out.Code != record.Accepted {
		p.t.Fatalf("the plan was %s: %s", out.Code, out.Reason)
	}
	var done []*compactor.Done
	for _, d := range once(p.dispatched) {
		x, err := p.execute(d)
		p.must(err)
		done = append(done, x)
	}
	return done
}

// F7, F8: a row dies by an event before the split, between split and job, during
// the job, after it; one of the range that the job takes, and one of its sibling.
func TestDeleteBesideASplit(t *testing.T) {
	keyKinds(t, Options{Keys: 8}, func(t *testing.T, opt Options) {
		for turn, name := range []string{"before the split", "before the job", "during the job", "after the job"} {
			t.Run(name, func(t *testing.T) {
				p, o := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11), ups(2, 12), ups(3, 13), ups(4, 14), ups(5, 15), ups(6, 16), ups(7, 17)})
				die := func(at int) {
					if at == turn {
						p.del(1)
						p.del(6)
						p.up(2, 22)
						p.up(7, 27)
						p.commit(o)
						p.decide(o)
					}
				}
				die(0)
				p.divide()
				die(1)
				done := p.compactLeaf(1)
				die(2)
				if out := p.complete(done...); out.Code != record.Accepted {
					t.Fatalf("the job was %s: %s", out.Code, out.Reason)
				}
				p.decide(o)
				die(3)
				p.complete(p.compactLeaf(2)...)
				p.decide(o)
				p.expect(map[int]int64{0: 10, 2: 22, 3: 13, 4: 14, 5: 15, 7: 27})
			})
		}
	})
}

// F7, F14, K4: positions of a file of which a range has moved. A row of the other
// range is dead where it was, one of the moved range where it is now, and the index
// knows of both: what is inserted under their keys is new (C6).
func TestStruckBesideWhatMoved(t *testing.T) {
	keyKinds(t, Options{Keys: 8}, func(t *testing.T, opt Options) {
		p, o := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11), ups(2, 12), ups(3, 13), ups(4, 14), ups(5, 15)})
		f, first := p.fileOf(11)
		_, second := p.fileOf(14)
		p.divide()
		p.complete(p.compactLeaf(1)...)
		p.decide(o)
		if out := p.strikeAt(f, first, second); out.Code != record.Accepted || !out.Changed {
			t.Fatalf("the block was %s: %s", out.Code, out.Reason)
		}
		p.decide(o)
		p.publish()
		p.decide(o)
		p.up(1, 31)
		p.up(4, 34)
		p.commit(o)
		p.decide(o)
		p.expect(map[int]int64{0: 10, 1: 31, 2: 12, 3: 13, 4: 34, 5: 15})
	})
}
