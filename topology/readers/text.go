package readers

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
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

// temporalText is a day, a time of day or a timestamp in Iceberg's JSON form,
// from its number.
func temporalText(kind string, v int64) (string, error) {
	kind, tz := strings.CutSuffix(kind, "_tz")
	layout := "2006-01-02T15:04:05.000000"
	var at time.Time
	switch kind {
	case "date":
		return time.Unix(v*86400, 0).UTC().Format("2006-01-02"), nil
	case "time_us":
		return time.UnixMicro(v).UTC().Format("15:04:05.000000"), nil
	case "timestamp_us":
		at = time.UnixMicro(v)
	case "timestamp_ms":
		at = time.UnixMilli(v)
	case "timestamp_s":
		at = time.Unix(v, 0)
	case "timestamp_ns":
		layout, at = "2006-01-02T15:04:05.000000000", time.Unix(0, v)
	default:
		return "", fmt.Errorf("no text form for kind %s", kind)
	}
	if tz {
		layout += "+00:00"
	}
	return at.UTC().Format(layout), nil
}
