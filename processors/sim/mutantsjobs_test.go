//go:build simfault

package sim

// Planted faults of jobs.
func init() {
	mutants = append(mutants, []struct {
		name  string
		rule  string
		seeds int
		edits []edit
	}{
		{"deaths since the plan stay behind", "F4", 20, []edit{{"statestore/apply_jobs.go",
			"if err := s.bringDeaths(t, c, i, ch, f, done.first); err != nil {", "if err := error(nil); err != nil {"}}},
		{"an input that died as a whole lives again", "F12", 200, []edit{{"statestore/apply_jobs.go",
			"if f.gone { // F4 holds here too: all of it died", "if f.gone {\n\t\treturn nil\n\t}\n\tif f.gone {"}}},
		{"a block against a rewritten file is dropped", "P2", 20, []edit{{"statestore/apply_jobs.go",
			"images, err := m.Rebase(nil, input, at)", "images, err := m.Rebase(nil, input, at[:0])"}}},
		{"a block against a rewritten file is applied to its first output", "P2", 60, []edit{{"statestore/apply_jobs.go",
			"dst, err = s.forwardBlock(t, done.first+uint64(output), set, dst)", "dst, err = s.forwardBlock(t, done.first, set, dst)"}}},
		{"a file is in two jobs", "F1", 60, []edit{{"statestore/apply_jobs.go",
			"case c.job(in.File) != nil || slices", "case slices"}}},
		{"a plan does not wait for requests", "F1", 200, []edit{{"statestore/apply_jobs.go",
			"if len(t.openDeletes) > 0 {", "if false {"}}},
		{"a rewritten file is never taken out", "V7", 20, []edit{{"statestore/apply_jobs.go",
			"ch.killed.set(uint(f.id & 127)) // the next cut takes it out", ""}}},
		{"every entry moves, whatever it names", "F14", 20, []edit{{"processors/ingest/moves.go",
			"f.Present && f.File == r.from && f.Pos == r.pos", "f.Present"}}},
		{"entries below an overlay do not move", "F14", 0, []edit{{"processors/ingest/moves.go",
			"s.index.LookupConfirmed(x.keys, x.found[:0])", "s.index.Lookup(x.keys, x.found[:0])"}}},
		{"a block is folded through later jobs", "F14", 300, []edit{{"processors/ingest/moves.go",
			"f.Moved == nil || f.Moved.At >= at", "f.Moved == nil"}}},
		{"a block against a rewritten file is not folded", "F14", 300, []edit{{"processors/ingest/moves.go",
			"if f.Moved == nil || f.Moved.At >= at {", "if true {"}}},
		{"a completion with several jobs moves the first one's rows alone", "F14", 0, []edit{{"processors/ingest/moves.go",
			"s.index.Apply(x.entries, offset-1)", "s.index.Apply(x.entries, offset)"}}},
		{"an output's row has no row id", "C6", 20, []edit{{"processors/compactor/execute.go",
			"FirstRowID: d.FirstRowID, DataSequence", "FirstRowID: -1, DataSequence"}}},
		{"a released job is not dispatched again", "F13", 100, []edit{{"statestore/apply_jobs.go",
			"s.notice(t, id, j)\n\t\t\ts.effect('R'", "s.effect('R'"}}},
		{"an answer makes a tombstone that is younger than its maker's", "K9", 600, []edit{{"processors/ingest/fold.go",
			"case f.Present && f.File == 0 && f.Offset >= a.req.Offset:", "case false:"}}},
	}...)
}
