package objstore

import (
	"context"
	"fmt"
	"strings"
)

// FolderLister is a Store that finds the folders at a place without visiting
// the objects in them.
type FolderLister interface {
	// Folders calls fn with the name of each folder directly under the folder
	// dir (empty: the store itself), once, in no order, without slashes. An
	// error of fn ends the listing and is returned.
	Folders(ctx context.Context, dir string, fn func(name string) error) error
}

// Folders calls fn with the name of each folder directly under dir, as
// FolderLister says. A folder without objects may be named or not. On a store
// that is no FolderLister it visits every object under dir.
func Folders(ctx context.Context, s Store, dir string, fn func(name string) error) error {
	if l, ok := s.(FolderLister); ok {
		return l.Folders(ctx, dir, fn)
	}
	prefix := ""
	if dir != "" {
		prefix = dir + "/"
	}
	last := "" // objects of a folder come one after another
	return s.List(ctx, prefix, func(i Info) error {
		name, _, ok := strings.Cut(strings.TrimPrefix(i.Key, prefix), "/")
		if !ok || name == last {
			return nil
		}
		last = name
		return fn(name)
	})
}

func (l *local) Folders(ctx context.Context, dir string, fn func(name string) error) error {
	if dir != "" {
		if err := CheckReadKey(dir); err != nil {
			return fmt.Errorf("objstore: folders: %w", err)
		}
	}
	entries, err := l.fs.ReadDir(l.path(dir))
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("objstore: folders of %s: %w", l.path(dir), err)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("objstore: folders of %s: %w", l.path(dir), err)
		}
		if !e.IsDir() || CheckReadKey(e.Name()) != nil {
			continue
		}
		if err := fn(e.Name()); err != nil {
			return err
		}
	}
	return nil
}
