package sim

import (
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/record"
)

// theirs commits a change of another writer, which a member takes into the log.
func (p *play) theirs(change func(h *theirHead) theirChange) record.Outcome {
	p.t.Helper()
	h, err := p.readHead()
	p.must(err)
	p.must(p.commitTheirs(h, change(h)))
	p.apply()
	p.must(p.look(p.m))
	for len(p.m.net.queue) > 0 {
		p.m.net.deliver()
	}
	p.apply()
	out := p.decided[len(p.decided)-1].Outcome
	if out.Type != record.TypeForeignSnapshot || out.Outcome.Code != record.Accepted {
		p.t.Fatalf("the %s is %s: %s", out.Type, out.Outcome.Code, out.Outcome.Reason)
	}
	return out.Outcome
}

// find is where a live row is.
func (h *theirHead) find(t testing.TB, value int64) (*theirFile, int) {
	t.Helper()
	for _, f := range h.files {
		for i := range f.rows {
			if f.rows[i].value == value && !f.dead.Contains(uint32(i)) {
				return f, i
			}
		}
	}
	t.Fatalf("no row has the value %d", value)
	return nil, 0
}

// H2, H3, K4: one record has a vector of another writer and files that it took out. An
// owner that folds it from the log knows of both, as one that lived through it.
func TestVectorAndRemovalInOneCommit(t *testing.T) {
	for _, how := range []string{"lived through", "folded"} {
		t.Run(how, func(t *testing.T) {
			p := newPlay(t, Options{Keys: 8, Foreign: true})
			o := p.running(p.owner(0))
			p.up(0, 10)
			p.up(1, 11)
			p.commit(o)
			p.publish()
			p.up(2, 12)
			p.up(3, 13)
			p.commit(o)
			p.publish()
			p.theirs(func(h *theirHead) theirChange {
				ended, at := h.find(t, 10)
				left, _ := h.find(t, 12)
				_, kept := h.find(t, 13)
				return theirChange{
					op: "overwrite", dead: map[string]*roaring.Bitmap{ended.entry.File.Path: roaring.BitmapOf(uint32(at))},
					remove: map[string]bool{left.entry.File.Path: true}, add: [][]theirRow{{left.rows[kept]}},
				}
			})
			if how == "folded" {
				p.wipe(o)
			} else {
				p.decide(o)
				p.must(o.wake())
			}
			p.running(o)
			p.up(2, 32)
			p.up(3, 33)
			p.rest(map[int]int64{1: 11, 2: 32, 3: 33}, o)
		})
	}
}

// H8: a retired shard folds what another writer added at once, also where the same
// record ended a row of it.
func TestAddedWhileRetired(t *testing.T) {
	p := newPlay(t, Options{Keys: 8, Shards: 2, Foreign: true})
	first, second := p.running(p.owner(0)), p.running(p.owner(1))
	p.up(0, 10)
	p.up(1, 11)
	p.commit(first)
	p.decide(second)
	p.commit(second)
	p.publish()
	p.must(p.request(tableName, p.tableID, &record.RetireShard{Shard: record.ShardKey{TopicID: topicID, Topic: "t", Partition: 1}}))
	p.apply()
	p.theirs(func(h *theirHead) theirChange {
		f, at := h.find(t, 11)
		return theirChange{
			op: "overwrite", dead: map[string]*roaring.Bitmap{f.entry.File.Path: roaring.BitmapOf(uint32(at))},
			add: [][]theirRow{{{event: event{key: 3, value: 13}}}},
		}
	})
	p.decide(first)
	p.commit(first) // nobody waits for the other
	p.wipe(second)
	p.running(second)
	p.up(3, 33)
	p.rest(map[int]int64{0: 10, 3: 33}, first, second)
}

// K4, H13: a row of another writer, without a value, gives way to a version of ours
// that is deleted by its position before the append that takes the row is in the log.
// Who folds that append comes to the same.
func TestStruckWhileTaken(t *testing.T) {
	p := newPlay(t, Options{Keys: 8, Ordered: true, Foreign: true})
	o := p.running(p.owner(0))
	p.up(0, 10, 5)
	p.up(1, 11, 5)
	p.commit(o)
	p.publish()
	p.theirs(func(h *theirHead) theirChange {
		return theirChange{op: "append", add: [][]theirRow{{{event: event{key: 0, value: 20}}}}}
	})
	p.decide(o)
	p.flush(o)
	p.strikeValue(10)
	p.arrive(o)
	p.rest(map[int]int64{1: 11}, o)
}
