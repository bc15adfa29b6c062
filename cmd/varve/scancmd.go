package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	iceberggo "github.com/apache/iceberg-go"
	icebergio "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"
	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas/iceberg"
)

// scanOptions is what a scan reads.
type scanOptions struct {
	at      snapshotFlags
	where   string
	columns []string
	limit   int64
	lineage bool
}

func (a *app) scanCommand() *cobra.Command {
	var o scanOptions
	cmd := &cobra.Command{
		Use:   "scan TABLE",
		Short: "Print the rows of a table",
		Long: "Prints the rows of a snapshot. The table is read by iceberg-go, from its committed\n" +
			"metadata alone: an independent reader, not varve's own state. Rows come in the order\n" +
			"of files and positions. JSON lines and CSV stream; in CSV a null is nothing and an\n" +
			"empty text is \"\".\n\n--where takes " + whereForms + ".",
		Example: "  varve scan shop.orders --limit 10\n" +
			"  varve scan shop.orders --where \"status = 'paid' AND amount >= 100\" --columns order_id,amount\n" +
			"  varve scan shop.orders --as-of 2026-08-01T10:30:00Z --output jsonl",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.limit < 0 || o.limit == 0 && a.given("limit") {
				return usagef("--limit %d: a limit is 1 or more", o.limit)
			}
			l, err := a.openLake(cmd.Context())
			if err != nil {
				return err
			}
			t, err := a.table(cmd.Context(), l, args[0])
			if err != nil {
				return err
			}
			return a.scan(cmd.Context(), l, t, &o)
		},
	}
	a.dataFlags(cmd.Flags())
	f := cmd.Flags()
	o.at.add(f)
	f.StringVar(&o.where, "where", "", "only rows for which this `expression` holds")
	f.StringSliceVar(&o.columns, "columns", nil, "only these `columns`, in the table's order (default: all)")
	f.Int64Var(&o.limit, "limit", 0, "at most so many `rows` (default: all)")
	f.BoolVar(&o.lineage, "lineage", false, "show _row_id and _last_updated_sequence_number too")
	return cmd
}

func (a *app) scan(ctx context.Context, l *lake, t *lakeTable, o *scanOptions) error {
	var conditions []comparison
	if o.where != "" {
		var err error
		if conditions, err = parseWhere(o.where); err != nil {
			return asUsage(err)
		}
	}
	snapshot, err := t.snapshot(&o.at)
	if err != nil {
		return err
	}
	meta, err := table.ParseMetadataBytes(t.json)
	if err != nil {
		return fmt.Errorf("table %s: iceberg-go does not read %s: %w", t.name, t.location, err)
	}
	tbl := table.New(table.Identifier{t.name}, meta, t.location,
		func(ctx context.Context) (icebergio.IO, error) { return storeIO{ctx, l.store}, nil }, nil)
	// A time travel shows the snapshot's own columns, the newest state the table's.
	schema := tbl.Schema()
	at := []table.ScanOption{table.WithMaxConcurrency(1)}
	if o.at.id != 0 || o.at.asOf != "" {
		schema = snapshotSchema(tbl, snapshot)
		at = append(at, table.WithSnapshotID(snapshot.ID))
	}
	names, err := scanColumns(schema, o)
	if err != nil {
		return asUsage(err)
	}
	if snapshot == nil {
		return a.list(names...).close()
	}
	files, tests, err := filter(conditions, schema)
	if err != nil {
		return asUsage(err)
	}
	read := slices.Clone(at)
	if len(o.columns) > 0 {
		fields := slices.Clone(o.columns)
		for _, t := range tests {
			if !slices.Contains(fields, t.column) {
				fields = append(fields, t.column)
			}
		}
		read = append(read, table.WithSelectedFields(fields...))
	}
	if o.lineage {
		read = append(read, table.WithRowLineage())
	}
	p := &rowPrinter{out: a.list(names...), names: names, tests: tests, left: o.limit}
	if err := p.scan(ctx, tbl.Scan(append(at, table.WithRowFilter(files))...), tbl.Scan(read...)); err != nil {
		return fmt.Errorf("table %s, snapshot %d: %w", t.name, snapshot.ID, err)
	}
	return nil
}

// snapshotSchema is the schema that a snapshot was written with.
func snapshotSchema(tbl *table.Table, s *iceberg.Snapshot) *iceberggo.Schema {
	if s.SchemaID != nil {
		for _, have := range tbl.Metadata().Schemas() {
			if int64(have.ID) == *s.SchemaID {
				return have
			}
		}
	}
	return tbl.Schema()
}

// lineageColumns are read on request only (iceberg.md C6).
var lineageColumns = []string{"_row_id", "_last_updated_sequence_number"}

// scanColumns is the columns of the result.
func scanColumns(schema *iceberggo.Schema, o *scanOptions) ([]string, error) {
	var names []string
	for _, c := range o.columns {
		if _, ok := schema.FindFieldByName(c); !ok {
			return nil, noColumn(c, schema)
		}
	}
	for _, f := range schema.Fields() {
		if len(o.columns) == 0 || slices.Contains(o.columns, f.Name) {
			names = append(names, f.Name)
		}
	}
	if o.lineage {
		names = append(names, lineageColumns...)
	}
	return names, nil
}

// rowPrinter prints the rows of a scan that pass its tests.
type rowPrinter struct {
	out   *listing
	names []string
	tests []rowTest
	left  int64 // rows that may still come; 0 from the start: all
}

// scan prints what read yields of the files that plan names. The reader only
// prunes files by the conditions: its filter of rows ends the process on
// decimals, and rows are tested here anyway, exactly.
func (p *rowPrinter) scan(ctx context.Context, plan, read *table.Scan) error {
	tasks, err := plan.PlanFiles(ctx)
	if err != nil {
		return fmt.Errorf("its manifest list, or a manifest, cannot be read (\"varve verify --deep\" tells which): %w", err)
	}
	for i := range tasks {
		tasks[i].Residual = nil
	}
	done := false
	err = eachBatch(ctx, read, tasks, func(batch arrow.RecordBatch) (bool, error) {
		var err error
		done, err = p.batch(batch)
		return !done, err
	})
	if err != nil {
		return named(ctx, read, tasks, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return p.out.close()
}

// errRead marks errors of the reader.
var errRead = errors.New("read data files")

// eachBatch reads tasks until fn has enough.
func eachBatch(ctx context.Context, read *table.Scan, tasks []table.FileScanTask, fn func(arrow.RecordBatch) (more bool, err error)) error {
	_, records, err := read.ReadTasks(ctx, tasks)
	if err != nil {
		return fmt.Errorf("%w: %w", errRead, err)
	}
	for batch, err := range records {
		if err != nil {
			return fmt.Errorf("%w: %w", errRead, err)
		}
		if more, err := fn(batch); err != nil || !more {
			return err
		}
	}
	return nil
}

// named finds the file that cannot be read: the reader's errors do not tell.
func named(ctx context.Context, read *table.Scan, tasks []table.FileScanTask, err error) error {
	if !errors.Is(err, errRead) {
		return err
	}
	for i := range tasks {
		e := eachBatch(ctx, read, tasks[i:i+1], func(b arrow.RecordBatch) (bool, error) {
			b.Release()
			return true, nil
		})
		if e != nil {
			return fmt.Errorf("data file %s, or its vector: %w", tasks[i].File.FilePath(), e)
		}
	}
	return err
}

// batch prints a batch's rows; done once the limit is reached. Columns are
// found by name.
func (p *rowPrinter) batch(batch arrow.RecordBatch) (done bool, err error) {
	defer batch.Release()
	if batch.NumRows() == 0 {
		return false, nil
	}
	columns := make([]arrow.Array, len(p.names))
	for i, n := range p.names {
		if columns[i], err = columnOf(batch, n); err != nil {
			return false, err
		}
	}
	tested := make([]arrow.Array, len(p.tests))
	for i := range p.tests {
		if tested[i], err = columnOf(batch, p.tests[i].column); err != nil {
			return false, err
		}
	}
	values := make([]any, len(p.names))
next:
	for row := range int(batch.NumRows()) {
		for i := range p.tests {
			pass, err := p.tests[i].pass(tested[i], row)
			if err != nil {
				return false, err
			}
			if !pass {
				continue next
			}
		}
		for i := range columns {
			if values[i], err = arrowValue(columns[i], row); err != nil {
				return false, fmt.Errorf("column %s: %w", p.names[i], err)
			}
		}
		if err := p.out.row(values...); err != nil {
			return false, err
		}
		if p.left--; p.left == 0 {
			return true, nil
		}
	}
	return false, nil
}

func columnOf(batch arrow.RecordBatch, name string) (arrow.Array, error) {
	found := batch.Schema().FieldIndices(name)
	if len(found) != 1 {
		return nil, fmt.Errorf("the reader gave %d columns of name %q", len(found), name)
	}
	return batch.Column(found[0]), nil
}
