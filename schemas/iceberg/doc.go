// Package iceberg writes and reads what an Iceberg table is made of besides
// its data files and vectors: manifests, manifest lists and table metadata.
//
// Owns: the bytes of these three files (rules M1–M5, V4, S1–S14), the names,
// ids and times that they carry (S2, S4), and the transitions of a table's
// metadata from one version to the next.
// May touch: package schemas and the bytes that it is given. The same input
// gives the same bytes in every build: the headers are our own text, maps are
// never walked, and nothing is compressed on the write side, for a compressor's
// bytes change with its version.
// Never enters: files, catalogs, clocks, randomness; Parquet footers; the
// contents of vectors (package dv) and their container (package puffin).
//
// Readers here accept what any writer wrote (fields are found by their ids,
// codecs null, deflate, zstandard and snappy) and never allocate more than a
// bounded multiple of what they were given.
package iceberg
