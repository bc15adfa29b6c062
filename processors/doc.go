// Package processors holds what the processors share: the interfaces over
// which they reach logs, dead letters and time. Each processor is a package of
// step functions: it is handed what was read and the time, acts through these
// interfaces, and keeps no goroutine of its own. A node drives them with real
// topics; the simulation drives the same code under one seed.
//
//	ingest     source events of one shard → data files and AppendRows
//	state      the transactions log of one partition → state, outcomes, cuts
//	publisher  a frozen cut → Iceberg files, a catalog commit, SnapshotCommitted
//	compactor  the data work of a compaction job: sorted files → fewer, without dead rows
//	adopt      an Iceberg table of another program → which of its files ours can take as they lie
//	finder     the data work of a part of a find job: files → the rows of which a predicate holds
//	sim        the three under a seeded scheduler, in tests
//
// Owns: the step functions and their interfaces.
// May touch: object stores (statestore/objstore) and the state store.
// Never enters: a Kafka client, flags, configuration files, a clock of its own.
package processors
