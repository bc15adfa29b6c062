package cloud

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/varve-io/varve/statestore/objstore"
)

// Config describes a store in a bucket.
type Config struct {
	// Bucket is where the objects are. The store does not close it.
	Bucket *blob.Bucket
	// Prefix goes before every key; without slashes at its ends. Empty for the
	// whole bucket.
	Prefix string
	// Location is the Iceberg location of the prefix.
	Location string
	// Aliases are other spellings of Location that Key accepts.
	Aliases []string
	// NotFound tells whether an error means that the object is not there.
	// Drivers set it, because some of gocloud's report as "not found" what may
	// as well be a missing permission or a missing name server. Default:
	// gocloud's code.
	NotFound func(error) bool
	// Explain makes of a provider's error one for people; it wraps what it was
	// given. Default: as it is.
	Explain func(error) error
	// StatThenCreate is for stores without conditional writes: a create first
	// looks whether the object is there. Two writers at the same moment can
	// then both succeed, and the later bytes stand. That is harmless for
	// names that determine their bytes, and not for an embedded catalog with
	// two writers. Default: conditional writes.
	StatThenCreate bool
}

type store struct {
	objstore.Locations
	c      Config
	prefix string // with its slash
}

// New makes a store. It does not reach the bucket.
func New(c Config) (objstore.Store, error) {
	prefix := ""
	if c.Prefix != "" {
		if err := objstore.CheckKey(c.Prefix); err != nil {
			return nil, fmt.Errorf("objstore: prefix of the store: %w", err)
		}
		prefix = c.Prefix + "/"
	}
	locations, err := objstore.NewLocations(c.Location, c.Aliases...)
	if err != nil {
		return nil, err
	}
	if c.NotFound == nil {
		c.NotFound = func(err error) bool { return gcerrors.Code(err) == gcerrors.NotFound }
	}
	return &store{Locations: locations, c: c, prefix: prefix}, nil
}

// wrap names the operation and the object, and keeps context errors and the
// provider's error findable.
func (s *store) wrap(op, key string, err error) error {
	if s.c.NotFound(err) {
		return fmt.Errorf("objstore: %s %s: %w", op, s.Location(key), objstore.ErrNotFound)
	}
	if s.c.Explain != nil {
		err = s.c.Explain(err)
	}
	return fmt.Errorf("objstore: %s %s: %w", op, s.Location(key), err)
}

func (s *store) check(ctx context.Context, op, key string, checkKey func(string) error) error {
	if err := checkKey(key); err != nil {
		return fmt.Errorf("objstore: %s: %w", op, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("objstore: %s %s: %w", op, s.Location(key), err)
	}
	return nil
}

func (s *store) Create(ctx context.Context, key string, data []byte) error {
	return s.put(ctx, key, data, (*writer).Commit)
}

func (s *store) CreateExclusive(ctx context.Context, key string, data []byte) error {
	return s.put(ctx, key, data, (*writer).commitExclusive)
}

func (s *store) put(ctx context.Context, key string, data []byte, finish func(*writer) error) error {
	w, err := s.newWriter(ctx, key)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return errors.Join(err, w.Abort())
	}
	return finish(w)
}

// Replace is a plain overwrite, which object stores do at once.
func (s *store) Replace(ctx context.Context, key string, data []byte) error {
	if err := s.check(ctx, "replace", key, objstore.CheckKey); err != nil {
		return err
	}
	if err := s.c.Bucket.WriteAll(ctx, s.prefix+key, data, &blob.WriterOptions{ContentType: contentType}); err != nil {
		return s.wrap("replace", key, err)
	}
	return nil
}

// contentType keeps gocloud from guessing one out of the bytes.
const contentType = "application/octet-stream"

// writer is an upload. The bytes of an object that another writer's is
// compared with are known by length and hash, since they are not kept.
type writer struct {
	s      *store
	ctx    context.Context
	cancel context.CancelFunc
	key    string
	w      *blob.Writer
	sum    hash.Hash
	size   int64
	err    error
	done   bool
}

func (s *store) Writer(ctx context.Context, key string) (objstore.Writer, error) {
	w, err := s.newWriter(ctx, key)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (s *store) newWriter(ctx context.Context, key string) (*writer, error) {
	if err := s.check(ctx, "create", key, objstore.CheckKey); err != nil {
		return nil, err
	}
	// gocloud gives an upload up when its context is cancelled before Close.
	uploadCtx, cancel := context.WithCancel(ctx)
	w, err := s.c.Bucket.NewWriter(uploadCtx, s.prefix+key, &blob.WriterOptions{
		ContentType: contentType,
		IfNotExist:  !s.c.StatThenCreate,
	})
	if err != nil {
		cancel()
		return nil, s.wrap("create", key, err)
	}
	return &writer{s: s, ctx: ctx, cancel: cancel, key: key, w: w, sum: sha256.New()}, nil
}

func (w *writer) Write(p []byte) (int, error) {
	switch {
	case w.done:
		return 0, w.s.wrap("write", w.key, fs.ErrClosed)
	case w.err != nil:
		return 0, w.err
	case len(p) == 0:
		return 0, nil
	}
	n, err := w.w.Write(p)
	w.sum.Write(p[:n])
	w.size += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = w.s.wrap("write", w.key, err)
	}
	return n, w.err
}

func (w *writer) Commit() error {
	exists, err := w.finish()
	if err != nil || !exists {
		return err
	}
	same, err := w.sameAsExisting()
	if w.s.c.NotFound(err) {
		// Not ErrNotFound: nothing was asked of an object that has to be there.
		return fmt.Errorf("objstore: create %s: the store refuses it because the object is there, and then says that there is none", w.s.Location(w.key))
	}
	if err != nil {
		return w.s.wrap("compare", w.key, err)
	}
	if !same {
		return w.s.wrap("create", w.key, fmt.Errorf("%w with other bytes", objstore.ErrExists))
	}
	return nil
}

func (w *writer) commitExclusive() error {
	exists, err := w.finish()
	if err == nil && exists {
		err = w.s.wrap("create", w.key, objstore.ErrExists)
	}
	return err
}

// finish ends the upload. It tells whether it failed because the object is
// there.
func (w *writer) finish() (exists bool, err error) {
	if w.done {
		return false, w.s.wrap("create", w.key, fs.ErrClosed)
	}
	err = w.err
	if err == nil {
		if err = w.ctx.Err(); err != nil {
			err = w.s.wrap("create", w.key, err)
		}
	}
	if err == nil && w.s.c.StatThenCreate {
		exists, err = w.s.c.Bucket.Exists(w.ctx, w.s.prefix+w.key)
		if err != nil {
			err = w.s.wrap("create", w.key, err)
		}
	}
	if err != nil || exists {
		return exists, errors.Join(err, w.Abort())
	}
	w.done = true
	defer w.cancel()
	err = w.w.Close()
	switch {
	case err == nil:
		return false, nil
	case gcerrors.Code(err) == gcerrors.FailedPrecondition:
		return true, nil
	}
	// A store may refuse a conditional upload before it has read it, and close
	// the connection: the answer is then lost in the reset. The object that it
	// refused for is there; and one that is there by an attempt whose answer was
	// lost is what the caller wanted.
	if there, e := w.s.c.Bucket.Exists(w.ctx, w.s.prefix+w.key); e == nil && there {
		return true, nil
	}
	return false, w.s.wrap("create", w.key, err)
}

// Abort cancels the upload; parts that the provider already has are removed by
// the driver or by the bucket's own rule for unfinished uploads.
func (w *writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	w.cancel()
	// Close reports the cancellation that we asked for.
	if err := w.w.Close(); err == nil {
		return w.s.wrap("abort", w.key, errors.New("the upload had ended; the object may be there, unreferenced"))
	}
	return nil
}

// sameAsExisting compares with what another writer has put there. A store that
// refuses a conditional write while it still makes the other's object visible
// shows it a moment later.
func (w *writer) sameAsExisting() (same bool, err error) {
	err = again(w.ctx, func() (bool, error) {
		r, err := w.s.c.Bucket.NewReader(w.ctx, w.s.prefix+w.key, nil)
		if err != nil {
			return w.s.c.NotFound(err), err
		}
		if r.Size() != w.size {
			return false, r.Close()
		}
		sum := sha256.New()
		n, err := io.Copy(sum, r)
		if err = errors.Join(err, r.Close()); err != nil {
			return true, err
		}
		same = n == w.size && bytes.Equal(sum.Sum(nil), w.sum.Sum(nil))
		return false, nil
	})
	return same, err
}

func (s *store) ReadAll(ctx context.Context, key string, limit int64) (data []byte, err error) {
	if err := s.check(ctx, "read", key, objstore.CheckReadKey); err != nil {
		return nil, err
	}
	err = again(ctx, func() (bool, error) {
		r, err := s.c.Bucket.NewReader(ctx, s.prefix+key, nil)
		if err != nil {
			return false, err
		}
		if r.Size() > limit {
			err := fmt.Errorf("%w: %d bytes, limit %d", objstore.ErrTooLarge, r.Size(), limit)
			return false, errors.Join(err, r.Close())
		}
		data = make([]byte, r.Size())
		_, err = io.ReadFull(r, data)
		return true, errors.Join(err, r.Close())
	})
	if err != nil {
		return nil, s.wrap("read", key, err)
	}
	return data, nil
}

// object reads each range with a request of its own.
type object struct {
	s    *store
	ctx  context.Context
	key  string
	size int64
}

func (s *store) Open(ctx context.Context, key string) (objstore.Object, error) {
	info, err := s.Stat(ctx, key)
	if err != nil {
		return nil, err
	}
	return &object{s: s, ctx: ctx, key: key, size: info.Size}, nil
}

func (o *object) Size() int64  { return o.size }
func (o *object) Close() error { return nil }

func (o *object) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, o.s.wrap("read", o.key, fmt.Errorf("negative offset %d", off))
	}
	if off >= o.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), o.size-off)]
	if len(want) == 0 {
		return 0, nil
	}
	n := 0 // what an attempt read stays read
	err := again(o.ctx, func() (bool, error) {
		r, err := o.s.c.Bucket.NewRangeReader(o.ctx, o.s.prefix+o.key, off+int64(n), int64(len(want)-n), nil)
		if err != nil {
			return false, err
		}
		m, err := io.ReadFull(r, want[n:])
		n += m
		if err = errors.Join(err, r.Close()); n == len(want) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return n, o.s.wrap("read", o.key, err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (s *store) Stat(ctx context.Context, key string) (objstore.Info, error) {
	if err := s.check(ctx, "stat", key, objstore.CheckReadKey); err != nil {
		return objstore.Info{}, err
	}
	a, err := s.c.Bucket.Attributes(ctx, s.prefix+key)
	if err != nil {
		return objstore.Info{}, s.wrap("stat", key, err)
	}
	return objstore.Info{Key: key, Size: a.Size, ModTime: a.ModTime}, nil
}

func (s *store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := objstore.CheckReadKey(key); err != nil {
			return fmt.Errorf("objstore: delete: %w", err)
		}
	}
	for _, key := range keys {
		if err := s.check(ctx, "delete", key, objstore.CheckReadKey); err != nil {
			return err
		}
		if err := s.c.Bucket.Delete(ctx, s.prefix+key); err != nil && !s.c.NotFound(err) {
			return s.wrap("delete", key, err)
		}
	}
	return nil
}

func (s *store) List(ctx context.Context, prefix string, fn func(objstore.Info) error) error {
	if err := objstore.CheckPrefix(prefix); err != nil {
		return fmt.Errorf("objstore: list: %w", err)
	}
	it := s.c.Bucket.List(&blob.ListOptions{Prefix: s.prefix + prefix})
	for {
		if err := ctx.Err(); err != nil {
			return s.wrap("list", prefix, err)
		}
		o, err := it.Next(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			// A bucket that is not there is no empty listing.
			if s.c.Explain != nil {
				err = s.c.Explain(err)
			}
			return fmt.Errorf("objstore: list %s: %w", s.Location(prefix), err)
		}
		key, ok := strings.CutPrefix(o.Key, s.prefix)
		if !ok || objstore.CheckReadKey(key) != nil {
			// Folder markers of other tools; no call here could name them.
			continue
		}
		if err := fn(objstore.Info{Key: key, Size: o.Size, ModTime: o.ModTime}); err != nil {
			return err
		}
	}
}
