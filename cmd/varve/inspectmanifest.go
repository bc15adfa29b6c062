package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
)

func (a *app) inspectManifestCommand() *cobra.Command {
	var metrics bool
	cmd := &cobra.Command{
		Use:   "manifest PATH",
		Short: "Show a manifest's entries, or a manifest list's lines",
		Long: "Shows a manifest or a manifest list of format versions 1 to 3. What an entry leaves\n" +
			"to the list (sequence numbers, first row id) is null here; \"varve files\" fills it in.\n" + pathHelp,
		Example: "  varve inspect manifest 5f0c…-m0.avro\n" +
			"  varve inspect manifest 5f0c…-m0.avro --metrics\n" +
			"  varve inspect manifest snap-59328….avro --output json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := readPath(cmd.Context(), args[0], maxManifestBytes)
			if err != nil {
				return err
			}
			m, err := iceberg.ReadManifest(b)
			if err == nil && (len(m.Entries) > 0 || len(m.SchemaJSON) > 0) {
				if metrics {
					return a.showManifestMetrics(m)
				}
				return a.showRows(manifestObject(m), "entries")
			}
			lines, listErr := iceberg.ReadManifestList(b)
			if listErr != nil {
				return fmt.Errorf("%s: read as a manifest: %w; read as a manifest list: %w",
					args[0], errors.Join(err, emptyIf(err == nil)), listErr)
			}
			if metrics {
				return usagef("%s is a manifest list, which has no column metrics; leave --metrics out", args[0])
			}
			return a.showRows(listObject(lines), "manifests")
		},
	}
	cmd.Flags().BoolVar(&metrics, "metrics", false, "show counts and bounds of each file's columns instead (bounds are values of the table)")
	return cmd
}

func emptyIf(empty bool) error {
	if empty {
		return errors.New("it has no entries and no schema")
	}
	return nil
}

// manifestSpec is the partition fields and types that a manifest's header tells.
func manifestSpec(m *iceberg.Manifest) ([]schemas.PartitionField, []schemas.Type, error) {
	if len(m.SpecJSON) == 0 {
		return nil, nil, nil
	}
	spec, err := iceberg.ParseSpec(fmt.Appendf(nil, `{"spec-id":%d,"fields":%s}`, m.SpecID, m.SpecJSON))
	if err != nil {
		return nil, nil, err
	}
	if len(spec.Fields) == 0 {
		return nil, nil, nil
	}
	schema, err := schemas.ParseSchema(m.SchemaJSON)
	if err != nil {
		return nil, nil, err
	}
	types, err := iceberg.PartitionTypes(&spec, &schema)
	return spec.Fields, types, err
}

func statusName(s iceberg.Status) string {
	switch s {
	case iceberg.Existing:
		return "existing"
	case iceberg.Added:
		return "added"
	case iceberg.Deleted:
		return "deleted"
	}
	return fmt.Sprintf("status %d", s)
}

func optionalText(p *string) any {
	if p == nil {
		return nil
	}
	return *p
}

func manifestObject(m *iceberg.Manifest) object {
	content := "data"
	if m.Content == iceberg.Deletes {
		content = "deletes"
	}
	entries := &rowset{cols: []string{"status", "content", "file", "format", "partition", "records", "bytes", "snapshot_id", "sequence", "file_sequence",
		"first_row_id", "referenced_file", "content_offset", "content_bytes", "equality_ids", "sort_order_id", "split_offsets"}}
	fields, types, specErr := manifestSpec(m)
	for i := range m.Entries {
		e := &m.Entries[i]
		f := &e.File
		var partition any
		if specErr != nil {
			partition = "(" + specErr.Error() + ")"
		} else if len(fields) > 0 {
			text, err := tupleText(fields, types, f.Partition)
			if err != nil {
				text = "(" + err.Error() + ")"
			}
			partition = text
		}
		var sortOrder any
		if f.SortOrderID != nil {
			sortOrder = *f.SortOrderID
		}
		entries.rows = append(entries.rows, []any{statusName(e.Status), contentName(f.Content), f.Path, f.Format, partition, f.Records, byteSize(f.Bytes),
			optional(e.SnapshotID), optional(e.Sequence), optional(e.FileSequence), optional(f.FirstRowID), optionalText(f.ReferencedDataFile),
			optional(f.ContentOffset), optionalBytes(f.ContentSize), numbersJSON(f.EqualityIDs), sortOrder, numbersJSON(f.SplitOffsets)})
	}
	return object{
		{"kind", "manifest"}, {"format_version", m.FormatVersion}, {"content", content}, {"partition_spec_id", m.SpecID},
		{"partition_spec", m.SpecJSON}, {"entries", entries}, {"columns", columnRows(m.SchemaJSON)},
	}
}

// numbersJSON is a list of numbers; null when the file has none.
func numbersJSON[T int32 | int64](v []T) any {
	if v == nil {
		return nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil // integers always have a JSON form
	}
	return json.RawMessage(b)
}

func (a *app) showManifestMetrics(m *iceberg.Manifest) error {
	out := a.list("file", "field_id", "column", "bytes", "values", "nulls", "nans", "lower", "upper")
	schema, schemaErr := schemas.ParseSchema(m.SchemaJSON)
	for i := range m.Entries {
		f := &m.Entries[i].File
		ids := map[int32]bool{}
		var order []int32
		note := func(id int32) {
			if !ids[id] {
				ids[id] = true
				order = append(order, id)
			}
		}
		for _, list := range [][]iceberg.IDCount{f.ValueCounts, f.ColumnSizes, f.NullCounts, f.NaNCounts} {
			for _, c := range list {
				note(c.ID)
			}
		}
		for _, list := range [][]iceberg.IDBytes{f.Lower, f.Upper} {
			for _, b := range list {
				note(b.ID)
			}
		}
		for _, id := range order {
			var name any
			var typ *schemas.Type
			if schemaErr == nil {
				if j := schema.ByID(id); j >= 0 {
					name, typ = schema.Fields[j].Name, &schema.Fields[j].Type
				}
			}
			var size any
			if v, ok := countOf(f.ColumnSizes, id).(int64); ok {
				size = byteSize(v)
			}
			if err := out.row(f.Path, id, name, size, countOf(f.ValueCounts, id), countOf(f.NullCounts, id), countOf(f.NaNCounts, id),
				boundText(f.Lower, id, typ), boundText(f.Upper, id, typ)); err != nil {
				return err
			}
		}
	}
	return out.close()
}

func countOf(list []iceberg.IDCount, id int32) any {
	for _, c := range list {
		if c.ID == id {
			return c.Count
		}
	}
	return nil
}

// boundText is a bound as text; in hex when its type is not known.
func boundText(list []iceberg.IDBytes, id int32, t *schemas.Type) any {
	for _, b := range list {
		if b.ID != id {
			continue
		}
		if t != nil {
			if text, err := schemas.AppendText(nil, *t, b.Value); err == nil {
				return string(text)
			}
		}
		return fmt.Sprintf("%x", b.Value)
	}
	return nil
}

func listObject(lines []iceberg.ManifestFile) object {
	rs := &rowset{cols: []string{"manifest", "content", "bytes", "partition_spec_id", "sequence", "min_sequence", "added_snapshot_id",
		"added_files", "existing_files", "deleted_files", "added_rows", "existing_rows", "deleted_rows", "first_row_id"}}
	for i := range lines {
		m := &lines[i]
		content := "data"
		if m.Content == iceberg.Deletes {
			content = "deletes"
		}
		rs.rows = append(rs.rows, []any{m.Path, content, byteSize(m.Length), m.SpecID, m.Sequence, m.MinSequence, m.AddedSnapshotID,
			m.AddedFiles, m.ExistingFiles, m.DeletedFiles, m.AddedRows, m.ExistingRows, m.DeletedRows, optional(m.FirstRowID)})
	}
	return object{{"kind", "manifest list"}, {"manifests", rs}}
}
