// Package state drives the state machine of one transactions partition: it
// applies what was read from the log, commits in batches, hands outcomes to
// the outcomes topic and asks for cuts.
//
// Owns: the order apply → commit → send (L11), the fetch stage (L10), the
// clockwork of cuts.
// May touch: the state store, bodies in the object store, the appenders that
// it is given.
// Never enters: a Kafka client, a clock, what a record means (statestore).
package state
