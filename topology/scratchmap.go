package topology

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/cockroachdb/pebble/v2"
)

// Memory of a scratchMap, whatever is in it.
const (
	scratchCache    = 8 << 20
	scratchMemTable = 4 << 20
)

// scratchMap holds any number of names of a table in bounded memory: it lies in
// a folder of its own, nothing of it outlives the process that made it.
type scratchMap struct {
	dir string
	log *slog.Logger
	db  *pebble.DB // nil until the first put
	key []byte
}

// Spaces of names.
const (
	scratchFile   = 'f' // data file of the current snapshot, by path
	scratchVector = 'v' // its vector, by the data file's path
	scratchLooked = 'l' // objects that were looked at, by path
	scratchUnread = 'u' // data files that could not be read, by id
)

func newScratchMap(dir string, log *slog.Logger) *scratchMap { return &scratchMap{dir: dir, log: log} }

func (m *scratchMap) open() error {
	if m.db != nil {
		return nil
	}
	cache := pebble.NewCache(scratchCache)
	defer cache.Unref()
	db, err := pebble.Open(m.dir, &pebble.Options{
		Cache: cache, MemTableSize: scratchMemTable, DisableWAL: true, FormatMajorVersion: pebble.FormatNewest, Logger: scratchLog{m.log},
		EventListener: &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}}, // whoever reads gets the error
	})
	if err != nil {
		return fmt.Errorf("open the scratch map in %s: %w", m.dir, err)
	}
	m.db = db
	return nil
}

// scratchLog leaves out what Pebble says of its work.
type scratchLog struct{ log *slog.Logger }

func (scratchLog) Infof(string, ...any)                {}
func (l scratchLog) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }

// Fatalf does not return: the map and its files have parted, as when the disk is full.
func (l scratchLog) Fatalf(format string, args ...any) {
	l.log.Error("the scratch folder cannot be written to: make space, or name another one with --scratch", "error", fmt.Sprintf(format, args...))
	os.Exit(1)
}

func (m *scratchMap) close() error {
	if m.db == nil {
		return nil
	}
	db := m.db
	m.db = nil
	return db.Close()
}

func (m *scratchMap) at(space byte, table int64, name string) []byte {
	m.key = binary.BigEndian.AppendUint64(append(m.key[:0], space), uint64(table))
	m.key = append(m.key, name...)
	return m.key
}

// put says whether the name is new; the value of one that is there stays.
func (m *scratchMap) put(space byte, table int64, name string, value []byte) (fresh bool, err error) {
	if err := m.open(); err != nil {
		return false, err
	}
	k := m.at(space, table, name)
	switch _, closer, err := m.db.Get(k); {
	case err == nil:
		return false, closer.Close()
	case !errors.Is(err, pebble.ErrNotFound):
		return false, fmt.Errorf("read the scratch map: %w", err)
	}
	if err := m.db.Set(k, value, pebble.NoSync); err != nil {
		return false, fmt.Errorf("write the scratch map: %w", err)
	}
	return true, nil
}

// get is a name's value, nil when it is not there.
func (m *scratchMap) get(space byte, table int64, name string) (value []byte, err error) {
	if m.db == nil {
		return nil, nil
	}
	v, closer, err := m.db.Get(m.at(space, table, name))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the scratch map: %w", err)
	}
	if value = bytes.Clone(v); value == nil {
		value = []byte{}
	}
	return value, closer.Close()
}

// take is get, and the name is not there any more.
func (m *scratchMap) take(space byte, table int64, name string) ([]byte, error) {
	v, err := m.get(space, table, name)
	if v == nil || err != nil {
		return nil, err
	}
	if err := m.db.Delete(m.at(space, table, name), pebble.NoSync); err != nil {
		return nil, fmt.Errorf("write the scratch map: %w", err)
	}
	return v, nil
}

// each calls fn with a table's names, in order. io.EOF from fn ends it.
func (m *scratchMap) each(space byte, table int64, fn func(name string, value []byte) error) (err error) {
	if m.db == nil {
		return nil
	}
	from := bytes.Clone(m.at(space, table, ""))
	it, err := m.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: m.at(space, table+1, "")})
	if err != nil {
		return fmt.Errorf("read the scratch map: %w", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		if err := fn(string(it.Key()[len(from):]), it.Value()); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
	return it.Error()
}

// drop forgets a table's names.
func (m *scratchMap) drop(table int64, spaces ...byte) error {
	if m.db == nil {
		return nil
	}
	for _, s := range spaces {
		from := bytes.Clone(m.at(s, table, ""))
		if err := m.db.DeleteRange(from, m.at(s, table+1, ""), pebble.NoSync); err != nil {
			return fmt.Errorf("write the scratch map: %w", err)
		}
	}
	return nil
}
