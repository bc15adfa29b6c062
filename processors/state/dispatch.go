package state

import (
	"context"
	"fmt"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// maxInlineDead is how large a dead set is in a dispatch; a larger one lies in
// the object store.
const maxInlineDead = 64 << 10

// Dispatcher makes messages of the jobs topic. One goroutine uses it.
type Dispatcher struct {
	Store  *statestore.Store
	Bodies *processors.Bodies

	stored map[int64]storedDefinition // by table: the one that was written last
}

// storedDefinition is a definition and where it lies. The state makes a new one of
// each change.
type storedDefinition struct {
	def *schemas.Definition
	ref record.Ref
}

// Dispatch is the message for an attempt at a job, nil when the attempt is not
// open any more. Large dead sets and the table's definition go to the object
// store, named by their hash.
func (p *Dispatcher) Dispatch(ctx context.Context, n *statestore.JobNotice) (*record.Dispatch, error) {
	d, def, err := p.Store.Dispatch(n)
	if err != nil || d == nil {
		return nil, err
	}
	if d.Definition, err = p.definition(ctx, d, def); err != nil {
		return nil, err
	}
	for i := range d.Inputs {
		in := &d.Inputs[i]
		if len(in.Dead) <= maxInlineDead {
			continue
		}
		ref, err := p.Bodies.Put(ctx, in.Dead)
		if err != nil {
			return nil, fmt.Errorf("dead rows of %s: %w", in.Path, err)
		}
		in.Dead, in.DeadRef = nil, &ref
	}
	return d, nil
}

// definition writes a table's definition once, not for each of its jobs.
func (p *Dispatcher) definition(ctx context.Context, d *record.Dispatch, def *schemas.Definition) (record.Ref, error) {
	if s := p.stored[d.TableID]; s.def == def {
		return s.ref, nil
	}
	b, err := record.EncodeDefinition(nil, def)
	if err != nil {
		return record.Ref{}, err
	}
	ref, err := p.Bodies.Put(ctx, b)
	if err != nil {
		return record.Ref{}, fmt.Errorf("definition of table %s: %w", d.Table, err)
	}
	if p.stored == nil {
		p.stored = map[int64]storedDefinition{}
	}
	p.stored[d.TableID] = storedDefinition{def, ref}
	return ref, nil
}
