package publisher

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// base is a committed version of a table.
type base struct {
	hash record.Hash
	meta *iceberg.Metadata // not to be changed; nil: nothing published yet
	list []iceberg.ManifestFile
}

func metadataPath(location string, version int64) string {
	return location + "/metadata/" + iceberg.MetadataName(version)
}

// loadBase reads the version that the state holds for committed, and makes
// sure that it is that one and no other (C1, H5).
func (p *Publisher) loadBase(ctx context.Context, f *statestore.FrozenCut, key string) (*base, error) {
	h := &f.Head
	if h.Build < 0 {
		return &base{}, nil
	}
	path := metadataPath(f.Definition.Location, h.MetadataVersion)
	if h.MetadataPath != path {
		return nil, fmt.Errorf("%w: the state names the metadata %s, version %d is %s", ErrInconsistent, h.MetadataPath, h.MetadataVersion, path)
	}
	p.mu.Lock()
	b := p.tables[key]
	p.mu.Unlock()
	if b != nil && b.hash == h.MetadataHash {
		return b, nil
	}
	text, err := p.cfg.Catalog.Load(ctx, key, h.MetadataVersion)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s, the newest version by the log, is missing; restore it", ErrForeign, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCatalog, err)
	}
	if record.Hash(sha256.Sum256(text)) != h.MetadataHash {
		return nil, fmt.Errorf("%w: %s is not the file that the log says was committed; restore it", ErrForeign, path)
	}
	if b, err = p.readVersion(ctx, text); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := checkHead(f, b.meta); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	p.remember(key, b)
	return b, nil
}

// readVersion reads metadata and the current snapshot's list.
func (p *Publisher) readVersion(ctx context.Context, text []byte) (*base, error) {
	meta, err := iceberg.ParseMetadata(text)
	if err != nil {
		return nil, err
	}
	b := &base{hash: sha256.Sum256(text), meta: meta}
	if s := meta.Current(); s != nil {
		if b.list, err = p.readList(ctx, s.ManifestList); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (p *Publisher) readList(ctx context.Context, path string) ([]iceberg.ManifestFile, error) {
	text, err := p.read(ctx, path, maxListBytes)
	if err != nil {
		return nil, err
	}
	lines, err := iceberg.ReadManifestList(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInconsistent, path, err)
	}
	return lines, nil
}

// checkHead: the base is what the state takes it for.
func checkHead(f *statestore.FrozenCut, m *iceberg.Metadata) error {
	snapshot := int64(0)
	if m.CurrentSnapshot != nil {
		snapshot = *m.CurrentSnapshot
	}
	h := &f.Head
	if snapshot != h.SnapshotID || m.LastSequence != h.Sequence || m.NextRowID != h.NextRowID {
		return fmt.Errorf("%w: the metadata has snapshot %d, sequence number %d, next row id %d, the state %d, %d, %d",
			ErrInconsistent, snapshot, m.LastSequence, m.NextRowID, h.SnapshotID, h.Sequence, h.NextRowID)
	}
	if m.Location != f.Definition.Location || m.UUID != identity(f).UUID() {
		return fmt.Errorf("%w: the metadata is of the table %s at %s", ErrForeign, m.UUID, m.Location)
	}
	return m.CheckWritable()
}

func identity(f *statestore.FrozenCut) *iceberg.TableIdentity {
	return &iceberg.TableIdentity{Deployment: f.Deployment, Partition: f.Partition, TableID: f.TableID}
}

func (p *Publisher) remember(key string, b *base) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.tables[key]; !ok && len(p.tables) >= maxTables {
		clear(p.tables)
	}
	p.tables[key] = b
}

// read reads an object by its location.
func (p *Publisher) read(ctx context.Context, path string, limit int64) ([]byte, error) {
	key, ok := p.cfg.Store.Key(path)
	if !ok {
		return nil, fmt.Errorf("%w: %s does not lie in the store %s", ErrInconsistent, path, p.cfg.Store.Location(""))
	}
	text, err := p.cfg.Store.ReadAll(ctx, key, limit)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s is missing; restore it: %w", ErrInconsistent, path, err)
	}
	return text, err
}

// create makes an object by its location, or finds it there (C2).
func (p *Publisher) create(ctx context.Context, path string, data []byte) error {
	key, ok := p.cfg.Store.Key(path)
	if !ok {
		return fmt.Errorf("%w: %s does not lie in the store %s", ErrInconsistent, path, p.cfg.Store.Location(""))
	}
	err := p.cfg.Store.Create(ctx, key, data)
	if errors.Is(err, objstore.ErrExists) {
		return fmt.Errorf("%w: %s is there with other bytes: %w", ErrInconsistent, path, err)
	}
	return err
}

// entries reads a manifest's entries with everything that the list's line adds
// to them. They are shared and not to be changed.
func (p *Publisher) entries(ctx context.Context, line *iceberg.ManifestFile) ([]iceberg.Entry, error) {
	if e, ok := p.cache.get(line.Path); ok {
		return e, nil
	}
	text, err := p.read(ctx, line.Path, line.Length)
	if err != nil {
		return nil, err
	}
	m, err := iceberg.ReadManifest(text)
	if err == nil {
		err = m.Inherit(line)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInconsistent, line.Path, err)
	}
	if m.Content != line.Content || m.SpecID != line.SpecID {
		return nil, fmt.Errorf("%w: %s has content %d and spec %d, the list says %d and %d",
			ErrInconsistent, line.Path, m.Content, m.SpecID, line.Content, line.SpecID)
	}
	p.cache.put(line.Path, m.Entries)
	return m.Entries, nil
}
