package iceberg

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
)

// TableIdentity is what no two tables share: the log that owns a table and the
// offset of its CreateTable. The partition belongs to it because offsets begin
// anew in each.
type TableIdentity struct {
	Deployment [16]byte
	Partition  int32
	TableID    int64
}

func (t *TableIdentity) hash(purpose string) hash.Hash {
	h := sha256.New()
	h.Write([]byte(purpose))
	h.Write([]byte{0})
	h.Write(t.Deployment[:])
	hashNumbers(h, int64(t.Partition), t.TableID)
	return h
}

func hashNumbers(h hash.Hash, vs ...int64) {
	var b [8]byte
	for _, v := range vs {
		binary.BigEndian.PutUint64(b[:], uint64(v))
		h.Write(b[:])
	}
}

// UUID is the table's Iceberg UUID.
func (t *TableIdentity) UUID() string {
	sum := t.hash("varve table uuid").Sum(nil)[:16]
	sum[6] = sum[6]&0x0f | 0x80 // version 8: made by the application's own rule
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:])
}

// SnapshotID is the id of a snapshot built at an offset (S4): 63 bits of a
// SHA-256, not 0. The counter tells the snapshots of one build apart, and
// steps over an id that the base already holds (see FreeSnapshotID).
func (t *TableIdentity) SnapshotID(buildOffset int64, counter uint32) int64 {
	h := t.hash("varve snapshot id")
	hashNumbers(h, buildOffset, int64(counter))
	id := int64(binary.BigEndian.Uint64(h.Sum(nil)) &^ (1 << 63))
	if id == 0 {
		return 1
	}
	return id
}

// FreeSnapshotID is the first snapshot id from counter on that base does not
// hold, and the counter that gave it. A caller that looks for a snapshot of
// its own must do so before it asks for a free id.
func (t *TableIdentity) FreeSnapshotID(base *Metadata, buildOffset int64, counter uint32) (int64, uint32) {
	for {
		id := t.SnapshotID(buildOffset, counter)
		if base.Snapshot(id) == nil {
			return id, counter
		}
		counter++
	}
}

// Attempt is what the names of one attempt's files depend on (S4): another
// base gives other names, so no path is written twice with different bytes.
type Attempt struct {
	Table         TableIdentity
	BuildOffset   int64
	ParentID      int64 // 0: no parent
	BaseSequence  int64
	BaseNextRowID int64
}

// Hash is 32 hexadecimal digits.
func (a *Attempt) Hash() string {
	h := a.Table.hash("varve file name")
	hashNumbers(h, a.BuildOffset, a.ParentID, a.BaseSequence, a.BaseNextRowID)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// ManifestName is the file name of the n-th manifest of the attempt's
// snapshot, ListName its list's, PuffinName its n-th Puffin's.
func (a *Attempt) ManifestName(snapshotID int64, n int) string {
	return fmt.Sprintf("%s-%d-m%d.avro", a.Hash(), snapshotID, n)
}

// ListName is the file name of the snapshot's manifest list.
func (a *Attempt) ListName(snapshotID int64) string {
	return fmt.Sprintf("snap-%d-%s.avro", snapshotID, a.Hash())
}

// PuffinName is the file name of the n-th Puffin of the attempt's snapshot.
func (a *Attempt) PuffinName(snapshotID int64, n int) string {
	return fmt.Sprintf("%s-%d-dv%d.puffin", a.Hash(), snapshotID, n)
}

// MetadataName is the file name of a metadata version in the embedded catalog (W2).
func MetadataName(version int64) string { return fmt.Sprintf("v%d.metadata.json", version) }
