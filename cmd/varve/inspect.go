package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/statestore/objstore"
)

func (a *app) inspectCommand() *cobra.Command {
	return group("inspect", "Show what a file of an Iceberg table holds, whoever wrote it",
		"  varve inspect metadata varve-data/lake/shop/orders/metadata/v3.metadata.json\n"+
			"  varve inspect puffin s3://bucket/lake/shop/orders/metadata/x.puffin?region=eu-west-1",
		a.inspectMetadataCommand(), a.inspectManifestCommand(), a.inspectPuffinCommand(), a.inspectDVCommand(), a.inspectParquetCommand())
}

const pathHelp = "PATH is a file of this machine, a file:// location, or an object of a store\n(s3://bucket/key?region=…)."

// openPath opens a file for reading at any place.
func openPath(ctx context.Context, name string) (objstore.Object, error) {
	if p, local := localFolder(name); local {
		return openLocalFile(p)
	}
	address, query, _ := strings.Cut(name, "?")
	if query != "" {
		query = "?" + query
	}
	dir, base := path.Split(address)
	if base == "" || strings.HasSuffix(dir, "://") {
		return nil, usagef("%s names no object; write it as s3://bucket/folder/file", address)
	}
	store, err := objstore.Open(ctx, strings.TrimSuffix(dir, "/")+query, objstore.KeepTemporaries())
	if err != nil {
		return nil, err
	}
	o, err := store.Open(ctx, base)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, fmt.Errorf("there is no object %s; the name is case-sensitive", address)
	}
	return o, err
}

type localFile struct {
	*os.File
	size int64
}

func (f *localFile) Size() int64 { return f.size }

func openLocalFile(p string) (objstore.Object, error) {
	f, err := os.Open(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s", p)
	}
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", p)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &localFile{f, st.Size()}, nil
}

// withPath opens a file for fn, and says which file fn's error is about.
func withPath(ctx context.Context, name string, fn func(o objstore.Object) error) error {
	o, err := openPath(ctx, name)
	if err != nil {
		return err
	}
	if err := fn(o); err != nil {
		plain, _, _ := strings.Cut(name, "?")
		return errors.Join(fmt.Errorf("%s: %w", plain, err), o.Close())
	}
	return o.Close()
}

// readPath reads a whole file of at most limit bytes.
func readPath(ctx context.Context, name string, limit int64) (b []byte, err error) {
	err = withPath(ctx, name, func(o objstore.Object) error {
		b, err = readObject(o, limit)
		return err
	})
	return b, err
}

func readObject(o objstore.Object, limit int64) ([]byte, error) {
	if o.Size() > limit {
		return nil, fmt.Errorf("the file has %d bytes, more than the %d that are read at once", o.Size(), limit)
	}
	b := make([]byte, o.Size())
	if _, err := io.ReadFull(io.NewSectionReader(o, 0, o.Size()), b); err != nil {
		return nil, fmt.Errorf("read %d bytes: %w", len(b), err)
	}
	return b, nil
}
