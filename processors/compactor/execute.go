package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// Executor executes dispatched jobs. Its methods may be called concurrently.
type Executor struct {
	Store  objstore.Store
	Bodies *processors.Bodies
	// PlainIntegers is Job's.
	PlainIntegers bool
	// Fresh gives names that nobody has used (F5). Default: 128 random bits.
	Fresh func() [16]byte
	// InlineMaps is up to how many bytes a forwarding map stands in the completion
	// instead of an object of its own (F23). Default, and at most:
	// record.MaxInlineMap. Below 0: none does.
	InlineMaps int
}

func (e *Executor) fresh() [16]byte {
	if e.Fresh != nil {
		return e.Fresh()
	}
	return [16]byte(record.NewRequestID())
}

func (e *Executor) inlineMaps() int {
	if e.InlineMaps == 0 {
		return record.MaxInlineMap
	}
	return min(e.InlineMaps, record.MaxInlineMap)
}

// Done is an executed job: what a CompleteJob says of it, and the metrics of its
// outputs for that record's body.
type Done struct {
	Job     record.CompletedJob
	Metrics []record.FileMetrics
	Result  *Result
}

// ErrDispatch marks a dispatch that cannot be executed, now or later: the job
// is to be released.
var ErrDispatch = errors.New("the job cannot be executed")

// Execute does the work of a dispatch: it writes outputs and forwarding map under
// fresh names (F5) and reads their ends back before it returns. What it wrote
// before an error is garbage.
func (e *Executor) Execute(ctx context.Context, d *record.Dispatch, progress func(Progress)) (done *Done, err error) {
	def, err := e.definition(ctx, d)
	if err != nil {
		return nil, err
	}
	// What another program wrote may stand in any order, and what comes of it too (F24).
	sorted := len(def.Key) > 0 && !slices.ContainsFunc(d.Inputs, func(in record.DispatchInput) bool { return statestore.IsUnsorted(in.File) })
	done = &Done{Job: record.CompletedJob{Job: d.Job, SchemaID: def.CurrentSchema, Sorted: sorted}}
	job := &Job{Schema: def.Schema(), TargetBytes: d.TargetBytes, PlainIntegers: e.PlainIntegers, Progress: progress}
	if sorted {
		if job.Keys, err = rows.NewKeyEncoder(def.Schema(), def.Key); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDispatch, err)
		}
	}
	for i := range d.Inputs {
		in, object, err := e.open(ctx, &d.Inputs[i])
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, object.Close()) }()
		job.Inputs = append(job.Inputs, in)
	}
	var keys []string
	job.Open = func(ctx context.Context, _ int) (Sink, error) {
		name := e.fresh()
		key, ok := e.Store.Key(def.Location + "/data/" + schemas.JobFileName(name))
		if !ok {
			return nil, fmt.Errorf("%w: table location %s is not in the warehouse %s", ErrDispatch, def.Location, e.Store.Location(""))
		}
		done.Job.Outputs = append(done.Job.Outputs, record.JobOutput{Name: name})
		keys = append(keys, key)
		return e.Store.Writer(ctx, key)
	}
	fwd := &mapFile{ctx: ctx, store: e.Store, path: func() string { return e.Bodies.MapPath(e.fresh()) }, limit: e.inlineMaps()}
	defer func() {
		if err != nil {
			err = errors.Join(err, fwd.abort())
		}
	}()
	job.Map = fwd
	r, err := Merge(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("job %d.%d of table %s: %w", d.Job.Plan, d.Job.Item, d.Table, err)
	}
	if done.Job.Map, err = fwd.commit(r.MapBytes, r.MapSHA256); err != nil {
		return nil, err
	}
	done.Result = r
	for i := range r.Outputs {
		o := &done.Job.Outputs[i]
		o.Rows, o.Bytes = r.Outputs[i].Rows, r.Outputs[i].Bytes
		done.Job.Sorted = done.Job.Sorted && r.Outputs[i].Sorted
		done.Metrics = append(done.Metrics, processors.FileMetrics(record.MetricsID(o.Name), &r.Outputs[i].FileInfo))
		if err := e.check(ctx, keys[i], o); err != nil {
			return nil, err
		}
	}
	return done, nil
}

func (e *Executor) definition(ctx context.Context, d *record.Dispatch) (*schemas.Definition, error) {
	b, err := e.Bodies.Get(ctx, &d.Definition)
	if err != nil {
		return nil, err
	}
	def := new(schemas.Definition)
	if err := record.DecodeDefinition(b, def); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDispatch, err)
	}
	return def, nil
}

// open opens an input.
func (e *Executor) open(ctx context.Context, d *record.DispatchInput) (Input, objstore.Object, error) {
	key, ok := e.Store.Key(d.Path)
	if !ok {
		return Input{}, nil, fmt.Errorf("%w: data file %s is not in the warehouse %s", ErrDispatch, d.Path, e.Store.Location(""))
	}
	dead := d.Dead
	if d.DeadRef != nil {
		var err error
		if dead, err = e.Bodies.Get(ctx, d.DeadRef); err != nil {
			return Input{}, nil, err
		}
	}
	if len(dead) > 0 {
		if err := dv.Validate(dead); err != nil {
			return Input{}, nil, fmt.Errorf("%w: dead positions of %s: %w", ErrDispatch, d.Path, err)
		}
	}
	if d.Lo < 0 || d.Hi < d.Lo || d.Hi > d.Rows || d.Rows > 1<<31-2 {
		return Input{}, nil, fmt.Errorf("%w: rows %d to %d of %s, which has %d", ErrDispatch, d.Lo, d.Hi, d.Path, d.Rows)
	}
	object, err := e.Store.Open(ctx, key)
	if err != nil {
		return Input{}, nil, fmt.Errorf("read data file %s: %w", d.Path, err)
	}
	if object.Size() != d.Bytes {
		return Input{}, nil, errors.Join(fmt.Errorf("%w: data file %s has %d bytes, the log says %d", ErrDispatch, d.Path, object.Size(), d.Bytes), object.Close())
	}
	return Input{
		File: d.File, Name: d.Path, R: object, Size: d.Bytes, Rows: d.Rows, Lo: uint32(d.Lo), Hi: uint32(d.Hi), Dead: dead,
		FirstRowID: d.FirstRowID, DataSequence: d.Sequence, Foreign: statestore.IsForeign(d.File),
	}, object, nil
}

// check reads the end of an output back: the store has what was written.
func (e *Executor) check(ctx context.Context, key string, o *record.JobOutput) (err error) {
	object, err := e.Store.Open(ctx, key)
	if err != nil {
		return fmt.Errorf("read back %s: %w", key, err)
	}
	defer func() { err = errors.Join(err, object.Close()) }()
	file, err := rows.Open(object, object.Size())
	if err != nil {
		return fmt.Errorf("read back %s: %w", key, err)
	}
	if object.Size() != o.Bytes || file.NumRows() != o.Rows {
		return fmt.Errorf("read back %s: %d rows in %d bytes, written were %d in %d", key, file.NumRows(), object.Size(), o.Rows, o.Bytes)
	}
	return nil
}

// Complete makes the body of a CompleteJob for executed jobs of one table.
func Complete(ctx context.Context, bodies *processors.Bodies, done []*Done) (*record.CompleteJob, error) {
	c := &record.CompleteJob{}
	var body record.RowsBody
	for _, d := range done {
		c.Items = append(c.Items, d.Job)
		body.Files = append(body.Files, d.Metrics...)
	}
	if len(body.Files) == 0 {
		return c, nil
	}
	b, err := record.EncodeRowsBody(nil, &body)
	if err != nil {
		return nil, err
	}
	ref, err := bodies.Put(ctx, b)
	if err != nil {
		return nil, err
	}
	c.Metrics = &ref
	return c, nil
}
