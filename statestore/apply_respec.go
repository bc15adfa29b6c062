package statestore

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// renumberSpecs: T8. The catalog gave ids to another writer's specs that specs of
// ours have which wait for their cut. Ours go behind those, or become those that
// say the same; files that were written under them, of which no commit knows yet,
// go along. Who writes files reads the definition first: epochs close, and files
// that a sender of before brings are refused.
func (s *Store) renumberSpecs(r *Record, now int64, t *table, c *record.RenumberSpecs, msg *record.OutcomeMessage) (outcomeOf, error) {
	h := &t.head
	if h.Build < 0 || h.MetadataVersion != 0 || c.Snapshot != h.SnapshotID {
		return reject(record.NoChange, 1, h.SnapshotID), nil
	}
	if len(c.Specs) == 0 || c.Specs[0].ID < 1 || int(c.Specs[0].ID) >= len(t.def.Specs) || t.defChange <= t.defFrozen {
		return reject(record.NoChange, 3), nil
	}
	from := c.Specs[0].ID
	if slices.Equal(t.def.Specs[from].Fields, c.Specs[0].Fields) {
		return reject(record.NoChange, 3), nil
	}
	d, to, part := renumbered(t.def, c)
	if part != 0 {
		return reject(record.BadAlter, part), nil
	}
	built := false
	if t.pending != nil {
		var err error
		if built, err = s.frozenWith(t, from); err != nil {
			return outcomeOf{}, err
		}
	}
	if built && t.filesHeld() {
		// A build here would hold some of what the shards make of held files, and
		// not the rest: the sender comes again.
		return reject(record.FilesHeld, t.adds[0].offset), nil
	}
	if err := s.moveTuples(t, from, to); err != nil {
		return outcomeOf{}, err
	}
	for _, id := range t.shardOrder {
		closeEpoch(t.shards[id], r.Offset, false)
	}
	var e enc
	e.i(r.Offset)
	e.i(int64(from))
	if err := s.set(foreignKey(t.id, foreignSpecs), e.b); err != nil {
		return outcomeOf{}, err
	}
	t.def, t.defChange = d, r.Offset
	t.dirty, t.defDirty = true, true
	msg.Definition = d
	s.effect('q', t.id, int64(d.DefaultSpec), int64(d.LastPartitionID))
	for i, id := range to {
		s.effect('q', t.id, int64(from)+int64(i), int64(id))
	}
	build := int64(-1)
	if built {
		// What was built has manifests of the old ids. No commit of it lands any
		// more: the catalog would have had to take its specs under these ids.
		build = r.Offset
		if err := s.refreeze(r, now, t); err != nil {
			return outcomeOf{}, err
		}
	}
	return accepted(false, int64(d.DefaultSpec), build), nil
}

// renumbered is a definition with the catalog's specs from the first on, and ours
// from there on behind them; to are the ids that ours have now. A field that some
// spec has with the same column and transform under the same name keeps that one's
// id, every other gets a new one. part is which part cannot be, 0: all can.
func renumbered(old *schemas.Definition, c *record.RenumberSpecs) (_ *schemas.Definition, to []int32, part int64) {
	d := *old
	from := c.Specs[0].ID
	d.Specs, d.LastPartitionID = slices.Clone(old.Specs[:from]), 999
	for i := range d.Specs {
		d.LastPartitionID = lastField(&d.Specs[i], d.LastPartitionID)
	}
	for i := range c.Specs {
		if d.CheckNextSpec(&c.Specs[i]) != nil {
			return nil, nil, 10
		}
		d.Specs = append(d.Specs, c.Specs[i])
		d.LastPartitionID = lastField(&c.Specs[i], d.LastPartitionID)
	}
	d.LastPartitionID = max(d.LastPartitionID, c.LastPartitionID)
	for i := int(from); i < len(old.Specs); i++ {
		ours := old.Specs[i].Fields
		at := slices.IndexFunc(d.Specs, func(x schemas.Spec) bool {
			return slices.EqualFunc(x.Fields, ours, func(f, g schemas.PartitionField) bool { return f.SameTerm(&g) })
		})
		if at < 0 {
			at = len(d.Specs)
			next := schemas.Spec{ID: int32(at), Fields: slices.Clone(ours)}
			for j := range next.Fields {
				placeField(&d, next.Fields, j)
			}
			d.Specs = append(d.Specs, next)
		}
		to = append(to, int32(at))
	}
	if d.DefaultSpec >= from {
		d.DefaultSpec = to[d.DefaultSpec-from]
	}
	if len(d.Specs) > maxSpecs || !checkDefinition(&d) {
		return nil, nil, 4
	}
	return &d, to, 0
}

func lastField(x *schemas.Spec, last int32) int32 {
	for i := range x.Fields {
		last = max(last, x.Fields[i].FieldID)
	}
	return last
}

// placeField gives a field of a new spec its name and id: a name that another
// writer's field or column has now gets a number behind it.
func placeField(d *schemas.Definition, fields []schemas.PartitionField, j int) {
	f := &fields[j]
	name := f.Name
	for n := 2; nameTaken(d, fields, j); n++ {
		f.Name = name + "_" + strconv.Itoa(n)
	}
	f.FieldID = 0
	for i := range d.Specs {
		for k := range d.Specs[i].Fields {
			if g := &d.Specs[i].Fields[k]; g.Name == f.Name {
				f.FieldID = g.FieldID
			}
		}
	}
	if f.FieldID == 0 {
		d.LastPartitionID++
		f.FieldID = d.LastPartitionID
	}
}

// nameTaken says whether a field's name stands for something else.
func nameTaken(d *schemas.Definition, fields []schemas.PartitionField, j int) bool {
	f, cur := &fields[j], d.Schema()
	if c := cur.ByName(f.Name); c >= 0 && (cur.Fields[c].ID != f.SourceID || f.Transform != schemas.Identity) {
		return true
	}
	for i := range fields {
		if i != j && fields[i].Name == f.Name {
			return true
		}
	}
	return slices.ContainsFunc(d.Specs, func(x schemas.Spec) bool {
		return slices.ContainsFunc(x.Fields, func(g schemas.PartitionField) bool { return g.Name == f.Name && !g.SameTerm(f) })
	})
}

// frozenWith says whether the pending cut's publisher builds with specs from an id on.
func (s *Store) frozenWith(t *table, from int32) (bool, error) {
	b, err := s.frozenHead(t.id)
	if err != nil {
		return false, err
	}
	f, err := frozenTail(b)
	return int(from) < f.specs, err
}

// moveTuples gives the partition values of files that no commit knows their new
// specs; files name a value by its number, which stays.
func (s *Store) moveTuples(t *table, from int32, to []int32) error {
	type tuple struct {
		spec    int32
		key     []byte // spec and value
		ordinal []byte
	}
	var all []tuple
	for i := range to {
		prefix := binary.BigEndian.AppendUint32(key8(keyTupleOf, uint64(t.id)), uint32(from)+uint32(i))
		it, err := s.iter(prefix)
		if err != nil {
			return err
		}
		for ok := it.First(); ok; ok = it.Next() {
			all = append(all, tuple{to[i], slices.Clone(it.Key()), slices.Clone(it.Value())})
		}
		if err := errors.Join(it.Error(), it.Close()); err != nil {
			return readError(err)
		}
	}
	for i := range all {
		if err := s.del(all[i].key); err != nil {
			return err
		}
	}
	for i := range all {
		x := &all[i]
		d := dec{b: x.ordinal}
		n := d.u()
		if err := d.done("partition tuple"); err != nil {
			return err
		}
		binary.BigEndian.PutUint32(x.key[9:], uint32(x.spec))
		if err := errors.Join(s.set(x.key, x.ordinal), s.set(key16(keyTuple, uint64(t.id), n), x.key[9:])); err != nil {
			return err
		}
	}
	clear(t.tuples)
	s.facts = nil // some of them changed
	return nil
}

// respecced is the newest RenumberSpecs of a table, and the first spec id that it
// gave anew; -1: there was none.
func (s *Store) respecced(table int64) (offset int64, from int32, err error) {
	b, err := s.get(foreignKey(table, foreignSpecs))
	if err != nil || b == nil {
		return -1, 0, err
	}
	d := dec{b: b}
	offset, from = d.i(), int32(d.i())
	return offset, from, d.done("specs given anew")
}
