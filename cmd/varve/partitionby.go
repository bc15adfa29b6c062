package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/varve-io/varve/schemas"
)

// partitionTerm is one field of a partition spec as a user writes it.
type partitionTerm struct {
	column    string
	transform schemas.TransformKind
	n         int32
}

const partitionForms = "country, day(created_at), bucket(16, id) or truncate(4, name); transforms are year, month, day, hour, bucket, truncate"

// parsePartition reads country, day(created_at), bucket(16, id), truncate(4, name).
func parsePartition(s string) (partitionTerm, error) {
	s = strings.TrimSpace(s)
	name, rest, call := strings.Cut(s, "(")
	if !call {
		if s == "" || strings.ContainsAny(s, ")") {
			return partitionTerm{}, fmt.Errorf("partition %q: write it as %s", s, partitionForms)
		}
		return partitionTerm{column: s, transform: schemas.Identity}, nil
	}
	rest, closed := strings.CutSuffix(rest, ")")
	var args []string
	for _, a := range strings.Split(rest, ",") {
		args = append(args, strings.TrimSpace(a))
	}
	if !closed || args[len(args)-1] == "" {
		return partitionTerm{}, fmt.Errorf("partition %q: write it as %s", s, partitionForms)
	}
	kinds := map[string]schemas.TransformKind{
		"year": schemas.Year, "month": schemas.Month, "day": schemas.Day, "hour": schemas.Hour,
		"bucket": schemas.Bucket, "truncate": schemas.Truncate,
	}
	kind, ok := kinds[strings.TrimSpace(name)]
	t := partitionTerm{column: args[len(args)-1], transform: kind}
	switch {
	case !ok:
		return partitionTerm{}, fmt.Errorf("partition %q: unknown transform; write it as %s", s, partitionForms)
	case kind == schemas.Bucket || kind == schemas.Truncate:
		if len(args) != 2 {
			return partitionTerm{}, fmt.Errorf("partition %q: write it as bucket(16, id) or truncate(4, name)", s)
		}
		n, err := strconv.ParseInt(args[0], 10, 32)
		if err != nil || n < 1 {
			return partitionTerm{}, fmt.Errorf("partition %q: the number is 1 to 2147483647", s)
		}
		t.n = int32(n)
	case len(args) != 1:
		return partitionTerm{}, fmt.Errorf("partition %q: %s takes one column", s, strings.TrimSpace(name))
	}
	return t, nil
}

// fieldName is the partition field's name, as other engines would name it.
func (t *partitionTerm) fieldName() string {
	switch t.transform {
	case schemas.Bucket:
		return t.column + "_bucket"
	case schemas.Truncate:
		return t.column + "_trunc"
	case schemas.Year:
		return t.column + "_year"
	case schemas.Month:
		return t.column + "_month"
	case schemas.Day:
		return t.column + "_day"
	case schemas.Hour:
		return t.column + "_hour"
	}
	return t.column
}
