// Package topology owns everything that touches Kafka: the clients, the topics and their settings, the
// embedded broker, and the wiring of roles into a node.
//
// It may touch franz-go and the folders that it is given. It imports processors, statestore and schemas,
// and is imported by cmd alone.
//
// What never enters it: rules of the state machine, bytes of our own formats, SQL or the
// catalog protocol (restcatalog's), and any
// reset of an offset that the state did not ask for. A client that finds the log different from what it
// was told stops with an error (L5); it never "continues after data loss".
package topology
