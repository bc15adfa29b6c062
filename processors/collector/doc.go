// Package collector takes away what no reader of a table can reach any more.
//
// Owns: when CollectFiles are asked for, and what is deleted of those that the
// log took (G2, G7); looking for strays in a table's folder (G8).
// May touch: the state (to read), the object store (to list, and to delete what
// an accepted CollectFiles names), the catalog (to read).
// Never enters: a decision what is garbage. The state's rules decide, in the log;
// a replay applies the same records and deletes nothing.
//
// # Steps
//
//  1. Propose reads from the state what it would let go and asks for it in a
//     CollectFiles.
//  2. Once that is applied, and its grace has passed, Delete reads the catalog's
//     metadata, deletes the objects, and gives the FilesCollected.
//
// Each step can be made again: a crash before the CollectFiles loses nothing, a
// crash while objects are deleted leaves them in the state's list, and to delete
// one twice is nothing. Members of one deployment that both do it do the same.
package collector
