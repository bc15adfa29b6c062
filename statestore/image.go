package statestore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varve-io/varve/schemas/record"
)

// Image is what a copy of a state's folder holds.
type Image struct {
	Head   Head
	Tables []*TableInfo // that are not dropped, by name
	// Keys, Bytes and Content are of every key and value but the outbox, which
	// differs between states of one log. Content is the SHA-256 of u32 BE key
	// length ‖ key ‖ u32 BE value length ‖ value, in key order.
	Keys, Bytes int64
	Content     record.Hash
}

// Checkpoint makes a copy of the state in dir, which must not be there: the
// state of one offset, at or above the head of before the call. Files of the
// database are linked where the disk can. Apply may go on meanwhile. Inspect
// tells which offset it is.
func (s *Store) Checkpoint(dir string) error {
	if err := s.Flush(); err != nil {
		return err
	}
	if err := s.db.Checkpoint(dir); err != nil {
		return fmt.Errorf("copy the state to %s: %w", dir, err)
	}
	return nil
}

// Inspect opens the copy of a state in dir without changing it. With content it
// reads all of it and fills Keys, Bytes and Content.
func Inspect(dir string, content bool, opt Options) (_ *Image, err error) {
	opt.readOnly = true
	s, err := Open(dir, opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	im := &Image{Head: s.Head()}
	if err := s.Tables(func(t *TableInfo) error {
		im.Tables = append(im.Tables, t)
		return nil
	}); err != nil {
		return nil, err
	}
	if !content {
		return im, nil
	}
	return im, s.content(im)
}

func (s *Store) content(im *Image) error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return readError(err)
	}
	h := sha256.New()
	var frame []byte
	for ok := it.First(); ok; ok = it.Next() {
		k := it.Key()
		if k[0] == keyOutbox {
			continue
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return errors.Join(readError(err), it.Close())
		}
		frame = append(binary.BigEndian.AppendUint32(frame[:0], uint32(len(k))), k...)
		frame = binary.BigEndian.AppendUint32(frame, uint32(len(v)))
		h.Write(frame)
		h.Write(v)
		im.Keys++
		im.Bytes += int64(len(k) + len(v))
	}
	h.Sum(im.Content[:0])
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return readError(err)
	}
	return nil
}

// IsDamage says whether an error of Open, Apply or a read means that the folder
// does not hold what was written to it: it is of no use any more. A full disk, a
// folder that another process holds or a log that does not fit are not damage.
func IsDamage(err error) bool {
	if err == nil || errors.Is(err, ErrIdentity) || errors.Is(err, ErrFork) || errors.Is(err, ErrHole) || errors.Is(err, ErrUnknownVersion) {
		return false
	}
	return errors.Is(err, ErrCorrupt) || pebble.IsCorruptionError(err)
}

// Applies says whether this binary can apply by a version (L8).
func Applies(version uint32) bool { return active[version] != nil }
