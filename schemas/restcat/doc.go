// Package restcat is the JSON of the Iceberg REST catalog protocol, version 1.
//
// Owns: the forms of requests and answers that varve sends and takes, as a
// client and as a server, the names of errors, how names stand in paths, and what
// the requirements and updates of a commit mean for table metadata (Require,
// Apply: of catalogs whose writers write the metadata).
// May touch: nothing; it does no I/O.
// Never enters: table metadata as a type, in requests and answers. There it passes
// as the bytes that were read (S11); package iceberg reads and writes it.
package restcat
