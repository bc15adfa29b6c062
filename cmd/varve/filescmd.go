package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
)

func (f *snapshotFlags) add(flags *pflag.FlagSet) {
	flags.Int64Var(&f.id, "snapshot", 0, "`id` of the snapshot to read (default: the newest)")
	flags.StringVar(&f.asOf, "as-of", "", "read the snapshot that was current at this `time`, for example 2026-08-01T10:30:00Z")
}

func (a *app) filesCommand() *cobra.Command {
	var at snapshotFlags
	cmd := &cobra.Command{
		Use:   "files TABLE",
		Short: "List the files of a snapshot with their vectors",
		Long: "Lists the data files of a snapshot and, for each, the deletion vector that applies\n" +
			"to it: how many rows it deletes, in which Puffin it lies. Delete files of other\n" +
			"writers are lines of their own. rows counts what the vector leaves.",
		Example: "  varve files shop.orders\n  varve files shop.orders --snapshot 5932847205113446021 --output csv",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := a.openLake(cmd.Context())
			if err != nil {
				return err
			}
			t, err := a.table(cmd.Context(), l, args[0])
			if err != nil {
				return err
			}
			s, err := t.snapshot(&at)
			if err != nil {
				return err
			}
			return a.listFiles(cmd.Context(), l, t, s)
		},
	}
	a.dataFlags(cmd.Flags())
	at.add(cmd.Flags())
	return cmd
}

// liveEntries calls fn with every live entry of a snapshot's manifests of one
// content, manifest by manifest.
func (l *lake) liveEntries(ctx context.Context, lines []iceberg.ManifestFile, content iceberg.Content, fn func(*iceberg.Manifest, *iceberg.Entry) error) error {
	for i := range lines {
		if lines[i].Content != content {
			continue
		}
		m, err := l.manifest(ctx, &lines[i])
		if err != nil {
			return err
		}
		for j := range m.Entries {
			if m.Entries[j].Status == iceberg.Deleted {
				continue
			}
			if err := fn(m, &m.Entries[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) listFiles(ctx context.Context, l *lake, t *lakeTable, s *iceberg.Snapshot) error {
	out := a.list("file", "content", "partition", "rows", "records", "deleted", "bytes", "sequence", "first_row_id",
		"vector", "vector_offset", "vector_bytes", "vector_sequence")
	if s == nil {
		return out.close()
	}
	lines, err := l.manifests(ctx, s)
	if err != nil {
		return fmt.Errorf("table %s: %w", t.name, err)
	}
	vectors := map[string]iceberg.Entry{}
	var others []iceberg.Entry
	err = l.liveEntries(ctx, lines, iceberg.Deletes, func(_ *iceberg.Manifest, e *iceberg.Entry) error {
		if f := &e.File; f.Content == iceberg.PositionDeletes && f.ReferencedDataFile != nil && strings.EqualFold(f.Format, iceberg.FormatPuffin) {
			vectors[*f.ReferencedDataFile] = *e
		} else {
			others = append(others, *e)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("table %s: %w", t.name, err)
	}
	parts := newPartitionText(t.meta)
	err = l.liveEntries(ctx, lines, iceberg.Data, func(_ *iceberg.Manifest, e *iceberg.Entry) error {
		f := &e.File
		row := []any{t.relative(f.Path), "data", parts.of(f), f.Records, f.Records, int64(0), byteSize(f.Bytes),
			optional(e.Sequence), optional(f.FirstRowID), nil, nil, nil, nil}
		if v, ok := vectors[f.Path]; ok {
			row[3], row[5] = f.Records-v.File.Records, v.File.Records
			row[9], row[10], row[11], row[12] = t.relative(v.File.Path), optional(v.File.ContentOffset), optionalBytes(v.File.ContentSize), optional(v.Sequence)
		}
		return out.row(row...)
	})
	if err != nil {
		return fmt.Errorf("table %s: %w", t.name, err)
	}
	for i := range others {
		f := &others[i].File
		if err := out.row(t.relative(f.Path), contentName(f.Content), parts.of(f), nil, f.Records, nil, byteSize(f.Bytes),
			optional(others[i].Sequence), nil, nil, nil, nil, nil); err != nil {
			return err
		}
	}
	return out.close()
}

func contentName(c iceberg.Content) string {
	switch c {
	case iceberg.Data:
		return "data"
	case iceberg.PositionDeletes:
		return "position deletes"
	case iceberg.EqualityDeletes:
		return "equality deletes"
	}
	return fmt.Sprintf("content %d", c)
}

func optionalBytes(p *int64) any {
	if p == nil {
		return nil
	}
	return byteSize(*p)
}

// relative is a path under the table's location without it; others stay whole.
func (t *lakeTable) relative(path string) string {
	if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(t.meta.Location, "/")+"/"); ok {
		return rest
	}
	return path
}

// partitionText writes partition tuples as name=value/…
type partitionText struct {
	meta  *iceberg.Metadata
	specs map[int32]*specText
}

type specText struct {
	fields []schemas.PartitionField
	types  []schemas.Type
	err    error
}

func newPartitionText(m *iceberg.Metadata) *partitionText {
	return &partitionText{meta: m, specs: map[int32]*specText{}}
}

// of is a file's partition; null when its table has none.
func (p *partitionText) of(f *iceberg.DataFile) any {
	st := p.specs[f.SpecID]
	if st == nil {
		st = p.load(f.SpecID)
		p.specs[f.SpecID] = st
	}
	if st.err != nil {
		return fmt.Sprintf("(spec %d: %s)", f.SpecID, st.err)
	}
	if len(st.fields) == 0 {
		return nil
	}
	text, err := tupleText(st.fields, st.types, f.Partition)
	if err != nil {
		return fmt.Sprintf("(spec %d: %s)", f.SpecID, err)
	}
	return text
}

func (p *partitionText) load(id int32) *specText {
	spec, err := p.meta.Spec(int64(id))
	if err != nil {
		return &specText{err: err}
	}
	// A dropped source column is in an older schema.
	var from []*schemas.Schema
	current, err := p.meta.Schema(p.meta.CurrentSchema)
	if err != nil {
		return &specText{err: err}
	}
	from = append(from, current)
	for i := range p.meta.Schemas {
		if s, err := p.meta.Schema(p.meta.Schemas[i].ID); err == nil {
			from = append(from, s)
		}
	}
	types, err := iceberg.PartitionTypes(spec, from...)
	return &specText{fields: spec.Fields, types: types, err: err}
}

func tupleText(fields []schemas.PartitionField, types []schemas.Type, tuple []byte) (string, error) {
	values, err := schemas.DecodeTuple(tuple, len(fields))
	if err != nil {
		return "", err
	}
	var b []byte
	for i, v := range values {
		if i > 0 {
			b = append(b, '/')
		}
		b = append(b, fields[i].Name...)
		b = append(b, '=')
		if v == nil {
			b = append(b, "null"...)
			continue
		}
		if b, err = schemas.AppendText(b, types[i], v); err != nil {
			return "", err
		}
	}
	return string(b), nil
}
