package statestore

// DueTable is a table that a Cut would be accepted for.
type DueTable struct {
	ID               int64
	Name             string
	CommitIntervalMs int64
	// Files says that there is more to publish than a definition, or branches and tags.
	Files bool
	// OutsideMs is the catalog's time of the newest commit of a table in an
	// outside catalog, 0: it is not in one.
	OutsideMs int64
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
			d := DueTable{ID: t.id, Name: t.name, CommitIntervalMs: t.def.CommitIntervalMs, Files: t.changed}
			if t.head.Build >= 0 && t.head.MetadataVersion == 0 {
				d.OutsideMs = t.head.TimestampMs
			}
			out = append(out, d)
		}
	}
	return out
}
