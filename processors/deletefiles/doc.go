// Package deletefiles finds the rows that delete files of other writers end: the
// position-delete files and equality-delete files of Iceberg. Deletion vectors are
// no matter of it.
//
// Owns: which delete file applies to which data file; reading both.
// May touch: the objects of those files, by a function that opens them.
// Never enters: manifests, the log, the state, writing anything.
//
// # What applies
//
// A position-delete file applies to the data files that it names, of its own
// partition, and of no later sequence number than its own. Where a data file has a
// deletion vector, that has all that such files say of it, and they say nothing.
//
// An equality-delete file applies to the data files of an earlier sequence number
// than its own, of its own partition; one of an unpartitioned spec to those of any. A
// spec of which all fields are void is unpartitioned. Partitions are the same if their
// values are: one from before its column was widened is narrower.
// A row is ended if it is equal to one of the file's rows in every column of its
// equality ids; a null is equal to a null. A column that a data file lacks has its
// initial default there, else it is null.
//
// # What it costs
//
// Equality deletes are held in memory, keysAtOnce at most; the data files that they
// apply to are read once for as many, the columns of the equality ids alone, a row
// group at a time.
package deletefiles
