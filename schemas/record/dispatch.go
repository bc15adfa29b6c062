package record

import (
	"encoding/binary"
	"fmt"
)

// Forms of a message of the jobs topic: its value's first byte.
const (
	DispatchForm = 1
	FindForm     = 2
	// HeartbeatForm is that of a heartbeat; the high bit tells them apart.
	HeartbeatForm = 0x81
)

// IsHeartbeat says whether a message of the jobs topic is a heartbeat, of this
// form or a newer one.
func IsHeartbeat(value []byte) bool { return len(value) > 0 && value[0]&0x80 != 0 }

// EncodeDispatch appends the value of a message of the jobs topic: form u8,
// Avro of Dispatch, CRC-32C u32 BE of both.
func EncodeDispatch(dst []byte, d *Dispatch) ([]byte, error) {
	return encodeJobMessage(dst, DispatchForm, "dispatch", func(v visitor) { dispatchFields(v, d) })
}

// DecodeDispatch reads what EncodeDispatch wrote; byte fields alias b.
// ErrNewerForm: written by a newer build. ErrUndecodable: checksum or form wrong.
func DecodeDispatch(b []byte, d *Dispatch) error {
	return decodeJobMessage(b, DispatchForm, FindForm, "dispatch", func(v visitor) { dispatchFields(v, d) })
}

// IsFind says whether a message of the jobs topic is a FindDispatch.
func IsFind(value []byte) bool { return len(value) > 0 && value[0] == FindForm }

// EncodeFind appends the value of a message of the jobs topic: form u8,
// Avro of FindDispatch, CRC-32C u32 BE of both.
func EncodeFind(dst []byte, d *FindDispatch) ([]byte, error) {
	return encodeJobMessage(dst, FindForm, "find dispatch", func(v visitor) { findDispatchFields(v, d) })
}

// DecodeFind reads what EncodeFind wrote, with DecodeDispatch's errors.
func DecodeFind(b []byte, d *FindDispatch) error {
	return decodeJobMessage(b, FindForm, FindForm, "find dispatch", func(v visitor) { findDispatchFields(v, d) })
}

// JobHead is what a Dispatch and a FindDispatch begin with: which attempt it is.
type JobHead struct {
	Job       JobID
	TableID   int64
	Partition int32
}

// DecodeJobHead reads the head of what EncodeDispatch or EncodeFind wrote, whose
// checksum is right, and nothing behind it. Its errors are those of DecodeDispatch.
func DecodeJobHead(b []byte, h *JobHead) error {
	form := byte(DispatchForm)
	if IsFind(b) {
		form = FindForm
	}
	body, err := jobMessageBody(b, form, FindForm, "head of a dispatch")
	if err != nil {
		return err
	}
	r := binReader{b: body}
	var table []byte
	nested(&r, "job", &h.Job, jobIDFields)
	r.bytes("table", &table)
	r.long("table_id", &h.TableID)
	r.int32("partition", &h.Partition)
	return r.err
}

// EncodeHeartbeat appends the value of a message of the jobs topic: form u8,
// Avro of Heartbeat, CRC-32C u32 BE of both.
func EncodeHeartbeat(dst []byte, h *Heartbeat) ([]byte, error) {
	return encodeJobMessage(dst, HeartbeatForm, "heartbeat", func(v visitor) { heartbeatFields(v, h) })
}

// DecodeHeartbeat reads what EncodeHeartbeat wrote, with DecodeDispatch's errors.
func DecodeHeartbeat(b []byte, h *Heartbeat) error {
	return decodeJobMessage(b, HeartbeatForm, HeartbeatForm, "heartbeat", func(v visitor) { heartbeatFields(v, h) })
}

func encodeJobMessage(dst []byte, form byte, what string, fields func(visitor)) ([]byte, error) {
	w := binWriter{b: append(dst, form)}
	fields(&w)
	if w.err != nil {
		return dst, fmt.Errorf("%s: %w", what, w.err)
	}
	return binary.BigEndian.AppendUint32(w.b, checksum(nil, w.b[len(dst):])), nil
}

func decodeJobMessage(b []byte, form, newest byte, what string, fields func(visitor)) error {
	body, err := jobMessageBody(b, form, newest, what)
	if err != nil {
		return err
	}
	r := binReader{b: body}
	fields(&r)
	return r.finish(what)
}

// jobMessageBody is what stands between the form and the checksum.
func jobMessageBody(b []byte, form, newest byte, what string) ([]byte, error) {
	switch {
	case len(b) > 0 && b[0] > newest:
		return nil, fmt.Errorf("%s: %w: form %d, and this build reads up to %d", what, ErrNewerForm, b[0], newest)
	case len(b) < 1+crcSize || b[0] != form:
		return nil, fmt.Errorf("%s: %w: the value has no form", what, ErrUndecodable)
	}
	body, sum := b[:len(b)-crcSize], binary.BigEndian.Uint32(b[len(b)-crcSize:])
	if got := checksum(nil, body); got != sum {
		return nil, fmt.Errorf("%s: %w: checksum is %08x, the message says %08x", what, ErrUndecodable, got, sum)
	}
	return body[1:], nil
}
