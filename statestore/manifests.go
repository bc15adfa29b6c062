package statestore

import (
	"fmt"
	"slices"

	"github.com/varve-io/varve/schemas/record"
)

// manifestEntry is what the state knows of one manifest number.
type manifestEntry struct {
	path   string // of the manifest, while nothing replaced it
	target int64  // else the number that its live entries moved to: a lower one
	uses   int64  // files, vectors and moved numbers that name this number
	since  int64  // build offset of the snapshot that first listed path

	gone  bool // nothing lists it any more, and no manifest took its place
	space byte // where the database has it, 0: nowhere
	dirty bool
}

// manifestNumbers is the numbers that one commit changes. A number that was
// replaced is kept only as long as something names it: so a table whose files
// come and go keeps few of them, however often it commits.
type manifestNumbers struct {
	s       *Store
	table   int64
	entries map[int64]*manifestEntry
}

func (s *Store) manifestNumbers(table int64) *manifestNumbers {
	return &manifestNumbers{s: s, table: table, entries: map[int64]*manifestEntry{}}
}

// entry is nil when the state has no such number.
func (m *manifestNumbers) entry(n int64) (*manifestEntry, error) {
	if e, ok := m.entries[n]; ok {
		return e, nil
	}
	for _, space := range [...]byte{keyLive, keyManifest} {
		b, err := m.s.get(key16(space, uint64(m.table), uint64(n)))
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		e, err := decodeManifest(space, n, b)
		if err != nil {
			return nil, err
		}
		m.entries[n] = e
		return e, nil
	}
	return nil, nil
}

func (e *manifestEntry) encode() []byte {
	var w enc
	w.i(e.uses)
	if e.target == 0 {
		w.str(e.path)
		w.i(e.since)
	} else {
		w.i(e.target)
	}
	return w.b
}

func decodeManifest(space byte, n int64, b []byte) (*manifestEntry, error) {
	d := dec{b: b}
	e := &manifestEntry{space: space, uses: d.i()}
	if space == keyLive {
		e.path, e.since = d.str(), d.i()
	} else {
		e.target = d.i()
	}
	if err := d.done("manifest"); err != nil {
		return nil, err
	}
	if e.uses < 0 || space == keyLive && e.path == "" || space == keyManifest && (e.target < 1 || e.target >= n) {
		return nil, fmt.Errorf("%w: manifest %d", ErrCorrupt, n)
	}
	return e, nil
}

// live says whether a number is that of a manifest that nothing replaced.
func (m *manifestNumbers) live(n int64) (bool, error) {
	e, err := m.entry(n)
	return e != nil && e.target == 0, err
}

// place gives a new manifest its number. One that takes the place of others
// has the lowest of their numbers and the others point to it: so a number that
// was replaced a thousand times is still one or few steps from its manifest.
func (m *manifestNumbers) place(t *table, info *record.ManifestInfo, build int64) (int64, error) {
	if len(info.Replaces) == 0 {
		n := t.nextMan
		t.nextMan++
		m.entries[n] = &manifestEntry{path: info.Path, since: build, dirty: true}
		return n, nil
	}
	n := slices.Min(info.Replaces)
	for _, old := range info.Replaces {
		e, err := m.entry(old)
		if err != nil {
			return 0, err
		}
		if e == nil || e.target != 0 {
			return 0, fmt.Errorf("%w: manifest %d is not live", ErrCorrupt, old)
		}
		e.dirty = true
		if err := m.s.metadataLeft(t, e.path, e.since, build); err != nil {
			return 0, err
		}
		if old == n {
			e.path, e.since = info.Path, build
			continue
		}
		e.path, e.target = "", n
		if err := m.use(n, 1); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// use counts something that names a number, or no longer does.
func (m *manifestNumbers) use(n, delta int64) error {
	e, err := m.entry(n)
	if err != nil {
		return err
	}
	if e == nil {
		return fmt.Errorf("%w: there is no manifest %d", ErrCorrupt, n)
	}
	e.uses += delta
	e.dirty = true
	return nil
}

// settle takes out, in memory alone, the moved numbers that nothing names any more.
func (m *manifestNumbers) settle() error {
	var open []int64 // ascending
	for n := range m.entries {
		open = append(open, n)
	}
	slices.Sort(open)
	for len(open) > 0 {
		n := open[len(open)-1]
		open = open[:len(open)-1]
		e := m.entries[n]
		if e.uses < 0 {
			return fmt.Errorf("manifest %d is named %d times", n, e.uses)
		}
		if !e.dirty || e.target == 0 || e.uses > 0 {
			continue
		}
		if err := m.use(e.target, -1); err != nil {
			return err
		}
		if at, found := slices.BinarySearch(open, e.target); !found {
			open = slices.Insert(open, at, e.target)
		}
	}
	return nil
}

// write brings the changes to the database. What a number points to is lower
// than it: from the highest down each is looked at once.
func (m *manifestNumbers) write() error {
	var open []int64 // ascending
	for n := range m.entries {
		open = append(open, n)
	}
	slices.Sort(open)
	for len(open) > 0 {
		n := open[len(open)-1]
		open = open[:len(open)-1]
		e := m.entries[n]
		if !e.dirty {
			continue
		}
		if e.uses < 0 {
			return fmt.Errorf("%w: manifest %d is named %d times", ErrCorrupt, n, e.uses)
		}
		space := byte(keyLive)
		if e.gone {
			if e.uses != 0 || e.target != 0 {
				return fmt.Errorf("%w: manifest %d, which left, is named %d times", ErrCorrupt, n, e.uses)
			}
			space = 0
		} else if e.target != 0 {
			space = keyManifest
			if e.uses == 0 {
				space = 0
				if err := m.use(e.target, -1); err != nil {
					return err
				}
				if at, found := slices.BinarySearch(open, e.target); !found {
					open = slices.Insert(open, at, e.target)
				}
			}
		}
		if e.space != 0 && e.space != space {
			if err := m.s.del(key16(e.space, uint64(m.table), uint64(n))); err != nil {
				return err
			}
		}
		if space == 0 {
			continue
		}
		if err := m.s.set(key16(space, uint64(m.table), uint64(n)), e.encode()); err != nil {
			return err
		}
	}
	return nil
}
