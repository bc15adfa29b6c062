package ingest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/keyindex"
	"github.com/varve-io/varve/statestore/objstore"
)

// Files that enter by another path (H1) are held until every shard has taken
// all of their keys: it cannot know which of them are its own. A shard takes
// them like a request: with the append whose request range passes the record.
// That append has no source events, so all of it is judged in the order of the
// log, rows of files and answers to requests: what was accepted above a record is
// newer, in flight or not, and the events in the buffer come after it.

// heldAdd is an AddFiles, AdoptFiles or ForeignSnapshot whose rows the index may
// not have.
type heldAdd struct {
	Offset int64 // of the record
	Place  int64 // of its rows in the log: the record's own offset, or less (H10)
	TimeMs int64 // table time of the record
	Files  []heldPart
	Deaths []heldDeath // of their rows, until they were taken
	Taken  int64       // offset of the append that took them, 0: none yet
	// Folded says that the index has had their rows since the record: it came
	// while no epoch of the shard could be open.
	Folded bool
}

type heldPart struct {
	ID   uint64
	Rows int64
}

// heldDeath is a block of another sender.
type heldDeath struct {
	At   int64 // log offset, or neverRow
	File uint64
	Set  []byte
}

// neverRow says of a block that its positions were no rows of the table at any
// time: they say nothing of their keys (H14).
const neverRow = -1

// asked says that from a log offset on the shard is asked to take what comes, or
// is not: before its first claim, and while it is retired, nobody waits for it.
type asked struct {
	At int64
	Is bool
}

// askedAt says whether the shard was asked as of a log offset.
func (s *side) askedAt(offset int64) bool {
	is := false
	for _, a := range s.Asked {
		if a.At <= offset {
			is = a.Is
		}
	}
	return is
}

func (s *side) ask(offset int64, is bool) {
	if n := len(s.Asked); n > 0 && s.Asked[n-1].At >= offset || s.askedAt(offset) == is {
		return
	}
	s.Asked = append(s.Asked, asked{offset, is})
}

// held are the AddFiles in a request range.
func (s *side) held(from, to int64) []*heldAdd {
	var out []*heldAdd
	for i := range s.Held {
		if h := &s.Held[i]; h.Offset >= from && h.Offset < to {
			out = append(out, h)
		}
	}
	return out
}

// nextHeld is the oldest AddFiles that no append up to a request end took, nil
// when there is none.
func (s *side) nextHeld(from int64) *heldAdd {
	for i := range s.Held {
		if h := &s.Held[i]; h.Offset >= from {
			return h
		}
	}
	return nil
}

// holds finds a file that is not taken.
func (s *side) holds(file uint64) *heldAdd {
	for i := range s.Held {
		if h := &s.Held[i]; h.Taken == 0 && slices.ContainsFunc(h.Files, func(p heldPart) bool { return p.ID == file }) {
			return h
		}
	}
	return nil
}

// added takes an AddFiles or AdoptFiles.
func (s *Shard) added(ctx context.Context, d *processors.Decided) error {
	m := &d.Outcome
	if s.index == nil {
		return nil
	}
	v, err := s.content(ctx, d)
	if err != nil {
		return err
	}
	items, adopted := 0, []record.AdoptedFile(nil)
	given, isGiven := v.(*record.AddFiles)
	if isGiven {
		items = len(given.Items)
	} else {
		adopted = v.(*record.AdoptFiles).Items
		items = len(adopted)
	}
	rejected, err := m.Outcome.Rejected(items)
	if err != nil {
		return err
	}
	if len(m.Outcome.Numbers) <= record.AddHeld {
		return fmt.Errorf("the outcome of added files has %d numbers", len(m.Outcome.Numbers))
	}
	id := uint64(m.Outcome.Numbers[record.AddFirst])
	h := heldAdd{Offset: m.Offset, Place: m.Offset, TimeMs: m.TimeMs}
	for i := range items {
		if rejected[i] {
			continue
		}
		info, rows := fileInfo{Record: m.Offset, Added: m.Offset, Epoch: -1, FirstRow: -1}, int64(0)
		if isGiven {
			info.Name, rows = given.Items[i].Name, given.Items[i].Rows
		} else {
			info.Path, rows = adopted[i].Path, adopted[i].Rows
			if len(adopted[i].Dead) > 0 {
				h.Deaths = append(h.Deaths, heldDeath{neverRow, id, adopted[i].Dead})
			}
		}
		if m.Offset > s.side.Offset {
			s.side.Files[id] = info
		}
		h.Files = append(h.Files, heldPart{id, rows})
		id++
	}
	return s.hold(ctx, m, h)
}

// hold keeps added files until the shard takes them; one that nobody waits for
// folds them at once (H8).
func (s *Shard) hold(ctx context.Context, m *record.OutcomeMessage, h heldAdd) error {
	if m.Offset > s.side.Offset && !slices.ContainsFunc(s.side.Held, func(x heldAdd) bool { return x.Offset == h.Offset }) {
		s.side.Held = append(s.side.Held, h)
	}
	if !s.side.askedAt(m.Offset) {
		return s.foldHeld(ctx, m, m.Offset)
	}
	s.flushNow = true
	return nil
}

// foldHeld folds the rows of an AddFiles at their own place: no append of this
// shard was accepted since. Whatever loses its key is owed.
func (s *Shard) foldHeld(ctx context.Context, m *record.OutcomeMessage, offset int64) error {
	for _, h := range s.side.held(offset, offset+1) {
		if m.Offset <= s.index.Offset() {
			continue // the index has them, and the side file what is owed
		}
		h.Folded = false // as it was when the record was folded first
		p := passage{s: s, until: m.Offset + 1, forgets: 0, timeMs: m.TimeMs, lookup: s.index.LookupConfirmed, fold: true}
		for _, f := range h.Files {
			if err := p.read(ctx, h, f); err != nil {
				return fmt.Errorf("the files added at log offset %d: %w", h.Offset, err)
			}
		}
		if err := p.byKey(ctx); err != nil {
			return err
		}
		if err := s.applyFold(p.entries, m.Offset); err != nil {
			return awayDisk(err)
		}
		s.side.Debts = append(s.side.Debts, p.kills...)
		h.Folded = true
		// The index is durable no earlier than at the next record: what is owed is
		// kept before.
		if err := s.side.save(s.cfg.FS, s.cfg.Dir); err != nil {
			return awayDisk(err)
		}
	}
	return nil
}

// claimedHeld: files from before the claim's request end were settled by others.
func (s *Shard) claimedHeld(epoch int64) error {
	for i := range s.side.Held {
		h := &s.side.Held[i]
		if h.Taken > 0 || h.Offset >= s.requestEnd {
			continue
		}
		if !h.Folded {
			return fmt.Errorf("the files added at log offset %d are settled, and this shard never took them; remove its index folder %s: the index is built again from the log", h.Offset, s.cfg.Dir)
		}
		h.Taken = epoch
	}
	return nil
}

// flushTake appends what takes the files that the request range up to now
// brings, and answers its requests. The buffer waits.
func (s *Shard) flushTake(ctx context.Context) error {
	a := record.AppendRows{
		Shard: s.cfg.Shard, Epoch: s.epoch, Counter: s.counter + 1, SourceFrom: s.sourceEnd, SourceTo: s.sourceEnd,
		RequestFrom: s.requestEnd, RequestTo: max(s.requestEnd, s.decided+1), SchemaID: s.def.CurrentSchema,
	}
	a.Forgets = s.forgets(a.RequestFrom, a.RequestTo)
	if s.cfg.Partitions > 1 {
		a.Framing = s.framing
	}
	p := passage{s: s, until: math.MaxInt64, forgets: a.Forgets, timeMs: keyindex.PendingTime, lookup: s.index.Lookup}
	if err := p.judge(ctx, a.RequestFrom, a.RequestTo); err != nil {
		return err
	}
	var err error
	if a.Deletes, err = s.buf.blocks(append(p.kills, s.side.Debts...)); err != nil {
		return err
	}
	a.Counts = p.counts
	if p.keyless > 0 {
		s.log.Warn("rows of added files have no key, or none that the table can have; they are taken out", "rows", p.keyless)
	}
	s.log.Info("taking the keys of added files", "rows", p.taken, "replaced", len(p.kills))
	return s.send(ctx, &a, p.entries, flight{pays: len(s.side.Debts) > 0, kept: p.kept})
}

// forgets is the time before which an append of this request range remembers no
// tombstone: what it answers or takes is judged by those above it (K3).
func (s *Shard) forgets(from, to int64) int64 {
	at := s.decidedTime - s.def.TombstoneTTLMs
	if open := s.side.pending(from, to); len(open) > 0 {
		at = min(at, open[0].TimeMs)
	}
	if held := s.side.held(from, to); len(held) > 0 {
		at = min(at, held[0].TimeMs)
	}
	return max(0, at)
}

// foldTakes folds an accepted append of the shard that took files, answers
// included.
func (s *Shard) foldTakes(ctx context.Context, m *record.OutcomeMessage, a *record.AppendRows) error {
	p := passage{s: s, until: m.Offset, forgets: a.Forgets, timeMs: m.TimeMs, lookup: s.index.LookupConfirmed, unheard: a.RequestTo, fold: true}
	if err := p.facts(ctx, a); err != nil {
		return err
	}
	if err := p.judge(ctx, a.RequestFrom, a.RequestTo); err != nil {
		return err
	}
	if err := s.applyFold(p.entries, m.Offset); err != nil {
		return awayDisk(err)
	}
	for _, h := range s.side.held(a.RequestFrom, a.RequestTo) {
		h.Taken = m.Offset
	}
	return nil
}

// stillStand are what became of rows that stay where they are and remember another
// value since an append took files (A7): one that died meanwhile, or went elsewhere,
// is as it is now, and remembers that too. Those that stand are left out.
func (s *Shard) stillStand(kept []keyindex.Entry) ([]keyindex.Entry, error) {
	var out []keyindex.Entry
	var keys []keyindex.Key
	var found []keyindex.Found
	for len(kept) > 0 {
		n := min(len(kept), lookupKeys)
		keys = keys[:0]
		for i := range kept[:n] {
			keys = append(keys, kept[i].Key)
		}
		var err error
		if found, err = s.index.LookupConfirmed(keys, found[:0]); err != nil {
			return nil, awayDisk(err)
		}
		for i := range found {
			x, f := &kept[i], &found[i]
			if !f.Present || f.File == x.File && f.Pos == x.Pos {
				continue
			}
			if !f.HasOrder {
				f.HasOrder, f.Order = x.HasOrder, x.Order
			}
			out = append(out, f.Entry)
		}
		kept = kept[n:]
	}
	return out, nil
}

// tookOwn: an append of the open epoch took files. Deaths of their rows that its
// maker had not read of are folded now.
func (s *Shard) tookOwn(ctx context.Context, m *record.OutcomeMessage, a *record.AppendRows) error {
	for _, h := range s.side.held(a.RequestFrom, a.RequestTo) {
		if h.Taken > 0 {
			continue
		}
		var dead []keyindex.Entry
		for i := range h.Files {
			id := h.Files[i].ID
			set, err := h.dead(id, m.Offset)
			if err != nil {
				return err
			}
			if set.IsEmpty() {
				continue
			}
			more, err := s.foldDeath(ctx, dead, m, s.side.Files[id], id, set)
			if err != nil && (isAway(err) || int64(set.GetCardinality()) < h.Files[i].Rows) {
				return err
			}
			if err == nil { // else its maker could not read it either
				dead = more
			}
		}
		if err := s.applyFold(dead, m.Offset); err != nil {
			return awayDisk(err)
		}
		h.Taken = m.Offset
	}
	return nil
}

// deathOfHeld keeps another sender's block of a file that is not taken. It says
// whether that is all that is to be done with it.
func (s *Shard) deathOfHeld(m *record.OutcomeMessage, b *record.DeleteBlock) bool {
	h := s.side.holds(b.File)
	if h == nil {
		return false
	}
	if m.Offset > s.side.Offset && !h.Folded {
		h.Deaths = append(h.Deaths, heldDeath{m.Offset, b.File, slices.Clone(b.Bitmap)})
	}
	return !h.Folded
}

// dead are the rows of a file that died below a log offset, before it was taken.
func (h *heldAdd) dead(file uint64, until int64) (*roaring.Bitmap, error) {
	return h.deaths(file, func(at int64) bool { return at != neverRow && at < until })
}

// stillborn are the rows of a file that were dead in the record that brought it.
func (h *heldAdd) stillborn(file uint64) (*roaring.Bitmap, error) {
	return h.deaths(file, func(at int64) bool { return at == h.Offset })
}

// never are positions of a file that were no rows of the table at any time.
func (h *heldAdd) never(file uint64) (*roaring.Bitmap, error) {
	return h.deaths(file, func(at int64) bool { return at == neverRow })
}

func (h *heldAdd) deaths(file uint64, of func(at int64) bool) (*roaring.Bitmap, error) {
	out := roaring.New()
	for i := range h.Deaths {
		if d := &h.Deaths[i]; d.File == file && of(d.At) {
			set, err := dv.ReadBitmap(slices.Clone(d.Set))
			if err != nil {
				return nil, fmt.Errorf("delete block of another sender: %w", err)
			}
			out.Or(set)
		}
	}
	return out, nil
}

// passage judges the files and requests of a request range by what the index
// knows.
type passage struct {
	s       *Shard
	until   int64 // deaths of held rows from that log offset on are not known yet
	forgets int64 // tombstones of an earlier time are forgotten
	timeMs  int64 // of the tombstones that it leaves
	lookup  func([]keyindex.Key, []keyindex.Found) ([]keyindex.Found, error)

	// Of an append that another owner made: the deaths from that log offset on it had
	// not read of, and what it killed of other writers' rows. It is not judged again.
	unheard int64
	killed  map[killed]bool
	gaveWay map[keyindex.Key]bool // keys of those that were in the table before

	steps   []step
	one     []step                      // of one key, as they are judged
	asked   map[keyindex.Key][]*request // by key, those that askedAt has below it
	askedAt int64
	own     map[uint64]*fileColumns // ordering values that rows of other writers have of themselves
	entries []keyindex.Entry        // of keys whose entry changes
	kept    []keyindex.Entry        // of those, rows that stay and remember another value now
	kills   []killed
	counts  record.Counts
	taken   int
	keyless int
	fold    bool // another owner decided it, or the one before
}

// step is a row of a file, or a request's answer about a key, in the order of the log.
type step struct {
	keyindex.Entry          // Offset is the record's, or the place of the row
	record         int64    // that brought the row
	dead           bool     // a row that died
	stillborn      bool     // it was dead in that record, as every shard knows
	theirs         bool     // of another writer's commit (H10)
	ended          bool     // whoever takes it knows that it died
	fact           bool     // it was taken, and
	lost           bool     // killed by that
	request        *request // nil: a row
}

// judge: H1, A5, K2.
func (p *passage) judge(ctx context.Context, from, to int64) error {
	s := p.s
	answers, err := s.answers(ctx, from, to)
	if err != nil {
		return err
	}
	next := 0
	answer := func(below int64) error {
		for ; next < len(answers) && answers[next].req.Offset < below; next++ {
			k, err := indexKey(s.keys, s.cfg.Deployment, answers[next].key)
			if err != nil {
				return err
			}
			p.steps = append(p.steps, step{Entry: keyindex.Entry{Key: k, Offset: answers[next].req.Offset}, request: answers[next].req})
		}
		return nil
	}
	for _, h := range s.side.held(from, to) {
		if err := answer(h.Offset); err != nil {
			return err
		}
		if h.Folded {
			continue
		}
		for _, f := range h.Files {
			if err := p.read(ctx, h, f); err != nil {
				return fmt.Errorf("the files added at log offset %d cannot be taken: %w; restore the file, or delete all of its rows by a DeletePositions of file %d (`varve transaction append`) and start the node anew", h.Offset, err, f.ID)
			}
		}
	}
	if err := answer(to); err != nil {
		return err
	}
	return p.byKey(ctx)
}

func (p *passage) byKey(ctx context.Context) error {
	slices.SortStableFunc(p.steps, func(x, y step) int { return x.Key.Compare(y.Key) })
	var keys []keyindex.Key
	var found []keyindex.Found
	for i := 0; i < len(p.steps); {
		keys = keys[:0]
		j := i
		for ; j < len(p.steps); j++ {
			if j == i || p.steps[j].Key != p.steps[j-1].Key {
				if len(keys) == lookupKeys {
					break
				}
				keys = append(keys, p.steps[j].Key)
			}
		}
		var err error
		if found, err = p.lookup(keys, found[:0]); err != nil {
			return awayDisk(err)
		}
		for k := range found {
			n := i + 1
			for n < j && p.steps[n].Key == p.steps[i].Key {
				n++
			}
			if err := p.key(ctx, &found[k], p.steps[i:n]); err != nil {
				return err
			}
			i = n
		}
	}
	return nil
}

// key judges the steps about one key.
func (p *passage) key(ctx context.Context, f *keyindex.Found, steps []step) error {
	forget(f, p.forgets)
	v := standing{Entry: f.Entry, present: f.Present, place: p.s.placeOf(f), carried: p.s.carried(f)}
	changed := false
	steps = p.amongThemselves(steps)
	for i := range steps {
		x := &steps[i]
		if x.request != nil {
			changed = p.answer(&v, x) || changed
			continue
		}
		wins := v.losesTo(x)
		if !wins {
			again, err := p.givesWay(ctx, &v, &changed)
			if err != nil {
				return err
			}
			wins = again && v.losesTo(x)
		}
		if !wins {
			if !x.dead {
				p.kills = append(p.kills, killed{x.File, x.Pos})
			}
			if x.HasOrder && !v.HasOrder {
				v.HasOrder, v.Order, changed = true, x.Order, true
			}
			continue
		}
		if v.live() {
			p.kills = append(p.kills, killed{v.File, v.Pos})
		}
		was := v
		v = standing{Entry: x.Entry, present: true, place: x.Offset, judged: true}
		if x.theirs && was.HasOrder && !x.HasOrder {
			v.HasOrder, v.Order, v.before = true, was.Order, &earlier{was, changed}
		}
		if x.dead {
			v.end(x.Offset, p.timeMs)
		}
		changed = true
	}
	if changed {
		if v.live() {
			v.Offset = 0
			if !v.judged {
				p.kept = append(p.kept, v.Entry)
			}
		}
		p.entries = append(p.entries, v.Entry)
	}
	return nil
}

// standing is what is known of a key between two steps.
type standing struct {
	keyindex.Entry
	present bool
	place   int64
	carried bool     // by a job: it was in a snapshot before anything that is held came
	judged  bool     // it came with a step
	before  *earlier // whose ordering value it has
}

type earlier struct {
	standing
	changed bool // whether anything had by then
}

// losesTo: H6. Shards judge a key's rows apart, and only one of them knows what
// its source said of it: what they kill must hang on nothing that the others do
// not know. So of rows from files the one with the largest value stays, then the
// later; one without a value gives way to whatever has one.
func (v *standing) losesTo(x *step) bool {
	switch {
	case !v.present:
		return true
	case v.HasOrder && !x.HasOrder && x.theirs && !v.live():
		// Nobody but us knows of remembered values: such a row goes by its place, and
		// what is remembered stays (K2).
		// Whether the version before it had died by another path its taker may have known,
		// or not: what it did is a fact (K4).
		return !x.ended && !x.lost && (x.fact || x.Offset >= v.place)
	case v.HasOrder && (!x.HasOrder || x.Order < v.Order):
		return false
	case v.HasOrder && x.Order > v.Order:
		return true
	}
	return v.carried && v.live() || x.Offset >= v.place
}

func (v *standing) live() bool { return v.present && !v.Tombstone() }

// end leaves a tombstone at a place; 0: that of the append.
func (v *standing) end(place, timeMs int64) {
	v.Entry = keyindex.Entry{Key: v.Key, RowID: keyindex.NoRowID, HasOrder: v.HasOrder, Order: v.Order, Offset: place, Time: timeMs}
	v.present, v.place, v.carried, v.judged, v.before = true, place, false, true, nil
}

// answer is what a request does to a key (A5, K9). It says whether it did anything.
func (p *passage) answer(v *standing, x *step) bool {
	r := x.request
	switch {
	case r.HasOrder && v.present && v.HasOrder && r.Order < v.Order:
		p.counts.LateIgnored++
		return false
	case r.HasOrder:
	case v.live() && v.place >= r.Offset:
		return false // accepted above the request: it stays
	case v.present && !v.live() && v.place >= r.Offset:
		p.counts.AbsentDeletes++
		return false
	}
	if v.live() {
		p.counts.Deletes++
		p.kills = append(p.kills, killed{v.File, v.Pos})
	} else {
		p.counts.AbsentDeletes++
	}
	if r.HasOrder {
		v.HasOrder, v.Order = true, r.Order
	}
	v.end(r.Offset, p.timeMs)
	return true
}

// placeOf is the log offset at which a key's version was accepted, or its end
// decided; what is in flight comes above everything that is decided.
func (s *Shard) placeOf(f *keyindex.Found) int64 {
	switch {
	case !f.Present:
		return -1
	case f.File == 0 && f.Pending && f.Offset == 0:
		return math.MaxInt64
	case f.File == 0:
		return f.Offset
	}
	info, known := s.side.Files[f.File]
	if f.Pending && !known {
		return math.MaxInt64
	}
	return info.Record
}

// carried says whether a job wrote the file that holds a key's version. No job is
// planned while a file is held, and jobs take published files alone: what they
// carry is older than all that is held, also where its place is the later one (H10).
func (s *Shard) carried(f *keyindex.Found) bool {
	info, known := s.side.Files[f.File]
	return f.Present && f.File != 0 && known && info.carried()
}

// carried says whether a job wrote a file.
func (f *fileInfo) carried() bool { return f.Path == "" && f.Record != f.Added }

// read reads the keys of one file. One that is lost, or no Parquet, is passed
// over once all of its rows are deleted: the way out for who cannot restore it.
func (p *passage) read(ctx context.Context, h *heldAdd, f heldPart) error {
	s := p.s
	dead, err := h.dead(f.ID, p.until)
	if err != nil {
		return err
	}
	ended := dead
	stillborn, err := h.stillborn(f.ID)
	if err != nil {
		return err
	}
	if p.unheard > 0 {
		if ended, err = h.dead(f.ID, min(p.unheard, p.until)); err != nil {
			return err
		}
	}
	never, err := h.never(f.ID)
	if err != nil {
		return err
	}
	if err := p.askedSince(ctx, h); err != nil {
		return err
	}
	c, err := s.readColumns(ctx, s.side.Files[f.ID], f.ID)
	if err == nil && int64(c.n) != f.Rows {
		err = fmt.Errorf("file %d has %d rows, not the %d of its record", f.ID, c.n, f.Rows)
	}
	if err != nil {
		if !isAway(err) && int64(roaring.Or(dead, never).GetCardinality()) == f.Rows {
			if p.fold && errors.Is(err, objstore.ErrNotFound) && (s.blind == 0 || p.until < s.blind) {
				s.blind = p.until
			}
			return nil
		}
		return err
	}
	p.steps = slices.Grow(p.steps, c.n)
	p.taken += c.n - int(never.GetCardinality())
	var scratch []byte
	for i := range c.n {
		if never.Contains(uint32(i)) {
			continue
		}
		x := step{record: h.Offset, dead: dead.Contains(uint32(i)), stillborn: stillborn.Contains(uint32(i)), theirs: h.Place != h.Offset, ended: ended.Contains(uint32(i)), fact: p.unheard > 0, lost: p.killed[killed{f.ID, uint32(i)}]}
		x.Entry, scratch, err = s.rowEntry(c, f.ID, i, scratch)
		if noKey(err) {
			if !x.dead {
				p.kills = append(p.kills, killed{f.ID, uint32(i)})
				p.keyless++
			}
			continue
		}
		if err != nil {
			return err
		}
		if x.theirs && p.deletes(&x) {
			if !x.dead {
				p.kills = append(p.kills, killed{f.ID, uint32(i)})
			}
			continue
		}
		x.Offset = h.Place
		p.steps = append(p.steps, x)
	}
	return nil
}

// claimOf notes an accepted claim of this shard, by whomever.
func (s *Shard) claimOf(ctx context.Context, d *processors.Decided) error {
	if s.index == nil || d.Outcome.Outcome.Code != record.Accepted {
		return nil
	}
	v, err := s.content(ctx, d)
	if err == nil && s.isMine(&v.(*record.ClaimShard).Shard) {
		s.side.ask(d.Outcome.Offset, true)
	}
	return err
}

// retireOf notes that this shard was retired. What it had still to take, it
// takes now.
func (s *Shard) retireOf(ctx context.Context, d *processors.Decided) error {
	m := &d.Outcome
	if s.index == nil || m.Outcome.Code != record.Accepted {
		return nil
	}
	v, err := s.content(ctx, d)
	if err != nil || !s.isMine(&v.(*record.RetireShard).Shard) {
		return err
	}
	for i := range s.side.Held {
		if h := &s.side.Held[i]; h.Taken == 0 && !h.Folded && h.Offset < m.Offset {
			if err := s.foldHeld(ctx, m, h.Offset); err != nil {
				return err
			}
		}
	}
	s.side.ask(m.Offset, false)
	return nil
}

func (s *Shard) isMine(k *record.ShardKey) bool {
	return k.TopicID == s.cfg.Shard.TopicID && k.Partition == s.cfg.Shard.Partition
}
