package statestore

import (
	"bytes"
	"container/list"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
)

// NeedsMap is Apply's error for a record that meets rows of a rewritten file
// (P2, F4) whose forwarding maps are not at hand. Nothing has changed: fetch what
// Refs names, hold it against its hash, give it to ProvideMap, and apply the
// record again (L3). There is at least one; more may be asked for then.
type NeedsMap struct{ Refs []record.Ref }

func (e *NeedsMap) Error() string {
	if n := len(e.Refs); n > 1 {
		return fmt.Sprintf("%d forwarding maps, %s first, were not fetched", n, e.Refs[0].Path)
	}
	return "forwarding map " + e.Refs[0].Path + " was not fetched"
}

// mapRoom bounds the memory of maps that are kept between records.
const mapRoom = 32 << 20

// mapBlocks is how many decoded blocks of a map are kept.
const mapBlocks = 4

// heldMaps are the maps at hand, the one used last in front.
type heldMaps struct {
	byHash map[record.Hash]*list.Element
	used   list.List // of *heldMap
	size   int64     // bytes in memory, about
}

// heldMap is a map that was fetched, opened when first used.
type heldMap struct {
	hash   record.Hash
	bytes  []byte
	parsed *forward.Map
	err    error
	whole  bool // every block was read once
	size   int64
}

// heldMapBytes is about what a map takes beside its bytes before it is opened.
const heldMapBytes = 256

// ProvideMap gives a map's bytes, whose hash the caller has checked. They must
// not change any more.
func (s *Store) ProvideMap(hash record.Hash, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.maps
	if m.byHash == nil {
		m.byHash = map[record.Hash]*list.Element{}
	}
	if m.byHash[hash] == nil {
		h := &heldMap{hash: hash, bytes: b, size: int64(len(b)) + heldMapBytes}
		m.byHash[hash] = m.used.PushFront(h)
		m.size += h.size
	}
}

// drop lets go of the maps that were not used for longest. Between records
// alone: one record may need many.
func (m *heldMaps) drop() {
	for m.size > mapRoom {
		h := m.used.Remove(m.used.Back()).(*heldMap)
		m.size -= h.size
		delete(m.byHash, h.hash)
	}
}

// errMapLost: the record under way needs a map that is void for it (L10).
var errMapLost = errors.New("a forwarding map is lost")

// openMap is a forwarding map. bad says that the bytes are none: everyone who
// has them sees that.
func (s *Store) openMap(ref *record.Ref, whole bool) (m *forward.Map, bad bool, err error) {
	if slices.Contains(s.lostMaps, ref.Hash) {
		// Also where a member has it still: all decide alike.
		return nil, false, errMapLost
	}
	at := s.maps.byHash[ref.Hash]
	if at == nil || int64(len(at.Value.(*heldMap).bytes)) != ref.Length {
		return nil, false, &NeedsMap{[]record.Ref{*ref}}
	}
	s.maps.used.MoveToFront(at)
	h := at.Value.(*heldMap)
	if h.parsed == nil && h.err == nil {
		if h.parsed, h.err = forward.Open(bytes.NewReader(h.bytes), int64(len(h.bytes))); h.err == nil {
			h.parsed.CacheBlocks = mapBlocks
			more := h.parsed.Memory()
			h.size += more
			s.maps.size += more
		}
	}
	if whole && !h.whole && h.err == nil {
		h.err, h.whole = h.parsed.Check(), true
	}
	return h.parsed, h.err != nil, nil
}

func mapRefInLimits(ref *record.Ref) bool {
	return ref.Length > 0 && ref.Length <= MaxBody && strings.Contains(ref.Path, "/maps/") && objstore.CheckKey(ref.Path) == nil
}

// mapFault is what becomes of a map that was whole when its job completed and
// is not now: the bytes have the right hash, so this cannot be.
func mapFault(ref *record.Ref) error {
	return fmt.Errorf("%w: forwarding map %s", ErrCorrupt, ref.Path)
}
