package iceberg

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/varve-io/varve/schemas"
)

// appendSpecFields appends the array of a spec's fields.
func appendSpecFields(dst []byte, s *schemas.Spec) []byte {
	dst = append(dst, '[')
	for i := range s.Fields {
		f := &s.Fields[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = schemas.AppendJSONString(dst, f.Name)
		dst = append(dst, `,"transform":"`...)
		dst = append(dst, schemas.TransformName(f.Transform, f.N)...)
		dst = append(dst, `","source-id":`...)
		dst = strconv.AppendInt(dst, int64(f.SourceID), 10)
		dst = append(dst, `,"field-id":`...)
		dst = strconv.AppendInt(dst, int64(f.FieldID), 10)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// AppendSpecJSON appends a partition spec as table metadata holds it.
func AppendSpecJSON(dst []byte, s *schemas.Spec) []byte {
	dst = append(dst, `{"spec-id":`...)
	dst = strconv.AppendInt(dst, int64(s.ID), 10)
	dst = append(dst, `,"fields":`...)
	return append(appendSpecFields(dst, s), '}')
}

// ParseSpec reads a partition spec of table metadata. Transforms that varve
// does not know, and fields with several source columns, are errors.
func ParseSpec(b []byte) (schemas.Spec, error) {
	return parseSpec(b, schemas.ParseTransformName)
}

// ParseKnownSpec reads a partition spec as far as varve knows it: a transform that it
// does not know is void.
func ParseKnownSpec(b []byte) (schemas.Spec, error) {
	return parseSpec(b, func(name string) (schemas.TransformKind, int32, error) {
		if k, n, err := schemas.ParseTransformName(name); err == nil {
			return k, n, nil
		}
		return schemas.Void, 0, nil
	})
}

func parseSpec(b []byte, transform func(string) (schemas.TransformKind, int32, error)) (schemas.Spec, error) {
	var j struct {
		ID     int32 `json:"spec-id"`
		Fields []struct {
			Name      string  `json:"name"`
			Transform string  `json:"transform"`
			SourceID  *int32  `json:"source-id"`
			SourceIDs []int32 `json:"source-ids"`
			FieldID   *int32  `json:"field-id"`
		} `json:"fields"`
	}
	if err := json.Unmarshal(b, &j); err != nil {
		return schemas.Spec{}, corrupt("partition spec: %v", err)
	}
	s := schemas.Spec{ID: j.ID}
	for i, f := range j.Fields {
		k, n, err := transform(f.Transform)
		if err != nil {
			return schemas.Spec{}, fmt.Errorf("partition spec %d, field %q: %w", j.ID, f.Name, err)
		}
		out := schemas.PartitionField{FieldID: int32(1000 + i), Name: f.Name, Transform: k, N: n}
		if f.FieldID != nil {
			out.FieldID = *f.FieldID
		}
		switch {
		case f.SourceID != nil:
			out.SourceID = *f.SourceID
		case len(f.SourceIDs) == 1:
			out.SourceID = f.SourceIDs[0]
		default:
			return schemas.Spec{}, fmt.Errorf("partition spec %d, field %q has not one source column", j.ID, f.Name)
		}
		s.Fields = append(s.Fields, out)
	}
	return s, nil
}
