package readers

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/iceberg-go/catalog/rest"
	icebergio "github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"
)

func readIcebergGo(ctx context.Context, metadata string, o Options) (*Table, error) {
	if o.Filter != "" {
		return nil, fmt.Errorf("no filters with iceberg-go here")
	}
	tbl, err := openIcebergGo(ctx, metadata, &o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEngine, err)
	}
	opts := []table.ScanOption{table.WithMaxConcurrency(1)}
	if o.Snapshot != 0 {
		opts = append(opts, table.WithSnapshotID(o.Snapshot))
	}
	if len(o.Columns) > 0 {
		opts = append(opts, table.WithSelectedFields(o.Columns...))
	}
	if o.Lineage {
		opts = append(opts, table.WithRowLineage())
	}
	got, err := tbl.Scan(opts...).ToArrowTable(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEngine, err)
	}
	defer got.Release()

	t := &Table{Rows: make([][]*string, got.NumRows())}
	order := columnOrder(got.Schema(), o.Lineage)
	for i := range t.Rows {
		t.Rows[i] = make([]*string, len(order))
	}
	for at, c := range order {
		t.Columns = append(t.Columns, got.Schema().Field(c).Name)
		row := 0
		for _, chunk := range got.Column(c).Data().Chunks() {
			for i := 0; i < chunk.Len(); i++ {
				if t.Rows[row][at], err = arrowText(chunk, i); err != nil {
					return nil, fmt.Errorf("column %s: %w", t.Columns[at], err)
				}
				row++
			}
		}
	}
	return t, nil
}

func (o *Options) fs(metadata string) func(context.Context) (icebergio.IO, error) {
	if o.Locate == nil {
		return icebergio.LoadFSFunc(o.Properties, metadata)
	}
	return func(context.Context) (icebergio.IO, error) { return located{o.Locate}, nil }
}

// located reads the files of another place from a local folder.
type located struct{ locate func(string) string }

func (l located) Open(name string) (icebergio.File, error) { return os.Open(l.locate(name)) }

func (l located) Remove(name string) error {
	return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrPermission}
}

func openIcebergGo(ctx context.Context, at string, o *Options) (*table.Table, error) {
	if o.REST == nil {
		return table.NewFromLocation(ctx, table.Identifier{"varve", "test"}, at, o.fs(at), nil)
	}
	opts := []rest.Option{rest.WithAdditionalProps(o.Properties)}
	if o.REST.Token != "" {
		opts = append(opts, rest.WithOAuthToken(o.REST.Token))
	}
	c, err := rest.NewCatalog(ctx, "varve", o.REST.URI, opts...)
	if err != nil {
		return nil, err
	}
	return c.LoadTable(ctx, strings.Split(at, "."))
}

// columnOrder puts the lineage columns first, as Options.Lineage says.
func columnOrder(s *arrow.Schema, lineage bool) []int {
	var first, rest []int
	for i, f := range s.Fields() {
		if lineage && (f.Name == "_row_id" || f.Name == "_last_updated_sequence_number") {
			first = append(first, i)
		} else {
			rest = append(rest, i)
		}
	}
	return append(first, rest...)
}

func arrowText(a arrow.Array, i int) (*string, error) {
	if a.IsNull(i) {
		return nil, nil
	}
	var s string
	var err error
	switch a := a.(type) {
	case *array.Boolean, *array.Int32, *array.Int64, *array.String, *array.LargeString:
		s = a.ValueStr(i)
	case *array.Float32:
		s = floatText(float64(a.Value(i)), true)
	case *array.Float64:
		s = floatText(a.Value(i), false)
	case *array.Decimal128:
		s = a.Value(i).ToString(a.DataType().(*arrow.Decimal128Type).Scale)
	case *array.Date32:
		s, err = temporalText("date", int64(a.Value(i)))
	case *array.Time64:
		s, err = temporalText("time_"+a.DataType().(*arrow.Time64Type).Unit.String(), int64(a.Value(i)))
	case *array.Timestamp:
		t := a.DataType().(*arrow.TimestampType)
		kind := "timestamp_" + t.Unit.String()
		if t.TimeZone != "" {
			kind += "_tz"
		}
		s, err = temporalText(kind, int64(a.Value(i)))
	case *array.Binary:
		s = hex.EncodeToString(a.Value(i))
	case *array.LargeBinary:
		s = hex.EncodeToString(a.Value(i))
	case *array.FixedSizeBinary:
		s = hex.EncodeToString(a.Value(i))
	case *extensions.UUIDArray:
		s = a.Value(i).String()
	case *array.Struct, array.ListLike:
		var v any
		if v, err = arrowNested(a, i); err == nil {
			s, err = NestedText(v)
		}
	default:
		return nil, fmt.Errorf("no text form for Arrow type %s", a.DataType())
	}
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// arrowNested is a value inside of a nested one, or such a one, as reader.py has it.
func arrowNested(a arrow.Array, i int) (any, error) {
	if a.IsNull(i) {
		return nil, nil
	}
	var err error
	switch a := a.(type) {
	case *array.Struct:
		out := map[string]any{}
		for f, field := range a.DataType().(*arrow.StructType).Fields() {
			if out[field.Name], err = arrowNested(a.Field(f), i); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *array.Map:
		out := []any{}
		for from, to := a.ValueOffsets(i); from < to; from++ {
			key, err := arrowNested(a.Keys(), int(from))
			if err != nil {
				return nil, err
			}
			value, err := arrowNested(a.Items(), int(from))
			if err != nil {
				return nil, err
			}
			out = append(out, map[string]any{"key": key, "value": value})
		}
		return out, nil
	case array.ListLike:
		out := []any{}
		for from, to := a.ValueOffsets(i); from < to; from++ {
			v, err := arrowNested(a.ListValues(), int(from))
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	}
	text, err := arrowText(a, i)
	if err != nil {
		return nil, err
	}
	switch a.(type) {
	case *array.Boolean, *array.Int32, *array.Int64, *array.Float32, *array.Float64:
		return json.RawMessage(*text), nil
	}
	return *text, nil
}
