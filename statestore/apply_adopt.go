package statestore

import (
	"errors"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
)

// adoptFiles: H14. As addFiles, of files that other programs wrote and that stay
// where they lie.
func (s *Store) adoptFiles(r *Record, t *table, env *record.Envelope, p *record.AdoptFiles) (outcomeOf, error) {
	respec, from, err := s.respecced(t.id)
	if err != nil {
		return outcomeOf{}, err
	}
	v := verdicts{n: len(p.Items)}
	next, err := s.nextForeign(t.id, foreignAdopted)
	if err != nil {
		return outcomeOf{}, err
	}
	first := FileID(AdoptedWriter, next)
	n := int64(0)
	for i := range p.Items {
		f := &p.Items[i]
		if f.SpecID >= from && env.OffsetSeen < respec { // its sender means another spec (T8)
			v.reject(i, record.TooOld)
			continue
		}
		reason, err := s.checkAdopted(t, p, f, next+uint64(n))
		if err != nil {
			return outcomeOf{}, err
		}
		if reason != record.ReasonNone {
			v.reject(i, reason)
			continue
		}
		if n == 0 {
			s.effect('H', t.id, int64(first))
		}
		if err := s.adopt(r, t, p, f, first+uint64(n)); err != nil {
			return outcomeOf{}, err
		}
		n++
	}
	if n == 0 {
		return v.outcome(false), nil
	}
	var e enc
	e.u(next + uint64(n))
	if err := s.set(foreignKey(t.id, foreignAdopted), e.b); err != nil {
		return outcomeOf{}, err
	}
	return t.brought(r, &v, first, n), nil
}

// checkAdopted: whatever the state can tell of a file without reading it.
func (s *Store) checkAdopted(t *table, p *record.AdoptFiles, f *record.AdoptedFile, counter uint64) (record.Reason, error) {
	switch {
	case p.Metrics == nil || f.Path == "" || len(f.Path) > maxForeignPath || f.Rows < 1 || f.Rows > MaxFileRows || f.Bytes < 1 || f.Bytes > maxFileBytes,
		!t.hasTuple(&record.DataFile{SpecID: f.SpecID, Partition: f.Partition}), counter >= 1<<writerShift-1:
		return record.BadFile, nil
	case t.def.SchemaByID(f.SchemaID) == nil:
		return record.SchemaUnknown, nil
	}
	if len(f.Dead) > 0 {
		info, err := dv.Inspect(f.Dead)
		if err != nil || info.Count == 0 || int64(info.Max) >= f.Rows || int64(info.Count) == f.Rows {
			return record.BadFile, nil
		}
	}
	// A path that the state knows, or one of a form that is ours, is never new (H2).
	known, err := s.get(nameKey(t.id, record.PathName(f.Path)))
	if err == nil && (known != nil || t.ownPath(f.Path)) {
		return record.FileNotNew, nil
	}
	return record.ReasonNone, err
}

func (s *Store) adopt(r *Record, t *table, p *record.AdoptFiles, f *record.AdoptedFile, id uint64) error {
	tuple, err := s.tupleOrdinal(t, f.SpecID, f.Partition)
	if err != nil {
		return err
	}
	name := record.PathName(f.Path)
	if err := s.enterAs(r, t, name, p.Metrics, fileEntry{
		id: id, rows: f.Rows, bytes: f.Bytes, tuple: tuple, schema: f.SchemaID, member: len(t.def.Spec(f.SpecID).Fields) > 0,
	}); err != nil {
		return err
	}
	var e enc
	e.u(id)
	if err := errors.Join(s.set(nameKey(t.id, name), e.b), s.set(foreignKey(t.id, id), []byte(f.Path))); err != nil {
		return err
	}
	if len(f.Dead) == 0 {
		return nil
	}
	c, err := s.chunk(t.id, id)
	if err != nil {
		return err
	}
	s.kill(c, &record.DeleteBlock{File: id, Bitmap: f.Dead})
	s.effect('d', int64(id))
	s.effectBytes(f.Dead)
	return nil
}
