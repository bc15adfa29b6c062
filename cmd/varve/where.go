package main

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/apache/iceberg-go"

	"github.com/varve-io/varve/schemas/predicate"
)

const whereForms = "column = value, with = != < <= > >=, IS NULL or IS NOT NULL, joined by AND; texts in 'single quotes'"

// comparison is one term of --where.
type comparison struct {
	column string
	op     iceberg.Operation
	value  string
	unary  bool
}

// token is a piece of an expression. Quoted texts and names are never words.
type token struct {
	text   string
	quoted bool // '…'
	name   bool // "…" or `…`
	symbol bool // an operator
}

func (t *token) word(s string) bool {
	return !t.quoted && !t.name && !t.symbol && strings.EqualFold(t.text, s)
}

// tokens splits an expression. Errors never repeat what stands in quotes: it
// may be personal.
func tokens(s string) ([]token, error) {
	var out []token
	for rest := s; ; {
		rest = strings.TrimLeftFunc(rest, unicode.IsSpace)
		if rest == "" {
			return out, nil
		}
		switch c := rest[0]; c {
		case '\'', '"', '`':
			text, after, ok := predicate.CutQuoted(rest)
			if !ok {
				return nil, fmt.Errorf("a quote at character %d is not closed", len(s)-len(rest)+1)
			}
			out = append(out, token{text: text, quoted: c == '\'', name: c != '\''})
			rest = after
		case '=', '<', '>', '!':
			n := len(rest) - len(strings.TrimLeft(rest, "=<>!"))
			out = append(out, token{text: rest[:n], symbol: true})
			rest = rest[n:]
		default:
			n := strings.IndexFunc(rest, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("=<>!'\"`", r) })
			if n < 0 {
				n = len(rest)
			}
			out = append(out, token{text: rest[:n]})
			rest = rest[n:]
		}
	}
}

var comparisonOps = map[string]iceberg.Operation{
	"=": iceberg.OpEQ, "==": iceberg.OpEQ, "!=": iceberg.OpNEQ, "<>": iceberg.OpNEQ,
	"<": iceberg.OpLT, "<=": iceberg.OpLTEQ, ">": iceberg.OpGT, ">=": iceberg.OpGTEQ,
}

func parseWhere(s string) ([]comparison, error) {
	ts, err := tokens(s)
	if err != nil {
		return nil, fmt.Errorf("--where: %w; write it as %s", err, whereForms)
	}
	var out []comparison
	for {
		c, rest, err := parseComparison(ts)
		if err != nil {
			return nil, fmt.Errorf("--where, condition %d: %w; write it as %s", len(out)+1, err, whereForms)
		}
		out = append(out, c)
		if len(rest) == 0 {
			return out, nil
		}
		if !rest[0].word("and") {
			return nil, fmt.Errorf("--where: condition %d is not followed by AND; write it as %s", len(out), whereForms)
		}
		ts = rest[1:]
	}
}

func parseComparison(ts []token) (comparison, []token, error) {
	if len(ts) < 3 || ts[0].quoted || ts[0].symbol {
		return comparison{}, nil, fmt.Errorf("it is not whole")
	}
	c := comparison{column: ts[0].text}
	if ts[1].word("is") {
		c.unary, c.op = true, iceberg.OpIsNull
		rest := ts[2:]
		if rest[0].word("not") {
			c.op, rest = iceberg.OpNotNull, rest[1:]
		}
		if len(rest) == 0 || !rest[0].word("null") {
			return comparison{}, nil, fmt.Errorf("IS is followed by NULL or NOT NULL")
		}
		return c, rest[1:], nil
	}
	op, ok := comparisonOps[ts[1].text]
	if !ok || !ts[1].symbol {
		return comparison{}, nil, fmt.Errorf("column %s is followed by no comparison", c.column)
	}
	v := &ts[2]
	switch {
	case v.symbol || v.name:
		return comparison{}, nil, fmt.Errorf("column %s is compared with no value", c.column)
	case v.word("null"):
		return comparison{}, nil, fmt.Errorf("nothing is equal to null; write %s IS NULL", c.column)
	}
	c.op, c.value = op, v.text
	return c, ts[3:], nil
}

// filter makes of conditions on a schema what the reader prunes files with,
// and what decides about rows.
func filter(cs []comparison, schema *iceberg.Schema) (iceberg.BooleanExpression, []rowTest, error) {
	var files iceberg.BooleanExpression = iceberg.AlwaysTrue{}
	var tests []rowTest
	for _, c := range cs {
		f, ok := schema.FindFieldByName(c.column)
		if !ok {
			return nil, nil, noColumn(c.column, schema)
		}
		ref := iceberg.Reference(c.column)
		if c.unary {
			files = iceberg.NewAnd(files, iceberg.UnaryPredicate(c.op, ref))
			tests = append(tests, rowTest{column: c.column, op: c.op})
			continue
		}
		test, text, err := newRowTest(&c, f.Type)
		if err != nil {
			return nil, nil, fmt.Errorf("--where: column %s: %w", c.column, err)
		}
		tests = append(tests, test)
		lit, err := iceberg.StringLiteral(text).To(f.Type)
		if err != nil {
			// The reader's own error repeats the value.
			return nil, nil, fmt.Errorf("--where: column %s is a %s, and the value is not", c.column, f.Type)
		}
		files = iceberg.NewAnd(files, iceberg.LiteralPredicate(c.op, ref, lit))
	}
	return files, tests, nil
}

func noColumn(name string, schema *iceberg.Schema) error {
	var names []string
	for _, f := range schema.Fields() {
		names = append(names, f.Name)
	}
	hint := didYouMean(name, names)
	if len(names) > 30 {
		names = append(names[:30], "…")
	}
	return fmt.Errorf("there is no column %q%s (columns: %s)", name, hint, strings.Join(names, ", "))
}
