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
		return fmt.Sprintf("%d forwarding maps, %s first, were not fetched", n, e.Refs[0].Where())
	}
	return "forwarding map " + e.Refs[0].Where() + " was not fetched"
}

// mapRoom bounds the memory of maps that are kept between records.
const mapRoom = 32 << 20

// mapBlocks is how many decoded blocks of a map are kept.
const mapBlocks = 4

// heldMaps are the maps at hand, the one used last in front.
type heldMaps struct {
	byHash map[heldName]*list.Element
	used   list.List // of *heldMap
	size   int64     // bytes in memory, about
}

// heldName is what a map is found by. One that stood in a record is not at hand for
// a reference to an object of the same bytes: everyone waits for that.
type heldName struct {
	hash   record.Hash
	inline bool
}

// heldMap is a map that was fetched, opened when first used.
type heldMap struct {
	name   heldName
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
	s.maps.keep(heldName{hash: hash}, b)
}

func (m *heldMaps) keep(name heldName, b []byte) {
	if m.byHash == nil {
		m.byHash = map[heldName]*list.Element{}
	}
	if m.byHash[name] == nil {
		h := &heldMap{name: name, bytes: b, size: int64(len(b)) + heldMapBytes}
		m.byHash[name] = m.used.PushFront(h)
		m.size += h.size
	}
}

// drop lets go of the maps that were not used for longest. Between records
// alone: one record may need many.
func (m *heldMaps) drop() {
	for m.size > mapRoom {
		h := m.used.Remove(m.used.Back()).(*heldMap)
		m.size -= h.size
		delete(m.byHash, h.name)
	}
}

// errMapLost: the record under way needs a map that is void for it (L10).
var errMapLost = errors.New("a forwarding map is lost")

// openMap is a forwarding map. bad says that the bytes are none: everyone who
// has them sees that.
func (s *Store) openMap(ref *record.Ref, whole bool) (m *forward.Map, bad bool, err error) {
	if ref.Inline() {
		return s.openInline(ref, whole)
	}
	if slices.Contains(s.lostMaps, ref.Hash) {
		// Also where a member has it still: all decide alike.
		return nil, false, errMapLost
	}
	at := s.maps.byHash[heldName{hash: ref.Hash}]
	if at == nil || int64(len(at.Value.(*heldMap).bytes)) != ref.Length {
		return nil, false, &NeedsMap{[]record.Ref{*ref}}
	}
	return s.openHeld(at, whole)
}

// openInline is a map that stands in its reference (F23). It is at hand always, and
// never lost. A completion needs its own once; those that blocks go through again
// and again are kept open.
func (s *Store) openInline(ref *record.Ref, whole bool) (m *forward.Map, bad bool, err error) {
	name := heldName{hash: ref.Hash, inline: true}
	if at := s.maps.byHash[name]; at != nil && !whole {
		return s.openHeld(at, false)
	}
	b, err := ref.OpenInline()
	if err != nil {
		return nil, true, nil
	}
	if !whole {
		s.maps.keep(name, b)
		return s.openHeld(s.maps.byHash[name], false)
	}
	h := &heldMap{bytes: b}
	h.open(true)
	return h.parsed, h.err != nil, nil
}

func (s *Store) openHeld(at *list.Element, whole bool) (m *forward.Map, bad bool, err error) {
	s.maps.used.MoveToFront(at)
	h := at.Value.(*heldMap)
	s.maps.size += h.open(whole)
	return h.parsed, h.err != nil, nil
}

// open parses the map, once, and reads all of it, once, if it is to be whole. It says
// how many bytes more the map takes in memory.
func (h *heldMap) open(whole bool) (more int64) {
	if h.parsed == nil && h.err == nil {
		if h.parsed, h.err = forward.Open(bytes.NewReader(h.bytes), int64(len(h.bytes))); h.err == nil {
			h.parsed.CacheBlocks = mapBlocks
			more = h.parsed.Memory()
			h.size += more
		}
	}
	if whole && !h.whole && h.err == nil {
		h.err, h.whole = h.parsed.Check(), true
	}
	return more
}

// mapRefInLimits judges where a map is said to lie. One that stands in its reference
// is judged when it is opened.
func mapRefInLimits(ref *record.Ref) bool {
	return ref.Inline() || ref.Length > 0 && ref.Length <= MaxBody && strings.Contains(ref.Path, "/maps/") && objstore.CheckKey(ref.Path) == nil
}

// mapFault is what becomes of a map that was whole when its job completed and
// is not now: the bytes have the right hash, so this cannot be.
func mapFault(ref *record.Ref) error {
	return fmt.Errorf("%w: forwarding map %s", ErrCorrupt, ref.Where())
}
