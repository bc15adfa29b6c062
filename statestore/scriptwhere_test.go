package statestore_test

import (
	"crypto/sha256"

	"github.com/varve-io/varve/schemas/record"
)

// whereFrom makes a DeleteWhere, bent by bad=….
func whereFrom(a *args) *record.DeleteWhere {
	hash := record.Hash(sha256.Sum256([]byte("id > 1")))
	d := &record.DeleteWhere{SchemaID: int32(a.num("schema", 0))}
	d.Where = record.Ref{Path: "_varve/x/bodies/" + hash.String(), Length: 7, Hash: hash}
	switch a.str("bad", "") {
	case "path":
		d.Where.Path = "_varve/x/maps/" + hash.String()
	case "hash":
		d.Where.Hash[0] ^= 1
	case "length":
		d.Where.Length = 1 << 30
	}
	return d
}

// foundFrom reads "found t job=4 part=0", lines "kill 1/1: 0 3".
func (s *script) foundFrom(a *args) *record.RowsFound {
	return &record.RowsFound{
		Job:  record.JobID{Plan: a.num("job", 0), Item: int32(a.num("part", 0)), Attempt: int32(a.num("attempt", 1))},
		Rows: a.num("rows", 0), Deletes: s.appendFrom(a).Deletes,
	}
}
