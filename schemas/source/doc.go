// Package source decodes the events of source topics into column arenas: one
// decoder a format, all behind Decoder, all held by one conformance suite.
//
// Owns: the formats of inputs.md and what is refused of them, by name.
// May touch: the bytes of one record at a time.
// Never enters: Kafka, the table's state, ordering decisions.
//
// # Formats
//
// debezium-json: Debezium's change events, with or without {schema, payload}
// in either order. c, r and u are upserts; d, a null value and null JSON are
// deletes; a key that differs between before and after is a delete and an
// upsert from one record; t is refused; m, heartbeats, transaction metadata,
// schema changes and signals are control records.
//
// debezium-avro, rows-avro: the same envelopes, and plain rows, in Avro whose
// writers' schemas a registry has (SchemaSource). The package asks no network:
// what it is not told is ErrAway, and the record is decoded again later.
//
// rows-protobuf: plain rows in Protobuf, likewise; a field without presence that
// is absent is its type's zero, one with presence is absent. rows-json-schema:
// plain JSON rows whose JSON Schema says the types.
//
// rows-json: plain JSON rows, a null value deletes by the record key. The
// flattened form's __deleted and __op are understood unless they are columns,
// and so is _cdc, which the Kafka Connect Iceberg sink's transforms add.
//
// maxwell, canal-json, aws-dms, goldengate-json: the JSON envelopes of these
// tools. A Canal message has many rows, which are taken all or not at all. An
// update of GoldenGate that leaves columns out is filled from its image before,
// and what is in neither image from the row's older version.
//
// varve-avro: varve's own events, see AvroSchemaFor.
//
// A format may also be several of these, separated by commas (SplitFormats): each
// record is read by the one that its framing tells.
//
// # Keys
//
// The key comes from the row; a key column that the row does not name comes
// from the record key, and so does the whole key of a delete without a row.
// A record key is a JSON object, with or without {schema, payload}, or one
// scalar for a key of one column (a text column takes unquoted text too). A
// null, absent or ill-formed part is refused (K1).
//
// # Values
//
// Exact or refused. JSON is read strictly: UTF-8, no trailing bytes, at most
// 100 levels, no name twice in one row or envelope. An absent field is the
// column's write-default, or null; an explicit null is null. Times of day are
// µs in a long unless the column is a time; 24:00:00 is refused. Nanosecond
// timestamps of Debezium are cut to µs in a µs column (T2). Infinity is
// PositiveInfinity or NegativeInfinity. Bits become the number they spell, or
// bytes with the highest first.
//
// A value that the source did not send because it did not change (the marker, or
// a column that a partial update leaves out) is null, and stands in the batch's
// Carries: the row's newest older version has it. It is refused in a key or
// ordering column, and in a table without a key.
//
// # Nested columns
//
// A column may be a struct, list or map (shape.go). Its parts are read as columns
// are, each into a column of one value, and put together in the bytes that
// package rows keeps. What an event has more inside of a column than the table
// makes the column wider: a SchemaChange like any other. A part is refused by its
// path (order.items.element.price).
//
// # Options
//
//	columns.exclude     names left out on purpose, separated by commas
//	columns.new         add (default) or refuse: what happens to new columns
//	timestamp.unit      millis, micros, nanos: what a number means in a timestamp
//	                    column when the event has no schema (default: refused)
//	time.unit           the same for time columns
//	timestamp.truncate  true: without a schema, text finer than the column is cut
//	                    (default: refused)
//	decimal.handling    base64 or text: what a string means in a decimal column when
//	                    the event has no schema (default: text, refused where it may
//	                    be base64)
//	type.<column>       the Debezium or Connect type of a column's values
//	                    (io.debezium.time.MicroTime, …Decimal:2)
//	exact.time          true: new columns for times are time columns; this closes the
//	                    whole table to Spark
//	exact.nanos         true: new columns for nanosecond timestamps keep them; the same
//	unavailable.value   the connector's marker of unchanged values
//	route.by, route.match, route.tombstones
//	                    of any format: which of the topic's records are this table's (README)
//	max.record.bytes    the largest value decoded (64 MiB)
//	key.from            formats that begin with rows-: row (default) or record: where the key is taken from
//	framing             varve-avro: single-object (default) or none
//	message.name        rows-protobuf: the message of values without framing (default: the first)
//	schema.id           debezium-avro, rows-avro, rows-protobuf, rows-json-schema: the registry's number of the schema of
//	                    values without framing and header
//	                    varve-avro with framing none: the version the events are written in
package source
