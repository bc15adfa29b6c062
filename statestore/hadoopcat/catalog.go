package hadoopcat

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/varve-io/varve/statestore/objstore"
)

// Errors that callers decide on.
var (
	// ErrConflict: the version is there with other bytes, or is not the one
	// that follows the newest. Read Current again and rebuild on it.
	ErrConflict = errors.New("the table has another version")
	// ErrHint: the version is committed, but version-hint.text could not be
	// brought up to it. Repeating Commit with the same bytes, or Repair,
	// does that.
	ErrHint = errors.New("the version is committed, its version hint is not written")
	// ErrInUse: the version may not be deleted.
	ErrInUse = errors.New("the metadata version is in use")
)

// MaxMetadataSize bounds a metadata file in bytes, also after decompression.
const MaxMetadataSize = 256 << 20

// maxHintSize is more than the digits of any version.
const maxHintSize = 64

// Catalog is the embedded catalog's files in one store. A table is named by
// the key of its folder: "<namespace>/<table>".
type Catalog struct {
	store objstore.Store
}

// New makes a catalog on a store. It reads nothing.
func New(store objstore.Store) *Catalog { return &Catalog{store: store} }

// Commit makes version n of a table durable and points the hint to it. The
// first version is 1, and each other needs the one before it.
//
// The same bytes already there are a success: a repeated Commit ends like the
// first. ErrConflict: somebody else's version stands. ErrHint: committed, the
// hint is behind. Any other error leaves open whether the version is
// committed; repeat Commit with the same bytes to learn it.
func (c *Catalog) Commit(ctx context.Context, tableKey string, n int, json []byte) error {
	if n < 1 {
		return fmt.Errorf("hadoopcat: commit version %d of %s: versions begin at 1", n, tableKey)
	}
	done, err := c.mayCommit(ctx, tableKey, n, json)
	if err != nil {
		return fmt.Errorf("hadoopcat: commit version %d of %s: %w", n, tableKey, err)
	}
	if !done {
		err := c.store.Create(ctx, versionKey(tableKey, n), json)
		if errors.Is(err, objstore.ErrExists) {
			return fmt.Errorf("hadoopcat: commit version %d of %s: %w (%w)", n, tableKey, ErrConflict, err)
		}
		if err != nil {
			return fmt.Errorf("hadoopcat: commit version %d of %s: %w", n, tableKey, err)
		}
		if err := c.checkPlace(ctx, tableKey, n); err != nil {
			return fmt.Errorf("hadoopcat: commit version %d of %s: %w", n, tableKey, err)
		}
	}
	if err := c.writeHint(ctx, tableKey, n); err != nil {
		return fmt.Errorf("hadoopcat: commit version %d of %s: %w: %w", n, tableKey, ErrHint, err)
	}
	return nil
}

// mayCommit tells whether n follows the newest version, or is already there
// with these bytes. In the common case it takes two look-ups and no listing.
func (c *Catalog) mayCommit(ctx context.Context, tableKey string, n int, json []byte) (done bool, err error) {
	if before, err := c.exists(ctx, versionKey(tableKey, n-1)); err != nil {
		return false, err
	} else if before {
		if foreign, err := c.exists(ctx, gzipKey(tableKey, n)); err != nil || !foreign {
			return false, err
		}
	}
	versions, err := c.list(ctx, tableKey)
	if err != nil {
		return false, err
	}
	if i := slices.IndexFunc(versions, func(v version) bool { return v.n == n }); i >= 0 {
		if versions[i].key != versionKey(tableKey, n) {
			return false, fmt.Errorf("%w: %s is there, of another writer", ErrConflict, versions[i].key)
		}
		err := c.store.Create(ctx, versions[i].key, json)
		if errors.Is(err, objstore.ErrExists) {
			err = fmt.Errorf("%w (%w)", ErrConflict, err)
		}
		return err == nil, err
	}
	if newest := newestOf(versions); n != newest+1 {
		return false, fmt.Errorf("%w: the newest is %d", ErrConflict, newest)
	}
	return false, nil
}

// checkPlace finds out, after version n was created, that it was not an old
// one: between the check and the creation this process may have slept so long
// that others committed n, went on, and deleted it. Then n-1 is deleted too,
// because the oldest goes first.
func (c *Catalog) checkPlace(ctx context.Context, tableKey string, n int) error {
	if before, err := c.exists(ctx, versionKey(tableKey, n-1)); err != nil || before {
		return err
	}
	versions, err := c.list(ctx, tableKey)
	if err != nil {
		return err
	}
	newest := newestOf(versions)
	i := slices.IndexFunc(versions, func(v version) bool { return v.n == n })
	switch {
	case newest == n:
		return nil
	case i > 0 && versions[i-1].n == n-1:
		// A compressed one, or made visible late by a store that lists late.
		return nil
	case i < 0:
		return fmt.Errorf("%w: the newest is %d, and version %d has been deleted", ErrConflict, newest, n)
	case n == 1 && versions[1].n == 2:
		// A first version has none before it to ask. Should it be an old one,
		// it is a file too many and nothing else: the hint does not go back.
		return nil
	}
	err = fmt.Errorf("%w: the newest is %d, and version %d had been deleted", ErrConflict, newest, n)
	return errors.Join(err, c.store.Delete(ctx, versionKey(tableKey, n)))
}

func (c *Catalog) exists(ctx context.Context, key string) (bool, error) {
	_, err := c.store.Stat(ctx, key)
	if errors.Is(err, objstore.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Current finds the newest version: its number and the key of its file. It
// trusts the files and not the hint. ok is false for a table without versions.
// It lists the files of the metadata folder that begin with "v".
func (c *Catalog) Current(ctx context.Context, tableKey string) (n int, key string, ok bool, err error) {
	versions, err := c.list(ctx, tableKey)
	if err != nil {
		return 0, "", false, fmt.Errorf("hadoopcat: current version of %s: %w", tableKey, err)
	}
	if len(versions) == 0 {
		return 0, "", false, nil
	}
	v := versions[len(versions)-1]
	return v.n, v.key, true, nil
}

// Published finds the version that the hint points to, and the key of its file,
// with two look-ups and no listing. A writer moves the hint only when the
// version is durable, so that is true of what is found; it may be the version
// before the newest for a moment, and after a crash until Repair. Where the
// hint is of no use it is the newest version. ok is false for a table without
// versions.
func (c *Catalog) Published(ctx context.Context, tableKey string) (n int, key string, ok bool, err error) {
	if n, _, err = c.readHint(ctx, tableKey); err != nil {
		return 0, "", false, fmt.Errorf("hadoopcat: published version of %s: %w", tableKey, err)
	}
	if n > 0 {
		there, err := c.exists(ctx, versionKey(tableKey, n))
		if err != nil {
			return 0, "", false, fmt.Errorf("hadoopcat: published version of %s: %w", tableKey, err)
		}
		if there {
			return n, versionKey(tableKey, n), true, nil
		}
	}
	return c.Current(ctx, tableKey)
}

// Versions lists the numbers of all versions, ascending.
func (c *Catalog) Versions(ctx context.Context, tableKey string) ([]int, error) {
	versions, err := c.list(ctx, tableKey)
	if err != nil {
		return nil, fmt.Errorf("hadoopcat: versions of %s: %w", tableKey, err)
	}
	var numbers []int
	for _, v := range versions {
		numbers = append(numbers, v.n)
	}
	return numbers, nil
}

// Load reads the metadata of version n, also where another engine has written
// it compressed. objstore.ErrNotFound if there is none, objstore.ErrTooLarge
// above MaxMetadataSize.
func (c *Catalog) Load(ctx context.Context, tableKey string, n int) ([]byte, error) {
	data, err := c.store.ReadAll(ctx, versionKey(tableKey, n), MaxMetadataSize)
	if errors.Is(err, objstore.ErrNotFound) {
		packed, gzErr := c.store.ReadAll(ctx, gzipKey(tableKey, n), MaxMetadataSize)
		if !errors.Is(gzErr, objstore.ErrNotFound) {
			if err = gzErr; err == nil {
				data, err = gunzip(packed)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("hadoopcat: load version %d of %s: %w", n, tableKey, err)
	}
	return data, nil
}

func gunzip(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, MaxMetadataSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxMetadataSize {
		return nil, fmt.Errorf("%w: over %d bytes when decompressed", objstore.ErrTooLarge, MaxMetadataSize)
	}
	return data, nil
}

// Repair points the hint to the newest version if it does not point there. A
// hint without any version is removed. Nodes call it when they start, and
// after ErrHint.
func (c *Catalog) Repair(ctx context.Context, tableKey string) error {
	n, _, ok, err := c.Current(ctx, tableKey)
	if err != nil {
		return err
	}
	hint, hinted, err := c.readHint(ctx, tableKey)
	if err == nil {
		switch {
		case ok && hint != n:
			err = c.writeHint(ctx, tableKey, n)
		case !ok && hinted:
			err = c.store.Delete(ctx, hintKey(tableKey))
		}
	}
	if err != nil {
		return fmt.Errorf("hadoopcat: repair the version hint of %s: %w", tableKey, err)
	}
	return nil
}

// DeleteVersion removes the metadata file of version n; one that is not there
// is fine. ErrInUse for the newest version, and for one that has an older
// version beside it: the oldest goes first.
func (c *Catalog) DeleteVersion(ctx context.Context, tableKey string, n int) error {
	if err := c.deleteVersion(ctx, tableKey, n); err != nil {
		return fmt.Errorf("hadoopcat: delete version %d of %s: %w", n, tableKey, err)
	}
	return nil
}

func (c *Catalog) deleteVersion(ctx context.Context, tableKey string, n int) error {
	versions, err := c.list(ctx, tableKey)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(versions, func(v version) bool { return v.n == n })
	switch {
	case i < 0:
		return nil
	case i == len(versions)-1:
		return fmt.Errorf("%w: it is the newest", ErrInUse)
	case i > 0:
		return fmt.Errorf("%w: delete version %d first", ErrInUse, versions[0].n)
	}
	// A crash between a commit and its hint may have left the hint here.
	hint, _, err := c.readHint(ctx, tableKey)
	if err != nil {
		return err
	}
	if hint <= n {
		if err := c.writeHint(ctx, tableKey, versions[len(versions)-1].n); err != nil {
			return err
		}
	}
	return c.store.Delete(ctx, versions[i].key)
}

// Prune deletes, oldest first, each version n of which version n+keep+1 was
// made before the given time: it is out of a metadata log of keep entries since
// then. It takes one listing, and tells how many versions it deleted.
func (c *Catalog) Prune(ctx context.Context, tableKey string, keep int, before time.Time) (int, error) {
	n, err := c.prune(ctx, tableKey, keep, before)
	if err != nil {
		return 0, fmt.Errorf("hadoopcat: prune versions of %s: %w", tableKey, err)
	}
	return n, nil
}

func (c *Catalog) prune(ctx context.Context, tableKey string, keep int, before time.Time) (int, error) {
	versions, err := c.list(ctx, tableKey)
	if err != nil {
		return 0, err
	}
	made := make(map[int]time.Time, len(versions))
	for _, v := range versions {
		made[v.n] = v.made
	}
	var keys []string
	for _, v := range versions {
		if t := made[v.n+keep+1]; t.IsZero() || !t.Before(before) { // zero: not there, or its age is not known
			break
		}
		keys = append(keys, v.key)
	}
	if keep < 0 || len(keys) == 0 {
		return 0, nil
	}
	hint, _, err := c.readHint(ctx, tableKey)
	if err != nil {
		return 0, err
	}
	if hint <= versions[len(keys)-1].n {
		if err := c.writeHint(ctx, tableKey, newestOf(versions)); err != nil {
			return 0, err
		}
	}
	return len(keys), c.store.Delete(ctx, keys...)
}

// version is one metadata file.
type version struct {
	n    int
	key  string
	made time.Time
}

// newestOf is 0 without versions.
func newestOf(versions []version) int {
	if len(versions) == 0 {
		return 0
	}
	return versions[len(versions)-1].n
}

// list finds the versions, ascending. Where one number has a plain and a
// compressed file the plain one counts.
func (c *Catalog) list(ctx context.Context, tableKey string) ([]version, error) {
	dir := tableKey + folder
	found := map[int]version{}
	err := c.store.List(ctx, dir+versionStart, func(i objstore.Info) error {
		n, ok := parseVersion(strings.TrimPrefix(i.Key, dir))
		if ok && (found[n].key == "" || i.Key == versionKey(tableKey, n)) {
			found[n] = version{n: n, key: i.Key, made: i.ModTime}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	versions := make([]version, 0, len(found))
	for _, v := range found {
		versions = append(versions, v)
	}
	slices.SortFunc(versions, func(a, b version) int { return a.n - b.n })
	return versions, nil
}

// readHint reads the hint as a reader would. Anything but a bare number is 0:
// it must be written anew (W2).
func (c *Catalog) readHint(ctx context.Context, tableKey string) (n int, there bool, err error) {
	data, err := c.store.ReadAll(ctx, hintKey(tableKey), maxHintSize)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return 0, false, nil
	case errors.Is(err, objstore.ErrTooLarge):
		return 0, true, nil
	case err != nil:
		return 0, false, err
	}
	n, _ = parseNumber(string(data))
	return n, true, nil
}

// writeHint points the hint to version n, or to a later one that is there once
// it is written: a slower writer of an older version must not have the last
// word.
func (c *Catalog) writeHint(ctx context.Context, tableKey string, n int) error {
	for {
		later, err := c.newestFrom(ctx, tableKey, n)
		if err != nil {
			return err
		}
		if err := c.store.Replace(ctx, hintKey(tableKey), []byte(strconv.Itoa(later))); err != nil {
			return err
		}
		if n, err = c.newestFrom(ctx, tableKey, later); err != nil || n == later {
			return err
		}
	}
}

// newestFrom finds the newest version without a listing, by following the
// versions after n. Only when n itself has been deleted must it list. It asks
// for n after n+1: n there means that n+1 was not deleted before.
func (c *Catalog) newestFrom(ctx context.Context, tableKey string, n int) (int, error) {
	for {
		after, err := c.exists(ctx, versionKey(tableKey, n+1))
		if err != nil {
			return 0, err
		}
		if after {
			n++
			continue
		}
		there, err := c.exists(ctx, versionKey(tableKey, n))
		if err != nil || there {
			return n, err
		}
		versions, err := c.list(ctx, tableKey)
		if err != nil {
			return 0, err
		}
		return max(n, newestOf(versions)), nil
	}
}
