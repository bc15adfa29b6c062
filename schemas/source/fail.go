package source

// fail says why a value was refused; its place in a record and the column's
// name are added where the Reject is made.
type fail uint8

const (
	okay fail = iota
	malformed
	wrongType
	notWhole
	outOfRange
	tooFine
	badText
	badZone
	noUnit
	noDecimalForm
	isUnavailable
	twice
	isNull
	absent
	badLength
	nested
	strange
	partUnavailable
	empty
	mixed
	tooDeep
)

// failure is the code and the reason of each fail. Reasons follow the
// column's name.
var failure = [...]struct{ code, reason string }{
	malformed:     {"malformed", "ill-formed JSON"},
	wrongType:     {"type", "the value's type does not fit the column's"},
	notWhole:      {"type", "a number with a fraction in a whole-number column"},
	outOfRange:    {"range", "the value is outside what the column's type holds"},
	tooFine:       {"range", "the value has more fraction digits than the column's type"},
	badText:       {"value", "the text is no value of the column's type"},
	badZone:       {"value", "a timestamptz needs an offset, a timestamp takes none but Z"},
	noUnit:        {"type", "a number without its unit; set timestamp.unit, time.unit or type.<column>"},
	noDecimalForm: {"type", "text that may be base64 or digits; set decimal.handling to base64 or text"},
	isUnavailable: {"unavailable-value", "the source did not send the unchanged value"},
	twice:         {"malformed", "the field occurs twice"},
	isNull:        {"null", "null in a required column"},
	absent:        {"null", "a required column is missing"},
	badLength:     {"range", "the value's length is not the column's"},
	nested:        {"nested", "an object or array where the table has a single value, or one of parts that no table has; list the column in columns.exclude to leave it out"},
	strange:       {"malformed", "the field is not in the event's own schema"},

	partUnavailable: {"unavailable-value", "the source did not send an unchanged part of the value; only whole columns are taken from the older row"},
	empty:           {"type", "an empty object or array does not say what it holds; give the table a column of its type"},
	mixed:           {"type", "the array's elements are of several types; list the column in columns.exclude to leave it out"},
	tooDeep:         {"nested", "objects and arrays stand more than 32 levels deep"},
}

// reject makes the Reject of a fail on a column ("": none in particular).
// A fail of a key column that leaves no key has the code "key" (K1).
func (f fail) reject(kind Kind, column string, key bool) *Reject {
	d := failure[f]
	code := d.code
	if key {
		switch f {
		case malformed, isUnavailable, partUnavailable, twice, nested, strange:
		default:
			code = "key"
		}
	}
	if column == "" {
		return &Reject{Code: code, Kind: kind, Reason: d.reason}
	}
	return Rejectf(kind, code, "column %q: %s", column, d.reason)
}
