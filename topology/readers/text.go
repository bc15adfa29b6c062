package readers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/varve-io/varve/schemas"
)

// jsonText is a value of reader.py as text; null is nil.
func jsonText(kind string, raw json.RawMessage) (*string, error) {
	if string(raw) == "null" {
		return nil, nil
	}
	var s string
	if raw[0] == '"' {
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
	} else {
		s = string(raw)
	}
	switch kind {
	case "boolean", "int", "decimal", "string", "binary":
	case "uuid":
		s = uuidText(s)
	case "nested":
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		var err error
		if s, err = NestedText(v); err != nil {
			return nil, err
		}
	case "float", "double":
		v, err := strconv.ParseFloat(s, 64) // Python's float.hex
		if err != nil {
			return nil, err
		}
		s = floatText(v, kind == "float")
	default:
		v, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, err
		}
		if s, err = temporalText(kind, v); err != nil {
			return nil, err
		}
	}
	return &s, nil
}

// NestedText is the text of a struct, list or map, of what JSON is read as: fields
// sorted by name, a map as a list of its entries, what JSON has no form for as text.
func NestedText(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

func floatText(v float64, single bool) string {
	bits := 64
	if single {
		bits = 32
	}
	return strconv.FormatFloat(v, 'g', -1, bits)
}

// uuidText is 32 hexadecimal digits in groups; other text stays.
func uuidText(s string) string {
	if len(s) != 32 {
		return s
	}
	return strings.Join([]string{s[:8], s[8:12], s[12:16], s[16:20], s[20:]}, "-")
}

var temporalTypes = map[string]schemas.Kind{
	"date": schemas.Date, "time_us": schemas.Time, "timestamp_us": schemas.Timestamp, "timestamp_us_tz": schemas.TimestampTz,
	"timestamp_ns": schemas.TimestampNs, "timestamp_ns_tz": schemas.TimestampTzNs,
}

// temporalText is a day, a time of day or a timestamp as text, from its number.
func temporalText(kind string, v int64) (string, error) {
	k, ok := temporalTypes[kind]
	if !ok {
		return "", fmt.Errorf("no text form for kind %s", kind)
	}
	single, err := schemas.AppendIntValue(nil, schemas.Of(k), v)
	if err != nil {
		return "", err
	}
	b, err := schemas.AppendText(nil, schemas.Of(k), single)
	return string(b), err
}
