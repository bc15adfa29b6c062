package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
	"github.com/spf13/cobra"

	"github.com/varve-io/varve/statestore/objstore"
)

func (a *app) inspectParquetCommand() *cobra.Command {
	var chunks bool
	cmd := &cobra.Command{
		Use:   "parquet PATH",
		Short: "Show a Parquet file's columns, row groups and sizes",
		Long:  "Shows the footer of a Parquet file; no page is read.\n" + pathHelp,
		Example: "  varve inspect parquet 3-1-1.parquet\n" +
			"  varve inspect parquet 3-1-1.parquet --chunks --output csv",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withPath(cmd.Context(), args[0], func(o objstore.Object) error {
				m, err := parquetFooter(o)
				if err != nil {
					return err
				}
				if chunks {
					return a.showChunks(m)
				}
				return a.showRows(parquetObject(m, o.Size()), "columns")
			})
		},
	}
	cmd.Flags().BoolVar(&chunks, "chunks", false, "show every column chunk of every row group instead")
	return cmd
}

// parquetFooter reads a footer with a library that, unlike our own reader of
// data files, knows every writer's features. It may panic on damaged bytes.
func parquetFooter(o objstore.Object) (m *format.FileMetaData, err error) {
	defer func() {
		if r := recover(); r != nil {
			m, err = nil, fmt.Errorf("the footer is damaged: %v", r)
		}
	}()
	if err := checkParquetTail(o); err != nil {
		return nil, err
	}
	f, err := parquet.OpenFile(o, o.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, fmt.Errorf("no Parquet file: %w", err)
	}
	if len(f.Metadata().Schema) == 0 {
		return nil, errors.New("no Parquet file: its footer has no schema")
	}
	return f.Metadata(), nil
}

// maxParquetFooter bounds a footer in bytes: some 100,000 column chunks.
const maxParquetFooter = 64 << 20

// checkParquetTail reads the footer's length before the library does, which
// allocates whatever it says.
func checkParquetTail(o objstore.Object) error {
	const smallest = 12
	if o.Size() < smallest {
		return fmt.Errorf("no Parquet file: %d bytes, and the smallest has %d", o.Size(), smallest)
	}
	var tail [8]byte
	if _, err := o.ReadAt(tail[:], o.Size()-8); err != nil {
		return fmt.Errorf("read the last 8 bytes: %w", err)
	}
	if string(tail[4:]) != "PAR1" {
		return fmt.Errorf("no Parquet file: it ends with % x, not with PAR1 (an encrypted footer ends with PARE and is not read)", tail[4:])
	}
	if n := int64(binary.LittleEndian.Uint32(tail[:])); n > maxParquetFooter || n > o.Size()-smallest {
		return fmt.Errorf("the footer is damaged: it says %d bytes, in a file of %d", n, o.Size())
	}
	return nil
}

type parquetLeaf struct {
	path    string
	element *format.SchemaElement
}

// parquetLeaves flattens the schema's tree to its columns, in file order.
func parquetLeaves(elements []format.SchemaElement) []parquetLeaf {
	var out []parquetLeaf
	at := 1
	var walk func(prefix []string, children int32, depth int)
	walk = func(prefix []string, children int32, depth int) {
		for ; children > 0 && at < len(elements) && depth < 100; children-- {
			e := &elements[at]
			at++
			path := append(prefix[:len(prefix):len(prefix)], e.Name)
			if n, ok := e.NumChildren.Get(); ok && n > 0 {
				walk(path, n, depth+1)
				continue
			}
			out = append(out, parquetLeaf{strings.Join(path, "."), e})
		}
	}
	if n, ok := elements[0].NumChildren.Get(); ok {
		walk(nil, n, 0)
	}
	return out
}

func parquetObject(m *format.FileMetaData, size int64) object {
	columns := &rowset{cols: []string{"column", "field_id", "type", "logical_type", "repetition", "codec", "encodings", "bytes", "uncompressed_bytes", "values", "nulls"}}
	for i, leaf := range parquetLeaves(m.Schema) {
		e := leaf.element
		var id, physical, logical, repetition, codec, nulls any
		if e.FieldID != 0 {
			id = e.FieldID
		}
		if t, ok := e.Type.Get(); ok {
			physical = t.String()
			if n, ok := e.TypeLength.Get(); ok && t == format.FixedLenByteArray {
				physical = fmt.Sprintf("%s(%d)", t, n)
			}
		}
		if e.LogicalType.Value != nil {
			logical = e.LogicalType.String()
		} else if c, ok := e.ConvertedType.Get(); ok {
			logical = fmt.Sprintf("converted type %d", c)
		}
		if r, ok := e.RepetitionType.Get(); ok {
			repetition = strings.ToLower(r.String())
		}
		var packed, unpacked, values, nullCount int64
		encodings := []string{}
		for g := range m.RowGroups {
			if i >= len(m.RowGroups[g].Columns) {
				continue
			}
			c := &m.RowGroups[g].Columns[i].MetaData
			packed += c.TotalCompressedSize
			unpacked += c.TotalUncompressedSize
			values += c.NumValues
			nullCount += c.Statistics.NullCount
			nulls = nullCount
			codec = c.Codec.String()
			for _, enc := range c.Encoding {
				encodings = addText(encodings, enc.String())
			}
		}
		columns.rows = append(columns.rows, []any{leaf.path, id, physical, logical, repetition, codec, encodings, byteSize(packed), byteSize(unpacked), values, nulls})
	}
	groups := &rowset{cols: []string{"row_group", "rows", "bytes", "uncompressed_bytes"}}
	for g := range m.RowGroups {
		rg := &m.RowGroups[g]
		groups.rows = append(groups.rows, []any{g, rg.NumRows, byteSize(rg.TotalCompressedSize), byteSize(rg.TotalByteSize)})
	}
	properties := &rowset{cols: []string{"property", "value"}}
	for _, kv := range m.KeyValueMetadata {
		properties.rows = append(properties.rows, []any{kv.Key, kv.Value})
	}
	return object{
		{"kind", "parquet"}, {"bytes", byteSize(size)}, {"rows", m.NumRows}, {"created_by", m.CreatedBy},
		{"columns", columns}, {"row_groups", groups}, {"properties", properties},
	}
}

func addText(list []string, s string) []string {
	for _, have := range list {
		if have == s {
			return list
		}
	}
	return append(list, s)
}

func (a *app) showChunks(m *format.FileMetaData) error {
	out := a.list("row_group", "column", "codec", "encodings", "offset", "bytes", "uncompressed_bytes", "values", "nulls")
	leaves := parquetLeaves(m.Schema)
	for g := range m.RowGroups {
		for i := range m.RowGroups[g].Columns {
			c := &m.RowGroups[g].Columns[i].MetaData
			name := strings.Join(c.PathInSchema, ".")
			if i < len(leaves) {
				name = leaves[i].path
			}
			encodings := []string{}
			for _, enc := range c.Encoding {
				encodings = addText(encodings, enc.String())
			}
			offset := c.DataPageOffset
			if c.DictionaryPageOffset > 0 {
				offset = min(offset, c.DictionaryPageOffset)
			}
			if err := out.row(g, name, c.Codec.String(), encodings, offset, byteSize(c.TotalCompressedSize), byteSize(c.TotalUncompressedSize),
				c.NumValues, c.Statistics.NullCount); err != nil {
				return err
			}
		}
	}
	return out.close()
}
