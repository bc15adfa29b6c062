// Package source decodes the events of source topics into column arenas: one
// decoder a format, all behind Decoder, all held by one conformance suite.
//
// Owns: the formats of inputs.md and what is refused of them, by name.
// May touch: the bytes of one record at a time.
// Never enters: Kafka, the table's state, ordering decisions.
package source
