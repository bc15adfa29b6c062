package statestore

import "encoding/binary"

// Key spaces. Every key starts with one of these bytes; integers are
// big-endian so that keys sort by them. schemas/README.md has the byte page.
const (
	keyHead       = 'h' // → head
	keyName       = 'n' // name → table id
	keyTable      = 't' // table → table state
	keyDef        = 'e' // table → definition
	keyShard      = 's' // table ‖ topic id ‖ partition → shard state
	keyChunk      = 'f' // table ‖ id>>7 → file entries, bodies of unpublished ones
	keyChange     = 'x' // table ‖ id>>7 → added, killed: 128 bits each
	keyDead       = 'd' // table ‖ id → roaring bitmap (merge: union)
	keyVector     = 'v' // table ‖ id → published vector
	keyTuple      = 'p' // table ‖ ordinal → spec ‖ partition tuple
	keyTupleOf    = 'q' // table ‖ spec ‖ tuple → ordinal
	keyMembers    = 'm' // table ‖ ordinal ‖ file id → nothing; only for partitioned specs
	keyEpoch      = 'w' // table ‖ writer number → epoch
	keyManifest   = 'l' // table ‖ number → number of the manifest that its live entries moved to, while something names it
	keyLive       = 'g' // table ‖ number → path of a manifest that nothing replaced yet
	keyRequest    = 'r' // request id → first outcome
	keyRequestAt  = 'a' // offset ‖ request id → nothing; finds requests below the horizon
	keyFrozen     = 'z' // table ‖ 0 → frozen cut; table ‖ 1 ‖ id → frozen file
	keyJob        = 'j' // table ‖ plan ‖ item → open job
	keyBase       = 'b' // table ‖ plan ‖ item ‖ input → R of an open job's input, where it is not empty
	keyDone       = 'k' // table ‖ plan ‖ item → completed job: the way through it
	keyGarbage    = 'c' // table ‖ left ‖ kind ‖ number → an object that no snapshot from left on lists
	keyPuffin     = 'u' // table ‖ path → how many published vectors lie in it, and since when
	keyCollect    = 'y' // table ‖ offset of a CollectFiles → what it decided to delete
	keyGiven      = 'i' // table ‖ name → file id of a file that an AddFiles brought, or another program's path
	keyForeign    = 'F' // table ‖ id → path of a file that another program wrote; table ‖ 0 to 3 → other facts of such tables
	keyNode       = 'N' // table ‖ number → node of the tree of key ranges
	keyParts      = 'R' // table ‖ file id → the references to a file that is not one on the root
	keySeparators = 'S' // table ‖ offset of the record that split → where the keys lie
	keyOutbox     = 'o' // first offset → outcome messages of one commit
)

func key8(space byte, a uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{space}, a)
}

func key16(space byte, a, b uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(append(make([]byte, 0, 17), space), a), b)
}

func keyFrozenHead(table int64) []byte { return append(key8(keyFrozen, uint64(table)), 0) }

func keyFrozenFile(table int64, id uint64) []byte {
	return binary.BigEndian.AppendUint64(append(key8(keyFrozen, uint64(table)), 1), id)
}

// prefixEnd is the first key after every key with this prefix.
func prefixEnd(p []byte) []byte {
	end := append([]byte(nil), p...)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
