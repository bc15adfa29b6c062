package statestore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
)

// NeedsMap is Apply's error for a record that meets rows of a rewritten file
// (P2, F4) whose forwarding map is not at hand. Nothing has changed: fetch what
// Ref names, hold it against its hash, give it to ProvideMap, and apply the
// record again (L3).
type NeedsMap struct{ Ref record.Ref }

func (e *NeedsMap) Error() string { return "forwarding map " + e.Ref.Path + " was not fetched" }

// mapRoom bounds the bytes of maps that are kept between records.
const mapRoom = 64 << 20

// mapBlocks is how many decoded blocks of a map are kept.
const mapBlocks = 4

// heldMap is a map that was fetched, opened when first used.
type heldMap struct {
	bytes  []byte
	parsed *forward.Map
	err    error
	whole  bool // every block was read once
	used   int64
}

// ProvideMap gives a map's bytes, whose hash the caller has checked. They must
// not change any more.
func (s *Store) ProvideMap(hash record.Hash, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.maps == nil {
		s.maps = map[record.Hash]*heldMap{}
	}
	if s.maps[hash] == nil {
		s.mapUse++
		s.maps[hash] = &heldMap{bytes: b, used: s.mapUse}
		s.mapBytes += int64(len(b))
	}
}

// dropMaps lets go of the maps that were not used for longest. Between records
// alone: one record may need many.
func (s *Store) dropMaps() {
	for s.mapBytes > mapRoom {
		var oldest record.Hash
		least := s.mapUse + 1
		for h, m := range s.maps {
			if m.used < least {
				oldest, least = h, m.used
			}
		}
		s.mapBytes -= int64(len(s.maps[oldest].bytes))
		delete(s.maps, oldest)
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
	h := s.maps[ref.Hash]
	if h == nil || int64(len(h.bytes)) != ref.Length {
		return nil, false, &NeedsMap{*ref}
	}
	s.mapUse++
	h.used = s.mapUse
	if h.parsed == nil && h.err == nil {
		if h.parsed, h.err = forward.Open(bytes.NewReader(h.bytes), int64(len(h.bytes))); h.err == nil {
			h.parsed.CacheBlocks = mapBlocks
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
