// Package ingest turns the events of one table shard into data files and
// AppendRows records.
//
// Owns: the shard's claim and epoch, the buffer of events, the key index and
// its fold, delete blocks, key change lists, answers to requests by key, dead
// letters, schema changes seen in events.
// May touch: its index folder, the object store, the appender and dead letters
// that it is given.
// Never enters: a Kafka client, a clock, the state store, Iceberg files.
//
// # A shard's life
//
// claiming → folding → running → (epoch lost) → claiming …, or stopped.
//
// The shard reads the log as decided entries: each record with its outcome, in
// order. What it knows of its own appends it knows from there alone, so "every
// own record below o has an outcome" (A5) is simply "o was read".
//
// Claiming: it appends ClaimShard and waits for that record's outcome.
// Folding: entries up to and including the claim bring the key index from its
// own offset to the claim's (K4). Running: source events go to the buffer.
//
// # A flush
//
// Events keep their order. A flush sorts them by index key, looks every
// distinct key up once (overlays of appends in flight included), replays each
// key's events in order against what the index knows, then answers the
// requests of its range. What is left per key is one row, or a delete, or
// nothing: rows go to a sorted Parquet file a partition value, older versions
// become delete blocks, deleted keys the key change list (K3). The new index
// entries wait as an overlay until the outcome.
//
// # Values that a source left out
//
// Before that a flush puts in the values that sources did not send because they
// did not change (carry.go, K10). They come from the version that is live where
// the event stands in the replay: a row of the buffer, else the one that the
// index names, whose data file (written before its append, so also one in
// flight) is read at that position, this column only. A row that comes under
// another key in one record, or by the header that names its old key, takes
// them from the version that the delete removed: in this flush, or near the end
// of the one before. Nothing is taken from what a request answered by the same
// append removes. Without a version, or from a file older than the column, the
// record is a dead letter; it was kept for that, and the flush is made again when
// the letter is acknowledged. All of it is found anew whenever a flush is tried
// again. Cost: a page per value, at most 4096 events a flush, fewer where the
// values are large.
//
// # Files that others bring
//
// Every shard takes every key of a file that an AddFiles or AdoptFiles brought
// (import.go, H1, H6): with an append of its own, before anything else, whose request range passes
// the record. Which rows win follows from places in the log and ordering values
// alone (H7). Until then the side file keeps what died of them, and which positions
// of adopted files were never rows (H14).
//
// # Restart
//
// The index holds an offset; a side file holds what else must survive (files,
// their first row ids, requests not answered). A new owner reads the log from
// the smaller of both offsets and folds what the index lacks from the files
// and bodies that the log names. Nothing else is read.
package ingest
