package objstore

import (
	"context"
	"errors"
	"io"
	"time"
)

// Errors that callers decide on. They are found with errors.Is.
var (
	// ErrNotFound: there is no object of that key.
	ErrNotFound = errors.New("no such object")
	// ErrExists: an object of that key is there, and (except for
	// CreateExclusive) holds other bytes.
	ErrExists = errors.New("the object exists")
	// ErrTooLarge: the object is larger than the caller's limit.
	ErrTooLarge = errors.New("the object is larger than allowed")
	// ErrNoSpace: the disk or quota under a local store is full. Nothing was
	// made; the same call succeeds once there is space.
	ErrNoSpace = errors.New("no space left")
	// ErrSetup: the store refuses us as we are set up: no or wrong credentials,
	// no such bucket, a certificate that is not trusted. Only a person mends it.
	ErrSetup = errors.New("the store's settings")
	// ErrBadKey: the key is not one that this package writes or reads.
	ErrBadKey = errors.New("invalid object key")
)

// Store is one folder of objects: a local folder, or a bucket with a prefix.
// All methods may be called concurrently.
//
// Keys are relative, slash-separated, and never begin or end with a slash.
// Keys that are written consist of [A-Za-z0-9._=/-] (W1); calls that only read
// or delete accept any key that stays inside the store, so that files written
// by other engines can be read.
//
// An error that is none of this package's sentinels leaves open whether the
// effect took place. Every method is safe to repeat; for CreateExclusive the
// repetition may find its own object.
type Store interface {
	// Location is the full Iceberg location of key (W1): file:///abs/…,
	// s3://bucket/prefix/key; without query and without trailing slash. The
	// empty key gives the location of the store itself.
	Location(key string) string
	// Key is the inverse of Location. It is false for a location that does not
	// lie under this store.
	Key(location string) (string, bool)

	// Create makes an object durable, or finds that it already is: nil if the
	// key was free or holds the same bytes (C2), ErrExists if it holds others.
	Create(ctx context.Context, key string, data []byte) error
	// CreateExclusive is Create without the allowance for equal bytes:
	// ErrExists when anything is there.
	CreateExclusive(ctx context.Context, key string, data []byte) error
	// Replace makes key hold data, durably and at once: a reader sees the old
	// bytes or the new ones. It is for the few objects that are not
	// create-only, such as the catalog's version hint.
	Replace(ctx context.Context, key string, data []byte) error
	// Writer begins an object that is too large to hold in memory. Nothing is
	// visible before its Commit. ctx governs the whole write.
	Writer(ctx context.Context, key string) (Writer, error)

	// ReadAll returns the whole object. It reads nothing and returns
	// ErrTooLarge when the object has more than limit bytes.
	ReadAll(ctx context.Context, key string, limit int64) ([]byte, error)
	// Open gives random access. ctx governs the reads as well.
	Open(ctx context.Context, key string) (Object, error)
	// Stat returns size and modification time.
	Stat(ctx context.Context, key string) (Info, error)
	// Delete removes the objects, durably. Keys that do not exist are fine. It
	// stops at the first failure; repeating the call resumes. Many keys in one
	// call share the fsyncs of their folders.
	Delete(ctx context.Context, keys ...string) error
	// List calls fn for each object whose key begins with prefix, in byte
	// order of keys. The prefix is a string and not a folder: "a/b" lists
	// "a/bc". fn may delete what it is given. An error of fn ends the listing
	// and is returned. Objects that come or go meanwhile may be missed.
	List(ctx context.Context, prefix string, fn func(Info) error) error
}

// Writer is an object in the making. Callers defer Abort, which does nothing
// after a successful Commit.
type Writer interface {
	// Write appends. After an error the writer is of use only for Abort.
	io.Writer
	// Commit makes the object durable under its key, with the same result as
	// Store.Create. After an error nothing of the attempt is left, unless the
	// error leaves that open.
	Commit() error
	// Abort gives up; nothing is left.
	Abort() error
}

// Object is an open object. ReadAt may be called concurrently.
type Object interface {
	io.ReaderAt
	io.Closer
	// Size is the object's length in bytes.
	Size() int64
}

// Info describes an object.
type Info struct {
	Key string
	// Size is in bytes.
	Size int64
	// ModTime is the store's idea of when the object was made. It belongs to
	// the store's clock: good for ages in hours, never for order.
	ModTime time.Time
}
