package statestore_test

import (
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas/record"
)

// foreignFrom is what others committed to main: what the command does not say is as
// the state has it. Lines:
//
//	snapshot 90 sequence=4
//	gone 1
//	manifest other-0
//	add other-1 rows=3 first=20 manifest=0 dead=0+2 vector=2
//	vector 1/1 dead=1 cardinality=2 manifest=0
//	struck 1/1 dead=1
//	deletes 2
//	moved 1/1 data=0 vector=0
//	removed 1/1
func (s *script) foreignFrom(t *testing.T, a *args) *record.ForeignSnapshot {
	x := &record.ForeignSnapshot{MetadataPath: "elsewhere", AsOf: int64(len(s.log)) - 1, Puffins: []record.PuffinInfo{{Path: "theirs.puffin"}}}
	next := int64(0)
	if i := s.info(t, a.table()); i != nil {
		h := &i.Head
		x.Base, x.Sequence, x.NextRowID, x.TimestampMs = h.SnapshotID, h.Sequence+1, h.NextRowID, h.TimestampMs+1
		next = h.NextRowID
	}
	place := func(v *record.PlacedVector, k, val string) bool {
		switch k {
		case "vector", "cardinality":
			v.Cardinality = number(t, val)
		case "at":
			v.Offset = number(t, val)
		case "listed":
			v.Manifest = int32(number(t, val))
		default:
			return false
		}
		return true
	}
	for _, l := range a.lines {
		f := strings.Fields(l)
		var args [][2]string
		for _, arg := range f[2:] {
			k, val, _ := strings.Cut(arg, "=")
			args = append(args, [2]string{k, val})
		}
		bad := func(k string) { t.Fatalf("foreign: %s: %s", l, k) }
		switch f[0] {
		case "snapshot":
			c := record.ForeignCommit{ID: number(t, f[1]), Sequence: x.Sequence, TimestampMs: x.TimestampMs, ManifestList: "list-" + f[1], Operation: "append"}
			for _, p := range args {
				if p[0] != "sequence" {
					bad(p[0])
				}
				c.Sequence = number(t, p[1])
				x.Sequence = max(x.Sequence, c.Sequence)
			}
			x.Snapshots = append(x.Snapshots, c)
		case "deletes":
			x.Deletes = number(t, f[1])
		case "struck":
			y := record.ForeignVector{File: fileID(t, f[1], 1), Vector: record.NoVector}
			for _, p := range args {
				if p[0] != "dead" {
					bad(p[0])
				}
				y.Dead = setFrom(t, p[1])
			}
			x.Vectors = append(x.Vectors, y)
		case "gone":
			x.Gone = append(x.Gone, number(t, f[1]))
		case "manifest":
			x.Manifests = append(x.Manifests, record.ManifestInfo{Path: f[1], Bytes: 10})
		case "add":
			y := record.ForeignFile{Path: f[1], Rows: 1, Bytes: 100, Sequence: x.Sequence, FirstRowID: next}
			for _, p := range args {
				switch p[0] {
				case "rows":
					y.Rows = number(t, p[1])
				case "bytes":
					y.Bytes = number(t, p[1])
				case "first":
					y.FirstRowID = number(t, p[1])
				case "sequence":
					y.Sequence = number(t, p[1])
				case "spec":
					y.SpecID = int32(number(t, p[1]))
				case "schema":
					y.SchemaID = int32(number(t, p[1]))
				case "manifest":
					y.Manifest = int32(number(t, p[1]))
				case "dead":
					y.Dead = setFrom(t, p[1])
				default:
					if y.Vector == nil {
						y.Vector = &record.PlacedVector{Length: 40, Sequence: x.Sequence}
					}
					if !place(y.Vector, p[0], p[1]) {
						bad(p[0])
					}
				}
			}
			next = y.FirstRowID + y.Rows
			x.NextRowID = max(x.NextRowID, next)
			x.Files = append(x.Files, y)
		case "vector":
			y := record.ForeignVector{File: fileID(t, f[1], 1), Vector: record.PlacedVector{Length: 40, Sequence: x.Sequence}}
			for _, p := range args {
				if p[0] == "dead" {
					y.Dead = setFrom(t, p[1])
				} else if !place(&y.Vector, p[0], p[1]) {
					bad(p[0])
				}
			}
			x.Vectors = append(x.Vectors, y)
		case "moved":
			y := record.MovedFile{File: fileID(t, f[1], 1), Data: -1, Vector: -1}
			for _, p := range args {
				switch p[0] {
				case "data":
					y.Data = int32(number(t, p[1]))
				case "vector":
					y.Vector = int32(number(t, p[1]))
				default:
					bad(p[0])
				}
			}
			x.Moved = append(x.Moved, y)
		case "removed":
			x.Removed = append(x.Removed, fileID(t, f[1], 1))
		default:
			bad(f[0])
		}
	}
	x.Base, x.Sequence, x.NextRowID = a.num("base", x.Base), a.num("sequence", x.Sequence), a.num("next-row", x.NextRowID)
	x.AsOf = a.num("as-of", x.AsOf)
	return x
}

// setFrom reads 0+2+5.
func setFrom(t *testing.T, s string) []byte {
	var p []uint32
	for _, n := range strings.Split(s, "+") {
		p = append(p, uint32(number(t, n)))
	}
	return positions(p...)
}
