package record

import "strconv"

var typeNames = []string{
	TypeSetApplyVersion: "SetApplyVersion", TypeCreateTable: "CreateTable", TypeAlterTable: "AlterTable",
	TypeDropTable: "DropTable", TypeClaimShard: "ClaimShard", TypeAppendRows: "AppendRows",
	TypeShardIndex: "ShardIndex", TypeSkipSource: "SkipSource", TypeRetireShard: "RetireShard",
	TypeAddFiles: "AddFiles", TypeDeletePositions: "DeletePositions", TypeDeleteKeys: "DeleteKeys",
	TypeDeleteWhere: "DeleteWhere", TypePlanJobs: "PlanJobs", TypeCompleteJob: "CompleteJob",
	TypeReleaseJob: "ReleaseJob", TypeSplitPartition: "SplitPartition", TypeExtendTree: "ExtendTree",
	TypeCut: "Cut", TypeSnapshotCommitted: "SnapshotCommitted", TypeSnapshotFailed: "SnapshotFailed",
	TypeForeignSnapshot: "ForeignSnapshot", TypeCatalogBase: "CatalogBase", TypeRollback: "Rollback",
	TypeExpireSnapshots: "ExpireSnapshots", TypeCollectFiles: "CollectFiles",
	TypeFilesCollected: "FilesCollected", TypeRequestErasure: "RequestErasure",
	TypeErasureProgress: "ErasureProgress", TypeReshard: "Reshard", TypeAlterRefs: "AlterRefs",
	TypeRowsFound: "RowsFound", TypeAlterSpec: "AlterSpec", TypeCatalogSpecs: "CatalogSpecs",
	TypeRenumberSpecs: "RenumberSpecs", TypeCatalogSchemas: "CatalogSchemas", TypeAdoptFiles: "AdoptFiles",
}

var codeNames = []string{
	Accepted: "accepted", Partly: "partly", Rejected: "rejected", Already: "already", Settled: "settled",
}

var reasonNames = []string{
	ReasonNone: "none", Undecodable: "undecodable", NotActive: "not active", IDReused: "id reused",
	TooOld: "too old", WrongPartition: "wrong partition", NoTable: "no table", TableExists: "table exists",
	BadDefinition: "bad definition", BadAlter: "bad alter", NoShard: "no shard", EpochClosed: "epoch closed",
	SourceRange: "source range", RequestRange: "request range", FileNotNew: "file not new",
	NoBase: "no base", OutOfRange: "out of range", BadBlock: "bad block", EmptyAppend: "empty append",
	BadCounter: "bad counter", BadFile: "bad file", SchemaUnknown: "schema unknown",
	IndexOffset: "index offset", CutPending: "cut pending", NothingToCut: "nothing to cut",
	NoCutPending: "no cut pending", WrongBuild: "wrong build", WrongParent: "wrong parent",
	BadCommit: "bad commit", NoOrderColumn: "no ordering column", NoKey: "no key",
	FramingChanged: "framing changed", VersionOutOfOrder: "version out of order", HeadMoved: "head moved",
	ShardRetired: "shard retired", NoChange: "no change", BadItem: "bad item", NoFile: "no file",
	FileTaken: "file taken", NotPublished: "not published", OtherPartition: "other partition",
	BadRange: "bad range", Unsettled: "unsettled", NoJob: "no job", WrongAttempt: "wrong attempt",
	BadOutputs: "bad outputs", BadMap: "bad map", WrongDead: "wrong dead set",
	ReshardOpen: "reshard open", BadReshard: "bad reshard",
	Reachable: "reachable", NoCollection: "no collection",
	NoSnapshot: "no snapshot", SnapshotHeld: "snapshot held", BadRef: "bad ref", BadRollback: "bad rollback",
	BadPart: "bad part", GivenUp: "given up",
	FilesHeld: "files held", BadForeign: "bad foreign snapshot", NotSorted: "not sorted",
	NoNode: "no node", NotLeaf: "not a leaf", BadSplit: "bad split",
}

func nameOf(names []string, n int, what string) string {
	if n < len(names) && names[n] != "" {
		return names[n]
	}
	return what + " " + strconv.Itoa(n)
}

func numberOf(names []string, name string) (int, bool) {
	for n, s := range names {
		if s == name && s != "" {
			return n, true
		}
	}
	return 0, false
}

// String is the type's name, such as AppendRows.
func (t Type) String() string { return nameOf(typeNames, int(t), "type") }

// ParseType is the type of this name; ok is false when there is none.
func ParseType(name string) (t Type, ok bool) {
	n, ok := numberOf(typeNames, name)
	return Type(n), ok
}

// String is the code's word, such as accepted.
func (c Code) String() string { return nameOf(codeNames, int(c), "code") }

// String is the reason's words, such as no base.
func (r Reason) String() string { return nameOf(reasonNames, int(r), "reason") }
