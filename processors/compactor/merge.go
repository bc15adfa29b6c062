package compactor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/rows"
)

var (
	// ErrNotSorted: an input's rows do not ascend by the table's key.
	ErrNotSorted = errors.New("the file's rows are not sorted by the table's key")
	// ErrClaim: an input is not what the job says of it: its row count, its
	// range, its dead positions (P4).
	ErrClaim = errors.New("the file is not what the job says of it")
	// ErrJob: the job itself makes no sense.
	ErrJob = errors.New("ill-formed compaction job")
)

// Defaults of Job.
const (
	// DefaultTargetBytes is where an output ends.
	DefaultTargetBytes = 512 << 20
	// DefaultReadAheadBytes is shared by all columns of all inputs.
	DefaultReadAheadBytes = 64 << 20
	minColumnReadAhead    = 32 << 10
	maxColumnReadAhead    = 4 << 20
)

// Input is a range of a data file.
type Input struct {
	File uint64
	Name string // for errors
	R    io.ReaderAt
	Size int64 // bytes
	Rows int64 // of the whole file, as the state knows them (P4)
	// [Lo,Hi) are the positions that the job takes.
	Lo, Hi uint32
	// Dead is R, a canonical position set in [Lo,Hi); nil: none.
	Dead []byte
	// FirstRowID is the file's first_row_id, -1: it has none.
	FirstRowID int64
	// DataSequence is the file's data sequence number, -1: it has none.
	DataSequence int64
	// Foreign: another program wrote it. Its dead rows may lack what the schema requires.
	Foreign bool
}

// Sink takes the bytes of one output.
type Sink interface {
	io.Writer
	// Commit makes the output durable under its name.
	Commit() error
	// Abort gives the output up; nothing stays under its name.
	Abort() error
}

// Job is one execution of a compaction job.
type Job struct {
	Inputs []Input
	// Schema is the table's current one: the outputs have it.
	Schema *schemas.Schema
	// Keys is the table's key; nil: it has none, or some input's rows may not ascend by it.
	Keys *rows.KeyEncoder
	// TargetBytes is the size at which an output ends and the next one begins,
	// give or take a page of each column. Default: DefaultTargetBytes.
	TargetBytes int64
	// Open begins output n = 0, 1, … under a name that no execution has used (F5).
	Open func(ctx context.Context, n int) (Sink, error)
	// Map takes the forwarding map.
	Map io.Writer
	// Layout of the outputs. Schema, RowID, LastSeq, Order and DeltaIntegers are
	// Merge's.
	Layout rows.WriteOptions
	// PlainIntegers keeps DELTA_BINARY_PACKED out of the outputs, which is used by
	// default where it gains a quarter. Without it a merge takes a third longer and
	// the files are larger; it is for a reader that cannot decode it.
	PlainIntegers bool
	// ReadAheadBytes bounds what is read of all inputs before it is needed, above
	// a floor of 32 KiB a column. Default: DefaultReadAheadBytes.
	ReadAheadBytes int64
	// Progress, if any, is called every some 10,000 rows, on Merge's goroutine.
	Progress func(Progress)

	copyRows int64 // for tests: instead of minCopyRows
}

// Progress is how far a job has come.
type Progress struct {
	Rows      int64 // written
	TotalRows int64 // to be written
	BytesIn   int64 // read from the inputs
	BytesOut  int64 // of finished row groups
}

// Output is a finished output.
type Output struct {
	rows.FileInfo
	// Sorted: the rows ascend by the table's key (M5: sort_order_id).
	Sorted bool
}

// Result is what a completion needs to know.
type Result struct {
	Outputs []Output
	Rows    int64 // in all outputs
	Dropped int64 // dead rows
	// SameKey counts live rows beyond the first of their key: 0 in a sound table.
	// Pairs inside a row group that was copied as it is are not counted again.
	SameKey   int64
	Copied    int64 // rows in row groups that were copied as they are
	BytesIn   int64
	BytesOut  int64
	MapBytes  int64
	MapSHA256 [sha256.Size]byte
}

// Merge executes a job. After an error its outputs are aborted, but those that
// were complete by then are not: no completion names them, so they are garbage.
func Merge(ctx context.Context, j *Job) (*Result, error) {
	m := &merger{job: j}
	r, err := m.run(ctx)
	if m.sink != nil {
		if abort := m.sink.Abort(); abort != nil {
			err = errors.Join(err, fmt.Errorf("abort an output: %w", abort))
		}
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// merger is a job under way.
type merger struct {
	job    *Job
	opts   rows.WriteOptions
	inputs []*input
	cols   [][]*rows.Part // by column of the schema, by input
	tree   tree

	picks    []uint32
	ordinals []byte
	extra    rows.Extra

	fwd  *forward.Writer
	hash hash.Hash
	out  *rows.Writer
	sink Sink
	// Of the open output.
	outRows int64

	total  int64 // rows to be written
	target int64
	result Result
}

func (m *merger) run(ctx context.Context) (*Result, error) {
	if err := m.prepare(); err != nil {
		return nil, err
	}
	if err := m.merge(ctx); err != nil {
		return nil, err
	}
	if err := m.endOutput(); err != nil {
		return nil, err
	}
	if err := m.fwd.Close(); err != nil {
		return nil, err
	}
	r := &m.result
	if r.Rows != m.total {
		return nil, fmt.Errorf("%d rows were written of %d", r.Rows, m.total)
	}
	r.SameKey = m.tree.same
	m.hash.Sum(r.MapSHA256[:0])
	for _, in := range m.inputs {
		r.BytesIn += in.reader.n
	}
	return r, nil
}

// mapWriter counts and hashes the map.
type mapWriter struct {
	m *merger
}

func (w mapWriter) Write(b []byte) (int, error) {
	n, err := w.m.job.Map.Write(b)
	w.m.hash.Write(b[:n])
	w.m.result.MapBytes += int64(n)
	return n, err
}

func (m *merger) prepare() error {
	j := m.job
	if len(j.Inputs) == 0 || len(j.Inputs) > min(forward.MaxInputs, rows.MaxPickSources) {
		return fmt.Errorf("%w: %d inputs, from 1 to %d are possible", ErrJob, len(j.Inputs), forward.MaxInputs)
	}
	if j.Schema == nil || j.Open == nil || j.Map == nil {
		return fmt.Errorf("%w: schema, outputs and map are needed", ErrJob)
	}
	m.opts = j.Layout
	m.opts.Schema = j.Schema
	m.opts.RowID, m.opts.LastSeq, m.opts.Order = false, false, false
	m.opts.DeltaIntegers = !j.PlainIntegers
	perColumn := j.ReadAheadBytes
	if perColumn <= 0 {
		perColumn = DefaultReadAheadBytes
	}
	perColumn /= int64(len(j.Inputs) * (len(j.Schema.Fields) + 3))
	perColumn = min(max(perColumn, minColumnReadAhead), maxColumnReadAhead)
	maps := make([]forward.Input, len(j.Inputs))
	bytes := float64(0)
	for i := range j.Inputs {
		in, err := openInput(&j.Inputs[i], j, int(perColumn))
		if err != nil {
			return j.Inputs[i].wrap(err)
		}
		m.inputs = append(m.inputs, in)
		src := &j.Inputs[i]
		maps[i] = forward.Input{File: src.File, Lo: src.Lo, Hi: src.Hi, Dead: src.Dead, Rows: uint64(in.live)}
		m.total += in.live
		m.result.Dropped += int64(src.Hi-src.Lo) - in.live
		if src.Rows > 0 {
			bytes += float64(src.Size) * float64(in.live) / float64(src.Rows)
		}
		m.opts.RowID = m.opts.RowID || in.rowID >= 0 || src.FirstRowID >= 0
		m.opts.LastSeq = m.opts.LastSeq || in.lastSeq >= 0 || src.DataSequence >= 0
		m.opts.Order = m.opts.Order || in.order >= 0
	}
	m.cols = make([][]*rows.Part, len(j.Schema.Fields))
	for c := range m.cols {
		for _, in := range m.inputs {
			m.cols[c] = append(m.cols[c], in.scan.Part(c))
		}
	}
	if m.target = j.TargetBytes; m.target <= 0 {
		m.target = DefaultTargetBytes
	}
	// Equal outputs rather than full ones and a small rest.
	if n := math.Ceil(bytes / float64(m.target)); n > 1 {
		m.target = min(m.target, int64(bytes/n*1.02)+1)
	}
	m.hash = sha256.New()
	var err error
	m.fwd, err = forward.NewWriter(mapWriter{m}, maps)
	return err
}

// chunkRows is how many rows are merged at most before they are written.
const chunkRows = 1 << 16

func (m *merger) merge(ctx context.Context) error {
	m.picks = make([]uint32, 0, chunkRows)
	for i, in := range m.inputs {
		if err := in.load(); err != nil {
			return m.job.Inputs[i].wrap(err)
		}
	}
	wide := m.job.Keys != nil && !m.job.Keys.Narrow()
	m.tree.init(m.inputs, wide)
	next := 0 // the input under way, without key
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("compaction stopped after %d of %d rows: %w", m.result.Rows, m.total, err)
		}
		m.picks = m.picks[:0]
		var spent int
		if m.job.Keys == nil {
			for next < len(m.inputs) && m.inputs[next].done {
				next++
			}
			if next == len(m.inputs) {
				return nil
			}
			in := m.inputs[next]
			for _, r := range in.rows {
				m.picks = append(m.picks, rows.Pick(next, int(r)))
			}
			spent = next
		} else {
			if m.tree.empty() {
				return nil
			}
			m.picks, spent = m.tree.merge(m.picks, chunkRows)
		}
		if err := m.write(ctx); err != nil {
			return err
		}
		if spent >= 0 {
			if err := m.next(ctx, spent); err != nil {
				return err
			}
			if m.job.Keys != nil {
				m.tree.refilled(spent)
			}
		}
		if m.job.Progress != nil {
			m.job.Progress(m.progress())
		}
	}
}

// next moves an input on whose window is spent, or that stands before a block.
func (m *merger) next(ctx context.Context, n int) error {
	in := m.inputs[n]
	if in.block == nil {
		return m.named(n, in.load())
	}
	if m.out == nil {
		if err := m.openOutput(ctx); err != nil {
			return err
		}
	}
	copied, err := m.take(n)
	if err != nil || !copied {
		return m.named(n, err)
	}
	if err := m.rotate(); err != nil {
		return err
	}
	return m.named(n, in.load())
}

func (m *merger) named(n int, err error) error {
	if err == nil {
		return nil
	}
	return m.job.Inputs[n].wrap(err)
}

func (m *merger) progress() Progress {
	p := Progress{Rows: m.result.Rows, TotalRows: m.total, BytesOut: m.result.BytesOut}
	for _, in := range m.inputs {
		p.BytesIn += in.reader.n
	}
	if m.out != nil {
		p.BytesOut += m.out.Size()
	}
	return p
}

// write writes the picks at hand.
func (m *merger) write(ctx context.Context) error {
	if len(m.picks) == 0 {
		return nil
	}
	if m.out == nil {
		if err := m.openOutput(ctx); err != nil {
			return err
		}
	}
	m.lineage()
	if err := m.out.AppendPicks(m.cols, m.picks, m.extra); err != nil {
		return m.outputError(err)
	}
	ord := m.ordinals[:0]
	for _, p := range m.picks {
		ord = append(ord, byte(rows.PickSource(p)))
	}
	m.ordinals = ord
	if err := m.fwd.Append(ord); err != nil {
		return err
	}
	n := int64(len(m.picks))
	m.outRows += n
	m.result.Rows += n
	return m.rotate()
}

// rotate ends an output that is large enough, unless little is left.
func (m *merger) rotate() error {
	size := m.out.Size()
	if size < m.target {
		return nil
	}
	left := float64(m.total-m.result.Rows) / float64(m.outRows) * float64(size)
	if left < float64(m.target)/4 {
		return nil
	}
	return m.endOutput()
}

func (m *merger) openOutput(ctx context.Context) error {
	sink, err := m.job.Open(ctx, len(m.result.Outputs))
	if err != nil {
		return fmt.Errorf("open output %d: %w", len(m.result.Outputs), err)
	}
	m.sink = sink
	m.outRows = 0
	if m.out, err = rows.NewWriter(sink, m.opts); err != nil {
		return m.outputError(err)
	}
	return nil
}

func (m *merger) outputError(err error) error {
	return fmt.Errorf("write output %d: %w", len(m.result.Outputs), err)
}

func (m *merger) endOutput() error {
	if m.out == nil {
		return nil
	}
	info, err := m.out.Close()
	if err != nil {
		return m.outputError(err)
	}
	if info.Rows != m.outRows {
		return m.outputError(fmt.Errorf("%d rows are in it, not %d", info.Rows, m.outRows))
	}
	m.fwd.EndOutput()
	sink := m.sink
	m.out, m.sink = nil, nil
	if err := sink.Commit(); err != nil {
		return m.outputError(err)
	}
	m.result.Outputs = append(m.result.Outputs, Output{FileInfo: info, Sorted: m.job.Keys != nil})
	m.result.BytesOut += info.Bytes
	return nil
}

// lineage fills the extra columns of the picks at hand (C6, K3).
func (m *merger) lineage() {
	x, n := &m.extra, len(m.picks)
	if m.opts.RowID {
		x.RowID = resize(x.RowID, n)
		for i, p := range m.picks {
			in, r := m.inputs[rows.PickSource(p)], rows.PickRow(p)
			if in.ids != nil {
				x.RowID[i] = in.ids[r]
			} else {
				x.RowID[i] = in.idBase + int64(r)
			}
		}
	}
	if m.opts.LastSeq {
		x.LastSeq = resize(x.LastSeq, n)
		for i, p := range m.picks {
			in, r := m.inputs[rows.PickSource(p)], rows.PickRow(p)
			if in.seqs != nil {
				x.LastSeq[i] = in.seqs[r]
			} else {
				x.LastSeq[i] = in.src.DataSequence
			}
		}
	}
	if m.opts.Order {
		x.Order, x.HasOrder = resize(x.Order, n), resize(x.HasOrder, n)
		for i, p := range m.picks {
			in, r := m.inputs[rows.PickSource(p)], rows.PickRow(p)
			x.Order[i], x.HasOrder[i] = 0, 0
			if in.order >= 0 && !in.scan.Part(in.order).IsNull(r) {
				x.Order[i], x.HasOrder[i] = in.scan.Part(in.order).Ints()[r], 1
			}
		}
	}
}

// resize gives room for n values of any content.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
