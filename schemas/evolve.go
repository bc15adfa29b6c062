package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// CheckNext says why another writer's schema cannot be the next version of s
// for varve, nil if it can: columns may be added, optional ones, and widened,
// described and put in another order; every other column stays what it is. So it
// is with fields inside of columns. lastColumnID is the highest field id ever
// given before. Whether there is an error is part of apply and never changes
// within an apply version.
func (s *Schema) CheckNext(next *Schema, lastColumnID int32) error {
	if err := next.Validate(); err != nil {
		return err
	}
	for i := range s.Fields {
		f := &s.Fields[i]
		j := next.ByID(f.ID)
		if j < 0 {
			return fmt.Errorf("column %q was dropped", f.Name)
		}
		g := &next.Fields[j]
		switch {
		case g.Name != f.Name:
			return fmt.Errorf("column %q was renamed to %q", f.Name, g.Name)
		case g.Type != f.Type && !f.Type.CanWiden(g.Type):
			return fmt.Errorf("column %q was made a %s, which does not hold every %s", f.Name, g.Type, f.Type)
		case g.Required != f.Required:
			return fmt.Errorf("column %q was made optional or required", f.Name)
		case !sameDefault(g.Type, f.InitialDefault, g.InitialDefault):
			return fmt.Errorf("the initial default of column %q was changed", f.Name)
		}
	}
	for i := range next.Fields {
		f := &next.Fields[i]
		if s.ByID(f.ID) >= 0 {
			continue
		}
		if f.Required {
			return fmt.Errorf("the new column %q is required; varve's rows have no value for it", f.Name)
		}
		if f.ID <= lastColumnID {
			return fmt.Errorf("the new column %q has field id %d, which was given before", f.Name, f.ID)
		}
	}
	// Ids inside of columns: an old one is the field that it was.
	known := make(map[int32]bool)
	s.eachID(func(id int32) { known[id] = true })
	for i := range next.Fields {
		var old int32
		next.Fields[i].Type.eachID(func(id int32) {
			if !known[id] && id <= lastColumnID {
				old = id
			}
		})
		if old != 0 {
			return fmt.Errorf("a new field inside of column %q has field id %d, which was given before", next.Fields[i].Name, old)
		}
	}
	return nil
}

// sameDefault: writers spell a JSON value in their own ways.
func sameDefault(t Type, a, b json.RawMessage) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	x, err := ParseJSONValue(t, a)
	if err != nil {
		return false
	}
	y, err := ParseJSONValue(t, b)
	return err == nil && bytes.Equal(x, y)
}

// SameTerm: of one column, through one transform.
func (f *PartitionField) SameTerm(g *PartitionField) bool {
	return f.SourceID == g.SourceID && f.Transform == g.Transform && f.N == g.N
}

// Shows says whether partition values of this field would show those of its
// column as they are: over a key column none may (E3).
func (f *PartitionField) Shows() bool { return f.Transform == Identity || f.Transform == Truncate }

// CheckNextSpec says why another writer's partition spec cannot be the next of
// the table for varve, nil if it can: varve must know its transforms, and write
// its values without showing a key (E3); a field with an id that was given
// before is that field. Whether there is an error is part of apply and never
// changes within an apply version.
func (d *Definition) CheckNextSpec(next *Spec) error {
	if int(next.ID) != len(d.Specs) {
		return fmt.Errorf("it has the id %d, the next one is %d", next.ID, len(d.Specs))
	}
	if _, err := next.ResultTypes(d.Schema()); err != nil {
		return err
	}
	for i := range next.Fields {
		f := &next.Fields[i]
		if f.Name == "" || f.FieldID < 1000 {
			return errors.New("a field has no name or no id")
		}
		if d.Schema().ByID(f.SourceID) < 0 {
			return fmt.Errorf("the column of field %q is not there", f.Name)
		}
		if f.Shows() && slices.Contains(d.Key, f.SourceID) {
			return fmt.Errorf("field %q shows values of the key, which stand in no log", f.Name)
		}
		for j := range next.Fields[:i] {
			if g := &next.Fields[j]; g.FieldID == f.FieldID || g.Name == f.Name {
				return fmt.Errorf("field %q comes twice", f.Name)
			}
		}
		if f.FieldID <= d.LastPartitionID && !d.hasTerm(f) {
			return fmt.Errorf("field %q has the id %d, which was given to another", f.Name, f.FieldID)
		}
	}
	return nil
}

// hasTerm says whether some spec has a field of this id and term.
func (d *Definition) hasTerm(f *PartitionField) bool {
	for i := range d.Specs {
		for j := range d.Specs[i].Fields {
			if g := &d.Specs[i].Fields[j]; g.FieldID == f.FieldID && g.SameTerm(f) {
				return true
			}
		}
	}
	return false
}
