package statestore

import (
	"cmp"
	"errors"
	"slices"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/record"
)

const (
	// ForeignWriter is the writer number of files that other writers brought (H2).
	ForeignWriter = 1<<24 - 1
	// AdoptedWriter is that of files of others that an AdoptFiles brought (H14).
	AdoptedWriter = ForeignWriter - 1
	// UnsortedWriter is that of files that jobs wrote whose rows do not ascend, some of
	// which came with a commit of another writer (F24).
	UnsortedWriter = AdoptedWriter - 1
	// UnsortedAdoptedWriter is that of others whose rows do not ascend: some are of files
	// that an AdoptFiles brought.
	UnsortedAdoptedWriter = UnsortedWriter - 1
	// MaxFileRows bounds a data file, so that positions fit a 32-bit bitmap
	// and the key of a vector is 0.
	MaxFileRows = 1<<31 - 2
	writerShift = 40

	maxFileBytes = 1 << 48 // far above any file; sums of many must not overflow
	maxCount     = 1 << 48 // likewise for the counts of one append
)

// FileID is writer number ‖ counter.
func FileID(writer uint32, counter uint64) uint64 {
	return uint64(writer)<<writerShift | counter&(1<<writerShift-1)
}

// FileCounter is the counter in a file id.
func FileCounter(id uint64) uint64 { return id & (1<<writerShift - 1) }

// IsForeign says that another program wrote a file: the state has its path.
func IsForeign(id uint64) bool { return id>>writerShift >= AdoptedWriter }

// IsUnsorted says that nobody has promised that a file's rows ascend by the key of
// its table (F24): another program wrote it, or a job of ours that took such a file.
func IsUnsorted(id uint64) bool { return id>>writerShift >= UnsortedAdoptedWriter }

// FromCommit says that rows of a file may have come with a commit of another writer.
func FromCommit(id uint64) bool {
	return id>>writerShift == ForeignWriter || id>>writerShift == UnsortedWriter
}

// OutputWriters are the writer numbers of files that jobs wrote: one counter numbers
// all of them.
var OutputWriters = [...]uint32{0, UnsortedWriter, UnsortedAdoptedWriter}

// outputWriter is that of the outputs of a job that took files so far, with one more.
func outputWriter(so uint32, input uint64) uint32 {
	switch {
	case so == UnsortedWriter || FromCommit(input):
		return UnsortedWriter
	case IsUnsorted(input):
		return UnsortedAdoptedWriter
	}
	return so
}

// FirstOutput is the id of a job's first output: first is what the record's outcome
// says of it, inputs are the files that the job took from a table with a key (F24).
func FirstOutput(first uint64, inputs []forward.Input) uint64 {
	writer := uint32(0)
	for i := range inputs {
		writer = outputWriter(writer, inputs[i].File)
	}
	return FileID(writer, FileCounter(first))
}

// isOutput says that a job wrote a file, or an AddFiles brought it: its name stands in
// the state.
func isOutput(id uint64) bool { return slices.Contains(OutputWriters[:], uint32(id>>writerShift)) }

func isAdopted(id uint64) bool { return id>>writerShift == AdoptedWriter }

func closeEpoch(sh *shard, by int64, claim bool) {
	if sh.open {
		sh.open, sh.closedBy, sh.closedByClaim = false, by, claim
		sh.dirty = true
	}
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (t *table) shardOf(k *record.ShardKey) *shard {
	near := &t.near[k.Partition&(nearShards-1)]
	if sh := *near; sh != nil && sh.id.partition == k.Partition && sh.id.topic == k.TopicID {
		return sh
	}
	sh := t.shards[shardID{k.TopicID, k.Partition}]
	*near = sh
	return sh
}

// claimShard: A2.
func (s *Store) claimShard(r *Record, t *table, c *record.ClaimShard, msg *record.OutcomeMessage) (outcomeOf, error) {
	if c.LogStart < 0 || c.Shard.Partition < 0 {
		return reject(record.SourceRange, 0, c.LogStart), nil
	}
	if t.nextWriter >= UnsortedAdoptedWriter {
		return reject(record.BadCounter), nil
	}
	id := shardID{c.Shard.TopicID, c.Shard.Partition}
	sh := t.shards[id]
	if sh == nil && t.resharding != nil && id.topic == t.resharding.TopicID {
		return reject(record.ReshardOpen, t.resharding.Offset), nil
	}
	if sh == nil {
		sh = &shard{id: id, firstClaim: r.Offset, sourceEnd: c.LogStart, requestEnd: t.firstRequest(r.Offset), indexHorizon: t.horizonOf(id, r.Offset)}
		t.shards[id] = sh
		t.shardOrder = append(t.shardOrder, id)
		t.sortShards()
	}
	if sh.retired {
		sh.retired, sh.requestEnd = false, t.firstRequest(r.Offset)
	}
	closeEpoch(sh, r.Offset, true)
	sh.topic, sh.member = c.Shard.Topic, c.Member
	sh.epoch, sh.open, sh.counter = r.Offset, true, 0
	sh.writer, sh.lastFile = t.nextWriter, FileID(t.nextWriter, 0)
	t.nextWriter++
	var e enc
	e.i(r.Offset)
	if err := s.set(key16(keyEpoch, uint64(t.id), uint64(sh.writer)), e.b); err != nil {
		return outcomeOf{}, err
	}
	sh.dirty, t.dirty = true, true
	msg.Definition = t.def
	s.effect('s', t.id, sh.epoch, int64(sh.writer), sh.sourceEnd, sh.requestEnd, sh.indexHorizon)
	out := accepted(false, int64(sh.writer), sh.sourceEnd, sh.requestEnd, sh.indexHorizon, int64(sh.framing))
	if base := t.baseOf(id.topic); base > 0 {
		out.Numbers = append(out.Numbers, base)
	}
	return out, nil
}

// appendRows: A3, A4, A8, P1, P3–P5. Everything is checked before anything changes.
func (s *Store) appendRows(r *Record, t *table, a *record.AppendRows) (outcomeOf, error) {
	sh := t.shardOf(&a.Shard)
	if sh == nil {
		return reject(record.NoShard), nil
	}
	if a.Epoch != sh.epoch {
		return reject(record.EpochClosed, sh.epoch, 1), nil
	}
	if !sh.open {
		return reject(record.EpochClosed, sh.closedBy, flag(sh.closedByClaim)), nil
	}
	if a.Counter <= sh.counter {
		return outcomeOf{Code: record.Already, Numbers: []int64{sh.counter}}, nil
	}
	out, err := s.checkAppend(r, t, sh, a)
	if err != nil {
		return outcomeOf{}, err
	}
	if out.Code == record.Rejected {
		closeEpoch(sh, r.Offset, false)
		s.effect('-', t.id, sh.epoch)
		return out, nil
	}
	return out, s.doAppend(r, t, sh, a)
}

func (s *Store) checkAppend(r *Record, t *table, sh *shard, a *record.AppendRows) (outcomeOf, error) {
	if a.SourceFrom != sh.sourceEnd || a.SourceTo < a.SourceFrom {
		return reject(record.SourceRange, sh.sourceEnd, a.SourceFrom, a.SourceTo), nil
	}
	if a.RequestFrom != sh.requestEnd || a.RequestTo < a.RequestFrom || a.RequestTo > r.Offset {
		return reject(record.RequestRange, sh.requestEnd, a.RequestFrom, a.RequestTo), nil
	}
	if a.SourceTo == a.SourceFrom && a.RequestTo == a.RequestFrom {
		return reject(record.EmptyAppend), nil
	}
	if at := t.takes(a.RequestFrom, a.RequestTo); at >= 0 && (a.SourceTo > a.SourceFrom || len(a.Files) > 0 || a.Changes != nil) {
		return reject(record.FilesHeld, at), nil
	}
	if a.Forgets < 0 || a.Forgets > s.now {
		return reject(record.BadCounter, -1), nil
	}
	for i, n := range countList(&a.Counts) {
		if *n < 0 || *n > maxCount {
			return reject(record.BadCounter, int64(i)), nil
		}
	}
	if t.def.SchemaByID(a.SchemaID) == nil {
		return reject(record.SchemaUnknown, int64(a.SchemaID)), nil
	}
	if a.Framing != 0 && sh.framing != 0 && a.Framing != sh.framing && len(a.Files) > 0 {
		return reject(record.FramingChanged), nil
	}
	last := sh.lastFile
	for i := range a.Files {
		f := &a.Files[i]
		if f.ID <= last || f.ID>>writerShift != uint64(sh.writer) {
			return reject(record.FileNotNew, int64(i)), nil
		}
		last = f.ID
		if f.Rows < 1 || f.Rows > MaxFileRows || f.Bytes < 1 || f.Bytes > maxFileBytes || !t.hasTuple(f) {
			return reject(record.BadFile, int64(i)), nil
		}
	}
	if (len(a.Files) > 0) && a.Changes == nil {
		return reject(record.BadFile, -1), nil
	}
	prev := uint64(0)
	s.targets = s.targets[:0]
	for i := range a.Deletes {
		b := &a.Deletes[i]
		if b.File <= prev {
			return reject(record.BadBlock, int64(i)), nil
		}
		prev = b.File
		var info dv.Stat
		var err error
		if r.Prepared != nil {
			info = r.Prepared.blocks[i]
		} else if info, err = dv.Inspect(b.Bitmap); err != nil {
			return reject(record.BadBlock, int64(i)), nil
		}
		if info.Count == 0 {
			return reject(record.BadBlock, int64(i)), nil
		}
		reason, err := s.aim(t, b, int64(info.Max), a.Files, true)
		if err != nil {
			return outcomeOf{}, err
		}
		switch reason {
		case record.ReasonNone:
		case record.OutOfRange:
			return reject(reason, int64(i), int64(info.Max), s.aimRows), nil
		default:
			return reject(reason, int64(i)), nil
		}
	}
	return accepted(len(a.Files) > 0 || len(a.Deletes) > 0), nil
}

// aim finds where a delete block goes and appends it to s.targets (P1–P5).
// Files are those that the same record adds. It changes nothing else.
//
// A file that was collected has left every shard's index, as far as its rows live
// (G2): the owner of a shard who still names it names a dead version (P5). Anyone
// else may mean a row that a job carried over long ago (P3).
func (s *Store) aim(t *table, b *record.DeleteBlock, last int64, files []record.DataFile, owner bool) (record.Reason, error) {
	to := target{file: b.File, set: b.Bitmap}
	if j, found := findFile(files, b.File); found {
		s.aimRows = files[j].Rows
	} else {
		var err error
		if to.chunk, err = s.chunk(t.id, b.File); err != nil {
			return 0, err
		}
		s.aimRows = to.chunk.fileRows(b.File)
	}
	switch {
	case s.aimRows < 0 && owner && to.chunk.collected.has(uint(b.File&127)):
		s.targets = append(s.targets, target{file: b.File})
		return record.ReasonNone, nil
	case s.aimRows < 0:
		return record.NoBase, nil
	case last >= s.aimRows:
		return record.OutOfRange, nil
	}
	if bit := uint(b.File & 127); to.chunk == nil || !to.chunk.gone.has(bit) && !to.chunk.moved.has(bit) {
		s.targets = append(s.targets, to)
		return record.ReasonNone, nil
	}
	n := len(s.targets)
	s.metCollected, s.metOut = false, false
	var err error
	s.targets, err = s.forwardBlock(t, b.File, b.Bitmap, s.targets)
	if errors.Is(err, errMapLost) {
		s.targets = s.targets[:n]
		return record.BadMap, nil
	}
	if err != nil {
		return 0, err
	}
	if s.metOut || s.metCollected && !owner {
		s.targets = s.targets[:n]
		return record.NoBase, nil
	}
	if len(s.targets) == n {
		s.targets = append(s.targets, target{file: b.File}) // P5: those versions are dead
	}
	return record.ReasonNone, nil
}

// strike kills what aim found, and says whether a row may have died.
func (s *Store) strike(t *table) (changed bool) {
	for i := range s.targets {
		to := &s.targets[i]
		if to.set == nil {
			s.effect('p', int64(to.file))
			continue
		}
		if to.chunk == nil {
			to.chunk = s.freshChunk(t.id, to.file)
		}
		s.kill(to.chunk, &record.DeleteBlock{File: to.file, Bitmap: to.set})
		s.effect('d', int64(to.file))
		changed = true
	}
	return changed
}

// findFile finds a file among those that a record adds.
func findFile(files []record.DataFile, id uint64) (int, bool) {
	if len(files) == 0 || id < files[0].ID {
		return 0, false
	}
	return slices.BinarySearchFunc(files, id, func(f record.DataFile, id uint64) int { return cmp.Compare(f.ID, id) })
}

// hasTuple says whether a file's partition is a tuple of its spec: nobody could
// publish one that is not. Values of a column that was widened since may be of
// either form.
func (t *table) hasTuple(f *record.DataFile) bool {
	sp := t.def.Spec(f.SpecID)
	if sp == nil {
		return false
	}
	if len(sp.Fields) == 0 {
		return schemas.CheckTuple(f.Partition, nil) == nil
	}
	if m := &t.tupleTypes; m.def != t.def || m.spec != sp {
		m.def, m.spec = t.def, sp
		m.types, m.err = sp.ResultTypes(t.def.Schema())
	}
	return t.tupleTypes.err == nil && schemas.CheckTuple(f.Partition, t.tupleTypes.types) == nil
}

// target is where a delete block goes, as found while the record was checked.
type target struct {
	chunk *chunk // nil: that of a file of the same record
	file  uint64
	set   []byte // nil: the versions are dead
}

func (s *Store) doAppend(r *Record, t *table, sh *shard, a *record.AppendRows) error {
	s.effect('a', t.id, sh.epoch, a.Counter, a.SourceTo, a.RequestTo, int64(len(a.Files)))
	for i := range a.Files {
		if err := s.addFile(r, t, sh, a, &a.Files[i]); err != nil {
			return err
		}
	}
	s.strike(t)
	if sh.framing == 0 && len(a.Files) > 0 {
		sh.framing = a.Framing
	}
	sh.counter, sh.sourceEnd = a.Counter, a.SourceTo
	moved := a.RequestTo > sh.requestEnd
	sh.requestEnd = a.RequestTo
	sh.counts.Add(&a.Counts)
	t.totals.Counts.Add(&a.Counts)
	sh.dirty, t.dirty = true, true
	if len(a.Files) > 0 || len(a.Deletes) > 0 {
		t.lastChange, t.changed = r.Offset, true
	}
	if moved {
		if err := s.settle(r, t); err != nil {
			return err
		}
	}
	if t.resharding != nil {
		return s.divide(r, t)
	}
	return nil
}

func (s *Store) kill(c *chunk, b *record.DeleteBlock) {
	s.touch(c)
	c.killed.set(uint(b.File & 127))
	c.marksDirty = true
	if c.kills == nil {
		if n := len(s.killLogs); n > 0 {
			c.kills, s.killLogs = s.killLogs[n-1], s.killLogs[:n-1]
			s.killRoom -= int64(cap(c.kills))
		}
	}
	c.kill(b.File, b.Bitmap)
	s.held += int64(len(b.Bitmap)) + 4
}

// heldFile is about what a new file takes in memory until it is written back.
const heldFile = 160

func (s *Store) addFile(r *Record, t *table, sh *shard, a *record.AppendRows, f *record.DataFile) error {
	n, err := s.tupleOrdinal(t, f.SpecID, f.Partition)
	if err != nil {
		return err
	}
	var c *chunk
	if f.ID>>7 != sh.lastFile>>7 {
		c = s.freshChunk(t.id, f.ID)
	} else if c, err = s.chunk(t.id, f.ID); err != nil {
		return err
	}
	s.touch(c)
	c.add(fileEntry{
		id: f.ID, rows: f.Rows, bytes: f.Bytes, tuple: n, record: r.Offset, schema: a.SchemaID, rowID: -1,
		member: len(t.def.Spec(f.SpecID).Fields) > 0,
	})
	s.bodyDir = c.addBody(r.Offset, a.Changes, s.bodyDir)
	c.added.set(uint(f.ID & 127))
	c.dirty, c.marksDirty = true, true
	s.held += heldFile
	sh.lastFile = f.ID
	t.totals.Files++
	t.totals.Rows += f.Rows
	t.totals.Bytes += f.Bytes
	s.effect('f', int64(f.ID), int64(n))
	return nil
}

// derive emits the derived outcome by which a record of that type is settled. It
// goes out before the outcome of the record that settles it: where that one is in
// the topic, this one is too (L11). Its chain hash is that before the record; a
// silent store, which may not have it yet, tells nobody.
func (s *Store) derive(r *Record, t *table, of record.Type, why record.Reason, numbers ...int64) error {
	return s.emit(&record.OutcomeMessage{
		Offset: r.Offset, Type: of, Derived: true, Table: t.name, TableID: t.id, TimeMs: s.now,
		Outcome: record.Outcome{Code: record.Settled, Reason: why, Numbers: numbers}, Chain: s.head.Chain,
	})
}

// settle emits the derived outcome of every DeleteKeys that all shards asked
// have answered (A5), and releases files that all have taken (H1).
func (s *Store) settle(r *Record, t *table) error {
	kept := t.openDeletes[:0]
	for _, o := range t.openDeletes {
		open := slices.ContainsFunc(o.asked, func(id shardID) bool {
			sh := t.shards[id]
			return !sh.retired && sh.requestEnd <= o.offset
		})
		if open {
			kept = append(kept, o)
			continue
		}
		t.dirty = true
		t.settled++
		s.effect('k', t.id, o.offset)
		if err := s.derive(r, t, record.TypeDeleteKeys, record.ReasonNone, o.offset); err != nil {
			return err
		}
	}
	t.openDeletes = kept
	return s.releaseHeld(r, t)
}

// deleteKeys: A5. The shards asked are those ever claimed before it.
func (s *Store) deleteKeys(r *Record, t *table, d *record.DeleteKeys) (outcomeOf, error) {
	if !t.def.Keyed() {
		return reject(record.NoKey), nil
	}
	if d.HasOrder && t.def.Order.Kind == 0 {
		return reject(record.NoOrderColumn), nil
	}
	o := openDelete{offset: r.Offset, keys: d.Keys}
	for _, id := range t.shardOrder {
		if !t.shards[id].retired {
			o.asked = append(o.asked, id)
		}
	}
	t.openDeletes = append(t.openDeletes, o)
	t.dirty = true
	s.effect('k', t.id, int64(len(o.asked)))
	if err := s.settle(r, t); err != nil {
		return outcomeOf{}, err
	}
	return accepted(false, int64(len(o.asked))), s.divide(r, t)
}

// shardIndex: F9.
func (s *Store) shardIndex(t *table, x *record.ShardIndex) (outcomeOf, error) {
	sh := t.shardOf(&x.Shard)
	if sh == nil {
		return reject(record.NoShard), nil
	}
	if x.Epoch != sh.epoch {
		return reject(record.EpochClosed, sh.epoch, 1), nil
	}
	if !sh.open {
		return reject(record.EpochClosed, sh.closedBy, flag(sh.closedByClaim)), nil
	}
	if x.Offset <= sh.indexHorizon || x.Offset > s.head.Offset {
		return reject(record.IndexOffset, sh.indexHorizon), nil
	}
	sh.indexHorizon, sh.index, sh.dirty = x.Offset, x.File, true
	s.effect('x', t.id, sh.epoch, x.Offset)
	return accepted(false), nil
}

// skipSource: A6, the only way but an append to move an end.
func (s *Store) skipSource(r *Record, t *table, k *record.SkipSource) (outcomeOf, error) {
	sh := t.shardOf(&k.Shard)
	if sh == nil {
		return reject(record.NoShard), nil
	}
	if k.From != sh.sourceEnd || k.To <= k.From {
		return reject(record.SourceRange, sh.sourceEnd, k.From, k.To), nil
	}
	sh.sourceEnd, sh.dirty = k.To, true
	closeEpoch(sh, r.Offset, false)
	s.effect('i', t.id, k.To)
	return accepted(false), s.divide(r, t)
}

// retireShard: A5. It closes the shard's epoch.
func (s *Store) retireShard(r *Record, t *table, k *record.RetireShard) (outcomeOf, error) {
	sh := t.shardOf(&k.Shard)
	if sh == nil {
		return reject(record.NoShard), nil
	}
	if sh.retired {
		return reject(record.ShardRetired), nil
	}
	sh.retired, sh.dirty = true, true
	closeEpoch(sh, r.Offset, false)
	s.effect('u', t.id)
	if err := s.settle(r, t); err != nil {
		return outcomeOf{}, err
	}
	return accepted(false), s.divide(r, t)
}
