// Package sim runs the processors in one process under one seed: ingest
// owners, state members and publishers over a log, source partitions and an
// object store that live in memory. A scheduler picks what happens next: which
// message is delivered, who is late, who crashes, which request is asked, which
// call fails before or after it took effect.
//
// What must hold, whatever the schedule: every committed snapshot holds the
// rows that the log's accepted records say; members agree on every hash; an
// index that never crashed decides as one that was folded from the log;
// every event is in the log once; nothing gets stuck.
//
// Owns: the scheduler, the model, the checks.
// May touch: the processors, as a node does.
// Never enters: Kafka, a real clock, goroutines.
package sim
