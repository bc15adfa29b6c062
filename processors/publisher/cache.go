package publisher

import (
	"container/list"
	"sync"

	"github.com/varve-io/varve/schemas/iceberg"
)

// manifestCache holds the entries of manifests, which never change under their
// path; the least recently used leave. Its limit counts what the entries take
// in memory, which is several times their bytes in a file.
type manifestCache struct {
	mu    sync.Mutex
	limit int64
	bytes int64
	order *list.List // of *cached, the newest in front
	byKey map[string]*list.Element
}

type cached struct {
	path    string
	entries []iceberg.Entry
	bytes   int64
}

// cachedBytes is about what a manifest takes here beside its entries and path.
const cachedBytes = 200

func newManifestCache(limit int64) *manifestCache {
	return &manifestCache{limit: limit, order: list.New(), byKey: map[string]*list.Element{}}
}

func (c *manifestCache) get(path string) ([]iceberg.Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[path]
	if e == nil {
		return nil, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).entries, true
}

func (c *manifestCache) put(path string, entries []iceberg.Entry) {
	bytes := int64(cachedBytes + len(path))
	for i := range entries {
		bytes += entries[i].Memory()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[path]; e != nil {
		c.order.MoveToFront(e)
		return
	}
	if bytes > c.limit {
		return
	}
	c.byKey[path] = c.order.PushFront(&cached{path, entries, bytes})
	for c.bytes += bytes; c.bytes > c.limit; {
		oldest := c.order.Remove(c.order.Back()).(*cached)
		delete(c.byKey, oldest.path)
		c.bytes -= oldest.bytes
	}
}

// drop forgets a manifest that nobody will ask for.
func (c *manifestCache) drop(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[path]
	if e == nil {
		return
	}
	delete(c.byKey, path)
	c.bytes -= c.order.Remove(e).(*cached).bytes
}
