package statestore

// DueTable is a table that a Cut would be accepted for.
type DueTable struct {
	ID               int64
	Name             string
	CommitIntervalMs int64
}

// ToCut lists the tables that changed and have no pending cut, by id, among
// those that were used since Open. It reads no disk: call Tables once after
// Open to have seen all.
func (s *Store) ToCut() []DueTable {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []DueTable
	for _, id := range s.sortedTables() {
		t := s.tables[id]
		if !t.dropped && t.pending == nil && (t.changed || t.lacks()) && (t.head.Build < 0 || !t.filesHeld()) {
			out = append(out, DueTable{t.id, t.name, t.def.CommitIntervalMs})
		}
	}
	return out
}
