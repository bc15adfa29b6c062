package sim

import (
	"slices"
	"testing"

	"github.com/varve-io/varve/processors/compactor"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// jobWorld is a table with files of the keys given, one flush each, published.
func jobWorld(t *testing.T, opt Options, flushes ...[]step) (*play, *owner) {
	p := newPlay(t, opt)
	o := p.running(p.owner(0))
	for _, steps := range flushes {
		for _, s := range steps {
			p.do(s)
		}
		p.commit(o)
	}
	p.publish()
	p.decide(o)
	return p, o
}

// file is the live file that holds a value, and where.
func (p *play) fileOf(value int64) (*statestore.FileInfo, uint32) {
	p.t.Helper()
	for _, f := range p.allFiles() {
		if f.Gone {
			continue
		}
		values, err := p.valuesOf(f)
		p.must(err)
		if i := slices.Index(values, value); i >= 0 {
			return f, uint32(i)
		}
	}
	p.t.Fatalf("no live file has the value %d", value)
	return nil, 0
}

func (p *play) allFiles() []*statestore.FileInfo {
	var all []*statestore.FileInfo
	p.must(p.m.store.Files(p.tableID, func(f *statestore.FileInfo) error {
		all = append(all, f)
		return nil
	}))
	return all
}

// orders are the moments at which a job may complete, beside a delete: before it
// is taken, between taking and applying, after it.
var orders = []string{"compaction before the delete", "during", "after"}

// inOrders runs a case for each moment. job starts a job; the case calls at with
// its own moment, 0, 1, 2, and there the job completes when it is its turn.
func inOrders(t *testing.T, opt Options, fn func(t *testing.T, opt Options, turn int)) {
	keyKinds(t, opt, func(t *testing.T, opt Options) {
		for turn, name := range orders {
			t.Run(name, func(t *testing.T) { fn(t, opt, turn) })
		}
	})
}

// P2, F4: F1 = [A,B,C,D] less A, F2 = [C']. A job reads both; C is deleted, its
// block taken against F2, or against the job's output.
func TestDeleteBesideACompaction(t *testing.T) {
	inOrders(t, Options{Keys: 8}, func(t *testing.T, opt Options, turn int) {
		p, o := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11), ups(2, 12), ups(3, 13)}, []step{dels(0), ups(2, 22)})
		done := p.compact(nil)
		if turn == 0 {
			p.complete(done...)
			p.decide(o)
		}
		p.del(2)
		p.read(o)
		p.flush(o) // its block names F2, or the output
		if turn == 1 {
			p.complete(done...)
		}
		p.arrive(o)
		p.apply()
		p.decide(o)
		if turn == 2 {
			p.complete(done...)
			p.decide(o)
		}
		p.expect(map[int]int64{1: 11, 3: 13})
	})
}

// P2: as before, and the late block names F1@3, which the output does not have:
// it becomes the output's 2.
func TestPositionBeyondTheOutput(t *testing.T) {
	inOrders(t, Options{Keys: 8}, func(t *testing.T, opt Options, turn int) {
		p, _ := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11), ups(2, 12), ups(3, 13)}, []step{dels(0), ups(2, 22)})
		f, at := p.fileOf(13)
		done := p.compact(nil)
		if turn < 2 {
			p.complete(done...)
		}
		if out := p.strikeAt(f, at); out.Code != record.Accepted || !out.Changed {
			t.Fatalf("the block was %s: %s", out.Code, out.Reason)
		}
		if turn == 2 {
			p.complete(done...)
		}
		if out := p.strikeAt(f, at); out.Code != record.Accepted { // P5
			t.Fatalf("the block again was %s: %s", out.Code, out.Reason)
		}
		p.expect(map[int]int64{1: 11, 2: 22})
	})
}

// P4: a position past the end of the file that it was taken against is refused,
// whether or not that file was rewritten.
func TestPositionPastTheEnd(t *testing.T) {
	keyKinds(t, Options{Keys: 8}, func(t *testing.T, opt Options) {
		p, _ := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11)}, []step{ups(2, 12)})
		f, _ := p.fileOf(10)
		block := func(at int) record.Outcome {
			set, err := dv.AppendBitmap(nil, bitmapOf(at))
			p.must(err)
			return p.told(&record.DeletePositions{Deletes: []record.DeleteBlock{{File: f.ID, Bitmap: set}}})
		}
		for range 2 {
			if out := block(2); out.Code != record.Rejected || out.Reason != record.OutOfRange {
				t.Fatalf("the block was %s: %s", out.Code, out.Reason)
			}
			p.complete(p.compact(nil)...)
		}
		set, err := dv.AppendBitmap(nil, bitmapOf(0))
		p.must(err)
		if out := p.told(&record.DeletePositions{Deletes: []record.DeleteBlock{{File: 1 << 41, Bitmap: set}}}); out.Reason != record.NoBase {
			t.Fatalf("a block of an unknown file was %s: %s", out.Code, out.Reason)
		}
		p.expect(map[int]int64{0: 10, 1: 11, 2: 12})
	})
}

// K4, F4: rows 0–9 in F, row 2 dead; a job reads F, row 5 dies meanwhile: the
// output's vector is {4}, and the index points to it only for rows that live.
// Then key 5 comes again: the row in the output stays dead.
func TestDeathWhileAJobRuns(t *testing.T) {
	for _, again := range []bool{false, true} {
		inOrders(t, Options{Keys: 10}, func(t *testing.T, opt Options, turn int) {
			var rows []step
			want := map[int]int64{}
			for k := range 10 {
				rows = append(rows, ups(k, int64(100+k)))
				want[k] = int64(100 + k)
			}
			p, o := jobWorld(t, opt, rows, []step{dels(2)})
			done := p.compact(nil)
			if turn == 0 {
				p.complete(done...)
				p.decide(o)
			}
			p.del(5)
			p.read(o)
			p.flush(o)
			if turn == 1 {
				p.complete(done...)
			}
			p.arrive(o)
			p.apply()
			p.decide(o)
			if turn == 2 {
				p.complete(done...)
				p.decide(o)
			}
			delete(want, 2)
			delete(want, 5)
			c := p.publish()
			if len(c.Vectors) != 1 || c.Vectors[0].Cardinality != 1 {
				t.Fatalf("the snapshot's vectors are %+v", c.Vectors)
			}
			if f, at := p.fileOf(105); f.Name == [16]byte{} || !opt.Strings && at != 4 {
				t.Fatalf("row 5 is row %d of %x", at, f.Name)
			}
			if again {
				p.up(5, 205)
				p.commit(o)
				want[5] = 205
			}
			p.expect(want)
		})
	}
}

// K2 beside a compaction: late is decided by the remembered value, wherever the row is.
func TestLateEventsBesideCompactions(t *testing.T) {
	keyKinds(t, Options{Keys: 4, Ordered: true}, func(t *testing.T, opt Options) {
		all := []step{ups(1, 10, 10), ups(1, 20, 5), dels(1, 7), dels(1, 12), ups(1, 40, 11)}
		for b := range betweens {
			playGaps(t, opt, all, []between{compacted, b, compacting, b}, map[int]int64{})
			playGaps(t, opt, all, []between{b, compacted, b, compacted}, map[int]int64{})
		}
		playGaps(t, opt, all[:3], []between{compacted, compacted}, map[int]int64{1: 10})
	})
}

// P2, F14: a block against a file that was compacted three times since.
func TestThreeCompactionsSince(t *testing.T) {
	keyKinds(t, Options{Keys: 8}, func(t *testing.T, opt Options) {
		p, o := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11), ups(2, 12), ups(3, 13)}, []step{ups(4, 14)})
		f, at := p.fileOf(12)
		for i := range 3 {
			p.complete(p.compact(nil)...)
			p.decide(o)
			p.up(5, int64(50+i))
			p.commit(o)
		}
		if out := p.strikeAt(f, at); !out.Changed {
			t.Fatalf("the block was %s: %s", out.Code, out.Reason)
		}
		p.decide(o)
		p.up(2, 99) // a key whose row died by position comes again
		p.commit(o)
		p.expect(map[int]int64{0: 10, 1: 11, 2: 99, 3: 13, 4: 14, 5: 52})
	})
}

// F4, F6: a worker is lost, its job released and done by another, the first wakes
// up and completes: one output is live, rows once.
func TestLostWorkerWakesUp(t *testing.T) {
	keyKinds(t, Options{Keys: 8}, func(t *testing.T, opt Options) {
		p, o := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11)}, []step{ups(2, 12)})
		first := p.compact(nil)
		id := first[0].Job.Job
		if out := p.told(&record.ReleaseJob{Items: []record.ReleasedJob{{Job: id, Again: true}}, Cause: "silent"}); out.Code != record.Accepted {
			t.Fatalf("the release was %s: %s", out.Code, out.Reason)
		}
		again := slices.DeleteFunc(once(p.dispatched), func(d *record.Dispatch) bool { return d.Job == id })
		if len(again) != 1 || again[0].Job.Attempt != 2 || again[0].Job.Plan != id.Plan {
			t.Fatalf("dispatched after the release: %+v", again)
		}
		second, err := p.execute(again[0])
		p.must(err)
		if second.Job.Outputs[0].Name == first[0].Job.Outputs[0].Name {
			t.Fatal("two executions wrote under one name (F5)")
		}
		if out := p.complete(first...); out.Reason != record.WrongAttempt {
			t.Fatalf("the lost worker's completion was %s: %s", out.Code, out.Reason)
		}
		if out := p.complete(second); out.Code != record.Accepted {
			t.Fatalf("the second worker's completion was %s: %s", out.Code, out.Reason)
		}
		if out := p.complete(first...); out.Reason != record.NoJob {
			t.Fatalf("the lost worker's completion was %s: %s", out.Code, out.Reason)
		}
		p.decide(o)
		p.expect(map[int]int64{0: 10, 1: 11, 2: 12})
	})
}

// F1: a planner that runs twice on a stale view puts no file in two jobs.
func TestPlannedTwice(t *testing.T) {
	keyKinds(t, Options{Keys: 8}, func(t *testing.T, opt Options) {
		p, _ := jobWorld(t, opt, []step{ups(0, 10)}, []step{ups(1, 11)}, []step{ups(2, 12)})
		plan := &record.PlanJobs{}
		for _, f := range p.files() {
			plan.Items = append(plan.Items, record.PlanItem{Inputs: []record.JobInput{{File: f.ID, Hi: f.Rows}}})
		}
		stale := *plan
		if out := p.told(plan); out.Code != record.Accepted {
			t.Fatalf("the plan was %s: %s", out.Code, out.Reason)
		}
		jobs := once(p.dispatched)
		out := p.told(&stale)
		if out.Code != record.Rejected || out.Reason != record.FileTaken {
			t.Fatalf("the stale plan was %s: %s", out.Code, out.Reason)
		}
		var done []*compactor.Done
		for _, d := range jobs {
			x, err := p.execute(d)
			p.must(err)
			done = append(done, x)
		}
		p.complete(done...)
		if out := p.told(&stale); out.Reason != record.NoFile {
			t.Fatalf("the stale plan after the jobs was %s: %s", out.Code, out.Reason)
		}
		p.expect(map[int]int64{0: 10, 1: 11, 2: 12})
	})
}

// A cut is pending; a job rewrites the files that it names; then it is
// published: every file that it names exists, and the next cut takes them out.
func TestJobCompletesWhileACutIsPending(t *testing.T) {
	keyKinds(t, Options{Keys: 8}, func(t *testing.T, opt Options) {
		p, o := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11)}, []step{ups(2, 12)})
		done := p.compact(nil)
		p.del(1)
		p.up(3, 13)
		p.commit(o)
		if p.cut() < 0 {
			t.Fatal("nothing to cut")
		}
		p.complete(done...)
		p.decide(o)
		c := p.build()
		if out := p.confirm(c); out.Code != record.Accepted {
			t.Fatalf("the snapshot was %s: %s", out.Code, out.Reason)
		}
		if got := p.rowsOf(c); len(got) != 3 || got[0] != 10 || got[2] != 12 || got[3] != 13 {
			t.Fatalf("the pending cut's snapshot has %v", got)
		}
		next := p.publish()
		if next == nil || next.Operation != "overwrite" {
			t.Fatalf("the job's snapshot: %+v", next)
		}
		p.expect(map[int]int64{0: 10, 2: 12, 3: 13})
	})
}

// Every row of an input dies while its job runs, and a cut takes the file out:
// the job completes all the same, and nothing comes back (F4).
func TestInputDiesWhileItsJobRuns(t *testing.T) {
	keyKinds(t, Options{Keys: 8}, func(t *testing.T, opt Options) {
		p, o := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11)}, []step{ups(2, 12)})
		done := p.compact(nil)
		p.del(0)
		p.del(1)
		p.commit(o)
		p.publish()
		if out := p.complete(done...); out.Code != record.Accepted {
			t.Fatalf("the completion was %s: %s", out.Code, out.Reason)
		}
		p.decide(o)
		p.expect(map[int]int64{2: 12})
	})
}

// S5: a snapshot of jobs alone is a replace, and keeps every row id (C6).
func TestReplaceKeepsRowIDs(t *testing.T) {
	keyKinds(t, Options{Keys: 8}, func(t *testing.T, opt Options) {
		p, o := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11)}, []step{ups(2, 12), ups(0, 20)})
		before, err := p.readSnapshot(p.newest())
		p.must(err)
		p.complete(p.compact(nil)...)
		p.decide(o)
		c := p.publish()
		if c == nil || c.Operation != "replace" {
			t.Fatalf("the job's snapshot: %+v", c)
		}
		after, err := p.readSnapshot(c)
		p.must(err)
		for k, id := range before.ids {
			if after.ids[k] != id {
				t.Errorf("key %d had row id %d and has %d", k, id, after.ids[k])
			}
		}
		p.expect(map[int]int64{0: 20, 1: 11, 2: 12})
	})
}

// S3, F10: outputs have the sequence number of the plan, in every snapshot that follows.
func TestOutputsKeepThePlansSequence(t *testing.T) {
	p, o := jobWorld(t, Options{Keys: 8}, []step{ups(0, 10)}, []step{ups(1, 11)})
	planned := p.newest().Sequence
	done := p.compact(nil)
	for k := range 3 {
		p.up(5, int64(50+k))
		p.commit(o)
		p.publish()
	}
	p.complete(done...)
	p.publish()
	f, _ := p.fileOf(10)
	if f.Sequence != planned || f.Name == [16]byte{} {
		t.Fatalf("the output's sequence is %d, the plan's %d (%x)", f.Sequence, planned, f.Name)
	}
	p.decide(o)
	p.expect(map[int]int64{0: 10, 1: 11, 5: 52})
}

// K9: a version is accepted above a request and dies by position; the owner, who
// has not heard of that, leaves it when it answers. An index that is folded from
// the log finds a tombstone there, and leaves it as it is.
func TestAnswerLeavesALaterTombstone(t *testing.T) {
	keyKinds(t, Options{Keys: 4}, func(t *testing.T, opt Options) {
		p := newPlay(t, opt)
		o := p.running(p.owner(0))
		p.up(1, 10)
		p.read(o)
		p.ask(1)
		p.flush(o)
		p.arrive(o)
		p.apply()
		f, at := p.fileOf(10)
		if out := p.strikeAt(f, at); !out.Changed {
			t.Fatalf("the block was %s: %s", out.Code, out.Reason)
		}
		p.decide(o, 2) // the request, and its own append
		p.now += 1000
		p.flush(o)
		p.arrive(o)
		p.apply()
		p.decide(o)
		p.expect(map[int]int64{})
	})
}
