package record

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// OutcomeForm is the newest form of an outcomes message: its value's first byte.
// The definition of one of form 2 has a place for nested types; messages without
// a definition are of form 1 still.
const OutcomeForm = 2

// OutcomeKeySize is the size of an outcomes message's key, in bytes.
const OutcomeKeySize = 9

// Kinds of outcomes messages.
const (
	kindRecord  = 0
	kindDerived = 1
)

func outcomeFields(v visitor, o *Outcome) {
	v.enum("code", (*uint8)(&o.Code), codeNames)
	v.reason("reason", &o.Reason)
	longs(v, "numbers", &o.Numbers)
	has := o.Items != nil
	optionalBytes(v, "items", &has, &o.Items)
	v.fixed("digest", o.Digest[:])
	v.bool("changed", &o.Changed)
}

// outcomeMessageFields are the fields of the value; offset and kind stand in the key.
func outcomeMessageFields(v visitor, m *OutcomeMessage) {
	v.enum("type", (*uint8)(&m.Type), typeNames)
	v.str("table", &m.Table)
	v.long("table_id", &m.TableID)
	v.long("time_ms", &m.TimeMs)
	nested(v, "outcome", &m.Outcome, outcomeFields)
	v.fixed("chain", m.Chain[:])
	optionalRecord(v, "definition", &m.Definition, definitionFields)
}

// EncodeOutcome appends the bytes that are hashed into the chain (L6). It
// panics when there are more than MaxNumbers numbers: apply never makes them.
func EncodeOutcome(dst []byte, o *Outcome) []byte {
	if len(o.Numbers) > MaxNumbers {
		panic(fmt.Sprintf("an outcome has at most %d numbers, not %d", MaxNumbers, len(o.Numbers)))
	}
	return appendOutcome(dst, o)
}

// appendOutcome writes what outcomeFields names, by hand: every record has one.
func appendOutcome(dst []byte, o *Outcome) []byte {
	dst = appendLong(dst, int64(o.Code))
	dst = appendLong(dst, int64(o.Reason))
	if len(o.Numbers) > 0 {
		dst = appendLong(dst, int64(len(o.Numbers)))
		for _, n := range o.Numbers {
			dst = appendLong(dst, n)
		}
	}
	dst = append(dst, 0)
	if o.Items == nil {
		dst = append(dst, 0)
	} else {
		dst = appendBytes(append(dst, 2), o.Items)
	}
	return appendBool(append(dst, o.Digest[:]...), o.Changed)
}

// DecodeOutcome reads what EncodeOutcome wrote; Items alias b.
func DecodeOutcome(b []byte, o *Outcome) error {
	r := binReader{b: b}
	outcomeFields(&r, o)
	if err := r.finish("outcome"); err != nil {
		return err
	}
	return checkNumbers(o)
}

func checkNumbers(o *Outcome) error {
	if len(o.Numbers) > MaxNumbers {
		return fmt.Errorf("outcome: %w: %d numbers, more than %d", ErrUndecodable, len(o.Numbers), MaxNumbers)
	}
	return nil
}

// EncodeOutcomeMessage appends key and value of a message of the outcomes
// topic. It refuses (ErrNotEncodable) strings that are not UTF-8.
func EncodeOutcomeMessage(key, value []byte, m *OutcomeMessage) (k, v []byte, err error) {
	if len(m.Outcome.Numbers) > MaxNumbers {
		return key, value, fmt.Errorf("outcome message: %w: %d numbers, more than %d", ErrNotEncodable, len(m.Outcome.Numbers), MaxNumbers)
	}
	kind := byte(kindRecord)
	if m.Derived {
		kind = kindDerived
	}
	k = append(binary.BigEndian.AppendUint64(key, uint64(m.Offset)), kind)
	form := byte(1)
	if m.Definition != nil {
		form = OutcomeForm
	}
	v, err = appendOutcomeMessage(append(value, form), m)
	if err != nil {
		return key, value, fmt.Errorf("outcome message: %w", err)
	}
	return k, binary.BigEndian.AppendUint32(v, checksum(k[len(key):], v[len(value):])), nil
}

// appendOutcomeMessage writes what outcomeMessageFields names, by hand.
func appendOutcomeMessage(dst []byte, m *OutcomeMessage) ([]byte, error) {
	if !utf8.ValidString(m.Table) {
		return dst, fmt.Errorf("%w: the table's name is not UTF-8", ErrNotEncodable)
	}
	dst = appendLong(dst, int64(m.Type))
	dst = appendString(dst, m.Table)
	dst = appendLong(dst, m.TableID)
	dst = appendLong(dst, m.TimeMs)
	dst = appendOutcome(dst, &m.Outcome)
	dst = append(dst, m.Chain[:]...)
	if m.Definition == nil {
		return append(dst, 0), nil
	}
	w := binWriter{b: append(dst, 2)}
	definitionFields(&w, m.Definition)
	return w.b, w.err
}

// DecodeOutcomeMessage reads a message of the outcomes topic into m, whose
// slices are used again; byte fields alias value. ErrNewerForm: written by a
// newer build. ErrUndecodable: checksum or form wrong.
func DecodeOutcomeMessage(key, value []byte, m *OutcomeMessage) error {
	switch {
	case len(value) > 0 && value[0] > OutcomeForm:
		return fmt.Errorf("outcome message: %w: form %d, and this build reads up to %d", ErrNewerForm, value[0], OutcomeForm)
	case len(key) != OutcomeKeySize || key[8] > kindDerived:
		return fmt.Errorf("outcome message: %w: a key is 8 bytes offset and a kind of 0 or 1", ErrUndecodable)
	case len(value) < 1+crcSize || value[0] == 0:
		return fmt.Errorf("outcome message: %w: the value has no form", ErrUndecodable)
	}
	body, sum := value[:len(value)-crcSize], binary.BigEndian.Uint32(value[len(value)-crcSize:])
	if got := checksum(key, body); got != sum {
		return fmt.Errorf("outcome message: %w: checksum is %08x, the message says %08x", ErrUndecodable, got, sum)
	}
	m.Offset, m.Derived = int64(binary.BigEndian.Uint64(key)), key[8] == kindDerived
	r := binReader{b: body[1:], flat: value[0] < OutcomeForm}
	outcomeMessageFields(&r, m)
	if err := r.finish("outcome message"); err != nil {
		return err
	}
	return checkNumbers(&m.Outcome)
}
