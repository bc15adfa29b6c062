package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

const partitionForms = "country, day(created_at), bucket(16, id) or truncate(4, name)"

// partitionName is a partition field's name, as other engines would give it.
func partitionName(k schemas.TransformKind, column string) string {
	switch k {
	case schemas.Bucket:
		return column + "_bucket"
	case schemas.Truncate:
		return column + "_trunc"
	case schemas.Year:
		return column + "_year"
	case schemas.Month:
		return column + "_month"
	case schemas.Day:
		return column + "_day"
	case schemas.Hour:
		return column + "_hour"
	case schemas.Void:
		return column + "_null"
	}
	return column
}

// partitionSpec makes a spec of the terms that a user wrote.
func partitionSpec(terms []string, s *schemas.Schema) (schemas.Spec, error) {
	var spec schemas.Spec
	var names []string
	for _, text := range terms {
		f, column, err := partitionField(text, s)
		if err != nil {
			return spec, err
		}
		f.Name = partitionName(f.Transform, column)
		if slices.Contains(names, f.Name) || f.Transform != schemas.Identity && s.ByName(f.Name) >= 0 {
			return spec, fmt.Errorf("partition %q: the name %s of its field is taken", text, f.Name)
		}
		names = append(names, f.Name)
		f.FieldID = int32(1000 + len(spec.Fields))
		spec.Fields = append(spec.Fields, f)
	}
	return spec, nil
}

// partitionField is what one term says, and its column.
func partitionField(text string, s *schemas.Schema) (f schemas.PartitionField, column string, err error) {
	if f.Transform, f.N, column, err = schemas.ParseTransform(text); err != nil {
		return f, "", fmt.Errorf("%w; write it as %s", err, partitionForms)
	}
	i := s.ByName(column)
	if i < 0 {
		return f, "", fmt.Errorf("partition %q: %q is no column%s", text, column, didYouMean(column, columnNames(s)))
	}
	if _, err := schemas.TransformResult(f.Transform, f.N, s.Fields[i].Type); err != nil {
		return f, "", fmt.Errorf("partition %q: %w", text, err)
	}
	f.SourceID = s.Fields[i].ID
	return f, column, nil
}

// alterSpec asks for a table to be partitioned by these terms (T7).
func alterSpec(terms []string, d *schemas.Definition) (*record.AlterSpec, error) {
	s := d.Schema()
	out := &record.AlterSpec{}
	for _, text := range terms {
		f, column, err := partitionField(text, s)
		if err != nil {
			return nil, asUsage(err)
		}
		if f.Shows() && slices.Contains(d.Key, f.SourceID) {
			return nil, usagef("partition %q: it would show values of the key, which stand in no log; bucket(N, %s) does not", text, column)
		}
		if slices.ContainsFunc(out.Terms, func(t record.PartitionTerm) bool {
			return t.Column == column && t.Transform == f.Transform && t.N == f.N
		}) {
			return nil, usagef("partition %q is there twice", text)
		}
		out.Terms = append(out.Terms, record.PartitionTerm{Column: column, Transform: f.Transform, N: f.N, Name: freeName(&f, column, d, out.Terms)})
	}
	return out, nil
}

// freeName is a field's name: that of the same term in some spec of the table,
// or the usual one, with a number behind it where that stands for another term.
func freeName(f *schemas.PartitionField, column string, d *schemas.Definition, terms []record.PartitionTerm) string {
	taken := map[string]bool{}
	for i := range terms {
		taken[terms[i].Name] = true
	}
	for i := range d.Schema().Fields {
		if name := d.Schema().Fields[i].Name; f.Transform != schemas.Identity || name != column {
			taken[name] = true
		}
	}
	known := ""
	for i := range d.Specs {
		for _, g := range d.Specs[i].Fields {
			if f.SameTerm(&g) {
				known = g.Name
			} else {
				taken[g.Name] = true
			}
		}
	}
	if known != "" && !taken[known] {
		return known
	}
	name := partitionName(f.Transform, column)
	if f.N > 0 && taken[name] {
		name += "_" + strconv.Itoa(int(f.N))
	}
	for base, n := name, 2; taken[name]; n++ {
		name = base + "_" + strconv.Itoa(n)
	}
	return name
}

// partitionTerms is a table's partitioning as --partition-by takes it, "" for none.
func partitionTerms(d *schemas.Definition) string {
	var terms []string
	spec := d.Spec(d.DefaultSpec)
	for i := range spec.Fields {
		f := &spec.Fields[i]
		column := "?"
		if j := d.Schema().ByID(f.SourceID); j >= 0 {
			column = d.Schema().Fields[j].Name
		}
		if strings.ContainsAny(column, "`(), ") {
			column = "`" + strings.ReplaceAll(column, "`", "``") + "`"
		}
		switch f.Transform {
		case schemas.Identity:
			terms = append(terms, column)
		case schemas.Bucket, schemas.Truncate:
			terms = append(terms, fmt.Sprintf("%s(%d, %s)", strings.TrimSuffix(schemas.TransformName(f.Transform, f.N), fmt.Sprintf("[%d]", f.N)), f.N, column))
		default:
			terms = append(terms, schemas.TransformName(f.Transform, 0)+"("+column+")")
		}
	}
	return strings.Join(terms, ", ")
}

// splitTerms splits partition terms at commas outside parentheses, so that one
// flag or variable can hold "day(a), bucket(16, b)".
func splitTerms(list []string) []string {
	var out []string
	for _, s := range list {
		depth, from := 0, 0
		for i := 0; i <= len(s); i++ {
			switch {
			case i == len(s) || s[i] == ',' && depth == 0:
				if t := strings.TrimSpace(s[from:i]); t != "" {
					out = append(out, t)
				}
				from = i + 1
			case s[i] == '(':
				depth++
			case s[i] == ')':
				depth--
			}
		}
	}
	return out
}
