package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// HeaderSize is the size of the header "varve" of form 1, in bytes.
const HeaderSize = 8

const crcSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Message is a record as Kafka carries it.
type Message struct {
	Key    []byte
	Header [HeaderSize]byte // value of the header HeaderKey
	Value  []byte
}

// Encode fills dst, whose slices are used again. A table name that is not
// UTF-8 (schemas.CheckTableName allows none) becomes an undecodable record.
func Encode(dst *Message, env *Envelope) {
	h := &dst.Header
	h[0], h[1] = Form, byte(env.Type)
	binary.BigEndian.PutUint16(h[2:], env.TypeVersion)
	binary.BigEndian.PutUint32(h[4:], env.ApplyVersion)

	dst.Key = append(dst.Key[:0], env.Table...)

	b := append(dst.Value[:0], env.Request[:]...)
	b = appendLong(b, env.OffsetSeen)
	b = appendString(b, env.Table)
	b = appendLong(b, env.TableID)
	if ref := env.BodyRef; ref != nil {
		b = append(b, 2) // branch 1
		b = appendString(b, ref.Path)
		b = appendLong(b, ref.Length)
		b = append(b, ref.Hash[:]...)
	} else {
		b = append(b, 0)
		b = appendBytes(b, env.Body)
	}
	dst.Value = binary.BigEndian.AppendUint32(b, checksum(h[:], b))
}

func checksum(first, second []byte) uint32 {
	return crc32.Update(crc32.Checksum(first, castagnoli), castagnoli, second)
}

// PeekHeader reads what stands in the header alone, without the value. Apply
// asks it first: a record that is not active is rejected unread (L8), before
// any other fault is looked for. ok is false where there is no header of any
// form (such a record is undecodable, L7). Of a form above Form only form is
// told; every form keeps it in the first byte.
func PeekHeader(header []byte) (form uint8, t Type, typeVersion uint16, applyVersion uint32, ok bool) {
	if len(header) == 0 || header[0] == 0 {
		return 0, 0, 0, 0, false
	}
	if header[0] > Form {
		return header[0], 0, 0, 0, true
	}
	if len(header) != HeaderSize {
		return header[0], 0, 0, 0, false
	}
	return header[0], Type(header[1]), binary.BigEndian.Uint16(header[2:]), binary.BigEndian.Uint32(header[4:]), true
}

// HasBodyRef says whether a record's value, whose form is not checked, names
// its body rather than holding it: most do not, and need no look before apply.
func HasBodyRef(value []byte) bool {
	_, i := longAt(value, len(RequestID{}))
	_, i = bytesAt(value, i)
	_, i = longAt(value, i)
	branch, i := longAt(value, i)
	return i >= 0 && branch == 1
}

// DecodeEnvelope reads a record's envelope: key, the value of its header
// HeaderKey, value. env.Body aliases value; env.Table is kept when it is
// equal. ErrNewerForm: not active (L8). ErrUndecodable: checksum or form
// wrong (L7). An unknown type is no error here.
func DecodeEnvelope(key, header, value []byte, env *Envelope) error {
	form, t, typeVersion, applyVersion, ok := PeekHeader(header)
	switch {
	case !ok:
		return fmt.Errorf("envelope: %w: the header %q has %d bytes, not the %d of form %d",
			ErrUndecodable, HeaderKey, len(header), HeaderSize, Form)
	case form > Form:
		return fmt.Errorf("%w: form %d, and this build reads up to %d", ErrNewerForm, form, Form)
	case len(value) < crcSize:
		return fmt.Errorf("envelope: %w: the value has %d bytes", ErrUndecodable, len(value))
	}
	avro, sum := value[:len(value)-crcSize], binary.BigEndian.Uint32(value[len(value)-crcSize:])
	if got := checksum(header, avro); got != sum {
		return fmt.Errorf("envelope: %w: checksum is %08x, the record says %08x", ErrUndecodable, got, sum)
	}
	env.Type, env.TypeVersion, env.ApplyVersion = t, typeVersion, applyVersion
	r := binReader{b: avro}
	r.fixed("request", env.Request[:])
	env.OffsetSeen = r.number("offset_seen", math.MinInt64, math.MaxInt64)
	r.str("table", &env.Table)
	env.TableID = r.number("table_id", math.MinInt64, math.MaxInt64)
	env.Body, env.BodyRef = nil, nil
	if r.number("body", 0, 1) == 1 {
		env.BodyRef = new(Ref)
		r.str("path", &env.BodyRef.Path)
		env.BodyRef.Length = r.number("length", math.MinInt64, math.MaxInt64)
		r.fixed("hash", env.BodyRef.Hash[:])
	} else {
		r.bytes("body", &env.Body)
	}
	if err := r.finish("envelope"); err != nil {
		return err
	}
	if string(key) != env.Table {
		return fmt.Errorf("envelope: %w: the record's key is not its table name", ErrUndecodable)
	}
	return nil
}
