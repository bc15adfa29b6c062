package objstore

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// FileSystem is what a local store asks of a file system, one method a step.
// Paths are absolute. Errors satisfy errors.Is for fs.ErrExist and
// fs.ErrNotExist. It is an interface so that tests can log the steps and make
// each of them fail.
type FileSystem interface {
	// CreateTemp makes a file that must not exist, open for writing and
	// reading, and held against RemoveAbandoned until it is closed.
	CreateTemp(path string) (File, error)
	// Open opens for reading.
	Open(path string) (File, error)
	Stat(path string) (fs.FileInfo, error)
	ReadDir(path string) ([]fs.DirEntry, error)
	// Link gives the file a second name; fs.ErrExist if that is taken.
	Link(oldPath, newPath string) error
	// Rename replaces what has the new name.
	Rename(oldPath, newPath string) error
	Remove(path string) error
	// RemoveAbandoned removes a file of CreateTemp, unless a living process
	// holds it; it tells whether it did.
	RemoveAbandoned(path string) (bool, error)
	Mkdir(path string) error
	// SyncDir makes the entries of a folder durable.
	SyncDir(path string) error
}

// File is an open file of a FileSystem.
type File interface {
	io.Writer
	io.ReaderAt
	io.Closer
	Sync() error
	Stat() (fs.FileInfo, error)
}

// osFS is the operating system's file system.
type osFS struct{}

// OSFileSystem is the operating system's file system, for tests that wrap it.
func OSFileSystem() FileSystem { return osFS{} }

func (osFS) CreateTemp(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	if err := hold(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (osFS) Open(path string) (File, error)             { return os.Open(path) }
func (osFS) Stat(path string) (fs.FileInfo, error)      { return os.Stat(path) }
func (osFS) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }
func (osFS) Link(oldPath, newPath string) error         { return os.Link(oldPath, newPath) }
func (osFS) Rename(oldPath, newPath string) error       { return os.Rename(oldPath, newPath) }
func (osFS) Remove(path string) error                   { return os.Remove(path) }
func (osFS) Mkdir(path string) error                    { return os.Mkdir(path, 0o755) }

func (osFS) RemoveAbandoned(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // Read only: closing loses nothing.
	if !tryHold(f) {
		return false, nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, nil
}

func (osFS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
