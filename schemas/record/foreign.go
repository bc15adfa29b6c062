package record

// ForeignSnapshot takes what other writers committed to branch main of an outside
// catalog into the log (H2): the snapshots from the state's head to the one that
// main has now, and how what that lists differs from what the head lists.
//
// Whoever sends it has read both, and each added file's footer.
type ForeignSnapshot struct {
	Base      int64           // snapshot id of the state's head, 0 none
	Snapshots []ForeignCommit // oldest first; the last is main's
	// The table's own numbers as they were read, as in a CatalogBase (H5).
	Sequence     int64
	NextRowID    int64
	TimestampMs  int64
	MetadataPath string
	// AsOf is the log offset of the state that deaths owed by the added files were
	// found in (H3).
	AsOf int64
	// Gone are the numbers of the head's manifests that the new one does not list;
	// Manifests those that it lists and the head does not.
	Gone      []int64
	Manifests []ManifestInfo
	Puffins   []PuffinInfo
	Files     []ForeignFile   // that the head does not list
	Removed   []uint64        // that the new one does not list, ascending
	Moved     []MovedFile     // listed by both, by a manifest of Gone before; ascending
	Vectors   []ForeignVector // of files that both list, what died of them; ascending by file
	// Deletes are the delete files that the new one lists, vectors apart: what they
	// end is in Files and Vectors, and the next commit takes them out (H15).
	Deletes int64
}

// ForeignCommit is a snapshot that another writer made.
type ForeignCommit struct {
	ID           int64
	Sequence     int64
	TimestampMs  int64
	ManifestList string
	Operation    string
}

// ForeignFile is a data file that another writer added.
type ForeignFile struct {
	Path       string // as the manifest has it
	Rows       int64
	Bytes      int64
	SpecID     int32
	Partition  []byte
	SchemaID   int32
	Sequence   int64 // data sequence number
	FirstRowID int64
	Manifest   int32 // index into ForeignSnapshot.Manifests
	// Dead are positions that are dead from the beginning: those of its vector, those
	// that delete files end (H15), and those that owe a death (H3). Nil: none.
	Dead []byte
	// Its vector, if it has one.
	Vector *PlacedVector
}

// PlacedVector is where a vector lies, and which manifest lists it.
type PlacedVector struct {
	Puffin      int32 // index into ForeignSnapshot.Puffins
	Offset      int64
	Length      int64
	Cardinality int64
	Sequence    int64
	Manifest    int32 // index into ForeignSnapshot.Manifests
}

// MovedFile is a file whose entry, or whose vector's, another manifest lists now.
type MovedFile struct {
	File   uint64
	Data   int32 // index into ForeignSnapshot.Manifests, -1: that of the file stays
	Vector int32 // likewise
}

// ForeignVector is what died of a file that both list: by a vector that the head
// does not list, by delete files (H15), or by both. Dead are the positions that the
// vector before did not have, nil: the same.
type ForeignVector struct {
	File   uint64
	Dead   []byte
	Vector PlacedVector // NoVector: the file's own stays, if it has one
}

// NoVector says that no vector came.
var NoVector = PlacedVector{Puffin: -1, Manifest: -1}

// Numbers of an accepted ForeignSnapshot's outcome.
const (
	ForeignAdded   = iota // files
	ForeignRemoved        // files
	ForeignFirst          // file id of the first added file; the others follow
	ForeignHeld           // 1: until a derived outcome says settled, 0: live at once
	ForeignPlace          // log offset that the rows of added files stand behind
	ForeignTo             // snapshot id
)

func foreignSnapshotFields(v visitor, r *ForeignSnapshot) {
	v.long("base", &r.Base)
	records(v, "snapshots", &r.Snapshots, 5, foreignCommitFields)
	v.long("sequence", &r.Sequence)
	v.long("next_row_id", &r.NextRowID)
	v.long("timestamp_ms", &r.TimestampMs)
	v.str("metadata_path", &r.MetadataPath)
	v.long("as_of", &r.AsOf)
	longs(v, "gone", &r.Gone)
	records(v, "manifests", &r.Manifests, 5, manifestFields)
	records(v, "puffins", &r.Puffins, 2, puffinFields)
	records(v, "files", &r.Files, 11, foreignFileFields)
	array(v, "removed", &r.Removed, 1, func(v visitor, id *uint64) { v.uint64("", id) })
	records(v, "moved", &r.Moved, 3, movedFileFields)
	records(v, "vectors", &r.Vectors, 8, foreignVectorFields)
	if !older(v) {
		v.long("deletes", &r.Deletes)
	}
}

func foreignCommitFields(v visitor, c *ForeignCommit) {
	v.long("id", &c.ID)
	v.long("sequence", &c.Sequence)
	v.long("timestamp_ms", &c.TimestampMs)
	v.str("manifest_list", &c.ManifestList)
	v.text("operation", &c.Operation)
}

func foreignFileFields(v visitor, f *ForeignFile) {
	v.str("path", &f.Path)
	v.long("rows", &f.Rows)
	v.long("bytes", &f.Bytes)
	v.int32("spec_id", &f.SpecID)
	v.bytes("partition", &f.Partition)
	v.int32("schema_id", &f.SchemaID)
	v.long("sequence", &f.Sequence)
	v.long("first_row_id", &f.FirstRowID)
	v.int32("manifest", &f.Manifest)
	v.bytes("dead", &f.Dead)
	optionalRecord(v, "vector", &f.Vector, placedVectorFields)
}

func placedVectorFields(v visitor, x *PlacedVector) {
	v.int32("puffin", &x.Puffin)
	v.long("offset", &x.Offset)
	v.long("length", &x.Length)
	v.long("cardinality", &x.Cardinality)
	v.long("sequence", &x.Sequence)
	v.int32("manifest", &x.Manifest)
}

func movedFileFields(v visitor, m *MovedFile) {
	v.uint64("file", &m.File)
	v.int32("data", &m.Data)
	v.int32("vector", &m.Vector)
}

func foreignVectorFields(v visitor, x *ForeignVector) {
	v.uint64("file", &x.File)
	v.bytes("dead", &x.Dead)
	nested(v, "vector", &x.Vector, placedVectorFields)
}
