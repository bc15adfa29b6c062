package sim

import (
	"strconv"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// respec is what a user does with the partitioning (T7): another number of
// buckets, or none.
func (w *World) respec() error {
	x := &record.AlterSpec{}
	switch n := int32(2 + w.rng.Intn(4)); n {
	case 2:
	case buckets:
		x.Terms = []record.PartitionTerm{{Column: "v", Transform: schemas.Bucket, N: n, Name: "v_bucket"}}
	default:
		x.Terms = []record.PartitionTerm{{Column: "v", Transform: schemas.Bucket, N: n, Name: "v_bucket_" + strconv.Itoa(int(n))}}
	}
	return w.enqueue(w.pickMember(), x)
}
