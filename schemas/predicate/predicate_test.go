package predicate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

func field(id int32, name string, t schemas.Type) schemas.Field {
	return schemas.Field{ID: id, Name: name, Type: t}
}

func testSchema() *schemas.Schema {
	of := schemas.Of
	return &schemas.Schema{Fields: []schemas.Field{
		field(1, "id", of(schemas.Long)), field(2, "small", of(schemas.Int)), field(3, "ratio", of(schemas.Double)),
		field(4, "price", schemas.DecimalOf(9, 2)), field(5, "wide", schemas.DecimalOf(30, 1)), field(6, "name", of(schemas.String)),
		field(7, "flag", of(schemas.Boolean)), field(8, "day", of(schemas.Date)), field(9, "at", of(schemas.TimestampTz)),
		field(10, "code", schemas.FixedOf(20)), field(11, "a b", of(schemas.Binary)), field(12, "nr", of(schemas.UUID)), field(13, "single", of(schemas.Float)),
	}}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		in   string
		at   int
		want string
	}{
		{"", 1, "no condition"},
		{"  ", 1, "no condition"},
		{"id", 3, "followed by no comparison"},
		{"id = ", 6, "compared with a value"},
		{"id = 'secret'", 6, "column id is a long and takes a number, not a text"},
		{"name = 4711", 8, "column name is a string and takes a text, not a number"},
		{"name = secret", 8, "compared with a value"},
		{"flag = 1", 8, "takes a boolean, not a number"},
		{"id = 1 OR OR", 11, "column's name"},
		{"id = 1 id = 2", 8, "AND or OR"},
		{"(id = 1", 1, "not closed"},
		{"(id = 1 name", 9, "closing parenthesis"},
		{"id = 1)", 7, "AND or OR"},
		{"ID = 1", 1, "do you mean id?"},
		{"secret = 1", 1, "no column of this name (columns: id, small"},
		{"name = 'secret", 8, "quote is not closed"},
		{"id IS 5", 7, "NULL or NOT NULL"},
		{"id = NULL", 6, "write id IS NULL"},
		{"id IN (1, NULL)", 11, "write id IS NULL"},
		{"id NOT = 1", 8, "followed by IN"},
		{"id IN 1", 7, "in parentheses"},
		{"id IN (1; 2)", 9, "no meaning"},
		{"id IN ()", 8, "compared with a value"},
		{"id IN (1 2)", 10, "comma or the closing parenthesis"},
		{"small = 3000000000", 9, "cannot hold this value"},
		{"small = 1.5", 9, "column small is a int, which this is not"},
		{"id = 99999999999999999999", 6, "column id is a long, which this is not"},
		{"price = 1.234", 9, "column price is a decimal(9, 2)"},
		{"day = 'yesterday'", 7, "write '2006-01-02'"},
		{"code = 'abcd'", 8, "column code is a fixed[20]"},
		{"nr = 'x'", 6, "column nr is a uuid"},
		{"ratio = 'NaN'", 9, "takes a number"},
		{"é = 1", 1, "no column of this name"},
		{"id = 1 AND \"é\" ! 2", 12, "no column"}, {"name = 'é' ! 2", 12, "no meaning"},
		{"id = 1; DROP", 7, "no meaning"},
		{strings.Repeat("(", 300) + "id = 1", 202, "within each other"},
		{strings.Repeat("NOT ", 300) + "id = 1", 805, "within each other"},
		{"name = '\xff'", 1, "UTF-8"},
		{strings.Repeat(" ", MaxText+1), 1, "longer"},
	} {
		_, err := Parse(c.in, testSchema())
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%.40q: %v, want an Error", c.in, err)
			continue
		}
		if e.At != c.at || !strings.Contains(e.What, c.want) {
			t.Errorf("%.40q: %v, want character %d: …%s…", c.in, err, c.at, c.want)
		}
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "4711") {
			t.Errorf("%.40q: the error repeats user data: %v", c.in, err)
		}
	}
}

// cell is a value as the model has it: nil, int64, float64, *big.Int (unscaled),
// []byte.
type cell any

// test3 is SQL's truth: nil is unknown.
type test3 = *bool

func yes(b bool) test3 { return &b }

// modelNode is a predicate as the model has it, with its text.
type modelNode struct {
	text string
	eval func(row []cell) test3
}

// cells of each column, the texts that name them, few enough to meet often.
type domain struct {
	field  schemas.Field
	values []cell
	texts  []string
}

func domains() []domain {
	s := testSchema()
	d := []domain{
		{values: []cell{int64(-3), int64(0), int64(7), int64(math.MaxInt64)}, texts: []string{"-3", "0", "+7", "9223372036854775807"}},
		{values: []cell{int64(-1), int64(1), int64(2)}, texts: []string{"-1", "1", "2"}},
		{values: []cell{-1.5, 0.0, 0.1, 2.0}, texts: []string{"-1.5", "0", "1e-1", "2"}},
		{values: []cell{big.NewInt(-250), big.NewInt(0), big.NewInt(999)}, texts: []string{"-2.50", "0", "9.990"}},
		{values: []cell{big.NewInt(-10), big.NewInt(5), new(big.Int).Exp(big.NewInt(10), big.NewInt(28), nil)}, texts: []string{"-1", ".5", "1000000000000000000000000000"}},
		{values: []cell{[]byte(""), []byte("a"), []byte("it's"), []byte(strings.Repeat("é", 20)), []byte(strings.Repeat("é", 20) + "z")},
			texts: []string{"''", "'a'", "'it''s'", "'" + strings.Repeat("é", 20) + "'", "'" + strings.Repeat("é", 20) + "z'"}},
		{values: []cell{int64(0), int64(1)}, texts: []string{"FALSE", "true"}},
		{values: []cell{int64(-1), int64(0), int64(20000)}, texts: []string{"'1969-12-31'", "'1970-01-01'", "'2024-10-04'"}},
		{values: []cell{int64(0), int64(1_000_000), int64(86_400_000_000)}, texts: []string{"'1970-01-01'", "'1970-01-01 01:00:01+01:00'", "'1970-01-02T00:00:00'"}},
		{values: []cell{bytes.Repeat([]byte{0}, 20), bytes.Repeat([]byte{255}, 20), append(bytes.Repeat([]byte{7}, 19), 1)},
			texts: []string{"'" + strings.Repeat("00", 20) + "'", "'" + strings.Repeat("FF", 20) + "'", "'" + strings.Repeat("07", 19) + "01'"}},
		{values: []cell{[]byte{}, []byte{1, 2}, bytes.Repeat([]byte{255}, 18)}, texts: []string{"''", "'0102'", "'" + strings.Repeat("ff", 18) + "'"}},
		{values: []cell{bytes.Repeat([]byte{0x11}, 16), bytes.Repeat([]byte{0xee}, 16)}, texts: []string{"'11111111-1111-1111-1111-111111111111'", "'eeeeeeee-eeee-eeee-eeee-eeeeeeeeeeee'"}},
		{values: []cell{-0.5, 0.25, float64(float32(0.1))}, texts: []string{"-0.5", "0.25", "0.1"}},
	}
	for i := range d {
		d[i].field = s.Fields[i]
	}
	return d
}

func compareCells(a, b cell) (int, bool) {
	switch x := a.(type) {
	case int64:
		return cmp.Compare(x, b.(int64)), true
	case float64:
		y := b.(float64)
		return cmp.Compare(x, y), x == x && y == y
	case *big.Int:
		return x.Cmp(b.(*big.Int)), true
	}
	return bytes.Compare(a.([]byte), b.([]byte)), true
}

func drawTest(t *rapid.T) modelNode {
	ds := domains()
	i := rapid.IntRange(0, len(ds)-1).Draw(t, "column")
	d := &ds[i]
	col := d.field.Name
	if strings.Contains(col, " ") || rapid.IntRange(0, 9).Draw(t, "quoted") == 0 {
		col = `"` + col + `"`
	}
	pick := func() (cell, string) {
		k := rapid.IntRange(0, len(d.values)-1).Draw(t, "value")
		return d.values[k], d.texts[k]
	}
	switch o := rapid.SampledFrom([]string{"=", "!=", "<>", "<", "<=", ">", ">=", "IN", "NOT IN", "IS NULL", "IS NOT NULL"}).Draw(t, "op"); o {
	case "IS NULL":
		return modelNode{col + " is null", func(row []cell) test3 { return yes(row[i] == nil) }}
	case "IS NOT NULL":
		return modelNode{col + " Is Not Null", func(row []cell) test3 { return yes(row[i] != nil) }}
	case "IN", "NOT IN":
		var vs []cell
		var texts []string
		for range rapid.IntRange(1, 3).Draw(t, "values") {
			v, s := pick()
			vs, texts = append(vs, v), append(texts, s)
		}
		return modelNode{col + " " + o + "(" + strings.Join(texts, " ,") + ")", func(row []cell) test3 {
			if row[i] == nil {
				return nil
			}
			found := slices.ContainsFunc(vs, func(v cell) bool { c, ok := compareCells(row[i], v); return ok && c == 0 })
			return yes(found == (o == "IN"))
		}}
	default:
		v, s := pick()
		return modelNode{col + o + s, func(row []cell) test3 {
			if row[i] == nil {
				return nil
			}
			c, ok := compareCells(row[i], v)
			if !ok { // a NaN
				return yes(o == "!=" || o == "<>")
			}
			return yes(map[string]bool{"=": c == 0, "!=": c != 0, "<>": c != 0, "<": c < 0, "<=": c <= 0, ">": c > 0, ">=": c >= 0}[o])
		}}
	}
}

func drawNode(t *rapid.T, depth int) modelNode {
	form := 0
	if depth > 0 {
		form = rapid.IntRange(0, 5).Draw(t, "form")
	}
	switch form {
	case 1, 2, 3:
		word := "AND"
		if form == 3 {
			word = "or"
		}
		a, b := drawNode(t, depth-1), drawNode(t, depth-1)
		return modelNode{"(" + a.text + ") " + word + " (" + b.text + ")", func(row []cell) test3 {
			x, y := a.eval(row), b.eval(row)
			decides := form == 3 // a true decides OR, a false AND
			switch {
			case x != nil && *x == decides, y != nil && *y == decides:
				return yes(decides)
			case x == nil || y == nil:
				return nil
			}
			return yes(!decides)
		}}
	case 4:
		a := drawNode(t, depth-1)
		return modelNode{"NOT (" + a.text + ")", func(row []cell) test3 {
			if x := a.eval(row); x != nil {
				return yes(!*x)
			}
			return nil
		}}
	}
	return drawTest(t)
}

func appendCell(c *rows.Column, v cell) {
	switch x := v.(type) {
	case nil:
		c.AppendNull()
	case int64:
		c.AppendInt(x)
	case float64:
		c.AppendFloat(x)
	case *big.Int:
		if c.Storage == rows.Ints {
			c.AppendInt(x.Int64())
			return
		}
		b := make([]byte, 16)
		if x.Sign() < 0 {
			x = new(big.Int).Add(x, new(big.Int).Lsh(big.NewInt(1), 128))
		}
		x.FillBytes(b)
		c.AppendBytes(b)
	case []byte:
		c.AppendBytes(x)
	}
}

// A file's rows match as the model says, and no row group that has one that
// does is ruled out by its statistics.
func TestMatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ds := domains()
		schema := testSchema()
		b := rows.NewBatch(schema)
		var model [][]cell
		n := rapid.IntRange(1, 40).Draw(t, "rows")
		nulls := rapid.IntRange(0, 4).Draw(t, "nulls")
		span := rapid.IntRange(1, 5).Draw(t, "span")
		for i := range n {
			var row []cell
			for k := range ds {
				var v cell
				vs := ds[k].values[:min(span, len(ds[k].values))]
				switch x := rapid.IntRange(0, 9).Draw(t, "cell"); {
				case x < nulls:
				case x == 9 && (k == 2 || k == 12) && rapid.Bool().Draw(t, "nan"):
					v = math.NaN()
				default:
					v = vs[x%len(vs)]
				}
				appendCell(&b.Cols[k], v)
				row = append(row, v)
			}
			b.AppendEvent(rows.Upsert, int64(i), 0, false)
			model = append(model, row)
		}
		var buf bytes.Buffer
		w, err := rows.NewWriter(&buf, rows.WriteOptions{Schema: schema, RowGroupRows: 8, PageRows: 4})
		if err == nil {
			err = w.Append(b, nil, rows.Extra{})
		}
		if err == nil {
			_, err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		f, err := rows.Open(bytes.NewReader(buf.Bytes()), int64(buf.Len()))
		if err != nil {
			t.Fatal(err)
		}
		m := drawNode(t, 4)
		p, err := Parse(m.text, schema)
		if err != nil {
			t.Fatalf("%s: %v", m.text, err)
		}
		var want, got []uint32
		for i, row := range model {
			if x := m.eval(row); x != nil && *x {
				want = append(want, uint32(i))
			}
		}
		s, err := f.Scan(p.Fields(), 0, f.NumRows(), 0)
		if err != nil {
			t.Fatal(err)
		}
		e := p.Evaluator()
		for {
			n, err := s.Next(5)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			at := len(got)
			got = e.Matches(got, s.Part, n)
			for i := range got[at:] {
				got[at+i] += uint32(s.Row())
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s\nmatches %v, want %v", m.text, got, want)
		}
		first := int64(0)
		for g := range f.NumRowGroups() {
			end := first + f.GroupRows(g)
			has := slices.ContainsFunc(want, func(r uint32) bool { return int64(r) >= first && int64(r) < end })
			if has && !p.May(func(i int) (rows.Bounds, bool) { return f.GroupBounds(g, &p.Fields()[i]) }) {
				t.Fatalf("%s\nrow group %d is ruled out", m.text, g)
			}
			first = end
		}
	})
}

// Statistics rule out what they can.
func TestMay(t *testing.T) {
	schema := testSchema()
	b := rows.NewBatch(schema)
	for i := range 20 {
		for k := range b.Cols {
			switch k {
			case 0:
				b.Cols[k].AppendInt(int64(100 + i))
			case 5:
				b.Cols[k].AppendBytes(fmt.Appendf(nil, "name %02d", i))
			default:
				b.Cols[k].AppendNull()
			}
		}
		b.AppendEvent(rows.Upsert, int64(i), 0, false)
	}
	var buf bytes.Buffer
	w, err := rows.NewWriter(&buf, rows.WriteOptions{Schema: schema})
	if err == nil {
		err = w.Append(b, nil, rows.Extra{})
	}
	if err == nil {
		_, err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := rows.Open(bytes.NewReader(buf.Bytes()), int64(buf.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]bool{
		"id = 100": true, "id = 99": false, "id = 120": false, "id IN (1, 119)": true, "id IN (1, 2)": false, "id < 100": false, "id <= 100": true,
		"id > 119": false, "id >= 119": true, "NOT id >= 100": false, "NOT id > 100": true, "id = 1 OR name = 'name 05'": true, "id = 1 AND name = 'name 05'": false,
		"name < 'name'": false, "name >= 'name 2'": false, "id IS NULL": false, "id IS NOT NULL": true, "small IS NULL": true, "small IS NOT NULL": false, "small != 4": false,
	} {
		p, err := Parse(in, schema)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.May(func(i int) (rows.Bounds, bool) { return f.GroupBounds(0, &p.Fields()[i]) }); got != want {
			t.Errorf("%s: %v, want %v", in, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"id = 1", "NOT (name IN ('a', 'it''s') OR \"a b\" IS NOT NULL)", "price<>-1e2AND`day`>='2024-01-01'", "flag = TRUE and not not id<1", "((("} {
		f.Add(s)
	}
	schema := testSchema()
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse(s, schema)
		var e *Error
		switch {
		case err == nil && len(p.Fields()) == 0:
			t.Fatal("a predicate without columns")
		case err != nil && !errors.As(err, &e):
			t.Fatalf("%v is no Error", err)
		case err == nil:
			p.May(func(int) (rows.Bounds, bool) { return rows.Bounds{Rows: 1, Nulls: 1}, true })
		}
	})
}
