package predicate

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// MaxText bounds a predicate, in bytes.
const MaxText = 256 << 10

// maxDepth bounds parentheses and NOTs within each other.
const maxDepth = 200

// Predicate is a condition on rows of a schema. It may be used by several
// goroutines, each with an Evaluator of its own.
type Predicate struct {
	root   node
	fields []schemas.Field
}

// Fields are the columns that it reads, each once.
func (p *Predicate) Fields() []schemas.Field { return p.fields }

type op uint8

const (
	isNull op = iota
	equal
	notEqual
	less
	lessEqual
	greater
	greaterEqual
	in
)

var ops = map[string]op{"=": equal, "!=": notEqual, "<>": notEqual, "<": less, "<=": lessEqual, ">": greater, ">=": greaterEqual}

// node is an AND or OR of others, or a test of one column. NOTs stand at tests.
type node struct {
	kids []node
	or   bool

	col int // index into Predicate.fields
	op  op
	not bool
	// The literals, ascending, of the column's storage.
	values values
}

// values are literals of one storage.
type values struct {
	typ    schemas.Type
	ints   []int64
	floats []float64
	bytes  [][]byte
}

// Parse reads a predicate on rows of a schema. Its errors are of type *Error.
func Parse(s string, schema *schemas.Schema) (*Predicate, error) {
	if len(s) > MaxText {
		return nil, wrong(1, "the predicate is longer than %d bytes", MaxText)
	}
	if !utf8.ValidString(s) {
		return nil, wrong(1, "the predicate is not UTF-8")
	}
	p := parser{lex: lexer{s: s}, schema: schema, out: new(Predicate)}
	if err := p.step(); err != nil {
		return nil, err
	}
	if p.tok.kind == end {
		return nil, wrong(1, "there is no condition")
	}
	root, err := p.expr(false, 0)
	if err != nil {
		return nil, err
	}
	if p.tok.kind != end {
		return nil, wrong(p.tok.at, "the condition before is whole; what follows is AND or OR")
	}
	p.out.root = root
	return p.out, nil
}

type parser struct {
	lex    lexer
	tok    token
	schema *schemas.Schema
	out    *Predicate
}

func (p *parser) step() (err error) {
	p.tok, err = p.lex.next()
	return err
}

// expr reads an expression under an even or odd number of NOTs, by De Morgan.
func (p *parser) expr(not bool, depth int) (node, error) {
	return p.list("or", !not, not, depth, p.and)
}

func (p *parser) and(not bool, depth int) (node, error) { return p.list("and", not, not, depth, p.not) }

func (p *parser) list(joint string, or, not bool, depth int, item func(bool, int) (node, error)) (node, error) {
	n := node{or: or}
	for {
		kid, err := item(not, depth)
		if err != nil {
			return node{}, err
		}
		n.kids = append(n.kids, kid)
		if !p.tok.is(joint) {
			break
		}
		if err := p.step(); err != nil {
			return node{}, err
		}
	}
	if len(n.kids) == 1 {
		return n.kids[0], nil
	}
	return n, nil
}

func (p *parser) not(not bool, depth int) (node, error) {
	if depth > maxDepth {
		return node{}, wrong(p.tok.at, "more than %d parentheses and NOTs within each other", maxDepth)
	}
	switch {
	case p.tok.is("not"):
		if err := p.step(); err != nil {
			return node{}, err
		}
		return p.not(!not, depth+1)
	case p.tok.sym("("):
		open := p.tok.at
		if err := p.step(); err != nil {
			return node{}, err
		}
		n, err := p.expr(not, depth+1)
		if err != nil {
			return node{}, err
		}
		if !p.tok.sym(")") {
			if p.tok.kind == end {
				return node{}, wrong(open, "the parenthesis is not closed")
			}
			return node{}, wrong(p.tok.at, "the condition before is whole; what follows is AND, OR or a closing parenthesis")
		}
		return n, p.step()
	}
	return p.test(not)
}

// test reads a test of a column.
func (p *parser) test(not bool) (node, error) {
	t := p.tok
	if t.kind != name && (t.kind != word || keyword(&t)) {
		return node{}, wrong(t.at, "here stands a column's name, NOT or a parenthesis")
	}
	at := slices.IndexFunc(p.schema.Fields, func(f schemas.Field) bool { return f.Name == t.text })
	if at < 0 {
		return node{}, wrong(t.at, "%s", p.noColumn(t.text))
	}
	f := p.schema.Fields[at]
	if !f.Type.Valid() {
		return node{}, wrong(t.at, "column %s is a %s, which a predicate does not compare", f.Name, f.Type)
	}
	n := node{not: not, values: values{typ: f.Type}}
	if n.col = slices.IndexFunc(p.out.fields, func(x schemas.Field) bool { return x.ID == f.ID }); n.col < 0 {
		n.col = len(p.out.fields)
		p.out.fields = append(p.out.fields, f)
	}
	if err := p.step(); err != nil {
		return node{}, err
	}
	if p.tok.is("is") {
		return p.null(n)
	}
	if p.tok.is("not") {
		if err := p.step(); err != nil {
			return node{}, err
		}
		if !p.tok.is("in") {
			return node{}, wrong(p.tok.at, "NOT behind column %s is followed by IN", f.Name)
		}
		n.not = !n.not
	}
	if p.tok.is("in") {
		return p.in(n, &f)
	}
	o, ok := ops[p.tok.text]
	if p.tok.kind != symbol || !ok {
		return node{}, wrong(p.tok.at, "column %s is followed by no comparison: =, !=, <, <=, >, >=, [NOT] IN, IS [NOT] NULL", f.Name)
	}
	n.op = o
	if err := p.step(); err != nil {
		return node{}, err
	}
	return n, p.literal(&n.values, &f)
}

func (p *parser) null(n node) (node, error) {
	if err := p.step(); err != nil {
		return node{}, err
	}
	if p.tok.is("not") {
		n.not = !n.not
		if err := p.step(); err != nil {
			return node{}, err
		}
	}
	if !p.tok.is("null") {
		return node{}, wrong(p.tok.at, "IS is followed by NULL or NOT NULL")
	}
	return n, p.step()
}

func (p *parser) in(n node, f *schemas.Field) (node, error) {
	n.op = in
	if err := p.step(); err != nil {
		return node{}, err
	}
	if !p.tok.sym("(") {
		return node{}, wrong(p.tok.at, "IN is followed by values in parentheses")
	}
	for {
		if err := p.step(); err != nil {
			return node{}, err
		}
		if err := p.literal(&n.values, f); err != nil {
			return node{}, err
		}
		if p.tok.sym(")") {
			n.values.sort()
			return n, p.step()
		}
		if !p.tok.sym(",") {
			return node{}, wrong(p.tok.at, "a value of IN is followed by a comma or the closing parenthesis")
		}
	}
}

// literal reads a value of a column's type.
func (p *parser) literal(v *values, f *schemas.Field) error {
	t := p.tok
	s := t.text
	var is, want string
	switch {
	case t.is("null"):
		return wrong(t.at, "nothing is equal to NULL; write %s IS NULL", f.Name)
	case t.is("true"), t.is("false"):
		is, s = "a boolean", strings.ToLower(s)
	case t.kind == text:
		is = "a text"
	case t.kind == number:
		is = "a number"
	default:
		return wrong(t.at, "column %s is compared with a value: a number, a 'text', TRUE or FALSE", f.Name)
	}
	switch f.Type.Kind {
	case schemas.Boolean:
		want = "a boolean"
	case schemas.Int, schemas.Long, schemas.Float, schemas.Double, schemas.Decimal:
		want = "a number"
	default:
		want = "a text"
	}
	if is != want {
		return wrong(t.at, "column %s is a %s and takes %s, not %s", f.Name, f.Type, want, is)
	}
	switch f.Type.Kind {
	case schemas.Timestamp, schemas.TimestampTz, schemas.TimestampNs, schemas.TimestampTzNs:
		if len(s) == len("2006-01-02") {
			s += "T00:00:00"
		}
		if len(s) > 10 && s[10] == ' ' {
			s = s[:10] + "T" + s[11:]
		}
		zoned := f.Type.Kind == schemas.TimestampTz || f.Type.Kind == schemas.TimestampTzNs
		if zoned && !strings.HasSuffix(s, "Z") && !strings.ContainsAny(s[min(len(s), 11):], "+-") {
			s += "+00:00"
		}
	case schemas.Int, schemas.Long, schemas.Decimal, schemas.Float, schemas.Double:
		s = strings.TrimPrefix(s, "+")
		if strings.HasPrefix(s, ".") {
			s = "0" + s
		}
	}
	single, err := schemas.ParseText(f.Type, s)
	if err == nil {
		err = v.add(single)
	}
	if err != nil {
		if errors.Is(err, schemas.ErrNotExact) {
			return wrong(t.at, "column %s is a %s, which cannot hold this value", f.Name, f.Type)
		}
		return wrong(t.at, "column %s is a %s, which this is not%s", f.Name, f.Type, formOf(f.Type))
	}
	return p.step()
}

func formOf(t schemas.Type) string {
	switch t.Kind {
	case schemas.Date:
		return "; write '2006-01-02'"
	case schemas.Time:
		return "; write '15:04:05.000000'"
	case schemas.Timestamp, schemas.TimestampNs:
		return "; write '2006-01-02T15:04:05'"
	case schemas.TimestampTz, schemas.TimestampTzNs:
		return "; write '2006-01-02T15:04:05+00:00'"
	case schemas.UUID:
		return "; write '00000000-0000-0000-0000-000000000000'"
	case schemas.Binary, schemas.Fixed:
		return "; write its bytes in hex"
	}
	return ""
}

// add takes a single value.
func (v *values) add(single []byte) error {
	switch rows.StorageOf(v.typ) {
	case rows.Ints:
		x, err := schemas.IntValue(v.typ, single)
		v.ints = append(v.ints, x)
		return err
	case rows.Floats:
		x, err := schemas.FloatValue(v.typ, single)
		if x != x {
			return schemas.ErrNotExact
		}
		v.floats = append(v.floats, x)
		return err
	}
	x, err := schemas.BytesValue(v.typ, single)
	v.bytes = append(v.bytes, x)
	return err
}

func (v *values) sort() {
	slices.Sort(v.ints)
	slices.Sort(v.floats)
	slices.SortFunc(v.bytes, v.compare)
}

func keyword(t *token) bool {
	for _, w := range [...]string{"and", "or", "not", "in", "is", "null", "true", "false"} {
		if t.is(w) {
			return true
		}
	}
	return false
}

// noColumn names the columns that there are; the name itself may be a text
// whose quotes were forgotten, and is shown only where it is like one of them.
func (p *parser) noColumn(given string) string {
	var names []string
	for i := range p.schema.Fields {
		n := p.schema.Fields[i].Name
		if strings.EqualFold(n, given) {
			return "there is no column of this name; do you mean " + n + "?"
		}
		names = append(names, n)
	}
	if len(names) > 30 {
		names = append(names[:30], "…")
	}
	return "there is no column of this name (columns: " + strings.Join(names, ", ") + ")"
}
