// Package splitter finds where the leaves of a table's tree of key ranges are cut
// (F8): the keys that part them, and the rows of each reference that go to each.
//
// Owns: sketches, separators, the places of a key in sorted files.
// May touch: readers of data files, erasable bodies of separators (E1); it makes
// items of a SplitPartition.
// Never enters: the log, the state, which leaf is split and when, key values in
// errors.
//
// # Sketches
//
// A leaf's sketch is the keys at evenly spaced rows of its references, each as
// often as the reference has rows. They are read from the files themselves when
// the leaf is split, a page of the key columns each, and kept nowhere. Separators
// are the sketch's quantiles: of two children the median.
//
// # Places
//
// A file's rows ascend by key (H9), so the rows of a key range are found by binary
// search: a page of the key columns a step. Dead rows count as any other: a
// reference is a range of positions (F7).
package splitter
