package record

import (
	"encoding/binary"

	"github.com/varve-io/varve/schemas"
)

// Type is a record type. The numbers are for ever (semantics.md §10).
type Type uint8

const (
	TypeSetApplyVersion   Type = 1
	TypeCreateTable       Type = 2
	TypeAlterTable        Type = 3
	TypeDropTable         Type = 4
	TypeClaimShard        Type = 5
	TypeAppendRows        Type = 6
	TypeShardIndex        Type = 7
	TypeSkipSource        Type = 8
	TypeRetireShard       Type = 9
	TypeAddFiles          Type = 10
	TypeDeletePositions   Type = 11
	TypeDeleteKeys        Type = 12
	TypeDeleteWhere       Type = 13
	TypePlanJobs          Type = 14
	TypeCompleteJob       Type = 15
	TypeReleaseJob        Type = 16
	TypeSplitPartition    Type = 17
	TypeExtendTree        Type = 18
	TypeCut               Type = 19
	TypeSnapshotCommitted Type = 20
	TypeSnapshotFailed    Type = 21
	TypeForeignSnapshot   Type = 22
	TypeCatalogBase       Type = 23
	TypeRollback          Type = 24
	TypeExpireSnapshots   Type = 25
	TypeCollectFiles      Type = 26
	TypeFilesCollected    Type = 27
	TypeRequestErasure    Type = 28
	TypeErasureProgress   Type = 29
	TypeReshard           Type = 30
	TypeAlterRefs         Type = 31
	TypeRowsFound         Type = 32
	TypeAlterSpec         Type = 33
	TypeCatalogSpecs      Type = 34
	TypeRenumberSpecs     Type = 35
	TypeCatalogSchemas    Type = 37
	TypeAdoptFiles        Type = 36
)

// Form is the envelope's form; a newer one is "not active" (L8).
const Form = 1

// HeaderKey is the Kafka header that makes form, type and versions readable
// without decoding the value.
const HeaderKey = "varve"

// MaxInlineBody is the size above which a body goes to the object store (L10), in bytes.
const MaxInlineBody = 256 << 10

// RequestID names a request (L9). All zero: none (AppendRows needs none).
type RequestID [16]byte

// Hash is a SHA-256.
type Hash [32]byte

// Ref names an object by its content: key under the deployment's prefix,
// length in bytes, SHA-256. A small forwarding map's may hold the bytes themselves
// (InlineMap).
type Ref struct {
	Path   string
	Length int64
	Hash   Hash
}

// Envelope is what every record carries.
type Envelope struct {
	Type         Type
	TypeVersion  uint16
	ApplyVersion uint32
	Request      RequestID
	OffsetSeen   int64  // an offset of this log that the sender has read, -1 before the first
	Table        string // empty for SetApplyVersion
	TableID      int64  // offset of its CreateTable; -1 in CreateTable and SetApplyVersion
	Body         []byte // Avro of the type's schema, when inline
	BodyRef      *Ref   // else where it lies
}

// ShardKey is (source topic id, partition); the table is the envelope's (A1).
type ShardKey struct {
	TopicID   [16]byte
	Topic     string // for people; the id decides
	Partition int32
}

// SetApplyVersion: offset 0 of a partition is its genesis (L8).
type SetApplyVersion struct {
	Deployment [16]byte
	Partitions int32
	Partition  int32
	Version    uint32
}

// CreateTable carries a whole definition. Location is the base; SuffixID asks
// apply to append "-<table id>" to it, since the folder of an older table of
// that name is still there.
type CreateTable struct {
	Definition schemas.Definition
	SuffixID   bool
}

// Reshard begins to divide a keyed table's source topic, which gained
// partitions, anew (A6). The shards that there are read up to Ends; once all
// did, and have answered every request, a second, derived outcome says settled
// and every epoch of the topic is closed: from there on each partition's shard
// knows the keys of all of them.
type Reshard struct {
	TopicID    [16]byte
	Topic      string // for people; the id decides
	Partitions int32  // of the topic now
	// StoodStill is a user's word that no producer wrote from before the topic
	// gained partitions until this record: a table without an ordering column
	// needs it.
	StoodStill bool
	// Ends has an end for each shard that is not retired, by partition.
	Ends []ShardEnd
}

// ShardEnd is a source offset of a partition.
type ShardEnd struct {
	Partition int32
	Offset    int64
}

// AddColumn is a new column; apply gives its id. Defaults are JSON single values.
type AddColumn struct {
	Name    string
	Type    schemas.Type
	Doc     string
	Default string // "" none; else both initial-default and write-default
}

// WidenColumn gives a column a wider type.
type WidenColumn struct {
	Name string
	Type schemas.Type
}

// AlterTable changes a definition. Adding a column that is there already with
// the same type, or widening to what it already is, changes nothing and is accepted.
type AlterTable struct {
	Set    []schemas.Property // sorted by key
	Remove []string           // sorted
	Add    []AddColumn
	Widen  []WidenColumn
	Policy *Policy
}

// Policy is how often a table is published and how long its snapshots stay. A
// zero leaves the table's value as it is.
type Policy struct {
	CommitIntervalMs int64
	RetentionMs      int64
	RetentionCount   int64
}

// AlterSpec says how a table is partitioned from then on (T7): by these terms, in
// their order; none: not at all. Files that were written before keep the spec
// that they have. Apply gives spec and field ids.
type AlterSpec struct {
	Terms []PartitionTerm
}

// PartitionTerm is a column through a transform. N is the bucket count or the
// truncation width, 0 otherwise.
type PartitionTerm struct {
	Column    string
	Transform schemas.TransformKind
	N         int32
	Name      string // of the partition field
}

// TableRef is a branch or tag of a table. It keeps its snapshot from expiry.
type TableRef struct {
	Name     string
	Branch   bool // else a tag
	Snapshot int64
}

// AlterRefs makes, moves and drops branches and tags (S12). All of it is
// accepted or nothing: every snapshot that it names must be retained, every
// name that it drops must be there, and a name keeps its kind. Branch main
// moves with cuts and Rollback alone.
type AlterRefs struct {
	Set  []TableRef // ascending by name
	Drop []string   // ascending
}

// ExpireSnapshots removes snapshots on demand (G2): those listed, and those
// that are older than BeforeMs and not among the last KeepLast. What a branch
// or tag names stays, and so does the head.
type ExpireSnapshots struct {
	BeforeMs  int64   // 0: none by age and count
	KeepLast  int64   // at least 1 where BeforeMs is given
	Snapshots []int64 // ascending
}

// Rollback makes a retained snapshot the table's head again (G1). It carries
// all that the snapshot lists; apply holds that against the digest that the
// state kept when the snapshot was committed, and owners of shards make their
// key indexes of it.
type Rollback struct {
	Snapshot     int64
	Build        int64 // its build offset
	ManifestList string
	Manifests    []ManifestInfo // no Replaces
	Puffins      []PuffinInfo
	Files        []KeptFile   // ascending by file
	Vectors      []KeptVector // ascending by file
	Cause        string       // for people
}

// KeptFile is a data file that a snapshot lists, as the state knows it.
type KeptFile struct {
	File       uint64
	Rows       int64
	FirstRowID int64
	Record     int64  // offset of the record that added it
	Epoch      int64  // of its AppendRows, -1: a job wrote it
	Name       []byte // 16 bytes where a job wrote it, else empty
	Manifest   int32  // index into Rollback.Manifests
}

// KeptVector is a vector that a snapshot lists, and what it holds.
type KeptVector struct {
	File        uint64
	Puffin      int32 // index into Rollback.Puffins
	Offset      int64
	Length      int64
	Cardinality int64
	Sequence    int64
	Manifest    int32  // index into Rollback.Manifests
	Dead        []byte // canonical position set
}

// DropTable frees the name. Files stay where they are.
type DropTable struct{}

// ClaimShard opens an epoch (A2). LogStart is the source partition's first
// offset at the claim: a first claim's source end.
type ClaimShard struct {
	Shard    ShardKey
	LogStart int64
	Member   string // who asks, for people
}

// DataFile is one file of an AppendRows. Its path follows from table id,
// epoch and counter. Partition is the tuple's canonical bytes (schemas).
type DataFile struct {
	ID        uint64 // writer number (3 bytes) ‖ writer's counter (5 bytes)
	Rows      int64  // 1 … 2^31−2
	Bytes     int64
	SpecID    int32
	Partition []byte
}

// DeleteBlock names positions of one older file. Bitmap is a portable
// run-optimized 32-bit roaring bitmap.
type DeleteBlock struct {
	File   uint64
	Bitmap []byte
}

// Counts of what an AppendRows' source range held.
type Counts struct {
	Events        int64 // data events, dead letters not included
	Upserts       int64 // rows written
	Deletes       int64 // rows removed by delete events (requests' answers included)
	LateIgnored   int64 // K2
	AbsentDeletes int64 // K6
	Control       int64
	DeadUpserts   int64 // K7
	DeadDeletes   int64
	DeadOther     int64
}

// Add adds another range's counts.
func (c *Counts) Add(d *Counts) {
	c.Events += d.Events
	c.Upserts += d.Upserts
	c.Deletes += d.Deletes
	c.LateIgnored += d.LateIgnored
	c.AbsentDeletes += d.AbsentDeletes
	c.Control += d.Control
	c.DeadUpserts += d.DeadUpserts
	c.DeadDeletes += d.DeadDeletes
	c.DeadOther += d.DeadOther
}

// AppendRows is one flush of a shard (A3, A4).
type AppendRows struct {
	Shard       ShardKey
	Epoch       int64
	Counter     int64 // A8: this writer's appends in this epoch, from 1
	SourceFrom  int64
	SourceTo    int64
	RequestFrom int64
	RequestTo   int64
	SchemaID    int32  // schema version of the files
	Framing     uint64 // K5: framing of the record keys, 0 none
	// Forgets is the table time, in ms, before which its maker remembered no
	// tombstone (K3). Who folds the record's answers forgets the same, whatever
	// was decided since.
	Forgets int64
	Files   []DataFile
	Deletes []DeleteBlock // ascending by file
	Changes *Ref          // erasable body: RowsBody. nil when there are no files and no key changes
	Counts  Counts
}

// ShardIndex tells of an uploaded index checkpoint (F9).
type ShardIndex struct {
	Shard  ShardKey
	Epoch  int64
	Offset int64 // complete to and including this log offset
	File   Ref
}

// SkipSource moves a shard's source end by a user's word (A6).
type SkipSource struct {
	Shard ShardKey
	From  int64 // must be the shard's end
	To    int64
	Cause string
}

// RetireShard ends a shard's part in requests (A5).
type RetireShard struct{ Shard ShardKey }

// DeleteKeys asks every shard to delete keys (A5). The keys are in an
// erasable body (KeysBody), E1.
type DeleteKeys struct {
	Keys     Ref
	Count    int64
	HasOrder bool
	Order    int64
}

// DeleteWhere opens a find job (C8): the rows that the table has at this record's
// offset, and of which a predicate holds, die, whatever their keys. The
// predicate is user data and lies in an erasable body (WhereBody), E1.
type DeleteWhere struct {
	Where    Ref
	SchemaID int32 // the schema version that names and types of the predicate mean
}

// RowsFound is what a part of a find job found, and ends it (C8). Positions are
// against the files that the part was to read, and follow their rows (P2).
type RowsFound struct {
	Job     JobID // plan: offset of the DeleteWhere, item: the part
	Rows    int64 // that were looked at
	Deletes []DeleteBlock
}

// Cut asks for a snapshot (C1).
type Cut struct{}

// ManifestInfo is one manifest that a snapshot made.
type ManifestInfo struct {
	Path    string
	Bytes   int64
	Content uint8 // 0 data, 1 deletes
	SpecID  int32
	// Replaces lists older manifests (by number) whose live entries moved here.
	Replaces []int64
}

// FileRowID is the first row id that a snapshot gave a listed file, and the
// manifest (index into SnapshotCommitted.Manifests) that lists it.
type FileRowID struct {
	File       uint64
	FirstRowID int64
	Manifest   int32
}

// VectorInfo is a vector that a snapshot published.
type VectorInfo struct {
	File        uint64
	Puffin      int32 // index into SnapshotCommitted.Puffins
	Offset      int64
	Length      int64
	Cardinality int64
	Manifest    int32 // index into SnapshotCommitted.Manifests
}

// PuffinInfo is one Puffin file of a snapshot.
type PuffinInfo struct {
	Path  string
	Bytes int64
}

// SnapshotCommitted confirms a pending cut (C3, S9). SnapshotID 0: a commit
// of metadata alone (a new table, a schema change).
type SnapshotCommitted struct {
	Cut             int64
	Build           int64
	Parent          int64 // snapshot id, 0 none
	SnapshotID      int64
	Sequence        int64
	FirstRowID      int64
	AddedRows       int64
	TimestampMs     int64
	ManifestList    string
	MetadataVersion int64 // N of vN.metadata.json; 0 where the catalog names it
	MetadataPath    string
	MetadataHash    Hash
	Manifests       []ManifestInfo
	Files           []FileRowID
	Vectors         []VectorInfo
	Puffins         []PuffinInfo
	Operation       string
}

// SnapshotFailed records an attempt that did not land; the cut stays pending.
type SnapshotFailed struct {
	Cut     int64
	Build   int64
	Attempt int64
	Cause   string // from a closed list: "conflict", "unknown", "store", "catalog"
}

// CatalogBase brings facts of an outside catalog into the log that main's head
// does not tell (H5): a branch commit moved the sequence number or the row ids,
// another writer added columns, set a property, made a tag, removed snapshots.
type CatalogBase struct {
	Snapshot     int64 // main's head as it was read, 0 none
	Sequence     int64 // last-sequence-number
	NextRowID    int64
	TimestampMs  int64  // last-updated-ms
	MetadataPath string // where the catalog's metadata lay, for people
	// Removed are snapshots that the state retains and the catalog no longer
	// has; Held those that its branches and tags name, main apart. Ascending.
	Removed []int64
	Held    []int64
	// Set are properties of the definition that have another value there,
	// Unset those that are gone. Sorted. Properties that the definition does
	// not have are the catalog's own and stay there.
	Set   []schemas.Property
	Unset []string
	// Schemas are the versions that the definition lacks, by id; the last is
	// the current one. LastColumnID is the highest field id ever given.
	Schemas      []schemas.Schema
	LastColumnID int32
}

// CatalogSpecs brings the partition specs into the log that another writer gave
// the table in an outside catalog, and which of all is the default one (H5).
type CatalogSpecs struct {
	Snapshot        int64          // main's head as it was read, 0 none
	Specs           []schemas.Spec // that the definition lacks, by id
	DefaultSpec     int32
	LastPartitionID int32 // highest partition field id ever given
}

// RenumberSpecs says that the catalog gave ids of partition specs to another
// writer, which specs of ours have that are not published yet: ours get other ids
// (T8). Specs are those of the catalog from the first such id on, all of them.
type RenumberSpecs struct {
	Snapshot        int64 // main's head as it was read, 0 none
	Specs           []schemas.Spec
	LastPartitionID int32 // highest partition field id ever given there
}

// CatalogSchemas says which schema and field ids the catalog has given that the
// definition does not have: of columns that another writer added and took back (H5).
// They are not given again.
type CatalogSchemas struct {
	Snapshot     int64 // main's head as it was read, 0 none
	NextSchema   int32 // the first schema id that is free
	LastColumnID int32 // highest field id ever given
}

// AddedFile is a file that an AddFiles brings in, data/<name in hex>.parquet
// under the table's location.
type AddedFile struct {
	Name      [16]byte // random, fresh for each file (F5)
	Rows      int64
	Bytes     int64
	SpecID    int32
	Partition []byte
	SchemaID  int32 // schema version of the file
}

// AddFiles brings files into a table that no shard wrote (H1). Each item has
// its own outcome. Of a keyed table they are held until every shard has taken
// their keys, which a derived outcome tells: settled, with this record's offset.
// Metrics is an erasable body (RowsBody) with the metrics of all files, by
// MetricsID.
type AddFiles struct {
	Items   []AddedFile
	Metrics *Ref   // nil without items only
	Cause   string // for people
}

// DeletePositions deletes rows by position, each block taken against the file
// that it names (P1–P5). Each block has its own outcome.
type DeletePositions struct {
	Deletes []DeleteBlock // ascending by file
}

// JobInput is a reference that a job takes: positions [Lo,Hi) of a file.
type JobInput struct {
	File   uint64
	Lo, Hi int64
}

// PlanItem is one job to be: its inputs become its own (F1). Where keys are
// equal, rows come out in the order of the inputs.
type PlanItem struct {
	Inputs      []JobInput
	TargetBytes int64  // of an output, about; 0: the table's
	Strategy    string // who chose the inputs, for people
}

// PlanJobs assigns files to jobs. Each item has its own outcome.
type PlanJobs struct{ Items []PlanItem }

// JobID names one attempt at a job: offset of the PlanJobs, item in it, attempt from 1.
type JobID struct {
	Plan    int64
	Item    int32
	Attempt int32
}

// JobOutput is a file that a job wrote, data/<name in hex>.parquet under the
// table's location. Apply gives its file id.
type JobOutput struct {
	Name  [16]byte // random, fresh for each execution (F5)
	Rows  int64
	Bytes int64
}

// CompletedJob is the result of one job (F4). SchemaID is the schema version of
// the outputs. Sorted: their rows ascend by the key.
type CompletedJob struct {
	Job      JobID
	SchemaID int32
	Sorted   bool
	Outputs  []JobOutput
	Map      Ref // forwarding map (F3)
}

// CompleteJob swaps references. Each item has its own outcome. Metrics is an
// erasable body (RowsBody) with the metrics of all outputs, by MetricsID; nil
// when there are no outputs.
type CompleteJob struct {
	Items   []CompletedJob
	Metrics *Ref
}

// MetricsID is the number by which a RowsBody names the output of a job.
func MetricsID(name [16]byte) uint64 { return binary.BigEndian.Uint64(name[:8]) }

// ReleasedJob ends an attempt (F6). Again: the next attempt is dispatched; else
// the job is over and its inputs are free.
type ReleasedJob struct {
	Job   JobID
	Again bool
}

// ReleaseJob gives up attempts. Each item has its own outcome.
type ReleaseJob struct {
	Items []ReleasedJob
	Cause string // for people
}

// Garbage is what kind of object an item of a CollectFiles names.
type Garbage uint8

const (
	// GarbageFile is a data file that left the table: ID is its file id.
	GarbageFile Garbage = 1
	// GarbageMetadata is a manifest, manifest list, Puffin file or metadata file
	// of the table that no later snapshot uses: ID is its number in the state.
	GarbageMetadata Garbage = 2
	// GarbageStray is an object that no accepted record names: what an attempt
	// that was lost or rejected left behind. Name is its path below the table's
	// location.
	GarbageStray Garbage = 3
)

// CollectItem names one object (G2, G3).
type CollectItem struct {
	Kind Garbage
	// Left is the build offset from which on no snapshot lists the object, as the
	// state has it; of a stray, the end of the log when the object was seen.
	Left int64
	ID   uint64
	Name string
}

// CollectFiles asks for objects to be deleted that nothing reaches any more.
// Each item has its own outcome. What is accepted waits for its deletion, which
// a FilesCollected ends.
type CollectFiles struct {
	Items []CollectItem
	Cause string // for people
}

// FilesCollected says that the objects of a CollectFiles are deleted.
type FilesCollected struct {
	Collect int64 // its offset
	Objects int64 // for people: how many were there
}

// DispatchInput is an input of a dispatched job: workers read no state (F1).
type DispatchInput struct {
	File       uint64
	Path       string // location of the data file
	Rows       int64  // of the whole file
	Bytes      int64
	Lo, Hi     int64
	FirstRowID int64
	Sequence   int64  // data sequence number
	Dead       []byte // R as of the plan, canonical position set; empty when none, or in DeadRef
	DeadRef    *Ref   // where a large R lies
}

// Dispatch is a message of the jobs topic: one attempt at a job. Definition
// names the table's definition as of the dispatch.
type Dispatch struct {
	Job          JobID
	Table        string
	TableID      int64
	Partition    int32 // of the transactions topic
	ApplyVersion uint32
	Definition   Ref
	SpecID       int32
	TargetBytes  int64
	Strategy     string
	Inputs       []DispatchInput
}

// FindDispatch is a message of the jobs topic: one attempt at a part of a find
// job. Dead of an input are rows that need no look; which they are changes nothing.
type FindDispatch struct {
	Job          JobID
	Table        string
	TableID      int64
	Partition    int32 // of the transactions topic
	ApplyVersion uint32
	Definition   Ref
	SchemaID     int32
	Where        Ref
	Inputs       []DispatchInput
}

// Heartbeat is a message of the jobs topic: a worker has an attempt at a job in hand.
type Heartbeat struct {
	Job       JobID
	TableID   int64
	Partition int32  // of the transactions topic
	Worker    string // for people
	Rows      int64  // written so far
	TotalRows int64  // to be written, 0: not known yet
}

// KeyChange is one entry of a key change list (K3): a key that ends deleted.
type KeyChange struct {
	Key      []byte // canonical key bytes
	HasOrder bool
	Order    int64
}

// ColumnMetrics of a data file, by field id.
type ColumnMetrics struct {
	FieldID  int32
	Bytes    int64
	Values   int64
	Nulls    int64
	NaNs     int64 // -1: not counted for this type
	HasLower bool
	Lower    []byte
	HasUpper bool
	Upper    []byte
}

// FileMetrics of one file of the record.
type FileMetrics struct {
	ID           uint64
	SplitOffsets []int64
	Columns      []ColumnMetrics // ascending by field id
}

// RowsBody is an AppendRows' erasable body (E1): the key change list and the
// files' column metrics (whose bounds may be key values).
type RowsBody struct {
	Changes []KeyChange // ascending by key
	Files   []FileMetrics
}

// KeysBody is a DeleteKeys' erasable body: canonical keys, ascending, distinct.
type KeysBody struct{ Keys [][]byte }

// WhereBody is a DeleteWhere's erasable body: the predicate, as package
// predicate reads it.
type WhereBody struct{ Predicate string }
