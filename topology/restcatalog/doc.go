// Package restcatalog serves the tables of a warehouse to other engines: the
// read side of the Iceberg REST catalog protocol over the embedded catalog's
// files (W4).
//
// It owns: the protocol's paths and JSON forms, which folders of a warehouse
// are namespaces and tables, who may ask, and the bounds of a request.
//
// It may touch: one objstore.Store, for reading; a listening socket.
//
// What never enters it: Kafka, the state, anything that changes a table
// (changes come through the log), credentials of a store, and a metadata
// location that is not durable.
//
// # Names
//
// The table shop.eu.orders lies in the folder shop.eu/orders; its namespace has
// the levels shop and eu. A namespace exists when its folder is there, or that
// of a namespace below it. A table that was made again under the name of a
// dropped one lies in a folder with its id behind the name; a server that was
// given Options.Placed knows it by its own name, any other by its folder's.
package restcatalog
