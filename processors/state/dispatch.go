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
	if d.Definition, err = p.definition(ctx, d.TableID, d.Table, def); err != nil {
		return nil, err
	}
	return d, p.storeDead(ctx, d.Inputs)
}

// Find is Dispatch for a part of a find job (C10).
func (p *Dispatcher) Find(ctx context.Context, n *statestore.JobNotice) (*record.FindDispatch, error) {
	d, def, err := p.Store.FindDispatch(n)
	if err != nil || d == nil {
		return nil, err
	}
	if d.Definition, err = p.definition(ctx, d.TableID, d.Table, def); err != nil {
		return nil, err
	}
	return d, p.storeDead(ctx, d.Inputs)
}

// storeDead brings large dead sets into the object store.
func (p *Dispatcher) storeDead(ctx context.Context, inputs []record.DispatchInput) error {
	for i := range inputs {
		in := &inputs[i]
		if len(in.Dead) <= maxInlineDead {
			continue
		}
		ref, err := p.Bodies.Put(ctx, in.Dead)
		if err != nil {
			return fmt.Errorf("dead rows of %s: %w", in.Path, err)
		}
		in.Dead, in.DeadRef = nil, &ref
	}
	return nil
}

// definition writes a table's definition once, not for each of its jobs.
func (p *Dispatcher) definition(ctx context.Context, tableID int64, table string, def *schemas.Definition) (record.Ref, error) {
	if s := p.stored[tableID]; s.def == def {
		return s.ref, nil
	}
	b, err := record.EncodeDefinition(nil, def)
	if err != nil {
		return record.Ref{}, err
	}
	ref, err := p.Bodies.Put(ctx, b)
	if err != nil {
		return record.Ref{}, fmt.Errorf("definition of table %s: %w", table, err)
	}
	if p.stored == nil {
		p.stored = map[int64]storedDefinition{}
	}
	p.stored[tableID] = storedDefinition{def, ref}
	return ref, nil
}
