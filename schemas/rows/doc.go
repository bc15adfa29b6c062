// Package rows holds typed column arenas and the Parquet layout of a data
// file: rows are kept and written column by column, never as structs.
//
// Owns: Column and Batch, the canonical bytes of a key (K1), partition values
// of rows (T4), the Parquet bytes of a data file, the metrics taken from its
// values (M5), reading columns back in another version of the schema (T1).
// May touch: readers and writers handed to it.
// Never enters: Kafka, the object store, decisions about which row lives.
//
// A file is written page by page by this package itself (chunk.go, footer.go):
// a general writer takes twice the time, and its bytes change with its version.
// It is read by this package too (pageread.go), for bytes that nobody vouches
// for must neither panic nor take memory by what they claim. The tests have
// parquet-go as the other party, in both directions.
//
// A nested column (struct, list, map) is one column of bytes here, a value a row
// (nested.go), so that only three places know what is inside: the writer takes
// values apart into their leaves (shred.go), the reader puts them together
// (assemble.go), and NestedText tells them.
//
// Read takes whole columns; a Scan (scan.go) goes through a range of rows page by
// page, and its parts can be picked into a Writer without becoming columns
// (pick.go). A whole row group of one file can be copied into another (copy.go).
package rows
