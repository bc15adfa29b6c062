package source

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// table makes a definition from lines "name type [required] [default=JSON]".
func table(t testing.TB, columns string, key ...string) *schemas.Definition {
	t.Helper()
	s := schemas.Schema{}
	for _, line := range strings.Split(strings.TrimSpace(columns), "\n") {
		line = strings.TrimSpace(line)
		name, rest, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, `"`) {
			end := strings.Index(line[1:], `"`) + 1
			name, rest = line[1:end], strings.TrimSpace(line[end+1:])
		}
		f := schemas.Field{ID: int32(len(s.Fields) + 1), Name: name}
		if r, d, ok := strings.Cut(rest, " default="); ok {
			rest, f.WriteDefault = r, []byte(d)
		}
		rest, f.Required = strings.CutSuffix(rest, " required")
		var err error
		if f.Type, err = schemas.ParseType(rest); err != nil {
			t.Fatal(err)
		}
		s.Fields = append(s.Fields, f)
	}
	s.AssignIDs(s.HighestID())
	d := &schemas.Definition{Name: "t", Schemas: []schemas.Schema{s}}
	for _, k := range key {
		i := s.ByName(k)
		if i < 0 {
			t.Fatalf("no key column %q", k)
		}
		d.Key = append(d.Key, s.Fields[i].ID)
		d.Schemas[0].Fields[i].Required = true
		d.Schemas[0].Identifier = append(d.Schemas[0].Identifier, s.Fields[i].ID)
	}
	return d
}

func decoder(t testing.TB, format string, d *schemas.Definition, options ...string) Decoder {
	t.Helper()
	o := Options{Format: format, Def: d, Schema: d.Schema(), Registry: suiteRegistry}
	for _, opt := range options {
		k, v, _ := strings.Cut(opt, "=")
		o.Options = append(o.Options, schemas.Property{Key: k, Value: v})
	}
	dec, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return dec
}

// show writes a batch's events, a line each: what a reader of the table sees.
func show(b *rows.Batch, from int) string {
	var s strings.Builder
	for i := from; i < b.Len(); i++ {
		s.WriteString(map[rows.Op]string{rows.Upsert: "upsert", rows.Delete: "delete"}[b.Ops[i]])
		if b.HasOrder[i] == 1 {
			fmt.Fprintf(&s, " order=%d", b.Order[i])
		}
		for c := range b.Cols {
			if b.Ops[i] == rows.Delete && b.Cols[c].IsNull(i) {
				continue
			}
			fmt.Fprintf(&s, " %s=%s", b.Schema.Fields[c].Name, showValue(&b.Cols[c], i))
		}
		for _, c := range b.Carries {
			if c.Row != i {
				continue
			}
			fmt.Fprintf(&s, " carried=%s", b.Schema.Fields[c.Col].Name)
			if c.From >= 0 {
				fmt.Fprintf(&s, " from %s=%s", b.Schema.Fields[0].Name, showValue(&b.Was.Cols[0], c.From))
			}
		}
		s.WriteByte('\n')
	}
	return s.String()
}

func showValue(c *rows.Column, i int) string {
	if c.IsNull(i) {
		return "null"
	}
	switch c.Type.Kind {
	case schemas.Struct, schemas.List, schemas.Map:
		b, err := rows.NewNestedText(c.Type).Append(nil, c.BytesAt(i))
		if err != nil {
			return err.Error()
		}
		return string(b)
	case schemas.Boolean:
		return strconv.FormatBool(c.Ints[i] == 1)
	case schemas.Float, schemas.Double:
		bits := 64
		if c.Type.Kind == schemas.Float {
			bits = 32
		}
		return strconv.FormatFloat(c.Floats[i], 'g', -1, bits)
	case schemas.Decimal:
		u := new(big.Int)
		if c.Storage == rows.Ints {
			u.SetInt64(c.Ints[i])
		} else if u.SetBytes(c.BytesAt(i)); c.BytesAt(i)[0] >= 0x80 {
			u.Sub(u, new(big.Int).Lsh(big.NewInt(1), 128))
		}
		return decimalText(u, int(c.Type.Scale))
	case schemas.String:
		return strconv.Quote(string(c.BytesAt(i)))
	case schemas.Binary, schemas.Fixed, schemas.UUID:
		return "0x" + hex.EncodeToString(c.BytesAt(i))
	}
	return strconv.FormatInt(c.Ints[i], 10)
}

// showError writes a Reject or a SchemaChange.
func showError(t testing.TB, err error) string {
	t.Helper()
	var j *Reject
	var c *SchemaChange
	switch {
	case errors.As(err, &j):
		return fmt.Sprintf("reject %s kind=%s: %s\n", j.Code, [...]string{"unknown", "upsert", "delete"}[j.Kind], j.Reason)
	case errors.As(err, &c):
		var s strings.Builder
		for _, f := range c.Add {
			fmt.Fprintf(&s, "add %s %s", f.Name, f.Type)
			if f.Required || f.ID != 0 {
				s.WriteString(" (wrong: required or with an id)")
			}
			if f.InitialDefault != nil {
				fmt.Fprintf(&s, " default=%s", f.InitialDefault)
			}
			if string(f.InitialDefault) != string(f.WriteDefault) {
				fmt.Fprintf(&s, " write-default=%s", f.WriteDefault)
			}
			s.WriteByte('\n')
		}
		for _, f := range c.Widen {
			fmt.Fprintf(&s, "widen %s (%d) to %s\n", f.Name, f.ID, f.Type)
		}
		return s.String()
	}
	t.Fatalf("neither a Reject nor a SchemaChange: %v", err)
	return ""
}

// alter applies a SchemaChange to a definition, as the caller of a decoder does.
func alter(d *schemas.Definition, c *SchemaChange) {
	s := *d.Schema()
	s.Fields = append([]schemas.Field(nil), s.Fields...)
	for _, w := range c.Widen {
		s.Fields[s.ByID(w.ID)].Type = w.Type
	}
	s.Fields = append(s.Fields, c.Add...)
	s.AssignIDs(s.HighestID())
	s.ID++
	d.Schemas = append(d.Schemas, s)
	d.CurrentSchema = s.ID
}

// record reads one record of a test file: an optional line "key: …", then the
// value. "null" by itself on a line after "value:" is a null value.
func record(in string) *Record {
	rec := &Record{Offset: 7}
	in = strings.TrimSpace(in)
	if rest, ok := strings.CutPrefix(in, "key: "); ok {
		key, value, _ := strings.Cut(rest, "\n")
		if key != "null" {
			rec.Key = []byte(key)
		}
		in = value
	}
	if in != "(null)" {
		rec.Value = []byte(in)
	}
	return rec
}

func optionsOf(d *datadriven.TestData) (format string, options []string, key []string, order string) {
	format = DebeziumJSON
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "format":
			format = a.Vals[0]
		case "key":
			key = a.Vals
		case "order":
			order = a.Vals[0]
		default:
			options = append(options, a.Key+"="+strings.Join(a.Vals, ","))
		}
	}
	return format, options, key, order
}

// TestData runs the files of testdata: what is given, and what a decoder
// makes of it. `table` makes a table and its decoder, `decode` decodes one
// record, `alter` decodes it, applies the SchemaChange and decodes it again.
func TestData(t *testing.T) {
	datadriven.Walk(t, "testdata/decode", func(t *testing.T, path string) {
		var def *schemas.Definition
		var dec Decoder
		var format string
		var options []string
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "table":
				var key []string
				var order string
				format, options, key, order = optionsOf(d)
				def = table(t, d.Input, key...)
				if i := def.Schema().ByName(order); i >= 0 {
					def.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: def.Schema().Fields[i].ID}
				} else if order != "" {
					def.Order = schemas.Order{Kind: schemas.OrderByPath, Path: order}
				}
				dec = decoder(t, format, def, options...)
				return ""
			case "decode", "alter":
				b := rows.NewBatch(def.Schema())
				rec := record(d.Input)
				res, err := dec.Decode(b, rec)
				if err != nil {
					if b.Len() != 0 {
						return "events stay appended after an error"
					}
					out := showError(t, err)
					var c *SchemaChange
					if d.Cmd == "alter" && errors.As(err, &c) {
						alter(def, c)
						dec = decoder(t, format, def, options...)
						b = rows.NewBatch(def.Schema())
						if res, err = dec.Decode(b, rec); err != nil {
							return out + showError(t, err)
						}
						return out + show(b, 0)
					}
					return out
				}
				if res.Control {
					return "control\n"
				}
				if res.Events != b.Len() {
					return fmt.Sprintf("result says %d events of %d", res.Events, b.Len())
				}
				return show(b, 0)
			case "framing":
				lines := strings.Split(d.Input, "\n")
				var s strings.Builder
				seen := map[uint64]int{}
				for _, l := range lines {
					k, err := strconv.Unquote(`"` + strings.ReplaceAll(l, `"`, `\"`) + `"`)
					if err != nil {
						t.Fatal(err)
					}
					f := dec.Framing([]byte(k))
					if _, ok := seen[f]; !ok && f != 0 {
						seen[f] = len(seen) + 1
					}
					fmt.Fprintf(&s, "%d\n", seen[f])
				}
				return s.String()
			case "discover":
				format, options, key, _ := optionsOf(d)
				var props []schemas.Property
				for _, o := range options {
					k, v, _ := strings.Cut(o, "=")
					props = append(props, schemas.Property{Key: k, Value: v})
				}
				var sample []Record
				for _, in := range strings.Split(d.Input, "\n\n") {
					sample = append(sample, *record(in))
				}
				return showDiscovered(Discover(nil, format, props, sample, key))
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

func showDiscovered(s *schemas.Schema, notes []string, err error) string {
	var out strings.Builder
	if err != nil {
		fmt.Fprintf(&out, "error: %v\n", err)
	} else {
		for _, f := range s.Fields {
			fmt.Fprintf(&out, "%d %s %s", f.ID, f.Name, f.Type)
			if f.Required {
				out.WriteString(" required")
			}
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "key %v\n", s.Identifier)
	}
	for _, n := range notes {
		fmt.Fprintf(&out, "note: %s\n", n)
	}
	return out.String()
}

// fixture is a file of the folder of outside fixtures.
func fixture(t *testing.T, name string) []byte {
	t.Helper()
	dir := os.Getenv("VARVE_FIXTURES")
	if dir == "" {
		t.Skip("VARVE_FIXTURES is unset: the same shapes are in testdata")
	}
	b, err := os.ReadFile(filepath.Join(dir, "data", "cdc", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func props(options []string) (p []schemas.Property) {
	for _, o := range options {
		k, v, _ := strings.Cut(o, "=")
		p = append(p, schemas.Property{Key: k, Value: v})
	}
	return p
}
