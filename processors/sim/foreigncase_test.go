package sim

import (
	"fmt"
	"slices"
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

// H7, H13: one commit of another writer has rows of one key with and without a value.
// A shard that knows nothing of the key ends the one without; so does the shard of the
// key, which remembers a larger value than the other has, and however many there are.
func TestWithAndWithoutValue(t *testing.T) {
	without := theirRow{event: event{key: 0, value: 20}}
	with := func(value, order int64) theirRow {
		return theirRow{event: event{key: 0, value: value, order: order, hasOrd: true}}
	}
	for _, x := range []struct {
		name    string
		deleted bool // the key had a row with the value 10, and was deleted
		rows    [][]theirRow
		dead    [][]uint32 // in the files' vectors
		want    int64      // value of the row that stays, 0: none
	}{
		{"it comes first", true, [][]theirRow{{without}, {with(21, 5)}}, nil, 0},
		{"it comes last", true, [][]theirRow{{with(21, 5), without}}, nil, 0},
		{"the value is larger", true, [][]theirRow{{with(21, 11), without}}, nil, 21},
		{"nothing is known of the key", false, [][]theirRow{{without, with(21, 5)}}, nil, 21},
		{"two without a value", true, [][]theirRow{{without}, {{event: event{key: 0, value: 21}}}}, nil, 21},
		{"two with a value", true, [][]theirRow{{with(21, 12), without, with(22, 11)}}, nil, 21},
		{"the one with a value is dead", true, [][]theirRow{{without}, {with(21, 5)}}, [][]uint32{nil, {0}}, 20},
		{"it is dead, and had the larger value", true, [][]theirRow{{without, with(21, 11)}, {with(22, 10)}}, [][]uint32{{1}, nil}, 0},
		{"its older version is dead", true, [][]theirRow{{without}, {{event: event{key: 0, value: 21}}}}, [][]uint32{nil, {0}}, 20},
	} {
		for _, shards := range []int{1, 2} {
			for _, mine := range []bool{false, true} { // which shard takes them first
				if shards == 1 && mine {
					continue
				}
				t.Run(fmt.Sprintf("%s, %d shards, %t", x.name, shards, mine), func(t *testing.T) {
					p, owners := sharedPlay(t, shards)
					p.up(1, 11, 1)
					p.up(2, 12, 1)
					if x.deleted {
						p.up(0, 10, 10)
					}
					settle := func() {
						for _, o := range owners {
							p.commit(o)
						}
						for _, o := range owners {
							p.decide(o)
						}
						p.publish()
					}
					settle()
					if x.deleted {
						p.del(0)
						settle()
					}
					p.theirs(func(*theirHead) theirChange {
						return theirChange{op: "append", add: x.rows, born: x.dead}
					})
					if (p.shardOf(0) == 0) != mine {
						slices.Reverse(owners)
					}
					want := map[int]int64{1: 11, 2: 12}
					if x.want != 0 {
						want[0] = x.want
					}
					p.rest(want, owners...)
				})
			}
		}
	}
}

// sharedPlay has an ordered table beside another writer, and an owner of each of its shards.
func sharedPlay(t *testing.T, shards int) (*play, []*owner) {
	p := newPlay(t, Options{Keys: 8, Shards: shards, Ordered: true, Foreign: true})
	var owners []*owner
	for i := range shards {
		owners = append(owners, p.running(p.owner(i)))
	}
	return p, owners
}

// H7: a row of another writer without a value stands where a larger value is
// remembered, and another one of its key comes later: however many shards there are, it
// gives way, and the newer one stays if what is remembered lets it.
func TestGivesWayToALaterRow(t *testing.T) {
	for _, x := range []struct {
		name  string
		order int64 // of the second row, 0: none
		added bool  // it comes with an AddFiles
		held  bool  // before the first one was taken
		want  int64
	}{
		{"another commit, without a value", 0, false, false, 21},
		{"another commit, with a smaller value", 5, false, false, 0},
		{"another commit, with a larger value", 11, false, false, 21},
		{"added files, with a smaller value", 5, true, false, 0},
		{"added files, with a larger value", 11, true, false, 21},
		{"added files, without a value", 0, true, false, 0},
		{"added while held, with a smaller value", 5, true, true, 0},
		{"added while held, with a larger value", 11, true, true, 21},
	} {
		for _, shards := range []int{1, 2} {
			for _, wiped := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d shards, index made anew %t", x.name, shards, wiped), func(t *testing.T) {
					p, owners := sharedPlay(t, shards)
					settle := func() {
						for range 2 {
							for _, o := range owners {
								p.commit(o)
								p.decide(o)
								p.apply()
							}
							for _, o := range owners {
								p.decide(o)
							}
						}
						p.publish()
					}
					p.up(1, 11, 1)
					p.up(0, 10, 10)
					settle()
					p.del(0)
					settle()
					p.theirs(func(*theirHead) theirChange {
						return theirChange{op: "append", add: [][]theirRow{{{event: event{key: 0, value: 20}}}}}
					})
					if !x.held {
						settle()
					}
					e := event{key: 0, value: 21, order: x.order, hasOrd: x.order > 0}
					if x.added {
						p.add([]event{e})
						p.apply()
					} else {
						p.theirs(func(*theirHead) theirChange {
							return theirChange{op: "append", add: [][]theirRow{{{event: e}}}}
						})
					}
					if wiped {
						for _, o := range owners {
							p.wipe(o)
							p.running(o)
						}
					}
					want := map[int]int64{1: 11}
					if x.want != 0 {
						want[0] = x.want
					}
					p.rest(want, owners...)
				})
			}
		}
	}
}

// H7: a request deletes a key after our newest commit; another writer, who built on that
// commit, adds a row of it. Every shard has the tombstone of the request, and only the
// shard of the key knows what else there was: the row goes by the request alone.
func TestAddedBeneathARequest(t *testing.T) {
	for _, x := range []struct {
		name  string
		ask   []int64 // the request's ordering value
		order int64   // of the row that the other writer adds, 0: none
		after []int64 // of an event that comes between, if any
		want  int64   // 0: no row of the key
	}{
		{"without a value", nil, 10, nil, 0},
		{"without a value, and an event after it", nil, 10, []int64{7}, 22},
		{"without a value, the row has none", nil, 0, nil, 0},
		{"with a smaller value", []int64{8}, 10, nil, 21},
		{"with the same value", []int64{10}, 10, nil, 0},
		{"with a value that was late", []int64{4}, 0, nil, 0},
	} {
		for _, shards := range []int{1, 2} {
			for _, wiped := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d shards, index made anew %t", x.name, shards, wiped), func(t *testing.T) {
					p, owners := sharedPlay(t, shards)
					settle := func() {
						for range 2 {
							for _, o := range owners {
								p.apply()
								p.decide(o)
								p.commit(o)
							}
						}
						p.apply()
						for _, o := range owners {
							p.decide(o)
						}
					}
					p.up(1, 11, 1)
					p.up(0, 10, 6)
					settle()
					p.del(0)
					settle()
					p.publish()
					p.ask(0, x.ask...)
					settle()
					if x.after != nil {
						p.up(0, 22, x.after...)
						settle()
					}
					p.theirs(func(*theirHead) theirChange {
						e := event{key: 0, value: 21, order: x.order, hasOrd: x.order > 0}
						return theirChange{op: "append", add: [][]theirRow{{{event: e}}}}
					})
					if wiped {
						for _, o := range owners {
							p.wipe(o)
							p.running(o)
						}
					}
					p.up(1, 31, 2) // so that there is a commit of ours
					want := map[int]int64{1: 31}
					if x.want != 0 {
						want[0] = x.want
					}
					p.rest(want, owners...)
				})
			}
		}
	}
}
