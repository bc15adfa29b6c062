package statestore

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// Limits of a definition.
const (
	maxProperties = 1000
	minCommitMs   = 10
	maxMs         = 1 << 53 // a time span above is a mistake, and sums of two must not overflow
)

// checkDefinition decides whether a definition can be a table. It is part of
// apply: its answers for a given definition never change within an apply version.
func checkDefinition(d *schemas.Definition) bool {
	if d.FormatVersion != 3 || d.Mode != schemas.ModeDV || len(d.Schemas) == 0 || len(d.Specs) == 0 {
		return false
	}
	if d.Location == "" || strings.HasSuffix(d.Location, "/") || strings.ContainsAny(d.Location, "?#") {
		return false
	}
	if d.SchemaByID(d.CurrentSchema) == nil || d.Spec(d.DefaultSpec) == nil || d.LastPartitionID < 999 {
		return false
	}
	for i := range d.Schemas {
		sc := &d.Schemas[i]
		if sc.Validate() != nil || sc.HighestID() > d.LastColumnID || sc.ID != int32(i) ||
			!slices.Equal(sc.Identifier, d.Key) || !checkDefaults(sc) {
			return false
		}
	}
	cur := d.Schema()
	for i := range cur.Fields {
		// T1: key columns are required, every other column is optional.
		if f := &cur.Fields[i]; f.Required != slices.Contains(d.Key, f.ID) {
			return false
		}
	}
	for i := range d.Specs {
		sp := &d.Specs[i]
		if sp.ID != int32(i) || !checkSpec(d, cur, sp) {
			return false
		}
	}
	switch d.Order.Kind {
	case schemas.OrderNone:
	case schemas.OrderByColumn:
		i := cur.ByID(d.Order.Column)
		if i < 0 || !cur.Fields[i].Type.OrderUsable() {
			return false
		}
	case schemas.OrderByPath:
		if d.Order.Path == "" {
			return false
		}
	default:
		return false
	}
	if d.Order.Kind != schemas.OrderNone && !d.Keyed() {
		return false
	}
	return len(d.Properties) <= maxProperties && sortedProperties(d.Properties) && sortedProperties(d.FormatOptions) &&
		d.CommitIntervalMs >= minCommitMs && d.CommitIntervalMs <= maxMs && d.TombstoneTTLMs > 0 && d.TombstoneTTLMs <= maxMs &&
		d.RetentionMs > 0 && d.RetentionMs <= maxMs && d.RetentionCount > 0
}

// checkDefaults: what is no value of its column would end up in the metadata
// and in every reader.
func checkDefaults(sc *schemas.Schema) bool {
	for i := range sc.Fields {
		f := &sc.Fields[i]
		for _, raw := range []json.RawMessage{f.InitialDefault, f.WriteDefault} {
			if raw == nil {
				continue
			}
			if _, err := schemas.ParseJSONValue(f.Type, raw); err != nil {
				return false
			}
		}
	}
	return true
}

// checkSpec: partition tuples stand inline in records, so none may show a key
// (E1): over a key column only what hides it (bucket) or coarsens it (time).
func checkSpec(d *schemas.Definition, cur *schemas.Schema, sp *schemas.Spec) bool {
	if _, err := sp.ResultTypes(cur); err != nil {
		return false
	}
	for i, f := range sp.Fields {
		if cur.ByID(f.SourceID) < 0 || f.FieldID < 1000 || f.FieldID > d.LastPartitionID || f.Name == "" {
			return false
		}
		if f.Shows() && slices.Contains(d.Key, f.SourceID) {
			return false
		}
		for _, g := range sp.Fields[:i] {
			if g.FieldID == f.FieldID || g.Name == f.Name {
				return false
			}
		}
	}
	return true
}

func sortedProperties(p []schemas.Property) bool {
	for i := range p {
		if p[i].Key == "" || i > 0 && p[i-1].Key >= p[i].Key {
			return false
		}
	}
	return true
}

func encodeDefinition(d *schemas.Definition) []byte {
	b, err := record.EncodeDefinition(nil, d)
	if err != nil {
		panic(fmt.Sprintf("definition of %s does not encode: %v", d.Name, err))
	}
	return b
}

func decodeDefinition(b []byte) (*schemas.Definition, error) {
	d := new(schemas.Definition)
	if err := record.DecodeDefinition(b, d); err != nil {
		return nil, fmt.Errorf("%w: table definition", ErrCorrupt)
	}
	return d, nil
}

func (s *Store) createTable(r *Record, _ int64, env *record.Envelope, c *record.CreateTable, old *table, msg *record.OutcomeMessage) (outcomeOf, error) {
	if old != nil {
		return reject(record.TableExists, old.id), nil
	}
	d := c.Definition
	if d.Name != env.Table || env.TableID != -1 || !checkDefinition(&d) {
		return reject(record.BadDefinition), nil
	}
	if c.SuffixID {
		d.Location += "-" + strconv.FormatInt(r.Offset, 10)
	}
	t := &table{
		id: r.Offset, name: d.Name, def: &d, defChange: r.Offset, defFrozen: -1, nextWriter: 1, nextTuple: 1, nextMan: 1, nextOutput: 1,
		lastChange: r.Offset, shards: map[shardID]*shard{}, tuples: map[string]uint32{},
		dirty: true, defDirty: true,
	}
	t.head.Build, t.head.Through = -1, -1
	s.tables[t.id] = t
	s.names[d.Name] = t.id
	var e enc
	e.i(t.id)
	if err := s.set(append([]byte{keyName}, d.Name...), e.b); err != nil {
		return outcomeOf{}, err
	}
	msg.TableID, msg.Definition = t.id, &d
	s.effect('c', t.id)
	s.effectBytes([]byte(d.Location))
	return accepted(true, t.id), nil
}

func (s *Store) dropTable(r *Record, t *table) (outcomeOf, error) {
	t.dropped = true
	t.pending = nil
	// Nobody answers or publishes any more. Requests that were open are never
	// settled: the files, and what they hold, stay where they are.
	t.openDeletes, t.resharding, t.finds, t.adds = nil, nil, nil, nil
	t.openJobs = 0
	s.nearJobs.forgetTable(t.id)
	for _, space := range [...]byte{keyJob, keyBase} {
		prefix := key8(space, uint64(t.id))
		if err := s.batch().DeleteRange(prefix, prefixEnd(prefix), nil); err != nil {
			return outcomeOf{}, err
		}
	}
	s.clearFrozen(t.id)
	for _, id := range t.shardOrder {
		closeEpoch(t.shards[id], r.Offset, false)
	}
	t.dirty = true
	s.names[t.name] = -1
	if err := s.del(append([]byte{keyName}, t.name...)); err != nil {
		return outcomeOf{}, err
	}
	s.effect('y', t.id)
	return accepted(true, t.id), nil
}

func (s *Store) alterTable(r *Record, t *table, a *record.AlterTable, msg *record.OutcomeMessage) (outcomeOf, error) {
	d := *t.def
	if !sortedProperties(a.Set) || !slices.IsSorted(a.Remove) {
		return reject(record.BadAlter, 1), nil
	}
	changed := false
	props := slices.Clone(d.Properties)
	for _, p := range a.Set {
		i, found := slices.BinarySearchFunc(props, p.Key, func(x schemas.Property, k string) int { return strings.Compare(x.Key, k) })
		switch {
		case !found:
			props = slices.Insert(props, i, p)
			changed = true
		case props[i].Value != p.Value:
			props[i].Value = p.Value
			changed = true
		}
	}
	for _, k := range a.Remove {
		i, found := slices.BinarySearchFunc(props, k, func(x schemas.Property, k string) int { return strings.Compare(x.Key, k) })
		if found {
			props = slices.Delete(props, i, i+1)
			changed = true
		}
	}
	cur := d.Schema()
	next := schemas.Schema{ID: int32(len(d.Schemas)), Fields: slices.Clone(cur.Fields), Identifier: cur.Identifier}
	newSchema := false
	newID := func() int32 { d.LastColumnID++; return d.LastColumnID }
	for _, c := range a.Add {
		if i := next.ByName(c.Name); i >= 0 {
			if !next.Fields[i].Type.Holds(c.Type) {
				return reject(record.BadAlter, 2), nil
			}
			continue
		}
		f := schemas.Field{ID: newID(), Name: c.Name, Doc: c.Doc}
		f.Type = c.Type.WithoutIDs().AssignIDs(newID)
		if c.Default != "" {
			f.InitialDefault, f.WriteDefault = []byte(c.Default), []byte(c.Default)
		}
		next.Fields = append(next.Fields, f)
		newSchema = true
	}
	for _, w := range a.Widen {
		i := next.ByName(w.Name)
		if i < 0 {
			return reject(record.BadAlter, 3), nil
		}
		from := next.Fields[i].Type
		if from.Holds(w.Type) {
			continue
		}
		wide, ok := from.Merge(w.Type)
		wide = wide.AssignIDs(newID)
		if !ok || !from.CanWiden(wide) || d.Order.Kind == schemas.OrderByColumn && d.Order.Column == next.Fields[i].ID && !wide.OrderUsable() {
			return reject(record.BadAlter, 3), nil
		}
		next.Fields[i].Type = wide
		newSchema = true
	}
	if newSchema {
		d.Schemas = append(slices.Clone(d.Schemas), next)
		d.CurrentSchema = next.ID
		changed = true
	}
	d.Properties = props
	if p := a.Policy; p != nil {
		for _, x := range [...]struct {
			to   *int64
			want int64
		}{{&d.CommitIntervalMs, p.CommitIntervalMs}, {&d.RetentionMs, p.RetentionMs}, {&d.RetentionCount, p.RetentionCount}} {
			if x.want != 0 && x.want != *x.to {
				*x.to = x.want
				changed = true
			}
		}
	}
	if !checkDefinition(&d) {
		return reject(record.BadAlter, 4), nil
	}
	if changed {
		t.def = &d
		t.defChange, t.lastChange = r.Offset, r.Offset
		t.dirty, t.defDirty = true, true
	}
	msg.Definition = t.def
	s.effect('e', t.id, int64(t.def.CurrentSchema), int64(len(t.def.Properties)))
	return accepted(changed, int64(t.def.CurrentSchema)), nil
}

// tupleOrdinal is the table's number of a (spec, partition tuple).
func (s *Store) tupleOrdinal(t *table, spec int32, value []byte) (uint32, error) {
	s.scratch = binary.BigEndian.AppendUint32(s.scratch[:0], uint32(spec))
	s.scratch = append(s.scratch, value...)
	if n, ok := t.tuples[string(s.scratch)]; ok {
		return n, nil
	}
	k := append(key8(keyTupleOf, uint64(t.id)), s.scratch...)
	b, err := s.get(k)
	if err != nil {
		return 0, err
	}
	var n uint32
	if b != nil {
		d := dec{b: b}
		n = uint32(d.u())
		if err := d.done("partition tuple"); err != nil {
			return 0, err
		}
	} else {
		n = t.nextTuple
		t.nextTuple++
		t.dirty = true
		var e enc
		e.u(uint64(n))
		if err := s.set(k, e.b); err != nil {
			return 0, err
		}
		if err := s.set(key16(keyTuple, uint64(t.id), uint64(n)), k[9:]); err != nil {
			return 0, err
		}
	}
	t.tuples[string(s.scratch)] = n
	return n, nil
}
