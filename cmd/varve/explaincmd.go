package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

func (a *app) explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain TABLE KEY",
		Short: "Tell where the versions of one key lived, and what ended each",
		Long: "Reads the table's log and the key columns of its data files, and lists what befell one\n" +
			"key: versions written (file, row, source range), versions that died, requests that\n" +
			"named it, jobs that carried it over, and after each the first snapshot that shows it.\n" +
			"KEY is a value, or column=value,column=value where the key has several columns. It reads\n" +
			"every data file of the table once.",
		Example: "  varve explain shop.orders 1005\n  varve explain shop.lines order_id=1005,line=2 --output jsonl",
		Args:    cobra.ExactArgs(2),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.with(cmd.Context(), readRoles, func(s *session) error {
			t, err := s.Table(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !t.Definition.Keyed() {
				return usagef("table %s has no key", args[0])
			}
			set, err := newKeySet(t.Definition)
			if err != nil {
				return err
			}
			if strings.Contains(args[1], "=") {
				err = set.addFlag(args[1])
			} else {
				err = set.addLine([]byte(args[1]))
			}
			if err != nil {
				return asUsage(err)
			}
			e := explainer{s: s, t: t, set: set, key: set.keys[0], at: map[uint64]placed{}}
			if err := s.Transactions(cmd.Context(), args[0], 0, func(d *processors.Decided) error { return e.record(cmd.Context(), d) }); err != nil {
				return err
			}
			out := a.list("offset", "time", "what", "file", "row", "source", "snapshot_id")
			for _, l := range e.lines {
				var file, row, src, snapshot any = textOrNull(l.file), nil, textOrNull(l.source), nil
				if l.file != "" {
					row = l.row
				}
				if l.snapshot != 0 {
					snapshot = l.snapshot
				}
				if err := out.row(l.offset, millis(l.timeMs), l.what, file, row, src, snapshot); err != nil {
					return err
				}
			}
			if err := out.close(); err != nil {
				return err
			}
			for _, n := range e.notes {
				a.notef("%s", n)
			}
			return nil
		})
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	return cmd
}

type explained struct {
	offset, timeMs int64
	what           string
	file           string
	row            int64
	source         string
	snapshot       int64
}

// keyVersion is one row of the key, wherever jobs carry it.
type keyVersion struct {
	written, died int64 // log offsets; died is 0 while it lives
	file          string
	row           int64
}

// placed is where a version was in a file. A delete block may name a file that
// a job has rewritten since (P2).
type placed struct {
	row int64
	v   *keyVersion
}

// explainer follows one key through the log.
type explainer struct {
	s     *session
	t     *statestore.TableInfo
	set   *keySet
	key   []byte
	at    map[uint64]placed // by file id: the row that has the key
	all   []*keyVersion
	lines []explained
	shown int // lines that have their snapshot
	notes []string
}

func (e *explainer) record(ctx context.Context, d *processors.Decided) error {
	o := &d.Outcome
	if o.TableID != e.t.ID || o.Derived || o.Outcome.Code == record.Rejected {
		return nil
	}
	switch o.Type {
	case record.TypeAppendRows, record.TypeDeleteKeys, record.TypeSnapshotCommitted, record.TypeCompleteJob, record.TypeDeletePositions, record.TypeRowsFound,
		record.TypeAddFiles, record.TypeAdoptFiles, record.TypeForeignSnapshot:
	default:
		return nil
	}
	env, body, err := e.s.Bodies().Open(ctx, d.Record.Key, d.Record.Header, d.Record.Value)
	if err != nil {
		return fmt.Errorf("log offset %d: %w", o.Offset, err)
	}
	v, err := record.DecodeBody(env.Type, env.TypeVersion, body)
	if err != nil {
		return fmt.Errorf("log offset %d: %w", o.Offset, err)
	}
	line := explained{offset: o.Offset, timeMs: d.Record.TimeMs}
	switch v := v.(type) {
	case *record.AppendRows:
		line.source = fmt.Sprintf("%s/%d [%d, %d)", v.Shard.Topic, v.Shard.Partition, v.SourceFrom, v.SourceTo)
		if err := e.died(line, v.Deletes); err != nil {
			return err
		}
		for i := range v.Files {
			f := &v.Files[i]
			name := schemas.DataFileName(e.t.ID, v.Epoch, statestore.FileCounter(f.ID))
			if err := e.file(ctx, line, name, func(l *explained) {
				x := &keyVersion{written: o.Offset, file: name, row: l.row}
				l.what, e.at[f.ID], e.all = "written", placed{l.row, x}, append(e.all, x)
			}); err != nil {
				return err
			}
		}
		return e.died(line, v.Deletes) // of its own files too
	case *record.DeletePositions:
		return e.died(line, v.Deletes)
	case *record.RowsFound:
		return e.died(line, v.Deletes)
	case *record.DeleteKeys:
		b, err := e.s.Bodies().Get(ctx, &v.Keys)
		if errors.Is(err, processors.ErrBodyMissing) {
			e.notes = append(e.notes, fmt.Sprintf("the keys of the request at log offset %d are not there any more", o.Offset))
			return nil
		}
		if err != nil {
			return err
		}
		var k record.KeysBody
		if err := record.DecodeKeysBody(b, &k); err != nil {
			return err
		}
		for _, key := range k.Keys {
			if bytes.Equal(key, e.key) {
				line.what = "a request asked to delete it"
				e.lines = append(e.lines, line)
			}
		}
	case *record.CompleteJob:
		return e.completed(ctx, line, o, v)
	case *record.AddFiles:
		return e.imported(ctx, line, o, len(v.Items), func(i int) (string, []byte) { return schemas.JobFileName(v.Items[i].Name), nil })
	case *record.AdoptFiles:
		return e.imported(ctx, line, o, len(v.Items), func(i int) (string, []byte) { return v.Items[i].Path, v.Items[i].Dead })
	case *record.ForeignSnapshot:
		return e.foreign(ctx, line, o, v)
	case *record.SnapshotCommitted:
		if v.SnapshotID == 0 {
			return nil
		}
		for ; e.shown < len(e.lines) && e.lines[e.shown].offset < v.Build; e.shown++ {
			e.lines[e.shown].snapshot = v.SnapshotID
		}
	}
	return nil
}

// completed tells of the key's rows in what jobs wrote: the version that lived
// when the job was planned. It may have died since; then it is dead there, too (F4).
func (e *explainer) completed(ctx context.Context, line explained, o *record.OutcomeMessage, c *record.CompleteJob) error {
	rejected, err := o.Outcome.Rejected(len(c.Items))
	if err != nil {
		return fmt.Errorf("log offset %d: %w", o.Offset, err)
	}
	if len(o.Outcome.Numbers) < 3 {
		return fmt.Errorf("log offset %d: the outcome of completed jobs has %d numbers, not 3", o.Offset, len(o.Outcome.Numbers))
	}
	id := uint64(o.Outcome.Numbers[2])
	for i := range c.Items {
		if rejected[i] {
			continue
		}
		plan := c.Items[i].Job.Plan
		for _, f := range c.Items[i].Outputs {
			// One counter numbers all kinds of outputs (F24): a block names it as one of them.
			name, counter := schemas.JobFileName(f.Name), statestore.FileCounter(id)
			id++
			if err := e.file(ctx, line, name, func(l *explained) {
				l.what = "carried over by a job"
				for _, x := range e.all {
					if x.written > plan || x.died > 0 && x.died <= plan {
						continue
					}
					if x.file, x.row = name, l.row; x.died > 0 {
						l.what = "carried over by a job while it died"
					}
					for _, writer := range statestore.OutputWriters {
						e.at[statestore.FileID(writer, counter)] = placed{l.row, x}
					}
				}
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// died tells of blocks that name a row of the key that lives.
func (e *explainer) died(line explained, blocks []record.DeleteBlock) error {
	for i := range blocks {
		at, ok := e.at[blocks[i].File]
		if !ok || at.v.died > 0 {
			continue // P5: it says nothing anew
		}
		set, err := dv.ReadBitmap(blocks[i].Bitmap)
		if err != nil {
			return fmt.Errorf("log offset %d: %w", line.offset, err)
		}
		if set.Contains(uint32(at.row)) {
			l := line
			at.v.died = l.offset
			l.what, l.file, l.row = "a version died", at.v.file, at.v.row
			e.lines = append(e.lines, l)
		}
	}
	return nil
}

// file tells of the key's row in a data file.
func (e *explainer) file(ctx context.Context, line explained, name string, found func(*explained)) error {
	location := e.t.Definition.Location + "/data/" + name
	if strings.Contains(name, "://") {
		location = name // another writer's
	}
	key, ok := e.s.Store().Key(location)
	if !ok {
		return fmt.Errorf("data file %s lies outside of the warehouse", location)
	}
	obj, err := e.s.Store().Open(ctx, key)
	if errors.Is(err, objstore.ErrNotFound) {
		e.notes = append(e.notes, fmt.Sprintf("data file %s of log offset %d is not there any more", name, line.offset))
		return nil
	}
	if err != nil {
		return err
	}
	defer obj.Close()
	f, err := rows.Open(obj, obj.Size())
	if err != nil {
		return fmt.Errorf("data file %s: %w", location, err)
	}
	var want []schemas.Field
	for _, id := range e.set.encoder.Fields() {
		want = append(want, e.set.schema.Fields[e.set.schema.ByID(id)])
	}
	row := int64(0)
	var b []byte
	for g := range f.NumRowGroups() {
		cols, err := f.ReadGroup(g, want)
		if err != nil {
			return fmt.Errorf("data file %s: %w", location, err)
		}
		for i := range int(f.GroupRows(g)) {
			if slices.ContainsFunc(cols, func(c rows.Column) bool { return c.IsNull(i) }) {
				row++ // others may write such rows
				continue
			}
			if b, err = e.set.encoder.AppendFrom(b[:0], cols, i); err != nil {
				return fmt.Errorf("data file %s: %w", location, err)
			}
			if bytes.Equal(b, e.key) {
				l := line
				l.file, l.row = name, row
				found(&l)
				e.lines = append(e.lines, l)
			}
			row++
		}
	}
	return nil
}
