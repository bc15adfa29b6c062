package keyindex

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// DefaultDeltaLimit is a delta of about 64 MB (77 MB wide).
	DefaultDeltaLimit = 1_600_000
	// DefaultBlockEntries is the usual number of entries in a block.
	DefaultBlockEntries = 2048

	minBlockEntries = 16
	maxBlockEntries = 4096
	maxIdentity     = 4 << 10
)

// Options of an index. The zero value is a narrow index in a local folder.
type Options struct {
	// Wide keeps 128-bit keys. It cannot change in the life of an index.
	Wide bool
	// DeltaLimit is the number of changed entries in memory at which a merge
	// begins; default DefaultDeltaLimit. While one runs, as many again may
	// gather; then calls that fold wait for it. Smaller takes less memory and
	// merges more often, at a cost in proportion to the whole index.
	DeltaLimit int
	// BlockEntries is the number of entries in a block, 16 to 4096; default
	// DefaultBlockEntries. Smaller serves small scattered batches better, and
	// takes more memory and space; below 512 is for tests.
	BlockEntries int
	// Identity names deployment, table and shard. It is written into every base
	// and checked when one is opened (ErrForeign). At most 4 KiB.
	Identity []byte
	// Sync merges in the calling goroutine: slower, and the same in every run.
	Sync bool
	// FS is where the files lie; default the local disk.
	FS vfs.FS
}

func (o *Options) check() error {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.DeltaLimit == 0 {
		o.DeltaLimit = DefaultDeltaLimit
	}
	if o.BlockEntries == 0 {
		o.BlockEntries = DefaultBlockEntries
	}
	if o.DeltaLimit < 0 {
		return fmt.Errorf("key index: delta limit %d, must be above 0", o.DeltaLimit)
	}
	if o.BlockEntries < minBlockEntries || o.BlockEntries > maxBlockEntries {
		return fmt.Errorf("key index: %d entries a block, must be %d to %d", o.BlockEntries, minBlockEntries, maxBlockEntries)
	}
	if len(o.Identity) > maxIdentity {
		return fmt.Errorf("key index: identity of %d bytes, at most %d", len(o.Identity), maxIdentity)
	}
	return nil
}

// NoOffset is the Offset of an index into which nothing was folded yet.
const NoOffset int64 = -1

// Index is a key index. One goroutine uses it at a time.
type Index struct {
	dir string
	o   Options

	arena    arena
	base     *base // nil: none yet
	frozen   *frozen
	active   []*run // oldest first
	activeN  int
	overlays []overlay // oldest first
	overlayN int
	offset   int64
	horizon  int64
	durable  current

	merger  *merger          // the background's
	front   *merger          // Checkpoint's, made when needed
	merging chan mergeResult // nil: no merge is running
	cancel  atomic.Bool
	// failed is why the last merge of frozen failed; it is tried again.
	failed error

	todo    []int32
	scratch baseScratch
	merges  int64
	orphans int64
	closed  bool
}

// frozen is a delta that is being merged: unchanged until the new base is in
// place, and complete to its offset.
type frozen struct {
	runs    []*run // oldest first
	n       int
	offset  int64
	horizon int64
}

type overlay struct {
	id  uint64
	run *run
}

type mergeResult struct {
	base *base
	now  current
	err  error
}

// Open opens the index in dir and makes an empty one where there is none. It
// holds what the last swapped base held: Offset tells from where to fold. Files
// that an interrupted merge left are removed. Errors: ErrCorrupt, ErrForeign,
// ErrVersion.
func Open(dir string, o Options) (*Index, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := makeDir(o.FS, dir); err != nil {
		return nil, err
	}
	i := &Index{dir: dir, o: o, offset: NoOffset, horizon: math.MinInt64}
	i.arena.wide = o.Wide
	i.arena.keep = 2*o.DeltaLimit/chunkEntries + 64
	i.merger = &merger{}
	c, found, err := readCurrent(o.FS, dir)
	if err != nil {
		return nil, err
	}
	keep := ""
	if found {
		if i.base, err = i.openNamed(c); err != nil {
			return nil, err
		}
		i.offset, i.horizon = c.offset, c.horizon
		keep = c.baseName()
	}
	i.durable = c
	if !found {
		i.durable.offset, i.durable.horizon = NoOffset, math.MinInt64
	}
	if err := removeOthers(o.FS, dir, keep); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

func (i *Index) openNamed(c current) (*base, error) {
	path := i.o.FS.PathJoin(i.dir, c.baseName())
	b, err := openBase(i.o.FS, path, &i.o)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: CURRENT names a base that is not there: %w", ErrCorrupt, err)
	}
	if err != nil {
		return nil, err
	}
	if b.size != c.size || b.offset > c.offset || b.horizon > c.horizon {
		return nil, errors.Join(corruptf("%s: the base is not the one that CURRENT names", path), b.file.Close())
	}
	return b, nil
}

// Close stops a running merge and closes the files. What was folded since the
// last swapped base is gone: Flush first to keep it.
func (i *Index) Close() error {
	if i.closed {
		return nil
	}
	i.closed = true
	var errs []error
	if i.merging != nil {
		i.cancel.Store(true)
		r := <-i.merging
		i.merging = nil
		if r.err != nil && !errors.Is(r.err, errCancelled) {
			errs = append(errs, r.err)
		}
		if r.base != nil {
			errs = append(errs, r.base.file.Close())
		}
	}
	if i.base != nil {
		errs = append(errs, i.base.file.Close())
	}
	return errors.Join(errs...)
}

// Offset is the log offset that the confirmed contents are complete to, at
// first NoOffset.
func (i *Index) Offset() int64 { return i.offset }

// Durable is the offset that a crash leaves the contents complete to.
func (i *Index) Durable() int64 { return i.durable.offset }

// DurableFiles are the files that the durable contents name, ascending.
func (i *Index) DurableFiles() []uint64 {
	if i.base == nil {
		return nil
	}
	files := make([]uint64, 0, len(i.base.files))
	for n, id := range i.base.files {
		if id != 0 && i.base.rows[n] > 0 {
			files = append(files, id)
		}
	}
	slices.Sort(files)
	return files
}

// Lookup appends one Found to out for each of keys, which are sorted and
// distinct. The newest overlay that has a key wins, then the delta, then the
// base. An expired tombstone is absent, and hides what is older.
func (i *Index) Lookup(keys []Key, out []Found) ([]Found, error) {
	return i.lookup(keys, out, i.overlays)
}

// LookupConfirmed is Lookup without the overlays.
func (i *Index) LookupConfirmed(keys []Key, out []Found) ([]Found, error) {
	return i.lookup(keys, out, nil)
}

func (i *Index) lookup(keys []Key, out []Found, overlays []overlay) ([]Found, error) {
	if err := i.poll(); err != nil {
		return out, err
	}
	if len(keys) > math.MaxInt32 {
		return out, orderf("%d keys in one lookup, at most %d", len(keys), math.MaxInt32)
	}
	for x := range keys {
		if x > 0 && !keys[x-1].Less(keys[x]) {
			return out, orderf("looked-up key %d of %d does not sort after the one before it", x, len(keys))
		}
	}
	from := len(out)
	out = slices.Grow(out, len(keys))[:from+len(keys)]
	found := out[from:]
	if cap(i.todo) < len(keys) {
		i.todo = make([]int32, len(keys))
	}
	todo := i.todo[:len(keys)]
	for x := range todo {
		todo[x] = int32(x)
	}
	for _, o := range slices.Backward(overlays) {
		todo = o.run.lookup(keys, todo, found, i.horizon, true)
	}
	for _, r := range slices.Backward(i.active) {
		todo = r.lookup(keys, todo, found, i.horizon, false)
	}
	if i.frozen != nil {
		for _, r := range slices.Backward(i.frozen.runs) {
			todo = r.lookup(keys, todo, found, i.horizon, false)
		}
	}
	if i.base != nil {
		if err := i.base.lookup(keys, todo, found, i.horizon, &i.scratch); err != nil {
			return out[:from], fmt.Errorf("key index lookup: %w", err)
		}
		return out, nil
	}
	for _, x := range todo {
		found[x] = Found{Entry: Entry{Key: keys[x]}}
	}
	return out, nil
}

// Apply folds the entries of the record at offset: each replaces what the
// confirmed contents have for its key, whole. They are sorted and distinct;
// offset is not below Offset. Several calls may carry one offset, as parts of
// one record: a base is only ever cut between offsets. Pending overlays stay
// above.
//
// Where the delta is full, Apply waits for the running merge, and returns the
// error of one that failed (a full disk, ErrCorrupt): then nothing was folded,
// and the same call may be tried again.
func (i *Index) Apply(entries []Entry, offset int64) error {
	if err := checkEntries(entries, i.o.Wide); err != nil {
		return err
	}
	if err := i.advance(offset, len(entries)); err != nil {
		return err
	}
	if len(entries) > 0 {
		i.push(i.arena.build(entries))
	}
	return nil
}

// SetOffset notes that nothing changed up to offset.
func (i *Index) SetOffset(offset int64) error { return i.advance(offset, 0) }

// Push adds the overlay of append number id: entries of a record that is not
// confirmed. Ids ascend.
func (i *Index) Push(id uint64, entries []Entry) error {
	if err := i.poll(); err != nil {
		return err
	}
	if n := len(i.overlays); n > 0 && i.overlays[n-1].id >= id {
		return orderf("overlay %d after overlay %d", id, i.overlays[n-1].id)
	}
	if err := checkEntries(entries, i.o.Wide); err != nil {
		return err
	}
	i.overlays = append(i.overlays, overlay{id, i.arena.build(entries)})
	i.overlayN += len(entries)
	return nil
}

// Confirm folds overlay id, which is the oldest, at the offset of its record.
// It waits and fails like Apply.
func (i *Index) Confirm(id uint64, offset int64) error {
	return i.confirm(id, offset, nil)
}

// ConfirmAt is Confirm for a record whose offset and table time were not known
// at Push: tombstones pushed with PendingTime take its time,
// and its offset where they have none.
func (i *Index) ConfirmAt(id uint64, offset, timeMs int64) error {
	return i.confirm(id, offset, &timeMs)
}

func (i *Index) confirm(id uint64, offset int64, timeMs *int64) error {
	if len(i.overlays) == 0 || i.overlays[0].id != id {
		return orderf("overlay %d is confirmed, but is not the oldest of %d", id, len(i.overlays))
	}
	r := i.overlays[0].run
	if err := i.advance(offset, r.n); err != nil {
		return err
	}
	if timeMs != nil {
		r.stamp(offset, *timeMs)
	}
	i.overlays = slices.Delete(i.overlays, 0, 1)
	i.overlayN -= r.n
	if r.n > 0 {
		i.push(r)
	}
	return nil
}

// DropOverlays forgets all overlays: their epoch is lost (A3, A7).
func (i *Index) DropOverlays() {
	for _, o := range i.overlays {
		i.arena.release(o.run)
	}
	i.overlays, i.overlayN = i.overlays[:0], 0
}

// Expire makes tombstones with a time before the given one (ms) absent, now and
// for good: those that come later with such a time too. They leave the base at
// its next merge. The bound never goes back.
func (i *Index) Expire(before int64) { i.horizon = max(i.horizon, before) }

// push adds a run to the delta. Runs of like size are merged, so that there are
// few, and each entry is moved a few times only.
func (i *Index) push(r *run) {
	i.activeN += r.n
	i.active = append(i.active, r)
	for n := len(i.active); n >= 2 && i.active[n-2].n < 2*i.active[n-1].n; n-- {
		older, newer := i.active[n-2], i.active[n-1]
		i.activeN -= older.n + newer.n
		m := i.arena.merge(older, newer)
		i.activeN += m.n
		i.active[n-2] = m
		i.active[n-1] = nil
		i.active = i.active[:n-1]
	}
}

// advance moves Offset, and makes room for n entries when that ends a record.
func (i *Index) advance(offset int64, n int) error {
	if err := i.poll(); err != nil {
		return err
	}
	if offset < i.offset {
		return orderf("offset %d after offset %d", offset, i.offset)
	}
	if offset > i.offset {
		if i.activeN > 0 && i.activeN+n > i.o.DeltaLimit {
			if err := i.drain(); err != nil {
				return err
			}
			i.freeze()
			if err := i.start(); err != nil {
				return err
			}
		}
		i.offset = offset
	}
	return nil
}

// Len is the number of entries, tombstones among them, that the confirmed
// contents have at most: exact after Flush, else keys of the delta that the base
// has too, and expired tombstones, count twice.
func (i *Index) Len() int64 {
	n := int64(i.activeN)
	if i.frozen != nil {
		n += int64(i.frozen.n)
	}
	if i.base != nil {
		n += i.base.entries
	}
	return n
}

// Stats of an index, for metrics.
type Stats struct {
	BaseEntries    int64 // live rows and tombstones
	BaseTombstones int64
	BaseFiles      int64 // data files named
	BaseBlocks     int64
	BaseBytes      int64 // on disk
	DeltaEntries   int64 // the part that is being merged among them
	DeltaRuns      int64
	OverlayEntries int64
	Overlays       int64
	MemoryBytes    int64 // delta, overlays and what is kept for them
	Merges         int64 // new bases since Open
	Merging        bool
	// Orphans is the number of replaced files that could not be removed; the
	// next Open tries again.
	Orphans int64
	// MergeError is why the last merge failed, nil after one that did not.
	MergeError error
}

// Stats gives counts; it reads no file.
func (i *Index) Stats() Stats {
	s := Stats{
		DeltaEntries:   int64(i.activeN),
		DeltaRuns:      int64(len(i.active)),
		OverlayEntries: int64(i.overlayN),
		Overlays:       int64(len(i.overlays)),
		Merges:         i.merges,
		Merging:        i.merging != nil,
		Orphans:        i.orphans,
		MergeError:     i.failed,
	}
	if i.frozen != nil {
		s.DeltaEntries += int64(i.frozen.n)
		s.DeltaRuns += int64(len(i.frozen.runs))
	}
	perEntry := int64(40)
	if i.o.Wide {
		perEntry += 8
	}
	s.MemoryBytes = int64(i.arena.out+len(i.arena.free)) * chunkEntries * perEntry
	if b := i.base; b != nil {
		s.BaseEntries, s.BaseTombstones = b.entries, b.tombstones()
		s.BaseFiles, s.BaseBlocks, s.BaseBytes = int64(len(b.files)-1), int64(b.blocks()), b.size
	}
	return s
}

// SetDeltaLimit changes Options.DeltaLimit; n is above 0. It counts from the next
// change on.
func (i *Index) SetDeltaLimit(n int) {
	if n != i.o.DeltaLimit {
		i.o.DeltaLimit, i.arena.keep = n, 2*n/chunkEntries+64
	}
}
