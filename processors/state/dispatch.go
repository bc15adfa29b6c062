package state

import (
	"context"
	"fmt"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// maxInlineDead is how large a dead set is in a dispatch; a larger one lies in
// the object store.
const maxInlineDead = 64 << 10

// Dispatch makes the jobs topic's message for an attempt at a job, nil when the
// attempt is not open any more. Large dead sets and the table's definition go to
// the object store, named by their hash.
func Dispatch(ctx context.Context, store *statestore.Store, bodies *processors.Bodies, n *statestore.JobNotice) (*record.Dispatch, error) {
	d, def, err := store.Dispatch(n)
	if err != nil || d == nil {
		return nil, err
	}
	b, err := record.EncodeDefinition(nil, def)
	if err != nil {
		return nil, err
	}
	if d.Definition, err = bodies.Put(ctx, b); err != nil {
		return nil, fmt.Errorf("definition of table %s: %w", d.Table, err)
	}
	for i := range d.Inputs {
		in := &d.Inputs[i]
		if len(in.Dead) <= maxInlineDead {
			continue
		}
		ref, err := bodies.Put(ctx, in.Dead)
		if err != nil {
			return nil, fmt.Errorf("dead rows of %s: %w", in.Path, err)
		}
		in.Dead, in.DeadRef = nil, &ref
	}
	return d, nil
}
