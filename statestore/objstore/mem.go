package objstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"
)

// Mem is a store in memory, for tests and simulations: it keeps the contract
// of Store, and a hook can make each call fail before or after its effect. It
// has no clock and no randomness of its own.
type Mem struct {
	Locations

	mu      sync.Mutex
	objects map[string]memObject
	calls   int
	hook    func(Call) error
	now     func() time.Time
}

type memObject struct {
	data    []byte
	modTime time.Time
}

// Call is one call as a hook sees it.
type Call struct {
	// Number counts the calls of this store from 1; both phases of a call have
	// the same one.
	Number int
	// Op is Create, CreateExclusive, Replace, Commit, ReadAll, Open, ReadAt,
	// Stat, Delete or List.
	Op string
	// Key is the object's; the prefix for List. A Delete of many keys is one
	// call per key.
	Key string
	// After is false before the effect, and true after it.
	After bool
}

// NewMem makes an empty store. Options: WithLocation (default mem://store).
func NewMem(opts ...Option) *Mem {
	o := options{location: "mem://store"}
	for _, opt := range opts {
		opt.apply(&o)
	}
	locations, err := NewLocations(o.location)
	if err != nil {
		panic(err) // A location in a test's source.
	}
	return &Mem{Locations: locations, objects: map[string]memObject{}, now: func() time.Time { return time.Time{} }}
}

// SetHook has fn called before and after the effect of each call. An error
// before it prevents the effect: nothing happened. An error after it is an
// unknown answer: the effect stands and the caller does not learn so. fn may
// also block or switch tasks; no lock is held. nil takes the hook away.
func (m *Mem) SetHook(fn func(Call) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = fn
}

// SetClock gives objects their modification times. Default: the zero time.
func (m *Mem) SetClock(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = now
}

// call runs effect between the two phases of the hook.
func (m *Mem) call(ctx context.Context, op, key string, effect func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("objstore: %s %s: %w", op, key, err)
	}
	m.mu.Lock()
	m.calls++
	c, hook := Call{Number: m.calls, Op: op, Key: key}, m.hook
	m.mu.Unlock()
	if hook != nil {
		if err := hook(c); err != nil {
			return fmt.Errorf("objstore: %s %s: %w", op, key, err)
		}
	}
	m.mu.Lock()
	err := effect()
	m.mu.Unlock()
	if err != nil {
		return fmt.Errorf("objstore: %s %s: %w", op, key, err)
	}
	if hook != nil {
		c.After = true
		if err := hook(c); err != nil {
			return fmt.Errorf("objstore: %s %s: %w", op, key, err)
		}
	}
	return nil
}

func (m *Mem) create(key string, data []byte) error {
	if old, ok := m.objects[key]; ok {
		if bytes.Equal(old.data, data) {
			return nil
		}
		return fmt.Errorf("%w with other bytes", ErrExists)
	}
	m.objects[key] = memObject{data: bytes.Clone(data), modTime: m.now()}
	return nil
}

func (m *Mem) Create(ctx context.Context, key string, data []byte) error {
	if err := CheckKey(key); err != nil {
		return fmt.Errorf("objstore: create: %w", err)
	}
	return m.call(ctx, "Create", key, func() error { return m.create(key, data) })
}

func (m *Mem) CreateExclusive(ctx context.Context, key string, data []byte) error {
	if err := CheckKey(key); err != nil {
		return fmt.Errorf("objstore: create: %w", err)
	}
	return m.call(ctx, "CreateExclusive", key, func() error {
		if _, ok := m.objects[key]; ok {
			return ErrExists
		}
		return m.create(key, data)
	})
}

func (m *Mem) Replace(ctx context.Context, key string, data []byte) error {
	if err := CheckKey(key); err != nil {
		return fmt.Errorf("objstore: replace: %w", err)
	}
	return m.call(ctx, "Replace", key, func() error {
		delete(m.objects, key)
		return m.create(key, data)
	})
}

type memWriter struct {
	m    *Mem
	ctx  context.Context
	key  string
	buf  bytes.Buffer
	done bool
}

func (m *Mem) Writer(ctx context.Context, key string) (Writer, error) {
	if err := CheckKey(key); err != nil {
		return nil, fmt.Errorf("objstore: create: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("objstore: create %s: %w", key, err)
	}
	return &memWriter{m: m, ctx: ctx, key: key}, nil
}

func (w *memWriter) Write(p []byte) (int, error) {
	if w.done {
		return 0, fmt.Errorf("objstore: write %s: %w", w.key, fs.ErrClosed)
	}
	return w.buf.Write(p)
}

func (w *memWriter) Commit() error {
	if w.done {
		return fmt.Errorf("objstore: write %s: %w", w.key, fs.ErrClosed)
	}
	w.done = true
	return w.m.call(w.ctx, "Commit", w.key, func() error { return w.m.create(w.key, w.buf.Bytes()) })
}

func (w *memWriter) Abort() error {
	w.done = true
	return nil
}

func (m *Mem) read(ctx context.Context, op, key string) (o memObject, err error) {
	if err := CheckReadKey(key); err != nil {
		return o, fmt.Errorf("objstore: %s: %w", op, err)
	}
	err = m.call(ctx, op, key, func() error {
		var ok bool
		if o, ok = m.objects[key]; !ok {
			return ErrNotFound
		}
		return nil
	})
	return o, err
}

func (m *Mem) ReadAll(ctx context.Context, key string, limit int64) ([]byte, error) {
	o, err := m.read(ctx, "ReadAll", key)
	if err != nil {
		return nil, err
	}
	if int64(len(o.data)) > limit {
		return nil, fmt.Errorf("objstore: ReadAll %s: %w: %d bytes, limit %d", key, ErrTooLarge, len(o.data), limit)
	}
	return bytes.Clone(o.data), nil
}

// memReader reads the object as it was when it was opened.
type memReader struct {
	m    *Mem
	ctx  context.Context
	key  string
	data []byte
}

func (m *Mem) Open(ctx context.Context, key string) (Object, error) {
	o, err := m.read(ctx, "Open", key)
	if err != nil {
		return nil, err
	}
	return &memReader{m: m, ctx: ctx, key: key, data: o.data}, nil
}

func (r *memReader) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("objstore: read %s: negative offset %d", r.key, off)
	}
	err = r.m.call(r.ctx, "ReadAt", r.key, func() error {
		if off < int64(len(r.data)) {
			n = copy(p, r.data[off:])
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (r *memReader) Size() int64  { return int64(len(r.data)) }
func (r *memReader) Close() error { return nil }

func (m *Mem) Stat(ctx context.Context, key string) (Info, error) {
	o, err := m.read(ctx, "Stat", key)
	if err != nil {
		return Info{}, err
	}
	return Info{Key: key, Size: int64(len(o.data)), ModTime: o.modTime}, nil
}

func (m *Mem) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := CheckReadKey(key); err != nil {
			return fmt.Errorf("objstore: delete: %w", err)
		}
	}
	for _, key := range keys {
		if err := m.call(ctx, "Delete", key, func() error { delete(m.objects, key); return nil }); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mem) List(ctx context.Context, prefix string, fn func(Info) error) error {
	if err := CheckPrefix(prefix); err != nil {
		return fmt.Errorf("objstore: List: %w", err)
	}
	var found []Info
	err := m.call(ctx, "List", prefix, func() error {
		for key, o := range m.objects {
			if strings.HasPrefix(key, prefix) {
				found = append(found, Info{Key: key, Size: int64(len(o.data)), ModTime: o.modTime})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b Info) int { return strings.Compare(a.Key, b.Key) })
	for _, info := range found {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("objstore: List %s: %w", prefix, err)
		}
		if err := fn(info); err != nil {
			return err
		}
	}
	return nil
}
