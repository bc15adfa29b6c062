package sim

import (
	"errors"
	"fmt"
	"testing"

	"github.com/varve-io/varve/processors/compactor"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
)

// A worker is killed at each step of its job (F4, F5, F6):
//
//  1. the job is dispatched, the worker has done nothing
//  2. it opens its inputs
//  3. it creates the forwarding map and its outputs, and writes them
//  4. it closes them: each is there whole, or is not there
//  5. it reads the ends of its outputs back
//  6. it puts the metrics of its outputs into the store
//  7. it appends the CompleteJob
//  8. it has not heard what was decided
//
// Steps 2 to 6 are calls of the store: it dies before and after the effect of
// every one of them. Then a row of an input dies, the job is released and done by
// another worker, and what the first one left behind harms nothing; where it had
// appended its completion, the other's is refused.
func TestWorkerKilledAtEachStep(t *testing.T) {
	killed := errors.New("the worker was killed")
	opt := Options{Keys: 8, Strings: true}
	// end finishes the job that a dead worker left, and says what the state said of it.
	end := func(t *testing.T, p *play, o *owner, d *record.Dispatch) record.Outcome {
		t.Helper()
		p.del(1) // its death is of an input, or of an output
		p.commit(o)
		p.dispatched = nil
		if out := p.told(&record.ReleaseJob{Items: []record.ReleasedJob{{Job: d.Job, Again: true}}, Cause: "silent"}); out.Code == record.Rejected {
			return out
		}
		again := once(p.dispatched)
		if len(again) != 1 || again[0].Job.Attempt != d.Job.Attempt+1 {
			t.Fatalf("dispatched after the release: %+v", again)
		}
		done, err := p.execute(again[0])
		p.must(err)
		return p.complete(done)
	}
	steps, over := 0, false
	for n := 0; !over; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d, after %v", n, after), func(t *testing.T) {
				p, o := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11), ups(2, 12), ups(3, 13)}, []step{dels(0), ups(2, 22)})
				d := p.plan(nil)[0]
				calls := 0
				p.mem.SetHook(func(c objstore.Call) error {
					if c.After != after {
						return nil
					}
					if calls++; calls > n {
						return killed // and nothing that it does later has an effect
					}
					return nil
				})
				done, err := p.execute(d)
				if err == nil {
					_, err = compactor.Complete(p.ctx, p.bodies, []*compactor.Done{done})
				}
				p.mem.SetHook(nil)
				if over = err == nil; over {
					return
				}
				if !errors.Is(err, killed) {
					t.Fatal(err)
				}
				if out := end(t, p, o, d); out.Code != record.Accepted {
					t.Fatalf("the second worker's completion was %s: %s", out.Code, out.Reason)
				}
				p.decide(o)
				p.expect(map[int]int64{2: 22, 3: 13})
			})
			if !over {
				steps++
			}
		}
	}
	if steps < 16 {
		t.Fatalf("a job has %d calls of the store, each with its two ends", steps)
	}
	for _, heard := range []bool{false, true} {
		p, o := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11), ups(2, 12), ups(3, 13)}, []step{dels(0), ups(2, 22)})
		d := p.plan(nil)[0]
		first, err := p.execute(d)
		p.must(err)
		if heard { // the completion reached the log: nobody told the worker
			p.complete(first)
		}
		out := end(t, p, o, d)
		if heard && out.Reason != record.NoJob || !heard && out.Code != record.Accepted {
			t.Fatalf("the job is done %v: the second was %s: %s", heard, out.Code, out.Reason)
		}
		if out := p.complete(first); out.Reason != record.NoJob {
			t.Fatalf("the first worker wakes up: %s: %s", out.Code, out.Reason)
		}
		p.decide(o)
		p.expect(map[int]int64{2: 22, 3: 13})
	}
}
