// Package hadoopcat keeps the files of the embedded catalog (W2): a table's
// metadata versions, metadata/v<n>.metadata.json, and version-hint.text beside
// them. Every reader of "Hadoop" tables finds the newest version through them.
//
// It owns: those two kinds of files, that a version is created once, that the
// hint is digits only and never left behind the newest version for good. It
// may touch: the metadata folder of the tables that it is given, in one
// objstore.Store.
//
// What never enters it: the meaning of the metadata, when to commit, and what
// to do about a conflict; that is the publisher's.
//
// # The commit
//
// The version's file is the commit: it is made create-only, so that of two
// writers of one version one gets ErrConflict. The hint follows. A crash
// between the two leaves a hint that is too low; readers that look for the
// next versions still find the newest one, the others see the version before,
// and Repair (at the start of a node) or the next Commit mends it.
//
// Versions have no gaps: Commit makes n only when n-1 is there, and
// DeleteVersion deletes the oldest first. So a writer that slept until its
// version was made, superseded and deleted by others cannot make it again.
package hadoopcat
