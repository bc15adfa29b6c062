// Package statestore is the state machine of one transactions partition: a
// Pebble database and the pure function Apply that builds it from the log.
// The rules that it keeps are in RULES.md and cited by letter and number.
//
// Owns: the key layout of the database, what each record does (Apply), the
// chain hash, dead positions, frozen cuts, the outbox.
// May touch: its own folder. Sub-packages: keyindex (a shard's key index),
// objstore (object store access), hadoopcat (the embedded catalog's files).
// Never enters: Kafka, clocks, catalogs, source events, decisions that need
// anything but state and record (L3).
//
// # Shape
//
// Apply works on a working set in memory (tables, shards, file chunks) that is
// loaded on first use and written back by Commit in one batch together with
// offset, chain hash and outbox. There is no write-ahead log: the topic is the
// log. After a crash the database stands at some earlier commit, and the same
// records applied again build the same state.
//
// # Files
//
// A file id is writer number (3 bytes) ‖ counter (5 bytes). Files live in
// chunks of 128 neighbouring ids, so a chunk's key follows from the id, and a
// shard that adds a file a flush rewrites one small value a commit. Positions
// that died are one value a file, grown by a merge operator, never read by
// AppendRows. What changed since the last cut is a pair of 128-bit maps a
// chunk.
//
// # Cuts
//
// The batch of an accepted Cut freezes the difference to the last committed
// snapshot under keys of its own (C1): a publisher can build from them at any
// later time, and twice the same.
package statestore
