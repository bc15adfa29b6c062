// Package schemas holds what every room must agree on: the type model of a
// table, its definition, partition tuples, and the partitioner of the
// transactions topic. Its sub-packages own every byte that leaves a process:
//
//	record   the transactions and outcomes topics: envelope, records, bodies
//	rows     typed column arenas and the Parquet layout of a data file
//	source   source formats (Debezium, plain rows, varve's own events)
//	dv       deletion vectors, puffin their container
//	iceberg  manifests, manifest lists and table metadata
//
// Owns: bytes and their meaning, pure functions over them.
// May touch: nothing outside the process. No Kafka, no disk, no clock.
// Never enters: any other room of this repository; schemas imports none.
//
// The byte page of every format is README.md beside this file.
package schemas
