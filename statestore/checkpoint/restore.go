package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// restoreWorkers read files side by side.
const restoreWorkers = 4

// RestoreOptions of Restore.
type RestoreOptions struct {
	// Dir is the state's folder. What is there, if anything, is renamed to
	// Dir.aside-<time> once the checkpoint is ready to take its place.
	Dir string
	// FS is where Dir lies. Default: the disk.
	FS vfs.FS
	// Deployment and Partition are those of the log.
	Deployment [16]byte
	Partition  int32
	// ID names the one checkpoint to restore. Default: the newest that can be used.
	ID string
	// Check says whether a checkpoint is of the log (L5). An error wrapping
	// statestore.ErrFork refuses it.
	Check func(context.Context, *Manifest) error
	// Now names folders that are set aside.
	Now time.Time
	// State are the options by which the copy is read.
	State statestore.Options
	Log   *slog.Logger
}

// Restored is what Restore did.
type Restored struct {
	Manifest *Manifest
	Took     time.Duration
	// Aside is where what was in the folder lies now, "": nothing was.
	Aside string
	// Bad are objects that are damaged or gone: a later checkpoint must not
	// share them (CreateOptions.Avoid). Restore fills it also when it fails.
	Bad map[string]bool
}

// Restore makes the newest usable checkpoint the state in a folder. A
// checkpoint that is damaged, of a fork or too new is passed over with a
// warning; an error wraps ErrNone when none is left, and then nothing was
// touched. Any other error may pass: call again.
func (p Place) Restore(ctx context.Context, opt RestoreOptions) (*Restored, error) {
	if opt.FS == nil {
		opt.FS = vfs.Default
	}
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	opt.State.FS = opt.FS
	out := &Restored{Bad: map[string]bool{}}
	began := time.Now()
	var names []string
	if opt.ID != "" {
		name, err := p.find(ctx, opt.ID)
		if err != nil {
			return out, err
		}
		names = []string{name}
	} else {
		infos, err := p.names(ctx, manifestsDir)
		if err != nil {
			return out, err
		}
		for i := range infos {
			names = append(names, infos[len(infos)-1-i].Key)
		}
	}
	var last error
	for _, name := range names {
		m, err := p.fit(ctx, name, opt.Deployment, opt.Partition, opt.Check)
		if err == nil {
			err = p.fetch(ctx, m, &opt, out)
		}
		if err == nil {
			out.Manifest, out.Took = m, time.Since(began)
			return out, nil
		}
		if !isRefusal(err) {
			return out, err
		}
		last = err
		opt.Log.Warn("a checkpoint is of no use; an older one is looked for", "checkpoint", idOf(name), "error", err)
	}
	if last != nil {
		return out, fmt.Errorf("%w in %s: of %d, the last one looked at: %w", ErrNone, p.Location(), len(names), last)
	}
	return out, fmt.Errorf("%w in %s", ErrNone, p.Location())
}

// fetch brings a checkpoint into a folder of its own, looks at it, and puts it
// in its place.
func (p Place) fetch(ctx context.Context, m *Manifest, opt *RestoreOptions, out *Restored) (err error) {
	fs, tmp := opt.FS, opt.Dir+".restoring"
	local := func(err error) error { return fmt.Errorf("restore checkpoint %s into %s: %w", m.ID(), opt.Dir, err) }
	if err := fs.RemoveAll(tmp); err != nil {
		return local(err)
	}
	defer func() {
		if err != nil {
			if e := fs.RemoveAll(tmp); e != nil {
				err = errors.Join(err, local(e))
			}
		}
	}()
	if err := fs.MkdirAll(tmp, 0o755); err != nil {
		return local(err)
	}
	if err := p.fetchAll(ctx, m, opt, tmp, out); err != nil {
		return err
	}
	if err := syncDir(fs, tmp); err != nil {
		return local(err)
	}
	im, err := statestore.Inspect(tmp, false, opt.State)
	if err != nil {
		if statestore.IsDamage(err) || errors.Is(err, iofs.ErrNotExist) {
			return fmt.Errorf("%w: checkpoint %s does not open: %w", ErrDamaged, m.ID(), err)
		}
		return local(err)
	}
	if h := m.Head(); im.Head.Offset != h.Offset || im.Head.Chain != h.Chain || im.Head.Deployment != h.Deployment || im.Head.Partition != h.Partition ||
		im.Head.Checksum != h.Checksum || im.Head.ApplyVersion != h.ApplyVersion {
		return fmt.Errorf("%w: checkpoint %s: its state stands at offset %d with another head than its manifest says", ErrDamaged, m.ID(), im.Head.Offset)
	}
	if out.Aside, err = SetAside(fs, opt.Dir, opt.Now); err != nil {
		return local(err)
	}
	if err := fs.Rename(tmp, opt.Dir); err != nil {
		return local(err)
	}
	if err := syncDir(fs, fs.PathDir(opt.Dir)); err != nil {
		return local(err)
	}
	return nil
}

// SetAside renames a state's folder to <dir>.aside-<time>, and says where it
// lies now. An absent folder is fine ("") and an empty one is removed.
func SetAside(fs vfs.FS, dir string, now time.Time) (string, error) {
	names, err := fs.List(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if len(names) == 0 {
		return "", fs.Remove(dir)
	}
	for i := 0; ; i++ {
		to := fmt.Sprintf("%s.aside-%s", dir, now.UTC().Format("20060102T150405"))
		if i > 0 {
			to = fmt.Sprintf("%s.%d", to, i)
		}
		if _, err := fs.Stat(to); err == nil {
			continue
		} else if !errors.Is(err, iofs.ErrNotExist) {
			return "", err
		}
		if err := fs.Rename(dir, to); err != nil {
			return "", err
		}
		return to, syncDir(fs, fs.PathDir(dir))
	}
}

func syncDir(fs vfs.FS, dir string) error {
	if dir == "" || dir == "." && fs != vfs.Default {
		return nil // of a file system in memory: its root
	}
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (p Place) fetchAll(ctx context.Context, m *Manifest, opt *RestoreOptions, dir string, out *Restored) error {
	fs, whole := opt.FS, ctx
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	work := make(chan *File)
	var mu sync.Mutex
	var first error
	var wg sync.WaitGroup
	for range restoreWorkers {
		wg.Go(func() {
			buf := make([]byte, 256<<10)
			for f := range work {
				if ctx.Err() != nil {
					continue
				}
				err := p.fetchFile(ctx, m, f, fs, dir, buf)
				if err == nil {
					continue
				}
				mu.Lock()
				damaged := errors.Is(err, ErrDamaged)
				if damaged {
					out.Bad[f.Object] = true
				}
				if first == nil || errors.Is(first, context.Canceled) {
					first = err
				}
				mu.Unlock()
				if !damaged {
					stop()
				} // else the others are looked at too: later checkpoints share those that are whole
			}
		})
	}
	for i := range m.Files {
		work <- &m.Files[i]
	}
	close(work)
	wg.Wait()
	for object := range out.Bad {
		if err := p.noteDamaged(whole, object); err != nil {
			// The store is away, or may not be written: this process remembers it (Bad).
			opt.Log.Warn("a damaged file of a checkpoint could not be noted in the store", "object", object, "error", err)
		}
	}
	if first == nil {
		return ctx.Err()
	}
	return first
}

func (p Place) fetchFile(ctx context.Context, m *Manifest, f *File, fs vfs.FS, dir string, buf []byte) error {
	damaged := func(what string) error {
		return fmt.Errorf("%w: checkpoint %s: object %s (%s) %s", ErrDamaged, m.ID(), p.prefix+f.Object, f.Name, what)
	}
	var r io.Reader
	if f.Object != "" {
		obj, err := p.store.Open(ctx, p.prefix+f.Object)
		if errors.Is(err, objstore.ErrNotFound) {
			return damaged("is missing")
		}
		if err != nil {
			return fmt.Errorf("read checkpoint %s: %w", m.ID(), err)
		}
		defer obj.Close()
		if obj.Size() != f.Length {
			return damaged(fmt.Sprintf("has %d bytes, not %d", obj.Size(), f.Length))
		}
		r = io.NewSectionReader(obj, 0, f.Length)
	}
	w, err := fs.Create(fs.PathJoin(dir, f.Name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("restore %s: %w", f.Name, err)
	}
	h := sha256.New()
	n := int64(0)
	if r != nil {
		// The hash first: a file may change the bytes that it is given to write.
		n, err = io.CopyBuffer(plainWriter{io.MultiWriter(h, w)}, plainReader{r}, buf)
	}
	if err == nil {
		err = w.Sync()
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("restore %s of checkpoint %s: %w", f.Name, m.ID(), err)
	}
	if n != f.Length || hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
		return damaged("has other bytes than it had")
	}
	return nil
}

// plainReader keeps CopyBuffer from going around its buffer.
type plainReader struct{ io.Reader }
