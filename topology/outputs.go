package topology

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// A worker reads the ends of its outputs back before it says that a job is done
// (compactor.Executor). CompleteJob is a public record, and apply reads no objects
// (L3): whoever applies the log looks at a sample of what was accepted once more.
// What it finds changes nothing in the state; it is logged and counted.

// DefaultCheckOutputs: of so many completed jobs the outputs of one are looked at.
const DefaultCheckOutputs = 16

// outputsWaiting bounds the records that wait to be looked at. Those beyond are not.
const outputsWaiting = 64

// outputChecker looks at the outputs of jobs of a partition of the log.
type outputChecker struct {
	w     *stateWorker
	every int64 // jobs
	jobs  int64 // completed, as the state's goroutine applied them
	begun atomic.Bool
	due   chan dueOutputs
}

// dueOutputs are the items of a CompleteJob to be looked at.
type dueOutputs struct {
	offset int64
	at     []int  // of the accepted ones
	items  []byte // of the outcome: which were not
}

func newOutputChecker(w *stateWorker, every int) *outputChecker {
	if every < 0 {
		return nil
	}
	return &outputChecker{w: w, every: int64(every), due: make(chan dueOutputs, outputsWaiting)}
}

// applied takes the outcome of a record. While a log is caught up with, its files may
// have left the table long ago.
func (c *outputChecker) applied(o *record.OutcomeMessage) {
	if c == nil || o.Type != record.TypeCompleteJob || o.Outcome.Code == record.Rejected || len(o.Outcome.Numbers) == 0 || !c.begun.Load() {
		return
	}
	d := dueOutputs{offset: o.Offset, items: bytes.Clone(o.Outcome.Items)}
	for i := range int(o.Outcome.Numbers[0]) {
		if c.jobs++; c.jobs%c.every == 1 || c.every == 1 {
			d.at = append(d.at, i)
		}
	}
	if len(d.at) == 0 {
		return
	}
	select {
	case c.due <- d:
	default:
	}
}

func (c *outputChecker) run(ctx context.Context) {
	c.begun.Store(true)
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-c.due:
			if err := c.look(ctx, d); err != nil && ctx.Err() == nil {
				c.w.log.Debug("outputs of jobs were not looked at", "offset", d.offset, "error", err)
			}
		}
	}
}

// look reads the record again, and the ends of one job's outputs after the other.
func (c *outputChecker) look(ctx context.Context, d dueOutputs) error {
	w := c.w
	r, err := w.n.readOne(ctx, w.n.topics.Transactions, w.partition, d.offset)
	if err != nil {
		return err
	}
	if r.Offset != d.offset {
		return fmt.Errorf("the log has no record at offset %d any more", d.offset)
	}
	rec := stateRecord(r)
	env, body, err := w.n.bodies.Open(ctx, rec.Key, rec.Header, rec.Value)
	if err != nil {
		return err
	}
	v, err := record.DecodeBody(env.Type, env.TypeVersion, body)
	if err != nil {
		return err
	}
	x, ok := v.(*record.CompleteJob)
	if !ok {
		return fmt.Errorf("the record is a %s", env.Type)
	}
	var t *statestore.TableInfo
	if err := w.read(func() (err error) {
		t, err = w.store.Table(env.Table)
		return err
	}); err != nil || t == nil {
		return err
	}
	rejected, err := (&record.Outcome{Items: d.items}).Rejected(len(x.Items))
	if err != nil {
		return err
	}
	n := -1
	for i := range x.Items {
		if rejected[i] {
			continue
		}
		if n++; !slices.Contains(d.at, n) {
			continue
		}
		if err := c.job(ctx, t, d.offset, &x.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// job looks at the outputs of one job. An error says that they could not be looked at.
func (c *outputChecker) job(ctx context.Context, t *statestore.TableInfo, offset int64, job *record.CompletedJob) error {
	for i := range job.Outputs {
		o := &job.Outputs[i]
		path := t.Definition.Location + "/data/" + schemas.JobFileName(o.Name)
		why, err := checkOutput(ctx, c.w.n.store, path, o, t.Definition.SchemaByID(job.SchemaID))
		if err != nil {
			return err
		}
		if why != "" {
			if live, err := c.live(t.ID, o.Name); err != nil || !live {
				continue // it left the table meanwhile
			}
			c.w.n.metrics.outputChecked(t.Name, "wrong")
			c.w.log.Error("an output of a job is not what its completion says: readers of the table will fail on it; restore the object, or roll the table back to a snapshot before it",
				"table", t.Name, "offset", offset, "plan", job.Job.Plan, "item", job.Job.Item, "file", path, "error", why)
			continue
		}
		c.w.n.metrics.outputChecked(t.Name, "right")
	}
	return nil
}

// checkOutput says what is wrong with an output, if anything is.
func checkOutput(ctx context.Context, store objstore.Store, path string, o *record.JobOutput, schema *schemas.Schema) (why string, err error) {
	key, ok := store.Key(path)
	if !ok {
		return "it does not lie in the warehouse", nil
	}
	object, err := store.Open(ctx, key)
	if errors.Is(err, objstore.ErrNotFound) {
		return "it is missing", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	if object.Size() != o.Bytes {
		return fmt.Sprintf("it has %d bytes, not %d", object.Size(), o.Bytes), nil
	}
	file, err := rows.Open(object, object.Size())
	if errors.Is(err, rows.ErrBadFile) || errors.Is(err, rows.ErrUnsupported) {
		return err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	if file.NumRows() != o.Rows {
		return fmt.Sprintf("it has %d rows, not %d", file.NumRows(), o.Rows), nil
	}
	if schema == nil {
		return "", nil
	}
	for i := range schema.Fields {
		if f := &schema.Fields[i]; f.Required && f.InitialDefault == nil && !file.Has(f.ID) {
			return fmt.Sprintf("it has no column of field id %d, which is required", f.ID), nil
		}
	}
	for _, f := range file.Fields() {
		if i := schema.ByID(f.ID); i >= 0 && f.Type != schema.Fields[i].Type && !f.Type.CanWiden(schema.Fields[i].Type) && !f.Type.IsNested() {
			return fmt.Sprintf("its column of field id %d is of another type", f.ID), nil
		}
	}
	return "", nil
}

// live says whether the table has a file of this name.
func (c *outputChecker) live(table int64, name [16]byte) (live bool, err error) {
	err = c.w.read(func() error {
		return c.w.store.Files(table, func(f *statestore.FileInfo) error {
			live = live || f.Name == name && !f.Gone
			return nil
		})
	})
	return live, err
}
