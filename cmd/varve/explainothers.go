package main

import (
	"context"
	"fmt"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
)

// imported tells of the key's rows in n files that an AddFiles or AdoptFiles brought.
func (e *explainer) imported(ctx context.Context, line explained, o *record.OutcomeMessage, n int, item func(i int) (name string, dead []byte)) error {
	rejected, err := o.Outcome.Rejected(n)
	if err != nil {
		return fmt.Errorf("log offset %d: %w", o.Offset, err)
	}
	if len(o.Outcome.Numbers) <= record.AddHeld {
		return fmt.Errorf("log offset %d: the outcome of added files has %d numbers", o.Offset, len(o.Outcome.Numbers))
	}
	id := uint64(o.Outcome.Numbers[record.AddFirst])
	for i := range n {
		if rejected[i] {
			continue
		}
		name, dead := item(i)
		if err := e.came(ctx, line, id, name, "added by a file", dead); err != nil {
			return err
		}
		id++
	}
	return nil
}

// foreign tells what another writer's commits did to the key.
func (e *explainer) foreign(ctx context.Context, line explained, o *record.OutcomeMessage, f *record.ForeignSnapshot) error {
	if len(o.Outcome.Numbers) <= record.ForeignFirst {
		return fmt.Errorf("log offset %d: the outcome of other writers' commits has %d numbers", o.Offset, len(o.Outcome.Numbers))
	}
	var blocks []record.DeleteBlock
	for i := range f.Vectors {
		if len(f.Vectors[i].Dead) > 0 {
			blocks = append(blocks, record.DeleteBlock{File: f.Vectors[i].File, Bitmap: f.Vectors[i].Dead})
		}
	}
	if err := e.died(line, blocks); err != nil {
		return err
	}
	for _, id := range f.Removed {
		at, ok := e.at[id]
		if !ok || at.v.died > 0 {
			continue
		}
		l := line
		at.v.died = l.offset
		l.what, l.file, l.row = "another writer took its file out", at.v.file, at.v.row
		e.lines = append(e.lines, l)
	}
	for i := range f.Files {
		x := &f.Files[i]
		if err := e.came(ctx, line, uint64(o.Outcome.Numbers[record.ForeignFirst])+uint64(i), x.Path, "committed by another writer", x.Dead); err != nil {
			return err
		}
	}
	return nil
}

// came tells of the key's rows in a file that no shard wrote. Of two in one file the
// later one is followed.
func (e *explainer) came(ctx context.Context, line explained, id uint64, name, what string, dead []byte) error {
	return e.file(ctx, line, name, func(l *explained) {
		x := &keyVersion{written: line.offset, file: name, row: l.row}
		l.what = what
		if len(dead) > 0 {
			if set, err := dv.ReadBitmap(dead); err == nil && set.Contains(uint32(l.row)) {
				l.what, x.died = what+", dead", line.offset
			}
		}
		e.at[id], e.all = placed{l.row, x}, append(e.all, x)
	})
}
