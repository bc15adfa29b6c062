package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas"
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
		k, n, column, err := schemas.ParseTransform(text)
		if err != nil {
			return spec, fmt.Errorf("%w; write it as %s", err, partitionForms)
		}
		i := s.ByName(column)
		if i < 0 {
			return spec, fmt.Errorf("partition %q: %q is no column%s", text, column, didYouMean(column, columnNames(s)))
		}
		if _, err := schemas.TransformResult(k, n, s.Fields[i].Type); err != nil {
			return spec, fmt.Errorf("partition %q: %w", text, err)
		}
		name := partitionName(k, column)
		if slices.Contains(names, name) || k != schemas.Identity && s.ByName(name) >= 0 {
			return spec, fmt.Errorf("partition %q: the name %s of its field is taken", text, name)
		}
		names = append(names, name)
		spec.Fields = append(spec.Fields, schemas.PartitionField{
			SourceID: s.Fields[i].ID, FieldID: int32(1000 + len(spec.Fields)), Name: name, Transform: k, N: n,
		})
	}
	return spec, nil
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
