package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/varve-io/varve/processors/adopt"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/topology"
)

// otherTable says which Iceberg table of another program is meant.
type otherTable struct {
	location string
	snapshot int64
	ref      string
}

func (o *otherTable) add(f *pflag.FlagSet) {
	f.StringVar(&o.location, "iceberg", "", "metadata file or folder of an Iceberg table in the warehouse, as a path or `URL`")
	f.Int64Var(&o.snapshot, "snapshot", 0, "of --iceberg: the `snapshot` (default: the newest)")
	f.StringVar(&o.ref, "ref", "", "of --iceberg: the newest snapshot of a `branch or tag`")
}

func (o *otherTable) check() error {
	switch {
	case o.location == "" && (o.snapshot != 0 || o.ref != ""):
		return usagef("--snapshot and --ref are of the table that --iceberg names")
	case o.snapshot != 0 && o.ref != "":
		return usagef("give one of --snapshot and --ref")
	case o.snapshot < 0:
		return usagef("--snapshot %d: it is no snapshot", o.snapshot)
	}
	return nil
}

func (o *otherTable) what() (adopt.What, error) {
	w := adopt.What{Location: o.location, Snapshot: o.snapshot, Ref: o.ref}
	if !strings.Contains(w.Location, ":/") {
		full, err := filepath.Abs(w.Location)
		if err != nil {
			return w, usagef("--iceberg %s: %w", o.location, err)
		}
		w.Location = filepath.ToSlash(full)
	}
	return w, nil
}

func (o *otherTable) read(ctx context.Context, s *session) (*adopt.Table, error) {
	what, err := o.what()
	if err != nil {
		return nil, err
	}
	return s.ReadIceberg(ctx, what)
}

// definitionLike is a table's definition over the columns of another table, with
// their field ids, and partitioned as that is unless the flags say otherwise.
func (w *wish) definitionLike(src *adopt.Table) (schemas.Definition, []string, error) {
	d, notes, err := w.definition(*src.Schema)
	if err != nil {
		return d, nil, err
	}
	if src.LastColumnID >= schemas.MaxFieldID {
		return d, nil, usagef("%s: its last column id is %d, and no column has one above %d: none could be added to a table that has its ids", src.Metadata, src.LastColumnID, schemas.MaxFieldID)
	}
	d.LastColumnID = max(d.LastColumnID, src.LastColumnID)
	theirs := src.Spec(src.DefaultSpec)
	if len(w.partitions) > 0 || theirs == nil {
		return d, notes, nil
	}
	var next schemas.Spec
	for i := range theirs.Fields {
		if f := theirs.Fields[i]; f.Transform != schemas.Void {
			next.Fields = append(next.Fields, f)
		}
	}
	check := d
	check.Specs = nil
	if err := check.CheckNextSpec(&next); err != nil {
		return d, append(notes, fmt.Sprintf("the table is not partitioned as that one is: %v", err)), nil
	}
	d.Specs = []schemas.Spec{next}
	for i := range next.Fields {
		d.LastPartitionID = max(d.LastPartitionID, next.Fields[i].FieldID)
	}
	return d, notes, nil
}

// importIceberg takes the files of another table as they lie.
func (a *app) importIceberg(ctx context.Context, s *session, table string, of *otherTable, dryRun, noWait bool) error {
	t, err := s.Table(ctx, table)
	if errors.Is(err, topology.ErrNoTable) {
		return fmt.Errorf("%w; make it with \"varve table create %s --iceberg %s\", a --key and a --format", err, table, of.location)
	}
	if err != nil {
		return err
	}
	src, err := of.read(ctx, s)
	if err != nil {
		return err
	}
	bar := a.progress()
	defer bar.done()
	step := func(what string, of int) func(int) {
		done := 0
		return func(n int) {
			done += n
			bar.set(float64(done)/float64(max(of, 1)), "%s: %d of %d files", what, done, of)
		}
	}
	one := step("reading footers and keys", len(src.Files))
	fit, err := src.Check(ctx, t.Definition, func() { one(1) })
	if err != nil {
		return err
	}
	result := object{
		{"table", table}, {"from", src.Metadata}, {"format_version", src.FormatVersion}, {"from_snapshot_id", idOrNull(src.Snapshot)},
		{"files", int64(len(fit.Items))}, {"rows", fit.Rows - fit.Dead}, {"records", fit.Rows}, {"deleted", fit.Dead}, {"bytes", byteSize(fit.Bytes)},
		{"dead_files", fit.Empty},
	}
	if dryRun {
		bar.done()
		refused := &rowset{cols: []string{"file", "why"}}
		for _, r := range fit.Refused {
			refused.rows = append(refused.rows, []any{r.Path, r.Why.Error()})
		}
		if err := a.show(append(result, field{"imported", false}, field{"refused", refused})); err != nil || len(fit.Refused) == 0 {
			return err
		}
		return fmt.Errorf("import of %s: %d of its %d files cannot be taken, so none would be", src.Metadata, len(fit.Refused), len(src.Files))
	}
	if n := len(fit.Refused); n > 0 {
		return fmt.Errorf("import of %s: %d of its %d files cannot be taken, so none is; --dry-run lists them; the first is %s: %w", src.Metadata, n, len(src.Files), fit.Refused[0].Path, fit.Refused[0].Why)
	}
	if err := a.keysAreTaken(ctx, s, t); err != nil {
		return err
	}
	took := step("taking files", len(fit.Items))
	out, err := s.Adopt(ctx, t, fit, fmt.Sprintf("import of %s, snapshot %d", src.UUID, src.Snapshot), took)
	if err != nil {
		return fmt.Errorf("%w; %d of %d files are in the table; the same import again goes on there", err, out.Files+out.Already, len(fit.Items))
	}
	bar.done()
	if out.Already > 0 {
		a.notef("note: the table has, or had, %d of the files; of those nothing is taken again, nor what that table has deleted of them since", out.Already)
	}
	result = append(result, field{"imported", true}, field{"files_taken", out.Files}, field{"files_there", out.Already})
	return a.showImported(ctx, s, table, result, out.Offsets, noWait)
}

// keysAreTaken makes sure that somebody takes the keys of what comes: without a
// source topic a keyed table has no shard, and files would be held for ever.
func (a *app) keysAreTaken(ctx context.Context, s *session, t *statestore.TableInfo) error {
	if !t.Definition.Keyed() || len(t.Shards) > 0 {
		return nil
	}
	n, err := a.topicPartitions(ctx, s.Brokers(), t.Definition.SourceTopic)
	if err == nil && n == 0 {
		err = usagef("table %s has no source topic %s yet, so that nobody would take the keys of what comes; make the topic, or load the table's first events", t.Name, t.Definition.SourceTopic)
	}
	return err
}

// showImported waits until a snapshot shows what these records brought.
func (a *app) showImported(ctx context.Context, s *session, table string, result object, offsets []int64, noWait bool) error {
	if len(offsets) == 0 || noWait {
		return a.show(append(result, field{"visible", false}))
	}
	through, err := s.WaitKeysTaken(ctx, table, offsets)
	if err != nil {
		return err
	}
	if err := s.WaitVisible(ctx, table, through); err != nil {
		return err
	}
	t, err := s.Table(ctx, table)
	if err != nil {
		return err
	}
	return a.show(append(result, field{"visible", true}, field{"offset", offsets[len(offsets)-1]},
		field{"snapshot_id", idOrNull(t.Head.SnapshotID)}, field{"metadata_location", textOrNull(t.Head.MetadataPath)}))
}
