package keyindex

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Checkpoint is what Checkpoint wrote.
type Checkpoint struct {
	Offset int64 // Offset of the index
	Size   int64 // bytes
	SHA256 [sha256.Size]byte
}

// Checkpoint writes the confirmed contents to w as one base file, without
// overlays and expired tombstones. Equal contents, offset and bound of Expire,
// under equal Options, give equal bytes, however they came about. A running
// merge goes on. The caller must have folded the record at Offset whole.
func (i *Index) Checkpoint(w io.Writer) (Checkpoint, error) {
	if err := i.poll(); err != nil {
		return Checkpoint{}, err
	}
	if i.front == nil {
		i.front = &merger{}
	}
	hash := sha256.New()
	count := &countingWriter{w: io.MultiWriter(hash, w)}
	err := i.front.write(count, mergeInput{
		base: i.base, delta: i.confirmed(), offset: i.offset, horizon: i.horizon,
		identity: i.o.Identity, wide: i.o.Wide, entries: i.o.BlockEntries, fresh: true,
	})
	if err != nil {
		return Checkpoint{}, fmt.Errorf("write key index checkpoint: %w", err)
	}
	return Checkpoint{Offset: i.offset, Size: count.n, SHA256: [sha256.Size]byte(hash.Sum(nil))}, nil
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// confirmed gives the runs of the delta, newest first.
func (i *Index) confirmed() []*run {
	var runs []*run
	if i.frozen != nil {
		runs = append(runs, i.frozen.runs...)
	}
	runs = append(runs, i.active...)
	slices.Reverse(runs)
	return runs
}

// Restore makes the checkpoint in r the index in dir, in place of what lies
// there, which may be damaged and must not be open. All of it is checked first:
// on any error (ErrCorrupt, ErrForeign, ErrVersion, one of r) the old index
// stays. A reader that knows the right SHA-256 returns an error at its end when
// the bytes were others.
func Restore(dir string, r io.Reader, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	fs := o.FS
	if err := makeDir(fs, dir); err != nil {
		return err
	}
	// A number that no file has, not even one that a damaged CURRENT may name.
	seq := uint64(0)
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("list key index directory: %w", err)
	}
	for _, name := range names {
		if n, ok := baseSeq(name); ok && n < math.MaxUint64 {
			seq = max(seq, n)
		}
	}
	if c, found, err := readCurrent(fs, dir); err == nil && found {
		seq = max(seq, c.seq)
	} else if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	now := current{seq: seq + 1}
	now.size, err = writeBase(fs, dir, now.seq, func(w io.Writer) error {
		_, err := io.CopyBuffer(w, onlyReader{r}, make([]byte, writeSpan))
		return err
	})
	if err != nil {
		return fmt.Errorf("restore key index: %w", err)
	}
	path := fs.PathJoin(dir, now.baseName())
	if err := checkRestored(fs, path, &o, &now); err != nil {
		return errors.Join(fmt.Errorf("restore key index: %w", err), fs.Remove(path))
	}
	if err := writeCurrent(fs, dir, now); err != nil {
		return fmt.Errorf("restore key index: %w", err)
	}
	return removeOthers(fs, dir, now.baseName())
}

// onlyReader keeps CopyBuffer from going around its buffer.
type onlyReader struct{ io.Reader }

func checkRestored(fs vfs.FS, path string, o *Options, now *current) error {
	b, err := openBase(fs, path, o)
	if err != nil {
		return err
	}
	now.offset, now.horizon = b.offset, b.horizon
	return errors.Join(b.verify(), b.file.Close())
}

// Verify reads the whole base and checks each block, the order of the keys and
// the counts. Lookups check only the blocks that they read.
func (i *Index) Verify() error {
	if err := i.poll(); err != nil {
		return err
	}
	if i.base == nil {
		return nil
	}
	return i.base.verify()
}

func (b *base) verify() error {
	s := scan{b: b}
	c := &columns{wide: b.wide}
	rows := make([]uint64, len(b.rows))
	for i := 0; i < b.blocks(); i++ {
		if err := s.load(i); err != nil {
			return err
		}
		if err := s.block.decode(c, len(b.files)); err != nil {
			return fmt.Errorf("%s: block %d at %d: %w", b.path, i, b.off[i], err)
		}
		if i+1 < b.blocks() && !c.key(c.n-1).Less(b.first(i+1)) {
			return corruptf("%s: block %d runs into the one behind it", b.path, i)
		}
		for _, ord := range c.ord[:c.n] {
			rows[ord]++
		}
		oldest := int64(math.MaxInt64)
		for _, t := range c.ttime {
			oldest = min(oldest, t)
		}
		if oldest != b.tomb[i] {
			return corruptf("%s: block %d has another oldest tombstone than its place in the trailer says", b.path, i)
		}
	}
	if !slices.Equal(rows, b.rows) {
		return corruptf("%s: the file table counts other entries than the blocks have", b.path)
	}
	return nil
}

// Iterate calls fn for each entry of the confirmed contents in key order, until
// it returns an error. fn must not call the index.
func (i *Index) Iterate(fn func(*Entry) error) error {
	if err := i.poll(); err != nil {
		return err
	}
	var e Entry
	cur := newCursor(i.confirmed())
	delta := func() error {
		expired := cur.val.expired(i.horizon)
		if !expired {
			e.Key = cur.key
			cur.val.fill(&e)
		}
		cur.next()
		if expired {
			return nil
		}
		return fn(&e)
	}
	if b := i.base; b != nil {
		s := scan{b: b}
		c := &columns{wide: b.wide}
		for at := 0; at < b.blocks(); at++ {
			if err := s.load(at); err != nil {
				return err
			}
			if err := s.block.decode(c, len(b.files)); err != nil {
				return fmt.Errorf("%s: block %d at %d: %w", b.path, at, b.off[at], err)
			}
			for x := 0; x < c.n; x++ {
				k := c.key(x)
				for cur.ok && cur.key.Less(k) {
					if err := delta(); err != nil {
						return err
					}
				}
				if cur.ok && cur.key == k {
					if err := delta(); err != nil {
						return err
					}
					continue
				}
				c.entry(x, b.files, &e)
				if e.Tombstone() && e.Time < i.horizon {
					continue
				}
				if err := fn(&e); err != nil {
					return err
				}
			}
		}
	}
	for cur.ok {
		if err := delta(); err != nil {
			return err
		}
	}
	return nil
}
