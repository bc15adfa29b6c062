package objstore

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Opener opens the store of a URL whose scheme it was registered for. location
// is the caller's choice of Iceberg location, or empty for the scheme's own.
type Opener func(ctx context.Context, u *url.URL, location string) (Store, error)

var (
	openersMu sync.Mutex
	openers   = map[string]Opener{}
)

// Register makes a scheme known to Open. Driver packages call it when they are
// imported, so that a program compiles only the drivers that it names. A
// scheme registered twice is a programmer's error and panics.
func Register(scheme string, open Opener) {
	openersMu.Lock()
	defer openersMu.Unlock()
	if _, ok := openers[scheme]; ok || scheme == "file" {
		panic("objstore: scheme " + scheme + " is registered twice")
	}
	openers[scheme] = open
}

// Option changes how Open or NewMem makes a store.
type Option interface{ apply(*options) }

type options struct {
	location string
	keepTemp bool
	fs       FileSystem
}

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// WithLocation sets the Iceberg location under which readers find the store's
// objects, where that is not the store's own URL: a bucket behind a gateway,
// or a folder mounted elsewhere. Default: derived from the URL. A wrong one
// makes tables that nobody can read.
func WithLocation(location string) Option {
	return optionFunc(func(o *options) { o.location = location })
}

// KeepTemporaries leaves temporary files of dead processes alone. Default:
// Open of a local folder walks it and removes them. Programs that only look at
// a store want this: it saves the walk.
func KeepTemporaries() Option {
	return optionFunc(func(o *options) { o.keepTemp = true })
}

// WithFileSystem puts a local store on another file system: tests use it to
// log its steps and to make them fail. Default: the operating system's.
func WithFileSystem(fs FileSystem) Option {
	return optionFunc(func(o *options) { o.fs = fs })
}

// Open opens a store by URL: a path or file:///path for a local folder, or a
// scheme that a driver package has registered, for example
// s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=us-east-1.
//
// A folder that does not exist is made by the first write.
func Open(ctx context.Context, storeURL string, opts ...Option) (Store, error) {
	var o options
	for _, opt := range opts {
		opt.apply(&o)
	}
	if rest, ok := strings.CutPrefix(storeURL, "file:"); ok {
		// Taken as it is written, without unescaping: so are locations.
		path := strings.TrimPrefix(rest, "//")
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("%w: %s has no absolute path; write file:///folder, or the path alone", ErrSetup, storeURL)
		}
		return openLocal(ctx, path, o)
	}
	if !strings.Contains(storeURL, "://") {
		return openLocal(ctx, storeURL, o)
	}
	u, err := url.Parse(storeURL)
	if err != nil {
		// The error of url.Parse repeats the URL, which may hold credentials.
		return nil, fmt.Errorf("objstore: a store's URL cannot be parsed; write it as a path, file:///folder or scheme://bucket/prefix")
	}
	openersMu.Lock()
	open, ok := openers[u.Scheme]
	schemes := []string{"file"}
	for s := range openers {
		schemes = append(schemes, s)
	}
	openersMu.Unlock()
	if !ok {
		slices.Sort(schemes)
		return nil, fmt.Errorf("objstore: this program has no store for scheme %q; it has %s", u.Scheme, strings.Join(schemes, ", "))
	}
	return open(ctx, u, o.location)
}
