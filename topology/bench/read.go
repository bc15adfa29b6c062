package bench

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	icebergio "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology"
)

const (
	// readGoal: reading a table that was changed takes no more than this times
	// what the same rows written once take.
	readGoal     = 1.2
	readChanges  = 10_000
	readCommitMs = 100
	readRounds   = 7
	// readStill is how long a table has to stand still before it is read.
	readStill = 5 * time.Second
)

// readDuckDB reads both tables in DuckDB.
//
//go:embed read.py
var readDuckDB string

// tableRead is the best reading of a table.
type tableRead struct {
	Rows    int64   `json:"rows"`
	Digest  string  `json:"digest"`
	Seconds float64 `json:"seconds"`
}

// runRead reads a table after many small upserts and deletes with compaction on,
// beside one to which the same rows were written once.
func runRead(ctx context.Context, o *Options) (_ []Result, err error) {
	r := rand.New(rand.NewPCG(o.Seed, 12))
	changes, still := int64(readChanges), readStill
	if o.Quick {
		changes, still = 200, time.Second
	}
	model := make([]customer, o.Rows)
	for i := range model {
		model[i] = drawCustomer(r, int64(i))
	}
	gone := make([]bool, o.Rows)
	changed, err := o.openReadTable(ctx, "changed")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, changed.drop()) }()
	if err := changed.load(ctx, model, gone); err != nil {
		return nil, err
	}
	rep, err := changed.change(ctx, r, model, gone, changes, still)
	if err != nil {
		return nil, err
	}
	once, err := o.openReadTable(ctx, "once")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, once.drop()) }()
	if err := once.load(ctx, model, gone); err != nil {
		return nil, err
	}
	engine, best, err := o.readBoth(ctx, changed, once)
	if err != nil {
		return nil, err
	}
	live := int64(0)
	for _, g := range gone {
		if !g {
			live++
		}
	}
	if best[0].Rows != live || best[0].Rows != best[1].Rows || best[0].Digest != best[1].Digest {
		return nil, fmt.Errorf("%s reads %d rows (%s) of the changed table and %d (%s) of the other, the model has %d", engine, best[0].Rows, best[0].Digest, best[1].Rows, best[1].Digest, live)
	}
	x := Result{
		Bench: "read", Figure: best[0].Seconds, Unit: "s, " + engine, Better: Lower, Goal: readGoal * best[1].Seconds,
		Beside: Beside{"the same rows written once", best[1].Seconds}, CPU: rep.CPU, RSSPeak: rep.RSSPeak, Setup: o.setup(1, "local"),
	}
	x.Setup.Note = fmt.Sprintf("%d upserts and deletes in %d commits; %d files and %d vectors are read, beside %d files; the best of %d readings, in turns",
		changes, rep.Commits, rep.Files, rep.Vectors, once.files, readRounds)
	return []Result{x}, nil
}

// readTable is a table that is filled and then read.
type readTable struct {
	*fedTable
	node  nodeSpec
	files int64
}

func (o *Options) openReadTable(ctx context.Context, name string) (*readTable, error) {
	fed, err := o.openTable(ctx, source.VarveAvro, readCommitMs, 1)
	if err != nil {
		return nil, err
	}
	t := &readTable{fedTable: fed}
	if t.node, err = fed.spec(filepath.Join(o.dir, name)); err != nil {
		return nil, err
	}
	t.node.Warehouse, err = o.lake(t.node.Data)
	return t, err
}

func (t *readTable) upsert(mem *slab, c *customer) (topology.Entry, error) {
	v, err := t.enc.upsert(mem.room(), c)
	v = mem.keep(v)
	return topology.Entry{Key: mem.keyOf(c.id), Value: v}, err
}

// load writes all rows that are not gone.
func (t *readTable) load(ctx context.Context, rows []customer, gone []bool) error {
	var mem slab
	order, i := newScattered(int64(len(rows))), int64(0)
	if err := t.o.feed(ctx, t.def.SourceTopic, func() (topology.Entry, bool, error) {
		for ; i < int64(len(rows)); i++ {
			if c := &rows[order.at(i)]; !gone[c.id] {
				i++
				e, err := t.upsert(&mem, c)
				return e, true, err
			}
		}
		return topology.Entry{}, false, nil
	}); err != nil {
		return err
	}
	s := t.node
	s.Load = true
	rep, err := t.o.node(ctx, s)
	if err != nil {
		return err
	}
	if t.files = rep.Files; rep.Rows == 0 {
		return errors.New("no row was loaded")
	}
	return nil
}

// change sends small changes, some for each commit, and waits until compaction
// has nothing to do any more.
func (t *readTable) change(ctx context.Context, r *rand.Rand, model []customer, gone []bool, changes int64, still time.Duration) (*nodeReport, error) {
	s := t.node
	s.Roles, s.CPUProfile = topology.Roles(), t.o.CPUProfile
	s.Jobs = topology.JobOptions{PlanEvery: time.Second}
	n, err := t.o.startNode(ctx, s)
	if err != nil {
		return nil, err
	}
	defer n.abandon()
	var mem slab
	const each = 50 // of a commit, about
	for sent := int64(0); sent < changes; sent += each {
		k := int64(0)
		if err := t.o.feed(ctx, t.def.SourceTopic, func() (topology.Entry, bool, error) {
			if k == min(each, changes-sent) {
				return topology.Entry{}, false, nil
			}
			k++
			id := r.Int64N(int64(len(model)))
			if gone[id] = r.IntN(4) == 0; gone[id] {
				v, err := t.enc.remove(mem.room(), id)
				v = mem.keep(v)
				return topology.Entry{Key: mem.keyOf(id), Value: v}, true, err
			}
			model[id] = drawCustomer(r, id)
			e, err := t.upsert(&mem, &model[id])
			return e, true, err
		}); err != nil {
			return nil, err
		}
		if err := sleepFor(ctx, readCommitMs*time.Millisecond); err != nil {
			return nil, err
		}
	}
	live := int64(0)
	for _, g := range gone {
		if !g {
			live++
		}
	}
	var last, now nodeReport
	for since := time.Now(); time.Since(since) < still; {
		if err := sleepFor(ctx, 250*time.Millisecond); err != nil {
			return nil, err
		}
		if err := n.ask(ctx, wordSample, &now); err != nil {
			return nil, err
		}
		if now.Rows != live || !now.Settled || now.Jobs > 0 || now.Commits != last.Commits || now.Files != last.Files || now.Vectors != last.Vectors {
			since = time.Now()
		}
		last = now
	}
	return n.result(ctx)
}

func sleepFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// readBoth reads two tables in turns: with DuckDB where it is installed and the
// lake is a folder, else with iceberg-go.
func (o *Options) readBoth(ctx context.Context, tables ...*readTable) (engine string, best []tableRead, err error) {
	var places []string
	for _, t := range tables {
		at, err := t.metadata(ctx)
		if err != nil {
			return "", nil, err
		}
		places = append(places, at)
	}
	rounds := readRounds
	if o.Quick {
		rounds = 1
	}
	python := duckDBPython()
	if python != "" && o.lakes == "" {
		in, err := json.Marshal(map[string]any{"tables": places, "rounds": rounds})
		if err != nil {
			return "", nil, err
		}
		cmd := exec.CommandContext(ctx, python, "-c", readDuckDB)
		cmd.Stdin = bytes.NewReader(in)
		if err := reportOf(cmd, &best); err != nil {
			return "", nil, fmt.Errorf("DuckDB: %w", err)
		}
		return "DuckDB", best, nil
	}
	best = make([]tableRead, len(tables))
	for range rounds {
		for i, at := range places {
			began := time.Now()
			got, err := readPlainly(ctx, at)
			if err != nil {
				return "", nil, err
			}
			if got.Seconds = time.Since(began).Seconds(); best[i].Seconds == 0 || got.Seconds < best[i].Seconds {
				best[i] = *got
			}
		}
	}
	return "iceberg-go, for want of DuckDB or of a folder", best, nil
}

// metadata is where the table's newest metadata lies.
func (t *readTable) metadata(ctx context.Context) (string, error) {
	store, err := objstore.Open(ctx, t.node.Warehouse)
	if err != nil {
		return "", err
	}
	ns, name := schemas.SplitName(t.def.Name)
	folder := ns + "/" + name + "/metadata/"
	hint, err := store.ReadAll(ctx, folder+"version-hint.text", 64)
	if err != nil {
		return "", fmt.Errorf("read the version hint: %w", err)
	}
	return store.Location(folder + "v" + string(bytes.TrimSpace(hint)) + ".metadata.json"), nil
}

// readPlainly reads a table with iceberg-go.
func readPlainly(ctx context.Context, at string) (*tableRead, error) {
	tbl, err := table.NewFromLocation(ctx, table.Identifier{"bench"}, at, icebergio.LoadFSFunc(nil, at), nil)
	if err != nil {
		return nil, err
	}
	_, batches, err := tbl.Scan(table.WithMaxConcurrency(1)).ToArrowRecords(ctx)
	if err != nil {
		return nil, err
	}
	var r tableRead
	sums := make([]uint64, 4)
	for b, err := range batches {
		if err != nil {
			return nil, err
		}
		r.Rows += b.NumRows()
		if err := addBatch(sums, b); err != nil {
			return nil, err
		}
		b.Release()
	}
	r.Digest = fmt.Sprint(sums)
	return &r, nil
}

// addBatch adds up a hash of each value by column, so that the order of rows
// does not matter.
func addBatch(sums []uint64, b arrow.RecordBatch) error {
	for i, c := range b.Columns() {
		switch c := c.(type) {
		case *array.Int64:
			for k := range c.Len() {
				sums[i] += uint64(c.Value(k))
			}
		case *array.String:
			for k := range c.Len() {
				h := fnv.New64a()
				h.Write([]byte(c.Value(k)))
				sums[i] += h.Sum64()
			}
		default:
			return fmt.Errorf("column %d is read as %s", i, c.DataType())
		}
	}
	return nil
}
