package record

import "errors"

// What a decoder finds wrong. A caller decides by errors.Is; the text is for
// people and never enters an outcome (L3).
var (
	// ErrUndecodable: checksum or form wrong by our own rules (L7).
	ErrUndecodable = errors.New("undecodable")
	// ErrNewerForm: an envelope of a newer form than Form; the record is not
	// active, unread (L8).
	ErrNewerForm = errors.New("envelope of a newer form")
	// ErrUnknownType: a type or type version that this build does not know. In
	// the log such a record is not active (L8), so it never reaches a decoder.
	ErrUnknownType = errors.New("unknown record type or version")
	// ErrNotEncodable: a value that no decoder would accept again.
	ErrNotEncodable = errors.New("cannot be encoded")
)
