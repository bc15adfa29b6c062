package source

import (
	"encoding/hex"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// compile makes the plan for rows whose schema is s (a struct).
func (r *reader) compile(s *connectSchema) *plan {
	p := &plan{byName: make(map[string]int, len(s.Fields)), first: -1}
	var change, keyChange SchemaChange
	refuse := func(j *Reject) {
		if p.refuse == nil {
			p.refuse = j
		}
	}
	names := newNames(r.schema)
	for i := range s.Fields {
		in := &s.Fields[i]
		if _, again := p.byName[in.Field]; again {
			refuse(Rejectf(KindUnknown, "malformed", "column %q: the event's schema names it twice", in.Field))
			continue
		}
		f := field{name: in.Field, col: r.schema.ByName(in.Field), key: -1}
		if f.col >= 0 {
			f.key = r.keyOf[f.col]
		}
		d := in.declared()
		if t, ok := r.set.types[in.Field]; ok {
			d = t
		}
		switch {
		case r.set.exclude[in.Field] && f.key < 0:
			f.col = -1
		case f.col >= 0:
			if wide, _ := r.set.resolve(&f, d, r.schema.Fields[f.col].Type); wide.Kind != 0 {
				w := r.schema.Fields[f.col]
				if wide.IsNested() {
					if err := wide.CheckNested(in.Field); err != nil {
						refuse(Rejectf(KindUnknown, "name", "%s", err))
					}
					if r.set.refuseNew {
						refuse(Rejectf(KindUnknown, "schema", "column %q has a field that the table's has not, and columns.new is refuse", in.Field))
					}
				}
				w.Type = wide
				change.Widen = append(change.Widen, w)
				if f.key >= 0 {
					keyChange.Widen = append(keyChange.Widen, w)
				}
			}
		case r.flat && in.Field == flatDeleted:
			f.op = opDeleted
		case r.flat && in.Field == flatOp:
			f.op = opFlatOp
		case r.flat && in.Field == flatChange:
			f.op = opFlatChange
		case len(r.orderAt) > 0 && r.flat && in.Field == r.orderAt[0]:
		default:
			add, j := r.newColumn(in.Field, d, names)
			if j != nil {
				refuse(j)
			} else {
				change.Add = append(change.Add, add)
			}
		}
		p.add(f)
	}
	if len(change.Add)+len(change.Widen) > 0 {
		p.change = &change
	}
	if len(keyChange.Widen) > 0 {
		p.keyChange = &keyChange
	}
	return p
}

// newNames is the set of a schema's column names, case folded.
func newNames(s *schemas.Schema) map[string]string {
	names := make(map[string]string, len(s.Fields))
	for i := range s.Fields {
		names[strings.ToLower(s.Fields[i].Name)] = s.Fields[i].Name
	}
	return names
}

// checkName refuses a column that the table's schema could not take.
func (r *reader) checkName(name string, names map[string]string) *Reject {
	low := strings.ToLower(name)
	switch {
	case name == "":
		return Rejectf(KindUnknown, "name", "the event has a field with an empty name")
	case schemas.ReservedName(name):
		return Rejectf(KindUnknown, "name", "column %q: the name is reserved; list it in columns.exclude or rename it at its source", name)
	case names[low] != "":
		return Rejectf(KindUnknown, "name", "column %q differs only in case from column %q; engines cannot tell them apart", name, names[low])
	case r.set.refuseNew:
		return Rejectf(KindUnknown, "schema", "column %q is not in the table, and columns.new is refuse", name)
	case len(names) >= schemas.MaxColumns:
		return Rejectf(KindUnknown, "schema", "column %q would be more than %d columns", name, schemas.MaxColumns)
	}
	names[low] = name
	return nil
}

// newColumn is the column for a new field of the event's own schema. It is
// optional (T1); a default that the schema gives is what rows written before
// it have, as in the source database.
func (r *reader) newColumn(name string, d declared, names map[string]string) (schemas.Field, *Reject) {
	t, ok := d.columnType(r.set.exactTime, r.set.exactNanos)
	if !ok {
		j := nested.reject(KindUnknown, name, false)
		return schemas.Field{}, j
	}
	if j := r.checkName(name, names); j != nil {
		return schemas.Field{}, j
	}
	if err := t.CheckNested(name); err != nil {
		return schemas.Field{}, Rejectf(KindUnknown, "name", "%s", err)
	}
	f := schemas.Field{Name: name, Type: t}
	if d.initial != nil {
		f.InitialDefault = r.icebergDefault(d, t)
		f.WriteDefault = f.InitialDefault
	}
	return f, nil
}

// bareChange is what the unknown fields of a bare row ask for.
func (r *reader) bareChange(kind Kind) error {
	var change SchemaChange
	names := newNames(r.schema)
	for _, u := range r.unknown {
		if u.bad != okay {
			return u.bad.reject(kind, u.name, false)
		}
		if err := u.typ.CheckNested(u.name); err != nil {
			return Rejectf(kind, "name", "%s", err)
		}
		if u.col >= 0 {
			if r.set.refuseNew {
				return Rejectf(kind, "schema", "column %q has a field that the table's has not, and columns.new is refuse", u.name)
			}
			change.Widen = append(change.Widen, schemas.Field{ID: r.schema.Fields[u.col].ID, Name: u.name, Type: u.typ})
			continue
		}
		if j := r.checkName(u.name, names); j != nil {
			j.Kind = kind
			return j
		}
		change.Add = append(change.Add, schemas.Field{Name: u.name, Type: u.typ})
	}
	return &change
}

// icebergDefault is a Connect default value in Iceberg's JSON form, or nil
// when the column's type does not hold it.
func (r *reader) icebergDefault(d declared, t schemas.Type) json.RawMessage {
	f := field{key: -1}
	if _, ok := r.set.resolve(&f, d, t); !ok {
		return nil
	}
	c := rows.NewColumn(t)
	if end, why := r.value(&c, &f, d.initial, 0); why != okay || end != len(d.initial) || c.Len() != 1 || c.IsNull(0) {
		return nil
	}
	return singleValue(&c)
}

// singleValue is the first value of a column in Iceberg's JSON form, or nil
// where that form cannot say it.
func singleValue(c *rows.Column) json.RawMessage {
	quote := func(s string) json.RawMessage { return schemas.AppendJSONString(nil, s) }
	const dateForm, clockForm = "2006-01-02", "15:04:05.000000"
	switch c.Type.Kind {
	case schemas.Boolean:
		return json.RawMessage(strconv.FormatBool(c.Ints[0] == 1))
	case schemas.Int, schemas.Long:
		return strconv.AppendInt(nil, c.Ints[0], 10)
	case schemas.Float, schemas.Double:
		bits := 64
		if c.Type.Kind == schemas.Float {
			bits = 32
		}
		v := strconv.AppendFloat(nil, c.Floats[0], 'g', -1, bits)
		if !json.Valid(v) {
			return nil
		}
		return v
	case schemas.Decimal:
		u := new(big.Int)
		if c.Storage == rows.Ints {
			u.SetInt64(c.Ints[0])
		} else if u.SetBytes(c.BytesAt(0)); c.BytesAt(0)[0] >= 0x80 {
			u.Sub(u, new(big.Int).Lsh(big.NewInt(1), 128))
		}
		return quote(decimalText(u, int(c.Type.Scale)))
	case schemas.Date:
		return quote(time.Unix(c.Ints[0]*86400, 0).UTC().Format(dateForm))
	case schemas.Time:
		return quote(time.UnixMicro(c.Ints[0]).UTC().Format(clockForm))
	case schemas.Timestamp:
		return quote(time.UnixMicro(c.Ints[0]).UTC().Format(dateForm + "T" + clockForm))
	case schemas.TimestampTz:
		return quote(time.UnixMicro(c.Ints[0]).UTC().Format(dateForm+"T"+clockForm) + "+00:00")
	case schemas.TimestampNs:
		return quote(time.Unix(0, c.Ints[0]).UTC().Format(dateForm + "T15:04:05.000000000"))
	case schemas.TimestampTzNs:
		return quote(time.Unix(0, c.Ints[0]).UTC().Format(dateForm+"T15:04:05.000000000") + "+00:00")
	case schemas.String:
		return quote(string(c.BytesAt(0)))
	case schemas.UUID:
		h := hex.EncodeToString(c.BytesAt(0))
		return quote(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
	default:
		return quote(hex.EncodeToString(c.BytesAt(0)))
	}
}

// decimalText is u × 10^-scale with all its fraction digits.
func decimalText(u *big.Int, scale int) string {
	s := new(big.Int).Abs(u).String()
	if scale > 0 {
		for len(s) <= scale {
			s = "0" + s
		}
		s = s[:len(s)-scale] + "." + s[len(s)-scale:]
	}
	if u.Sign() < 0 {
		s = "-" + s
	}
	return s
}
