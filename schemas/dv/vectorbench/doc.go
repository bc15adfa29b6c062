// Package vectorbench owns the comparison of package dv with plain roaring calls
// that do the same: union, difference, encoding, decoding, membership. It makes the
// cases; timing them is up to go test -bench and the command line.
//
// Plain means what a user of the library would write: bytes from outside (decode) are
// validated; sets that are already ours (union, minus, encode) are trusted, although
// package dv checks them each time, and the library's own form is taken for canonical.
// Each pair of functions is verified to agree before it is handed
// out. No clock enters it.
package vectorbench
