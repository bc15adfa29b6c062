package objstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// local is the store of a folder. See the package comment for its protocol.
type local struct {
	Locations
	fs   FileSystem
	root string // absolute and clean

	mu sync.Mutex
	// settled holds the folders whose own entry in their parent this process
	// knows to be durable. That a folder exists is not enough: whoever made it
	// may not have fsynced its parent.
	settled map[string]bool
}

func openLocal(ctx context.Context, path string, o options) (Store, error) {
	if path == "" {
		return nil, errors.New("objstore: the path of the store is empty; name a folder")
	}
	root, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("objstore: open folder %s: %w", path, err)
	}
	l := &local{fs: o.fs, root: root, settled: map[string]bool{}}
	if l.fs == nil {
		l.fs = osFS{}
	}
	slashed := strings.TrimRight(filepath.ToSlash(root), "/")
	base := "file://" + slashed
	if o.location != "" {
		base = o.location
	}
	// Hadoop writes file:/abs; some tools write the bare path.
	l.Locations, err = NewLocations(base, "file://"+slashed, "file:"+slashed, slashed)
	if err != nil {
		return nil, err
	}
	info, err := l.fs.Stat(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l, nil
	case err != nil:
		return nil, fmt.Errorf("objstore: open folder %s: %w", root, err)
	case !info.IsDir():
		return nil, fmt.Errorf("objstore: open folder %s: it is a file; name a folder", root)
	}
	if !o.keepTemp {
		if err := l.removeAbandoned(ctx); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *local) path(key string) string { return filepath.Join(l.root, filepath.FromSlash(key)) }

func (l *local) Create(ctx context.Context, key string, data []byte) error {
	return l.put(ctx, key, data, func(w *localWriter) error { return w.commit(false) })
}

func (l *local) CreateExclusive(ctx context.Context, key string, data []byte) error {
	return l.put(ctx, key, data, func(w *localWriter) error { return w.commit(true) })
}

func (l *local) Replace(ctx context.Context, key string, data []byte) error {
	return l.put(ctx, key, data, (*localWriter).replace)
}

func (l *local) put(ctx context.Context, key string, data []byte, finish func(*localWriter) error) error {
	w, err := l.newWriter(ctx, key)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return errors.Join(err, w.Abort())
	}
	return finish(w)
}

func (l *local) Writer(ctx context.Context, key string) (Writer, error) {
	w, err := l.newWriter(ctx, key)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (l *local) newWriter(ctx context.Context, key string) (*localWriter, error) {
	if err := CheckKey(key); err != nil {
		return nil, fmt.Errorf("objstore: create: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("objstore: create %s: %w", key, err)
	}
	w := &localWriter{l: l, ctx: ctx, key: key, path: l.path(key)}
	dir := filepath.Dir(w.path)
	const attempts = 4
	var err error
	for range attempts {
		if err = l.settle(dir); err != nil {
			return nil, w.wrap(err)
		}
		w.temp = filepath.Join(dir, tempPrefix+rand.Text())
		w.file, err = l.fs.CreateTemp(w.temp)
		switch {
		case err == nil:
			return w, nil
		case errors.Is(err, fs.ErrNotExist):
			// Someone removed the folder after it was settled, or took our
			// file for abandoned before it was locked.
			l.unsettle()
		case !errors.Is(err, fs.ErrExist):
			return nil, w.wrap(err)
		}
	}
	return nil, w.wrap(err)
}

// settle makes dir and what it hangs on, durably.
func (l *local) settle(dir string) error {
	l.mu.Lock()
	done := l.settled[dir]
	l.mu.Unlock()
	parent := filepath.Dir(dir)
	if done || parent == dir {
		return nil
	}
	above := len(dir) < len(l.root)
	if above {
		// Folders above the store are somebody else's once they exist.
		if _, err := l.fs.Stat(dir); err == nil {
			return nil
		}
	}
	if err := l.settle(parent); err != nil {
		return err
	}
	if err := l.fs.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := l.fs.SyncDir(parent); err != nil {
		// The parent of an existing store may be closed to us; then we did not
		// make the store's folder either.
		if !(dir == l.root && errors.Is(err, fs.ErrPermission)) {
			return err
		}
	}
	l.mu.Lock()
	l.settled[dir] = true
	l.mu.Unlock()
	return nil
}

func (l *local) unsettle() {
	l.mu.Lock()
	clear(l.settled)
	l.mu.Unlock()
}

func (l *local) open(key string) (File, fs.FileInfo, error) {
	f, err := l.fs.Open(l.path(key))
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

func (l *local) ReadAll(ctx context.Context, key string, limit int64) ([]byte, error) {
	o, err := l.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	if o.Size() > limit {
		return nil, errors.Join(fmt.Errorf("objstore: read %s: %w: %d bytes, limit %d", l.path(key), ErrTooLarge, o.Size(), limit), o.Close())
	}
	data := make([]byte, o.Size())
	if n, err := o.ReadAt(data, 0); n < len(data) {
		return nil, errors.Join(fmt.Errorf("objstore: read %s: %w", l.path(key), err), o.Close())
	}
	return data, o.Close()
}

// localObject is an open file of a store.
type localObject struct {
	File
	size int64
}

func (o *localObject) Size() int64 { return o.size }

func (l *local) Open(ctx context.Context, key string) (Object, error) {
	if err := l.checkRead(ctx, "open", key); err != nil {
		return nil, err
	}
	f, info, err := l.open(key)
	if err != nil {
		return nil, l.readError("open", key, err)
	}
	return &localObject{File: f, size: info.Size()}, nil
}

func (l *local) Stat(ctx context.Context, key string) (Info, error) {
	if err := l.checkRead(ctx, "stat", key); err != nil {
		return Info{}, err
	}
	info, err := l.fs.Stat(l.path(key))
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Info{}, l.readError("stat", key, err)
	}
	return Info{Key: key, Size: info.Size(), ModTime: info.ModTime()}, nil
}

// Delete removes first and fsyncs each folder once at the end, also for files
// that were gone already: an earlier call may have died before its fsync.
func (l *local) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := CheckReadKey(key); err != nil {
			return fmt.Errorf("objstore: delete: %w", err)
		}
	}
	var dirs []string
	seen := map[string]bool{}
	removeErr := func() error {
		for _, key := range keys {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("objstore: delete %s: %w", key, err)
			}
			path := l.path(key)
			info, err := l.fs.Stat(path)
			if err == nil && info.IsDir() {
				continue // A folder is no object, and must not go when it is empty.
			}
			if err == nil {
				err = l.fs.Remove(path)
			}
			if err != nil && !isNotExist(err) {
				return fmt.Errorf("objstore: delete %s: %w", path, err)
			}
			if dir := filepath.Dir(path); !seen[dir] {
				seen[dir] = true
				dirs = append(dirs, dir)
			}
		}
		return nil
	}()
	var syncErrs []error
	for _, dir := range dirs {
		if err := l.fs.SyncDir(dir); err != nil && !isNotExist(err) {
			syncErrs = append(syncErrs, fmt.Errorf("objstore: delete in %s: %w", dir, err))
		}
	}
	return errors.Join(append(syncErrs, removeErr)...)
}

func (l *local) checkRead(ctx context.Context, op, key string) error {
	if err := CheckReadKey(key); err != nil {
		return fmt.Errorf("objstore: %s: %w", op, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("objstore: %s %s: %w", op, key, err)
	}
	return nil
}

func (l *local) readError(op, key string, err error) error {
	if isNotExist(err) {
		return fmt.Errorf("objstore: %s %s: %w", op, l.path(key), ErrNotFound)
	}
	return fmt.Errorf("objstore: %s %s: %w", op, l.path(key), err)
}

// isNotExist includes a path that leads through a file.
func isNotExist(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// isNoSpace tells a full disk or quota.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// localWriter is a temporary file on its way to a name.
type localWriter struct {
	l    *local
	ctx  context.Context
	key  string
	path string
	temp string
	file File
	err  error // the first failed write
	done bool  // the temporary file is dealt with
}

func (w *localWriter) wrap(err error) error {
	if isNoSpace(err) {
		return fmt.Errorf("objstore: write %s: %w (%w); free some space there and repeat", w.path, ErrNoSpace, err)
	}
	return fmt.Errorf("objstore: write %s: %w", w.path, err)
}

func (w *localWriter) Write(p []byte) (int, error) {
	switch {
	case w.done:
		return 0, w.wrap(fs.ErrClosed)
	case w.err != nil:
		return 0, w.err
	case w.ctx.Err() != nil:
		w.err = w.wrap(w.ctx.Err())
		return 0, w.err
	}
	n, err := w.file.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = w.wrap(err)
	}
	return n, w.err
}

func (w *localWriter) Commit() error { return w.commit(false) }

func (w *localWriter) commit(exclusive bool) error {
	if err := w.sync(); err != nil {
		return err
	}
	// A link that finds the name taken by a file which is gone when it is
	// looked at tries again; only a store that is being deleted loops.
	const attempts = 4
	for attempt := 1; ; attempt++ {
		err := w.l.fs.Link(w.temp, w.path)
		switch {
		case err == nil:
			return w.settleName(w.l.fs.Remove(w.temp))
		case !errors.Is(err, fs.ErrExist):
			return errors.Join(w.wrap(linkHint(err)), w.Abort())
		case exclusive:
			return errors.Join(w.wrap(ErrExists), w.Abort())
		}
		same, err := w.sameAsExisting()
		switch {
		case err != nil && isNotExist(err) && attempt < attempts:
		case err != nil:
			return errors.Join(w.wrap(err), w.Abort())
		case !same:
			return errors.Join(w.wrap(fmt.Errorf("%w with other bytes", ErrExists)), w.Abort())
		default:
			return w.settleName(w.l.fs.Remove(w.temp))
		}
	}
}

func (w *localWriter) replace() error {
	if err := w.sync(); err != nil {
		return err
	}
	if err := w.l.fs.Rename(w.temp, w.path); err != nil {
		return errors.Join(w.wrap(err), w.Abort())
	}
	return w.settleName(nil)
}

// sync is what every commit begins with: all bytes are on the disk before the
// name can lead to them.
func (w *localWriter) sync() error {
	if w.done {
		return w.wrap(fs.ErrClosed)
	}
	err := w.err
	if err == nil && w.ctx.Err() != nil {
		err = w.wrap(w.ctx.Err())
	}
	if err == nil {
		if err = w.file.Sync(); err != nil {
			err = w.wrap(err)
		}
	}
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	return nil
}

// settleName ends a commit whose name is in place: the temporary name is gone
// (or err tells why not), the folder's entries become durable. Its errors
// leave open whether the object will stand after a crash; repeating the call
// settles it.
func (w *localWriter) settleName(err error) error {
	w.done = true
	if err = errors.Join(err, w.file.Close(), w.l.fs.SyncDir(filepath.Dir(w.path))); err != nil {
		return w.wrap(err)
	}
	return nil
}

// sameAsExisting compares with what has the name already, and makes that
// durable when it is the same: its writer may have died before its fsync.
func (w *localWriter) sameAsExisting() (same bool, err error) {
	f, info, err := w.l.open(w.key)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	own, err := w.file.Stat()
	if err != nil || own.Size() != info.Size() {
		return false, err
	}
	const chunk = 256 << 10
	size := info.Size()
	a, b := make([]byte, min(chunk, size)), make([]byte, min(chunk, size))
	for off := int64(0); off < size; off += chunk {
		n := min(chunk, size-off)
		if got, err := f.ReadAt(a[:n], off); int64(got) < n {
			return false, err
		}
		if got, err := w.file.ReadAt(b[:n], off); int64(got) < n {
			return false, err
		}
		if !slices.Equal(a[:n], b[:n]) {
			return false, nil
		}
	}
	return true, f.Sync()
}

func (w *localWriter) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	err := w.file.Close()
	if rmErr := w.l.fs.Remove(w.temp); rmErr != nil && !isNotExist(rmErr) {
		err = errors.Join(err, rmErr)
	}
	if err != nil {
		return fmt.Errorf("objstore: remove temporary file %s: %w", w.temp, err)
	}
	return nil
}

// linkHint explains the errors of file systems without hard links.
func linkHint(err error) error {
	for _, e := range []error{syscall.EPERM, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EMLINK} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w; the file system must allow hard links, put the store on another one", err)
		}
	}
	return err
}
