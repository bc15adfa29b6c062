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
// # Restart
//
// The index holds an offset; a side file holds what else must survive (files,
// their first row ids, requests not answered). A new owner reads the log from
// the smaller of both offsets and folds what the index lacks from the files
// and bodies that the log names. Nothing else is read.
package ingest
