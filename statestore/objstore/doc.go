// Package objstore is varve's access to object stores: data files, manifests,
// vectors, bodies and checkpoints are created, read, listed and deleted
// through its [Store].
//
// It owns: the rules for keys and locations (W1), create-only durable writes
// (C2, W2, W3), the local folder store with its own fsync discipline, an
// in-memory store for simulations, and the registry of URL schemes.
//
// It may touch: the folder of a local store, and nothing outside it except the
// missing parents of that folder.
//
// What never enters it: the meaning of any object, Kafka, clocks, and the
// cloud drivers. Those are slow to compile and live in packages that register
// a scheme when they are imported: objstore/s3store (s3), objstore/gcsstore
// (gs) and objstore/azstore (azblob), all over the adapter in objstore/cloud.
//
// # The local folder store
//
// An object is a file. A write goes to a temporary file in the object's own
// folder, which is written, fsynced and then linked to its name, so that
// whatever already has that name is a conflict and not overwritten; the
// temporary name is removed and the folder fsynced before the call returns.
// Folders that this process uses for the first time have their entries fsynced
// too. A crash leaves at most a temporary file.
//
// Temporary files are named ".varve-tmp-…": no reader of Iceberg tables takes
// such a name for data or metadata, and List leaves them out. Each is locked
// (flock) while its process lives; [Open] removes those that nobody holds.
package objstore
