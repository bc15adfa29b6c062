package checkpoint

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// DefaultGrace is how long an object stays after nothing names it any more.
const DefaultGrace = 24 * time.Hour

// DefaultRate bounds the upload, in bytes a second.
const DefaultRate = 64 << 20

// CreateOptions of Create.
type CreateOptions struct {
	// Scratch is a folder on the disk of the state's, for a copy of it that is
	// made of links where the disk can. It is removed before and after.
	Scratch string
	// FS is where Scratch lies. Default: the disk.
	FS vfs.FS
	// Rate bounds the upload, in bytes a second. Default: DefaultRate; below zero: none.
	Rate int64
	// Grace is that of Expire. Default: DefaultGrace. A checkpoint that takes
	// longer than half of it is given up.
	Grace time.Duration
	// Avoid are objects (File.Object) that are known to be damaged or gone, besides
	// those that a restore has noted in the store.
	Avoid map[string]bool
	// Progress, if any, is told how many of the bytes to upload are done.
	Progress func(done, total int64)
	// State are the options by which the copy is read.
	State statestore.Options
}

// Made is what Create did.
type Made struct {
	Manifest *Manifest
	Uploaded int64 // bytes
	Shared   int64 // bytes of files that an earlier checkpoint has
	Took     time.Duration
}

// ErrTooLong: a checkpoint took so long that what it names may be gone.
var ErrTooLong = errors.New("the checkpoint took too long")

// Create makes a checkpoint of the state. Apply may go on meanwhile.
func (p Place) Create(ctx context.Context, st *statestore.Store, opt CreateOptions) (_ *Made, err error) {
	if opt.FS == nil {
		opt.FS = vfs.Default
	}
	if opt.Grace == 0 {
		opt.Grace = DefaultGrace
	}
	if opt.Rate == 0 {
		opt.Rate = DefaultRate
	}
	opt.State.FS = opt.FS
	began := time.Now()
	if err := opt.FS.RemoveAll(opt.Scratch); err != nil {
		return nil, fmt.Errorf("remove an older copy of the state: %w", err)
	}
	defer func() {
		if e := opt.FS.RemoveAll(opt.Scratch); e != nil {
			err = errors.Join(err, fmt.Errorf("remove the copy of the state: %w", e))
		}
	}()
	if err := st.Checkpoint(opt.Scratch); err != nil {
		return nil, err
	}
	names, err := databaseFiles(opt.FS, opt.Scratch)
	if err != nil {
		return nil, err
	}
	im, err := statestore.Inspect(opt.Scratch, true, opt.State)
	if err != nil {
		return nil, err
	}
	if im.Head.Offset < 0 {
		return nil, errors.New("the state has applied nothing yet: there is nothing to keep")
	}
	m, err := describe(im)
	if err != nil {
		return nil, err
	}
	c := creation{p: p, opt: &opt, m: m, made: &Made{Manifest: m}, began: began, have: map[string]string{}}
	if err := c.known(ctx); err != nil {
		return nil, err
	}
	if err := c.files(ctx, names); err != nil {
		return nil, err
	}
	if err := c.finish(ctx); err != nil {
		return nil, err
	}
	c.made.Took = time.Since(began)
	return c.made, nil
}

// databaseFiles lists what belongs to a database, by name.
func databaseFiles(fs vfs.FS, dir string) ([]string, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("list the copy of the state: %w", err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == "LOCK" })
	for _, n := range names {
		if !plainName(n) {
			return nil, fmt.Errorf("the state's database has a file %q, whose name a checkpoint cannot keep", n)
		}
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("the state's database has %d files, a checkpoint keeps up to %d", len(names), maxFiles)
	}
	slices.Sort(names)
	return names, nil
}

// creation is a checkpoint under way.
type creation struct {
	p     Place
	opt   *CreateOptions
	m     *Manifest
	made  *Made
	began time.Time
	have  map[string]string // hash → object that a standing checkpoint names
	done  int64
}

// known finds the objects that standing checkpoints of this deployment name.
func (c *creation) known(ctx context.Context) error {
	infos, err := c.p.names(ctx, manifestsDir)
	if err != nil {
		return err
	}
	damaged, err := c.p.damaged(ctx)
	if err != nil {
		return err
	}
	for _, i := range infos {
		m, err := c.p.read(ctx, manifestsDir, i.Key)
		switch {
		case isRefusal(err):
			continue
		case err != nil:
			return err
		case m.Deployment != c.m.Deployment:
			continue
		}
		for j := range m.Files {
			if f := &m.Files[j]; f.Object != "" && !c.opt.Avoid[f.Object] && !damaged[f.Object] {
				c.have[f.SHA256] = f.Object
			}
		}
	}
	return nil
}

func (c *creation) files(ctx context.Context, names []string) error {
	total := int64(0)
	for _, n := range names {
		f := File{Name: n}
		err := c.read(n, func(r io.Reader) (err error) {
			h := sha256.New()
			f.Length, err = io.Copy(h, r)
			f.SHA256 = hex.EncodeToString(h.Sum(nil))
			return err
		})
		if err != nil {
			return err
		}
		if object := c.have[f.SHA256]; object != "" && f.Length > 0 {
			there, err := c.there(ctx, object, f.Length)
			if err != nil {
				return err
			}
			if there {
				f.Object = object
				c.made.Shared += f.Length
			}
		}
		if f.Object == "" {
			total += f.Length
		}
		c.m.Files = append(c.m.Files, f)
	}
	for i := range c.m.Files {
		f := &c.m.Files[i]
		if f.Length == 0 || f.Object != "" {
			continue
		}
		if err := c.upload(ctx, f, total); err != nil {
			return err
		}
		c.made.Uploaded += f.Length
	}
	return nil
}

func (c *creation) read(name string, fn func(io.Reader) error) error {
	f, err := c.opt.FS.Open(c.opt.FS.PathJoin(c.opt.Scratch, name))
	if err != nil {
		return fmt.Errorf("read the copy of the state: %w", err)
	}
	if err := errors.Join(fn(f), f.Close()); err != nil {
		return fmt.Errorf("checkpoint of %s: %w", name, err)
	}
	return nil
}

// there says whether an object is in the store with its length.
func (c *creation) there(ctx context.Context, object string, length int64) (bool, error) {
	i, err := c.p.store.Stat(ctx, c.p.prefix+object)
	if errors.Is(err, objstore.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for an earlier checkpoint's file: %w", err)
	}
	return i.Size == length, nil
}

func (c *creation) upload(ctx context.Context, f *File, total int64) error {
	var fresh [8]byte
	rand.Read(fresh[:]) // never fails
	f.Object = filesDir + f.SHA256 + "." + hex.EncodeToString(fresh[:])
	return c.read(f.Name, func(r io.Reader) (err error) {
		w, err := c.p.store.Writer(ctx, c.p.prefix+f.Object)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.Abort()) }()
		h := sha256.New()
		if _, err := io.CopyBuffer(plainWriter{io.MultiWriter(w, h)}, &pacedReader{ctx: ctx, c: c, r: r, total: total}, make([]byte, 256<<10)); err != nil {
			return err
		}
		if hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
			return fmt.Errorf("the file changed while it was read: %w", ErrDamaged)
		}
		return w.Commit()
	})
}

// plainWriter keeps CopyBuffer from going around its buffer.
type plainWriter struct{ io.Writer }

// pacedReader reads no faster than the rate allows.
type pacedReader struct {
	ctx   context.Context
	c     *creation
	r     io.Reader
	total int64
	start time.Time
	bytes int64
}

func (p *pacedReader) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	if p.start.IsZero() {
		p.start = time.Now()
	}
	if err := p.c.intime(); err != nil {
		return 0, err
	}
	n, err := p.r.Read(b)
	p.bytes += int64(n)
	p.c.done += int64(n)
	if p.c.opt.Progress != nil {
		p.c.opt.Progress(p.c.done, p.total)
	}
	if rate := p.c.opt.Rate; rate > 0 {
		due := time.Duration(float64(p.bytes) / float64(rate) * float64(time.Second))
		if ahead := due - time.Since(p.start); ahead > time.Millisecond {
			t := time.NewTimer(ahead)
			defer t.Stop()
			select {
			case <-p.ctx.Done():
				return n, p.ctx.Err()
			case <-t.C:
			}
		}
	}
	return n, err
}

func (c *creation) intime() error {
	if took := time.Since(c.began); took > c.opt.Grace/2 {
		return fmt.Errorf("%w: %s, of a grace of %s; raise the rate or the grace", ErrTooLong, took.Round(time.Second), c.opt.Grace)
	}
	return nil
}

// finish writes the manifest, which makes the checkpoint.
func (c *creation) finish(ctx context.Context) error {
	b, err := c.m.encode()
	if err != nil {
		return err
	}
	c.m.name = ManifestName(c.m.Offset, b)
	if _, err := decodeManifest(c.m.name, b); err != nil {
		return err // never write what would not be read
	}
	if err := c.intime(); err != nil {
		return err
	}
	key := c.p.prefix + manifestsDir + c.m.name
	if err := c.p.store.Create(ctx, key, b); err != nil {
		return fmt.Errorf("write the checkpoint's manifest %s: %w", path.Base(key), err)
	}
	if c.intime() == nil {
		return nil
	}
	// It stood still between the last look and now: what it names may be gone.
	for i := range c.m.Files {
		f := &c.m.Files[i]
		if f.Object == "" {
			continue
		}
		if there, err := c.there(ctx, f.Object, f.Length); err != nil || !there {
			return errors.Join(c.intime(), err, c.p.store.Delete(ctx, key))
		}
	}
	return nil
}
