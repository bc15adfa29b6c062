//go:build simfault

package sim

// With these the parts of a find job are opened one after the other, also where
// there are few files.
var (
	onePart = edit{"statestore/apply_where.go", "maxOpenParts = 16", "maxOpenParts = 1"}
	oneFile = edit{"statestore/apply_where.go", "maxPartFiles = 64", "maxPartFiles = 1"}
)

// Planted faults of find jobs.
func init() {
	mutants = append(mutants, []mutant{
		{"a find job reads what came after it", "C10", 20, []edit{{"statestore/apply_where.go",
			"if e.record >= offset || e.gone &&", "if e.gone &&"}, onePart, oneFile}},
		{"a find job leaves out what a job took since", "C10", 20, []edit{{"statestore/apply_where.go",
			"if err != nil || done != nil && done.at > offset {", "if err != nil || done != nil && false {"}, onePart, oneFile}},
		{"a find job is over with its first part", "C10", 20, []edit{{"statestore/apply_where.go",
			"if len(j.inputs) == 0 {\n\t\t\tf.walked = true", "if len(j.inputs) == 0 || f.parts > 0 {\n\t\t\tf.walked = true"}, oneFile}},
		{"a find job passes a file over between two parts", "C10", 20, []edit{{"statestore/apply_where.go",
			"f.next = e.id + 1", "f.next = e.id + 2"}, onePart, oneFile}},
		{"what a find job found counts dead rows", "C10", 20, []edit{{"statestore/apply_where.go",
			"if dead != nil {\n\t\t\tif to.set", "if dead != nil && false {\n\t\t\tif to.set"}}},
		{"what an open find job may follow is collected", "C10", 200, []edit{{"statestore/garbage.go",
			"if len(t.finds) > 0 && x.left > t.finds[0].offset {", "if false {"}}},
		{"owners do not hear of what a find job found", "K4", 20, []edit{{"processors/ingest/shard.go",
			"case record.TypeDeletePositions, record.TypeRowsFound:", "case record.TypeDeletePositions:"}}},
		{"a part that is done again counts again", "C10", 20, []edit{{"statestore/apply_where.go",
			"if err := s.endJob(t, id, j); err != nil {\n\t\treturn outcomeOf{}, err\n\t}\n\tf := &t.finds[at]", "f := &t.finds[at]"}}},
		{"a row group without a match is not the only one passed over", "C10", 40, []edit{{"schemas/predicate/bounds.go",
			"return compare(lo, vs[0]) < 0\n\tcase lessEqual:", "return compare(hi, vs[0]) < 0\n\tcase lessEqual:"}}},
	}...)
}
