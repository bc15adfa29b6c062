package restcatalog

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

const (
	// DefaultCacheBytes bounds the answers that are kept, in bytes.
	DefaultCacheBytes = 64 << 20
	// loaders is how many metadata files are read at a time.
	loaders = 2
)

// answer is a loadTable answer: whole, with its entity tag.
type answer struct {
	body []byte
	etag string
}

type answerKey struct {
	key     string // folder of the table
	version int
	refs    bool // only the snapshots of refs
}

// load is the answer for the published version of a table, nil when there is
// no table.
func (c *Catalog) load(ctx context.Context, key string, refs bool) (*answer, error) {
	n, file, ok, err := c.files.Published(ctx, key)
	if err != nil || !ok {
		return nil, err
	}
	c.known.add(key)
	id := answerKey{key, n, refs}
	if a := c.cache.get(id); a != nil {
		return a, nil
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if a := c.cache.get(id); a != nil { // somebody else read it meanwhile
		return a, nil
	}
	metadata, err := c.files.Load(ctx, key, n)
	if err != nil {
		return nil, err
	}
	if metadata = bytes.TrimSpace(metadata); !isMetadata(metadata) {
		return nil, fmt.Errorf("%s: %w", c.store.Location(file), errNotMetadata)
	}
	if refs {
		if metadata, err = onlyRefs(metadata); err != nil {
			return nil, fmt.Errorf("%s: %w", c.store.Location(file), err)
		}
	}
	a, err := newAnswer(c.store.Location(file), metadata, c.opt.TableConfig)
	if err != nil {
		return nil, err
	}
	c.cache.put(id, a)
	return a, nil
}

var errNotMetadata = errors.New("the file is not table metadata in JSON; a copy of it, or the table's earlier version, must take its place")

// isMetadata tells whether a file is table metadata by what every version of
// it must have; another object in JSON is not handed on, nor kept.
func isMetadata(b []byte) bool {
	var head struct {
		FormatVersion int `json:"format-version"`
	}
	return json.Unmarshal(b, &head) == nil && head.FormatVersion > 0
}

// newAnswer puts the metadata into a LoadTableResult byte for byte.
func newAnswer(location string, metadata []byte, config map[string]string) (*answer, error) {
	head, err := json.Marshal(location)
	if err != nil {
		return nil, err
	}
	if config == nil {
		config = map[string]string{}
	}
	tail, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(metadata)+len(head)+len(tail)+64)
	b = append(append(b, `{"metadata-location":`...), head...)
	b = append(append(b, `,"metadata":`...), metadata...)
	b = append(append(append(b, `,"config":`...), tail...), '}')
	sum := sha256.Sum256(b)
	return &answer{body: b, etag: `"` + hex.EncodeToString(sum[:16]) + `"`}, nil
}

// onlyRefs leaves out the snapshots that no branch and no tag points to; every
// other byte stays.
func onlyRefs(metadata []byte) ([]byte, error) {
	var m struct {
		Current *int64 `json:"current-snapshot-id"`
		Refs    map[string]struct {
			Snapshot int64 `json:"snapshot-id"`
		} `json:"refs"`
	}
	if err := json.Unmarshal(metadata, &m); err != nil {
		return nil, errNotMetadata
	}
	keep := map[int64]bool{}
	if m.Current != nil {
		keep[*m.Current] = true
	}
	for _, r := range m.Refs {
		keep[r.Snapshot] = true
	}
	d := json.NewDecoder(bytes.NewReader(metadata))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errNotMetadata
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, errNotMetadata
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, errNotMetadata
		}
		if name != "snapshots" || value[0] != '[' {
			continue
		}
		var all, kept []json.RawMessage
		if err := json.Unmarshal(value, &all); err != nil {
			return nil, errNotMetadata
		}
		for _, s := range all {
			var id struct {
				Snapshot int64 `json:"snapshot-id"`
			}
			if err := json.Unmarshal(s, &id); err != nil {
				return nil, errNotMetadata
			}
			if keep[id.Snapshot] {
				kept = append(kept, s)
			}
		}
		end := int(d.InputOffset())
		out := append(append([]byte(nil), metadata[:end-len(value)]...), '[')
		out = append(append(out, bytes.Join(asBytes(kept), []byte{','})...), ']')
		return append(out, metadata[end:]...), nil
	}
	return metadata, nil
}

func asBytes(in []json.RawMessage) [][]byte {
	out := make([][]byte, len(in))
	for i := range in {
		out[i] = in[i]
	}
	return out
}

// cache keeps the answers that were used last. A table's older version leaves
// when a newer one comes.
type cache struct {
	limit int

	mu    sync.Mutex
	size  int
	byKey map[cacheSlot]*list.Element
	used  list.List // of *cached, the last used first
}

// cacheSlot is what one answer at a time is kept for.
type cacheSlot struct {
	key  string
	refs bool
}

type cached struct {
	id answerKey
	*answer
}

func (c *cache) get(id answerKey) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[cacheSlot{id.key, id.refs}]
	if e == nil || e.Value.(*cached).id != id {
		return nil
	}
	c.used.MoveToFront(e)
	return e.Value.(*cached).answer
}

func (c *cache) put(id answerKey, a *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(a.body) > c.limit {
		return
	}
	slot := cacheSlot{id.key, id.refs}
	if e := c.byKey[slot]; e != nil {
		if e.Value.(*cached).id.version > id.version {
			return
		}
		c.remove(e)
	}
	if c.byKey == nil {
		c.byKey = map[cacheSlot]*list.Element{}
	}
	c.byKey[slot] = c.used.PushFront(&cached{id, a})
	c.size += len(a.body)
	for c.size > c.limit {
		c.remove(c.used.Back())
	}
}

func (c *cache) remove(e *list.Element) {
	v := c.used.Remove(e).(*cached)
	delete(c.byKey, cacheSlot{v.id.key, v.id.refs})
	c.size -= len(v.body)
}
