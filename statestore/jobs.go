package statestore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// jobID is a job of a table: offset of its PlanJobs, item in it.
type jobID struct {
	plan int64
	item int32
}

// openJob is a job that is not completed (F1), or a part of a find job (C8).
type openJob struct {
	find     bool // a part of a find job: it takes no file
	attempt  int32
	since    int64 // offset of the record that asked for this attempt
	sequence int64 // the table's last sequence number at the plan (S3)
	tuple    uint32
	node     int64 // leaf of the table's tree of key ranges
	target   int64
	strategy string
	inputs   []jobInput
}

// jobInput is a reference that a job holds. Its R lies under a key of its own.
type jobInput struct {
	file   uint64
	lo, hi int64
	rows   int64    // |L|
	dead   [16]byte // SHA-256 of R, cut; zero when R is empty
}

// doneJob is what is kept of a completed job: the way through it (P2).
type doneJob struct {
	at      int64 // offset of the completion
	first   uint64
	outputs int64
	inputs  int64 // whose entries are still here
	forward record.Ref
}

// fileJob says which job took a file. While the file is not gone, or is gone
// since all its rows are dead, the job is open or was completed; a file that a
// completed job took is gone.
type fileJob struct {
	bit uint8 // low bits of the file id
	id  jobID
}

func jobKey(space byte, table int64, id jobID) []byte {
	return binary.BigEndian.AppendUint32(key16(space, uint64(table), uint64(id.plan)), uint32(id.item))
}

func baseKey(table int64, id jobID, input int) []byte {
	return binary.BigEndian.AppendUint16(jobKey(keyBase, table, id), uint16(input))
}

func deadHash(set []byte) (h [16]byte) {
	if len(set) > 0 {
		sum := sha256.Sum256(set)
		copy(h[:], sum[:])
	}
	return h
}

// How an open job is written.
const (
	openCompaction = 1
	openPart       = 2
	openLeaf       = 3 // a compaction on a leaf that is not the root
)

func (j *openJob) encode() []byte {
	var e enc
	switch {
	case j.find:
		e.u(openPart)
	case j.node != root:
		e.u(openLeaf)
	default:
		e.u(openCompaction)
	}
	e.i(int64(j.attempt))
	e.i(j.since)
	e.i(j.sequence)
	e.u(uint64(j.tuple))
	e.i(j.target)
	e.str(j.strategy)
	e.u(uint64(len(j.inputs)))
	for i := range j.inputs {
		in := &j.inputs[i]
		e.u(in.file)
		e.i(in.lo)
		e.i(in.hi)
		e.i(in.rows)
		e.bool(in.dead != [16]byte{})
		if in.dead != [16]byte{} {
			e.raw(in.dead[:])
		}
	}
	if j.node != root {
		e.i(j.node)
	}
	return e.b
}

func decodeOpenJob(b []byte) (*openJob, error) {
	d := dec{b: b}
	kind := d.u()
	if kind != openCompaction && kind != openPart && kind != openLeaf {
		d.fail()
	}
	j := &openJob{find: kind == openPart, attempt: int32(d.i()), since: d.i(), sequence: d.i(), tuple: uint32(d.u()), target: d.i(), strategy: d.str()}
	n := d.count()
	j.inputs = make([]jobInput, 0, n)
	for ; n > 0; n-- {
		in := jobInput{file: d.u(), lo: d.i(), hi: d.i(), rows: d.i()}
		if d.bool() {
			copy(in.dead[:], d.raw(len(in.dead)))
		}
		j.inputs = append(j.inputs, in)
	}
	if kind == openLeaf {
		j.node = d.i()
	}
	return j, d.done("open job")
}

func (j *doneJob) encode() []byte {
	var e enc
	e.u(2)
	e.i(j.at)
	e.u(j.first)
	e.i(j.outputs)
	e.i(j.inputs)
	encRef(&e, &j.forward)
	return e.b
}

func (s *Store) openJob(table int64, id jobID) (*openJob, error) {
	b, ok := s.nearJobs.byID[nearJob{table, id}]
	if !ok {
		var err error
		if b, err = s.get(jobKey(keyJob, table, id)); err != nil || b == nil {
			return nil, err
		}
	}
	return decodeOpenJob(b)
}

// setJob writes an open job.
func (s *Store) setJob(table int64, id jobID, j *openJob) error {
	b := j.encode()
	s.nearJobs.keep(nearJob{table, id}, b)
	return s.set(jobKey(keyJob, table, id), b)
}

// delJob ends an open job.
func (s *Store) delJob(table int64, id jobID) error {
	s.nearJobs.forget(nearJob{table, id})
	return s.del(jobKey(keyJob, table, id))
}

// nearJobs are open jobs as they are written, at hand: each is read when it is
// dispatched and when it is completed. What finds no room is read from the database;
// so the older ones are here, which are completed first.
type nearJobs struct {
	byID map[nearJob][]byte
	size int
}

type nearJob struct {
	table int64
	id    jobID
}

const (
	// nearJobsRoom bounds their memory.
	nearJobsRoom = 32 << 20
	// nearJobBytes is about what one takes beside its bytes.
	nearJobBytes = 96
)

func (n *nearJobs) keep(id nearJob, b []byte) {
	n.forget(id)
	if n.size+len(b)+nearJobBytes > nearJobsRoom {
		return
	}
	if n.byID == nil {
		n.byID = map[nearJob][]byte{}
	}
	n.byID[id] = b
	n.size += len(b) + nearJobBytes
}

func (n *nearJobs) forget(id nearJob) {
	if b, ok := n.byID[id]; ok {
		delete(n.byID, id)
		n.size -= len(b) + nearJobBytes
	}
}

// forgetTable forgets the jobs of a table.
func (n *nearJobs) forgetTable(table int64) {
	for id := range n.byID {
		if id.table == table {
			n.forget(id)
		}
	}
}

// doneJob is nil while the job is open.
func (s *Store) doneJob(table int64, id jobID) (*doneJob, error) {
	b, err := s.get(jobKey(keyDone, table, id))
	if err != nil || b == nil {
		return nil, err
	}
	return decodeDoneJob(b)
}

func decodeDoneJob(b []byte) (*doneJob, error) {
	d := dec{b: b}
	if d.u() != 2 {
		d.fail()
	}
	j := &doneJob{at: d.i(), first: d.u(), outputs: d.i(), inputs: d.i(), forward: decRef(&d)}
	return j, d.done("completed job")
}

// jobBase is R of an input, nil when it is empty.
func jobBase(get getter, table int64, id jobID, j *openJob, input int) ([]byte, error) {
	if j.inputs[input].dead == [16]byte{} {
		return nil, nil
	}
	set, err := get(baseKey(table, id, input))
	if err == nil && deadHash(set) != j.inputs[input].dead {
		err = fmt.Errorf("%w: dead positions of a job's input", ErrCorrupt)
	}
	return set, err
}

// JobNotice says that an attempt at a job can be dispatched.
type JobNotice struct {
	Table   string
	TableID int64
	Job     record.JobID
	Find    bool // a part of a find job (C8), for FindDispatch
}

// JobInfo is an open job.
type JobInfo struct {
	JobNotice
	Strategy string
	Inputs   int
	Rows     int64 // to be carried over
	Since    int64 // offset of the record that asked for this attempt
}

// OpenJobs calls fn with a table's jobs that are not completed, in order. fn may
// call the store.
func (s *Store) OpenJobs(tableID int64, fn func(*JobInfo) error) error {
	all, err := s.openJobs(tableID)
	if err != nil {
		return err
	}
	for i := range all {
		if err := fn(&all[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) openJobs(tableID int64) (all []JobInfo, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.tableByID(tableID)
	if err != nil || t == nil {
		return nil, err
	}
	return all, s.eachOpenJob(tableID, func(id jobID, j *openJob) error {
		x := JobInfo{
			JobNotice: JobNotice{t.name, tableID, record.JobID{Plan: id.plan, Item: id.item, Attempt: j.attempt}, j.find},
			Strategy:  j.strategy, Inputs: len(j.inputs), Since: j.since,
		}
		for i := range j.inputs {
			x.Rows += j.inputs[i].rows
		}
		all = append(all, x)
		return nil
	})
}

// JobState says whether a job is open, and whether it was completed: one that is
// neither was rejected or given up, or the way through it is forgotten (F15).
func (s *Store) JobState(tableID, plan int64, item int32) (open, done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sound(); err != nil {
		return false, false, err
	}
	id := jobID{plan, item}
	j, err := s.openJob(tableID, id)
	if err != nil || j != nil {
		return j != nil, false, err
	}
	d, err := s.doneJob(tableID, id)
	return false, d != nil, err
}

func (s *Store) eachOpenJob(tableID int64, fn func(jobID, *openJob) error) error {
	prefix := key8(keyJob, uint64(tableID))
	it, err := s.iter(prefix)
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		k := it.Key()[len(prefix):]
		if len(k) != 12 {
			return errors.Join(fmt.Errorf("%w: job key", ErrCorrupt), it.Close())
		}
		j, err := decodeOpenJob(it.Value())
		if err == nil {
			err = fn(jobID{int64(binary.BigEndian.Uint64(k)), int32(binary.BigEndian.Uint32(k[8:]))}, j)
		}
		if err != nil {
			return errors.Join(err, it.Close())
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return readError(err)
	}
	return nil
}

// maxRemembered is how many facts are remembered.
const maxRemembered = 1 << 12

// remembered gets facts that never change once they are there: the inputs of
// jobs mostly share their partition and their writer.
func (s *Store) remembered(key []byte) ([]byte, error) {
	if b, ok := s.facts[string(key)]; ok {
		return b, nil
	}
	b, err := s.get(key)
	if err != nil || b == nil {
		return b, err
	}
	if s.facts == nil || len(s.facts) >= maxRemembered {
		s.facts = map[string][]byte{}
	}
	s.facts[string(key)] = b
	return b, nil
}

// noticed is the attempt that a notice tells of, nil when it is not open any more,
// or none of that kind.
func (s *Store) noticed(n *JobNotice, find bool) (t *table, id jobID, j *openJob, err error) {
	id = jobID{n.Job.Plan, n.Job.Item}
	if t, err = s.tableByID(n.TableID); err != nil || t == nil || t.dropped {
		return t, id, nil, err
	}
	if j, err = s.openJob(t.id, id); err != nil || j == nil || j.attempt != n.Job.Attempt || j.find != find {
		return t, id, nil, err
	}
	return t, id, j, nil
}

// Dispatch is what a worker needs for an attempt at a job, less where the
// definition lies; nil when the attempt is not open any more. Its dead sets are
// whole, whatever their size. def is the table's definition, not to be changed.
func (s *Store) Dispatch(n *JobNotice) (d *record.Dispatch, def *schemas.Definition, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, id, j, err := s.noticed(n, false)
	if err != nil || j == nil {
		return nil, nil, err
	}
	d = &record.Dispatch{
		Job: n.Job, Table: t.name, TableID: t.id, Partition: s.head.Partition, ApplyVersion: s.head.ApplyVersion,
		TargetBytes: j.target, Strategy: j.strategy,
	}
	d.Inputs = make([]record.DispatchInput, 0, len(j.inputs))
	for i := range j.inputs {
		y, spec, err := s.dispatchInput(t, &j.inputs[i])
		if err != nil {
			return nil, nil, err
		}
		d.SpecID = spec
		if y.Dead, err = jobBase(s.get, t.id, id, j, i); err != nil {
			return nil, nil, err
		}
		d.Inputs = append(d.Inputs, y)
	}
	return d, t.def, nil
}

// dispatchInput is an input as a worker needs it, less its dead positions.
func (s *Store) dispatchInput(t *table, in *jobInput) (y record.DispatchInput, spec int32, err error) {
	c, err := s.chunk(t.id, in.file)
	if err != nil {
		return y, 0, err
	}
	f := c.find(in.file)
	if f == nil {
		return y, 0, fmt.Errorf("%w: input %d of a job", ErrCorrupt, in.file)
	}
	x := FrozenFile{ID: f.id, Name: c.name(f.id)}
	if err := describe(s.remembered, t.id, &x, f.tuple); err != nil {
		return y, 0, err
	}
	return record.DispatchInput{
		File: f.id, Path: x.At(t.def.Location, t.id), Rows: f.rows, Bytes: f.bytes, Lo: in.lo, Hi: in.hi,
		FirstRowID: f.rowID, Sequence: f.sequence,
	}, x.SpecID, nil
}
