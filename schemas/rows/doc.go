// Package rows holds typed column arenas and the Parquet layout of a data
// file: rows are kept and written column by column, never as structs.
//
// Owns: Column and Batch, the canonical bytes of a key (K1), partition values
// of rows, the Parquet bytes of a data file and the metrics taken from them.
// May touch: readers and writers handed to it.
// Never enters: Kafka, the object store, decisions about which row lives.
package rows
