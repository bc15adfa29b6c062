package source

// Guess says which format a record's value looks like, "" where nothing tells.
// registry, if not nil, says what a framed value is.
func Guess(registry SchemaSource, rec *Record) string {
	ref, body, ok := framed(rec, valueSchemaHeader, rec.Value, -1)
	if ok && registry != nil {
		s, err := registry.WriterSchema(ref)
		switch {
		case err != nil:
			return ""
		case s.Type == TypeProtobuf:
			return RowsProtobuf
		case s.Type == TypeAvro:
			t, err := parseWriter(s)
			if err != nil {
				return ""
			}
			t = t.plain()
			if t.kind == avroRecord && t.field("op") >= 0 && (t.field("after") >= 0 || t.field("before") >= 0) {
				return DebeziumAvro
			}
			return RowsAvro
		case s.Type == TypeJSON:
			if f := guessJSON(body); f != RowsJSON {
				return f
			}
			return RowsJSONSchema
		}
	}
	return guessJSON(stripFraming(rec.Value))
}

// guessJSON tells the JSON formats by the members of their envelopes.
func guessJSON(b []byte) string {
	value, _, ok := body(b)
	if !ok || len(value) == 0 || value[0] != '{' {
		return ""
	}
	has := map[string]byte{}
	members(value, func(name string, v []byte) { has[name] = v[0] })
	in := func(names ...string) bool {
		for _, n := range names {
			if has[n] == 0 {
				return false
			}
		}
		return true
	}
	switch {
	case in("op") && (in("after") || in("before")):
		return DebeziumJSON
	case in("op_type") && (in("after") || in("before")):
		return GoldenGate
	case in("type", "data") && has["data"] == '[' || in("mysqlType") || in("isDdl", "database", "table"):
		return Canal
	case in("metadata", "data") && has["data"] == '{' && has["metadata"] == '{':
		return DMS
	case in("database", "table", "type", "data") && has["data"] == '{':
		return Maxwell
	}
	return RowsJSON
}
