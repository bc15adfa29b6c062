package source

import (
	"fmt"

	"github.com/varve-io/varve/schemas/rows"
)

// debezium decodes Debezium's change events in JSON, with or without the
// {schema, payload} wrapper of Kafka Connect's JsonConverter.
type debezium struct {
	*reader
	env    envelope
	newKey []span // the key columns' values in after
	kind   func(name []byte) memberKind

	outer, inner memo // the envelope, and source in it
}

func newDebezium(o Options, set *settings) (*debezium, error) {
	set.dateUnit = semDate // Debezium's dates are days, with and without schema
	r, err := newReader(o, set, false)
	if err != nil {
		return nil, err
	}
	if len(r.orderAt) > 0 {
		switch r.orderAt[0] {
		case "before", "after", "op":
			return nil, fmt.Errorf("table %s: order path %q is inside the row; name the column as the ordering column instead",
				o.Def.Name, o.Def.Order.Path)
		}
	}
	d := &debezium{reader: r}
	d.kind = d.memberKind
	return d, nil
}

// envelope is what an event says outside its rows. Places are -1 where a
// member is absent, and isNullAt where it is null.
type envelope struct {
	op            byte // 0: none, '?': not one letter
	before, after int
	control       bool // a member of a control record was met
}

const (
	nowhere  = -1
	isNullAt = -2
)

func (d *debezium) Decode(dst *rows.Batch, rec *Record) (Result, error) {
	n := dst.Len()
	res, err := d.decode(dst, rec)
	if err != nil || res.Events == 0 {
		dst.Truncate(n)
	}
	return res, err
}

func (d *debezium) decode(dst *rows.Batch, rec *Record) (Result, error) {
	d.hasOrder, d.order = false, 0
	b, w, deleted, refused := d.open(rec, true, d.eventPlan, "event")
	switch {
	case refused != nil:
		return Result{}, refused
	case deleted:
		return d.tombstone(dst, rec)
	}
	d.begin()
	base := dst.Len()
	end, j := d.envelope(dst, base, b, w.at, w.plan)
	if j == nil && !w.closes(b, end) {
		j = Rejectf(KindUnknown, "malformed", "the event has bytes after its end")
	}
	if j != nil {
		return d.refused(j, b, w)
	}
	return d.apply(dst, rec, b, w)
}

// refused gives a Reject what can be told of the event's operation. A signal
// is a control record even where it does not fit the table.
func (d *debezium) refused(j *Reject, b []byte, w wrapped) (Result, error) {
	j.Kind = KindUnknown
	whole := skipValue(b, w.at)
	wellFormed := whole >= 0 && w.closes(b, whole)
	if !wellFormed && j.Code != "malformed" {
		j = malformed.reject(KindUnknown, "", false) // a cut record says nothing for sure
	}
	i := skipSpace(b, w.at+1)
	for more := i < len(b) && b[i] == '"'; more; {
		name, v := member(b, i, &d.name)
		if v < 0 {
			break
		}
		if string(name) == "op" && v+2 < len(b) {
			j.Kind = kindOf(b[v+1])
		}
		if wellFormed && string(name) == "after" && b[v] == '{' && d.isSignal(b, v) {
			return Result{Control: true}, nil
		}
		end := skipValue(b, v)
		if end < 0 {
			break
		}
		at, again := next(b, end)
		if i, more = at, again; at < 0 {
			break
		}
	}
	return Result{}, j
}

func kindOf(op byte) Kind {
	switch op {
	case 'c', 'r', 'u':
		return KindUpsert
	case 'd', 't':
		return KindDelete
	}
	return KindUnknown
}

// envelope reads the event at b[at] in one pass; after goes straight into dst.
func (d *debezium) envelope(dst *rows.Batch, base int, b []byte, at int, p *plan) (int, *Reject) {
	e := &d.env
	*e = envelope{before: nowhere, after: nowhere}
	i := skipSpace(b, at+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for k := 0; ; k++ {
		if end, more, ok := d.outer.same(k, b, i); ok {
			if i = end; !more {
				return i, nil
			}
			continue
		}
		kind, v := d.outer.name(k, b, i, &d.name, d.kind)
		if v < 0 {
			return i, malformed.reject(KindUnknown, "", false)
		}
		end, j := d.member(kind, dst, base, b, v, p)
		if j != nil {
			return v, j
		}
		if end < 0 {
			return v, malformed.reject(KindUnknown, "", false)
		}
		end = skipSpace(b, end)
		next, more := next(b, end)
		if next < 0 {
			return end, malformed.reject(KindUnknown, "", false)
		}
		if kind == other {
			d.outer.keep(k, b, i, end+1)
		}
		if i = next; !more {
			return i, nil
		}
	}
}

// memberKind of a member of the envelope.
func (d *debezium) memberKind(name []byte) memberKind {
	switch string(name) {
	case "after":
		return afterMember
	case "before":
		return beforeMember
	case "op":
		return opMember
	case "source":
		return sourceMember
	case "ddl", "databaseName", "tableChanges", "status", "event_count", "data_collections", "message":
		return controlMember
	}
	if len(d.orderAt) > 0 && string(name) == d.orderAt[0] {
		return pathMember
	}
	return other
}

// member reads one member of the envelope, whose value is at b[v]. A negative
// end means ill-formed text.
func (d *debezium) member(kind memberKind, dst *rows.Batch, base int, b []byte, v int, p *plan) (int, *Reject) {
	e := &d.env
	var why fail
	end := 0
	switch kind {
	case afterMember, beforeMember:
		place, name := &e.after, "after"
		if kind == beforeMember {
			place, name = &e.before, "before"
		}
		switch {
		case *place != nowhere:
			return v, twice.reject(KindUnknown, name, false)
		case b[v] == 'n':
			*place = isNullAt
			return scanWord(b, v, "null"), nil
		case b[v] != '{':
			return v, Rejectf(KindUnknown, "malformed", "the event's %s is no JSON object", name)
		}
		*place = v
		if kind == beforeMember || p.change != nil || p.refuse != nil {
			return skipValue(b, v), nil
		}
		if end, why = d.row(p, dst.Cols, base, b, v); why != okay {
			return v, d.rowReject(why, KindUnknown)
		}
		return end, nil
	case opMember:
		if e.op != 0 {
			return v, twice.reject(KindUnknown, "op", false)
		}
		e.op = '?'
		if v+2 < len(b) && b[v] == '"' && b[v+2] == '"' {
			e.op = b[v+1]
		}
		return skipValue(b, v), nil
	case sourceMember:
		want := ""
		if len(d.orderAt) > 0 && d.orderAt[0] == "source" {
			if len(d.orderAt) != 2 {
				end, why = d.pick(d.orderAt[1:], b, v)
				break
			}
			want = d.orderAt[1]
		}
		end, why = d.skim(&d.inner, want, b, v)
	case pathMember:
		end, why = d.pick(d.orderAt[1:], b, v)
	case controlMember:
		e.control = true
		return skipValue(b, v), nil
	default:
		return skipValue(b, v), nil
	}
	if why != okay {
		return v, d.orderReject(why, KindUnknown)
	}
	return end, nil
}

// apply decides what a well-formed event does.
func (d *debezium) apply(dst *rows.Batch, rec *Record, b []byte, w wrapped) (Result, error) {
	e := &d.env
	switch e.op {
	case 'c', 'r', 'u':
		return d.upsert(dst, rec, b, w)
	case 'd':
		return d.delete(dst, rec, b, w.plan)
	case 'm':
		return Result{Control: true}, nil
	case 't':
		return Result{}, truncateRefused()
	case 0:
		if e.before == nowhere && e.after == nowhere && (e.control || d.isHeartbeat(b, w.at) || d.isSignal(b, w.at)) {
			return Result{Control: true}, nil
		}
		return Result{}, Rejectf(KindUnknown, "malformed", "the event has no op; flattened events are read by format %s", RowsJSON)
	}
	return Result{}, Rejectf(KindUnknown, "unsupported-op", "the event's op is none of c, r, u, d, t, m")
}

func truncateRefused() *Reject {
	return Rejectf(KindDelete, "unsupported-op", "a truncate removes every row, which this version does not do; "+
		"ask for it with varve delete --where, or set the connector's skipped.operations to t")
}

func (d *debezium) upsert(dst *rows.Batch, rec *Record, b []byte, w wrapped) (Result, error) {
	e, p := &d.env, w.plan
	base := dst.Len()
	switch {
	case e.after == nowhere || e.after == isNullAt:
		return Result{}, Rejectf(KindUpsert, "malformed", "the event has no row in after")
	case p.refuse != nil || p.change != nil:
		if d.isSignal(b, e.after) {
			return Result{Control: true}, nil
		}
		if p.refuse != nil {
			j := *p.refuse
			j.Kind = KindUpsert
			return Result{}, &j
		}
		return Result{}, p.change
	case len(d.unknown) > 0:
		if d.isSignal(b, e.after) {
			return Result{Control: true}, nil
		}
		return Result{}, d.bareChange(KindUpsert)
	}
	if err := d.fillKey(rec, dst.Cols, base, KindUpsert); err != nil {
		return Result{}, err
	}
	if why := d.complete(dst.Cols, base); why != okay {
		return Result{}, d.rowReject(why, KindUpsert)
	}
	events, moved := 1, false
	if e.op == 'u' && e.before >= 0 && len(d.keys) > 0 {
		var err error
		moved, err = d.keyMoved(dst, base, b, p)
		if err != nil {
			return Result{}, err
		}
		if moved {
			events = 2
			if err := d.move(dst, rec, base, b, p); err != nil {
				return Result{}, err
			}
		}
	}
	order, has := d.orderOf(dst)
	moved = moved || len(d.carried) > 0 && d.headerKey(rec)
	d.upserted(dst, rec, order, has, moved)
	return Result{Events: events}, nil
}

// orderOf is the ordering value of the row appended last.
func (r *reader) orderOf(dst *rows.Batch) (int64, bool) {
	if r.orderCol < 0 {
		return r.order, r.hasOrder
	}
	c := &dst.Cols[r.orderCol]
	if n := c.Len() - 1; n == dst.Len() && !c.IsNull(n) {
		return c.Ints[n], true
	}
	return 0, false
}

// keyMoved says whether the before image has another key than the row just
// appended (K6), and leaves the old key in image. An image without the whole
// key says nothing of it.
func (d *debezium) keyMoved(dst *rows.Batch, base int, b []byte, p *plan) (bool, error) {
	d.newKey = append(d.newKey[:0], d.keySpans...)
	for k := range d.keySpans {
		d.keySpans[k] = span{}
	}
	refuse := func(why fail) (bool, error) {
		j := d.rowReject(why, KindUpsert)
		j.Reason = "before: " + j.Reason
		return false, j
	}
	if _, why := d.scan(p, b, d.env.before); why != okay {
		return refuse(why)
	}
	if !d.hasKey(b) || d.sameSpans(b) {
		return false, nil
	}
	for k := range d.image {
		d.image[k].Truncate(0)
	}
	if why := d.putKey(p, d.image, d.ordinals, b); why != okay {
		return refuse(why)
	}
	for k, c := range d.keys {
		if !sameValue(&d.image[k], 0, &dst.Cols[c], base) {
			return true, nil
		}
	}
	return false, nil
}

// sameSpans says whether both images write the key in the same bytes.
func (d *debezium) sameSpans(b []byte) bool {
	for k, s := range d.keySpans {
		n := d.newKey[k]
		if string(b[s.at:s.end]) != string(b[n.at:n.end]) {
			return false
		}
	}
	return true
}

func sameValue(a *rows.Column, i int, b *rows.Column, j int) bool {
	switch a.Storage {
	case rows.Ints:
		return a.Ints[i] == b.Ints[j]
	case rows.Floats:
		return a.Floats[i] == b.Floats[j]
	}
	return string(a.BytesAt(i)) == string(b.BytesAt(j))
}

// move takes the row just appended back, deletes the old key, and appends the
// row again after it. image holds the old key.
func (d *debezium) move(dst *rows.Batch, rec *Record, base int, b []byte, p *plan) error {
	order, has := d.orderOf(dst)
	dst.Truncate(base)
	for k, c := range d.keys {
		copyValue(&dst.Cols[c], &d.image[k])
	}
	dst.AppendEvent(rows.Delete, rec.Offset, order, has)
	d.begin()
	if _, why := d.row(p, dst.Cols, base+1, b, d.env.after); why != okay {
		return d.rowReject(why, KindUpsert)
	}
	if err := d.fillKey(rec, dst.Cols, base+1, KindUpsert); err != nil {
		return err
	}
	if why := d.complete(dst.Cols, base+1); why != okay {
		return d.rowReject(why, KindUpsert)
	}
	return nil
}

func copyValue(dst, src *rows.Column) {
	switch dst.Storage {
	case rows.Ints:
		dst.AppendInt(src.Ints[0])
	case rows.Floats:
		dst.AppendFloat(src.Floats[0])
	default:
		dst.AppendBytes(src.BytesAt(0))
	}
}

// delete takes the key from before, or else from the record key; nothing
// else of the event matters (inputs.md, kinds 3 and 13).
func (d *debezium) delete(dst *rows.Batch, rec *Record, b []byte, p *plan) (Result, error) {
	if len(d.keys) == 0 {
		return Result{}, noKey()
	}
	dst.Truncate(dst.Len()) // should after not have been null
	order, has := d.order, d.hasOrder
	inBefore := false
	if d.env.before >= 0 {
		d.begin()
		if _, why := d.scan(p, b, d.env.before); why != okay {
			return Result{}, d.rowReject(why, KindDelete)
		}
		inBefore = d.hasKey(b)
		if d.orderCol >= 0 {
			order, has = d.oldOrder(p, b)
		}
	}
	if !inBefore {
		if err := d.putRecordKey(rec, dst.Cols, KindDelete); err != nil {
			return Result{}, err
		}
	} else {
		if p.keyChange != nil {
			return Result{}, p.keyChange
		}
		if why := d.putKey(p, dst.Cols, d.keys, b); why != okay {
			return Result{}, d.rowReject(why, KindDelete)
		}
	}
	dst.AppendEvent(rows.Delete, rec.Offset, order, has)
	return Result{Events: 1}, nil
}

// oldOrder is the ordering column's value in a deleted row. Databases that log
// only the key fill the other columns with null or, where that is forbidden,
// zero; a zero is therefore no value here.
func (r *reader) oldOrder(p *plan, b []byte) (int64, bool) {
	f := p.fieldOf(r.schema.Fields[r.orderCol].Name)
	if f == nil || r.rowOrder.end == 0 || b[r.rowOrder.at] == 'n' {
		return 0, false
	}
	c := &r.oldest
	c.Truncate(0)
	if _, why := r.value(c, f, b, r.rowOrder.at); why != okay || c.IsNull(0) || c.Ints[0] == 0 {
		return 0, false
	}
	return c.Ints[0], true
}

// tombstone is a delete by the record's key.
func (r *reader) tombstone(dst *rows.Batch, rec *Record) (Result, error) {
	if len(r.keys) == 0 {
		return Result{}, noKey()
	}
	if err := r.putRecordKey(rec, dst.Cols, KindDelete); err != nil {
		return Result{}, err
	}
	dst.AppendEvent(rows.Delete, rec.Offset, 0, false)
	return Result{Events: 1}, nil
}

func noKey() *Reject {
	return Rejectf(KindDelete, "unsupported-op", "the table has no key, so nothing can be deleted by key")
}

// isHeartbeat says whether the object at b[i] is {"ts_ms": number}.
func (r *reader) isHeartbeat(b []byte, i int) bool {
	name, v := member(b, skipSpace(b, i+1), &r.name)
	if v < 0 || string(name) != "ts_ms" {
		return false
	}
	end, whole := scanNumber(b, v)
	if end < 0 || !whole {
		return false
	}
	_, more := next(b, end)
	return !more
}

// signals are the types of Debezium's signals.
var signals = map[string]bool{
	"execute-snapshot": true, "stop-snapshot": true, "pause-snapshot": true, "resume-snapshot": true,
	"snapshot-window-open": true, "snapshot-window-close": true, "schema-changes": true, "log": true,
	"set-binlog-position": true, "set-offsets": true, "shutdown": true,
}

// isSignal says whether the object at b[i] is a signal: id, type and data and
// nothing else, with a type that Debezium knows.
func (r *reader) isSignal(b []byte, i int) bool {
	known := false
	i = skipSpace(b, i+1)
	for more := true; more; {
		name, v := member(b, i, &r.name)
		if v < 0 {
			return false
		}
		end := skipValue(b, v)
		if end < 0 {
			return false
		}
		switch string(name) {
		case "id", "data", "ID", "DATA":
		case "type", "TYPE":
			known = b[v] == '"' && signals[string(b[v+1:end-1])]
		default:
			return false
		}
		if i, more = next(b, end); i < 0 {
			return false
		}
	}
	return known
}

// eventPlan makes the plan for the rows of an envelope's Connect schema.
func (r *reader) eventPlan(text []byte) (*plan, *Reject) {
	s, err := parseConnect(text)
	if err != nil {
		return nil, Rejectf(KindUnknown, "malformed", "the event's schema is no Kafka Connect schema")
	}
	if s = rowSchema(s); s == nil {
		return nil, nil
	}
	return r.compile(s), nil
}

// rowSchema is the schema of the rows in an envelope's schema, or nil: a
// control record has none.
func rowSchema(s *connectSchema) *connectSchema {
	if s == nil {
		return nil
	}
	for _, name := range [...]string{"after", "before"} {
		if f := s.field(name); f != nil && f.Type == "struct" {
			return f
		}
	}
	return nil
}
