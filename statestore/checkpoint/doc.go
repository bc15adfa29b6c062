// Package checkpoint keeps copies of a transactions partition's state in the
// object store, from which a member without one starts instead of from the
// log's beginning.
//
// Owns: the objects under _varve/<deployment>/checkpoints/<partition>/, their
// layout, when one of them may go.
// May touch: those objects, the state folder that it restores and scratch
// folders beside it.
// Never enters: Kafka, a clock (callers give the time), what a state means. A
// caller checks that a checkpoint is of its log (L5): Options of Restore.
//
// # Layout
//
//	manifests/<offset, 20 digits>-<SHA-256 of its bytes>.json
//	files/<SHA-256 of its bytes>.<random, 16 hex digits>
//	expired/<name of a manifest>
//
// A checkpoint is its manifest, which is written last: whatever it names was
// durable before. The manifest's own name holds its hash, so that no byte of a
// checkpoint is believed unchecked. It is JSON of one form: fields in a fixed
// order, no spaces, and decoding refuses what does not encode to the same bytes.
//
//	format            1
//	deployment        the log's identity, 32 hex digits (L8)
//	partitions, partition
//	offset            of the last applied record
//	leader_epoch, record_crc32c   of that record (L5)
//	time_ms           table time (L4)
//	chain             chain hash after it (L6)
//	apply_version     in force (L8)
//	content           keys, bytes, sha256 of the state's keys and values without
//	                  the outbox (statestore.Image), and tables, shards, files,
//	                  rows as numbers to look at
//	tables            of each table that is not dropped, by name, what
//	                  statestore.TableInfo has but its snapshots: id, name,
//	                  definition (base64 of its Avro bytes), head, sums, open
//	                  requests, and its shards with their ends, horizon (log
//	                  offset of the newest accepted index checkpoint) and index
//	                  (path, length, sha256 of that; absent: none yet)
//	files             of the database, by name: name, length, sha256, object (the
//	                  key below this folder; empty for a file without bytes)
//
// Files of the database that do not change (its tables) are written once: a
// later checkpoint names the object that an earlier one has. Every other object
// name is fresh, so no two writers ever write the same one: two owners at once,
// or one that was thought dead, do no harm.
//
// # Expiry
//
// The newest few at or below the state's own offset stay; those above it belong
// to an owner that is further, or to a fork, and are left alone. An older
// manifest is copied to expired/ and removed. A file goes when no manifest names
// it, no copy in expired/ that is younger than the grace names it, and it is
// itself older than the grace. A checkpoint under way names files that it wrote
// (young) and files of manifests that stood at its beginning; it gives up after
// half the grace, so neither can go before its own manifest stands. While there
// is a manifest of a newer form no file is removed: it cannot be known what it
// names.
package checkpoint
