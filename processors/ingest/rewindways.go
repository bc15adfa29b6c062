package ingest

import (
	"context"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// way is a job that was completed at the target of a rollback.
type way struct {
	moved   // First is for statestore.FirstOutput
	outputs int
}

// RewindMs is how long before a rollback's target decided entries are of use to a
// Rewind, in ms of table time.
func RewindMs(def *schemas.Definition) int64 {
	if def.Order.Kind == schemas.OrderNone {
		return movedMs
	}
	return max(movedMs, def.TombstoneTTLMs)
}

// completed notes the jobs of a CompleteJob. A block may still name a file from
// before them (P2).
func (w *Rewind) completed(ctx context.Context, d *processors.Decided) error {
	m := &d.Outcome
	if m.TimeMs < w.timeMs-movedMs {
		return nil
	}
	return w.s.eachCompleted(ctx, d, func(x *record.CompletedJob, first uint64) error {
		w.ways = append(w.ways, way{moved{Map: x.Map, First: first, At: m.Offset, TimeMs: m.TimeMs}, len(x.Outputs)})
		return nil
	})
}

// lead makes the ways known that lead to the files of the target, through other
// jobs too. Of a file that is not listed nothing else is known or needed.
func (w *Rewind) lead(ctx context.Context) error {
	files := w.s.side.Files
	for i := len(w.ways) - 1; i >= 0; i-- {
		x := &w.ways[i]
		leads := false
		for n := range x.outputs {
			// One counter numbers all kinds of outputs (F24).
			for _, writer := range statestore.OutputWriters {
				_, known := files[statestore.FileID(writer, statestore.FileCounter(x.First)+uint64(n))]
				leads = leads || known
			}
		}
		if !leads {
			continue
		}
		fwd, err := w.s.openMap(ctx, &x.Map)
		if err != nil {
			return err
		}
		for n := range fwd.Inputs() {
			in := &fwd.Inputs()[n]
			f, known := files[in.File]
			if !known {
				f = fileInfo{Epoch: -1, FirstRow: -1}
			}
			to := x.moved
			to.First = statestore.FirstOutput(to.First, fwd.Inputs())
			to.Lo, to.Hi = in.Lo, in.Hi
			f.Moved = f.withMove(to)
			files[in.File] = f
		}
	}
	return nil
}
