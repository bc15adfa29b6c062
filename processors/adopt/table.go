package adopt

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/statestore/objstore"
)

// ErrTable marks a table that cannot be taken, whatever of it is asked for.
var ErrTable = errors.New("the Iceberg table cannot be taken")

// ErrNoSnapshot: the table has no such snapshot, branch or tag.
var ErrNoSnapshot = errors.New("name one of its snapshots, branches or tags")

// Bounds of what is read into memory at once.
const (
	maxMetadataBytes = 512 << 20
	maxManifestBytes = 512 << 20
	maxVectorBytes   = 1 << 30
)

// What says which snapshot of which table is meant.
type What struct {
	// Location is a metadata file's, or that of the table's folder.
	Location string
	Snapshot int64  // 0: that of Ref
	Ref      string // branch or tag; empty: main
}

// Table is an Iceberg table as of one snapshot.
type Table struct {
	Metadata      string // location
	Location      string
	UUID          string
	FormatVersion int32
	Snapshot      int64 // 0: it has none, and no files
	Schema        *schemas.Schema
	LastColumnID  int32
	DefaultSpec   int32
	Files         []File // oldest first

	store objstore.Store
	specs map[int32]*schemas.Spec
}

// File is a data file of a table.
type File struct {
	iceberg.DataFile
	Sequence int64
	Dead     *roaring.Bitmap // never nil
}

// Spec is the partition spec of this id, nil: one that is not known.
func (t *Table) Spec(id int32) *schemas.Spec { return t.specs[id] }

// Read reads a table's metadata, manifests and delete files.
func Read(ctx context.Context, store objstore.Store, what What) (*Table, error) {
	at, err := metadataOf(ctx, store, what.Location)
	if err != nil {
		return nil, err
	}
	text, err := read(ctx, store, at, maxMetadataBytes)
	if err != nil {
		return nil, err
	}
	if text, err = unzipped(text, maxMetadataBytes); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTable, at, err)
	}
	meta, err := iceberg.ParseOldMetadata(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTable, at, err)
	}
	t := &Table{
		Metadata: at, Location: strings.TrimRight(meta.Location, "/"), UUID: meta.UUID, FormatVersion: meta.FormatVersion,
		LastColumnID: meta.LastColumnID, DefaultSpec: int32(meta.DefaultSpec), store: store, specs: map[int32]*schemas.Spec{},
	}
	if len(meta.EncryptionKeys) > 0 || meta.Property("encryption.key-id") != "" {
		return nil, fmt.Errorf("%w: %s: it is encrypted", ErrTable, at)
	}
	for i := range meta.Specs {
		// A spec with a transform that nobody knows matters only to its files.
		if s, err := meta.Spec(meta.Specs[i].ID); err == nil {
			t.specs[s.ID] = s
		}
	}
	snapshot, schemaID, err := choose(meta, what)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTable, at, err)
	}
	if t.Schema, err = meta.Schema(schemaID); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTable, at, err)
	}
	if snapshot == nil {
		return t, nil
	}
	t.Snapshot = snapshot.ID
	if err := t.list(ctx, snapshot); err != nil {
		return nil, fmt.Errorf("snapshot %d of %s: %w", snapshot.ID, at, err)
	}
	return t, nil
}

// choose finds the snapshot that is asked for, and the schema that it is read by:
// a branch has the table's own, anything else that of when it was made.
func choose(m *iceberg.Metadata, what What) (*iceberg.Snapshot, int64, error) {
	id, then := what.Snapshot, true
	switch {
	case id == 0 && (what.Ref == "" || what.Ref == iceberg.MainBranch):
		if m.CurrentSnapshot == nil {
			return nil, m.CurrentSchema, nil
		}
		id, then = *m.CurrentSnapshot, false
	case id == 0:
		ref := m.Ref(what.Ref)
		if ref == nil {
			return nil, 0, fmt.Errorf("it has no branch or tag %q; %w", what.Ref, ErrNoSnapshot)
		}
		id, then = ref.SnapshotID, ref.Type == "tag"
	}
	s := m.Snapshot(id)
	if s == nil {
		return nil, 0, fmt.Errorf("it has no snapshot %d; %w", id, ErrNoSnapshot)
	}
	if then && s.SchemaID != nil {
		return s, *s.SchemaID, nil
	}
	return s, m.CurrentSchema, nil
}

// metadataOf finds a table's newest metadata file.
func metadataOf(ctx context.Context, store objstore.Store, location string) (string, error) {
	if strings.HasSuffix(location, ".json") || strings.HasSuffix(location, ".json.gz") {
		return location, nil
	}
	folder := strings.TrimRight(location, "/") + "/metadata/"
	prefix, ok := store.Key(folder + "x")
	if !ok {
		return "", outside(store, location)
	}
	newest, best, several := "", int64(-1), false
	err := store.List(ctx, strings.TrimSuffix(prefix, "x"), func(o objstore.Info) error {
		if n := metadataVersion(o.Key); n >= 0 && n >= best {
			newest, several, best = store.Location(o.Key), n == best, n
		}
		return nil
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", folder, err)
	case newest == "":
		return "", fmt.Errorf("%w: there is no metadata file in %s; name the table's folder, or its metadata file", ErrTable, folder)
	case several:
		return "", fmt.Errorf("%w: %s has several metadata files of version %d; name the one that its catalog has", ErrTable, folder, best)
	}
	return newest, nil
}

// metadataVersion is that of a metadata file's name, v5.metadata.json or
// 00005-<uuid>.metadata.json, or of one that is packed, with .gz before or behind
// .metadata.json; -1: the name is of no such file.
func metadataVersion(key string) int64 {
	name := strings.TrimSuffix(key[strings.LastIndexByte(key, '/')+1:], ".gz")
	name, ok := strings.CutSuffix(name, ".metadata.json")
	if !ok {
		return -1
	}
	digits, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(name, ".gz"), "v"), "-")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// unzipped is what a metadata file holds, which a table may have its writers pack
// (write.metadata.compression-codec).
func unzipped(text []byte, limit int64) ([]byte, error) {
	if !bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		return text, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(z, limit+1))
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	if int64(len(out)) > limit {
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return out, nil
}

func outside(store objstore.Store, location string) error {
	return fmt.Errorf("%w: %s does not lie in the warehouse %s, so that readers of the table, and varve with its credentials, would not find it; move the table there, or have an engine write the rows that it has to Parquet files and bring those in", ErrTable, location, store.Location(""))
}

func read(ctx context.Context, store objstore.Store, location string, limit int64) ([]byte, error) {
	key, ok := store.Key(location)
	if !ok {
		return nil, outside(store, location)
	}
	b, err := store.ReadAll(ctx, key, limit)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s is not there", ErrTable, location)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", location, err)
	}
	return b, nil
}

// list takes the live entries of all manifests, and applies the deletes.
func (t *Table) list(ctx context.Context, s *iceberg.Snapshot) error {
	text, err := read(ctx, t.store, s.ManifestList, maxManifestBytes)
	if err != nil {
		return err
	}
	lines, err := iceberg.ReadManifestList(text)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrTable, s.ManifestList, err)
	}
	d := deletes{t: t, vectors: map[string]*iceberg.Entry{}}
	manifest := map[string]int{}
	for i := range lines {
		entries, err := t.manifest(ctx, &lines[i])
		if err != nil {
			return err
		}
		for j := range entries {
			e := &entries[j]
			switch {
			case e.Status == iceberg.Deleted:
				continue
			case e.Sequence == nil:
				return fmt.Errorf("%w: %s lists %s without a sequence number", ErrTable, lines[i].Path, e.File.Path)
			case len(e.File.KeyMetadata) > 0:
				return fmt.Errorf("%w: %s is encrypted", ErrTable, e.File.Path)
			case e.File.Content != iceberg.Data:
				if err := d.add(e); err != nil {
					return err
				}
				continue
			}
			if _, twice := manifest[e.File.Path]; twice {
				return fmt.Errorf("%w: it lists %s twice", ErrTable, e.File.Path)
			}
			manifest[e.File.Path] = i
			t.Files = append(t.Files, File{DataFile: e.File, Sequence: *e.Sequence, Dead: roaring.New()})
		}
	}
	// Of two rows of one key the later file's is the newer one.
	slices.SortFunc(t.Files, func(x, y File) int {
		return cmp.Or(cmp.Compare(x.Sequence, y.Sequence), cmp.Compare(manifest[x.Path], manifest[y.Path]), cmp.Compare(x.Path, y.Path))
	})
	return d.apply(ctx)
}

func (t *Table) manifest(ctx context.Context, line *iceberg.ManifestFile) ([]iceberg.Entry, error) {
	if len(line.KeyMetadata) > 0 {
		return nil, fmt.Errorf("%w: %s is encrypted", ErrTable, line.Path)
	}
	text, err := read(ctx, t.store, line.Path, maxManifestBytes)
	if err != nil {
		return nil, err
	}
	m, err := iceberg.ReadManifest(text)
	if err == nil {
		err = m.Inherit(line)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTable, line.Path, err)
	}
	for i := range m.Entries {
		m.Entries[i].File.SpecID = line.SpecID
	}
	return m.Entries, nil
}
