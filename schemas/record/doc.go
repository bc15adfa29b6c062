// Package record holds the transactions topic's records and the outcomes
// topic's messages: the envelope, one Avro schema per type, the erasable
// bodies, and their codecs.
//
// Owns: type numbers, field order, checksums, what "undecodable" means (L7).
// May touch: bytes only; randomness in NewRequestID alone.
// Never enters: decisions (package statestore), Kafka clients.
//
// A record is a Kafka record of the transactions topic:
//
//	key      the table's name (empty for SetApplyVersion)
//	headers  "varve": form u8 ‖ type u8 ‖ type version u16 BE ‖ apply version u32 BE
//	value    Avro(Envelope) ‖ CRC-32C u32 BE over the header's bytes and Avro(Envelope)
//
// The envelope carries request id, offset seen, table name and id, and the
// body: Avro of the type's own schema, inline, or a reference to an object
// named by its SHA-256 (L10).
//
// Each type describes its fields once (fields.go); writing and reading Avro
// and JSON are four visitors of that description. AppendRows, which arrives
// with every flush, is also read and written by hand (appendrows.go). The
// schemas in avsc/ are the public word: tests hold the codecs equal to what an
// Avro library makes of them, and testdata/golden holds the bytes.
//
// A new field is a new type version, listed by an apply version (L8); what
// stands here is never edited.
package record
