package objstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

func (l *local) List(ctx context.Context, prefix string, fn func(Info) error) error {
	if err := CheckPrefix(prefix); err != nil {
		return fmt.Errorf("objstore: list: %w", err)
	}
	// The folder part of the prefix is where the walk begins.
	dir := ""
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		dir = prefix[:i]
	}
	return l.walk(ctx, dir, prefix, fn)
}

// walk visits a folder in the order of keys: a folder "a" sorts as "a/", which
// is behind "a-" and "a.".
func (l *local) walk(ctx context.Context, dir, prefix string, fn func(Info) error) error {
	entries, err := l.fs.ReadDir(l.path(dir))
	if err != nil {
		if isNotExist(err) {
			return nil
		}
		return fmt.Errorf("objstore: list %s: %w", l.path(dir), err)
	}
	type child struct {
		key   string // folders end in a slash
		entry fs.DirEntry
	}
	var children []child
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		c := child{key: e.Name(), entry: e}
		if dir != "" {
			c.key = dir + "/" + c.key
		}
		if e.IsDir() {
			c.key += "/"
		}
		// Files need the whole prefix; folders may still be on the way to it.
		if strings.HasPrefix(c.key, prefix) || e.IsDir() && strings.HasPrefix(prefix, c.key) {
			children = append(children, c)
		}
	}
	slices.SortFunc(children, func(a, b child) int { return strings.Compare(a.key, b.key) })
	for _, c := range children {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("objstore: list %s: %w", l.path(dir), err)
		}
		if c.entry.IsDir() {
			if err := l.walk(ctx, strings.TrimSuffix(c.key, "/"), prefix, fn); err != nil {
				return err
			}
			continue
		}
		if !c.entry.Type().IsRegular() || CheckReadKey(c.key) != nil {
			continue // Nothing that a call here could name.
		}
		info, err := c.entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("objstore: list %s: %w", l.path(c.key), err)
		}
		if err := fn(Info{Key: c.key, Size: info.Size(), ModTime: info.ModTime()}); err != nil {
			return err
		}
	}
	return nil
}

// removeAbandoned removes the temporary files of dead processes.
func (l *local) removeAbandoned(ctx context.Context) error {
	dirs := []string{l.root}
	for len(dirs) > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("objstore: open %s: %w", l.root, err)
		}
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		entries, err := l.fs.ReadDir(dir)
		if isNotExist(err) || errors.Is(err, fs.ErrPermission) {
			// A folder that we may not read, such as lost+found, holds no file
			// of ours.
			continue
		}
		if err != nil {
			return fmt.Errorf("objstore: open %s: %w", dir, err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch {
			case e.IsDir():
				dirs = append(dirs, path)
			case e.Type().IsRegular() && strings.HasPrefix(e.Name(), tempPrefix):
				if _, err := l.fs.RemoveAbandoned(path); err != nil {
					return fmt.Errorf("objstore: remove temporary file %s: %w", path, err)
				}
			}
		}
	}
	return nil
}
