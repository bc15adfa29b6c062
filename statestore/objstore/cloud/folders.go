package cloud

import (
	"context"
	"fmt"
	"io"
	"strings"

	"gocloud.dev/blob"

	"github.com/varve-io/varve/statestore/objstore"
)

var _ objstore.FolderLister = (*store)(nil)

// Folders lists with a delimiter: the provider names each folder once, however
// many objects are in it.
func (s *store) Folders(ctx context.Context, dir string, fn func(name string) error) error {
	prefix := s.prefix
	if dir != "" {
		if err := objstore.CheckReadKey(dir); err != nil {
			return fmt.Errorf("objstore: folders: %w", err)
		}
		prefix += dir + "/"
	}
	it := s.c.Bucket.List(&blob.ListOptions{Prefix: prefix, Delimiter: "/"})
	for {
		if err := ctx.Err(); err != nil {
			return s.wrap("folders of", dir, err)
		}
		o, err := it.Next(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("objstore: folders of %s: %w", s.Location(dir), err)
		}
		name, ok := strings.CutPrefix(o.Key, prefix)
		if name = strings.TrimSuffix(name, "/"); !o.IsDir || !ok || objstore.CheckReadKey(name) != nil || strings.Contains(name, "/") {
			continue
		}
		if err := fn(name); err != nil {
			return err
		}
	}
}
