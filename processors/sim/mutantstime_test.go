//go:build simfault

package sim

// Planted faults of rollbacks, tags and expiries.
func init() {
	mutants = append(mutants, []mutant{
		{"a rollback forgets tombstones", "G12", 60, []edit{{"processors/ingest/rewind.go",
			"remembers := s.def.Order.Kind", "remembers := false && s.def.Order.Kind"}}},
		{"a rollback remembers what it undid", "G12", 60, []edit{{"processors/ingest/rewind.go",
			"!= schemas.OrderNone && w.stood(m.Offset)", "!= schemas.OrderNone"}}},
		{"a rollback remembers what an earlier one undid", "G12", 400, []edit{{"processors/ingest/rewind.go",
			"&& w.stood(m.Offset)", "&& m.Offset <= w.build"}}},
		{"a rollback brings dead rows back", "G12", 60, []edit{{"processors/ingest/rewindrows.go",
			"if v < len(x.Vectors) && x.Vectors[v].File == f.File {", "if false {"}}},
		{"a rollback forgets what dead rows remember", "G12", 60, []edit{{"processors/ingest/rewindrows.go",
			"case e.HasOrder:", "case false:"}}},
		{"a rollback kills what lives by its dead rows", "G12", 60, []edit{{"processors/ingest/rewindrows.go",
			"case f.Present && f.HasOrder && (!f.Tombstone() || f.Order >= e.Order):", "case f.Present && f.HasOrder && f.Tombstone() && f.Order >= e.Order:"},
			{"processors/ingest/rewindrows.go", "case f.Present && !f.Tombstone(): // it", "case false: // it"}}},
		{"a rollback keeps maps", "G1", 60, []edit{{"statestore/apply_rollback.go",
			"	c.setJob(f.id, nil)\n	v :=", "	v :="}}},
		{"a rollback keeps the newer dead rows", "G1", 60, []edit{{"statestore/apply_rollback.go",
			"return errors.Join(s.del(key16(keyDead, uint64(t.id), f.id)), s.del(key16(keyVector, uint64(t.id), f.id)))\n	}\n	set, err", "return s.del(key16(keyVector, uint64(t.id), f.id))\n	}\n	set, err"}}},
		{"a rollback leaves epochs open", "G1", 60, []edit{{"statestore/apply_rollback.go",
			"closeEpoch(sh, r.Offset, false)", ""}}},
		{"a rollback keeps jobs open", "G1", 100, []edit{{"statestore/apply_rollback.go",
			"errors.Join(b.jobs(), b.files(), b.metadata())", "errors.Join(b.files(), b.metadata())"}}},
		{"a rollback loses an expiry that was asked for", "G11", 60, []edit{{"statestore/apply_cut.go",
			"case t.pending.Rollback != 0 && len(t.expiring) > 0:", "case false:"}}},
		{"the target of a rollback expires", "G11", 60, []edit{{"statestore/apply_refs.go",
			"|| t.pending != nil && t.pending.Rollback == id", ""}}},
		{"a tag does not hold a snapshot", "G11", 60, []edit{{"statestore/apply_refs.go",
			"return held || t.refs.names(id)", "return held"}}},
	}...)
}
