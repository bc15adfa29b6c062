package sim

import (
	"testing"

	"github.com/varve-io/varve/schemas/record"
)

// back rolls the table back to a snapshot, and publishes that.
func (p *play) back(c *record.SnapshotCommitted) {
	p.t.Helper()
	p.apply()
	t, err := p.m.store.Table(tableName)
	p.must(err)
	p.must(p.rollBack(p.m, t, c.SnapshotID))
	for len(p.m.net.queue) > 0 {
		p.m.net.deliver()
	}
	p.apply()
	if out := p.decided[len(p.decided)-1].Outcome; out.Type != record.TypeRollback || out.Outcome.Code != record.Accepted {
		p.t.Fatalf("the rollback is %s: %s", out.Outcome.Code, out.Outcome.Reason)
	}
	if out := p.confirm(p.build()); out.Code != record.Accepted {
		p.t.Fatalf("the snapshot was %s: %s", out.Code, out.Reason)
	}
}

// G12, K2: a row died before the target of a rollback by a way that keeps the
// remembered value and tells it to no list. An event that is older than it is late
// after the rollback as before; where a compaction took the dead row out of the
// target, it is not.
func TestLateAfterRollback(t *testing.T) {
	for _, how := range []string{"position", "request", "compacted", "compacted since"} {
		t.Run(how, func(t *testing.T) {
			p := newPlay(t, Options{Keys: 8, Ordered: true, Time: true, Jobs: true, Requests: true})
			o := p.running(p.owner(0))
			p.up(0, 10, 9)
			p.up(1, 11, 9)
			p.up(2, 12, 3)
			p.up(3, 13, 3)
			p.commit(o)
			p.publish()
			if how == "request" {
				p.ask(0)
				p.ask(1)
				p.apply()
				p.decide(o)
			} else {
				p.strikeValue(10)
				p.strikeValue(11)
			}
			p.commit(o)
			target := p.publish()
			if how == "compacted" {
				p.complete(p.compact(nil)...)
				p.decide(o)
				target = p.publish()
			}
			p.up(0, 20, 11) // undone
			p.up(2, 22, 7)
			p.commit(o)
			p.publish()
			if how == "compacted since" {
				p.complete(p.compact(nil)...)
				p.decide(o)
				p.publish()
			}
			p.back(target)
			p.decide(o)
			p.running(o)
			p.up(0, 30, 5) // older than the row that was deleted
			p.up(1, 31, 10)
			p.up(2, 32, 4) // newer than the target's row
			want := map[int]int64{1: 31, 2: 32, 3: 13}
			if how == "compacted" {
				want[0] = 30
			}
			p.commit(o)
			p.expect(want)
		})
	}
}

// G11, H3: a rollback forgets the job that took a file out, the file's rows die, and
// another rollback leads to a snapshot that lists that job's output. The rows live
// there, and nobody knows the way any more: a block that names the file is told so.
func TestWayForgottenByAnEarlierRollback(t *testing.T) {
	for _, cut := range []bool{false, true} { // whether the file left with a commit
		p := newPlay(t, Options{Keys: 8, Time: true, Jobs: true})
		o := p.running(p.owner(0))
		p.up(0, 10)
		p.up(1, 11)
		p.commit(o)
		listed := p.publish()
		p.apply()
		f := p.files()[0]
		p.complete(p.compact(nil)...)
		p.decide(o)
		rewritten := p.publish()
		p.back(listed)
		p.strikeAt(f, 0, 1)
		if cut {
			p.publish()
		}
		p.back(rewritten)
		if out := p.strikeAt(f, 0); out.Code != record.Rejected || out.Reason != record.NoBase {
			t.Errorf("cut %t: a block on the file is %s: %s", cut, out.Code, out.Reason)
		}
		p.decide(o)
		p.running(o)
		p.strikeValue(11)
		p.up(1, 31)
		p.commit(o)
		p.expect(map[int]int64{0: 10, 1: 31})
	}
}
