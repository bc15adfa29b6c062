// Package dv owns the bytes of deletion vectors: the blob deletion-vector-v1 of
// Iceberg's Puffin files (V1), the portable 64-bit Roaring map inside it, and the
// portable 32-bit Roaring sets of row positions that the state keeps per data file.
//
// # Two forms
//
// A position set is the portable 32-bit Roaring serialization of row positions of
// one data file: what the state stores, what a log record carries, what the merge
// operator folds. [Union], [Minus] and the others work on these bytes directly.
//
// A [Vector] is a decoded blob of any writer: positions below 2^63 under several
// 32-bit keys. Files written here have fewer than 2^31 rows, so their blobs hold
// key 0 only.
//
// # One set, one serialization
//
// Everything this package writes is canonical: no empty container, runs merged,
// and for each container the encoding of fewest bytes; on a tie, array or bitmap
// before run. The bytes therefore depend on the set alone, not on the order of
// merges that led to it, nor on the library's version or the machine. (The
// library's RunOptimize counts a bitmap container with its in-memory header, so it
// keeps 2,048 to 2,055 runs as runs, up to 30 bytes longer than the bitmap, and the
// limit moves with the word size.)
//
// # Borders
//
// It may touch byte slices and roaring bitmaps. Files, object stores, clocks,
// Pebble and Puffin's container never enter it. All input is untrusted: decoding
// checks lengths against what remains before it allocates, and never panics.
package dv
