package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/statestore/hadoopcat"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology"
)

// Bounds of what readers of committed tables load at a time.
const (
	maxManifestBytes = 1 << 30
	maxNodeFileBytes = 1 << 20
)

// nodeFacts is what DATA/node.json says about the deployment of a data folder.
type nodeFacts struct {
	Deployment string   `json:"deployment"`
	ID         string   `json:"deployment_id"`
	Partitions int      `json:"partitions"`
	Warehouse  string   `json:"warehouse"`
	StoreURL   string   `json:"warehouse_url"`
	Brokers    []string `json:"brokers"`
	Admin      string   `json:"admin"`
	PID        int      `json:"pid"`
	Embedded   bool     `json:"embedded"`

	Remote *topology.RemoteFacts   `json:"remote"`
	Kafka  *topology.SecurityFacts `json:"kafka"`
}

// readNodeFacts is nil when the folder never held a node.
func readNodeFacts(dir string) (*nodeFacts, error) {
	path := filepath.Join(dir, "node.json")
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the data folder: %w", err)
	}
	if st.Size() > maxNodeFileBytes {
		return nil, usagef("%s is no node file: it has %d bytes; remove it, and start with the deployment and the warehouse of before: it is written again", path, st.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the data folder: %w", err)
	}
	var f nodeFacts
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, usagef("%s is no node file: %w; remove it, and start with the deployment and the warehouse of before: it is written again", path, err)
	}
	if f.StoreURL == "" {
		f.StoreURL = f.Warehouse
	}
	return &f, nil
}

// lake is the warehouse of a deployment, for reading only: no node needs to
// run, and one may.
type lake struct {
	store   objstore.Store
	catalog *hadoopcat.Catalog
	remote  topology.OutsideCatalog // tables are published there; nil: in their folders
}

func (a *app) openLake(ctx context.Context) (*lake, error) {
	where := a.warehouse
	node, err := readNodeFacts(a.data)
	if err != nil {
		return nil, err
	}
	remote, err := a.remoteOptions(node)
	if err != nil {
		return nil, err
	}
	if where == "" {
		where = filepath.Join(a.data, "lake")
		if node != nil && node.StoreURL != "" {
			where = node.StoreURL
		}
	}
	if dir, local := localFolder(where); local {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			return nil, usagef("there is no lake at %s; name the data folder with --data, or the lake with --warehouse", dir)
		}
	}
	store, err := objstore.Open(ctx, where, objstore.KeepTemporaries())
	if err != nil {
		return nil, asUsage(fmt.Errorf("open the lake: %w", err))
	}
	l := &lake{store: store, catalog: hadoopcat.New(store)}
	if remote != nil {
		if l.remote, err = a.openRemote(ctx, remote, store); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// localFolder is the path of a warehouse that is a folder of this machine.
func localFolder(where string) (string, bool) {
	if rest, ok := strings.CutPrefix(where, "file:"); ok {
		rest, _ = strings.CutPrefix(rest, "//")
		return rest, true
	}
	return where, !strings.Contains(where, "://")
}

// lakeTable is the newest committed metadata of a table.
type lakeTable struct {
	name     string
	key      string // folder in the store
	version  int
	location string // of the metadata file
	json     []byte
	meta     *iceberg.Metadata
}

// tableKey is the folder of a table's name: <namespace>/<table>.
func tableKey(name string) string {
	namespace, table := schemas.SplitName(name)
	return namespace + "/" + table
}

// table loads the newest metadata of a table.
func (a *app) table(ctx context.Context, l *lake, name string) (*lakeTable, error) {
	if err := schemas.CheckTableName(name); err != nil {
		return nil, asUsage(err)
	}
	if l.remote != nil {
		return l.loadRemote(ctx, name)
	}
	key, err := a.locate(ctx, l, name)
	if err != nil {
		return nil, err
	}
	return l.load(ctx, name, key)
}

// locate is the folder of a table: <namespace>/<table>, or, where that was an
// older table's that was dropped, what the deployment says.
func (a *app) locate(ctx context.Context, l *lake, name string) (string, error) {
	key := tableKey(name)
	others, err := l.suffixed(ctx, key)
	if err != nil || len(others) == 0 {
		return key, err
	}
	if node, err := readNodeFacts(a.data); err != nil || node == nil || a.given("warehouse") {
		a.log.Warn("a table of this name was made again; the older one is read", "table", name, "others", strings.Join(others, ", "))
		return key, err
	}
	err = a.with(ctx, readRoles, func(s *session) error {
		t, err := s.Table(ctx, name)
		if errors.Is(err, topology.ErrNoTable) {
			return nil // dropped: its files can still be read
		}
		if err != nil {
			return err
		}
		if k, ok := l.store.Key(t.Definition.Location); ok {
			key = k
		}
		return nil
	})
	return key, err
}

// suffixed is the folders <key>-<number> that are tables.
func (l *lake) suffixed(ctx context.Context, key string) ([]string, error) {
	var out []string
	seen := 0
	err := l.store.List(ctx, key+"-", func(info objstore.Info) error {
		if seen++; seen > maxListed {
			return errListedEnough
		}
		folder, _, ok := strings.Cut(info.Key, "/metadata/")
		if !ok || len(out) > 0 && out[len(out)-1] == folder {
			return nil
		}
		if _, err := strconv.ParseUint(folder[len(key)+1:], 10, 63); err == nil {
			out = append(out, folder)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errListedEnough) {
		return nil, fmt.Errorf("look for tables at %s: %w", l.store.Location(key), err)
	}
	return out, nil
}

// load loads the newest metadata in a table's folder.
func (l *lake) load(ctx context.Context, name, key string) (*lakeTable, error) {
	t := &lakeTable{name: name, key: key}
	n, key, ok, err := l.catalog.Current(ctx, t.key)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	if !ok {
		return nil, l.noTable(ctx, name)
	}
	t.version, t.location = n, l.store.Location(key)
	if t.json, err = l.catalog.Load(ctx, t.key, n); err != nil {
		return nil, fmt.Errorf("table %s, metadata version %d: %w", name, n, err)
	}
	if t.meta, err = iceberg.ParseMetadata(t.json); err != nil {
		return nil, fmt.Errorf("table %s: %s: %w", name, t.location, err)
	}
	return t, nil
}

// maxListed bounds the objects that are looked at to name the tables of a lake.
const maxListed = 20_000

var errListedEnough = errors.New("listed enough")

// noTable says that a table is not there, and which are.
func (l *lake) noTable(ctx context.Context, name string) error {
	var names []string
	seen := 0
	last, bare := "", ""
	err := l.store.List(ctx, "", func(info objstore.Info) error {
		if seen++; seen > maxListed {
			return errListedEnough
		}
		folder, file, ok := strings.Cut(info.Key, "/metadata/")
		parts := strings.Split(folder, "/")
		if !ok || folder == last || len(parts) != 2 || parts[0] == "_varve" {
			return nil
		}
		there := strings.TrimPrefix(parts[0]+"."+parts[1], "default.")
		switch {
		case strings.HasSuffix(file, ".metadata.json"):
			last, names = folder, append(names, there)
		case there == name:
			bare = folder
		}
		return nil
	})
	if err != nil && !errors.Is(err, errListedEnough) {
		return fmt.Errorf("look for table %s: %w", name, err)
	}
	where := l.store.Location("")
	if bare != "" && !slices.Contains(names, name) {
		return fmt.Errorf("table %s has no metadata file any more in %s/metadata; restore its files (\"varve verify\" tells what is missing)", name, l.store.Location(bare))
	}
	if len(names) == 0 {
		return usagef("table %s is not in the lake at %s, nor is any other; make one with \"varve load\" or \"varve table create\"", name, where)
	}
	hint := didYouMean(name, names)
	if len(names) > 10 {
		names = append(names[:10], "…")
	}
	return usagef("table %s is not in the lake at %s%s (tables there: %s)", name, where, hint, strings.Join(names, ", "))
}

// snapshotFlags choose a snapshot of a table.
type snapshotFlags struct {
	id   int64
	asOf string
}

// snapshot is the snapshot that the flags ask for; nil when the table has none yet.
func (t *lakeTable) snapshot(f *snapshotFlags) (*iceberg.Snapshot, error) {
	switch {
	case f.id != 0 && f.asOf != "":
		return nil, usagef("--snapshot and --as-of exclude each other; give one")
	case f.id != 0:
		s := t.meta.Snapshot(f.id)
		if s == nil {
			return nil, usagef("table %s has no snapshot %d, or no longer; see \"varve snapshots %s\"", t.name, f.id, t.name)
		}
		return s, nil
	case f.asOf != "":
		at, err := parseTime(f.asOf)
		if err != nil {
			return nil, asUsage(err)
		}
		return t.asOf(at)
	}
	return t.meta.Current(), nil
}

// asOf is the snapshot that main was at a time.
func (t *lakeTable) asOf(at int64) (*iceberg.Snapshot, error) {
	log := t.meta.SnapshotLog
	for i := len(log) - 1; i >= 0; i-- {
		if log[i].TimestampMs > at {
			continue
		}
		if s := t.meta.Snapshot(log[i].SnapshotID); s != nil {
			return s, nil
		}
		break
	}
	if len(log) == 0 {
		return nil, usagef("table %s has no snapshot yet", t.name)
	}
	return nil, usagef("table %s keeps no snapshot of %s; its oldest is of %s", t.name, millis(at), millis(log[0].TimestampMs))
}

// parseTime reads a point in time, in ms since 1970: RFC 3339, a date, a date
// and time (UTC), or the number itself.
func parseTime(s string) (int64, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if v, err := time.Parse(layout, s); err == nil {
			return v.UnixMilli(), nil
		}
	}
	if v, err := strconv.ParseInt(s, 10, 64); err == nil && v > 1e10 {
		return v, nil
	}
	return 0, fmt.Errorf("%q is no time; write it as 2026-08-01T10:30:00Z, 2026-08-01 10:30 (UTC), or in ms since 1970", s)
}

// manifests is the lines of a snapshot's manifest list.
func (l *lake) manifests(ctx context.Context, s *iceberg.Snapshot) ([]iceberg.ManifestFile, error) {
	b, err := l.read(ctx, s.ManifestList)
	if err != nil {
		return nil, fmt.Errorf("snapshot %d: manifest list: %w", s.ID, err)
	}
	lines, err := iceberg.ReadManifestList(b)
	if err != nil {
		return nil, fmt.Errorf("snapshot %d: manifest list %s: %w", s.ID, s.ManifestList, err)
	}
	return lines, nil
}

// manifest is one manifest with what its entries inherit from its line.
func (l *lake) manifest(ctx context.Context, line *iceberg.ManifestFile) (*iceberg.Manifest, error) {
	b, err := l.read(ctx, line.Path)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	m, err := iceberg.ReadManifest(b)
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", line.Path, err)
	}
	if err := m.Inherit(line); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", line.Path, err)
	}
	return m, nil
}

func (l *lake) read(ctx context.Context, location string) ([]byte, error) {
	key, ok := l.store.Key(location)
	if !ok {
		return nil, fmt.Errorf("%s does not lie in the lake at %s; open the lake with --warehouse under the location it was made with", location, l.store.Location(""))
	}
	return l.store.ReadAll(ctx, key, maxManifestBytes)
}
