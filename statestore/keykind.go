package statestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// keyKinds names the key spaces for people.
var keyKinds = map[byte]string{
	keyHead: "head", keyName: "table name", keyTable: "table", keyDef: "definition", keyShard: "shard", keyChunk: "files",
	keyChange: "changes since the last cut", keyDead: "dead rows", keyVector: "published vector", keyTuple: "partition value",
	keyTupleOf: "partition value's number", keyMembers: "partition's files", keyEpoch: "writer's epoch", keyManifest: "replaced manifest",
	keyLive: "live manifest", keyRequest: "request", keyRequestAt: "request's offset", keyFrozen: "frozen cut", keyJob: "open job",
	keyBase: "job's dead rows", keyDone: "completed job", keyGarbage: "object that left", keyPuffin: "Puffin file", keyCollect: "collection",
	keyGiven: "name of an added file", keyForeign: "path of another writer's file", keyNode: "node of the tree", keyParts: "references to a file", keySeparators: "separators of the tree",
}

// KeyKind names what a key of Dump holds, and the table that it is of; -1: of
// none.
func KeyKind(key []byte) (kind string, table int64) {
	if len(key) == 0 {
		return "nothing", -1
	}
	kind, ok := keyKinds[key[0]]
	if !ok {
		return fmt.Sprintf("unknown key space %q", key[0]), -1
	}
	switch key[0] {
	case keyHead, keyName, keyRequest, keyRequestAt:
		return kind, -1
	}
	if len(key) < 9 {
		return kind, -1
	}
	return kind, int64(binary.BigEndian.Uint64(key[1:]))
}

// Difference is the first key in which two states differ.
type Difference struct {
	Kind  string
	Table int64 // -1: of no table
	How   string
}

type pair struct{ k, v []byte }

var errStopDump = errors.New("the other side is not read on")

// dumped streams a dump.
func dumped(s *Store, stop <-chan struct{}) (<-chan pair, <-chan error) {
	out, end := make(chan pair, 256), make(chan error, 1)
	go func() {
		defer close(out)
		end <- s.Dump(func(k, v []byte) error {
			select {
			case out <- pair{bytes.Clone(k), bytes.Clone(v)}:
				return nil
			case <-stop:
				return errStopDump
			}
		})
	}()
	return out, end
}

// Compare is the first difference between two states of one log, nil when they
// are equal. It streams both.
func Compare(a, b *Store) (*Difference, error) {
	stop := make(chan struct{})
	as, aEnd := dumped(a, stop)
	bs, bEnd := dumped(b, stop)
	var d *Difference
	for d == nil {
		x, okX := <-as
		y, okY := <-bs
		if !okX && !okY {
			break
		}
		switch {
		case !okY || okX && bytes.Compare(x.k, y.k) < 0:
			d = differenceAt(x.k, "only the first state has it")
		case !okX || !bytes.Equal(x.k, y.k):
			d = differenceAt(y.k, "only the second state has it")
		case !bytes.Equal(x.v, y.v):
			d = differenceAt(x.k, "the values differ")
		}
	}
	close(stop)
	for range as { // let the dump end
	}
	for range bs {
	}
	for _, end := range []<-chan error{aEnd, bEnd} {
		if err := <-end; err != nil && !errors.Is(err, errStopDump) {
			return nil, err
		}
	}
	return d, nil
}

func differenceAt(k []byte, how string) *Difference {
	kind, table := KeyKind(k)
	return &Difference{Kind: kind, Table: table, How: how}
}
