package sim

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/processors/compactor"
	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/schemas/record"
)

// play is a world without a scheduler: a test says what happens, in its words.
// Nothing is lost, crashes or arrives unless it says so.
type play struct {
	*World
	t     testing.TB
	m     *member
	later []*compactor.Done // executed jobs that complete at the end
}

func newPlay(t testing.TB, opt Options) *play {
	t.Helper()
	if opt.Shards == 0 {
		opt.Shards = 1
	}
	if opt.FlushEvery == 0 {
		opt.FlushEvery = 1 << 20
	}
	w, err := NewWorld(opt)
	if err != nil {
		t.Fatal(err)
	}
	p := &play{World: w, t: t, m: w.members[0]}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *play) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// up and del emit one event; an order makes it a valued one.
func (p *play) up(key int, value int64, order ...int64) { p.emit(valued(key, false, value, order)) }
func (p *play) del(key int, order ...int64)             { p.emit(valued(key, true, 0, order)) }

func valued(key int, del bool, value int64, order []int64) event {
	e := event{key: key, del: del, value: value}
	if len(order) > 0 {
		e.order, e.hasOrd = order[0], true
	}
	return e
}

// ask puts a DeleteKeys into the log and gives its offset.
func (p *play) ask(key int, order ...int64) int64 {
	p.t.Helper()
	q := asked{keys: []int{key}}
	if len(order) > 0 {
		q.order, q.hasOrd = order[0], true
	}
	p.must(p.askKeys(q))
	return int64(len(p.log)) - 1
}

// owner makes an owner whose claim is still under way.
func (p *play) owner(partition int) *owner {
	p.t.Helper()
	o, err := p.addOwner(partition)
	p.must(err)
	return o
}

// running brings an owner's claim into the log and back to it.
func (p *play) running(o *owner) *owner {
	p.t.Helper()
	p.arrive(o)
	p.apply()
	p.decide(o)
	if o.shard.Stage() != ingest.Running {
		p.t.Fatalf("the owner is in stage %d: %v", o.shard.Stage(), o.shard.Err())
	}
	return o
}

// read hands an owner all of its source that it does not have, or up to an offset.
func (p *play) read(o *owner, to ...int) {
	p.t.Helper()
	n := 1 << 20
	if len(to) > 0 {
		n = to[0] - int(o.shard.SourceFrom())
	}
	p.must(o.deliverSource(n))
}

// flush makes one append of what the owner holds and of the requests that it knows.
func (p *play) flush(o *owner) {
	p.t.Helper()
	o.shard.FlushSoon()
	o.shard.Tick(p.ctx, p.now)
	p.must(o.shard.Err())
}

// arrive brings an owner's appends into the log: all, or the next n.
func (p *play) arrive(o *owner, n ...int) {
	k := len(o.net.queue)
	if len(n) > 0 {
		k = min(k, n[0])
	}
	for range k {
		o.net.deliver()
	}
}

// apply lets every member decide the whole log.
func (p *play) apply() {
	p.t.Helper()
	for _, m := range p.members {
		for m.machine.Next() < int64(len(p.log)) {
			p.must(m.apply(1 << 20))
		}
		p.must(m.machine.OnLog(p.ctx, p.now, nil, true))
		p.must(m.dispatch())
	}
}

// decide hands an owner the outcomes: all, or the next n.
func (p *play) decide(o *owner, n ...int) {
	p.t.Helper()
	k := 1 << 20
	if len(n) > 0 {
		k = n[0]
	}
	p.must(o.deliverDecided(k))
}

// commit reads, flushes and waits for the outcome.
func (p *play) commit(o *owner) {
	p.t.Helper()
	p.read(o)
	p.flush(o)
	p.arrive(o)
	p.apply()
	p.decide(o)
}

// restart loses the owner's memory, and what it sent but keep of its appends.
func (p *play) restart(o *owner, keep int) {
	p.t.Helper()
	net := o.net
	net.dead = true
	net.queue = net.queue[:min(keep, len(net.queue))]
	p.lost = append(p.lost, net)
	p.must(o.shard.Abandon())
	p.must(o.open())
}

// wipe also loses the owner's folder.
func (p *play) wipe(o *owner) {
	p.t.Helper()
	o.net.dead, o.net.queue = true, nil
	p.must(o.shard.Abandon())
	o.fs = vfs.NewCrashableMem()
	p.must(o.open())
}

// cut asks for a cut and gives its build offset; -1 when nothing is to be cut.
func (p *play) cut() int64 {
	p.t.Helper()
	p.apply()
	p.must(p.request(tableName, p.tableID, &record.Cut{}))
	p.apply()
	d := p.decided[len(p.decided)-1].Outcome
	if d.Outcome.Code != record.Accepted {
		return -1
	}
	return d.Offset
}

// build publishes the pending cut in the store, and tells the log nothing.
func (p *play) build() *record.SnapshotCommitted {
	p.t.Helper()
	f, err := p.m.store.Frozen(p.tableID)
	p.must(err)
	if f == nil {
		p.t.Fatal("no cut is pending")
	}
	res, err := p.publisher().Publish(p.ctx, f)
	p.must(err)
	p.published[f.Build] = &res.Committed
	p.must(p.keepSnapshot(&res.Committed))
	return &res.Committed
}

// confirm puts a SnapshotCommitted into the log and gives its outcome.
func (p *play) confirm(c *record.SnapshotCommitted) record.Outcome {
	p.t.Helper()
	p.must(p.request(tableName, p.tableID, c))
	p.apply()
	return p.decided[len(p.decided)-1].Outcome.Outcome
}

// publish publishes what is there. It returns the newest snapshot.
func (p *play) publish() *record.SnapshotCommitted {
	p.t.Helper()
	var last *record.SnapshotCommitted
	for p.cut() >= 0 {
		c := p.build()
		if out := p.confirm(c); out.Code != record.Accepted {
			p.t.Fatalf("the snapshot was %s: %s", out.Code, out.Reason)
		}
		if c.SnapshotID != 0 {
			last = c
		}
	}
	return last
}

// rowsOf reads a snapshot as a reader does.
func (p *play) rowsOf(c *record.SnapshotCommitted) map[int]int64 {
	p.t.Helper()
	out := map[int]int64{}
	if c == nil {
		return out
	}
	got, err := p.readSnapshot(c)
	p.must(err)
	for k, r := range got.rows {
		out[k] = r.value
	}
	return out
}

// newest is the newest snapshot that was built, nil when there is none.
func (p *play) newest() *record.SnapshotCommitted {
	var c *record.SnapshotCommitted
	for _, build := range slices.Sorted(maps.Keys(p.published)) {
		if p.published[build].SnapshotID != 0 {
			c = p.published[build]
		}
	}
	return c
}

// expect settles the world and holds its newest snapshot against rows: the
// case's own answer. The model, the members and the indexes are checked too.
func (p *play) expect(want map[int]int64) {
	p.t.Helper()
	p.must(p.quiesce())
	p.must(p.World.check())
	if got := p.rowsOf(p.newest()); !maps.Equal(got, want) {
		p.t.Fatalf("the newest snapshot has %v, the right rows are %v", got, want)
	}
}

// keyKinds are a narrow key (its index holds it) and a hashed one.
func keyKinds(t *testing.T, opt Options, fn func(t *testing.T, opt Options)) {
	for _, strs := range []bool{false, true} {
		name := "long"
		if strs {
			name = "string"
		}
		t.Run(name, func(t *testing.T) {
			opt := opt
			opt.Strings = strs
			fn(t, opt)
		})
	}
}

// between is what may happen between two steps of a case.
type between int

const (
	sameFlush  between = iota // nothing: they meet in one buffer
	inFlight                  // a flush whose outcome is not known yet
	decided                   // a flush and its outcome
	published                 // and a snapshot
	restarted                 // and a new life of the owner, with what its folder has kept
	handed                    // and another owner, with an empty folder
	compacting                // a snapshot, and a job of all its files that is under way until the end
	compacted                 // a snapshot, and a job of all its files
	betweens
)

func (b between) String() string {
	return [...]string{"same flush", "in flight", "decided", "published", "restarted", "handed over", "compacting", "compacted"}[b]
}

// step is an event of a case, or a request.
type step struct {
	key    int
	del    bool
	asks   bool
	value  int64
	order  int64
	valued bool
}

func ups(key int, value int64, order ...int64) step { return stepOf(key, false, false, value, order) }
func dels(key int, order ...int64) step             { return stepOf(key, true, false, 0, order) }
func asks(key int, order ...int64) step             { return stepOf(key, false, true, 0, order) }

func stepOf(key int, del, asks bool, value int64, order []int64) step {
	s := step{key: key, del: del, asks: asks, value: value}
	if len(order) > 0 {
		s.order, s.valued = order[0], true
	}
	return s
}

func (p *play) do(s step) {
	var order []int64
	if s.valued {
		order = []int64{s.order}
	}
	switch {
	case s.asks:
		p.ask(s.key, order...)
	default:
		p.emit(valued(s.key, s.del, s.value, order))
	}
}

var allFlag = flag.Bool("all", false, "run every case with every choice of what happens between its steps, not a third of them")

// allGaps runs steps with every choice of what happens between them. Without
// -all it takes a third of those of several gaps, each choice in each gap.
func allGaps(t *testing.T, opt Options, steps []step, want map[int]int64) {
	total := 1
	for range len(steps) - 1 {
		total *= int(betweens)
	}
	for n := range total {
		gaps, sum := make([]between, len(steps)-1), 0
		for i, rest := 0, n; i < len(gaps); i++ {
			gaps[i], rest = between(rest%int(betweens)), rest/int(betweens)
			sum += int(gaps[i])
		}
		if *allFlag || len(gaps) == 1 || (sum+len(t.Name()))%3 == 0 {
			playGaps(t, opt, steps, gaps, want)
		}
	}
}

func playGaps(t *testing.T, opt Options, steps []step, gaps []between, want map[int]int64) {
	if ok := t.Run(fmt.Sprint(gaps), func(t *testing.T) {
		p := newPlay(t, opt)
		o := p.running(p.owner(0))
		p.publish()
		for i, s := range steps {
			p.do(s)
			p.apply()
			p.decide(o)
			if i == len(gaps) {
				break
			}
			p.read(o)
			if gaps[i] >= inFlight {
				p.flush(o)
			}
			if gaps[i] >= decided {
				p.arrive(o)
				p.apply()
				p.decide(o)
			}
			if gaps[i] >= published {
				p.publish()
			}
			switch gaps[i] {
			case restarted:
				p.restart(o, 1<<20)
				p.running(o)
			case handed:
				o = p.running(p.owner(0))
			case compacting:
				p.later = append(p.later, p.compact(nil)...)
			case compacted:
				p.complete(p.compact(nil)...)
				p.decide(o)
			}
		}
		p.complete(p.later...)
		p.expect(want)
	}); !ok {
		t.FailNow()
	}
}
