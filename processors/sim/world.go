package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/collector"
	"github.com/varve-io/varve/processors/compactor"
	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/processors/publisher/remotetest"
	"github.com/varve-io/varve/processors/state"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// Options of a world.
type Options struct {
	Seed        int64
	Shards      int   // source partitions
	Keys        int   // distinct keys; key k is always in shard k mod Shards
	Ordered     bool  // the table has an ordering column
	Valued      bool  // each event has a value of it
	Strings     bool  // the key is a string: a hashed index
	NoKey       bool  // the table has no key: rows are only added
	Partitioned bool  // by bucket of the value, so that an upsert moves its row
	Respec      bool  // the buckets become others, or none, and come back
	Columns     bool  // events bring a new column
	Partial     bool  // events leave out a value that did not change
	BadEvents   bool  // dead letters, acknowledged late, and offsets without a record
	TTL         int64 // of tombstones, in ms; default: for ever
	Clock       bool  // the broker's clock jumps, back and by a day
	Operators   bool  // users skip source offsets and retire shards
	Twice       bool  // appends are in the log twice
	Away        bool  // broker and store fail for a while, for owners and members too
	Steps       int
	Crashes     bool
	Disks       bool // states are kept as checkpoints, and disks are lost
	TwoOwners   bool
	Requests    bool // DeleteKeys
	Jobs        bool // compactions, and deletes by position
	Where       bool // find jobs
	Tree        bool // leaves of the tree of key ranges are split, with Jobs
	Imports     bool // files enter by AddFiles
	Undo        bool // rollbacks are waited for, with Time
	Adopt       bool // with Imports: files of others, with dead rows, by AdoptFiles
	Garbage     bool // snapshots expire, and what nothing reaches is deleted
	Foreign     bool // the catalog is an outside one, and another writer commits to the table
	Time        bool // snapshots are tagged, expired, and rolled back to
	Settled     bool // jobs are mostly planned once nothing is held
	FlushEvery  int  // events that fill a buffer
	Trace       io.Writer
}

// buckets is the bucket count of a partitioned table.
const buckets = 3

const tableName = "t"

var topicID = [16]byte{7}

// World is one simulated deployment of one table in one transactions partition.
type World struct {
	opt    Options
	rng    *rand.Rand
	ctx    context.Context
	now    int64
	mem    *objstore.Mem
	bodies *processors.Bodies
	logger *slog.Logger

	log       []statestore.Record // the transactions partition
	outcomes  []statestore.Message
	decided   []processors.Decided // pairs, as far as outcomes reach
	sources   [][]source.Record
	published map[int64]*record.SnapshotCommitted

	members []*member
	owners  []*owner
	serial  int
	tableID int64
	def     schemas.Definition
	letters int

	lost       []*network
	twice      []record.Message        // appends that may come to the log once more
	acked      []map[int64]bool        // dead letters that the broker has, by partition
	values     int64                   // values given to events
	saw        map[string]int          // what happened, to tell that a shape tries what it should
	broken     error                   // what a sender did that it must not
	snapshots  map[int64]*snapshotData // by build, while checking
	events     [][]event               // what each source record asks, by partition
	asked      map[int64]asked         // DeleteKeys by log offset
	encoder    *rows.KeyEncoder
	faults     int                     // store calls that may still fail
	atWork     bool                    // an owner is, whose calls to the store may fail
	calm       bool                    // no more faults
	dispatched []*record.Dispatch      // attempts at jobs, as the jobs topic has them
	executed   []*compactor.Done       // that are not told to the log for good
	ever       map[record.JobID]bool   // attempts that were dispatched
	gone       *objstore.Mem           // what was deleted
	oldFiles   []*statestore.FileInfo  // some that a sender of positions has read
	kept       map[int64]*snapshotData // by build, read when they were published
	scripted   bool                    // events are those of script, and rows die by events alone
	script     []event                 // still to come
	finds      []*record.FindDispatch  // attempts at parts of find jobs, as the jobs topic has them
	found      []*record.RowsFound     // that are not told to the log for good
	findings   map[int64]*finding      // by the offset of the DeleteWhere
	adding     []*added                // files that are written and not asked for
	added      map[int64]*added        // AddFiles by log offset
	cat        *remotetest.Catalog
	plan       *theirPlan                      // what another writer is about to commit
	heads      map[int64]map[string]*theirFile // what snapshots list, by their id
	struck     map[int64]struckRows            // what a DeletePositions names, by its offset
}

// network holds appends on their way to the log, in their sender's order. It
// outlives its sender: what a dead owner sent may still arrive.
type network struct {
	w     *World
	queue []sent
	dead  bool // the sender is gone: nobody hears done
	shard int  // of an owner's, -1 else
}

type sent struct {
	m    record.Message
	done func(int64, error)
}

func (n *network) Append(m record.Message, done func(int64, error)) {
	if n.shard >= 0 {
		n.w.checkLetters(n.shard, &m)
	}
	n.queue = append(n.queue, sent{record.Message{
		Key: append([]byte(nil), m.Key...), Header: m.Header, Value: append([]byte(nil), m.Value...),
	}, done})
}

// checkLetters: A4. A dead letter is acknowledged before the append that covers it.
func (w *World) checkLetters(p int, m *record.Message) {
	if record.Type(m.Header[1]) != record.TypeAppendRows {
		return
	}
	_, body, err := w.bodies.Open(w.ctx, m.Key, m.Header[:], m.Value)
	if err != nil {
		w.broken = err
		return
	}
	var a record.AppendRows
	if err := a.Decode(body); err != nil {
		w.broken = err
		return
	}
	for o := a.SourceFrom; o < a.SourceTo; o++ {
		if w.isLetter(&w.events[p][o]) && !w.acked[p][o] {
			w.broken = fmt.Errorf("an append covers source offset %d, whose dead letter nobody has (A4)", o)
		}
	}
}

func (w *World) isLetter(e *event) bool {
	return e.bad == malformed || e.bad == keyless && !w.opt.NoKey || e.bad == keylessDel || e.bad != gap && e.del && w.opt.NoKey
}

// deliver brings the oldest append to the log, and keeps some to come again.
func (n *network) deliver() {
	if n.w.failing(12) {
		n.fail()
		return
	}
	s := n.queue[0]
	n.queue = n.queue[1:]
	off := n.w.append(s.m)
	if n.w.opt.Twice && record.Type(s.m.Header[1]) == record.TypeAppendRows && n.w.rng.Intn(6) == 0 {
		n.w.twice = append(n.w.twice, s.m)
	}
	if !n.dead {
		s.done(off, nil)
	}
}

// fail answers everything on its way with an error. The oldest may have
// arrived all the same.
func (n *network) fail() {
	queue := n.queue
	n.queue = nil
	n.w.saw["network failed"]++
	for i := range queue {
		if i == 0 && n.w.rng.Intn(2) == 0 {
			n.w.append(queue[i].m)
		}
		if !n.dead {
			queue[i].done(-1, errInjected)
		}
	}
}

// failing says whether something that may be away is, one time in n.
func (w *World) failing(n int) bool { return w.opt.Away && !w.calm && w.rng.Intn(n) == 0 }

// member is one copy of the state machine.
type member struct {
	w        *World
	fs       *vfs.MemFS
	store    *statestore.Store
	machine  *state.Machine
	net      *network
	topicEnd int64 // the newest offset whose outcome the topic had when it was opened
	hashes   map[int64]record.Hash
	cuts     []statestore.CutNotice
	leads    bool // asks for cuts
	gc       *collector.Collector
}

// owner is one process's view of a shard.
type owner struct {
	w         *World
	name      string
	partition int
	fs        *vfs.MemFS
	shard     *ingest.Shard
	net       *network
	next      int   // index into decided
	fromLog   bool  // folds the log alone, no checkpoint
	base      int64 // log offset of the rollback that its index begins with, 0: none
	unacked   []letter
}

// letter is a dead letter on its way to the broker.
type letter struct {
	offset int64
	done   func(error)
}

// NewWorld makes the log's genesis and the table.
func NewWorld(opt Options) (*World, error) {
	if opt.FlushEvery == 0 {
		opt.FlushEvery = 8
	}
	w := &World{
		opt: opt, rng: rand.New(rand.NewSource(opt.Seed)), ctx: context.Background(), now: 1_700_000_000_000,
		mem: objstore.NewMem(), gone: objstore.NewMem(), published: map[int64]*record.SnapshotCommitted{}, saw: map[string]int{}, asked: map[int64]asked{}, added: map[int64]*added{},
		logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if opt.Foreign {
		w.cat, w.heads = remotetest.New(), map[int64]map[string]*theirFile{}
		w.cat.Before, w.cat.After = w.catalogFault, w.catalogFault
	}
	w.bodies = processors.NewBodies(w.mem, "sim")
	w.bodies.AtOnce = 1 // a seed goes one way
	w.sources, w.events, w.acked = make([][]source.Record, opt.Shards), make([][]event, opt.Shards), make([]map[int64]bool, opt.Shards)
	for p := range w.acked {
		w.acked[p] = map[int64]bool{}
	}
	if err := w.request("", -1, &record.SetApplyVersion{Deployment: [16]byte{1}, Partitions: 1, Version: statestore.ApplyVersion}); err != nil {
		return nil, err
	}
	w.def = definition(w.mem.Location("default/t"), opt)
	var err error
	if !opt.NoKey {
		if w.encoder, err = rows.NewKeyEncoder(w.def.Schema(), w.def.Key); err != nil {
			return nil, err
		}
	}
	if err := w.request(tableName, -1, &record.CreateTable{Definition: w.def}); err != nil {
		return nil, err
	}
	w.tableID = 1
	for i := range 2 {
		if err := w.addMember(i == 0); err != nil {
			return nil, err
		}
	}
	w.settleMembers()
	return w, nil
}

func definition(location string, opt Options) schemas.Definition {
	key := schemas.Of(schemas.Long)
	if opt.Strings {
		key = schemas.Of(schemas.String)
	}
	d := schemas.Definition{
		Name: tableName, Location: location, FormatVersion: 3, Mode: schemas.ModeDV,
		Schemas: []schemas.Schema{{ID: 0, Identifier: []int32{1}, Fields: []schemas.Field{
			{ID: 1, Name: "id", Type: key, Required: true},
			{ID: 2, Name: "v", Type: schemas.Of(schemas.Long)},
			{ID: 3, Name: "o", Type: schemas.Of(schemas.Long)},
		}}},
		LastColumnID: 3, Specs: []schemas.Spec{{}}, LastPartitionID: 999, Key: []int32{1},
		SourceTopic: "t", Format: "rows-json", CommitIntervalMs: 100, TombstoneTTLMs: 1 << 50, RetentionMs: 1 << 50, RetentionCount: 1 << 30,
	}
	if opt.Partial {
		d.Schemas[0].Fields = append(d.Schemas[0].Fields, extraField)
		d.LastColumnID = extraField.ID
	}
	if opt.Ordered {
		d.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: 3}
	}
	if opt.NoKey {
		d.Key, d.Schemas[0].Identifier, d.Schemas[0].Fields[0].Required = nil, nil, false
	}
	if opt.Partitioned {
		d.LastPartitionID = 1000
		d.Specs[0].Fields = []schemas.PartitionField{{SourceID: 2, FieldID: 1000, Name: "v_bucket", Transform: schemas.Bucket, N: buckets}}
	}
	if opt.Garbage {
		d.RetentionCount, d.RetentionMs = 2, 1
	}
	if opt.TTL > 0 {
		d.TombstoneTTLMs = opt.TTL
	}
	return d
}

func (w *World) trace(format string, args ...any) {
	if w.opt.Trace != nil {
		fmt.Fprintf(w.opt.Trace, format+"\n", args...)
	}
}

// append puts a record at the log's end.
func (w *World) append(m record.Message) int64 {
	off := int64(len(w.log))
	w.log = append(w.log, statestore.Record{Offset: off, TimeMs: w.now, Key: m.Key, Header: m.Header[:], Value: m.Value})
	if _, t, _, _, ok := record.PeekHeader(m.Header[:]); ok {
		w.trace("%d ms: log %d: %s", w.now, off, t)
	}
	return off
}

// request appends a record at once. Its id follows from its offset.
func (w *World) request(table string, id int64, v any) error {
	m, err := w.bodies.Message(w.ctx, record.Envelope{
		ApplyVersion: statestore.ApplyVersion, Request: w.requestID(), OffsetSeen: int64(len(w.log)) - 1, Table: table, TableID: id,
	}, v)
	if err != nil {
		return err
	}
	w.append(m)
	return nil
}

func (w *World) requestID() record.RequestID {
	w.serial++
	return record.RequestIDFrom("sim", []byte(fmt.Sprint(w.serial)))
}

// Send takes a member's outcomes: the first member to send one is the topic.
func (m *member) Send(x statestore.Message, done func(error)) {
	w := m.w
	var o record.OutcomeMessage
	if err := record.DecodeOutcomeMessage(x.Key, x.Value, &o); err != nil {
		done(err)
		return
	}
	if !o.Derived {
		m.hashes[o.Offset] = o.Chain
	}
	if o.Offset <= m.topicEnd {
		w.broken = fmt.Errorf("a member sends the outcome of log offset %d, which the topic had when it was opened (L11)", o.Offset)
	}
	if w.failing(15) {
		w.saw["outcome unsent"]++
		if w.rng.Intn(2) == 0 {
			done(errInjected)
			return
		}
		defer func() { done(errInjected) }() // it is there all the same
	} else {
		defer func() { done(nil) }()
	}
	if o.Offset >= w.outcomeNext() {
		w.outcomes = append(w.outcomes, x)
		w.decided = append(w.decided, processors.Decided{Record: w.log[o.Offset], Outcome: o})
	}
}

// outcomeNext is the first log offset whose own outcome is not in the topic.
func (w *World) outcomeNext() int64 {
	for i := len(w.decided) - 1; i >= 0; i-- {
		if !w.decided[i].Outcome.Derived {
			return w.decided[i].Outcome.Offset + 1
		}
	}
	return 0
}

// writeBacks are how much a state holds before it writes to its database, by
// seed: never, rarely, or at nearly every commit, so that a crash goes back to
// the beginning, some way, or little.
var writeBacks = []int64{0, 24 << 10, 4 << 10, 1}

func (w *World) addMember(leads bool) error {
	m := &member{w: w, fs: vfs.NewCrashableMem(), hashes: map[int64]record.Hash{}, leads: leads}
	w.members = append(w.members, m)
	return m.open()
}

func (m *member) open() error {
	st, err := statestore.Open("state", m.stateOptions())
	if err != nil {
		return err
	}
	m.store, m.gc, m.net = st, nil, &network{w: m.w, shard: -1}
	m.machine = state.New(state.Config{Store: st, Bodies: m.w.bodies, Log: m.net, Outcomes: m, Logger: m.w.logger})
	if h := st.Head(); h.Offset >= 0 {
		if err := m.machine.CheckLast(&m.w.log[h.Offset]); err != nil {
			return err
		}
	}
	m.topicEnd = m.w.outcomeNext() - 1
	if err := m.machine.Resume(m.topicEnd); err != nil {
		return err
	}
	m.machine.Ready()
	return nil
}

// apply gives a member the next n records.
func (m *member) apply(n int) error {
	from := m.machine.Next()
	to := min(from+int64(n), int64(len(m.w.log)))
	if from >= to {
		return nil
	}
	recs := append([]statestore.Record(nil), m.w.log[from:to]...)
	if err := m.machine.OnLog(m.w.ctx, m.w.now, recs, m.w.rng.Intn(2) == 0 || to == int64(len(m.w.log))); err != nil {
		return err
	}
	m.cuts = append(m.cuts, m.machine.Pending()...)
	if err := m.dispatch(); err != nil {
		return err
	}
	return m.machine.Err()
}

// crash loses what was not flushed: the database goes back to an earlier commit.
func (m *member) crash() error {
	clone, before := m.fs.CrashClone(m.w.crashed()), m.machine.Next()
	if err := m.store.Close(); err != nil {
		return err
	}
	m.fs = clone
	m.net.dead = true
	m.cuts = nil
	if err := m.open(); err != nil {
		return err
	}
	switch next := m.machine.Next(); {
	case next == 0:
		m.w.saw["state lost"]++
	case next < before:
		m.w.saw["state went back"]++
	}
	return nil
}

// crashed is what a crash leaves of what was not synced: all or nothing. (A
// part of it would be chosen in an order that differs from run to run.)
func (w *World) crashed() vfs.CrashCloneCfg {
	return vfs.CrashCloneCfg{UnsyncedDataPercent: 100 * w.rng.Intn(2), RNG: crashRNG(w.rng)}
}

func (w *World) settleMembers() {
	for _, m := range w.members {
		for m.machine.Next() < int64(len(w.log)) {
			if err := m.apply(1 << 20); err != nil {
				panic(err)
			}
		}
	}
}

func (w *World) addOwner(partition int) (*owner, error) {
	w.serial++
	o := &owner{w: w, partition: partition, name: fmt.Sprintf("%d.%d", partition, w.serial), fs: vfs.NewCrashableMem()}
	w.owners = append(w.owners, o)
	return o, o.open()
}

func (o *owner) open() error {
	o.net = &network{w: o.w, shard: o.partition}
	o.unacked = nil
	def := o.w.def
	var checkpoint *record.Ref
	var store objstore.Store = o.w.mem
	if o.fromLog {
		store = everything{o.w.mem, o.w.gone}
	} else {
		var err error
		if checkpoint, err = o.w.checkpoint(o.partition); err != nil {
			return err
		}
	}
	if o.w.opt.Time && !o.fromLog {
		if newest := o.w.rolled(); newest != o.base {
			o.base = newest
			o.w.saw["index made of a rollback"]++
		}
		if rolled, err := o.w.memberRolled(); err != nil {
			return err
		} else if rolled != o.base {
			checkpoint = nil // of another time
		}
	}
	cfg := ingest.Config{
		Checkpoint: checkpoint, CheckpointAppends: 4, CheckpointEveryMs: o.w.checkpointEvery(), SideAppends: 3, IndexDelta: o.w.opt.Keys,
		Table: tableName, TableID: o.w.tableID, Shard: record.ShardKey{TopicID: topicID, Topic: "t", Partition: int32(o.partition)},
		Partitions: int32(o.w.opt.Shards), Deployment: [16]byte{1}, Member: o.name, Dir: fmt.Sprintf("index-%d", o.base), Base: o.base, FS: o.fs, Store: store, Bodies: o.w.bodies,
		Log: o.net, Letters: o, ApplyVersion: statestore.ApplyVersion, SyncIndex: true, FlushEvents: o.w.opt.FlushEvery, Logger: o.w.logger,
	}
	s, err := ingest.New(o.w.ctx, cfg, &def)
	if errors.Is(err, ingest.ErrNoBase) {
		// While the store is away this would be tried until it is back.
		err = o.w.whole(func() error {
			err := o.w.rewind(cfg)
			cfg.Checkpoint = nil // it was of no use
			if err == nil {
				s, err = ingest.New(o.w.ctx, cfg, &def)
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	o.shard = s
	from := s.LogFrom()
	o.next = 0
	for o.next < len(o.w.decided) && o.w.decided[o.next].Outcome.Offset < from {
		o.next++
	}
	s.Claim(o.w.ctx)
	return nil
}

// checkpoint is the newest index checkpoint that the state knows of a shard.
func (w *World) checkpoint(partition int) (*record.Ref, error) {
	t, err := w.members[0].store.Table(tableName)
	if err != nil || t == nil {
		return nil, err
	}
	for i := range t.Shards {
		if int(t.Shards[i].Partition) == partition {
			return &t.Shards[i].Index, nil
		}
	}
	return nil, nil
}

// Send takes a dead letter.
func (o *owner) Send(l *processors.DeadLetter, done func(error)) {
	o.w.letters++
	o.unacked = append(o.unacked, letter{l.Record.Offset, done})
	if !o.w.opt.BadEvents {
		o.ack(1)
	}
}

// ack tells the owner that the broker has the next n letters.
func (o *owner) ack(n int) {
	for ; n > 0 && len(o.unacked) > 0; n-- {
		l := o.unacked[0]
		o.unacked = o.unacked[1:]
		if o.w.failing(4) {
			o.w.saw["letter unsent"]++
			l.done(errInjected)
			continue
		}
		o.w.acked[o.partition][l.offset] = true
		l.done(nil)
	}
}

// work lets the owner's calls to the store fail until the returned function is called.
func (o *owner) work() func() {
	o.w.atWork = o.w.opt.Away
	return func() { o.w.atWork = false }
}

func (o *owner) tick() {
	defer o.work()()
	o.shard.Tick(o.w.ctx, o.w.now)
}

func (o *owner) deliverDecided(n int) error {
	to := min(o.next+n, len(o.w.decided))
	if o.next < to {
		defer o.work()()
		o.shard.OnDecided(o.w.ctx, o.w.decided[o.next:to])
		o.next = to
	}
	return o.stopped()
}

func (o *owner) deliverSource(n int) error {
	if !o.shard.WantsSource() {
		return nil
	}
	from := int(o.shard.SourceFrom())
	to := min(from+n, len(o.w.sources[o.partition]))
	if from < to {
		var recs []source.Record
		for i := from; i < to; i++ {
			if o.w.events[o.partition][i].bad != gap {
				recs = append(recs, o.w.sources[o.partition][i])
			}
		}
		defer o.work()()
		o.shard.OnSource(o.w.ctx, o.w.now, recs, int64(to))
	}
	return o.stopped()
}

// stopped is why the shard stopped. A retired one is started anew, as by a user.
func (o *owner) stopped() error {
	err := o.shard.Err()
	if o.w.opt.Garbage && errors.Is(err, objstore.ErrNotFound) {
		return o.overtaken(err)
	}
	switch {
	case errors.Is(err, ingest.ErrRetired):
		o.w.saw["retired"]++
	case o.w.opt.Time && errors.Is(err, ingest.ErrDivided): // the table was rolled back
	default:
		return err
	}
	return o.crash()
}

// crash loses the owner's memory, and of its folder what was not made durable.
func (o *owner) crash() error {
	o.net.dead = true
	if o.fs == nil { // the disk is lost
		if err := o.shard.Abandon(); err != nil {
			return err
		}
		o.fs = vfs.NewCrashableMem()
		o.w.orphans(o.net)
		return o.open()
	}
	clone := o.fs.CrashClone(o.w.crashed())
	if err := o.shard.Abandon(); err != nil {
		return err
	}
	if o.w.rng.Intn(2) == 0 {
		o.fs = clone // the machine fell over, not only the process
	}
	o.w.orphans(o.net)
	return o.open()
}

// orphans keeps a dead sender's appends on their way: some arrive, in order,
// some never. Now and then it is the first that never does (A3).
func (w *World) orphans(n *network) {
	if len(n.queue) > 1 && w.rng.Intn(3) == 0 {
		n.queue = n.queue[1:]
	} else {
		n.queue = n.queue[:w.rng.Intn(len(n.queue)+1)]
	}
	w.lost = append(w.lost, n)
}

var errStuck = errors.New("stuck")

func (w *World) shardOf(k int) int {
	if k < 0 { // see model.strange
		return (-1 - k) / w.opt.Keys
	}
	return k % w.opt.Shards
}

func keyText(k int, strs bool) string {
	if strs {
		return fmt.Sprintf("%q", "key-"+strings.Repeat("x", k%3)+fmt.Sprint(k))
	}
	return fmt.Sprint(k)
}
