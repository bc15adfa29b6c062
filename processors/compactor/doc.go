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
// inputs one after the other; so does a job of which some input's rows need not ascend,
// because another program wrote it or one of its like came before it (F24). Two live rows of one key are both kept and counted:
// which one dies is decided by the state, never here. The rows are in the current
// schema (T1).
//
// Row lineage is kept (C6): _row_id is the file's own column where it has a value,
// else first_row_id + position; _last_updated_sequence_number likewise, else the
// file's data sequence number. An output has the column when some input gives it
// values. _varve_order is kept where some input has it (K3).
//
// Any other input's rows must ascend by key, also those of a range; where they do not,
// the job fails with ErrNotSorted rather than write an output that is not sorted.
//
// # Row groups that are copied
//
// A row group of 65,536 rows or more goes to the output as its bytes are, when all
// of this holds:
//
//   - it lies in the range as a whole, and no row of it is dead;
//   - no other input has a key in it, nor its last key again: its first and last
//     key are read, and what lies between is trusted to ascend and counted for no
//     pairs, for this program wrote it;
//   - rows.Writer.CopyOf takes it: the file is our own, each column has the type
//     that the schema has now, and its statistics give back the metrics of its
//     values. A column that the schema has and the file lacks, or one with NaNs,
//     means that the rows are decoded.
//
// Row lineage needs no decoding: a column that the file has for every row is copied
// with the others; one that it lacks is written anew, first_row_id + position or
// the data sequence number. Only a column that some rows have and others inherit is
// decoded. Each page is held against its checksum, and its header against what the
// writer would make of it. The open row group of the output ends before a copy.
//
// # Memory
//
// Each input holds one decoded page, one dictionary and some read-ahead of each
// column; the output one encoded row group. Nothing grows with the files.
package compactor
