package statestore

import (
	"fmt"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
)

// FindInfo is an open find job (C8).
type FindInfo struct {
	Offset  int64 // of its DeleteWhere
	Rows    int64 // that died by now
	Files   int64 // that were read by now
	Scanned int64 // rows in them
	Open    int64 // parts at work
}

func (t *table) findInfos() (all []FindInfo) {
	for i := range t.finds {
		f := &t.finds[i]
		all = append(all, FindInfo{f.offset, f.rows, f.files, f.scanned, int64(f.open)})
	}
	return all
}

// FindDispatch is what a worker needs for an attempt at a part of a find job,
// less where the definition lies; nil when the attempt is not open any more. Its
// dead sets are whole, and of now: the result is the same without them (P5).
func (s *Store) FindDispatch(n *JobNotice) (d *record.FindDispatch, def *schemas.Definition, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, id, j, err := s.noticed(n, true)
	if err != nil || j == nil {
		return nil, nil, err
	}
	at := t.findAt(id.plan)
	if at < 0 {
		return nil, nil, fmt.Errorf("%w: part %d of find job %d", ErrCorrupt, id.item, id.plan)
	}
	f := &t.finds[at]
	d = &record.FindDispatch{
		Job: n.Job, Table: t.name, TableID: t.id, Partition: s.head.Partition, ApplyVersion: s.head.ApplyVersion,
		SchemaID: f.schema, Where: f.where,
	}
	return d, t.def, s.findInputs(t, d, j, f.offset)
}

// findInputs adds a part's files to what a worker needs.
func (s *Store) findInputs(t *table, d *record.FindDispatch, part *openJob, opened int64) error {
	for i := range part.inputs {
		x, _, err := s.dispatchInput(t, &part.inputs[i])
		if err == nil {
			x.Dead, err = s.deadHere(t, x.File, opened)
		}
		if err != nil {
			return err
		}
		d.Inputs = append(d.Inputs, x)
	}
	return nil
}

// deadHere is a file's dead positions, nil of one that is gone, and those that jobs
// rewrote before a find job was opened: their rows are read where they are.
func (s *Store) deadHere(t *table, file uint64, opened int64) ([]byte, error) {
	c, err := s.chunk(t.id, file)
	if err != nil {
		return nil, err
	}
	f := c.find(file)
	if f == nil || f.gone && !c.parted.has(uint(file&127)) {
		return nil, nil
	}
	var dead []byte
	if !f.gone {
		if dead, err = s.deadNow(t, c, f); err != nil {
			return nil, err
		}
	}
	before, err := s.movedBefore(t, c, file, opened)
	if err != nil || before == nil {
		return dead, err
	}
	if dead == nil {
		return before, nil
	}
	return dv.Union(nil, dead, before)
}

// Look tells of all files of a table as parts of a find job that was opened now
// would be dispatched. Nothing is opened. It holds the state meanwhile.
func (s *Store) Look(tableID int64) (d *record.FindDispatch, def *schemas.Definition, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.sound(); err != nil {
		return nil, nil, err
	}
	t, err := s.tableByID(tableID)
	if err != nil || t == nil || t.dropped {
		return nil, nil, err
	}
	d = &record.FindDispatch{Table: t.name, TableID: t.id, Partition: s.head.Partition, SchemaID: t.def.CurrentSchema}
	f := find{offset: s.head.Offset + 1}
	for {
		j := new(openJob)
		if err := s.gather(t, &f, j); err != nil {
			return nil, nil, err
		}
		if len(j.inputs) == 0 {
			return d, t.def, nil
		}
		if err := s.findInputs(t, d, j, f.offset); err != nil {
			return nil, nil, err
		}
	}
}
