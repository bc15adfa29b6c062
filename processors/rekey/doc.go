// Package rekey decides to which partition of a table's internal topic an event
// belongs: the one that its typed key hashes to (K5, `repartition: always`).
//
// Owns: the partition of a key, the split of an event that touches two keys,
// the header that says where a record came from.
// May touch: source formats, key encoders.
// Never enters: Kafka, the log, decisions about which row lives.
//
// # Why
//
// A shard is a source partition, and a key must have one shard. A topic whose
// records are spread otherwise (no record key, another key than the table's, a
// key whose bytes depend on a schema id) breaks that. Its events then go once
// through a topic of the deployment's own, whose partition is a function of the
// table key's canonical bytes alone:
//
//	murmur2(canonical key) & 0x7fffffff mod partitions
//
// # What a record looks like there
//
// Key, value and headers are those of the source, and in front of them stands
// OriginHeader: topic id, partition and offset that it came from. A record whose
// events belong to several partitions (a changed key) is written to each of
// them, and a shard takes of a record only the events of its own partition. A
// record that no decoder reads, or that holds no event, goes whole to the
// partition that its record key's bytes hash to; there it becomes a dead letter,
// or is counted.
//
// # Order and exactly once
//
// Records of one source partition that belong to one partition keep their order.
// Events of one key that came through two source partitions have no order but
// that of their ordering column. The mover writes records and its own progress
// in one Kafka transaction, and shards read committed records only.
package rekey
