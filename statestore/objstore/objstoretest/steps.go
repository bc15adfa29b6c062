package objstoretest

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/varve-io/varve/statestore/objstore"
)

// ErrCrashed is the error of every step from the crash on.
var ErrCrashed = errors.New("the process has crashed")

// Steps is a file system that writes down each step which changes something,
// and can fail one of them or crash at it. Reads are not steps; they fail
// after a crash. Paths are logged relative to a root, temporary names as
// ".varve-tmp-*".
type Steps struct {
	fs   objstore.FileSystem
	root string

	mu      sync.Mutex
	log     []string
	failAt  int // counted down by steps; 0: never
	failErr error
	crash   bool
	crashed bool
}

// NewSteps wraps a file system. Paths are logged relative to root.
func NewSteps(inner objstore.FileSystem, root string) *Steps { return &Steps{fs: inner, root: root} }

// FailAt makes the n-th step from now (from 1) fail with err, without its
// effect; a failing write has written half. Later steps work.
func (s *Steps) FailAt(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failAt, s.failErr, s.crash = n, err, false
}

// CrashAt makes the n-th step from now (from 1) and everything after it fail
// with ErrCrashed, without effect; a write has written half.
func (s *Steps) CrashAt(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failAt, s.failErr, s.crash = n, ErrCrashed, true
}

// Take returns the steps since the last Take.
func (s *Steps) Take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

var tempName = regexp.MustCompile(`\.varve-tmp-[A-Z0-9]+`)

func (s *Steps) rel(path string) string {
	if r, err := filepath.Rel(s.root, path); err == nil {
		path = filepath.ToSlash(r)
	}
	return tempName.ReplaceAllString(path, ".varve-tmp-*")
}

// step logs a step and decides whether it fails.
func (s *Steps) step(format string, paths ...string) error {
	args := make([]any, len(paths))
	for i, p := range paths {
		args[i] = s.rel(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed {
		return ErrCrashed
	}
	line := fmt.Sprintf(format, args...)
	if s.failAt > 0 {
		s.failAt--
		if s.failAt == 0 {
			s.crashed = s.crash
			s.log = append(s.log, line+" -> "+s.failErr.Error())
			return &fs.PathError{Op: strings.Fields(line)[0], Path: paths[0], Err: s.failErr}
		}
	}
	s.log = append(s.log, line)
	return nil
}

// read is what reads pass through.
func (s *Steps) read() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed {
		return ErrCrashed
	}
	return nil
}

func (s *Steps) CreateTemp(path string) (objstore.File, error) {
	if err := s.step("create %s", path); err != nil {
		return nil, err
	}
	return s.file(path)(s.fs.CreateTemp(path))
}

func (s *Steps) Open(path string) (objstore.File, error) {
	if err := s.read(); err != nil {
		return nil, err
	}
	return s.file(path)(s.fs.Open(path))
}

func (s *Steps) file(path string) func(objstore.File, error) (objstore.File, error) {
	return func(f objstore.File, err error) (objstore.File, error) {
		if err != nil {
			return nil, err
		}
		return &stepFile{File: f, s: s, path: path}, nil
	}
}

func (s *Steps) Stat(path string) (fs.FileInfo, error) {
	if err := s.read(); err != nil {
		return nil, err
	}
	return s.fs.Stat(path)
}

func (s *Steps) ReadDir(path string) ([]fs.DirEntry, error) {
	if err := s.read(); err != nil {
		return nil, err
	}
	return s.fs.ReadDir(path)
}

func (s *Steps) Link(oldPath, newPath string) error {
	if err := s.step("link %s to %s", oldPath, newPath); err != nil {
		return err
	}
	return s.fs.Link(oldPath, newPath)
}

func (s *Steps) Rename(oldPath, newPath string) error {
	if err := s.step("rename %s to %s", oldPath, newPath); err != nil {
		return err
	}
	return s.fs.Rename(oldPath, newPath)
}

func (s *Steps) Remove(path string) error {
	if err := s.step("remove %s", path); err != nil {
		return err
	}
	return s.fs.Remove(path)
}

func (s *Steps) RemoveAbandoned(path string) (bool, error) {
	if err := s.step("remove-abandoned %s", path); err != nil {
		return false, err
	}
	return s.fs.RemoveAbandoned(path)
}

func (s *Steps) Mkdir(path string) error {
	if err := s.step("mkdir %s", path); err != nil {
		return err
	}
	return s.fs.Mkdir(path)
}

func (s *Steps) SyncDir(path string) error {
	if err := s.step("sync-dir %s", path); err != nil {
		return err
	}
	return s.fs.SyncDir(path)
}

type stepFile struct {
	objstore.File
	s    *Steps
	path string
}

func (f *stepFile) Write(p []byte) (int, error) {
	err := f.s.step(fmt.Sprintf("write %%s %d bytes", len(p)), f.path)
	if err == nil {
		return f.File.Write(p)
	}
	// Only the step that fails writes half; after a crash nothing is written.
	n := 0
	if err != ErrCrashed {
		n, _ = f.File.Write(p[:len(p)/2])
	}
	return n, err
}

func (f *stepFile) Sync() error {
	if err := f.s.step("sync %s", f.path); err != nil {
		return err
	}
	return f.File.Sync()
}

// Close is no step: it makes nothing durable, and a process that dies closes
// its files as well.
func (f *stepFile) Close() error { return f.File.Close() }
