package record

import "crypto/sha256"

// AdoptedFile is a Parquet file that another program wrote, and that stays where
// it lies.
type AdoptedFile struct {
	Path      string // in the warehouse
	Rows      int64
	Bytes     int64
	SpecID    int32
	Partition []byte
	SchemaID  int32  // schema version that it is read by
	Dead      []byte // positions that are no rows of the table, nil: none
}

// AdoptFiles takes files of another Iceberg table into a table as they lie (H14).
// Each item has its own outcome, with the numbers of an AddFiles'. Of a keyed table
// they are held until every shard has taken their keys (H1). Metrics is an erasable
// body (RowsBody) with the metrics of all files, by MetricsID of PathName.
type AdoptFiles struct {
	Items   []AdoptedFile
	Metrics *Ref   // nil without items only
	Cause   string // for people
}

// PathName stands for the name of a file whose path another program has given:
// the first bytes of the path's SHA-256.
func PathName(path string) (name [16]byte) {
	sum := sha256.Sum256([]byte(path))
	copy(name[:], sum[:])
	return name
}

func adoptFilesFields(v visitor, r *AdoptFiles) {
	records(v, "items", &r.Items, 7, adoptedFileFields)
	optionalRecord(v, "metrics", &r.Metrics, refFields)
	v.text("cause", &r.Cause)
}

func adoptedFileFields(v visitor, f *AdoptedFile) {
	v.str("path", &f.Path)
	v.long("rows", &f.Rows)
	v.long("bytes", &f.Bytes)
	v.int32("spec_id", &f.SpecID)
	v.bytes("partition", &f.Partition)
	v.int32("schema_id", &f.SchemaID)
	v.bytes("dead", &f.Dead)
}
