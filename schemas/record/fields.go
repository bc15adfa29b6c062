package record

import "github.com/varve-io/varve/schemas"

// The fields of every type in the order of avsc/*.avsc. The numbers beside
// arrays are the fewest bytes that an element takes; they bound what a reader
// allocates by what is there.

func refFields(v visitor, r *Ref) {
	v.str("path", &r.Path)
	v.long("length", &r.Length)
	v.fixed("hash", r.Hash[:])
}

func shardFields(v visitor, s *ShardKey) {
	v.fixed("topic_id", s.TopicID[:])
	v.text("topic", &s.Topic)
	v.int32("partition", &s.Partition)
}

func setApplyVersionFields(v visitor, r *SetApplyVersion) {
	v.fixed("deployment", r.Deployment[:])
	v.int32("partitions", &r.Partitions)
	v.int32("partition", &r.Partition)
	v.uint32("version", &r.Version)
}

func createTableFields(v visitor, r *CreateTable) {
	nested(v, "definition", &r.Definition, definitionFields)
	v.bool("suffix_id", &r.SuffixID)
}

func alterTableFields(v visitor, r *AlterTable) {
	records(v, "set", &r.Set, 2, propertyFields)
	array(v, "remove", &r.Remove, 1, func(v visitor, s *string) { v.str("", s) })
	records(v, "add", &r.Add, 7, addColumnFields)
	records(v, "widen", &r.Widen, 5, widenColumnFields)
	optionalRecord(v, "policy", &r.Policy, policyFields)
}

func policyFields(v visitor, p *Policy) {
	v.long("commit_interval_ms", &p.CommitIntervalMs)
	v.long("retention_ms", &p.RetentionMs)
	v.long("retention_count", &p.RetentionCount)
}

func addColumnFields(v visitor, c *AddColumn) {
	v.str("name", &c.Name)
	v.columnType("type", &c.Type)
	v.text("doc", &c.Doc)
	v.text("default", &c.Default)
}

func widenColumnFields(v visitor, c *WidenColumn) {
	v.str("name", &c.Name)
	v.columnType("type", &c.Type)
}

func alterSpecFields(v visitor, r *AlterSpec) {
	records(v, "terms", &r.Terms, 4, partitionTermFields)
}

func partitionTermFields(v visitor, t *PartitionTerm) {
	v.str("column", &t.Column)
	v.enum("transform", (*uint8)(&t.Transform), transformNames)
	v.int32("n", &t.N)
	v.str("name", &t.Name)
}

func alterRefsFields(v visitor, r *AlterRefs) {
	records(v, "set", &r.Set, 3, tableRefFields)
	array(v, "drop", &r.Drop, 1, func(v visitor, s *string) { v.str("", s) })
}

func tableRefFields(v visitor, r *TableRef) {
	v.str("name", &r.Name)
	v.bool("branch", &r.Branch)
	v.long("snapshot", &r.Snapshot)
}

func expireSnapshotsFields(v visitor, r *ExpireSnapshots) {
	v.long("before_ms", &r.BeforeMs)
	v.long("keep_last", &r.KeepLast)
	longs(v, "snapshots", &r.Snapshots)
}

func rollbackFields(v visitor, r *Rollback) {
	v.long("snapshot", &r.Snapshot)
	v.long("build", &r.Build)
	v.str("manifest_list", &r.ManifestList)
	records(v, "manifests", &r.Manifests, 5, manifestFields)
	records(v, "puffins", &r.Puffins, 2, puffinFields)
	records(v, "files", &r.Files, 7, keptFileFields)
	records(v, "vectors", &r.Vectors, 8, keptVectorFields)
	v.text("cause", &r.Cause)
}

func keptFileFields(v visitor, f *KeptFile) {
	v.uint64("file", &f.File)
	v.long("rows", &f.Rows)
	v.long("first_row_id", &f.FirstRowID)
	v.long("record", &f.Record)
	v.long("epoch", &f.Epoch)
	v.bytes("name", &f.Name)
	v.int32("manifest", &f.Manifest)
}

func keptVectorFields(v visitor, x *KeptVector) {
	v.uint64("file", &x.File)
	v.int32("puffin", &x.Puffin)
	v.long("offset", &x.Offset)
	v.long("length", &x.Length)
	v.long("cardinality", &x.Cardinality)
	v.long("sequence", &x.Sequence)
	v.int32("manifest", &x.Manifest)
	v.bytes("dead", &x.Dead)
}

func dropTableFields(visitor, *DropTable) {}

func claimShardFields(v visitor, r *ClaimShard) {
	nested(v, "shard", &r.Shard, shardFields)
	v.long("log_start", &r.LogStart)
	v.text("member", &r.Member)
}

// appendRowsFields serves JSON; the bytes are written and read by hand in
// appendrows.go, and a test holds the two equal.
func appendRowsFields(v visitor, r *AppendRows) {
	nested(v, "shard", &r.Shard, shardFields)
	v.long("epoch", &r.Epoch)
	v.long("counter", &r.Counter)
	v.long("source_from", &r.SourceFrom)
	v.long("source_to", &r.SourceTo)
	v.long("request_from", &r.RequestFrom)
	v.long("request_to", &r.RequestTo)
	v.int32("schema_id", &r.SchemaID)
	v.uint64("framing", &r.Framing)
	v.long("forgets", &r.Forgets)
	records(v, "files", &r.Files, minDataFile, dataFileFields)
	records(v, "deletes", &r.Deletes, minDeleteBlock, deleteBlockFields)
	optionalRecord(v, "changes", &r.Changes, refFields)
	nested(v, "counts", &r.Counts, countsFields)
}

func dataFileFields(v visitor, f *DataFile) {
	v.uint64("id", &f.ID)
	v.long("rows", &f.Rows)
	v.long("bytes", &f.Bytes)
	v.int32("spec_id", &f.SpecID)
	v.bytes("partition", &f.Partition)
}

func deleteBlockFields(v visitor, d *DeleteBlock) {
	v.uint64("file", &d.File)
	v.bytes("bitmap", &d.Bitmap)
}

func countsFields(v visitor, c *Counts) {
	v.long("events", &c.Events)
	v.long("upserts", &c.Upserts)
	v.long("deletes", &c.Deletes)
	v.long("late_ignored", &c.LateIgnored)
	v.long("absent_deletes", &c.AbsentDeletes)
	v.long("control", &c.Control)
	v.long("dead_upserts", &c.DeadUpserts)
	v.long("dead_deletes", &c.DeadDeletes)
	v.long("dead_other", &c.DeadOther)
}

func shardIndexFields(v visitor, r *ShardIndex) {
	nested(v, "shard", &r.Shard, shardFields)
	v.long("epoch", &r.Epoch)
	v.long("offset", &r.Offset)
	nested(v, "file", &r.File, refFields)
}

func skipSourceFields(v visitor, r *SkipSource) {
	nested(v, "shard", &r.Shard, shardFields)
	v.long("from", &r.From)
	v.long("to", &r.To)
	v.text("cause", &r.Cause)
}

func reshardFields(v visitor, r *Reshard) {
	v.fixed("topic_id", r.TopicID[:])
	v.text("topic", &r.Topic)
	v.int32("partitions", &r.Partitions)
	v.bool("stood_still", &r.StoodStill)
	records(v, "ends", &r.Ends, 2, shardEndFields)
}

func shardEndFields(v visitor, e *ShardEnd) {
	v.int32("partition", &e.Partition)
	v.long("offset", &e.Offset)
}

func retireShardFields(v visitor, r *RetireShard) {
	nested(v, "shard", &r.Shard, shardFields)
}

func deleteKeysFields(v visitor, r *DeleteKeys) {
	nested(v, "keys", &r.Keys, refFields)
	v.long("count", &r.Count)
	optionalLong(v, "order", &r.HasOrder, &r.Order)
}

func deleteWhereFields(v visitor, r *DeleteWhere) {
	nested(v, "where", &r.Where, refFields)
	v.int32("schema_id", &r.SchemaID)
}

func rowsFoundFields(v visitor, r *RowsFound) {
	nested(v, "job", &r.Job, jobIDFields)
	v.long("rows", &r.Rows)
	records(v, "deletes", &r.Deletes, minDeleteBlock, deleteBlockFields)
}

func cutFields(visitor, *Cut) {}

func snapshotCommittedFields(v visitor, r *SnapshotCommitted) {
	v.long("cut", &r.Cut)
	v.long("build", &r.Build)
	v.long("parent", &r.Parent)
	v.long("snapshot_id", &r.SnapshotID)
	v.long("sequence", &r.Sequence)
	v.long("first_row_id", &r.FirstRowID)
	v.long("added_rows", &r.AddedRows)
	v.long("timestamp_ms", &r.TimestampMs)
	v.str("manifest_list", &r.ManifestList)
	v.long("metadata_version", &r.MetadataVersion)
	v.str("metadata_path", &r.MetadataPath)
	v.fixed("metadata_hash", r.MetadataHash[:])
	records(v, "manifests", &r.Manifests, 5, manifestFields)
	records(v, "files", &r.Files, 3, fileRowIDFields)
	records(v, "vectors", &r.Vectors, 6, vectorFields)
	records(v, "puffins", &r.Puffins, 2, puffinFields)
	v.str("operation", &r.Operation)
}

func manifestFields(v visitor, m *ManifestInfo) {
	v.str("path", &m.Path)
	v.long("bytes", &m.Bytes)
	v.uint8("content", &m.Content)
	v.int32("spec_id", &m.SpecID)
	longs(v, "replaces", &m.Replaces)
}

func fileRowIDFields(v visitor, f *FileRowID) {
	v.uint64("file", &f.File)
	v.long("first_row_id", &f.FirstRowID)
	v.int32("manifest", &f.Manifest)
}

func vectorFields(v visitor, x *VectorInfo) {
	v.uint64("file", &x.File)
	v.int32("puffin", &x.Puffin)
	v.long("offset", &x.Offset)
	v.long("length", &x.Length)
	v.long("cardinality", &x.Cardinality)
	v.int32("manifest", &x.Manifest)
}

func puffinFields(v visitor, p *PuffinInfo) {
	v.str("path", &p.Path)
	v.long("bytes", &p.Bytes)
}

func snapshotFailedFields(v visitor, r *SnapshotFailed) {
	v.long("cut", &r.Cut)
	v.long("build", &r.Build)
	v.long("attempt", &r.Attempt)
	v.str("cause", &r.Cause)
}

func catalogBaseFields(v visitor, r *CatalogBase) {
	v.long("snapshot", &r.Snapshot)
	v.long("sequence", &r.Sequence)
	v.long("next_row_id", &r.NextRowID)
	v.long("timestamp_ms", &r.TimestampMs)
	v.str("metadata_path", &r.MetadataPath)
	longs(v, "removed", &r.Removed)
	longs(v, "held", &r.Held)
	records(v, "set", &r.Set, 2, propertyFields)
	array(v, "unset", &r.Unset, 1, func(v visitor, s *string) { v.str("", s) })
	records(v, "schemas", &r.Schemas, 3, schemaFields)
	v.int32("last_column_id", &r.LastColumnID)
}

func catalogSpecsFields(v visitor, r *CatalogSpecs) {
	v.long("snapshot", &r.Snapshot)
	records(v, "specs", &r.Specs, 2, specFields)
	v.int32("default_spec", &r.DefaultSpec)
	v.int32("last_partition_id", &r.LastPartitionID)
}

func renumberSpecsFields(v visitor, r *RenumberSpecs) {
	v.long("snapshot", &r.Snapshot)
	records(v, "specs", &r.Specs, 2, specFields)
	v.int32("last_partition_id", &r.LastPartitionID)
}

func catalogSchemasFields(v visitor, r *CatalogSchemas) {
	v.long("snapshot", &r.Snapshot)
	v.int32("next_schema", &r.NextSchema)
	v.int32("last_column_id", &r.LastColumnID)
}

func addFilesFields(v visitor, r *AddFiles) {
	records(v, "items", &r.Items, 21, addedFileFields)
	optionalRecord(v, "metrics", &r.Metrics, refFields)
	v.text("cause", &r.Cause)
}

func addedFileFields(v visitor, f *AddedFile) {
	v.fixed("name", f.Name[:])
	v.long("rows", &f.Rows)
	v.long("bytes", &f.Bytes)
	v.int32("spec_id", &f.SpecID)
	v.bytes("partition", &f.Partition)
	v.int32("schema_id", &f.SchemaID)
}

func deletePositionsFields(v visitor, r *DeletePositions) {
	records(v, "deletes", &r.Deletes, minDeleteBlock, deleteBlockFields)
}

func planJobsFields(v visitor, r *PlanJobs) {
	records(v, "items", &r.Items, 3, planItemFields)
}

func planItemFields(v visitor, p *PlanItem) {
	records(v, "inputs", &p.Inputs, 3, jobInputFields)
	v.long("target_bytes", &p.TargetBytes)
	v.text("strategy", &p.Strategy)
}

func jobInputFields(v visitor, i *JobInput) {
	v.uint64("file", &i.File)
	v.long("lo", &i.Lo)
	v.long("hi", &i.Hi)
}

func completeJobFields(v visitor, r *CompleteJob) {
	records(v, "items", &r.Items, 6+minRef, completedJobFields)
	optionalRecord(v, "metrics", &r.Metrics, refFields)
}

// minRef is the fewest bytes of a Ref.
const minRef = 34

func jobIDFields(v visitor, j *JobID) {
	v.long("plan", &j.Plan)
	v.int32("item", &j.Item)
	v.int32("attempt", &j.Attempt)
}

func completedJobFields(v visitor, c *CompletedJob) {
	nested(v, "job", &c.Job, jobIDFields)
	v.int32("schema_id", &c.SchemaID)
	v.bool("sorted", &c.Sorted)
	records(v, "outputs", &c.Outputs, 18, jobOutputFields)
	nested(v, "map", &c.Map, refFields)
}

func jobOutputFields(v visitor, o *JobOutput) {
	v.fixed("name", o.Name[:])
	v.long("rows", &o.Rows)
	v.long("bytes", &o.Bytes)
}

func releaseJobFields(v visitor, r *ReleaseJob) {
	records(v, "items", &r.Items, 4, releasedJobFields)
	v.text("cause", &r.Cause)
}

func releasedJobFields(v visitor, j *ReleasedJob) {
	nested(v, "job", &j.Job, jobIDFields)
	v.bool("again", &j.Again)
}

func collectFilesFields(v visitor, r *CollectFiles) {
	records(v, "items", &r.Items, 4, collectItemFields)
	v.text("cause", &r.Cause)
}

func collectItemFields(v visitor, x *CollectItem) {
	v.uint8("kind", (*uint8)(&x.Kind))
	v.long("left", &x.Left)
	v.uint64("id", &x.ID)
	v.text("name", &x.Name)
}

func filesCollectedFields(v visitor, r *FilesCollected) {
	v.long("collect", &r.Collect)
	v.long("objects", &r.Objects)
}

func dispatchFields(v visitor, d *Dispatch) {
	nested(v, "job", &d.Job, jobIDFields)
	v.str("table", &d.Table)
	v.long("table_id", &d.TableID)
	v.int32("partition", &d.Partition)
	v.uint32("apply_version", &d.ApplyVersion)
	nested(v, "definition", &d.Definition, refFields)
	v.int32("spec_id", &d.SpecID)
	v.long("target_bytes", &d.TargetBytes)
	v.text("strategy", &d.Strategy)
	records(v, "inputs", &d.Inputs, 9, dispatchInputFields)
}

func findDispatchFields(v visitor, d *FindDispatch) {
	nested(v, "job", &d.Job, jobIDFields)
	v.str("table", &d.Table)
	v.long("table_id", &d.TableID)
	v.int32("partition", &d.Partition)
	v.uint32("apply_version", &d.ApplyVersion)
	nested(v, "definition", &d.Definition, refFields)
	v.int32("schema_id", &d.SchemaID)
	nested(v, "where", &d.Where, refFields)
	records(v, "inputs", &d.Inputs, 9, dispatchInputFields)
}

func dispatchInputFields(v visitor, i *DispatchInput) {
	v.uint64("file", &i.File)
	v.str("path", &i.Path)
	v.long("rows", &i.Rows)
	v.long("bytes", &i.Bytes)
	v.long("lo", &i.Lo)
	v.long("hi", &i.Hi)
	v.long("first_row_id", &i.FirstRowID)
	v.long("sequence", &i.Sequence)
	v.bytes("dead", &i.Dead)
	optionalRecord(v, "dead_ref", &i.DeadRef, refFields)
}

func heartbeatFields(v visitor, h *Heartbeat) {
	nested(v, "job", &h.Job, jobIDFields)
	v.long("table_id", &h.TableID)
	v.int32("partition", &h.Partition)
	v.text("worker", &h.Worker)
	v.long("rows", &h.Rows)
	v.long("total_rows", &h.TotalRows)
}

func rowsBodyFields(v visitor, b *RowsBody) {
	records(v, "changes", &b.Changes, 2, keyChangeFields)
	records(v, "files", &b.Files, 3, fileMetricsFields)
}

func keyChangeFields(v visitor, c *KeyChange) {
	v.bytes("key", &c.Key)
	optionalLong(v, "order", &c.HasOrder, &c.Order)
}

func fileMetricsFields(v visitor, f *FileMetrics) {
	v.uint64("id", &f.ID)
	longs(v, "split_offsets", &f.SplitOffsets)
	records(v, "columns", &f.Columns, 7, columnMetricsFields)
}

func columnMetricsFields(v visitor, c *ColumnMetrics) {
	v.int32("field_id", &c.FieldID)
	v.long("bytes", &c.Bytes)
	v.long("values", &c.Values)
	v.long("nulls", &c.Nulls)
	v.long("nans", &c.NaNs)
	optionalBytes(v, "lower", &c.HasLower, &c.Lower)
	optionalBytes(v, "upper", &c.HasUpper, &c.Upper)
}

func keysBodyFields(v visitor, b *KeysBody) {
	array(v, "keys", &b.Keys, 1, func(v visitor, k *[]byte) { v.bytes("", k) })
}

func whereBodyFields(v visitor, b *WhereBody) { v.str("predicate", &b.Predicate) }

func propertyFields(v visitor, p *schemas.Property) {
	v.str("key", &p.Key)
	v.str("value", &p.Value)
}
