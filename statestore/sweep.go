package statestore

import "github.com/varve-io/varve/schemas/record"

// Sweep finds, among objects that lie in a table's folder, those that no accepted
// record names (G8). What it knows of files is read once: what it lets pass is
// judged again by the record that asks for it.
type Sweep struct {
	s     *Store
	table int64
	c     collector
}

// Sweep begins to look at a table's folder; nil: there is no such table.
func (s *Store) Sweep(tableID int64) (*Sweep, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.tableByID(tableID)
	if err != nil || t == nil || t.dropped {
		return nil, err
	}
	return &Sweep{s: s, table: tableID, c: collector{s: s, t: t}}, nil
}

// Stray says of an object's path below the table's location whether it can be
// collected now, seen the end of the log when it was listed. later: it is
// unknown, but who wrote it may still enter it in the log.
func (w *Sweep) Stray(name string, seen int64) (now, later bool, err error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if seen > w.s.head.Offset {
		return false, true, nil
	}
	reason, open, err := w.c.stray(&record.CollectItem{Kind: record.GarbageStray, Left: seen, Name: name})
	return reason == record.ReasonNone, open, err
}
