package statestore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/record"
)

const (
	maxJobTarget  = 1 << 42 // bytes of an output, above any
	maxJobOutputs = 1 << 16
	maxStrategy   = 64
)

// verdicts gathers the outcome of a batch record's items (L12).
type verdicts struct {
	n, rejected int
	last        int
	first       record.Reason
	items       []byte
}

func (v *verdicts) reject(item int, r record.Reason) {
	if v.rejected == 0 {
		v.first, v.last = r, -1
	}
	v.items = record.AppendRejectedItem(v.items, v.last, item, r)
	v.last = item
	v.rejected++
}

// outcome has the numbers accepted, rejected and more. One whose items are all
// rejected has the reason of the first.
func (v *verdicts) outcome(changed bool, more ...int64) outcomeOf {
	out := outcomeOf{
		Code: record.Accepted, Changed: changed, Items: v.items,
		Numbers: append([]int64{int64(v.n - v.rejected), int64(v.rejected)}, more...),
	}
	switch {
	case v.n == 0:
		return reject(record.BadItem)
	case v.rejected == v.n:
		out.Code, out.Reason, out.Changed = record.Rejected, v.first, false
	case v.rejected > 0:
		out.Code = record.Partly
	}
	return out
}

// deadNow is the set of a file's dead positions, nil when there are none.
func (s *Store) deadNow(t *table, c *chunk, f *fileEntry) ([]byte, error) {
	at, _ := c.at(f.id)
	s.sets = s.sets[:0]
	if len(c.kills) > 0 {
		s.killOrder = c.killOrder(s.killOrder[:0])
		for i := 0; i < len(s.killOrder); i++ {
			if s.killOrder[i]>>56 == f.id&127 {
				_, s.sets, _ = c.killsOf(s.killOrder, i, s.sets)
				break
			}
		}
	}
	if at >= c.stored {
		return s.deadSet(t, f, true)
	}
	if err := s.findDead(t, c); err != nil {
		return nil, err
	}
	return s.deadSet(t, f, !c.dead.has(uint(f.id&127)))
}

// findDead finds which of a chunk's files the database has dead positions of:
// one look for all, since jobs mostly take neighbours.
func (s *Store) findDead(t *table, c *chunk) error {
	if c.deadKnown {
		return nil
	}
	from := key16(keyDead, uint64(t.id), c.key.base<<7)
	it, err := s.iterRange(from, key16(keyDead, uint64(t.id), (c.key.base+1)<<7))
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		c.dead.set(uint(it.Key()[len(from)-1]) & 127)
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return readError(err)
	}
	c.deadKnown = true
	return nil
}

// delDead deletes what the database has of a file's dead positions. Most files
// that jobs take have none, and are known for it.
func (s *Store) delDead(t *table, c *chunk, f *fileEntry) error {
	if c.deadKnown && !c.dead.has(uint(f.id&127)) {
		return nil
	}
	return s.del(key16(keyDead, uint64(t.id), f.id))
}

// deadSet unites s.sets, a file's delete blocks that the database lacks, with
// what it has, unless it lacks the file too (fresh).
func (s *Store) deadSet(t *table, f *fileEntry, fresh bool) (dead []byte, err error) {
	if !fresh {
		if dead, err = s.get(key16(keyDead, uint64(t.id), f.id)); err != nil {
			return nil, err
		}
	}
	if len(s.sets) > 0 {
		if dead != nil {
			s.sets = append(s.sets, dead)
		}
		if dead, err = dv.UnionAll(nil, s.sets...); err != nil {
			return nil, fmt.Errorf("%w: dead positions of file %d", ErrCorrupt, f.id)
		}
	}
	return dead, nil
}

// planJobs: F1.
func (s *Store) planJobs(r *Record, t *table, p *record.PlanJobs) (outcomeOf, error) {
	v := verdicts{n: len(p.Items)}
	leaves := map[int64]bool{} // a plan changes no node
	for i := range p.Items {
		reason, err := s.planItem(r, t, int32(i), &p.Items[i], leaves)
		if err != nil {
			return outcomeOf{}, err
		}
		if reason != record.ReasonNone {
			v.reject(i, reason)
		}
	}
	return v.outcome(false), nil
}

func (s *Store) planItem(r *Record, t *table, item int32, p *record.PlanItem, leaves map[int64]bool) (record.Reason, error) {
	if len(t.openDeletes) > 0 {
		return record.Unsettled, nil
	}
	if t.filesHeld() { // a job's rows are placed at its plan
		return record.FilesHeld, nil
	}
	if len(p.Inputs) == 0 || len(p.Inputs) > forward.MaxInputs || p.TargetBytes < 0 || p.TargetBytes > maxJobTarget || !strategyName(p.Strategy) {
		return record.BadItem, nil
	}
	id := jobID{r.Offset, item}
	j := &openJob{attempt: 1, since: r.Offset, sequence: t.head.Sequence, target: p.TargetBytes, strategy: p.Strategy}
	for i := range p.Inputs {
		in := &p.Inputs[i]
		c, err := s.chunk(t.id, in.File)
		if err != nil {
			return 0, err
		}
		f := c.find(in.File)
		switch {
		case f == nil || f.gone:
			return record.NoFile, nil
		}
		ref, err := s.reference(t, c, f, in)
		if err != nil {
			return 0, err
		}
		switch {
		case ref.state == partTaken || slices.ContainsFunc(p.Inputs[:i], func(x record.JobInput) bool { return x.File == in.File }):
			return record.FileTaken, nil
		case f.manifest == 0:
			return record.NotPublished, nil
		case ref.hi == 0:
			return record.BadRange, nil
		case ref.state == partMoved:
			return record.NoFile, nil
		case i > 0 && (f.tuple != j.tuple || ref.node != j.node):
			return record.OtherPartition, nil
		}
		j.tuple, j.node = f.tuple, ref.node
	}
	leaf, known := leaves[j.node]
	if !known {
		var err error
		if leaf, err = s.isLeaf(t, j.node); err != nil {
			return 0, err
		}
		leaves[j.node] = leaf
	}
	if !leaf {
		return record.NotLeaf, nil
	}
	s.effect('J', t.id, int64(item), int64(len(p.Inputs)), int64(j.tuple), j.sequence)
	for i := range p.Inputs {
		in := &p.Inputs[i]
		c, err := s.chunk(t.id, in.File)
		if err != nil {
			return 0, err
		}
		f := c.find(in.File)
		base, err := s.deadIn(t, c, f, in.Lo, in.Hi)
		if err != nil {
			return 0, err
		}
		dead := uint64(0)
		if base != nil {
			if dead, err = dv.Count(base); err != nil {
				return 0, fmt.Errorf("%w: dead positions of file %d", ErrCorrupt, f.id)
			}
			if dead == 0 {
				base = nil
			}
		}
		if base != nil {
			if err := s.set(baseKey(t.id, id, i), base); err != nil {
				return 0, err
			}
		}
		j.inputs = append(j.inputs, jobInput{file: f.id, lo: in.Lo, hi: in.Hi, rows: in.Hi - in.Lo - int64(dead), dead: deadHash(base)})
		if err := s.take(t, c, &j.inputs[i], &id); err != nil {
			return 0, err
		}
		s.effect('I', int64(f.id), in.Lo, in.Hi, int64(dead))
	}
	t.openJobs++
	t.dirty = true
	s.notice(t, id, j)
	return record.ReasonNone, errors.Join(s.countJob(t, j.node, 1), s.setJob(t.id, id, j))
}

// strategyName: the state, dispatches and listings carry a strategy's name.
func strategyName(s string) bool {
	return len(s) <= maxStrategy && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// notice tells Commit's caller that an attempt can be dispatched.
func (s *Store) notice(t *table, id jobID, j *openJob) {
	s.jobsDue = append(s.jobsDue, JobNotice{t.name, t.id, record.JobID{Plan: id.plan, Item: id.item, Attempt: j.attempt}, j.find})
}

// reference is the one that an input names: its end is 0 where there is none of
// that range.
func (s *Store) reference(t *table, c *chunk, f *fileEntry, in *record.JobInput) (part, error) {
	if !c.parted.has(uint(f.id & 127)) {
		x := part{node: root}
		if in.Lo == 0 && in.Hi == f.rows {
			x.hi = in.Hi
		}
		if c.job(f.id) != nil {
			x.state = partTaken
		}
		return x, nil
	}
	parts, err := s.parts(t, c, f.id)
	if p := partAt(parts, in.Lo, in.Hi); p != nil {
		return *p, err
	}
	return part{}, err
}

// deadIn is the dead positions of a range of a file, nil when there are none. What
// moved is none of them (F7).
func (s *Store) deadIn(t *table, c *chunk, f *fileEntry, lo, hi int64) ([]byte, error) {
	dead, err := s.deadNow(t, c, f)
	if err != nil || dead == nil || lo == 0 && hi == f.rows {
		return dead, err
	}
	return within(dead, lo, hi)
}

// attempt finds an open job's newest attempt.
func (s *Store) attempt(t *table, j record.JobID) (jobID, *openJob, record.Reason, error) {
	id := jobID{j.Plan, j.Item}
	open, err := s.openJob(t.id, id)
	switch {
	case err != nil:
		return id, nil, 0, err
	case open == nil:
		return id, nil, record.NoJob, nil
	case open.attempt != j.Attempt:
		return id, nil, record.WrongAttempt, nil
	}
	return id, open, record.ReasonNone, nil
}

// releaseJob: F6.
func (s *Store) releaseJob(r *Record, t *table, p *record.ReleaseJob) (outcomeOf, error) {
	v := verdicts{n: len(p.Items)}
	for i := range p.Items {
		x := &p.Items[i]
		id, j, reason, err := s.attempt(t, x.Job)
		if err != nil {
			return outcomeOf{}, err
		}
		if reason != record.ReasonNone {
			v.reject(i, reason)
			continue
		}
		if x.Again && j.attempt < 1<<30 {
			j.attempt++
			j.since = r.Offset
			if err := s.setJob(t.id, id, j); err != nil {
				return outcomeOf{}, err
			}
			s.notice(t, id, j)
			s.effect('R', t.id, id.plan, int64(id.item), int64(j.attempt))
			continue
		}
		if j.find {
			s.effect('R', t.id, id.plan, int64(id.item), 0)
			if err := s.giveUp(r, t, id.plan); err != nil {
				return outcomeOf{}, err
			}
			continue
		}
		for k := range j.inputs {
			c, err := s.chunk(t.id, j.inputs[k].file)
			if err != nil {
				return outcomeOf{}, err
			}
			if err := s.take(t, c, &j.inputs[k], nil); err != nil {
				return outcomeOf{}, err
			}
		}
		if err := s.endJob(t, id, j); err != nil {
			return outcomeOf{}, err
		}
		s.effect('R', t.id, id.plan, int64(id.item), 0)
	}
	return v.outcome(false), nil
}

// endJob takes an open job out.
func (s *Store) endJob(t *table, id jobID, j *openJob) error {
	for i := range j.inputs {
		if j.inputs[i].dead != [16]byte{} {
			if err := s.del(baseKey(t.id, id, i)); err != nil {
				return err
			}
		}
	}
	t.openJobs--
	t.dirty = true
	if !j.find {
		if err := s.countJob(t, j.node, -1); err != nil {
			return err
		}
	}
	return s.delJob(t.id, id)
}

// completion is an item of a CompleteJob that was found to be right.
type completion struct {
	id   jobID
	job  *openJob
	m    *forward.Map
	item *record.CompletedJob

	writer uint32 // of the outputs' ids
}

// completeJob: F4. All items are checked before anything changes, so that maps
// that are not at hand stop the record as a whole, and are asked for at once.
func (s *Store) completeJob(r *Record, t *table, p *record.CompleteJob) (outcomeOf, error) {
	v := verdicts{n: len(p.Items)}
	var all []completion
	names := map[[16]byte]bool{}
	taken := map[jobID]bool{}
	var lacks *NeedsMap
	for i := range p.Items {
		c, reason, err := s.checkCompletion(t, p, &p.Items[i])
		var wait *NeedsMap
		if errors.As(err, &wait) {
			if lacks == nil {
				lacks = &NeedsMap{}
			}
			lacks.Refs = append(lacks.Refs, wait.Refs...)
			continue
		}
		if err != nil {
			return outcomeOf{}, err
		}
		if reason == record.ReasonNone && taken[c.id] {
			reason = record.NoJob
		}
		for k := range p.Items[i].Outputs {
			name := p.Items[i].Outputs[k].Name
			if names[name] && reason == record.ReasonNone {
				reason = record.BadOutputs
			}
			names[name] = true
		}
		if reason != record.ReasonNone {
			v.reject(i, reason)
			continue
		}
		taken[c.id] = true
		all = append(all, c)
	}
	if lacks != nil {
		return outcomeOf{}, lacks
	}
	first := t.nextOutput
	for i := range all {
		if err := s.complete(r, t, p, &all[i]); err != nil {
			return outcomeOf{}, err
		}
	}
	return v.outcome(len(all) > 0, int64(FileID(0, first))), nil
}

func (s *Store) checkCompletion(t *table, p *record.CompleteJob, x *record.CompletedJob) (c completion, _ record.Reason, _ error) {
	id, j, reason, err := s.attempt(t, x.Job)
	if err != nil || reason != record.ReasonNone {
		return c, reason, err
	}
	if j.find {
		return c, record.NoJob, nil
	}
	if t.def.SchemaByID(x.SchemaID) == nil {
		return c, record.SchemaUnknown, nil
	}
	want, got, writer := int64(0), int64(0), uint32(0)
	for i := range j.inputs {
		want += j.inputs[i].rows
		if t.def.Keyed() {
			writer = outputWriter(writer, j.inputs[i].file)
		}
	}
	if x.Sorted && writer != 0 { // F24
		return c, record.BadOutputs, nil
	}
	for i := range x.Outputs {
		o := &x.Outputs[i]
		if o.Rows < 1 || o.Rows > MaxFileRows || o.Bytes < 1 || o.Bytes > maxFileBytes || o.Name == [16]byte{} {
			return c, record.BadOutputs, nil
		}
		got += o.Rows
	}
	if got != want || len(x.Outputs) > maxJobOutputs || len(x.Outputs) > 0 && p.Metrics == nil ||
		t.nextOutput > 1<<writerShift-maxJobOutputs {
		return c, record.BadOutputs, nil
	}
	if !mapRefInLimits(&x.Map) {
		return c, record.BadMap, nil
	}
	m, bad, err := s.openMap(&x.Map, true)
	if errors.Is(err, errMapLost) {
		return c, record.BadMap, nil
	}
	if err != nil {
		return c, 0, err
	}
	if bad || len(m.Inputs()) != len(j.inputs) || len(m.Outputs()) != len(x.Outputs) {
		return c, record.BadMap, nil
	}
	for i := range j.inputs {
		in, is := &j.inputs[i], &m.Inputs()[i]
		if is.File != in.file || int64(is.Lo) != in.lo || int64(is.Hi) != in.hi {
			return c, record.BadMap, nil
		}
		if deadHash(is.Dead) != in.dead || int64(is.Rows) != in.rows {
			return c, record.WrongDead, nil
		}
	}
	for i, n := range m.Outputs() {
		if int64(n) != x.Outputs[i].Rows {
			return c, record.BadMap, nil
		}
	}
	return completion{id, j, m, x, writer}, record.ReasonNone, nil
}

// complete swaps the references of a job, installs its map and brings what died
// since the plan into the outputs (F4, F7).
func (s *Store) complete(r *Record, t *table, p *record.CompleteJob, c *completion) error {
	done := doneJob{at: r.Offset, first: FileID(c.writer, t.nextOutput), outputs: int64(len(c.item.Outputs)), inputs: int64(len(c.job.inputs)), forward: c.item.Map}
	s.effect('C', t.id, c.id.plan, int64(c.id.item), int64(done.first), done.outputs)
	for i := range c.item.Outputs {
		if err := s.addOutput(r, t, p, c, &c.item.Outputs[i]); err != nil {
			return err
		}
	}
	for i := range c.job.inputs {
		in := &c.job.inputs[i]
		ch, err := s.chunk(t.id, in.file)
		if err != nil {
			return err
		}
		f := ch.find(in.file)
		if f == nil {
			return fmt.Errorf("%w: input %d of a job", ErrCorrupt, in.file)
		}
		if err := s.bringDeaths(t, c, i, ch, f, done.first); err != nil {
			return err
		}
		s.touch(ch)
		ch.dirty = true
		all, err := s.rewritten(t, ch, in)
		if err != nil {
			return err
		}
		if f.gone {
			continue // every row died, and a cut took it out
		}
		if !all {
			ch.killed.set(uint(f.id & 127)) // the next cut's vector has what moved
			ch.marksDirty = true
			continue
		}
		f.gone = true
		ch.gone.set(uint(f.id & 127))
		ch.killed.set(uint(f.id & 127)) // the next cut takes it out
		ch.marksDirty = true
		t.totals.Files--
		t.totals.Rows -= f.rows
		t.totals.Bytes -= f.bytes
		if err := s.delDead(t, ch, f); err != nil {
			return err
		}
		if err := s.leavePartition(t, f); err != nil {
			return err
		}
	}
	t.lastChange, t.changed = r.Offset, true
	if err := s.endJob(t, c.id, c.job); err != nil {
		return err
	}
	return s.set(jobKey(keyDone, t.id, c.id), done.encode())
}

// bringDeaths takes Δ, what of an input died since the plan, through the map.
func (s *Store) bringDeaths(t *table, c *completion, i int, ch *chunk, f *fileEntry, first uint64) error {
	in := &c.job.inputs[i]
	var late []uint32
	if f.gone { // F4 holds here too: all of it died
		b := roaring.New()
		b.AddRange(uint64(in.lo), uint64(in.hi))
		late = b.ToArray() // Rebase leaves out R
	} else {
		dead, err := s.deadIn(t, ch, f, in.lo, in.hi)
		if err != nil || dead == nil {
			return err
		}
		if base := c.m.Inputs()[i].Dead; len(base) > 0 {
			if bytes.Equal(dead, base) {
				return nil
			}
			if dead, err = dv.Minus(nil, dead, base); err != nil {
				return fmt.Errorf("%w: dead positions of file %d", ErrCorrupt, f.id)
			}
		}
		if late, err = positions(dead); err != nil {
			return err
		}
	}
	images, err := c.m.Rebase(nil, i, late)
	if err != nil {
		return mapFault(&c.item.Map)
	}
	return eachOutput(images, func(output uint32, set []byte) error {
		id := first + uint64(output)
		to, err := s.chunk(t.id, id)
		if err != nil {
			return err
		}
		s.kill(to, &record.DeleteBlock{File: id, Bitmap: set})
		s.effect('d', int64(id))
		s.effectBytes(set)
		return nil
	})
}

func positions(set []byte) ([]uint32, error) {
	b, err := dv.ReadBitmap(set)
	if err != nil {
		return nil, fmt.Errorf("%w: dead positions", ErrCorrupt)
	}
	return b.ToArray(), nil
}

// eachOutput calls fn with the images of each output as a set.
func eachOutput(images []forward.Image, fn func(output uint32, set []byte) error) error {
	return forward.ByOutput(images, func(output uint32, positions *roaring.Bitmap) error {
		set, err := dv.AppendBitmap(nil, positions)
		if err != nil {
			return err
		}
		return fn(output, set)
	})
}

func (s *Store) addOutput(r *Record, t *table, p *record.CompleteJob, c *completion, o *record.JobOutput) error {
	spec, _, err := tupleOf(s.remembered, t.id, c.job.tuple)
	if err != nil {
		return err
	}
	id := t.nextFile(c.writer)
	if err := s.enterAs(r, t, o.Name, p.Metrics, fileEntry{
		id: id, rows: o.Rows, bytes: o.Bytes, tuple: c.job.tuple, schema: c.item.SchemaID, sequence: c.job.sequence, member: len(t.def.Spec(spec).Fields) > 0,
	}); err != nil || c.job.node == root {
		return err
	}
	to, err := s.chunk(t.id, id)
	if err != nil {
		return err
	}
	return s.setParts(t, to, id, []part{{hi: o.Rows, node: c.job.node}})
}

// nextFile is a new id for a file that no shard wrote, with one of OutputWriters.
func (t *table) nextFile(writer uint32) uint64 {
	id := FileID(writer, t.nextOutput)
	t.nextOutput++
	return id
}

// enterAs adds a file that no shard wrote, and that no snapshot lists.
func (s *Store) enterAs(r *Record, t *table, name [16]byte, metrics *record.Ref, f fileEntry) error {
	f.record, f.rowID = r.Offset, -1
	c, err := s.chunk(t.id, f.id)
	if err != nil {
		return err
	}
	s.touch(c)
	c.add(f)
	c.names = append(c.names, outputName{uint8(f.id & 127), name})
	s.bodyDir = c.addBody(r.Offset, metrics, s.bodyDir)
	c.added.set(uint(f.id & 127))
	c.dirty, c.marksDirty = true, true
	s.held += heldFile
	t.totals.Files++
	t.totals.Rows += f.rows
	t.totals.Bytes += f.bytes
	t.dirty = true
	s.effect('F', int64(f.id), f.rows)
	return nil
}

// forwardBlock follows positions of a file that a job rewrote to where their
// rows are now (P2), and appends the blocks that are left. Rows that are dead
// there leave nothing (P5).
func (s *Store) forwardBlock(t *table, file uint64, set []byte, dst []target) ([]target, error) {
	c, err := s.chunk(t.id, file)
	if err != nil {
		return dst, err
	}
	f := c.find(file)
	if f == nil && c.collected.has(uint(file&127)) {
		s.metCollected = true
		return dst, nil
	}
	if f == nil {
		return dst, fmt.Errorf("%w: output %d of a job", ErrCorrupt, file)
	}
	if !f.gone && !c.moved.has(uint(file&127)) {
		return append(dst, target{chunk: c, file: file, set: set}), nil
	}
	if c.out.has(uint(file & 127)) {
		s.metOut = true
		return dst, nil
	}
	if c.parted.has(uint(file & 127)) {
		return s.forwardParts(t, c, f, set, dst)
	}
	id := c.job(file)
	if id == nil {
		return dst, nil // every row is dead
	}
	return s.forwardThrough(t, file, *id, set, dst)
}

// forwardThrough follows positions of a file through the job that took it.
func (s *Store) forwardThrough(t *table, file uint64, id jobID, set []byte, dst []target) ([]target, error) {
	done, err := s.doneJob(t.id, id)
	if err != nil {
		return dst, err
	}
	if done == nil {
		return dst, nil // the job runs, but every row is dead
	}
	m, bad, err := s.openMap(&done.forward, false)
	if err != nil {
		return dst, err
	}
	if bad {
		return dst, mapFault(&done.forward)
	}
	input := slices.IndexFunc(m.Inputs(), func(in forward.Input) bool { return in.File == file })
	if input < 0 {
		return dst, mapFault(&done.forward)
	}
	at, err := positions(set)
	if err != nil {
		return dst, err
	}
	images, err := m.Rebase(nil, input, at)
	if err != nil {
		return dst, mapFault(&done.forward)
	}
	return dst, eachOutput(images, func(output uint32, set []byte) (err error) {
		dst, err = s.forwardBlock(t, done.first+uint64(output), set, dst)
		return err
	})
}

// deletePositions: P1–P5, each block by itself.
func (s *Store) deletePositions(r *Record, t *table, p *record.DeletePositions) (outcomeOf, error) {
	v := verdicts{n: len(p.Deletes)}
	prev := uint64(0)
	s.targets = s.targets[:0]
	for i := range p.Deletes {
		b := &p.Deletes[i]
		info, err := dv.Inspect(b.Bitmap)
		if err != nil || info.Count == 0 || b.File <= prev {
			v.reject(i, record.BadBlock)
			continue
		}
		prev = b.File
		reason, err := s.aim(t, b, int64(info.Max), nil, false)
		if err != nil {
			return outcomeOf{}, err
		}
		if reason != record.ReasonNone {
			v.reject(i, reason)
		}
	}
	if v.rejected < v.n {
		s.effect('P', t.id, int64(v.n-v.rejected))
	}
	changed := s.strike(t)
	if changed {
		t.lastChange, t.changed, t.dirty = r.Offset, true, true
		if err := s.diedByOthers(t, r.Offset); err != nil {
			return outcomeOf{}, err
		}
	}
	return v.outcome(changed), nil
}
