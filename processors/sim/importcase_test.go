package sim

import (
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// add writes a file for each list and asks for them with one AddFiles.
func (p *play) add(files ...[]event) {
	p.t.Helper()
	a := &added{seen: int64(len(p.log)) - 1, files: files}
	p.must(p.writeAdded(a))
	p.adding = append(p.adding, a)
	p.must(p.askAdd(len(p.adding) - 1))
}

func one(key int, value int64, order ...int64) []event {
	return []event{valued(key, false, value, order)}
}

// strikeValue deletes the row with this value by its position.
func (p *play) strikeValue(value int64) {
	p.t.Helper()
	p.apply()
	done := false
	p.must(p.m.store.Files(p.tableID, func(f *statestore.FileInfo) error {
		values, err := p.valuesOf(f)
		for i, v := range values {
			if v == value && !done {
				done = true
				return p.strike(f, roaring.BitmapOf(uint32(i)))
			}
		}
		return err
	}))
	if !done {
		p.t.Fatalf("no row has the value %d", value)
	}
}

// rest takes what is in the log, and publishes it.
func (p *play) rest(want map[int]int64, owners ...*owner) {
	p.t.Helper()
	for range 3 {
		for _, o := range owners {
			p.apply()
			p.decide(o)
			p.commit(o)
		}
	}
	for _, o := range owners {
		p.decide(o)
		p.must(p.checkIndex(o))
	}
	p.expect(want)
}

// Case 33, H1: a file with keys that the table has comes while upserts of those
// keys are in flight: one live row a key, the later one, or the one with the
// larger value.
func TestAddedWhileUpsertsAreInFlight(t *testing.T) {
	keyKinds(t, Options{Keys: 8}, func(t *testing.T, opt Options) {
		p := newPlay(t, opt)
		o := p.running(p.owner(0))
		p.up(0, 10)
		p.up(1, 11)
		p.commit(o)
		p.publish()
		p.up(1, 21) // in flight when the file comes: later than its row
		p.read(o)
		p.flush(o)
		p.add([]event{valued(0, false, 30, nil), valued(1, false, 31, nil), valued(2, false, 32, nil)})
		p.arrive(o)
		p.up(2, 42) // read after it
		p.rest(map[int]int64{0: 30, 1: 21, 2: 42}, o)
	})
	t.Run("ordered", func(t *testing.T) {
		p := newPlay(t, Options{Keys: 8, Ordered: true})
		o := p.running(p.owner(0))
		p.up(0, 10, 5)
		p.up(1, 11, 5)
		p.commit(o)
		p.add([]event{valued(0, false, 30, []int64{4}), valued(1, false, 31, []int64{6}), valued(2, false, 32, []int64{7})})
		p.up(1, 41, 6)
		p.up(2, 42, 6) // late
		p.rest(map[int]int64{0: 10, 1: 41, 2: 32}, o)
	})
}

// Case 40, H1: the source deletes the key of a held file before the shard took it.
func TestAddedThenDeleted(t *testing.T) {
	p := newPlay(t, Options{Keys: 8})
	o := p.running(p.owner(0))
	p.del(0)
	p.up(1, 11)
	p.read(o)
	p.flush(o) // in flight
	p.add(one(0, 30), one(2, 32))
	p.arrive(o)
	p.rest(map[int]int64{1: 11, 2: 32}, o)
}

// Case 41: one shard takes X, the owner takes both, the other then takes Y.
func TestAddedTwiceBetweenShards(t *testing.T) {
	p := newPlay(t, Options{Keys: 8, Shards: 2})
	owner, other := p.running(p.owner(0)), p.running(p.owner(1))
	p.apply()
	p.decide(owner)
	p.add(one(2, 30))
	p.apply()
	p.decide(other)
	p.flush(other)
	p.arrive(other)
	p.add(one(2, 31))
	p.apply()
	p.decide(owner)
	p.flush(owner)
	p.arrive(owner)
	p.apply()
	p.rest(map[int]int64{2: 31}, owner, other)
}

// Case 42: the newer of two rows is deleted by position, before the shards take
// them or after: the older one does not come back.
func TestAddedAndStruck(t *testing.T) {
	for _, after := range []bool{false, true} {
		p := newPlay(t, Options{Keys: 8, Ordered: true})
		o := p.running(p.owner(0))
		p.add(one(4, 30, 1))
		p.add(one(4, 31, 3))
		p.add(one(1, 32, 3))
		if after {
			p.apply()
			p.decide(o)
			p.flush(o)
			p.arrive(o)
		}
		p.strikeValue(31)
		p.rest(map[int]int64{1: 32}, o)
	}
}

// Case 47: a key comes twice, in one file or in two.
func TestAddedKeyTwice(t *testing.T) {
	p := newPlay(t, Options{Keys: 8})
	o := p.running(p.owner(0))
	p.add([]event{valued(0, false, 30, nil), valued(0, false, 31, nil)}, one(1, 32), one(1, 33))
	p.rest(map[int]int64{0: 31, 1: 33}, o)
}

// A2, H8: a table has files before any shard is claimed; the first owner takes them.
func TestAddedBeforeAnyShard(t *testing.T) {
	p := newPlay(t, Options{Keys: 8})
	p.add(one(0, 30), one(0, 31), one(1, 32))
	p.strikeValue(32)
	p.apply()
	if i, err := p.m.store.Table(tableName); err != nil || len(i.Held) != 1 {
		t.Fatalf("held: %+v, %v", i, err)
	}
	o := p.running(p.owner(0))
	p.up(2, 40)
	p.rest(map[int]int64{0: 31, 2: 40}, o)
}

// H6, A5: a request from before the files leaves their rows, one from after them
// ends them, though one append answers both.
func TestAddedBetweenRequests(t *testing.T) {
	p := newPlay(t, Options{Keys: 8})
	o := p.running(p.owner(0))
	p.ask(0)
	p.add(one(0, 30), one(1, 31))
	p.ask(1)
	p.rest(map[int]int64{0: 30}, o)
	// An append in flight that answers the first of them does not end the row.
	p.ask(2)
	p.apply()
	p.decide(o)
	p.flush(o)
	p.add(one(2, 32))
	p.arrive(o)
	p.rest(map[int]int64{0: 30, 2: 32}, o)
}

// H9: nothing is published of a table, and no job is planned, while files are held.
func TestNothingWhileHeld(t *testing.T) {
	p := newPlay(t, Options{Keys: 8, Shards: 2})
	a, b := p.running(p.owner(0)), p.running(p.owner(1))
	p.up(0, 10)
	p.commit(a)
	p.decide(b)
	p.publish()
	p.add(one(0, 30))
	p.apply()
	p.decide(a)
	p.flush(a)
	p.arrive(a)
	p.apply()
	for _, v := range []any{&record.Cut{}, &record.PlanJobs{Items: []record.PlanItem{{Inputs: []record.JobInput{{File: 1, Hi: 1}}}}}} {
		p.must(p.request(tableName, p.tableID, v))
		p.apply()
		if got := p.decided[len(p.decided)-1].Outcome.Outcome; got.Reason != record.FilesHeld {
			t.Fatalf("%T is %s: %s", v, got.Code, got.Reason)
		}
	}
	p.rest(map[int]int64{0: 30}, a, b)
}

// H7: what two shards kill apart is the same, though one of them alone knows
// that the key had a larger value.
func TestAddedWithoutValue(t *testing.T) {
	for _, known := range []bool{false, true} {
		p := newPlay(t, Options{Keys: 8, Shards: 2, Ordered: true})
		a, b := p.running(p.owner(0)), p.running(p.owner(1))
		want := map[int]int64{0: 30}
		if known {
			p.up(0, 10, 12)
			p.commit(a)
			want[0] = 10
		}
		p.add(one(0, 30, 5))
		p.add(one(0, 31))
		p.add(one(0, 32, 3))
		p.rest(want, b, a)
	}
}
