package statestore

import (
	"slices"

	"github.com/varve-io/varve/schemas/record"
)

// openAdd is an AddFiles, AdoptFiles or ForeignSnapshot of a keyed table whose files some
// shard has not taken (H1).
type openAdd struct {
	offset int64
	first  uint64 // file id of the first
	n      int64
}

// addFiles: H1, H7. Each item by itself. The files of a keyed table are held:
// they are in no cut and no job until every shard has taken their keys.
func (s *Store) addFiles(r *Record, t *table, env *record.Envelope, p *record.AddFiles) (outcomeOf, error) {
	if env.OffsetSeen < t.strays {
		// What its sender wrote may have been seen as a stray, and be about to be
		// deleted.
		return reject(record.TooOld, t.strays), nil
	}
	respec, from, err := s.respecced(t.id)
	if err != nil {
		return outcomeOf{}, err
	}
	v := verdicts{n: len(p.Items)}
	first := FileID(0, t.nextOutput)
	n := int64(0)
	for i := range p.Items {
		f := &p.Items[i]
		if f.SpecID >= from && env.OffsetSeen < respec { // its sender means another spec (T8)
			v.reject(i, record.TooOld)
			continue
		}
		reason, err := s.checkAdded(t, p, f)
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
		if err := s.addGiven(r, t, p, f); err != nil {
			return outcomeOf{}, err
		}
		n++
	}
	if n == 0 {
		return v.outcome(false), nil
	}
	return t.brought(r, &v, first, n), nil
}

// brought is the outcome of n files from an id on that another sender brought: they
// live at once in a table without a key, and are held in one that has one (H1).
func (t *table) brought(r *Record, v *verdicts, first uint64, n int64) outcomeOf {
	t.dirty = true
	if !t.def.Keyed() {
		t.lastChange, t.changed = r.Offset, true
		return v.outcome(true, int64(first), 0)
	}
	t.adds = append(t.adds, openAdd{r.Offset, first, n})
	return v.outcome(false, int64(first), 1)
}

// checkAdded: whatever the state can tell of a file without reading it.
func (s *Store) checkAdded(t *table, p *record.AddFiles, f *record.AddedFile) (record.Reason, error) {
	switch {
	case p.Metrics == nil || f.Name == [16]byte{} || f.Rows < 1 || f.Rows > MaxFileRows || f.Bytes < 1 || f.Bytes > maxFileBytes,
		!t.hasTuple(&record.DataFile{SpecID: f.SpecID, Partition: f.Partition}), t.nextOutput > 1<<writerShift-maxJobOutputs:
		return record.BadFile, nil
	case t.def.SchemaByID(f.SchemaID) == nil:
		return record.SchemaUnknown, nil
	}
	known, err := s.get(nameKey(t.id, f.Name))
	if err == nil && known != nil {
		return record.FileNotNew, nil // also one that was collected since
	}
	return record.ReasonNone, err
}

func nameKey(table int64, name [16]byte) []byte {
	return append(key8(keyGiven, uint64(table)), name[:]...)
}

func (s *Store) addGiven(r *Record, t *table, p *record.AddFiles, f *record.AddedFile) error {
	tuple, err := s.tupleOrdinal(t, f.SpecID, f.Partition)
	if err != nil {
		return err
	}
	id := t.nextFile(0)
	if err := s.enterAs(r, t, f.Name, p.Metrics, fileEntry{
		id: id, rows: f.Rows, bytes: f.Bytes, tuple: tuple, schema: f.SchemaID, member: len(t.def.Spec(f.SpecID).Fields) > 0,
	}); err != nil {
		return err
	}
	var e enc
	e.u(id)
	return s.set(nameKey(t.id, f.Name), e.b)
}

// filesHeld says whether files wait for shards to take them.
func (t *table) filesHeld() bool { return len(t.adds) > 0 }

// releaseHeld makes files live that every shard has taken (H1): their request ranges
// have passed the record that brought them. A table without any shard waits for one.
func (s *Store) releaseHeld(r *Record, t *table) error {
	if len(t.adds) == 0 {
		return nil
	}
	least, any := int64(0), false
	for _, id := range t.shardOrder {
		if sh := t.shards[id]; !sh.retired {
			if !any || sh.requestEnd < least {
				least = sh.requestEnd
			}
			any = true
		}
	}
	if !any {
		return nil
	}
	n := 0
	for n < len(t.adds) && t.adds[n].offset < least {
		a := &t.adds[n]
		n++
		t.dirty = true
		of := record.TypeForeignSnapshot // readers see those files already
		switch {
		case isAdopted(a.first):
			of = record.TypeAdoptFiles
		case !IsForeign(a.first):
			of = record.TypeAddFiles
		}
		if of != record.TypeForeignSnapshot {
			t.lastChange, t.changed = r.Offset, true
		}
		s.effect('h', t.id, a.offset)
		if err := s.derive(r, t, of, record.ReasonNone, a.offset); err != nil {
			return err
		}
	}
	t.adds = slices.Delete(t.adds, 0, n)
	return nil
}

// firstRequest is the request end of a shard that is claimed for the first time,
// or again after it was retired: the claim's own offset, or that of the oldest
// files that are held, for it takes them too (A2).
func (t *table) firstRequest(claim int64) int64 {
	if len(t.adds) > 0 {
		return t.adds[0].offset
	}
	return claim
}

// takes is the oldest AddFiles in a request range whose files are held, -1: none.
// What takes files says nothing else but what it answers: all of it is judged in
// the order of the log (H6).
func (t *table) takes(from, to int64) int64 {
	for i := range t.adds {
		if o := t.adds[i].offset; o >= from && o < to {
			return o
		}
	}
	return -1
}
