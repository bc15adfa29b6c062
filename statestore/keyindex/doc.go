// Package keyindex is the key index of one table shard (rule K4): for each key
// the row that holds its newest version, or the tombstone that remembers its
// ordering value (K2, K3).
//
// It owns one directory: an immutable sorted base file, read block by block,
// and the small CURRENT file that names it. In memory lie the delta (sorted
// runs of what changed since the base) and the overlays (one run for each
// append whose outcome is not known yet, A7). A full delta is merged with the
// base into a new base by a goroutine of its own and swapped in. There is no
// write-ahead log: after a crash the index is what the last swapped base holds,
// and Offset tells from where the owner folds the transactions log again.
//
// It may touch its directory through the given vfs.FS and nothing else. What
// never enters it: clocks, the network, the log, table schemas, and the typed
// values of keys. It does not judge (late, tie, which version wins); it stores
// what its owner decided.
//
// An Index is used by one goroutine at a time. FORMAT.md describes the files.
package keyindex
