// Package statestore is the state machine of one transactions partition: a
// Pebble database and the pure function Apply that builds it from the log.
// The rules that it keeps are in RULES.md and cited by letter and number.
//
// Owns: the key layout of the database, what each record does (Apply), the
// chain hash, dead positions, frozen cuts, the outbox.
// May touch: its own folder. Sub-packages: checkpoint (copies of a state in the
// object store), keyindex (a shard's key index),
// objstore (object store access), hadoopcat (the embedded catalog's files).
// Never enters: Kafka, clocks, catalogs, source events, decisions that need
// anything but state and record (L3).
//
// # Shape
//
// Apply works on a working set in memory: tables, shards, file chunks, delete
// blocks. It is loaded on first use and written back in one batch, with offset,
// chain hash and outbox, once it holds Options.WriteBack of changes: a busy
// file chunk or shard is written once for many commits. Rare values (names,
// definitions, request ids, published vectors) wait in an indexed batch, through
// which the rules read; frozen cuts in lists, since most end before that. There is no write-ahead log: the topic is the log. A crash
// goes back to some earlier batch, and the same records applied again build the
// same state.
//
// # Outbox
//
// Commit says what can be sent; outcomes are in memory until the topic has them
// (Sent) or a batch is written, which holds every one that the topic is not
// known to have. Why nothing is lost (L11): the database flushes whole batches,
// whenever it likes, so after a crash the state stands at the offset W of one of
// them. Let T be the newest offset in the outcomes topic. Outcomes above W come
// out of Apply again, equal to the first time (L3), and those above T are sent.
// Outcomes at or below W were in that batch unless Sent had named them, and
// Sent names only what the topic has, so all in (T, W] are in the outbox, which
// Unsent gives. A batch that takes them out was written after Sent named them.
//
// A record that failed halfway leaves a working set that is no state of any log:
// from then on nothing is written, and the database stays where it was.
//
// # Files
//
// A file id is writer number (3 bytes) ‖ counter (5 bytes). Files live in
// chunks of 128 neighbouring ids, so a chunk's key follows from the id, and a
// shard that adds a file a flush rewrites one small value a batch. The chunk
// also has the erasable bodies of the files that no cut has published. Positions
// that died are one value a file, grown by a merge operator, never read by
// AppendRows. What changed since the last cut is a pair of 128-bit maps a
// chunk.
//
// # Find jobs
//
// A table's open find jobs (C8, C10) stand in its state, each with the file id
// behind its newest part; the parts are open jobs like those of compactions, with
// the files that they read. Which files those are follows from their entries at any
// later time: the record that added them, and the job that took them out.
//
// # The tree of key ranges
//
// Of a file that is one reference on the root the chunk says all. The references to
// any other are one value a file (F18): ranges, nodes, the jobs that have or rewrote
// them. Two bits of the chunk say which files have such a value, and which have a
// range that moved, so that a delete block of any other file asks for nothing more.
// A node is a value of its own, with the number of jobs that are open on it.
//
// # Cuts
//
// The batch of an accepted Cut freezes the difference to the last committed
// snapshot (C1): a publisher can build from them at any
// later time, and twice the same.
package statestore
