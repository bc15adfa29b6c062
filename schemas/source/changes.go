package source

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/varve-io/varve/schemas/rows"
)

// changes decodes the JSON envelopes of Maxwell, Canal, AWS DMS and Oracle
// GoldenGate. Their rows carry no schema: the table's types decide.
type changes struct {
	*reader
	format string
	parts  [changeParts]span
	typed  span // Canal: the columns' MySQL types
}

// The members of an envelope that matter, by what they hold.
const (
	partRow   = iota // the row, or Canal's array of them
	partOld          // what the row was before: whole, or what changed
	partOp           // what happened
	partMeta         // DMS: an object that has it
	partTypes        // Canal: the columns' types
	partIsDDL        // Canal
	changeParts
)

// changeMembers are the names of the members in each format.
var changeMembers = map[string]map[string]int{
	Maxwell:    {"data": partRow, "old": partOld, "type": partOp},
	Canal:      {"data": partRow, "old": partOld, "type": partOp, "mysqlType": partTypes, "isDdl": partIsDDL},
	DMS:        {"data": partRow, "metadata": partMeta},
	GoldenGate: {"after": partRow, "before": partOld, "op_type": partOp},
}

// beforePrefix begins the names of DMS's before images among a row's columns.
const beforePrefix = "BI_"

func newChanges(o Options, set *settings) (*changes, error) {
	if o.Format == Canal || o.Format == Maxwell {
		set.lenient = true
	}
	if o.Format == Canal {
		set.decimals, set.quoted = semString, true
	}
	r, err := newReader(o, set, false)
	if err != nil {
		return nil, err
	}
	if len(r.orderAt) > 0 {
		switch p, ok := changeMembers[o.Format][r.orderAt[0]]; {
		case ok && (p == partRow || p == partOld):
			return nil, fmt.Errorf("table %s: order path %q is inside the row; name the column as the ordering column instead",
				o.Def.Name, o.Def.Order.Path)
		}
	}
	d := &changes{reader: r, format: o.Format}
	if o.Format == DMS {
		r.prefix = beforePrefix
	}
	return d, nil
}

func (d *changes) Decode(dst *rows.Batch, rec *Record) (Result, error) {
	n := dst.Len()
	res, err := d.decode(dst, rec)
	if err != nil || res.Events == 0 {
		dst.Truncate(n)
		res.Events = 0
	}
	return res, err
}

func (d *changes) decode(dst *rows.Batch, rec *Record) (Result, error) {
	d.hasOrder, d.order = false, 0
	b, w, deleted, refused := d.open(rec, false, nil, "event")
	switch {
	case refused != nil:
		return Result{}, refused
	case deleted:
		return d.tombstone(dst, rec)
	}
	if end := skipValue(b, w.at); end < 0 || !w.closes(b, end) {
		return Result{}, malformed.reject(KindUnknown, "", false)
	}
	if j := d.split(b, w.at); j != nil {
		return Result{}, j
	}
	if len(d.orderAt) > 0 {
		if _, why := d.pick(d.orderAt, b, w.at); why != okay {
			return Result{}, d.orderReject(why, KindUnknown)
		}
	}
	switch d.format {
	case Maxwell:
		return d.maxwell(dst, rec, b)
	case Canal:
		return d.canal(dst, rec, b)
	case DMS:
		return d.dms(dst, rec, b)
	}
	return d.goldenGate(dst, rec, b)
}

// split finds the members of the well-formed object at b[i].
func (d *changes) split(b []byte, i int) *Reject {
	d.parts = [changeParts]span{}
	names := changeMembers[d.format]
	i = skipSpace(b, i+1)
	for more := b[i] != '}'; more; {
		name, v := member(b, i, &d.name)
		end := skipValue(b, v)
		if p, ok := names[string(name)]; ok {
			if d.parts[p].end != 0 {
				return twice.reject(KindUnknown, string(name), false)
			}
			d.parts[p] = span{v, end}
		}
		i, more = next(b, end)
	}
	return nil
}

// word is the text of a member, none where it is no text.
func (d *changes) word(b []byte, s span) []byte {
	if s.end-s.at < 2 || b[s.at] != '"' {
		return nil
	}
	return b[s.at+1 : s.end-1]
}

// object is the place of a member that is an object, nowhere for null or none.
func (d *changes) object(b []byte, part int, noun string, kind Kind) (int, *Reject) {
	s := d.parts[part]
	switch {
	case s.end == 0 || b[s.at] == 'n':
		return nowhere, nil
	case b[s.at] != '{':
		return nowhere, Rejectf(kind, "malformed", "the event's %s is no JSON object", noun)
	}
	return s.at, nil
}

func noOp() *Reject {
	return Rejectf(KindUnknown, "malformed", "the event does not say what happened: it is none of the table's format")
}

func otherOp() *Reject {
	return Rejectf(KindUnknown, "unsupported-op", "the event's operation is not known")
}

func (d *changes) maxwell(dst *rows.Batch, rec *Record, b []byte) (Result, error) {
	switch op := string(d.word(b, d.parts[partOp])); {
	case op == "insert" || op == "bootstrap-insert" || op == "update":
		return d.one(dst, rec, b, "data", "old", op == "update")
	case op == "delete":
		return d.gone(dst, rec, b, partRow, "data")
	case op == "":
		return Result{}, noOp()
	case op == "table-truncate":
		return Result{}, truncateRefused()
	case op == "bootstrap-start" || op == "bootstrap-complete" || op == "heartbeat" ||
		strings.HasPrefix(op, "table-") || strings.HasPrefix(op, "database-"):
		return Result{Control: true}, nil
	}
	return Result{}, otherOp()
}

func (d *changes) goldenGate(dst *rows.Batch, rec *Record, b []byte) (Result, error) {
	switch op := string(d.word(b, d.parts[partOp])); op {
	case "I", "U", "K": // K: an update of the key
		return d.one(dst, rec, b, "after", "before", op != "I")
	case "D":
		return d.gone(dst, rec, b, partOld, "before")
	case "T":
		return Result{}, truncateRefused()
	case "":
		return Result{}, noOp()
	}
	return Result{}, otherOp()
}

func (d *changes) dms(dst *rows.Batch, rec *Record, b []byte) (Result, error) {
	meta := d.parts[partMeta]
	if meta.end == 0 || b[meta.at] != '{' {
		return Result{}, noOp()
	}
	var op []byte
	control := false
	i := skipSpace(b, meta.at+1)
	for more := b[i] != '}'; more; {
		name, v := member(b, i, &d.name)
		end := skipValue(b, v)
		switch string(name) {
		case "operation":
			op = d.word(b, span{v, end})
		case "record-type":
			control = string(d.word(b, span{v, end})) == "control"
		}
		i, more = next(b, end)
	}
	switch {
	case control && string(op) == "truncate-table":
		return Result{}, truncateRefused()
	case control:
		return Result{Control: true}, nil
	}
	switch string(op) {
	case "load", "insert", "update":
		return d.one(dst, rec, b, "data", "", string(op) == "update")
	case "delete":
		return d.gone(dst, rec, b, partRow, "data")
	case "":
		return Result{}, noOp()
	}
	return Result{}, otherOp()
}

// canal decodes a message of many rows: all of them, or none.
func (d *changes) canal(dst *rows.Batch, rec *Record, b []byte) (Result, error) {
	op := string(d.word(b, d.parts[partOp]))
	ddl := d.parts[partIsDDL]
	switch {
	case op == "TRUNCATE":
		return Result{}, truncateRefused()
	case ddl.end != 0 && b[ddl.at] == 't', op == "QUERY":
		return Result{Control: true}, nil
	case op == "":
		return Result{}, noOp()
	case op != "INSERT" && op != "UPDATE" && op != "DELETE":
		return Result{}, otherOp()
	}
	kind := KindUpsert
	if op == "DELETE" {
		kind = KindDelete
	}
	data := d.parts[partRow]
	if data.end == 0 || b[data.at] != '[' {
		return Result{}, Rejectf(kind, "malformed", "the event's data is no array of rows")
	}
	d.typed = d.parts[partTypes]
	d.hints = d.mysqlHint(b)
	defer func() { d.hints = nil }()
	old := d.parts[partOld]
	var res Result
	at, oldAt := skipSpace(b, data.at+1), nowhere
	if old.end != 0 && b[old.at] == '[' && op == "UPDATE" {
		oldAt = skipSpace(b, old.at+1)
	}
	for b[at] != ']' {
		if b[at] != '{' {
			return Result{}, Rejectf(kind, "malformed", "a row in the event's data is no JSON object")
		}
		var err error
		n := 1
		if op == "DELETE" {
			err = d.remove(dst, rec, b, at)
		} else {
			was := nowhere
			if oldAt >= 0 && b[oldAt] == '{' {
				was = oldAt
			}
			n, err = d.put(dst, rec, b, at, was, false)
		}
		if err != nil {
			return Result{}, err
		}
		res.Events += n
		at = nextElement(b, at)
		if oldAt >= 0 && b[oldAt] != ']' {
			oldAt = nextElement(b, oldAt)
		}
	}
	if res.Events == 0 {
		return Result{Control: true}, nil // an event of no rows
	}
	return res, nil
}

// nextElement is the place of what follows a well-formed array's element at
// b[i]: the next one, or the bracket.
func nextElement(b []byte, i int) int {
	if i = skipSpace(b, skipValue(b, i)); b[i] == ',' {
		i = skipSpace(b, i+1)
	}
	return i
}

// one decodes an event that leaves one row.
func (d *changes) one(dst *rows.Batch, rec *Record, b []byte, row, old string, update bool) (Result, error) {
	at, j := d.object(b, partRow, row, KindUpsert)
	if j == nil && at == nowhere {
		j = Rejectf(KindUpsert, "malformed", "the event has no row in %s", row)
	}
	was := nowhere
	if j == nil && update {
		was, j = d.object(b, partOld, old, KindUpsert)
	}
	if j != nil {
		return Result{}, j
	}
	n, err := d.put(dst, rec, b, at, was, update && d.format == GoldenGate)
	return Result{Events: n}, err
}

// gone decodes an event that deletes the row in a part, or the record key's.
func (d *changes) gone(dst *rows.Batch, rec *Record, b []byte, part int, noun string) (Result, error) {
	at, j := d.object(b, part, noun, KindDelete)
	if j != nil {
		return Result{}, j
	}
	if err := d.remove(dst, rec, b, at); err != nil {
		return Result{}, err
	}
	return Result{Events: 1}, nil
}

// remove deletes by the key of the row at b[at], or else by the record's.
func (d *changes) remove(dst *rows.Batch, rec *Record, b []byte, at int) error {
	if len(d.keys) == 0 {
		return noKey()
	}
	d.begin()
	if at >= 0 {
		if _, why := d.scan(d.bare, b, at); why != okay {
			return d.rowReject(why, KindDelete)
		}
	}
	order, has := d.order, d.hasOrder
	if !d.hasKey(b) {
		if err := d.putRecordKey(rec, dst.Cols, KindDelete); err != nil {
			return err
		}
	} else {
		if why := d.putKey(d.bare, dst.Cols, d.keys, b); why != okay {
			return d.rowReject(why, KindDelete)
		}
		if d.orderCol >= 0 {
			order, has = d.oldOrder(d.bare, b)
		}
	}
	dst.AppendEvent(rows.Delete, rec.Offset, order, has)
	return nil
}

// put upserts the row at b[at]. The object at b[was], if any, has what the row
// was before: a key in it that differs is deleted (K6). whole says that
// columns which the row lacks must be told by the object before.
func (d *changes) put(dst *rows.Batch, rec *Record, b []byte, at, was int, whole bool) (int, error) {
	base := dst.Len()
	if err := d.appendRow(dst, rec, b, at, was, whole); err != nil {
		return 0, err
	}
	moved, err := d.oldKey(dst, base, b, at, was)
	if err != nil {
		return 0, err
	}
	order, has := d.orderOf(dst)
	if !moved {
		d.upserted(dst, rec, order, has, false)
		return 1, nil
	}
	dst.Truncate(base)
	for k, c := range d.keys {
		copyValue(&dst.Cols[c], &d.image[k])
	}
	dst.AppendEvent(rows.Delete, rec.Offset, order, has)
	if err := d.appendRow(dst, rec, b, at, was, whole); err != nil {
		return 0, err
	}
	d.upserted(dst, rec, order, has, true)
	return 2, nil
}

// appendRow appends the row's columns.
func (d *changes) appendRow(dst *rows.Batch, rec *Record, b []byte, at, was int, whole bool) error {
	base := dst.Len()
	d.begin()
	if _, why := d.row(d.bare, dst.Cols, base, b, at); why != okay {
		return d.rowReject(why, KindUpsert)
	}
	if len(d.unknown) > 0 {
		return d.bareChange(KindUpsert)
	}
	if whole {
		if err := d.unchanged(dst, base, b, was); err != nil {
			return err
		}
	}
	if err := d.fillKey(rec, dst.Cols, base, KindUpsert); err != nil {
		return err
	}
	if why := d.complete(dst.Cols, base); why != okay {
		return d.rowReject(why, KindUpsert)
	}
	return nil
}

// unchanged takes the columns that an update left out from the image before.
// A column in neither is not known: null would be a guess.
func (d *changes) unchanged(dst *rows.Batch, base int, b []byte, was int) error {
	if d.count == len(dst.Cols) {
		return nil
	}
	if was >= 0 {
		i := skipSpace(b, was+1)
		for more := b[i] != '}'; more; {
			name, v := member(b, i, &d.name)
			f := d.bare.fieldOf(string(name))
			if f != nil && f.col >= 0 && dst.Cols[f.col].Len() == base {
				c := &dst.Cols[f.col]
				var why fail
				if b[v] == 'n' {
					_, why = d.null(c, f, b, v)
				} else {
					_, why = d.value(c, f, b, v)
				}
				if why != okay {
					d.failCol, d.failKey = f.name, f.key >= 0
					return d.rowReject(why, KindUpsert)
				}
				d.count++
			}
			i, more = next(b, skipValue(b, v))
		}
	}
	for c := range dst.Cols {
		name := d.schema.Fields[c].Name
		if dst.Cols[c].Len() == base && d.keyOf[c] < 0 && !d.set.exclude[name] {
			if d.carries(&field{name: name, col: c, key: -1}) {
				dst.Cols[c].AppendNull()
				d.count++
				continue
			}
			return Rejectf(KindUpsert, "unavailable-value", "column %q is in neither image of the update; make the source write whole rows (GoldenGate: NOCOMPRESSUPDATES, or update before images)", name)
		}
	}
	return nil
}

// oldKey says whether the row just appended had another key before, and leaves
// that in image. A key part that is not told did not change.
func (d *changes) oldKey(dst *rows.Batch, base int, b []byte, at, was int) (bool, error) {
	if d.prefix != "" {
		was = at
	}
	if was < 0 || len(d.keys) == 0 {
		return false, nil
	}
	moved := false
	for k, c := range d.keys {
		col := &d.image[k]
		col.Truncate(0)
		copyRow(col, &dst.Cols[c], base)
		f := d.bare.fieldOf(d.schema.Fields[c].Name)
		v := d.locate(b, was, d.prefix, f.name)
		if v < 0 || b[v] == 'n' {
			continue
		}
		col.Truncate(0)
		if _, why := d.value(col, f, b, v); why != okay {
			d.failCol, d.failKey = f.name, true
			j := d.rowReject(why, KindUpsert)
			j.Reason = "before: " + j.Reason
			return false, j
		}
		moved = moved || !sameValue(col, 0, &dst.Cols[c], base)
	}
	return moved, nil
}

// copyRow appends row i of src.
func copyRow(dst, src *rows.Column, i int) {
	switch dst.Storage {
	case rows.Ints:
		dst.AppendInt(src.Ints[i])
	case rows.Floats:
		dst.AppendFloat(src.Floats[i])
	default:
		dst.AppendBytes(src.BytesAt(i))
	}
}

// locate is the place of the value of prefix+name in the well-formed object at
// b[i], or nowhere.
func (d *changes) locate(b []byte, i int, prefix, name string) int {
	i = skipSpace(b, i+1)
	for more := b[i] != '}'; more; {
		n, v := member(b, i, &d.name)
		if len(n) == len(prefix)+len(name) && string(n[:len(prefix)]) == prefix && string(n[len(prefix):]) == name {
			return v
		}
		i, more = next(b, skipValue(b, v))
	}
	return nowhere
}

// mysqlHint gives new columns of a Canal event their types.
func (d *changes) mysqlHint(b []byte) func(string) (declared, bool) {
	if d.typed.end == 0 || b[d.typed.at] != '{' {
		return nil
	}
	text := b[d.typed.at:d.typed.end]
	return func(name string) (t declared, ok bool) {
		members(text, func(n string, v []byte) {
			if n == name && v[0] == '"' {
				t, ok = mysqlType(string(v[1:len(v)-1])), true
			}
		})
		return t, ok
	}
}

// mysqlType is what a MySQL type says of its values, written as text.
func mysqlType(text string) declared {
	text = strings.ToLower(text)
	name, rest, _ := strings.Cut(text, "(")
	name, _, _ = strings.Cut(name, " ")
	unsigned := strings.Contains(text, "unsigned")
	switch name {
	case "boolean", "bool":
		return declared{sem: semBool}
	case "tinyint", "smallint", "mediumint", "year":
		return declared{sem: semInt32}
	case "int", "integer":
		if unsigned {
			return declared{sem: semInt64}
		}
		return declared{sem: semInt32}
	case "bigint":
		if unsigned {
			return declared{sem: semDecimal, precision: 20}
		}
		return declared{sem: semInt64}
	case "float":
		return declared{sem: semFloat}
	case "double", "real":
		return declared{sem: semDouble}
	case "decimal", "numeric":
		p, s := 10, 0
		if _, err := fmt.Sscanf(rest, "%d,%d)", &p, &s); err != nil {
			s = 0
			if _, err := fmt.Sscanf(rest, "%d)", &p); err != nil {
				p = 10
			}
		}
		return declared{sem: semDecimal, precision: p, scale: s}
	case "date":
		return declared{sem: semIsoDate}
	case "datetime", "timestamp":
		return declared{sem: semIsoTs}
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json", "time":
		return declared{sem: semString}
	}
	return declared{sem: semNested} // blobs, bits and geometry as text have no one meaning
}

// changeRows calls f for the rows of an event, with the type that the event
// gives to a column.
func changeRows(format string, event []byte, f func(row []byte, hint func(string) (declared, bool))) {
	d := changes{reader: &reader{}, format: format}
	if d.split(event, 0) != nil {
		return
	}
	d.typed = d.parts[partTypes]
	hint := d.mysqlHint(event)
	for _, p := range [...]int{partRow, partOld} {
		s := d.parts[p]
		if s.end == 0 || p == partOld && format != GoldenGate {
			continue
		}
		switch text := bytes.TrimSpace(event[s.at:s.end]); {
		case text[0] == '{':
			f(text, hint)
		case text[0] == '[' && format == Canal:
			for i := skipSpace(text, 1); text[i] != ']'; i = nextElement(text, i) {
				if text[i] == '{' {
					f(text[i:skipValue(text, i)], hint)
				}
			}
		}
	}
}
