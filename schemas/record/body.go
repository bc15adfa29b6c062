package record

import (
	"bytes"
	"fmt"
)

// BodyVersion is the version of a type's body that EncodeBody writes. Version 2
// of a type that carries columns has a place for nested ones, of a ForeignSnapshot
// for delete files.
func BodyVersion(t Type) uint16 {
	switch t {
	case TypeCreateTable, TypeAlterTable, TypeCatalogBase, TypeForeignSnapshot:
		return 2
	}
	return 1
}

// New is a pointer to an empty record of this type, nil for a type that this
// build does not know.
func New(t Type) any {
	switch t {
	case TypeSetApplyVersion:
		return new(SetApplyVersion)
	case TypeCreateTable:
		return new(CreateTable)
	case TypeAlterTable:
		return new(AlterTable)
	case TypeAlterSpec:
		return new(AlterSpec)
	case TypeDropTable:
		return new(DropTable)
	case TypeClaimShard:
		return new(ClaimShard)
	case TypeAppendRows:
		return new(AppendRows)
	case TypeShardIndex:
		return new(ShardIndex)
	case TypeSkipSource:
		return new(SkipSource)
	case TypeRetireShard:
		return new(RetireShard)
	case TypeDeleteKeys:
		return new(DeleteKeys)
	case TypeDeleteWhere:
		return new(DeleteWhere)
	case TypeRowsFound:
		return new(RowsFound)
	case TypeCut:
		return new(Cut)
	case TypeSnapshotCommitted:
		return new(SnapshotCommitted)
	case TypeSnapshotFailed:
		return new(SnapshotFailed)
	case TypeCatalogBase:
		return new(CatalogBase)
	case TypeCatalogSpecs:
		return new(CatalogSpecs)
	case TypeRenumberSpecs:
		return new(RenumberSpecs)
	case TypeCatalogSchemas:
		return new(CatalogSchemas)
	case TypeAddFiles:
		return new(AddFiles)
	case TypeAdoptFiles:
		return new(AdoptFiles)
	case TypeForeignSnapshot:
		return new(ForeignSnapshot)
	case TypeDeletePositions:
		return new(DeletePositions)
	case TypePlanJobs:
		return new(PlanJobs)
	case TypeCompleteJob:
		return new(CompleteJob)
	case TypeReleaseJob:
		return new(ReleaseJob)
	case TypeSplitPartition:
		return new(SplitPartition)
	case TypeExtendTree:
		return new(ExtendTree)
	case TypeCollectFiles:
		return new(CollectFiles)
	case TypeFilesCollected:
		return new(FilesCollected)
	case TypeAlterRefs:
		return new(AlterRefs)
	case TypeExpireSnapshots:
		return new(ExpireSnapshots)
	case TypeRollback:
		return new(Rollback)
	case TypeReshard:
		return new(Reshard)
	}
	return nil
}

// TypeOf is the type of a record, given as a struct or a pointer to one; 0
// when it is none.
func TypeOf(v any) Type {
	switch v.(type) {
	case SetApplyVersion, *SetApplyVersion:
		return TypeSetApplyVersion
	case CreateTable, *CreateTable:
		return TypeCreateTable
	case AlterTable, *AlterTable:
		return TypeAlterTable
	case AlterSpec, *AlterSpec:
		return TypeAlterSpec
	case DropTable, *DropTable:
		return TypeDropTable
	case ClaimShard, *ClaimShard:
		return TypeClaimShard
	case AppendRows, *AppendRows:
		return TypeAppendRows
	case ShardIndex, *ShardIndex:
		return TypeShardIndex
	case SkipSource, *SkipSource:
		return TypeSkipSource
	case RetireShard, *RetireShard:
		return TypeRetireShard
	case DeleteKeys, *DeleteKeys:
		return TypeDeleteKeys
	case DeleteWhere, *DeleteWhere:
		return TypeDeleteWhere
	case RowsFound, *RowsFound:
		return TypeRowsFound
	case Cut, *Cut:
		return TypeCut
	case SnapshotCommitted, *SnapshotCommitted:
		return TypeSnapshotCommitted
	case SnapshotFailed, *SnapshotFailed:
		return TypeSnapshotFailed
	case CatalogBase, *CatalogBase:
		return TypeCatalogBase
	case CatalogSpecs, *CatalogSpecs:
		return TypeCatalogSpecs
	case RenumberSpecs, *RenumberSpecs:
		return TypeRenumberSpecs
	case CatalogSchemas, *CatalogSchemas:
		return TypeCatalogSchemas
	case AddFiles, *AddFiles:
		return TypeAddFiles
	case AdoptFiles, *AdoptFiles:
		return TypeAdoptFiles
	case ForeignSnapshot, *ForeignSnapshot:
		return TypeForeignSnapshot
	case DeletePositions, *DeletePositions:
		return TypeDeletePositions
	case PlanJobs, *PlanJobs:
		return TypePlanJobs
	case CompleteJob, *CompleteJob:
		return TypeCompleteJob
	case ReleaseJob, *ReleaseJob:
		return TypeReleaseJob
	case SplitPartition, *SplitPartition:
		return TypeSplitPartition
	case ExtendTree, *ExtendTree:
		return TypeExtendTree
	case CollectFiles, *CollectFiles:
		return TypeCollectFiles
	case FilesCollected, *FilesCollected:
		return TypeFilesCollected
	case AlterRefs, *AlterRefs:
		return TypeAlterRefs
	case ExpireSnapshots, *ExpireSnapshots:
		return TypeExpireSnapshots
	case Rollback, *Rollback:
		return TypeRollback
	case Reshard, *Reshard:
		return TypeReshard
	}
	return 0
}

// walk visits the fields of a record, given as a struct or a pointer to one
// (a reader needs a pointer); false when v is no record.
func walk(v visitor, x any) bool {
	switch r := x.(type) {
	case *SetApplyVersion:
		setApplyVersionFields(v, r)
	case *CreateTable:
		createTableFields(v, r)
	case *AlterTable:
		alterTableFields(v, r)
	case *AlterSpec:
		alterSpecFields(v, r)
	case *DropTable:
		dropTableFields(v, r)
	case *ClaimShard:
		claimShardFields(v, r)
	case *AppendRows:
		appendRowsFields(v, r)
	case *ShardIndex:
		shardIndexFields(v, r)
	case *SkipSource:
		skipSourceFields(v, r)
	case *RetireShard:
		retireShardFields(v, r)
	case *DeleteKeys:
		deleteKeysFields(v, r)
	case *DeleteWhere:
		deleteWhereFields(v, r)
	case *RowsFound:
		rowsFoundFields(v, r)
	case *Cut:
		cutFields(v, r)
	case *SnapshotCommitted:
		snapshotCommittedFields(v, r)
	case *SnapshotFailed:
		snapshotFailedFields(v, r)
	case *CatalogBase:
		catalogBaseFields(v, r)
	case *CatalogSpecs:
		catalogSpecsFields(v, r)
	case *RenumberSpecs:
		renumberSpecsFields(v, r)
	case *CatalogSchemas:
		catalogSchemasFields(v, r)
	case *AddFiles:
		addFilesFields(v, r)
	case *AdoptFiles:
		adoptFilesFields(v, r)
	case *ForeignSnapshot:
		foreignSnapshotFields(v, r)
	case *DeletePositions:
		deletePositionsFields(v, r)
	case *PlanJobs:
		planJobsFields(v, r)
	case *CompleteJob:
		completeJobFields(v, r)
	case *ReleaseJob:
		releaseJobFields(v, r)
	case *SplitPartition:
		splitPartitionFields(v, r)
	case *ExtendTree:
		extendTreeFields(v, r)
	case *CollectFiles:
		collectFilesFields(v, r)
	case *FilesCollected:
		filesCollectedFields(v, r)
	case *AlterRefs:
		alterRefsFields(v, r)
	case *ExpireSnapshots:
		expireSnapshotsFields(v, r)
	case *Rollback:
		rollbackFields(v, r)
	case *Reshard:
		reshardFields(v, r)
	case SetApplyVersion:
		setApplyVersionFields(v, &r)
	case CreateTable:
		createTableFields(v, &r)
	case AlterTable:
		alterTableFields(v, &r)
	case AlterSpec:
		alterSpecFields(v, &r)
	case DropTable:
		dropTableFields(v, &r)
	case ClaimShard:
		claimShardFields(v, &r)
	case AppendRows:
		appendRowsFields(v, &r)
	case ShardIndex:
		shardIndexFields(v, &r)
	case SkipSource:
		skipSourceFields(v, &r)
	case RetireShard:
		retireShardFields(v, &r)
	case DeleteKeys:
		deleteKeysFields(v, &r)
	case DeleteWhere:
		deleteWhereFields(v, &r)
	case RowsFound:
		rowsFoundFields(v, &r)
	case Cut:
		cutFields(v, &r)
	case SnapshotCommitted:
		snapshotCommittedFields(v, &r)
	case SnapshotFailed:
		snapshotFailedFields(v, &r)
	case CatalogBase:
		catalogBaseFields(v, &r)
	case CatalogSpecs:
		catalogSpecsFields(v, &r)
	case RenumberSpecs:
		renumberSpecsFields(v, &r)
	case CatalogSchemas:
		catalogSchemasFields(v, &r)
	case AddFiles:
		addFilesFields(v, &r)
	case AdoptFiles:
		adoptFilesFields(v, &r)
	case ForeignSnapshot:
		foreignSnapshotFields(v, &r)
	case DeletePositions:
		deletePositionsFields(v, &r)
	case PlanJobs:
		planJobsFields(v, &r)
	case CompleteJob:
		completeJobFields(v, &r)
	case ReleaseJob:
		releaseJobFields(v, &r)
	case SplitPartition:
		splitPartitionFields(v, &r)
	case ExtendTree:
		extendTreeFields(v, &r)
	case CollectFiles:
		collectFilesFields(v, &r)
	case FilesCollected:
		filesCollectedFields(v, &r)
	case AlterRefs:
		alterRefsFields(v, &r)
	case ExpireSnapshots:
		expireSnapshotsFields(v, &r)
	case Rollback:
		rollbackFields(v, &r)
	case Reshard:
		reshardFields(v, &r)
	default:
		return false
	}
	return true
}

// EncodeBody appends the Avro bytes of a record, given as a struct or a
// pointer to one, at BodyVersion. It refuses (ErrNotEncodable) what no decoder
// would accept, such as strings that are not UTF-8; dst is then as it was.
func EncodeBody(dst []byte, v any) ([]byte, error) {
	if r, ok := v.(*AppendRows); ok {
		return r.encode(dst)
	}
	w := binWriter{b: dst}
	if !walk(&w, v) {
		return dst, fmt.Errorf("%w: %T is no record", ErrNotEncodable, v)
	}
	if w.err != nil {
		return dst, fmt.Errorf("%s: %w", TypeOf(v), w.err)
	}
	return w.b, nil
}

// DecodeBody reads the body of a record into a new struct and returns a
// pointer to it. Byte fields alias body. ErrUndecodable: the form is wrong;
// ErrUnknownType: this build does not know the type or its version. Only the
// form is checked here (L7); what the numbers mean is for apply.
func DecodeBody(t Type, version uint16, body []byte) (any, error) {
	v := New(t)
	if v == nil || version == 0 || version > BodyVersion(t) {
		return nil, fmt.Errorf("%w: %s version %d", ErrUnknownType, t, version)
	}
	if r, ok := v.(*AppendRows); ok {
		if err := r.Decode(body); err != nil {
			return nil, err
		}
		return r, nil
	}
	b := binReader{b: body, flat: version < BodyVersion(t)}
	walk(&b, v)
	if err := b.finish(t.String()); err != nil {
		return nil, err
	}
	return v, nil
}

// EncodeRowsBody appends an AppendRows' erasable body (E1). Changes must
// ascend by key, each key once.
func EncodeRowsBody(dst []byte, body *RowsBody) ([]byte, error) {
	if i := firstUnsorted(len(body.Changes), func(i int) []byte { return body.Changes[i].Key }); i > 0 {
		return dst, fmt.Errorf("RowsBody: %w: change %d does not ascend by key", ErrNotEncodable, i)
	}
	w := binWriter{b: dst}
	rowsBodyFields(&w, body)
	return w.b, w.err
}

// DecodeRowsBody reads into body, whose slices are used again; byte fields
// alias b.
func DecodeRowsBody(b []byte, body *RowsBody) error {
	r := binReader{b: b}
	rowsBodyFields(&r, body)
	if err := r.finish("RowsBody"); err != nil {
		return err
	}
	if i := firstUnsorted(len(body.Changes), func(i int) []byte { return body.Changes[i].Key }); i > 0 {
		return fmt.Errorf("RowsBody: %w: change %d does not ascend by key", ErrUndecodable, i)
	}
	return nil
}

// EncodeKeysBody appends a DeleteKeys' erasable body (E1). Keys must ascend,
// each once.
func EncodeKeysBody(dst []byte, body *KeysBody) ([]byte, error) {
	if i := firstUnsorted(len(body.Keys), func(i int) []byte { return body.Keys[i] }); i > 0 {
		return dst, fmt.Errorf("KeysBody: %w: key %d does not ascend", ErrNotEncodable, i)
	}
	w := binWriter{b: dst}
	keysBodyFields(&w, body)
	return w.b, w.err
}

// DecodeKeysBody reads into body, whose slice is used again; keys alias b.
func DecodeKeysBody(b []byte, body *KeysBody) error {
	r := binReader{b: b}
	keysBodyFields(&r, body)
	if err := r.finish("KeysBody"); err != nil {
		return err
	}
	if i := firstUnsorted(len(body.Keys), func(i int) []byte { return body.Keys[i] }); i > 0 {
		return fmt.Errorf("KeysBody: %w: key %d does not ascend", ErrUndecodable, i)
	}
	return nil
}

// EncodeWhereBody appends a DeleteWhere's erasable body (E1).
func EncodeWhereBody(dst []byte, body *WhereBody) ([]byte, error) {
	w := binWriter{b: dst}
	whereBodyFields(&w, body)
	return w.b, w.err
}

// DecodeWhereBody reads into body.
func DecodeWhereBody(b []byte, body *WhereBody) error {
	r := binReader{b: b}
	whereBodyFields(&r, body)
	return r.finish("WhereBody")
}

// firstUnsorted is the first index whose key is not above the one before it, 0 when none.
func firstUnsorted(n int, key func(int) []byte) int {
	for i := 1; i < n; i++ {
		if bytes.Compare(key(i-1), key(i)) >= 0 {
			return i
		}
	}
	return 0
}
