// Package endtoend tests whole deployments: a node with all its roles over the
// embedded broker or a real Apache Kafka, its lake read by engines that share
// no code with it, and everything held against models that the tests keep
// from the events themselves.
//
// Owns: tests, and the small programs that they start.
// May touch: every room, as a program that uses varve would.
// Never enters: code that another package imports.
//
// What the environment sets: VARVE_SEED (the seed of random tests, or
// "random" for one of the clock),
// VARVE_KILLS (kills on the embedded broker; a third of them on Kafka),
// VARVE_COMMITS (commits of the long-run test), VARVE_CLUSTER_STEPS (what goes
// wrong in TestCluster, whose figures -v shows), VARVE_STEP (the one step of
// TestJobKilledAtEachStep that runs) and VARVE_LONG (it runs on Kafka too), VARVE_FIXTURES (events of other
// systems), VARVE_SERVERS=1 (tests with real servers and foreign readers run).
package endtoend
