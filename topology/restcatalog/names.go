package restcatalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/statestore/objstore"
)

const (
	// separator stands between the levels of a namespace in a path, as %1F.
	separator = "\x1f"
	// maxNames bounds the namespaces, and the tables of one, that are listed.
	maxNames = 100_000
	// lookups is how many folders are looked at at a time.
	lookups = 16
	// placedFor is how long an answer of Options.Placed is used.
	placedFor = time.Second
)

// errTooMany: a warehouse is too large to be listed.
var errTooMany = fmt.Errorf("more than %d names", maxNames)

// namespaceOf is the folder of a namespace given by its levels, false when no
// namespace can have that name.
func namespaceOf(levels []string) (string, bool) {
	for _, l := range levels {
		if strings.Contains(l, ".") {
			return "", false
		}
	}
	folder := strings.Join(levels, ".")
	return folder, len(levels) > 0 && schemas.CheckTableName(folder) == nil
}

// tableOf is the full name of a table, false when no table can have it.
func tableOf(namespace, table string) (string, bool) {
	name := namespace + "." + table
	return name, !strings.Contains(table, ".") && schemas.CheckTableName(name) == nil
}

// folders is the folders at a place that may be namespaces or tables, sorted.
func (c *Catalog) folders(ctx context.Context, dir string, may func(name string) bool) ([]string, error) {
	var out []string
	err := objstore.Folders(ctx, c.store, dir, func(name string) error {
		if !may(name) {
			return nil
		}
		if len(out) == maxNames {
			return errTooMany
		}
		out = append(out, name)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(out)
	return out, nil
}

func (c *Catalog) namespaceFolders(ctx context.Context) ([]string, error) {
	return c.folders(ctx, "", func(name string) bool { return schemas.CheckTableName(name) == nil })
}

// children is the namespaces directly below one ("": the top), each with all
// its levels, sorted; found tells whether parent exists.
func (c *Catalog) children(ctx context.Context, parent string) (out [][]string, found bool, err error) {
	all, err := c.namespaceFolders(ctx)
	if err != nil {
		return nil, false, err
	}
	found = parent == ""
	depth := 1
	if parent != "" {
		depth += strings.Count(parent, ".") + 1
	}
	for _, folder := range all {
		if parent != "" && !within(folder, parent) {
			continue
		}
		found = true
		if levels := strings.Split(folder, "."); len(levels) >= depth {
			out = append(out, levels[:depth])
		}
	}
	slices.SortFunc(out, slices.Compare)
	return slices.CompactFunc(out, slices.Equal), found, nil
}

// within tells whether a namespace is another or lies below it.
func within(folder, parent string) bool {
	return folder == parent || strings.HasPrefix(folder, parent+".")
}

// namespaceExists also finds one that only has others below it.
func (c *Catalog) namespaceExists(ctx context.Context, folder string) (bool, error) {
	all, err := c.namespaceFolders(ctx)
	return slices.ContainsFunc(all, func(f string) bool { return within(f, folder) }), err
}

// key is the folder of a table.
func (c *Catalog) key(ctx context.Context, namespace, table string) (string, error) {
	name, _ := tableOf(namespace, table)
	places, err := c.placed(ctx)
	if err != nil {
		return "", err
	}
	plain := namespace + "/" + table
	if key, ok := places[name]; ok {
		return key, nil
	}
	for _, key := range places {
		if key == plain {
			return "", nil // it goes by another name
		}
	}
	return plain, nil
}

// tables is the names of the tables in a namespace, sorted.
func (c *Catalog) tables(ctx context.Context, namespace string) ([]string, error) {
	found, err := c.folders(ctx, namespace, func(name string) bool {
		_, ok := tableOf(namespace, name)
		return ok
	})
	if err != nil {
		return nil, err
	}
	places, err := c.placed(ctx)
	if err != nil {
		return nil, err
	}
	renamed := map[string]string{} // by folder
	for name, key := range places {
		if ns, table := schemas.SplitName(name); ns == namespace {
			renamed[key] = table
		}
	}
	keys := make([]string, len(found))
	for i, folder := range found {
		keys[i] = namespace + "/" + folder
	}
	there, err := c.published(ctx, keys)
	if err != nil {
		return nil, err
	}
	var out []string
	for i, folder := range found {
		if !there[i] {
			continue // other files, or a table in the making
		}
		if name, ok := renamed[keys[i]]; ok {
			folder = name
		} else if _, ok := places[namespace+"."+folder]; ok {
			continue // an older table's folder, whose name is another's now
		}
		out = append(out, folder)
	}
	slices.Sort(out)
	return out, nil
}

// published tells of each folder whether it is a table.
func (c *Catalog) published(ctx context.Context, keys []string) ([]bool, error) {
	there, errs := make([]bool, len(keys)), make([]error, len(keys))
	var wg sync.WaitGroup
	turn := make(chan struct{}, lookups)
	for i, key := range keys {
		if there[i] = c.known.has(key); there[i] {
			continue
		}
		turn <- struct{}{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-turn }()
			if _, _, there[i], errs[i] = c.files.Published(ctx, key); there[i] {
				c.known.add(key)
			}
		}()
	}
	wg.Wait()
	return there, errors.Join(errs...)
}

// knownTables is folders that were seen to be tables, which they stay while
// they are there.
type knownTables struct {
	mu   sync.Mutex
	keys map[string]struct{}
}

func (k *knownTables) has(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.keys[key]
	return ok
}

func (k *knownTables) add(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil || len(k.keys) == maxNames {
		k.keys = map[string]struct{}{}
	}
	k.keys[key] = struct{}{}
}

// placed is the folders of the tables that do not lie where their name says,
// as they were at most placedFor ago.
func (c *Catalog) placed(ctx context.Context) (map[string]string, error) {
	if c.opt.Placed == nil {
		return nil, nil
	}
	c.placesMu.Lock()
	defer c.placesMu.Unlock()
	if time.Since(c.placesAt) < placedFor {
		return c.places, nil
	}
	out, err := c.opt.Placed(ctx)
	if err != nil {
		return nil, fmt.Errorf("look up where tables lie: %w", err)
	}
	c.places, c.placesAt = out, time.Now()
	return out, nil
}
