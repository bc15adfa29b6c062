package topology

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/varve-io/varve/statestore/objstore"
)

const (
	// DefaultDiskReserve is the free space below which a node takes no more
	// events in: what it holds already still has to be written.
	DefaultDiskReserve = 128 << 20
	// diskStart is the free space below which a node does not even start.
	diskStart = 1 << 20
	diskCheck = time.Second
)

// diskGuard pauses a node before its disks are full (§12): a database that
// cannot write does not recover by itself, a source that is not read does.
type diskGuard struct {
	paths   []string
	reserve uint64

	mu  sync.Mutex
	why string // what is short, "": nothing
}

// newDiskGuard watches the disks of local folders; a warehouse elsewhere is
// none. reserve below zero watches nothing.
func newDiskGuard(data, warehouse string, reserve int64) (*diskGuard, error) {
	g := &diskGuard{}
	if reserve < 0 {
		return g, nil
	}
	if reserve == 0 {
		reserve = DefaultDiskReserve
	}
	g.reserve, g.paths = uint64(reserve), []string{data}
	if lake, ok := localFolder(warehouse); ok && filepath.Dir(lake) != data {
		if err := os.MkdirAll(lake, 0o755); err != nil {
			return nil, fmt.Errorf("make the warehouse: %w", err)
		}
		g.paths = append(g.paths, lake)
	}
	free, path, err := g.least()
	if err == nil && free < diskStart {
		return nil, fmt.Errorf("%w: the disk of %s has %d bytes free; make space, then start again", objstore.ErrNoSpace, path, free)
	}
	return g, nil
}

// localFolder is the folder of a store that lies in one.
func localFolder(store string) (string, bool) {
	if rest, ok := strings.CutPrefix(store, "file:"); ok {
		return strings.TrimPrefix(rest, "//"), true
	}
	return store, !strings.Contains(store, "://")
}

// least is the path with the least free space.
func (g *diskGuard) least() (free uint64, path string, err error) {
	for i, p := range g.paths {
		n, err := freeBytes(p)
		if err != nil {
			return 0, p, err
		}
		if i == 0 || n < free {
			free, path = n, p
		}
	}
	return free, path, nil
}

// full says which disk is short of space, "": none.
func (g *diskGuard) full() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why
}

func (g *diskGuard) check() (changed bool, why string) {
	if len(g.paths) == 0 {
		return false, ""
	}
	free, path, err := g.least()
	if err != nil || free < g.reserve {
		why = fmt.Sprintf("the disk of %s has %d bytes free, less than the reserve of %d: no events are taken in until there is space", path, free, g.reserve)
	}
	if err != nil {
		why = "" // a folder that is not made yet, or a system that does not tell
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	changed = (g.why == "") != (why == "")
	g.why = why
	return changed, why
}

// guard looks after the disks until the node ends.
func (n *Node) guard(ctx context.Context) error {
	for ctx.Err() == nil {
		if changed, why := n.disk.check(); changed && why != "" {
			n.log.Warn("pause", "why", why)
		} else if changed {
			n.log.Info("there is space again; going on")
		}
		if sleep(ctx, diskCheck) != nil {
			break
		}
	}
	return nil
}

// hold waits while a disk is short of space.
func (n *Node) hold(ctx context.Context) error {
	for n.disk.full() != "" {
		if err := sleep(ctx, diskCheck/10); err != nil {
			return fmt.Errorf("%w: %s", err, n.disk.full())
		}
		if err := n.stopped(); err != nil {
			return err
		}
	}
	return nil
}
