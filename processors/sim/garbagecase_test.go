package sim

import (
	"errors"
	"testing"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// pass lets the retained snapshots and the shard's index horizon go by all that
// there is now.
func (p *play) pass(o *owner, key int) {
	p.t.Helper()
	for i := range 4 {
		p.now += 1000
		p.up(key, int64(1000+i))
		p.commit(o)
		o.shard.Tick(p.ctx, p.now)
		p.arrive(o)
		p.publish()
		p.decide(o)
	}
}

// collect asks for what can be collected, deletes it, and says so.
func (p *play) collect() {
	p.t.Helper()
	table, err := p.m.store.Table(tableName)
	p.must(err)
	asks, err := p.m.collector().Propose(table, "case")
	p.must(err)
	for i := range asks {
		p.told(&asks[i])
	}
	all, err := p.m.store.Collections(p.tableID)
	p.must(err)
	for i := range all {
		done, err := p.m.collector().Delete(p.ctx, table, &all[i])
		p.must(err)
		p.told(done)
	}
}

// G7, F12: a file whose rows are all dead, which no snapshot has any more and every
// index has passed, stays for the job that reads it, and goes after it.
func TestPlannedFileIsKept(t *testing.T) {
	keyKinds(t, Options{Keys: 8, Jobs: true, Garbage: true}, func(t *testing.T, opt Options) {
		p, o := jobWorld(t, opt, []step{ups(0, 10), ups(1, 11)}, []step{ups(2, 12)})
		f, _ := p.fileOf(10)
		jobs := p.plan(nil)
		if len(jobs) != 1 {
			t.Fatalf("%d jobs, not 1", len(jobs))
		}
		p.del(0)
		p.del(1)
		p.commit(o)
		p.publish()
		p.pass(o, 5)
		p.collect()
		there := func() bool {
			x := statestore.FrozenFile{ID: f.ID, Epoch: f.Epoch, Name: f.Name}
			key, ok := p.mem.Key(p.def.Location + "/data/" + x.FileName(p.tableID))
			if !ok {
				t.Fatal("the file does not lie in the store")
			}
			_, err := p.mem.Stat(p.ctx, key)
			if err != nil && !errors.Is(err, objstore.ErrNotFound) {
				t.Fatal(err)
			}
			return err == nil
		}
		if !there() {
			t.Fatal("an input of an open job was deleted")
		}
		done, err := p.execute(jobs[0])
		p.must(err)
		if out := p.complete(done); out.Code != record.Accepted {
			t.Fatalf("the completion was %s: %s", out.Code, out.Reason)
		}
		p.decide(o)
		p.pass(o, 5)
		p.collect()
		if there() {
			t.Error("the input was not deleted after its job")
		}
		p.expect(map[int]int64{2: 12, 5: 1003})
	})
}
