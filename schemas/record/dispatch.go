package record

import (
	"encoding/binary"
	"fmt"
)

// DispatchForm is the form of a message of the jobs topic: its value's first byte.
const DispatchForm = 1

// EncodeDispatch appends the value of a message of the jobs topic: form u8,
// Avro of Dispatch, CRC-32C u32 BE of both.
func EncodeDispatch(dst []byte, d *Dispatch) ([]byte, error) {
	w := binWriter{b: append(dst, DispatchForm)}
	dispatchFields(&w, d)
	if w.err != nil {
		return dst, fmt.Errorf("dispatch: %w", w.err)
	}
	return binary.BigEndian.AppendUint32(w.b, checksum(nil, w.b[len(dst):])), nil
}

// DecodeDispatch reads what EncodeDispatch wrote; byte fields alias b.
// ErrNewerForm: written by a newer build. ErrUndecodable: checksum or form wrong.
func DecodeDispatch(b []byte, d *Dispatch) error {
	switch {
	case len(b) > 0 && b[0] > DispatchForm:
		return fmt.Errorf("dispatch: %w: form %d, and this build reads up to %d", ErrNewerForm, b[0], DispatchForm)
	case len(b) < 1+crcSize || b[0] != DispatchForm:
		return fmt.Errorf("dispatch: %w: the value has no form", ErrUndecodable)
	}
	body, sum := b[:len(b)-crcSize], binary.BigEndian.Uint32(b[len(b)-crcSize:])
	if got := checksum(nil, body); got != sum {
		return fmt.Errorf("dispatch: %w: checksum is %08x, the message says %08x", ErrUndecodable, got, sum)
	}
	r := binReader{b: body[1:]}
	dispatchFields(&r, d)
	return r.finish("dispatch")
}
