//go:build simfault

package sim

// Planted faults of jobs.
func init() {
	mutants = append(mutants, []mutant{
		{"deaths since the plan stay behind", "F4", 20, []edit{{"statestore/apply_jobs.go",
			"if err := s.bringDeaths(t, c, i, ch, f, done.first); err != nil {", "if err := error(nil); err != nil {"}}},
		{"an input that died as a whole lives again", "F12", 200, []edit{{"statestore/apply_jobs.go",
			"if f.gone { // F4 holds here too: all of it died", "if f.gone {\n\t\treturn nil\n\t}\n\tif f.gone {"}}},
		{"a block against a rewritten file is dropped", "P2", 20, []edit{{"statestore/apply_jobs.go",
			"images, err := m.Rebase(nil, input, at)", "images, err := m.Rebase(nil, input, at[:0])"}}},
		{"a block against a rewritten file is applied to its first output", "P2", 60, []edit{{"statestore/apply_jobs.go",
			"dst, err = s.forwardBlock(t, done.first+uint64(output), set, dst)", "dst, err = s.forwardBlock(t, done.first, set, dst)"}}},
		{"a file is in two jobs", "F1", 60, []edit{{"statestore/apply_jobs.go",
			"case ref.state == partTaken || slices", "case slices"}}},
		{"a plan does not wait for requests", "F1", 200, []edit{{"statestore/apply_jobs.go",
			"if len(t.openDeletes) > 0 {", "if false {"}}},
		{"a rewritten file is never taken out", "V7", 20, []edit{{"statestore/apply_jobs.go",
			"ch.killed.set(uint(f.id & 127)) // the next cut takes it out", ""}}},
		{"every entry moves, whatever it names", "F14", 20, []edit{{"processors/ingest/moves.go",
			"f.Present && f.File == r.from && f.Pos == r.pos", "f.Present"}}},
		{"entries below an overlay do not move", "F14", 0, []edit{{"processors/ingest/moves.go",
			"s.index.LookupConfirmed(x.keys, x.found[:0])", "s.index.Lookup(x.keys, x.found[:0])"}}},
		{"a block is folded through later jobs", "F14", 300, []edit{{"processors/ingest/moves.go",
			"if m.At >= at {", "if false {"}}},
		{"a block against a rewritten file is not folded", "F14", 300, []edit{{"processors/ingest/moves.go",
			"if m.At >= at {", "if true {"}}},
		{"a completion with several jobs moves the first one's rows alone", "F14", 0, []edit{{"processors/ingest/moves.go",
			"s.index.Apply(x.entries, offset-1)", "s.index.Apply(x.entries, offset)"}}},
		{"an output's row has no row id", "C6", 20, []edit{{"processors/compactor/execute.go",
			"FirstRowID: d.FirstRowID, DataSequence", "FirstRowID: -1, DataSequence"}}},
		{"a released job is not dispatched again", "F13", 100, []edit{{"statestore/apply_jobs.go",
			"s.notice(t, id, j)\n\t\t\ts.effect('R'", "s.effect('R'"}}},
		{"what moved is united with what died before it is carried over", "F7", 60, []edit{
			{"statestore/apply_jobs.go", "dead, err := s.deadIn(t, ch, f, in.lo, in.hi)\n\t\tif err != nil || dead == nil {",
				"dead, err := s.deadIn(t, ch, f, in.lo, in.hi)\n\t\tif _, e := s.rewritten(t, ch, in); e != nil {\n\t\t\treturn e\n\t\t}\n\t\tif err == nil {\n\t\t\tdead, err = s.vectorNow(t, ch, f.id, dead)\n\t\t}\n\t\tif err != nil || dead == nil {"}}},
		{"what moved is not in the vector", "F7", 60, []edit{{"statestore/tree.go",
			"if !c.moved.has(uint(file & 127)) {\n\t\treturn dead, nil", "if true {\n\t\treturn dead, nil"}}},
		{"a block on what moved stays where it was", "F7", 60, []edit{{"statestore/tree.go",
			"if p.state == partMoved {\n\t\t\tif dst, err =", "if false {\n\t\t\tif dst, err ="}}},
		{"a file leaves with the first of its ranges", "F22", 60, []edit{{"statestore/tree.go",
			"all = all && parts[i].state == partMoved", "all = all || parts[i].state == partMoved"}}},
		{"a range of a file that moved takes the entries of all of it", "F14", 0, []edit{{"processors/ingest/moves.go",
			"went.AddRange(uint64(m.Lo), uint64(m.Hi))", "went.AddRange(0, 1<<32)"}}},
		{"a leaf is split while a job has a reference of it", "F8", 60, []edit{{"statestore/apply_tree.go",
			"case n.jobs > 0 && n.n == 0:", "case false:"}, {"statestore/apply_tree.go", "case parts[k].state == partTaken:", "case false:"}}},
		{"an answer makes a tombstone that is younger than its maker's", "K9", 600, []edit{{"processors/ingest/fold.go",
			"case f.Present && f.File == 0 && f.Offset >= a.req.Offset:", "case false:"}}},
	}...)
}
