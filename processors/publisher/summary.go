package publisher

import (
	"encoding/hex"
	"strconv"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// Summary keys of our own (S10).
const (
	SummaryOffset     = "varve.offset"     // the build offset
	SummaryChainHash  = "varve.chain-hash" // before the build offset (L6)
	SummaryRanges     = "varve.ranges"     // topic:partition=end,…;topic:…
	SummaryDeployment = "varve.deployment" // the log's identity
)

// tally counts what a cut adds and removes.
type tally struct {
	addedFiles, addedRows, addedBytes         int64
	removedFiles, removedRows, removedBytes   int64
	addedVectors, addedDead, addedVectorBytes int64
	goneVectors, goneDead, goneVectorBytes    int64
	jobFiles, movedFiles                      int64 // of those, added by jobs and rewritten by them
	// Delete files of other writers that leave:
	positionFiles, positions, equalityFiles, equalities, deleteBytes int64
}

func count(f *statestore.FrozenCut, vectors []record.VectorInfo, leave []leaving) (t tally) {
	for i := range leave {
		d := &leave[i].File
		t.deleteBytes += d.Bytes
		if d.Content == iceberg.EqualityDeletes {
			t.equalityFiles++
			t.equalities += d.Records
		} else {
			t.positionFiles++
			t.positions += d.Records
		}
	}
	for i := range vectors {
		t.addedVectors++
		t.addedDead += vectors[i].Cardinality
		t.addedVectorBytes += vectors[i].Length
	}
	for i := range f.Files {
		x := &f.Files[i]
		if x.Added {
			t.addedFiles++
			t.addedRows += x.Rows
			t.addedBytes += x.Bytes
			if x.Name != [16]byte{} {
				t.jobFiles++
			}
		}
		if x.Removed {
			t.removedFiles++
			t.removedRows += x.Rows
			t.removedBytes += x.Bytes
			if x.Moved {
				t.movedFiles++
			}
		}
		if v := x.Vector; v != nil {
			t.goneVectors++
			t.goneDead += v.Cardinality
			t.goneVectorBytes += v.Length
		}
	}
	return t
}

// operation: S5. A cut with appends and jobs is one snapshot.
func (t *tally) operation() string {
	switch {
	case t.movedFiles > 0 && t.addedVectors == 0 && t.addedFiles == t.jobFiles && t.removedFiles == t.movedFiles:
		return "replace"
	case t.addedVectors == 0 && t.removedFiles == 0 && t.others() == 0:
		return "append"
	case t.addedVectors == 0 && t.removedFiles == 0 && t.addedFiles == 0:
		return "replace" // delete files that ended nothing leave
	case t.addedFiles == 0:
		return "delete"
	}
	return "overwrite"
}

// others counts the delete files of other writers that leave.
func (t *tally) others() int64 { return t.positionFiles + t.equalityFiles }

// summary: S10. Counts of nothing are left out, as other writers do.
func (t *tally) summary(f *statestore.FrozenCut) []schemas.Property {
	var out []schemas.Property
	number := func(key string, n int64) {
		out = append(out, schemas.Property{Key: key, Value: strconv.FormatInt(n, 10)})
	}
	some := func(key string, n int64) {
		if n != 0 {
			number(key, n)
		}
	}
	some("added-data-files", t.addedFiles)
	some("deleted-data-files", t.removedFiles)
	some("added-records", t.addedRows)
	some("deleted-records", t.removedRows)
	some("added-delete-files", t.addedVectors)
	some("removed-delete-files", t.goneVectors+t.others())
	some("added-dvs", t.addedVectors)
	some("removed-dvs", t.goneVectors)
	some("added-position-deletes", t.addedDead)
	some("removed-position-delete-files", t.positionFiles)
	some("removed-position-deletes", t.goneDead+t.positions)
	some("removed-equality-delete-files", t.equalityFiles)
	some("removed-equality-deletes", t.equalities)
	some("added-files-size", t.addedBytes+t.addedVectorBytes)
	some("removed-files-size", t.removedBytes+t.goneVectorBytes+t.deleteBytes)
	b := &f.Totals
	number("total-data-files", b.Files+t.addedFiles-t.removedFiles)
	number("total-delete-files", b.Vectors+t.addedVectors-t.goneVectors)
	number("total-records", b.Rows+t.addedRows-t.removedRows)
	number("total-files-size", b.Bytes+b.VectorBytes+t.addedBytes+t.addedVectorBytes-t.removedBytes-t.goneVectorBytes)
	number("total-position-deletes", b.Dead+t.addedDead-t.goneDead)
	number("total-equality-deletes", 0)
	number(SummaryOffset, f.Build)
	return append(out,
		schemas.Property{Key: SummaryChainHash, Value: f.Chain.String()},
		schemas.Property{Key: SummaryRanges, Value: ranges(f.Ranges)},
		schemas.Property{Key: SummaryDeployment, Value: hex.EncodeToString(f.Deployment[:])})
}

// ranges is each shard's source end in one short string.
func ranges(r []statestore.ShardRange) string {
	var b []byte
	for i := range r {
		switch {
		case i > 0 && r[i].Topic == r[i-1].Topic:
			b = append(b, ',')
		default:
			if i > 0 {
				b = append(b, ';')
			}
			b = append(append(b, r[i].Topic...), ':')
		}
		b = strconv.AppendInt(b, int64(r[i].Partition), 10)
		b = append(b, '=')
		b = strconv.AppendInt(b, r[i].End, 10)
	}
	return string(b)
}
