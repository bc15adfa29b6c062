// Package finder does the data work of a part of a find job (C8, C10): it reads
// data files and tells of which rows a predicate holds, by position.
//
// Owns: which row groups need no look, the blocks of positions.
// May touch: the data files and the predicate that a dispatch names.
// Never enters: the log, what becomes of the positions (the state follows rows
// that compactions moved), the predicate's text in logs and errors (E1).
//
// # The same again
//
// A part reads whole data files, which never change, so whoever does it again
// finds the same rows. The dead positions of a dispatch are those of when it was
// sent: rows that need no look, for the state passes over dead rows anyway.
package finder
