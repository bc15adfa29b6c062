// Package vectorbench owns the comparison of package dv with plain roaring calls
// that do the same: union, difference, encoding, decoding, membership. It makes the
// cases; timing them is up to go test -bench and the command line.
//
// Plain means the library without what a vector needs: no check of the content, no
// canonical form. Each pair of functions is verified to agree before it is handed
// out. No clock enters it.
package vectorbench
