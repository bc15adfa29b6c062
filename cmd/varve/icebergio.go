package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"time"

	icebergio "github.com/apache/iceberg-go/io"

	"github.com/varve-io/varve/statestore/objstore"
)

// storeIO lets iceberg-go read the files of a lake through our store, so that
// a scan needs no second set of credentials. What the bytes mean stays its own
// judgement. It writes nothing.
type storeIO struct {
	ctx   context.Context
	store objstore.Store
}

func (s storeIO) Open(name string) (icebergio.File, error) {
	fail := func(err error) (icebergio.File, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	key, ok := s.store.Key(name)
	if !ok {
		return fail(fs.ErrInvalid)
	}
	o, err := s.store.Open(s.ctx, key)
	if errors.Is(err, objstore.ErrNotFound) {
		return fail(fs.ErrNotExist)
	}
	if err != nil {
		return fail(err)
	}
	return &storeFile{SectionReader: io.NewSectionReader(o, 0, o.Size()), o: o, name: name}, nil
}

func (s storeIO) Remove(name string) error {
	return &fs.PathError{Op: "remove", Path: name, Err: errors.New("the lake is open for reading only")}
}

type storeFile struct {
	*io.SectionReader
	o    objstore.Object
	name string
}

func (f *storeFile) Close() error               { return f.o.Close() }
func (f *storeFile) Stat() (fs.FileInfo, error) { return f, nil }
func (f *storeFile) Name() string               { return path.Base(f.name) }
func (f *storeFile) Mode() fs.FileMode          { return 0o444 }
func (f *storeFile) ModTime() time.Time         { return time.Time{} }
func (f *storeFile) IsDir() bool                { return false }
func (f *storeFile) Sys() any                   { return nil }
