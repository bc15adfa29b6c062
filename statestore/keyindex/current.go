package keyindex

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	currentName = "CURRENT"
	tempSuffix  = ".tmp"
	baseFormat  = "base-%012d.kix"
	// currentMax bounds what is read of a CURRENT file.
	currentMax = 1 << 10
)

// current is the content of the CURRENT file: which base is the index, and what
// it is complete to. That may be more than the base says, where nothing changed
// in between.
type current struct {
	seq     uint64
	size    int64
	offset  int64
	horizon int64
}

func (c current) baseName() string { return fmt.Sprintf(baseFormat, c.seq) }

const currentLayout = "varve key index 1\nbase %d\nsize %d\noffset %d\nhorizon %d\n"

func (c current) marshal() []byte {
	b := fmt.Appendf(nil, currentLayout, c.seq, c.size, c.offset, c.horizon)
	return fmt.Appendf(b, "crc32c %08x\n", crc32.Checksum(b, castagnoli))
}

func parseCurrent(b []byte) (current, error) {
	var c current
	if _, err := fmt.Sscanf(string(b), currentLayout, &c.seq, &c.size, &c.offset, &c.horizon); err != nil {
		return current{}, corruptf("CURRENT cannot be read")
	}
	// Sscanf is lenient about form; only the one spelling is accepted.
	if !bytes.Equal(b, c.marshal()) {
		return current{}, corruptf("CURRENT has a wrong checksum or form")
	}
	return c, nil
}

// readCurrent gives false where there is no CURRENT file.
func readCurrent(fs vfs.FS, dir string) (current, bool, error) {
	path := fs.PathJoin(dir, currentName)
	f, err := fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return current{}, false, nil
	}
	if err != nil {
		return current{}, false, fmt.Errorf("open key index: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, currentMax))
	if err := errors.Join(err, f.Close()); err != nil {
		return current{}, false, fmt.Errorf("read %s: %w", path, err)
	}
	c, err := parseCurrent(b)
	if err != nil {
		return current{}, false, fmt.Errorf("%s: %w", path, err)
	}
	return c, true, nil
}

func writeCurrent(fs vfs.FS, dir string, c current) error {
	temp := fs.PathJoin(dir, currentName+tempSuffix)
	f, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create key index CURRENT: %w", err)
	}
	_, err = f.Write(c.marshal())
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", temp, err)
	}
	if err := fs.Rename(temp, fs.PathJoin(dir, currentName)); err != nil {
		return fmt.Errorf("swap key index CURRENT: %w", err)
	}
	return syncDir(fs, dir)
}

// makeDir makes dir and its entry in its parent durable: a synced base in a
// directory that a crash forgets is lost too.
func makeDir(fs vfs.FS, dir string) error {
	if err := fs.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("make key index directory: %w", err)
	}
	return syncDir(fs, fs.PathDir(dir))
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open key index directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// writeBase writes a base under its name, complete and synced, but not yet
// named by CURRENT. fill writes the bytes. What a failure leaves is removed.
func writeBase(fs vfs.FS, dir string, seq uint64, fill func(io.Writer) error) (size int64, err error) {
	name := fs.PathJoin(dir, current{seq: seq}.baseName())
	temp := name + tempSuffix
	f, err := fs.Create(temp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return 0, fmt.Errorf("create key index base: %w", err)
	}
	defer func() {
		if err != nil {
			// A full disk should not stay full of halves.
			if rm := fs.Remove(temp); rm != nil && !errors.Is(rm, os.ErrNotExist) {
				err = errors.Join(err, rm)
			}
		}
	}()
	w := &syncingWriter{f: f}
	err = fill(w)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("write %s: %w", temp, err)
	}
	if err := fs.Rename(temp, name); err != nil {
		return 0, fmt.Errorf("name key index base: %w", err)
	}
	return w.n, syncDir(fs, dir)
}

// syncingWriter hands the disk its work as it comes, so that the sync at the
// end does not hold up everybody else's.
type syncingWriter struct {
	f    vfs.File
	n    int64
	done int64
}

const syncSpan = 8 << 20

func (w *syncingWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	w.n += int64(n)
	if err == nil && w.n-w.done >= syncSpan {
		w.done = w.n
		_, err = w.f.SyncTo(w.n)
	}
	return n, err
}

// removeOthers removes the files of this package that keep does not name.
func removeOthers(fs vfs.FS, dir, keep string) error {
	names, err := fs.List(dir)
	if err != nil {
		return fmt.Errorf("list key index directory: %w", err)
	}
	slices.Sort(names) // the same order in every run
	for _, name := range names {
		if name == keep || name == currentName && keep != "" || !ours(name) {
			continue
		}
		if err := fs.Remove(fs.PathJoin(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove old key index file: %w", err)
		}
	}
	return nil
}

func ours(name string) bool {
	name = strings.TrimSuffix(name, tempSuffix)
	if name == currentName {
		return true
	}
	seq, ok := baseSeq(name)
	return ok && name == current{seq: seq}.baseName()
}

func baseSeq(name string) (uint64, bool) {
	var seq uint64
	n, err := fmt.Sscanf(name, baseFormat, &seq)
	return seq, err == nil && n == 1
}

// Destroy removes the index in dir, damaged or not, and nothing else that lies
// there. The directory itself stays.
func Destroy(dir string, fs vfs.FS) error {
	if fs == nil {
		fs = vfs.Default
	}
	// CURRENT goes first and for sure: a CURRENT without its base is damage.
	err := fs.Remove(fs.PathJoin(dir, currentName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove key index: %w", err)
	}
	if _, err := fs.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := syncDir(fs, dir); err != nil {
		return err
	}
	return removeOthers(fs, dir, "")
}

const dirMode os.FileMode = 0o755
