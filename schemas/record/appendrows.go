package record

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// The fewest bytes of an element.
const (
	minDataFile    = 5
	minDeleteBlock = 2
)

// AppendRows is the record that arrives with every flush of every shard, so
// its bytes are written and read by hand: one pass, no interface, no map.

func (r *AppendRows) encode(dst []byte) ([]byte, error) {
	if !utf8.ValidString(r.Shard.Topic) || r.Changes != nil && !utf8.ValidString(r.Changes.Path) {
		return dst, fmt.Errorf("AppendRows: %w: topic or path is not UTF-8", ErrNotEncodable)
	}
	dst = append(dst, r.Shard.TopicID[:]...)
	dst = appendString(dst, r.Shard.Topic)
	dst = appendLong(dst, int64(r.Shard.Partition))
	dst = appendLong(dst, r.Epoch)
	dst = appendLong(dst, r.Counter)
	dst = appendLong(dst, r.SourceFrom)
	dst = appendLong(dst, r.SourceTo)
	dst = appendLong(dst, r.RequestFrom)
	dst = appendLong(dst, r.RequestTo)
	dst = appendLong(dst, int64(r.SchemaID))
	dst = appendLong(dst, int64(r.Framing))
	dst = appendLong(dst, r.Forgets)
	if len(r.Files) > 0 {
		dst = appendLong(dst, int64(len(r.Files)))
	}
	for i := range r.Files {
		f := &r.Files[i]
		dst = appendLong(dst, int64(f.ID))
		dst = appendLong(dst, f.Rows)
		dst = appendLong(dst, f.Bytes)
		dst = appendLong(dst, int64(f.SpecID))
		dst = appendBytes(dst, f.Partition)
	}
	dst = append(dst, 0)
	if len(r.Deletes) > 0 {
		dst = appendLong(dst, int64(len(r.Deletes)))
	}
	for i := range r.Deletes {
		dst = appendLong(dst, int64(r.Deletes[i].File))
		dst = appendBytes(dst, r.Deletes[i].Bitmap)
	}
	dst = append(dst, 0)
	if r.Changes == nil {
		dst = append(dst, 0)
	} else {
		dst = append(dst, 2)
		dst = appendString(dst, r.Changes.Path)
		dst = appendLong(dst, r.Changes.Length)
		dst = append(dst, r.Changes.Hash[:]...)
	}
	c := &r.Counts
	for _, n := range [...]int64{c.Events, c.Upserts, c.Deletes, c.LateIgnored, c.AbsentDeletes,
		c.Control, c.DeadUpserts, c.DeadDeletes, c.DeadOther} {
		dst = appendLong(dst, n)
	}
	return dst, nil
}

// Decode reads a body of type version 1 into r, whatever r held: the slices
// of r and the Ref that Changes points to are used again, and the byte fields
// alias body. After an error (ErrUndecodable) r holds nothing of use.
func (r *AppendRows) Decode(body []byte) error {
	if r.decode(body) {
		return nil
	}
	// The slow reader finds the words for what is wrong.
	b := binReader{b: body}
	appendRowsFields(&b, &AppendRows{})
	if err := b.finish("AppendRows"); err != nil {
		return err
	}
	return fmt.Errorf("AppendRows: %w", ErrUndecodable)
}

// bytesAt is the length-prefixed bytes at b[i:].
func bytesAt(b []byte, i int) ([]byte, int) {
	n, i := longAt(b, i)
	if i < 0 || n < 0 || n > int64(len(b)-i) {
		return nil, -1
	}
	j := i + int(n)
	return b[i:j:j], j
}

// textAt is the string at b[i:]; old itself when it is equal.
func textAt(b []byte, i int, old string) (string, int) {
	s, i := bytesAt(b, i)
	if string(s) == old {
		return old, i
	}
	if !utf8.Valid(s) {
		return "", -1
	}
	return string(s), i
}

func int32At(b []byte, i int) (int32, int) {
	v, i := longAt(b, i)
	if v < math.MinInt32 || v > math.MaxInt32 {
		return 0, -1
	}
	return int32(v), i
}

func (r *AppendRows) decode(b []byte) bool {
	i := copy(r.Shard.TopicID[:], b)
	if i < len(r.Shard.TopicID) {
		return false
	}
	var framing int64
	r.Shard.Topic, i = textAt(b, i, r.Shard.Topic)
	r.Shard.Partition, i = int32At(b, i)
	i = longsAt(b, i, &r.Epoch, &r.Counter, &r.SourceFrom, &r.SourceTo, &r.RequestFrom, &r.RequestTo)
	r.SchemaID, i = int32At(b, i)
	i = longsAt(b, i, &framing, &r.Forgets)
	r.Framing = uint64(framing)
	if i = r.decodeFiles(b, i); i < 0 {
		return false
	}
	if i = r.decodeDeletes(b, i); i < 0 {
		return false
	}
	branch, i := longAt(b, i)
	switch branch {
	case 0:
		r.Changes = nil
	case 1:
		if r.Changes == nil {
			r.Changes = new(Ref)
		}
		ref := r.Changes
		ref.Path, i = textAt(b, i, ref.Path)
		ref.Length, i = longAt(b, i)
		if i < 0 || copy(ref.Hash[:], b[i:]) < len(ref.Hash) {
			return false
		}
		i += len(ref.Hash)
	default:
		return false
	}
	c := &r.Counts
	i = longsAt(b, i, &c.Events, &c.Upserts, &c.Deletes, &c.LateIgnored, &c.AbsentDeletes,
		&c.Control, &c.DeadUpserts, &c.DeadDeletes, &c.DeadOther)
	return i == len(b)
}

func (r *AppendRows) decodeFiles(b []byte, i int) int {
	r.Files = r.Files[:0]
	for {
		n, end, next := blockAt(b, i, minDataFile)
		if next < 0 || n == 0 {
			return next
		}
		i = next
		r.Files = room(r.Files, n)
		for range n {
			r.Files = r.Files[:len(r.Files)+1]
			f := &r.Files[len(r.Files)-1]
			var id int64
			i = longsAt(b, i, &id, &f.Rows, &f.Bytes)
			f.ID = uint64(id)
			f.SpecID, i = int32At(b, i)
			if f.Partition, i = bytesAt(b, i); i < 0 {
				return -1
			}
		}
		if end >= 0 && end != i {
			return -1
		}
	}
}

func (r *AppendRows) decodeDeletes(b []byte, i int) int {
	r.Deletes = r.Deletes[:0]
	for {
		n, end, next := blockAt(b, i, minDeleteBlock)
		if next < 0 || n == 0 {
			return next
		}
		i = next
		r.Deletes = room(r.Deletes, n)
		for range n {
			r.Deletes = r.Deletes[:len(r.Deletes)+1]
			d := &r.Deletes[len(r.Deletes)-1]
			var id int64
			id, i = longAt(b, i)
			d.File = uint64(id)
			if d.Bitmap, i = bytesAt(b, i); i < 0 {
				return -1
			}
		}
		if end >= 0 && end != i {
			return -1
		}
	}
}

// room makes place for n more, exactly as many as the bytes can hold.
func room[T any](s []T, n int) []T {
	if len(s)+n <= cap(s) {
		return s
	}
	grown := make([]T, len(s), len(s)+n)
	copy(grown, s)
	return grown
}
