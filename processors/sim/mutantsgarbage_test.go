//go:build simfault

package sim

// Planted faults of garbage.
func init() {
	mutants = append(mutants, []mutant{
		{"a collection forgets the pending cut", "G7", 60, []edit{{"statestore/garbage.go",
			"return Kept{By: KeptByCut}, nil", "return Kept{}, nil"}}},
		{"a planned file is collected", "G7", 0, []edit{
			{"statestore/garbage.go", "for _, id := range jobs {", "for _, id := range jobs[:0] {"},
			{"statestore/apply_collect.go", "for _, job := range jobs {", "for _, job := range jobs[:0] {"}}},
		{"a file of a retained snapshot is collected", "G7", 20, []edit{{"statestore/garbage.go",
			"if i < len(t.snapshots) && t.snapshots[i].Build < x.left {", "if false {"}}},
		{"a collection does not wait for the indexes", "G7", 100, []edit{{"statestore/garbage.go",
			"sh := t.shards[id]; sh.indexHorizon < left {", "sh := t.shards[id]; sh.indexHorizon < left && false {"}}},
		{"a file of an open epoch is a stray", "G8", 60, []edit{{"statestore/apply_collect.go",
			"sh.epoch == epoch && sh.open {", "sh.epoch == epoch && sh.open && false {"}}},
		{"an output of an open job is a stray", "G8", 60, []edit{{"statestore/apply_collect.go",
			"open = open || j.since <= x.Left", "open = false"}}},
		{"a manifest of a pending cut is a stray", "G8", 100, []edit{{"statestore/apply_collect.go",
			"if t.pending != nil && t.pending.Cut <= x.Left {", "if false {"}}},
		{"a Puffin file goes while it has a vector", "G6", 60, []edit{{"statestore/garbage.go",
			"if uses == 0 {", "if uses <= 1 {"}}},
		{"the way through a job ends with its first input", "F15", 100, []edit{{"statestore/apply_collect.go",
			"if done.inputs--; done.inputs <= 0 {", "if done.inputs--; true {"}}},
		{"an owner keeps an index that is older than its checkpoint", "G7", 300, []edit{{"processors/ingest/shard.go",
			"if err == nil && s.index.Offset() < checkpointOffset(s.cfg.Checkpoint) {", "if false {"}}},
	}...)
}
