package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/statestore/hadoopcat"
)

func (a *app) inspectMetadataCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "metadata PATH",
		Short: "Show a table's metadata file: columns, specs, snapshots, refs, properties",
		Long:  "Shows a metadata file of format version 2 or 3, also a compressed one.\n" + pathHelp,
		Example: "  varve inspect metadata v3.metadata.json\n" +
			"  varve inspect metadata v3.metadata.json --output json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := readPath(cmd.Context(), args[0], hadoopcat.MaxMetadataSize)
			if err != nil {
				return err
			}
			if b, err = gunzip(b); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			m, err := iceberg.ParseMetadata(b)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return a.show(metadataObject(m))
		},
	}
}

// gunzip unpacks what begins like gzip and leaves all else alone.
func gunzip(b []byte) ([]byte, error) {
	if len(b) < 2 || b[0] != 0x1f || b[1] != 0x8b {
		return b, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("compressed metadata: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(r, hadoopcat.MaxMetadataSize+1))
	if err != nil {
		return nil, fmt.Errorf("compressed metadata: %w", err)
	}
	if len(out) > hadoopcat.MaxMetadataSize {
		return nil, errors.New("compressed metadata: it unpacks to more than is read")
	}
	return out, nil
}

func metadataObject(m *iceberg.Metadata) object {
	o := object{
		{"format_version", m.FormatVersion}, {"table_uuid", m.UUID}, {"location", m.Location},
		{"last_sequence_number", m.LastSequence}, {"last_updated", millis(m.LastUpdatedMs)},
		{"last_column_id", m.LastColumnID}, {"current_schema_id", m.CurrentSchema}, {"default_spec_id", m.DefaultSpec},
		{"current_snapshot_id", optional(m.CurrentSnapshot)}, {"next_row_id", m.NextRowID},
	}
	if err := m.CheckWritable(); err != nil {
		o = append(o, field{"not_writable", err.Error()})
	}
	for _, d := range m.Schemas {
		if d.ID == m.CurrentSchema {
			o = append(o, field{"columns", columnRows(d.JSON)})
		}
	}
	specs := &rowset{cols: []string{"spec_id", "field_id", "name", "transform", "source_id"}}
	for _, d := range m.Specs {
		specs.rows = append(specs.rows, specRows(d)...)
	}
	snapshots := &rowset{cols: []string{"sequence", "snapshot_id", "parent_id", "committed", "operation", "schema_id", "first_row_id", "added_rows", "manifest_list"}}
	for i := range m.Snapshots {
		s := &m.Snapshots[i]
		snapshots.rows = append(snapshots.rows, []any{s.Sequence, s.ID, optional(s.ParentID), millis(s.TimestampMs), s.Operation,
			optional(s.SchemaID), optional(s.FirstRowID), optional(s.AddedRows), s.ManifestList})
	}
	refs := &rowset{cols: []string{"name", "type", "snapshot_id"}}
	for i := range m.Refs {
		refs.rows = append(refs.rows, []any{m.Refs[i].Name, m.Refs[i].Type, m.Refs[i].SnapshotID})
	}
	properties := &rowset{cols: []string{"property", "value"}}
	for _, p := range m.Properties {
		properties.rows = append(properties.rows, []any{p.Key, p.Value})
	}
	log := &rowset{cols: []string{"at", "snapshot_id"}}
	for _, e := range m.SnapshotLog {
		log.rows = append(log.rows, []any{millis(e.TimestampMs), e.SnapshotID})
	}
	older := &rowset{cols: []string{"at", "file"}}
	for _, e := range m.MetadataLog {
		older.rows = append(older.rows, []any{millis(e.TimestampMs), e.File})
	}
	return append(o, field{"partition_specs", specs}, field{"snapshots", snapshots}, field{"refs", refs},
		field{"properties", properties}, field{"snapshot_log", log}, field{"metadata_log", older})
}

// columnRows is a schema's columns, nested ones with their type as JSON.
func columnRows(schema json.RawMessage) *rowset {
	rs := &rowset{cols: []string{"field_id", "name", "type", "required", "key", "doc"}}
	var s struct {
		Identifier []int32 `json:"identifier-field-ids"`
		Fields     []struct {
			ID       int32           `json:"id"`
			Name     string          `json:"name"`
			Required bool            `json:"required"`
			Type     json.RawMessage `json:"type"`
			Doc      string          `json:"doc"`
		} `json:"fields"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return rs
	}
	for _, f := range s.Fields {
		var name string
		if json.Unmarshal(f.Type, &name) != nil {
			name = string(appendJSON(nil, f.Type))
		}
		key := false
		for _, id := range s.Identifier {
			key = key || id == f.ID
		}
		var doc any
		if f.Doc != "" {
			doc = f.Doc
		}
		rs.rows = append(rs.rows, []any{f.ID, f.Name, name, f.Required, key, doc})
	}
	return rs
}

func specRows(d iceberg.Document) [][]any {
	var s struct {
		Fields []struct {
			ID        int32  `json:"field-id"`
			Name      string `json:"name"`
			Transform string `json:"transform"`
			Source    int32  `json:"source-id"`
		} `json:"fields"`
	}
	if json.Unmarshal(d.JSON, &s) != nil {
		return nil
	}
	var out [][]any
	for _, f := range s.Fields {
		out = append(out, []any{d.ID, f.ID, f.Name, f.Transform, f.Source})
	}
	return out
}
