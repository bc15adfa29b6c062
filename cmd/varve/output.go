package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/varve-io/varve/schemas"
)

// outputMode is the form of a result.
type outputMode int

const (
	modeTable outputMode = iota
	modeJSON
	modeJSONL
	modeCSV
)

func parseOutput(s string) (outputMode, error) {
	names := []string{"table", "json", "jsonl", "csv"}
	for i, n := range names {
		if n == s {
			return outputMode(i), nil
		}
	}
	return 0, usagef("--output %q: use table, json, jsonl or csv%s", s, didYouMean(s, names))
}

// A value of a result is nil, a string, bool, whole number, float64,
// json.RawMessage, []string, byteSize, millis, object or *rowset. The same
// value has one JSON form, which does not change, and one form for people.

// byteSize is a number of bytes: a number in JSON and CSV, rounded for people.
type byteSize int64

func (b byteSize) String() string {
	v, unit := float64(b), ""
	for _, u := range []string{"kB", "MB", "GB", "TB"} {
		if v < 1000 {
			break
		}
		v, unit = v/1000, u
	}
	switch {
	case unit == "":
		return strconv.FormatInt(int64(b), 10) + " B"
	case v < 10:
		return strconv.FormatFloat(v, 'f', 1, 64) + " " + unit
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + " " + unit
}

// millis is a time in ms since 1970, shown in UTC.
type millis int64

func (m millis) String() string {
	return time.UnixMilli(int64(m)).UTC().Format("2006-01-02T15:04:05.000Z")
}

// field is one entry of an object.
type field struct {
	name  string
	value any
}

// object is named values in order.
type object []field

// rowset is rows under named columns, inside an object.
type rowset struct {
	cols []string
	rows [][]any
}

// listing writes rows as they come. JSON and CSV stream; a table for people
// holds its first rows back to find the widths of its columns.
type listing struct {
	w     io.Writer
	mode  outputMode
	cols  []string
	held  [][]string
	width []int
	right []bool // the column holds numbers
	begun bool
	buf   []byte
}

// holdRows is how many rows of a table set the widths of its columns.
const holdRows = 1000

// maxCellWidth keeps one long value from widening its column for all rows.
const maxCellWidth = 120

// list begins a listing on stdout. Its column names are its JSON keys.
func (a *app) list(cols ...string) *listing { return newListing(a.out, a.mode, cols) }

func newListing(w io.Writer, mode outputMode, cols []string) *listing {
	l := &listing{w: w, mode: mode, cols: cols, width: make([]int, len(cols)), right: make([]bool, len(cols))}
	for i, c := range cols {
		l.width[i] = textWidth(c)
	}
	return l
}

func (l *listing) row(values ...any) error {
	if len(values) != len(l.cols) {
		panic(fmt.Sprintf("a row of %d values under %d columns", len(values), len(l.cols)))
	}
	l.buf = l.buf[:0]
	switch l.mode {
	case modeTable:
		cells := make([]string, len(values))
		for i, v := range values {
			cells[i] = cellText(v)
			if isNumber(v) {
				l.right[i] = true
			}
		}
		if l.begun {
			l.line(cells)
			break
		}
		l.held = append(l.held, cells)
		if len(l.held) >= holdRows {
			return l.release()
		}
		return nil
	case modeCSV:
		if !l.begun {
			l.csvHeader()
		}
		for i, v := range values {
			if i > 0 {
				l.buf = append(l.buf, ',')
			}
			l.buf = appendCSV(l.buf, v)
		}
		l.buf = append(l.buf, '\n')
	default:
		if l.mode == modeJSON {
			l.buf = append(l.buf, map[bool]string{false: "[\n  ", true: ",\n  "}[l.begun]...)
		}
		l.buf = append(l.buf, '{')
		for i, v := range values {
			if i > 0 {
				l.buf = append(l.buf, ',')
			}
			l.buf = schemas.AppendJSONString(l.buf, l.cols[i])
			l.buf = append(l.buf, ':')
			l.buf = appendJSON(l.buf, v)
		}
		l.buf = append(l.buf, '}')
		if l.mode == modeJSONL {
			l.buf = append(l.buf, '\n')
		}
	}
	l.begun = true
	_, err := l.w.Write(l.buf)
	return err
}

func (l *listing) csvHeader() {
	for i, c := range l.cols {
		if i > 0 {
			l.buf = append(l.buf, ',')
		}
		l.buf = appendCSV(l.buf, c)
	}
	l.buf = append(l.buf, '\n')
}

// release writes the header and the rows held back.
func (l *listing) release() error {
	for _, cells := range l.held {
		for i, c := range cells {
			l.width[i] = max(l.width[i], min(textWidth(c), maxCellWidth))
		}
	}
	l.buf = l.buf[:0]
	l.line(l.cols)
	rules := make([]string, len(l.cols))
	for i := range rules {
		rules[i] = strings.Repeat("─", l.width[i])
	}
	l.line(rules)
	for _, cells := range l.held {
		l.line(cells)
	}
	l.held, l.begun = nil, true
	_, err := l.w.Write(l.buf)
	return err
}

func (l *listing) line(cells []string) {
	for i, c := range cells {
		pad := l.width[i] - textWidth(c)
		if i > 0 {
			l.buf = append(l.buf, "  "...)
		}
		if l.right[i] {
			l.buf = append(l.buf, strings.Repeat(" ", max(0, pad))...)
		}
		l.buf = append(l.buf, c...)
		if !l.right[i] && i < len(cells)-1 {
			l.buf = append(l.buf, strings.Repeat(" ", max(0, pad))...)
		}
	}
	l.buf = append(l.buf, '\n')
}

// close ends the listing.
func (l *listing) close() error {
	l.buf = l.buf[:0]
	switch l.mode {
	case modeTable:
		if !l.begun {
			return l.release()
		}
		return nil
	case modeCSV:
		if !l.begun {
			l.csvHeader()
		}
	case modeJSON:
		l.buf = append(l.buf, map[bool]string{false: "[]\n", true: "\n]\n"}[l.begun]...)
	}
	_, err := l.w.Write(l.buf)
	return err
}

// show writes one object. Its nested rows are tables of their own for people.
func (a *app) show(o object) error {
	switch a.mode {
	case modeTable:
		return showText(a.out, o)
	case modeCSV:
		l := newListing(a.out, modeCSV, nil)
		var values []any
		for _, f := range o {
			l.cols = append(l.cols, f.name)
			values = append(values, f.value)
		}
		if err := l.row(values...); err != nil {
			return err
		}
		return l.close()
	}
	b := appendJSON(nil, o)
	if a.mode == modeJSON {
		var out bytes.Buffer
		if err := json.Indent(&out, b, "", "  "); err != nil {
			return fmt.Errorf("print the result as JSON: %w", err)
		}
		b = out.Bytes()
	}
	_, err := a.out.Write(append(b, '\n'))
	return err
}

// showRows is show for a result whose substance is one of its rowsets: CSV and
// JSON lines are that rowset's rows alone.
func (a *app) showRows(o object, main string) error {
	if a.mode == modeTable || a.mode == modeJSON {
		return a.show(o)
	}
	for _, f := range o {
		rs, ok := f.value.(*rowset)
		if !ok || f.name != main {
			continue
		}
		l := a.list(rs.cols...)
		for _, r := range rs.rows {
			if err := l.row(r...); err != nil {
				return err
			}
		}
		return l.close()
	}
	panic("no rowset " + main)
}

// stands says whether a value stands under its name, for people: rows, and
// JSON of more than a scalar.
func stands(v any) bool {
	switch v := v.(type) {
	case *rowset:
		return true
	case json.RawMessage:
		return len(v) > 0 && (v[0] == '{' || v[0] == '[')
	}
	return false
}

func showText(w io.Writer, o object) error {
	width := 0
	for _, f := range o {
		if !stands(f.value) {
			width = max(width, textWidth(f.name))
		}
	}
	var b []byte
	for _, f := range o {
		if stands(f.value) {
			continue
		}
		b = append(b, f.name...)
		b = append(b, strings.Repeat(" ", width-textWidth(f.name)+2)...)
		b = append(b, cellText(f.value)...)
		b = append(b, '\n')
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	for _, f := range o {
		if raw, ok := f.value.(json.RawMessage); ok && stands(raw) {
			var text bytes.Buffer
			if err := json.Indent(&text, raw, "", "  "); err != nil {
				return fmt.Errorf("print %s: %w", f.name, err)
			}
			if _, err := fmt.Fprintf(w, "\n%s\n%s\n", f.name, text.Bytes()); err != nil {
				return err
			}
			continue
		}
		rs, nested := f.value.(*rowset)
		if !nested || rs == nil || len(rs.rows) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s\n", f.name); err != nil {
			return err
		}
		l := newListing(w, modeTable, rs.cols)
		for _, r := range rs.rows {
			if err := l.row(r...); err != nil {
				return err
			}
		}
		if err := l.close(); err != nil {
			return err
		}
	}
	return nil
}

func isNumber(v any) bool {
	switch v.(type) {
	case int, int32, int64, uint64, float64, byteSize:
		return true
	}
	return false
}

// cellText is a value for people, on one line.
func cellText(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return oneLine(v)
	case []string:
		return oneLine(strings.Join(v, ", "))
	case byteSize:
		return v.String()
	case millis:
		return v.String()
	case float64:
		return floatText(v)
	case json.RawMessage:
		return oneLine(string(v))
	}
	return oneLine(string(appendJSON(nil, v)))
}

// oneLine escapes what would break a line or steer a terminal: cells hold
// bytes that other programs wrote.
func oneLine(s string) string {
	clean := true
	for _, r := range s {
		if r == utf8.RuneError || unicode.IsControl(r) || !unicode.IsPrint(r) && r != ' ' {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

// textWidth is how many cells of a terminal a text takes, near enough: wide
// East Asian characters take two.
func textWidth(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case unicode.Is(unicode.Mn, r):
		case r >= 0x1100 && (unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) || r >= 0xFF01 && r <= 0xFF60 || r >= 0x1F300 && r <= 0x1FAFF):
			n += 2
		default:
			n++
		}
	}
	return n
}

func floatText(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// appendJSON appends a value's JSON form. JSON has no NaN and no infinity:
// those are strings.
func appendJSON(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case string:
		return schemas.AppendJSONString(dst, v)
	case bool:
		return strconv.AppendBool(dst, v)
	case int:
		return strconv.AppendInt(dst, int64(v), 10)
	case int32:
		return strconv.AppendInt(dst, int64(v), 10)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case uint64:
		return strconv.AppendUint(dst, v, 10)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return schemas.AppendJSONString(dst, floatText(v))
		}
		return append(dst, floatText(v)...)
	case byteSize:
		return strconv.AppendInt(dst, int64(v), 10)
	case millis:
		return schemas.AppendJSONString(dst, v.String())
	case json.RawMessage:
		if len(v) == 0 {
			return append(dst, "null"...)
		}
		var b bytes.Buffer
		if json.Compact(&b, v) != nil {
			return schemas.AppendJSONString(dst, string(v))
		}
		return append(dst, b.Bytes()...)
	case []string:
		dst = append(dst, '[')
		for i, s := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = schemas.AppendJSONString(dst, s)
		}
		return append(dst, ']')
	case []int64:
		dst = append(dst, '[')
		for i, n := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(dst, n, 10)
		}
		return append(dst, ']')
	case object:
		dst = append(dst, '{')
		for i, f := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = schemas.AppendJSONString(dst, f.name)
			dst = append(dst, ':')
			dst = appendJSON(dst, f.value)
		}
		return append(dst, '}')
	case *rowset:
		dst = append(dst, '[')
		for i, r := range v.rows {
			if i > 0 {
				dst = append(dst, ',')
			}
			o := make(object, len(r))
			for j := range r {
				o[j] = field{v.cols[j], r[j]}
			}
			dst = appendJSON(dst, o)
		}
		return append(dst, ']')
	}
	panic(fmt.Sprintf("no JSON form for %T", v))
}

// appendCSV appends a value as a CSV field (RFC 4180): null is nothing, an
// empty text is "", and everything else that needs quotes has them.
func appendCSV(dst []byte, v any) []byte {
	var s string
	switch v := v.(type) {
	case nil:
		return dst
	case string:
		if v == "" {
			return append(dst, `""`...)
		}
		s = v
	case millis:
		s = v.String()
	case []string:
		s = strings.Join(v, ",")
	case float64:
		s = floatText(v)
	default:
		s = string(appendJSON(nil, v))
	}
	if !strings.ContainsAny(s, ",\"\r\n") && s != "" && s[0] != ' ' && s[len(s)-1] != ' ' {
		return append(dst, s...)
	}
	dst = append(dst, '"')
	dst = append(dst, strings.ReplaceAll(s, `"`, `""`)...)
	return append(dst, '"')
}
