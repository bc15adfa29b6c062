// Package logfile is the plain, self-checking file that holds the records of
// one partition of a transactions topic, from an offset on.
//
// Owns: the bytes of such a file. May touch: the reader or writer that it is
// given. Never enters: files, Kafka, what a record means.
//
// # Bytes
//
// Integers are big-endian.
//
//	"VARVELOG" ‖ form u32 = 1
//	frame H: deployment id 16 ‖ partition i32 ‖ partitions i32 ‖ first offset i64 ‖ deployment name
//	frame R, one a record: offset i64 ‖ leader epoch i32 ‖ time i64 (ms) ‖ flags u8 ‖
//	         parts: key, value of the header varve, value; each u32 length ‖ bytes
//	frame T: records i64 ‖ next offset i64 ‖ SHA-256 of all bytes before this frame
//
// A frame is kind u8 ‖ length u32 ‖ payload ‖ CRC-32C of kind, length and
// payload. Flags: 1 control record, 2 there is a key, 4 a header, 8 a value; a
// part that is not there is not written. Nothing follows the frame T: a file
// without one is cut off.
package logfile
