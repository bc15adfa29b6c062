package statestore

import "fmt"

// Reference is a reference to a data file (F18).
type Reference struct {
	File   uint64
	Lo, Hi int64
	Node   int64
	Rows   int64 // of the whole file
	Bytes  int64 // of the file, as large a share as of its rows
	Taken  bool  // an open job has it
	Held   bool  // shards have still to take the file (H1)
}

// References calls fn with the references to a table's files, by file from a given
// one on, whose rows no job has carried over. It holds the state for a few thousand
// files at a time, so what it tells is not of one offset: apply decides (L2). fn
// returns false to end early.
func (s *Store) References(tableID int64, from uint64, fn func(*Reference) bool) error {
	var page []Reference
	for {
		var next uint64
		var err error
		if page, next, err = s.references(tableID, from, page[:0]); err != nil {
			return err
		}
		for i := range page {
			if !fn(&page[i]) {
				return nil
			}
		}
		if next == 0 {
			return nil
		}
		from = next
	}
}

func (s *Store) references(tableID int64, from uint64, dst []Reference) (_ []Reference, next uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return nil, 0, s.broken
	}
	t, err := s.tableByID(tableID)
	if err != nil || t == nil {
		return nil, 0, err
	}
	bases, values, more, err := s.chunksFrom(tableID, from>>7)
	if err != nil || len(bases) == 0 {
		return nil, 0, err
	}
	for i, b := range bases {
		c := s.cached(chunkKey{tableID, b})
		if c == nil {
			c = &chunk{key: chunkKey{tableID, b}}
			if err := c.decode(values[i]); err != nil {
				return nil, 0, err
			}
		}
		for k := range c.entries {
			f := &c.entries[k]
			if f.gone || f.id < from {
				continue
			}
			parts, err := s.parts(t, c, f.id)
			if err != nil {
				return nil, 0, err
			}
			held := t.holdsFile(f.id)
			if parts == nil {
				dst = append(dst, Reference{File: f.id, Hi: f.rows, Node: root, Rows: f.rows, Bytes: f.bytes, Taken: c.job(f.id) != nil, Held: held})
			}
			for i := range parts {
				if p := &parts[i]; p.state != partMoved {
					dst = append(dst, Reference{
						File: f.id, Lo: p.lo, Hi: p.hi, Node: p.node, Rows: f.rows, Bytes: share(f.bytes, p.hi-p.lo, f.rows), Taken: p.state == partTaken, Held: held,
					})
				}
			}
		}
	}
	if more {
		next = (bases[len(bases)-1] + 1) << 7
	}
	return dst, next, nil
}

// FilePaths finds where data files of a table lie.
func (s *Store) FilePaths(tableID int64, files []uint64) ([]string, error) {
	if len(files) == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.tableByID(tableID)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fmt.Errorf("table %d is not there", tableID)
	}
	out := make([]string, len(files))
	for i, id := range files {
		x, _, err := s.dispatchInput(t, &jobInput{file: id})
		if err != nil {
			return nil, err
		}
		out[i] = x.Path
	}
	return out, nil
}
