package publisher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/iceberg"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/statestore/restclient"
)

// Errors that callers decide on, beside ErrConflict and ErrUnknown, and
// processors.ErrBodyMissing.
var (
	// ErrForeign: the table's newest metadata is not what the log says was
	// committed. The table stops until a person has looked.
	ErrForeign = errors.New("the table's metadata was changed by another writer")
	// ErrBehind: another publisher of this deployment published a later build.
	// The log tells of it soon.
	ErrBehind = errors.New("this publisher is behind another one")
	// ErrInconsistent: the state and the table's own files disagree. Trying
	// again does not help.
	ErrInconsistent = errors.New("the state and the table's files disagree")
)

// PropertyVectorsPerPuffin is a table property: the most vectors in one
// Puffin, default DefaultVectorsPerPuffin. 1 gives each vector a file of its
// own (V3), for readers that apply every blob of a listed Puffin; it costs an
// object a vector.
const PropertyVectorsPerPuffin = "varve.vectors-per-puffin"

// Limits and defaults.
const (
	// DefaultVectorsPerPuffin bounds a Puffin's footer.
	DefaultVectorsPerPuffin = 32_768
	// MaxPuffinBytes ends a Puffin: the next vector begins a new one.
	MaxPuffinBytes = 64 << 20
	// MergeAbove and MergeBelowBytes: over so many manifests below so many
	// bytes of one spec and content, a cut merges them (M3).
	MergeAbove      = 100
	MergeBelowBytes = 8 << 20
	// DefaultFresh is below the time after which another node takes a silent one's tables.
	DefaultFresh = 20 * time.Second
	// DefaultGrace is gc_grace: how long a metadata file stays after the log
	// of newer ones has lost it.
	DefaultGrace = time.Hour

	maxListBytes  = 256 << 20
	maxCacheBytes = 32 << 20
	maxTables     = 256
)

// Config is what a Publisher works with.
type Config struct {
	// Store holds the tables. Required.
	Store objstore.Store
	// Bodies reads the added files' column metrics. Required.
	Bodies *processors.Bodies
	// Catalog commits. Default: Embedded(Store).
	Catalog Catalog
	// Remote, if given, is an outside catalog that tables are published to (W5);
	// Catalog is not used then.
	Remote Remote
	// Fresh is how old what the state says may be when a commit without a snapshot is
	// sent to an outside catalog (PublishAsOf). Default: DefaultFresh.
	Fresh time.Duration
	// Grace is gc_grace for metadata files. Default: DefaultGrace. A shorter
	// one takes files away from readers that are still planning on them.
	Grace time.Duration
	// Logger is for people. Default: nothing is logged.
	Logger *slog.Logger
}

// Publisher publishes the tables of one deployment. It remembers what it wrote
// last to spare reading it again; nothing that it does depends on that memory.
// It may be used concurrently for different tables.
type Publisher struct {
	cfg   Config
	cache *manifestCache

	mu     sync.Mutex
	tables map[string]*base // by store key
}

// Result is what a publication gives the log.
type Result struct {
	Committed record.SnapshotCommitted
	// VectorBytes is how many bytes of Puffins the cut needed (S6).
	VectorBytes int64
}

// New makes a Publisher.
func New(cfg Config) *Publisher {
	if cfg.Catalog == nil {
		cfg.Catalog = Embedded(cfg.Store)
	}
	if cfg.Fresh <= 0 {
		cfg.Fresh = DefaultFresh
	}
	if cfg.Grace <= 0 {
		cfg.Grace = DefaultGrace
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Publisher{cfg: cfg, cache: newManifestCache(maxCacheBytes), tables: map[string]*base{}}
}

// Cause is a failure's name in SnapshotFailed.
func Cause(err error) string {
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrForeign), errors.Is(err, ErrBehind), errors.Is(err, restclient.ErrConflict):
		return "conflict"
	case errors.Is(err, ErrUnknown), errors.Is(err, restclient.ErrUnknown):
		return "unknown"
	case errors.Is(err, errCatalog), errors.Is(err, restclient.ErrAway), errors.Is(err, restclient.ErrDenied),
		errors.Is(err, restclient.ErrNonsense), errors.Is(err, restclient.ErrNotFound):
		return "catalog"
	}
	return "store"
}

// errCatalog marks failures to read from the catalog.
var errCatalog = errors.New("the catalog could not be read")

// Publish makes the snapshot of a pending cut and commits it. After an error
// the cut is still pending; the same call may be made again at any time and
// goes on where it stopped. ErrForeign, ErrInconsistent and
// processors.ErrBodyMissing need a person.
func (p *Publisher) Publish(ctx context.Context, f *statestore.FrozenCut) (Result, error) {
	return p.PublishAsOf(ctx, f, time.Now())
}

// PublishAsOf is Publish of a cut from a state that had all of the log as of a time. No
// requirement of the protocol refuses a commit that only sets properties or refs, of a
// process that stood still while others published on (S16): it is not sent when that
// time is too long ago (Config.Fresh), and that is a conflict.
func (p *Publisher) PublishAsOf(ctx context.Context, f *statestore.FrozenCut, asOf time.Time) (Result, error) {
	r, err := p.publish(ctx, f, asOf)
	if err != nil {
		return Result{}, fmt.Errorf("publish table %s at offset %d: %w", f.Definition.Name, f.Build, err)
	}
	return r, nil
}

func (p *Publisher) publish(ctx context.Context, f *statestore.FrozenCut, asOf time.Time) (Result, error) {
	if p.cfg.Remote != nil {
		return p.publishRemote(ctx, f, asOf)
	}
	if f.Head.Build >= 0 && f.Head.MetadataVersion == 0 {
		return Result{}, fmt.Errorf("%w: the table was published to an outside catalog (%s); name that catalog in the configuration", ErrInconsistent, f.Head.MetadataPath)
	}
	key, ok := p.cfg.Store.Key(f.Definition.Location)
	if !ok {
		return Result{}, fmt.Errorf("%w: the location %s does not lie in the store %s; configure the warehouse that holds it",
			ErrInconsistent, f.Definition.Location, p.cfg.Store.Location(""))
	}
	b, err := p.loadBase(ctx, f, key)
	if err != nil {
		return Result{}, err
	}
	version := f.Head.MetadataVersion + 1
	found, err := p.cfg.Catalog.Load(ctx, key, version)
	switch {
	case err == nil:
		return p.adopt(ctx, f, b, version, found)
	case !errors.Is(err, objstore.ErrNotFound):
		return Result{}, fmt.Errorf("%w: %w", errCatalog, err)
	}
	n, err := p.build(ctx, f, b)
	if err != nil {
		return Result{}, err
	}
	err = p.cfg.Catalog.Commit(ctx, key, version, n.json)
	if errors.Is(err, ErrConflict) {
		found, loadErr := p.cfg.Catalog.Load(ctx, key, version)
		if loadErr != nil {
			return Result{}, fmt.Errorf("%w: %w", err, loadErr)
		}
		return p.adopt(ctx, f, b, version, found)
	}
	if err != nil {
		return Result{}, err
	}
	made := n.base
	p.remember(key, &made)
	for i := range n.result.Committed.Manifests {
		for _, number := range n.result.Committed.Manifests[i].Replaces {
			p.cache.drop(f.Manifests[number])
		}
	}
	p.cfg.Logger.Debug("published", "table", f.Definition.Name, "offset", f.Build, "version", version,
		"snapshot", n.result.Committed.SnapshotID, "files", len(n.result.Committed.Files), "vectors", len(n.result.Committed.Vectors),
		"manifests", len(n.result.Committed.Manifests), "vector_bytes", n.result.VectorBytes)
	return n.result, nil
}

// CollectMetadata deletes metadata files of the tables that this Publisher has
// published: those that fell out of the metadata log more than the grace time
// before now.
func (p *Publisher) CollectMetadata(ctx context.Context, now time.Time) (deleted int, err error) {
	if p.cfg.Remote != nil {
		return 0, nil // they are the catalog's own
	}
	p.mu.Lock()
	keys := slices.Sorted(maps.Keys(p.tables))
	p.mu.Unlock()
	for _, key := range keys {
		n, err := p.cfg.Catalog.Prune(ctx, key, iceberg.MetadataLogLimit, now.Add(-p.cfg.Grace))
		deleted += n
		if err != nil {
			return deleted, fmt.Errorf("collect metadata files of %s: %w", key, err)
		}
	}
	return deleted, nil
}
