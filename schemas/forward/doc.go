// Package forward owns the bytes of a forwarding map: where each row of a
// compaction job's inputs went (F2, F3), and the rebase of positions through
// it.
//
// Owns: the file's layout, its checksums, the counts by which a completion is
// judged (F4), the arithmetic of rank and select.
// May touch: byte slices, position sets of package dv, readers and writers
// handed to it.
// Never enters: object stores, the log, decisions about which position is
// rebased.
//
// # What a map says
//
// A job reads inputs, each a range [lo,hi) of a data file without the set R of
// its positions that were dead when the job was planned: L = [lo,hi) \ R. It
// writes outputs, one after the other. The map is one number a row of the
// outputs: the ordinal of the input that the row came from. As the rows of an
// input keep their order, that decides all: the k-th row of L is the k-th
// output row of that ordinal.
//
// # Layout
//
// All numbers little endian; "uv" is a varint of package encoding/binary.
//
//	magic   "varveFM1"
//	head    u32 length, bytes, u32 CRC-32C of the bytes
//	        uv inputs; each: u64 file id, uv lo, uv hi, uv rows of L,
//	        uv length of R, R (a canonical position set)
//	blocks  65,536 output rows each, the last fewer
//	tail    uv outputs; each: uv rows
//	        uv blocks; each: u8 coding, uv length, u32 CRC-32C of coding and
//	        payload, then for each input uv how many rows of the block are its
//	        then u32 length of the tail, u32 CRC-32C of the tail, "1MFevrav"
//
// A block is coded in the way that takes the fewest bytes:
//
//	0 one     u8 ordinal: all rows are its
//	1 runs    (u8 ordinal, uv rows)*
//	2 packed  u8 symbols n ≥ 2, n ordinals ascending, then ⌈log2 n⌉ bits a row,
//	          lowest bit first
//	3 fse     finite state entropy of the ordinals, as klauspost/compress/fse
//	          writes it
package forward
