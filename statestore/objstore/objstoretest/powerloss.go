package objstoretest

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/statestore/objstore"
)

// Disk is a file system in memory that can lose its power: what was not
// fsynced, bytes of files and entries of folders, may be gone then.
type Disk struct {
	mem *vfs.MemFS

	mu   sync.Mutex
	held map[string]bool
}

// NewDisk makes an empty disk.
func NewDisk() *Disk { return &Disk{mem: vfs.NewCrashableMem(), held: map[string]bool{}} }

// LosePower gives the disk as it may look after a power loss at this moment.
// Each part that was not fsynced survives with a probability of percent, as
// decided by seed: 0 keeps only what was fsynced. 100 is a killed process on a
// machine that stays up: the same disk, with no file held.
func (d *Disk) LosePower(percent int, seed uint64) *Disk {
	if percent >= 100 {
		return &Disk{mem: d.mem, held: map[string]bool{}}
	}
	return &Disk{
		mem: d.mem.CrashClone(vfs.CrashCloneCfg{
			UnsyncedDataPercent: percent,
			RNG:                 rand.New(rand.NewPCG(seed, seed)),
		}),
		held: map[string]bool{},
	}
}

type diskFile struct {
	vfs.File
	d    *Disk
	path string // of a temporary file that is held
}

func (f *diskFile) Stat() (fs.FileInfo, error) {
	info, err := f.File.Stat()
	if err != nil {
		return nil, err
	}
	return info, nil
}

func (f *diskFile) Close() error {
	f.d.mu.Lock()
	delete(f.d.held, f.path)
	f.d.mu.Unlock()
	return f.File.Close()
}

func (d *Disk) CreateTemp(path string) (objstore.File, error) {
	if _, err := d.mem.Stat(path); err == nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	f, err := d.mem.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.held[path] = true
	d.mu.Unlock()
	return &diskFile{File: f, d: d, path: path}, nil
}

func (d *Disk) Open(path string) (objstore.File, error) {
	f, err := d.mem.Open(path)
	if err != nil {
		return nil, err
	}
	return &diskFile{File: f, d: d}, nil
}

func (d *Disk) Stat(path string) (fs.FileInfo, error) {
	info, err := d.mem.Stat(path)
	if err != nil {
		return nil, err
	}
	return info, nil
}

func (d *Disk) ReadDir(path string) ([]fs.DirEntry, error) {
	names, err := d.mem.List(path)
	if err != nil {
		return nil, err
	}
	var entries []fs.DirEntry
	for _, name := range names {
		info, err := d.mem.Stat(d.mem.PathJoin(path, name))
		if err != nil {
			return nil, err
		}
		entries = append(entries, fs.FileInfoToDirEntry(info))
	}
	return entries, nil
}

func (d *Disk) Link(oldPath, newPath string) error   { return d.mem.Link(oldPath, newPath) }
func (d *Disk) Rename(oldPath, newPath string) error { return d.mem.Rename(oldPath, newPath) }
func (d *Disk) Remove(path string) error             { return d.mem.Remove(path) }

func (d *Disk) RemoveAbandoned(path string) (bool, error) {
	d.mu.Lock()
	held := d.held[path]
	d.mu.Unlock()
	if held {
		return false, nil
	}
	return true, d.mem.Remove(path)
}

func (d *Disk) Mkdir(path string) error {
	if _, err := d.mem.Stat(path); err == nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: fs.ErrExist}
	}
	return d.mem.MkdirAll(path, 0o755)
}

func (d *Disk) SyncDir(path string) error {
	f, err := d.mem.OpenDir(path)
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return f.Close()
}
