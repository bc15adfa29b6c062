//go:build simfault

package sim

// Planted faults of what appends, members and maps owe each other.
func init() {
	mutants = append(mutants, []mutant{
		{"an append is accepted in part", "A4", 20, []edit{{"statestore/apply_shard.go",
			"\ts.strike(t)\n\tif sh.framing == 0", "\ts.targets = s.targets[:max(0, len(s.targets)-1)]\n\ts.strike(t)\n\tif sh.framing == 0"}}},
		{"the death of a dead version goes on to the key's current one", "P5", 60, []edit{{"processors/ingest/fold.go",
			"if x := &found[0]; x.Present && x.File == id && x.Pos == uint32(row) {", "if x := &found[0]; x.Present && x.File != 0 {"}}},
		{"rank counts a dead row too many", "F4", 20, []edit{{"schemas/forward/reader.go",
			"below = n\n", "below = max(n, 1) - 1\n"}}},
		{"jobs share the names of their outputs", "F5", 60, []edit{{"processors/compactor/execute.go",
			"name := e.fresh()", "name := [16]byte{byte(d.Job.Item), byte(len(keys)), 1}"}}},
		{"the outbox goes out again during a replay", "L11", 20, []edit{{"processors/state/machine.go",
			"if x.Offset <= m.sent || m.unsent != nil {", "if m.unsent != nil {"}}},
		{"a request with a value stands where it was answered", "H7", 200, []edit{{"processors/ingest/import.go",
			"v.end(r.Offset, p.timeMs)\n\treturn true\n}", "v.end(r.Offset, p.timeMs)\n\tif r.HasOrder {\n\t\tv.place = math.MaxInt64\n\t}\n\treturn true\n}"}}},
		{"a cut is published twice", "C4", 20, []edit{{"processors/publisher/publisher.go",
			"version := f.Head.MetadataVersion + 1\n", "version := f.Head.MetadataVersion + 1\n\tfor {\n\t\tif _, err := p.cfg.Catalog.Load(ctx, key, version); err != nil {\n\t\t\tbreak\n\t\t}\n\t\tversion++\n\t}\n"}}},
	}...)
}
