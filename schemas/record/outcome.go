package record

import "github.com/varve-io/varve/schemas"

// Code is what apply decided.
type Code uint8

const (
	Accepted Code = 1
	Partly   Code = 2 // some items of a batch record
	Rejected Code = 3
	Already  Code = 4 // a repeated request or append (L9, A8): nothing changed
	Settled  Code = 5 // derived: every shard asked has answered a DeleteKeys (A5), or is drained for a Reshard (A6); a find job is over (C8)
)

// Reason is why, from a closed list. The numbers are for ever.
type Reason uint16

const (
	ReasonNone        Reason = 0
	Undecodable       Reason = 1 // L7
	NotActive         Reason = 2 // L8
	IDReused          Reason = 3 // L9
	TooOld            Reason = 4 // L9
	WrongPartition    Reason = 5 // L1
	NoTable           Reason = 6 // no table of that name, or another id
	TableExists       Reason = 7
	BadDefinition     Reason = 8
	BadAlter          Reason = 9 // number 0: which part
	NoShard           Reason = 10
	EpochClosed       Reason = 11 // number 0: offset of the record that closed it, 1: 1 if by another claim
	SourceRange       Reason = 12 // numbers: expected from, given from, given to
	RequestRange      Reason = 13
	FileNotNew        Reason = 14 // number 0: item
	NoBase            Reason = 15 // number 0: block
	OutOfRange        Reason = 16 // numbers: block, position, rows
	BadBlock          Reason = 17 // number 0: block
	EmptyAppend       Reason = 18 // neither range moves
	BadCounter        Reason = 19
	BadFile           Reason = 20 // number 0: item
	SchemaUnknown     Reason = 21
	IndexOffset       Reason = 22
	CutPending        Reason = 23
	NothingToCut      Reason = 24
	NoCutPending      Reason = 25
	WrongBuild        Reason = 26
	WrongParent       Reason = 27
	BadCommit         Reason = 28 // number 0: which part
	NoOrderColumn     Reason = 29 // DeleteKeys with a value on a table without one
	NoKey             Reason = 30 // DeleteKeys on a table without key
	FramingChanged    Reason = 31 // K5
	VersionOutOfOrder Reason = 32 // SetApplyVersion
	HeadMoved         Reason = 33
	ShardRetired      Reason = 34
	NoChange          Reason = 35 // CatalogBase; number 0: 1 not the state's head, 2 a number falls, 3 nothing is new
	// Of items of PlanJobs, CompleteJob and ReleaseJob (F1, F4, F6).
	BadItem        Reason = 36 // no inputs, too many, a target that is no size
	NoFile         Reason = 37 // an input that the table does not have, or no longer
	FileTaken      Reason = 38 // an input of an open job, or twice in the record
	NotPublished   Reason = 39 // an input that no snapshot lists yet (S9)
	OtherPartition Reason = 40 // inputs of more than one partition
	BadRange       Reason = 41 // a range that is no reference to its file
	Unsettled      Reason = 42 // a DeleteKeys is not settled
	NoJob          Reason = 43 // no open job of that plan and item
	WrongAttempt   Reason = 44
	BadOutputs     Reason = 45 // rows do not add up, or a name twice
	BadMap         Reason = 46 // not a forwarding map of this job, its counts break F4, or a map that is void (L10)
	WrongDead      Reason = 47 // the map's R is not the job's
	// Of Reshard and of what comes while one waits for its shards (A6).
	ReshardOpen Reason = 48 // number 0: the open Reshard
	BadReshard  Reason = 49 // number 0: 1 partitions, 2 ends, 3 no index checkpoint, with the partition
	// Of CollectFiles' items and FilesCollected (G2, G3).
	Reachable    Reason = 50 // something may still need the object
	NoCollection Reason = 51 // no CollectFiles of that offset waits
	// Of AlterRefs, ExpireSnapshots and Rollback (S12, G1, G2).
	NoSnapshot   Reason = 52 // number 0: a snapshot that the table does not retain, or is about to lose
	SnapshotHeld Reason = 53 // number 0: one that is the head, or that a branch or tag names
	BadRef       Reason = 54 // number 0: 1 order, 2 name, 3 another kind, 4 not there, 5 too many
	BadRollback  Reason = 55 // number 0: 1 form, 2 a file, 3 a vector, 4 not what the snapshot lists; 1: which
	// Of RowsFound, and of the derived outcome of a DeleteWhere (C8).
	BadPart Reason = 56 // number 0: block; it names a file or position that is not of the part, or comes twice
	GivenUp Reason = 57 // settled, but a part could not be read: its rows stay
	// Of what waits for the shards to take files that entered by another path (H1).
	FilesHeld Reason = 58 // number 0: the AddFiles
	// Of ForeignSnapshot (H2).
	NotSorted  Reason = 65 // a reference of a split to a file whose rows need not ascend (F24)
	BadForeign Reason = 64 // number 0: 1 form, 2 manifests, 3 an added file, 4 a removed one, 5 one that moved, 6 a vector, 7 what manifests list; 1: which
	// Of the tree of key ranges (F8).
	NoNode   Reason = 70 // no node of that number, or the root is not what the sender knows
	NotLeaf  Reason = 71 // the node, or where rows are to go, is an inner one; or it is no inner one
	BadSplit Reason = 72 // children, pieces that do not add up, or separators that are not there
)

// Outcome is the deterministic part: codes, numbers and a digest (L6). Its
// encoding is hashed into the chain.
type Outcome struct {
	Code    Code
	Reason  Reason
	Numbers []int64  // by reason or type, at most MaxNumbers
	Items   []byte   // rejected items of a batch record (RejectedItems), nil when there are none
	Digest  [16]byte // of the record's logical effects; zero when it had none
	Changed bool     // the table changed
}

// MaxNumbers bounds Outcome.Numbers.
const MaxNumbers = 8

// OutcomeMessage is one message of the outcomes topic: key = log offset (i64
// BE) ‖ kind u8; it repeats what its readers need of the record.
type OutcomeMessage struct {
	Offset  int64 // log offset
	Type    Type  // of the record; 0 when undecodable
	Derived bool  // a derived outcome (Settled); several may share an offset
	Table   string
	TableID int64
	TimeMs  int64 // table time after the record
	Outcome Outcome
	Chain   Hash // after the record
	// Definition is the table's definition, in the outcomes of accepted
	// ClaimShard, CreateTable, AlterTable, AlterSpec, RenumberSpecs and CatalogSchemas, and of a CatalogBase or CatalogSpecs
	// that changed it; nil otherwise. Not hashed.
	Definition *schemas.Definition
}

// Numbers of an accepted Rollback's outcome.
const (
	RollbackFiles = iota
	RollbackVectors
	RollbackUnread // events of after the target, which are not read again
	RollbackUndone // requests by key that were answered after the target
	RollbackTo     // snapshot id
)

// Numbers of the outcome of an AddFiles or AdoptFiles.
const (
	AddAccepted = iota // items
	AddRejected
	AddFirst // file id of the first accepted item; the others follow
	AddHeld  // 1: until a derived outcome says settled, 0: live at once
)

// Numbers of a SplitPartition's outcome.
const (
	SplitAccepted = iota // items
	SplitRejected
	SplitFirst // number of the first child made; the others follow in the order of accepted items
)

// Numbers of an accepted DeleteWhere's outcome, of an accepted RowsFound's, and
// of the derived outcome that ends the find job (C8).
const (
	WhereFind    = iota // offset of the DeleteWhere; in its own outcome how many files the table has
	WhereRows           // rows that died by now, by all parts; in its own outcome how many rows its files have
	WhereFiles          // files that were read by now
	WhereScanned        // rows in them
)

// Numbers of an accepted ClaimShard's outcome.
const (
	ClaimWriter = iota
	ClaimSourceEnd
	ClaimRequestEnd
	ClaimIndexHorizon
	ClaimFraming // as int64 bits
	// ClaimBase is the offset at which the topic was divided anew (A6), or the
	// table rolled back (G1), whatever came last; without either there is no such
	// number.
	ClaimBase
)
