package source

import (
	"github.com/varve-io/varve/schemas/rows"
)

// Members of Debezium's flattened form (ExtractNewRecordState) that say what
// happened to the row. They have this meaning unless the table has columns of
// these names.
const (
	flatDeleted = "__deleted"
	flatOp      = "__op"
	flatChange  = "_cdc" // the Kafka Connect Iceberg sink's
)

// rowsJSON decodes plain JSON rows: a value is the row's new state, a null
// value deletes by the record key.
type rowsJSON struct{ *reader }

func newRowsJSON(o Options, set *settings) (*rowsJSON, error) {
	r, err := newReader(o, set, true)
	if err != nil {
		return nil, err
	}
	return &rowsJSON{reader: r}, nil
}

func (d *rowsJSON) Decode(dst *rows.Batch, rec *Record) (Result, error) {
	n := dst.Len()
	res, err := d.decode(dst, rec)
	if err != nil {
		dst.Truncate(n)
	}
	return res, err
}

func (d *rowsJSON) decode(dst *rows.Batch, rec *Record) (Result, error) {
	d.hasOrder, d.order = false, 0
	b, w, deleted, refused := d.open(rec, d.wrapper, d.rowPlan, "row")
	switch {
	case refused != nil:
		return Result{}, refused
	case deleted:
		return d.tombstone(dst, rec)
	}
	return d.object(dst, rec, b, w)
}

func (d *rowsJSON) object(dst *rows.Batch, rec *Record, b []byte, w wrapped) (Result, error) {
	base := dst.Len()
	d.begin()
	if len(d.orderAt) > 0 {
		if _, why := d.pick(d.orderAt, b, w.at); why != okay {
			return Result{}, d.orderReject(why, KindUpsert)
		}
	}
	if w.plan.change != nil || w.plan.refuse != nil {
		return d.changed(dst, rec, b, w)
	}
	end, why := d.row(w.plan, dst.Cols, base, b, w.at)
	switch {
	case why != okay && why != malformed && d.deletes(b, w):
		return d.deleteRow(dst, rec, b, w)
	case why != okay:
		if whole := skipValue(b, w.at); whole < 0 || !w.closes(b, whole) {
			why = malformed // a cut record says nothing for sure
		}
		return Result{}, d.rowReject(why, KindUpsert)
	case !w.closes(b, end):
		return Result{}, Rejectf(KindUpsert, "malformed", "the row has bytes after its end")
	case d.deleted:
		return d.deleteRow(dst, rec, b, w)
	case len(d.unknown) > 0:
		return Result{}, d.bareChange(KindUpsert)
	}
	if d.set.recordKey {
		for _, c := range d.keys {
			dst.Cols[c].Truncate(base)
		}
		if err := d.putRecordKey(rec, dst.Cols, KindUpsert); err != nil {
			return Result{}, err
		}
	} else if err := d.fillKey(rec, dst.Cols, base, KindUpsert); err != nil {
		return Result{}, err
	}
	if why := d.complete(dst.Cols, base); why != okay {
		return Result{}, d.rowReject(why, KindUpsert)
	}
	order, has := d.orderOf(dst)
	d.upserted(dst, rec, order, has, len(d.carried) > 0 && d.headerKey(rec))
	return Result{Events: 1}, nil
}

// changed handles a row whose own schema asks for another table schema. A
// delete does not wait for columns that it does not carry.
func (d *rowsJSON) changed(dst *rows.Batch, rec *Record, b []byte, w wrapped) (Result, error) {
	end := skipValue(b, w.at)
	switch {
	case end < 0 || !w.closes(b, end):
		return Result{}, malformed.reject(KindUnknown, "", false)
	case d.deletes(b, w):
		return d.deleteRow(dst, rec, b, w)
	case w.plan.refuse != nil:
		j := *w.plan.refuse
		j.Kind = KindUpsert
		return Result{}, &j
	}
	return Result{}, w.plan.change
}

// deletes says whether the object's own flags make it a delete.
func (d *rowsJSON) deletes(b []byte, w wrapped) bool {
	d.deleted = false
	i := skipSpace(b, w.at+1)
	for more := true; more; {
		name, v := member(b, i, &d.name)
		if v < 0 {
			return false
		}
		end := skipValue(b, v)
		if end < 0 {
			return false
		}
		if f := w.plan.fieldOf(string(name)); f != nil && (f.op == opDeleted || f.op == opFlatOp || f.op == opFlatChange) && f.col < 0 {
			if _, why := d.offTable(f, b, v); why != okay {
				return false
			}
		}
		if i, more = next(b, end); i < 0 {
			return false
		}
	}
	return d.deleted
}

// deleteRow deletes by the key that a row carries, or else by the record's.
func (d *rowsJSON) deleteRow(dst *rows.Batch, rec *Record, b []byte, w wrapped) (Result, error) {
	if len(d.keys) == 0 {
		return Result{}, noKey()
	}
	dst.Truncate(dst.Len())
	d.begin()
	_, why := d.scan(w.plan, b, w.at)
	switch {
	case why != okay:
		return Result{}, d.rowReject(why, KindDelete)
	case d.set.recordKey || !d.hasKey(b):
		if err := d.putRecordKey(rec, dst.Cols, KindDelete); err != nil {
			return Result{}, err
		}
	case w.plan.keyChange != nil:
		return Result{}, w.plan.keyChange
	default:
		if why := d.putKey(w.plan, dst.Cols, d.keys, b); why != okay {
			return Result{}, d.rowReject(why, KindDelete)
		}
	}
	order, has := d.order, d.hasOrder
	if d.orderCol >= 0 {
		order, has = d.oldOrder(w.plan, b)
	}
	dst.AppendEvent(rows.Delete, rec.Offset, order, has)
	return Result{Events: 1}, nil
}

// rowPlan makes the plan for rows of a Connect schema.
func (r *reader) rowPlan(text []byte) (*plan, *Reject) {
	s, err := parseConnect(text)
	if err != nil {
		return nil, Rejectf(KindUnknown, "malformed", "the row's schema is no Kafka Connect schema")
	}
	if s == nil || s.Type != "struct" {
		return nil, nil
	}
	return r.compile(s), nil
}
