//go:build simfault

package sim

// Planted faults of what other writers commit.
func init() {
	mutants = append(mutants, []mutant{
		{"files of others are live at once", "H10", 40, []edit{{"statestore/apply_foreign.go",
			"if len(x.Files) > 0 && t.def.Keyed() {", "if false {"}}},
		{"a vector of others is held against where its file was", "H10", 200, []edit{{"statestore/apply_foreign.go",
			"case !e.gone && !c.moved.has(uint(e.id&127)):\n\t\tf.same", "case true:\n\t\tf.same"}}},
		{"rows of one commit are judged one after the other", "H7", 0, []edit{{"processors/ingest/import.go",
			"steps = p.amongThemselves(steps)", ""}}},
		{"a row without a value gives way to nothing", "H7", 0, []edit{{"processors/ingest/import.go",
			"wins = again && v.losesTo(x)", "wins = false && again"}}},
		{"requests from beneath a row are not looked at", "H7", 0, []edit{{"processors/ingest/import.go",
			"if x.theirs && p.deletes(&x) {", "if false && p.deletes(&x) {"}}},
		{"copies of dead rows live", "H13", 40, []edit{{"processors/publisher/foreign.go",
			"dead.Or(more)", "_ = more"}}},
		{"what left keeps its place", "H13", 60, []edit{{"processors/ingest/foreign.go",
			"Offset: min(f.Record, place)", "Offset: m.Offset"}}},
		{"an owner that folds passes over files that left", "H13", 60, []edit{{"processors/ingest/foreign.go",
			"for _, id := range removed {", "for _, id := range removed[:0] {"}}},
		{"what other writers take out leaves epochs open", "H13", 60, []edit{{"statestore/apply_foreign.go",
			"closeEpoch(t.shards[id], f.r.Offset, false)", "_ = id"}}},
		{"delete files end nothing of what both list", "H15", 60, []edit{{"processors/publisher/foreign.go",
			"for path, dead := range r.struck {", "for path, dead := range map[string]*roaring.Bitmap{} {"}}},
		{"delete files end nothing of what comes with them", "H15", 60, []edit{{"processors/publisher/foreign.go",
			"dead.Or(ended)\n\t\t}\n\t\tif owes", "_ = ended\n\t\t}\n\t\tif owes"}}},
		{"what delete files had ended is owed", "H15", 600, []edit{{"processors/publisher/owed.go",
			"dead.AndNot(x)", "_ = x"}}},
		{"delete files stay", "H15", 60, []edit{{"processors/publisher/manifests.go",
			"loseFrom(leave[i].manifest, entryIdentity(leave[i].Entry))", "_ = i"}}},
		{"an equality delete ends rows of its own commit", "H15", 60, []edit{{"processors/deletefiles/equality.go",
			"if g.last[string(key)] > d.Sequence {", "if g.last[string(key)] >= d.Sequence {"},
			{"processors/deletefiles/equality.go", "if d.Sequence >= g.newest ||", "if d.Sequence > g.newest ||"},
			{"processors/deletefiles/deletefiles.go", "return d.Sequence < *e.Sequence &&", "return d.Sequence <= *e.Sequence &&"}}},
		{"a row that remembers another value comes back", "H10", 600, []edit{{"processors/ingest/import.go",
			"if !f.Present || f.File == x.File && f.Pos == x.Pos {", "if true {"}}},
	}...)
}
