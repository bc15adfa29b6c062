// Package compactor does the data work of a compaction job: it merges sorted
// data files of one partition into new ones, without their dead rows, and writes
// the job's forwarding map as it goes.
//
// Owns: the order of the output's rows, the row lineage that they carry, where
// an output ends, the map's content.
// May touch: readers of the inputs and sinks of the outputs that it is handed.
// Never enters: the log, job records, names of files (each execution writes under
// a fresh one, F5), the decision which files to merge.
//
// # What comes out
//
// The inputs are ranges [lo,hi) of data files, each without the set R of its
// positions that were dead when the job was planned (F1). Their live rows go to
// the outputs in the order of the canonical key (K1); rows of one key in the
// order of the inputs and then of their positions. A table without key has its
// inputs one after the other. Two live rows of one key are both kept and counted:
// which one dies is decided by the state, never here. The rows are in the current
// schema (T1).
//
// Row lineage is kept (C6): _row_id is the file's own column where it has a value,
// else first_row_id + position; _last_updated_sequence_number likewise, else the
// file's data sequence number. An output has the column when some input gives it
// values. _varve_order is kept where some input has it (K3).
//
// An input's rows must ascend by key, also those of a range; where they do not,
// the job fails with ErrNotSorted rather than write an output that is not sorted.
//
// # Memory
//
// Each input holds one decoded page, one dictionary and some read-ahead of each
// column; the output one encoded row group. Nothing grows with the files.
package compactor
