package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/varve-io/varve/schemas/record"
)

// event is what a source record asks, as the test made it.
type event struct {
	key    int
	del    bool
	value  int64
	order  int64
	hasOrd bool
	extra  int64 // of the column w, 0: absent
	bad    badKind
	// partial: the column w did not change, and the event does not have it.
	partial bool
}

// badKind is an event that no row comes of.
type badKind uint8

const (
	good      badKind = iota
	gap               // no record at this offset (A1)
	malformed         // a dead letter of unknown kind
	keyless           // an upsert without key
	keylessDel
)

// row is what a reader sees of one key.
type row struct{ value, extra int64 }

// version is a key's live row in the model. A version is made once and never changes
// but for what is learnt of its row id.
type version struct {
	row
	accepted  int64 // offset of its AppendRows
	published int64 // offset of the SnapshotCommitted that listed it, -1: none
	// Its row id is keep (if not negative) or, where fresh, one that no row had (C6).
	keep  int64
	fresh bool
	added bool   // it came with a file
	file  uint64 // of another writer, which it came with
	bare  bool   // and it has no ordering value, in a table that has them
}

// tomb is a deleted key's memory (K3).
// tomb's at is the place of the dead version, or of the record that decided.
type tomb struct{ time, offset, at int64 }

// asked is a DeleteKeys.
type asked struct {
	keys   []int
	order  int64
	hasOrd bool
}

// model folds the log's accepted records by the rules of §6, from the events
// themselves: no file, no position, no index.
type model struct {
	w        *World
	live     map[int]*version
	ord      map[int]int64
	tombs    map[int]tomb
	last     map[int]int64 // the values that lived before this record
	diedAt   map[int64]int64
	through  int64         // every change up to here is in the newest commit of ours
	told     map[int]int64 // by the key change lists and requests that were accepted
	ends     []int64       // source ends
	requests []int64       // request ends, -1: never claimed
	claimed  []int64       // first claims
	retired  []bool
	times    map[int64]int64 // table time after each record
	asked    map[int64]asked // DeleteKeys, by offset
	done     map[int64]bool  // settled ones
	cuts     map[int64]map[int]*version
	then     map[int64]remembered // by cut: what a rollback to it brings back
	refs     map[string]int64     // tags and branches: their snapshots
	expired  map[int64]bool       // snapshots that were asked to go
	ids      map[int64]int        // row id → the key that had it
	struck   map[int]struckVersion
	finds    map[int64]*modelFind // open, by offset
	held     map[int64][]*heldRow // rows of added files, by offset
	free     map[int64]bool       // AddFiles that are released
	// strangers are rows without a value that stand in a shard that their keys are not
	// of (see strange): their places.
	strangers map[int]int64
	origins   map[uint64]map[uint64]bool // by a job's output
	sequence  int64
	nextRow   int64
}

// struckVersion is a version that a DeletePositions killed: who has not read that
// record takes it for live.
type struckVersion struct {
	*version
	at int64
}

// known is the live version of a key, as whoever made an append knew it.
func (m *model) known(k int, a *record.AppendRows) *version {
	if s, ok := m.struck[k]; ok && m.live[k] == nil && s.at >= a.RequestTo {
		return s.version
	}
	return m.live[k]
}

func newModel(w *World) *model {
	m := &model{
		w: w, live: map[int]*version{}, ord: map[int]int64{}, tombs: map[int]tomb{}, told: map[int]int64{}, last: map[int]int64{}, diedAt: map[int64]int64{}, through: -1, ends: make([]int64, w.opt.Shards),
		requests: make([]int64, w.opt.Shards), claimed: make([]int64, w.opt.Shards), retired: make([]bool, w.opt.Shards), times: map[int64]int64{},
		asked: map[int64]asked{}, done: map[int64]bool{}, cuts: map[int64]map[int]*version{}, then: map[int64]remembered{}, refs: map[string]int64{}, expired: map[int64]bool{}, ids: map[int64]int{}, struck: map[int]struckVersion{}, finds: map[int64]*modelFind{},
		held: map[int64][]*heldRow{}, free: map[int64]bool{}, strangers: map[int]int64{}, origins: map[uint64]map[uint64]bool{},
	}
	for p := range m.requests {
		m.requests[p] = -1
	}
	return m
}

// fold takes the decided log.
func (m *model) fold() error {
	var settled, released []int64
	var over []*record.OutcomeMessage
	for i := range m.w.decided {
		d := &m.w.decided[i]
		o := &d.Outcome
		if o.Derived {
			// It stands before the outcome of the record that settled it.
			switch q := o.Outcome.Numbers[0]; o.Type {
			case record.TypeDeleteWhere:
				over = append(over, o)
			case record.TypeAddFiles, record.TypeForeignSnapshot, record.TypeAdoptFiles:
				released = append(released, q)
			default:
				settled = append(settled, q)
			}
			continue
		}
		if last, ok := m.times[o.Offset-1]; ok && o.TimeMs < last {
			return fmt.Errorf("log offset %d: table time goes back (L4)", o.Offset)
		}
		m.times[o.Offset] = o.TimeMs
		what := fmt.Sprintf("%s %s", o.Outcome.Code, o.Type)
		if o.Outcome.Reason != record.ReasonNone {
			what += ": " + o.Outcome.Reason.String()
		}
		m.w.saw[what]++
		if o.Outcome.Code != record.Accepted && o.Outcome.Code != record.Partly {
			for _, x := range over { // a find job that took too long
				if err := m.foundAll(x); err != nil {
					return fmt.Errorf("log offset %d: %w", o.Offset, err)
				}
			}
			over = over[:0]
			continue
		}
		env, body, err := m.w.bodies.Open(m.w.ctx, d.Record.Key, d.Record.Header, d.Record.Value)
		if err != nil {
			return err
		}
		v, err := record.DecodeBody(env.Type, env.TypeVersion, body)
		if err != nil {
			return err
		}
		switch r := v.(type) {
		case *record.DeleteKeys:
			m.asked[o.Offset] = m.w.asked[o.Offset]
		case *record.ClaimShard:
			err = m.claim(o, int(r.Shard.Partition))
		case *record.RetireShard:
			m.retired[r.Shard.Partition] = true
		case *record.SkipSource:
			p := r.Shard.Partition
			if r.From != m.ends[p] {
				err = fmt.Errorf("a skip starts at %d, the source ends at %d", r.From, m.ends[p])
			}
			m.ends[p] = r.To
		case *record.Cut:
			m.cuts[o.Offset] = maps.Clone(m.live)
			m.then[o.Offset] = remembered{maps.Clone(m.ord), maps.Clone(m.tombs), maps.Clone(m.told)}
		case *record.AlterRefs:
			m.alterRefs(r)
		case *record.ExpireSnapshots:
			err = m.expire(r)
		case *record.Rollback:
			err = m.rollback(r)
		case *record.SnapshotCommitted:
			err = m.committed(o.Offset, r)
		case *record.AppendRows:
			err = m.append(o, r)
		case *record.CompleteJob:
			err = m.completed(o, r)
		case *record.DeletePositions:
			err = m.strike(o, r)
		case *record.DeleteWhere:
			m.finds[o.Offset] = &modelFind{finding: m.w.findings[o.Offset]}
		case *record.RowsFound:
			err = m.found(o, r)
		case *record.AddFiles, *record.AdoptFiles:
			err = m.add(o)
		case *record.ForeignSnapshot:
			err = m.foreign(o, r)
		}
		for _, x := range over {
			err = errors.Join(err, m.foundAll(x))
		}
		over = over[:0]
		for _, q := range settled {
			err = errors.Join(err, m.settled(q))
		}
		for _, q := range released {
			err = errors.Join(err, m.released(o, q))
		}
		settled, released = settled[:0], released[:0]
		m.deaths(o.Offset)
		if err != nil {
			return fmt.Errorf("log offset %d: %w", o.Offset, err)
		}
	}
	for q := range m.finds {
		return fmt.Errorf("the find job at %d was never over", q)
	}
	for q := range m.asked {
		if !m.done[q] {
			return fmt.Errorf("the request at %d was never settled", q)
		}
	}
	return nil
}

// settled: A5. Every shard that was ever claimed before it has answered, or is retired.
func (m *model) settled(q int64) error {
	if m.done[q] {
		return nil // every outcome is perhaps there again (L11)
	}
	if _, ok := m.asked[q]; !ok {
		return fmt.Errorf("the request at %d is settled and was never made", q)
	}
	for p, end := range m.requests {
		if end >= 0 && end <= q && !m.retired[p] && m.claimed[p] < q {
			return fmt.Errorf("the request at %d is settled, shard %d has answered up to %d", q, p, end)
		}
	}
	m.done[q] = true // a shard that was claimed later may answer it all the same
	return nil
}

// claim: A2, A5. Ends outlive owners.
func (m *model) claim(o *record.OutcomeMessage, p int) error {
	n := o.Outcome.Numbers
	if m.requests[p] < 0 {
		m.claimed[p] = o.Offset
	}
	if m.requests[p] < 0 || m.retired[p] {
		m.requests[p] = o.Offset
		for q := range m.held {
			if !m.free[q] {
				m.requests[p] = min(m.requests[p], q)
			}
		}
	}
	m.retired[p] = false
	if n[record.ClaimSourceEnd] != m.ends[p] || n[record.ClaimRequestEnd] != m.requests[p] {
		return fmt.Errorf("the claim of shard %d tells the ends %v, they are %d and %d", p, n, m.ends[p], m.requests[p])
	}
	return nil
}

func (m *model) append(o *record.OutcomeMessage, a *record.AppendRows) error {
	p := a.Shard.Partition
	if a.SourceFrom != m.ends[p] {
		return fmt.Errorf("shard %d goes on at source offset %d, not %d: an event is lost or doubled", p, a.SourceFrom, m.ends[p])
	}
	if a.RequestFrom != m.requests[p] {
		return fmt.Errorf("shard %d goes on at request %d, not %d: a request is lost or answered twice", p, a.RequestFrom, m.requests[p])
	}
	if err := m.forget(int(p), a); err != nil {
		return err
	}
	var counts record.Counts
	wrote, listed := map[int]bool{}, map[int]bool{}
	for s := a.SourceFrom; s < a.SourceTo; s++ {
		e := &m.w.events[p][s]
		if m.event(o, a, e, &counts, wrote) {
			listed[e.key] = e.del
		}
	}
	for q := a.RequestFrom; q < a.RequestTo; q++ {
		if m.held[q] != nil {
			m.take(o, int(p), q, a.RequestTo)
		}
		if r, ok := m.asked[q]; ok {
			m.answer(o, a, q, &r, &counts, wrote)
		}
	}
	for k, del := range listed {
		if order, ok := m.ord[k]; ok && del && m.live[k] == nil {
			m.told[k] = order
		}
	}
	counts.Upserts = int64(len(wrote))
	if (m.w.opt.Imports || m.w.opt.Foreign) && m.w.opt.Shards > 1 {
		// Every shard takes every row: what is found of one hangs on what was read of
		// the other shards' blocks.
		counts.Deletes, counts.AbsentDeletes, counts.LateIgnored = a.Counts.Deletes, a.Counts.AbsentDeletes, a.Counts.LateIgnored
	}
	if counts != a.Counts {
		return fmt.Errorf("shard %d counts %+v, they are %+v", p, a.Counts, counts)
	}
	m.ends[p], m.requests[p] = a.SourceTo, a.RequestTo
	return nil
}

// forget drops the tombstones that whoever made this append had forgotten: those
// older than their time when it read its last entry, which is where its request
// range ends, and than the oldest request that it answers. A tombstone in flight
// is of no age yet (K3).
func (m *model) forget(p int, a *record.AppendRows) error {
	if m.w.opt.NoKey {
		return nil
	}
	want := max(0, m.times[a.RequestTo-1]-m.w.def.TombstoneTTLMs)
	for q := range m.asked {
		if q >= a.RequestFrom && q < a.RequestTo && m.times[q] < want {
			want = max(0, m.times[q])
			m.w.saw["tombstone kept for a request"]++
		}
	}
	for q := range m.held {
		if q >= a.RequestFrom && q < a.RequestTo && m.times[q] < want {
			want = max(0, m.times[q])
			m.w.saw["tombstone kept for added files"]++
		}
	}
	if a.Forgets != want {
		return fmt.Errorf("shard %d forgets before %d, its time is %d", p, a.Forgets, want)
	}
	for k, t := range m.tombs {
		if m.w.shardOf(k) == p && t.offset < a.RequestTo && t.time < a.Forgets {
			delete(m.tombs, k)
			if _, ok := m.ord[k]; ok {
				m.w.saw["tombstone forgotten"]++
				delete(m.ord, k)
			}
		}
	}
	return nil
}

func (m *model) late(k int, order int64, has bool) bool {
	if !has {
		return false
	}
	if o, ok := m.ord[k]; ok && order < o {
		return true
	}
	m.ord[k] = order
	return false
}

// event folds a source event. It says whether it decided about its key.
func (m *model) event(o *record.OutcomeMessage, a *record.AppendRows, e *event, c *record.Counts, wrote map[int]bool) bool {
	opt := &m.w.opt
	switch {
	case e.bad == gap:
		return false
	case e.bad == malformed: // K7: what was lost is counted by kind
		c.DeadOther++
		return false
	case e.bad == keyless && !opt.NoKey:
		c.DeadUpserts++
		return false
	case e.bad == keylessDel || e.del && opt.NoKey:
		c.DeadDeletes++
		return false
	}
	k := e.key
	if opt.NoKey {
		k = int(e.value) // each value is used once
	}
	extra := e.extra
	if last, ok := m.ord[k]; e.partial && (!ok || !e.hasOrd || !opt.Ordered || e.order >= last) {
		if extra, ok = m.carried(o, a, k); !ok {
			c.DeadUpserts++
			return false
		}
	}
	c.Events++
	if m.late(k, e.order, e.hasOrd && opt.Ordered) {
		c.LateIgnored++
		return false
	}
	old := m.known(k, a)
	if e.del {
		m.delete(o, a, k, c, wrote)
		return true
	}
	v := &version{row: row{e.value, extra}, accepted: o.Offset, published: -1, keep: -1, fresh: true}
	if old != nil {
		v.keep, v.fresh = old.keep, old.fresh
		if old.published >= 0 {
			// Whether its maker knew that it was published, it says by its request range.
			v.fresh = old.published >= a.RequestTo
		}
	}
	m.live[k] = v
	delete(m.tombs, k)
	delete(m.struck, k)
	wrote[k] = true
	return true
}

// carried is the value that an event leaves out (K10): that of the version which
// its maker knew, unless a request that the same append answers removes it.
func (m *model) carried(o *record.OutcomeMessage, a *record.AppendRows, k int) (int64, bool) {
	old := m.known(k, a)
	if old == nil {
		m.w.saw["nothing to carry over"]++
		return 0, false
	}
	if old.accepted == o.Offset {
		m.w.saw["carried over in a buffer"]++
		return old.extra, true
	}
	for q := a.RequestFrom; q < a.RequestTo; q++ {
		r, ok := m.asked[q]
		if !ok || !slices.Contains(r.keys, k) {
			continue
		}
		last, has := m.ord[k]
		if r.hasOrd && (!has || last <= r.order) || !r.hasOrd && old.accepted < q {
			m.w.saw["a request ends what would be carried over"]++
			return 0, false
		}
	}
	m.w.saw["carried over"]++
	return old.extra, true
}

func (m *model) delete(o *record.OutcomeMessage, a *record.AppendRows, k int, c *record.Counts, wrote map[int]bool) {
	if m.known(k, a) != nil { // K6: deleting an absent key changes nothing and is counted
		c.Deletes++
	} else {
		c.AbsentDeletes++
	}
	if v := m.live[k]; v != nil {
		m.diedAt[v.value] = o.Offset
	}
	delete(m.live, k)
	delete(m.struck, k)
	delete(wrote, k)
	m.tombs[k] = tomb{o.TimeMs, o.Offset, o.Offset}
}

// entombed: K9. It says whether a key's end is above a request.
func (m *model) entombed(k int, a *record.AppendRows, request int64) bool {
	t, ok := m.tombs[k]
	return ok && m.live[k] == nil && m.known(k, a) == nil && t.at >= request
}

// strike: P1–P5, K4. The versions that a DeletePositions names die, whatever
// became of their files, and leave their ordering values.
func (m *model) strike(o *record.OutcomeMessage, r *record.DeletePositions) error {
	if o.Outcome.Code != record.Accepted {
		return fmt.Errorf("delete blocks are rejected: %v", o.Outcome.Numbers)
	}
	struck := m.w.struck[o.Offset]
	for _, value := range struck.values {
		for _, all := range m.held {
			for _, x := range all {
				if x.value == value && x.died < 0 && m.in(&struck, x.file) {
					x.died = o.Offset
				}
			}
		}
		for _, k := range slices.Sorted(maps.Keys(m.live)) {
			if m.live[k].value == value && m.in(&struck, m.live[k].file) {
				m.struck[k] = struckVersion{m.live[k], o.Offset}
				m.tombs[k] = tomb{o.TimeMs, o.Offset, m.live[k].accepted}
				delete(m.live, k)
				m.w.saw["row struck"]++
			}
		}
	}
	return nil
}

func (m *model) answer(o *record.OutcomeMessage, a *record.AppendRows, at int64, q *asked, c *record.Counts, wrote map[int]bool) {
	p := int(a.Shard.Partition)
	for _, k := range q.keys {
		if last, ok := m.told[k]; q.hasOrd && (!ok || last < q.order) {
			m.told[k] = q.order
		}
		// Every shard answers for every key: it cannot know whose a key is that it never saw.
		mine := m.w.shardOf(k) == p
		switch {
		case !mine:
			m.strange(o, a, k, at, q, c)
		case q.hasOrd && m.late(k, q.order, true):
			c.LateIgnored++
		case !q.hasOrd && m.known(k, a) != nil && m.known(k, a).accepted >= at:
		case !q.hasOrd && m.entombed(k, a, at):
			c.AbsentDeletes++
		default:
			end, listed := m.tombs[k]
			listed = listed && m.live[k] == nil && end.at == o.Offset
			m.delete(o, a, k, c, wrote)
			if t := m.tombs[k]; !listed { // the versions from before it end there
				m.tombs[k] = tomb{t.time, t.offset, at}
			}
		}
	}
}

// strange: the answer of a shard that the key is not of. It remembers, by
// itself, what it was told.
func (m *model) strange(o *record.OutcomeMessage, a *record.AppendRows, k int, at int64, q *asked, c *record.Counts) {
	id := -1 - (int(a.Shard.Partition)*m.w.opt.Keys + k) // a key of its own
	if q.hasOrd && m.late(id, q.order, true) {
		c.LateIgnored++
		return
	}
	c.AbsentDeletes++
	if v := m.live[k]; v != nil && v.added && v.accepted < at && (v.file == 0 || v.published < at) {
		// It has taken that row, and is the first to answer.
		m.diedAt[v.value] = o.Offset
		m.struck[k] = struckVersion{v, o.Offset}
		m.tombs[k] = tomb{o.TimeMs, o.Offset, v.accepted}
		delete(m.live, k)
		m.w.saw["added row ended by another shard"]++
	}
	for rec, all := range m.held {
		if rec >= at || m.requests[m.w.shardOf(k)] > rec {
			continue
		}
		for _, x := range all { // it has taken them, before the shard of the key
			if x.key == k && x.died < 0 {
				x.died = o.Offset
				m.w.saw["held row ended by another shard"]++
			}
		}
	}
	if !q.hasOrd && m.entombed(id, a, at) {
		return
	}
	m.tombs[id] = tomb{o.TimeMs, o.Offset, at}
}

// committed learns row ids from the snapshot's files and holds them against C6.
func (m *model) committed(at int64, c *record.SnapshotCommitted) error {
	if m.through < 0 {
		m.through = m.w.tableID
	} else {
		m.through = c.Build
	}
	if c.SnapshotID == 0 {
		return nil
	}
	if c.Sequence <= m.sequence || c.FirstRowID < m.nextRow {
		return fmt.Errorf("sequence %d after %d, first row id %d after %d: they never go back (C6)", c.Sequence, m.sequence, c.FirstRowID, m.nextRow)
	}
	m.sequence, m.nextRow = c.Sequence, c.FirstRowID+c.AddedRows
	read := m.w.snapshots[c.Build]
	if read == nil {
		return fmt.Errorf("the snapshot of the cut at %d was never built", c.Build)
	}
	want := m.cuts[c.Build]
	if d := differ(rowsOf(want), read.rows); d != "equal" {
		return fmt.Errorf("the snapshot of the cut at %d: %s", c.Build, d)
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if err := m.learn(at, k, want[k], read.ids[k]); err != nil {
			return fmt.Errorf("the snapshot of the cut at %d: %w", c.Build, err)
		}
	}
	return nil
}

func (m *model) learn(at int64, k int, v *version, id int64) error {
	had, used := m.ids[id]
	switch {
	case v.keep == id:
	case v.fresh && !used:
	case v.fresh:
		return fmt.Errorf("a row of key %d has row id %d, which a row of key %d had (C6)", k, id, had)
	default:
		return fmt.Errorf("a row of key %d has row id %d; it is a new version of the published row %d (C6)", k, id, v.keep)
	}
	if v.keep == id && v.published < 0 {
		m.w.saw["row id kept"]++
	}
	m.ids[id] = k
	v.keep, v.fresh = id, false
	if v.published < 0 {
		v.published = at
	}
	return nil
}

func rowsOf(live map[int]*version) map[int]row {
	out := make(map[int]row, len(live))
	for k, v := range live {
		out[k] = v.row
	}
	return out
}
