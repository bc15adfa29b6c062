// Package publisher turns a frozen cut into an Iceberg snapshot: Puffins with
// the vectors that changed, manifests, the manifest list, the table's next
// metadata, and the commit to the catalog (C1–C5).
//
// Owns: which manifests a snapshot makes, rewrites, merges and lists as they
// are (M2, M3, V3–V5, V7), row ids of added files (M4), operation and summary
// (S5, S10), what of the definition stands in the metadata, expiry inside the
// commit (S6), and the deletion of metadata files that nothing names any more.
// May touch: the table's metadata folder in the object store, bodies (reading),
// the catalog. It appends nothing to the log: the caller does, with what
// Publish returns.
// Never enters: clocks (but for Config.Fresh) and randomness. All bytes follow from the frozen cut,
// the base metadata with its list and manifests, and bodies named by hash (C1,
// C2): two publishers of one cut write the same files, and a publisher that
// comes late finds them there.
//
// # One attempt
//
// The base is the version that the state names, and its bytes have the hash
// that the state holds; everything else is foreign and stops the table. Then
// Puffins, manifests and list are created, never replaced, and the next
// version is committed. Where the next version is already there, it is either
// this very cut, of which the log has lost the SnapshotCommitted, and the
// record is made from the files as they stand; or it is foreign.
//
// # An outside catalog
//
// A Remote writes the metadata itself and has other writers (W5). Each attempt
// reads the table first. Our own snapshot of this build is found by what its
// summary says and adopted; a branch main that others moved, another UUID,
// location or unwritable columns stop the table (ErrForeign); facts beside main
// that the log lacks are a *BaseMoved, *SpecsMoved, *SpecsTaken or *SchemasGiven, which the caller
// appends (H5, T8). Only then it builds, from the frozen cut alone: schemas, specs,
// sequence number and row ids are the log's, which the metadata was found to agree
// with, so that manifests, lists and Puffins are the same on replay; the metadata is
// the catalog's (C7). What a commit expires is decided just before it (S16).
//
// # Commits of others
//
// Where other writers committed to main above our head, Publish and Look tell a
// *HeadMoved (H2). ForeignSnapshot then compares what both heads list: manifests
// that both list are not read. Of those that differ it takes the live entries, by
// path, and makes of them which files were added, which left, whose entry another
// manifest lists now, and which vectors are new, with the positions that their
// older ones lack. Each added file's footer is read: rows, columns, field ids. The
// caller appends the record; apply judges it by the state (H10), gives the pending
// cut up, and holds the added files until every shard has taken their keys. What
// cannot be taken in is ErrForeign, and says what was found and the ways out (H11).
//
// The record needs no metrics: manifests that list such files are kept, or written
// anew from their entries as they are.
package publisher
