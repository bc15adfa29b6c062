package statestore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
)

const (
	// maxFinds bounds the open find jobs of a table.
	maxFinds = 64
	// maxOpenParts bounds the open parts of a find job: each that ends opens the
	// next, so that a table's size is no record's.
	maxOpenParts = 16
	// A part has at most so many files, and a file more than which it is full.
	maxPartFiles = 64
	maxPartRows  = 4 << 20
	maxPartBytes = 256 << 20
	// maxWhere bounds the body of a DeleteWhere, in bytes.
	maxWhere = 1 << 20
	// FindMs is how long a find job may take, in ms of table time: for as long,
	// owners of shards follow a block that names a file from before it.
	FindMs = 24 * 3600 * 1000
	// findStrategy stands where a compaction job has its strategy.
	findStrategy = "where"
)

// find is an open find job (C8).
type find struct {
	offset int64 // of its DeleteWhere
	ms     int64 // table time of it
	where  record.Ref
	schema int32
	next   uint64 // file id behind those of the newest part
	walked bool   // no file is left for another part
	parts  int32  // opened by now
	open   int32  // of them
	// By the parts that are over.
	rows, files, scanned int64
}

func (f *find) encode(e *enc) {
	e.i(f.offset)
	e.i(f.ms)
	encRef(e, &f.where)
	e.i(int64(f.schema))
	e.u(f.next)
	e.bool(f.walked)
	for _, v := range [...]int64{int64(f.parts), int64(f.open), f.rows, f.files, f.scanned} {
		e.i(v)
	}
}

func decFind(d *dec) find {
	return find{
		offset: d.i(), ms: d.i(), where: decRef(d), schema: int32(d.i()), next: d.u(), walked: d.bool(),
		parts: int32(d.i()), open: int32(d.i()), rows: d.i(), files: d.i(), scanned: d.i(),
	}
}

func (f *find) numbers() []int64 { return []int64{f.offset, f.rows, f.files, f.scanned} }

// findAt is the place of the open find job of a DeleteWhere, -1: there is none.
func (t *table) findAt(offset int64) int {
	return slices.IndexFunc(t.finds, func(f find) bool { return f.offset == offset })
}

// deleteWhere: C8.
func (s *Store) deleteWhere(r *Record, t *table, d *record.DeleteWhere) (outcomeOf, error) {
	switch {
	case d.Where.Length < 0 || d.Where.Length > maxWhere || !strings.HasSuffix(d.Where.Path, "/bodies/"+d.Where.Hash.String()) || objstore.CheckKey(d.Where.Path) != nil:
		return reject(record.BadItem), nil
	case d.SchemaID != t.def.CurrentSchema:
		return reject(record.SchemaUnknown), nil
	case len(t.finds) >= maxFinds:
		return reject(record.Unsettled, t.finds[0].offset), nil
	}
	t.finds = append(t.finds, find{offset: r.Offset, ms: s.now, where: d.Where, schema: d.SchemaID})
	t.dirty = true
	files, rows := t.totals.Files, t.totals.Rows
	s.effect('w', t.id, files, rows)
	if err := s.goOn(r, t, len(t.finds)-1); err != nil {
		return outcomeOf{}, err
	}
	return accepted(false, files, rows), nil
}

// goOn opens the next parts of a find job, and ends it where none is left.
func (s *Store) goOn(r *Record, t *table, at int) error {
	f := &t.finds[at]
	for f.open < maxOpenParts && !f.walked {
		j := &openJob{attempt: 1, since: r.Offset, strategy: findStrategy, find: true}
		if err := s.gather(t, f, j); err != nil {
			return err
		}
		if len(j.inputs) == 0 {
			f.walked = true
			break
		}
		id := jobID{f.offset, f.parts}
		f.parts++
		f.open++
		t.openJobs++
		s.effect('J', t.id, f.offset, int64(id.item), int64(len(j.inputs)))
		for i := range j.inputs {
			s.effect('I', int64(j.inputs[i].file), j.inputs[i].hi)
		}
		s.notice(t, id, j)
		if err := s.setJob(t.id, id, j); err != nil {
			return err
		}
	}
	if f.open > 0 {
		return nil
	}
	return s.endFind(r, t, at, record.ReasonNone)
}

// endFind ends a find job.
func (s *Store) endFind(r *Record, t *table, at int, why record.Reason) error {
	f := t.finds[at]
	t.finds = slices.Delete(t.finds, at, at+1)
	t.dirty = true
	s.effect('y', t.id, f.offset, int64(why))
	return s.derive(r, t, record.TypeDeleteWhere, why, f.numbers()...)
}

// gather gives a part the next files that the table had when the find job was
// opened.
func (s *Store) gather(t *table, f *find, j *openJob) error {
	rows, size := int64(0), int64(0)
	for more := true; more; {
		bases, values, left, err := s.chunksFrom(t.id, f.next>>7)
		if err != nil {
			return err
		}
		more = left
		for i, base := range bases {
			c := s.cached(chunkKey{t.id, base})
			if c == nil {
				c = &chunk{key: chunkKey{t.id, base}}
				if err := c.decode(values[i]); err != nil {
					return err
				}
			}
			for k := range c.entries {
				e := &c.entries[k]
				if e.id < f.next {
					continue
				}
				had, err := s.had(t, c, e, f.offset)
				if err != nil {
					return err
				}
				if !had {
					continue
				}
				j.inputs = append(j.inputs, jobInput{file: e.id, hi: e.rows, rows: e.rows})
				rows, size = rows+e.rows, size+e.bytes
				f.next = e.id + 1
				if len(j.inputs) == maxPartFiles || rows >= maxPartRows || size >= maxPartBytes {
					return nil
				}
			}
			if f.next = (base + 1) << 7; f.next == 0 {
				f.next = ^uint64(0) // behind the last id that there can be
			}
		}
	}
	return nil
}

// had says whether a file has rows that may have lived at an offset. Where they
// are now, the way through the jobs tells that were completed since (P2).
func (s *Store) had(t *table, c *chunk, e *fileEntry, offset int64) (bool, error) {
	if e.record >= offset || e.gone && c.out.has(uint(e.id&127)) {
		return false, nil
	}
	if !e.gone {
		return true, nil
	}
	jobs, err := s.jobsOf(t, c, e.id)
	if err != nil {
		return false, err
	}
	for _, id := range jobs { // without any, all its rows are dead
		done, err := s.doneJob(t.id, id)
		if err != nil || done != nil && done.at > offset {
			return err == nil, err
		}
	}
	return false, nil
}

// rowsFound: C8, with P1, P2, P4 and P5. All of it is accepted or nothing.
func (s *Store) rowsFound(r *Record, t *table, p *record.RowsFound) (outcomeOf, error) {
	id, j, reason, err := s.attempt(t, p.Job)
	if err != nil {
		return outcomeOf{}, err
	}
	at := t.findAt(id.plan)
	switch {
	case reason != record.ReasonNone:
		return reject(reason), nil
	case !j.find:
		return reject(record.NoJob), nil
	case at < 0:
		return outcomeOf{}, fmt.Errorf("%w: part %d of find job %d", ErrCorrupt, id.item, id.plan)
	}
	if s.now > t.finds[at].ms+FindMs {
		return reject(record.GivenUp), s.giveUp(r, t, id.plan)
	}
	total := int64(0)
	for i := range j.inputs {
		total += j.inputs[i].rows
	}
	if p.Rows < 0 || p.Rows > total {
		return reject(record.BadPart, -1), nil
	}
	s.targets = s.targets[:0]
	next := 0
	for i := range p.Deletes {
		b := &p.Deletes[i]
		for next < len(j.inputs) && j.inputs[next].file < b.File {
			next++
		}
		info, err := dv.Inspect(b.Bitmap)
		if err != nil || info.Count == 0 || next == len(j.inputs) || j.inputs[next].file != b.File || int64(info.Max) >= j.inputs[next].hi {
			return reject(record.BadPart, int64(i)), nil
		}
		next++
		if reason, err := s.aim(t, b, int64(info.Max), nil, false); err != nil {
			return outcomeOf{}, err
		} else if reason != record.ReasonNone {
			return reject(reason, int64(i)), nil
		}
	}
	died, err := s.alive(t)
	if err != nil {
		return outcomeOf{}, err
	}
	s.effect('W', t.id, id.plan, int64(id.item), p.Rows, died)
	changed := s.strike(t)
	if changed {
		t.lastChange, t.changed = r.Offset, true
		if err := s.diedByOthers(t, r.Offset); err != nil {
			return outcomeOf{}, err
		}
	}
	if err := s.endJob(t, id, j); err != nil {
		return outcomeOf{}, err
	}
	f := &t.finds[at]
	f.open--
	f.rows, f.files, f.scanned = f.rows+died, f.files+int64(len(j.inputs)), f.scanned+p.Rows
	out := accepted(changed, f.numbers()...)
	return out, s.goOn(r, t, at)
}

// alive takes the rows that are dead already out of what aim found, and counts
// those that are left (P5).
func (s *Store) alive(t *table) (died int64, _ error) {
	for i := range s.targets {
		to := &s.targets[i]
		if to.set == nil {
			continue
		}
		f := to.chunk.find(to.file)
		if f == nil {
			return 0, fmt.Errorf("%w: file %d, where rows were found", ErrCorrupt, to.file)
		}
		dead, err := s.deadNow(t, to.chunk, f)
		if err != nil {
			return 0, err
		}
		if dead != nil {
			if to.set, err = dv.Minus(nil, to.set, dead); err != nil {
				return 0, fmt.Errorf("%w: dead positions of file %d", ErrCorrupt, f.id)
			}
		}
		n, err := dv.Count(to.set)
		if err != nil {
			return 0, fmt.Errorf("%w: rows found in file %d", ErrCorrupt, f.id)
		}
		if died += int64(n); n == 0 {
			to.set = nil
		}
	}
	return died, nil
}

// giveUp ends a find job one of whose parts nobody could read, or that a user
// ended (F6). What its other parts deleted stays deleted.
func (s *Store) giveUp(r *Record, t *table, plan int64) error {
	at := t.findAt(plan)
	if at < 0 {
		return fmt.Errorf("%w: find job %d", ErrCorrupt, plan)
	}
	type part struct {
		id  jobID
		job *openJob
	}
	var parts []part
	if err := s.eachOpenJob(t.id, func(id jobID, j *openJob) error {
		if id.plan == plan {
			parts = append(parts, part{id, j})
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range parts {
		if err := s.endJob(t, parts[i].id, parts[i].job); err != nil {
			return err
		}
	}
	return s.endFind(r, t, at, record.GivenUp)
}
