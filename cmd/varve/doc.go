// Command varve is the command line: a node, one-shot loads, and readers of
// tables, logs and files.
//
// Owns: flags, environment, the configuration file, exit codes, how results
// are printed, one file a command. May touch: everything below it. Never
// enters: rules of the state machine, bytes of any format; what a command
// needs of those it asks of topology, statestore and schemas.
//
// Results go to stdout, logs and progress to stderr. Exit codes: 0 done,
// 1 failed, 2 wrong usage or configuration, 3 compared and differs, 4 stopped
// before the end. Rows are printed by scan alone: no key value stands in a
// log line or an error.
package main
