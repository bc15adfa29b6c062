// Package record holds the transactions topic's records and the outcomes
// topic's messages: the envelope, one Avro schema per type, the erasable
// bodies, and their codecs.
//
// Owns: type numbers, field order, checksums, what "undecodable" means (L7).
// May touch: bytes only.
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
package record
