package endtoend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology"
)

// TestReplay: given a deployment's log and data files alone, a replay builds
// the same state and the same metadata, byte for byte (L3, C2, C7), also when
// every cut needed two attempts.
func TestReplay(t *testing.T) {
	s := seed(t)
	r := rng(s)
	ctx := longContext(t)
	o := topology.NodeOptions{Data: dataDir(t), Partitions: 2}
	n := start(t, o)
	feeds := []*feed{newFeed(orders(otherPartition("shop.orders", 0), 30, 100), s), newFeed(users(otherPartition("people.users", 1), 30, 100), s)}
	for _, f := range feeds {
		if err := prepare(ctx, n, f.workload); err != nil {
			t.Fatal(err)
		}
	}
	rounds := count(t, "VARVE_ROUNDS", 8, 8)
	for round := range rounds {
		for _, f := range feeds {
			if _, err := n.Produce(ctx, f.def.SourceTopic, f.partitions, f.take(1+r.IntN(80)), nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range feeds {
			if err := n.WaitLoaded(ctx, f.def.Name, nil); err != nil {
				t.Fatal(err)
			}
		}
		if round == rounds/2 {
			stop(t, n)
			n = start(t, o)
		}
	}
	location := n.Store().Location("")
	stop(t, n)

	for _, c := range []struct {
		name    string
		publish func(objstore.Store, string) func(context.Context, *statestore.FrozenCut) (publisher.Result, error)
	}{
		{"one attempt", nil},
		{"a commit that did not land", twice(false)},
		{"a commit that landed unheard", twice(true)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, files := replaySame(ctx, t, topology.ReplayOptions{}, o.Data, location, o.Partitions, c.publish)
			if got.Cuts < 2*rounds/3 || files < 5*got.Cuts/2 {
				t.Errorf("only %d cuts in %d rounds, %d files compared", got.Cuts, rounds, files)
			}
		})
	}

	t.Run("differs", func(t *testing.T) {
		store, err := objstore.Open(ctx, filepath.Join(o.Data, "lake"), objstore.KeepTemporaries())
		if err != nil {
			t.Fatal(err)
		}
		pub := publisher.New(publisher.Config{Store: store, Bodies: processors.NewBodies(store, topology.DefaultDeployment)})
		_, err = topology.Replay(ctx, topology.ReplayOptions{
			Data: o.Data, State: t.TempDir(), Store: store,
			Publish: func(ctx context.Context, f *statestore.FrozenCut) (publisher.Result, error) {
				r, err := pub.Publish(ctx, f)
				r.Committed.AddedRows++
				return r, err
			},
		})
		if !errors.Is(err, topology.ErrReplayDiffers) {
			t.Errorf("a replay to another snapshot gives %v", err)
		}
	})
}

// replaySame replays the log of a stopped deployment over a copy of its data
// folder without state and metadata, and holds what comes out against what was
// there. publish, if not nil, makes the snapshots.
func replaySame(ctx context.Context, t *testing.T, ro topology.ReplayOptions, from, location string, partitions int,
	publish func(objstore.Store, string) func(context.Context, *statestore.FrozenCut) (publisher.Result, error),
) (*topology.Replayed, int) {
	t.Helper()
	data := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(data, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	removeMetadata(t, data)
	store, err := objstore.Open(ctx, filepath.Join(data, "lake"), objstore.WithLocation(location))
	if err != nil {
		t.Fatal(err)
	}
	ro.Data, ro.State, ro.Store = data, filepath.Join(data, "replayed"), store
	if ro.Deployment == "" {
		ro.Deployment = topology.DefaultDeployment
	}
	if publish != nil {
		ro.Publish = publish(store, ro.Deployment)
	}
	got, err := topology.Replay(ctx, ro)
	if err != nil {
		t.Fatal(err)
	}
	for p := range partitions {
		sameState(t, filepath.Join(from, "state", fmt.Sprint(p)), filepath.Join(ro.State, fmt.Sprint(p)))
	}
	files := 0
	if ro.Outside {
		files = sameAttempts(t, from, data)
	} else {
		files = sameMetadata(t, from, data)
	}
	t.Logf("replay: %d records, %d cuts, %d files of metadata", got.Records, got.Cuts, files)
	return got, files
}

// lostCatalog answers every first commit with "unknown".
type lostCatalog struct {
	publisher.Catalog
	landed bool
}

func (c *lostCatalog) Commit(ctx context.Context, table string, n int64, metadata []byte) error {
	if c.landed {
		if err := c.Catalog.Commit(ctx, table, n, metadata); err != nil {
			return err
		}
	}
	return publisher.ErrUnknown
}

// twice publishes every cut with one publisher, which loses its commit, and
// then with another, which remembers nothing.
func twice(landed bool) func(objstore.Store, string) func(context.Context, *statestore.FrozenCut) (publisher.Result, error) {
	return func(store objstore.Store, deployment string) func(context.Context, *statestore.FrozenCut) (publisher.Result, error) {
		bodies := processors.NewBodies(store, deployment)
		return func(ctx context.Context, f *statestore.FrozenCut) (publisher.Result, error) {
			first := publisher.New(publisher.Config{Store: store, Bodies: bodies, Catalog: &lostCatalog{Catalog: publisher.Embedded(store), landed: landed}})
			if _, err := first.Publish(ctx, f); !errors.Is(err, publisher.ErrUnknown) {
				return publisher.Result{}, fmt.Errorf("the first attempt gave %w", err)
			}
			second := publisher.New(publisher.Config{Store: store, Bodies: bodies})
			r, err := second.Publish(ctx, f)
			if err != nil {
				return r, err
			}
			again, err := publisher.New(publisher.Config{Store: store, Bodies: bodies}).Publish(ctx, f)
			if err == nil && !reflect.DeepEqual(again, r) {
				err = fmt.Errorf("a third attempt gives %+v, the second %+v", again, r)
			}
			return r, err
		}
	}
}

func isMetadata(path string) bool { return filepath.Base(filepath.Dir(path)) == "metadata" }

func removeMetadata(t *testing.T, data string) {
	t.Helper()
	removed := 0
	for path := range lakeFiles(t, data) {
		if isMetadata(path) {
			removed++
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	if removed == 0 {
		t.Fatal("no metadata to remove")
	}
	if err := os.RemoveAll(filepath.Join(data, "state")); err != nil {
		t.Fatal(err)
	}
}

// sameMetadata holds the metadata folders of two data folders against each other.
func sameMetadata(t *testing.T, want, got string) (compared int) {
	t.Helper()
	there := lakeFiles(t, got)
	for path := range lakeFiles(t, want) {
		if !isMetadata(path) {
			continue
		}
		other := got + strings.TrimPrefix(path, want)
		a, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(other)
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s has other bytes", other)
		}
		delete(there, other)
		compared++
	}
	for path := range there {
		if isMetadata(path) {
			t.Errorf("%s was not there before", path)
		}
	}
	return compared
}

// sameAttempts holds every manifest, list and Puffin that a replay made against
// the original's. What else the original has belongs to others, or to attempts
// that came to nothing.
func sameAttempts(t *testing.T, want, got string) (compared int) {
	t.Helper()
	for path := range lakeFiles(t, got) {
		if !isMetadata(path) {
			continue
		}
		a, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(want + strings.TrimPrefix(path, got))
		if err != nil {
			t.Error("a replay makes what was not there: ", err)
			continue
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s has other bytes", path)
		}
		compared++
	}
	if compared == 0 {
		t.Error("the replay made no metadata")
	}
	return compared
}

// sameState holds two states against each other, key by key.
func sameState(t *testing.T, want, got string) {
	t.Helper()
	a, b := dump(t, want), dump(t, got)
	for k, v := range a {
		if b[k] != v {
			t.Fatalf("%s: key %x holds %x, the original %x", got, k, b[k], v)
		}
		delete(b, k)
	}
	for k := range b {
		t.Fatalf("%s: key %x is new", got, k)
	}
}

func dump(t *testing.T, dir string) map[string]string {
	t.Helper()
	st, err := statestore.Open(dir, statestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	if err := st.Dump(func(k, v []byte) error {
		out[string(k)] = string(v)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}
