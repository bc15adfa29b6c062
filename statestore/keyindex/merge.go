package keyindex

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Merge begins to merge the delta into a new base, if there is anything to
// merge and no merge is running, and does not wait. The caller must have folded
// the record at Offset whole.
func (i *Index) Merge() error {
	if err := i.poll(); err != nil {
		return err
	}
	if i.merging != nil {
		return nil
	}
	if i.frozen == nil {
		if !i.dirty() {
			return nil
		}
		i.freeze()
	}
	return i.start()
}

// Flush makes the confirmed contents durable, and waits for it. After it, a
// crash comes back to Offset. The caller must have folded the record at Offset
// whole.
func (i *Index) Flush() error {
	if err := i.poll(); err != nil {
		return err
	}
	if err := i.drain(); err != nil {
		return err
	}
	if i.dirty() {
		i.freeze()
		if err := i.start(); err != nil {
			return err
		}
		return i.drain()
	}
	now := i.durable
	now.offset, now.horizon = i.offset, i.horizon
	if now == i.durable {
		return nil
	}
	if err := writeCurrent(i.o.FS, i.dir, now); err != nil {
		return err
	}
	i.durable = now
	return nil
}

// dirty tells whether a merge would give another base.
func (i *Index) dirty() bool {
	if i.base == nil {
		// CURRENT needs a base to name, if only for what it is complete to.
		return i.activeN > 0 || i.offset != i.durable.offset || i.horizon != i.durable.horizon
	}
	return i.activeN > 0 || i.base.oldestTomb < i.horizon
}

func (i *Index) freeze() {
	i.frozen = &frozen{runs: i.active, n: i.activeN, offset: i.offset, horizon: i.horizon}
	i.active, i.activeN = nil, 0
}

// start merges the frozen delta, in the background unless Sync.
func (i *Index) start() error {
	f := i.frozen
	runs := slices.Clone(f.runs)
	slices.Reverse(runs)
	in := mergeInput{
		base: i.base, delta: runs, offset: f.offset, horizon: f.horizon,
		identity: i.o.Identity, wide: i.o.Wide, entries: i.o.BlockEntries,
		cancel: &i.cancel,
	}
	in.fresh = in.base != nil && staleFiles(in.base)
	// A failed attempt is repeated under its number: the same input gives the
	// same bytes, so it does not matter whether CURRENT came to name it.
	seq := i.durable.seq + 1
	if i.o.Sync {
		return i.install(i.mergeTo(in, seq))
	}
	done := make(chan mergeResult, 1)
	i.merging = done
	go func() { done <- i.mergeTo(in, seq) }()
	return nil
}

// mergeTo runs beside the caller's goroutine: it uses of i only what never
// changes (dir, options) and the background's merger.
func (i *Index) mergeTo(in mergeInput, seq uint64) mergeResult {
	fs := i.o.FS
	size, err := writeBase(fs, i.dir, seq, func(w io.Writer) error { return i.merger.write(w, in) })
	if err != nil {
		return mergeResult{err: err}
	}
	now := current{seq: seq, size: size, offset: in.offset, horizon: in.horizon}
	b, err := openBase(fs, fs.PathJoin(i.dir, now.baseName()), &i.o)
	if err != nil {
		return mergeResult{err: err}
	}
	if err := writeCurrent(fs, i.dir, now); err != nil {
		return mergeResult{err: errors.Join(err, b.file.Close())}
	}
	return mergeResult{base: b, now: now}
}

// poll takes over a merge that has ended. Its failure is kept for those who
// need the room.
func (i *Index) poll() error {
	if i.closed {
		return ErrClosed
	}
	if i.merging == nil {
		return nil
	}
	select {
	case r := <-i.merging:
		i.merging = nil
		if err := i.install(r); err != nil {
			return nil //nolint:nilerr // kept in i.failed, returned by drain
		}
	default:
	}
	return nil
}

// drain leaves no frozen delta: it waits for the running merge, and tries a
// failed one again.
func (i *Index) drain() error {
	for i.frozen != nil {
		if i.merging == nil {
			if err := i.start(); err != nil {
				return err
			}
			continue
		}
		r := <-i.merging
		i.merging = nil
		if err := i.install(r); err != nil {
			return err
		}
	}
	return nil
}

func (i *Index) install(r mergeResult) error {
	i.failed = r.err
	if r.err != nil {
		i.failed = fmt.Errorf("key index merge: %w", r.err)
		return i.failed
	}
	old := i.base
	i.base, i.durable = r.base, r.now
	for _, run := range i.frozen.runs {
		i.arena.release(run)
	}
	i.frozen = nil
	i.merges++
	if old == nil {
		return nil
	}
	// The new base is in force: what goes wrong with the old one costs space
	// until the next Open.
	if err := old.file.Close(); err != nil {
		i.orphans++
		return nil
	}
	if err := i.o.FS.Remove(old.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		i.orphans++
	}
	return nil
}
