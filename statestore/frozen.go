package statestore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// frozenCut is what of a table's frozen cut the database lacks. A cut that is
// published before the next write-back never gets there: a table with a commit
// a second would else fill the database with what nobody reads again.
type frozenCut struct {
	cleared bool   // what the database has is of an older cut
	head    []byte // nil: the database's, or none when cleared
	files   []frozenValue
	held    int64
}

// frozenValue is a frozen file.
type frozenValue struct {
	id    uint64
	value []byte
}

// frozenValueHeld is about what a frozen file takes in memory beside its value.
const frozenValueHeld = 64

// frozenHead is the head of a table's frozen cut, nil when there is none.
func (s *Store) frozenHead(table int64) ([]byte, error) {
	if f := s.frozen[table]; f != nil && (f.cleared || f.head != nil) {
		return f.head, nil
	}
	return s.stored(keyFrozenHead(table))
}

// setFrozenHead gives the frozen cut its head. Its files stay.
func (s *Store) setFrozenHead(table int64, head []byte) {
	f := s.frozen[table]
	if f == nil {
		f = &frozenCut{}
		s.frozen[table] = f
	}
	n := int64(len(head) - len(f.head))
	f.held += n
	s.held += n
	f.head = head
}

// clearFrozen ends a table's frozen cut, or begins a new one.
func (s *Store) clearFrozen(table int64) {
	if f := s.frozen[table]; f != nil {
		s.held -= f.held
	}
	s.frozen[table] = &frozenCut{cleared: true}
}

// addFrozen adds a file to the frozen cut that clearFrozen began. Ids ascend.
func (s *Store) addFrozen(table int64, id uint64, value []byte) {
	f := s.frozen[table]
	f.files = append(f.files, frozenValue{id, value})
	n := int64(len(value) + frozenValueHeld)
	f.held += n
	s.held += n
}

// keepFrozen adds files of an older frozen cut to the one that clearFrozen began.
func (s *Store) keepFrozen(table int64, files []frozenValue) {
	for i := range files {
		s.addFrozen(table, files[i].id, files[i].value)
	}
	slices.SortFunc(s.frozen[table].files, func(a, b frozenValue) int { return cmp.Compare(a.id, b.id) })
}

// eachFrozen calls fn with the files of a table's frozen cut, ascending.
func (s *Store) eachFrozen(table int64, fn func(id uint64, value []byte) error) error {
	if f := s.frozen[table]; f != nil && f.cleared {
		for i := range f.files {
			if err := fn(f.files[i].id, f.files[i].value); err != nil {
				return err
			}
		}
		return nil
	}
	prefix := append(key8(keyFrozen, uint64(table)), 1)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return readError(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if err := fn(binary.BigEndian.Uint64(it.Key()[len(prefix):]), bytes.Clone(it.Value())); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return readError(err)
	}
	return nil
}

// fillFrozen writes a table's frozen cut.
func (s *Store) fillFrozen(b *pebble.Batch, table int64) error {
	f := s.frozen[table]
	if f == nil {
		return nil
	}
	delete(s.frozen, table)
	if f.cleared {
		prefix := key8(keyFrozen, uint64(table))
		has, err := s.has(prefix)
		if err != nil {
			return err
		}
		if has {
			if err := b.DeleteRange(prefix, prefixEnd(prefix), nil); err != nil {
				return err
			}
		}
	}
	if f.head != nil {
		if err := b.Set(keyFrozenHead(table), f.head, nil); err != nil {
			return err
		}
	}
	for i := range f.files {
		if err := b.Set(keyFrozenFile(table, f.files[i].id), f.files[i].value, nil); err != nil {
			return err
		}
	}
	return nil
}

// has says whether the database has a key with this prefix.
func (s *Store) has(prefix []byte) (bool, error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return false, err
	}
	found := it.First()
	return found, errors.Join(it.Error(), it.Close())
}
