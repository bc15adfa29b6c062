package endtoend

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology"
)

// oddScheme is that of warehouses, folders, in which the outputs of jobs are not what
// they were once their worker has read them back: so with what another program says
// that it completed. The host says how: cut, lost, or right.
const oddScheme = "odd"

func init() {
	objstore.Register(oddScheme, func(ctx context.Context, u *url.URL, _ string) (objstore.Store, error) {
		s, err := objstore.Open(ctx, u.Path)
		return &oddStore{Store: s, how: u.Host, opened: map[string]int{}}, err
	})
}

type oddStore struct {
	objstore.Store
	how    string
	mu     sync.Mutex
	opened map[string]int
}

func (s *oddStore) Open(ctx context.Context, key string) (objstore.Object, error) {
	o, err := s.Store.Open(ctx, key)
	if err != nil || len(path.Base(key)) != len(schemas.JobFileName([16]byte{})) || strings.Contains(path.Base(key), "-") {
		return o, err
	}
	s.mu.Lock()
	s.opened[key]++
	again := s.opened[key] > 1
	s.mu.Unlock()
	if again && s.how == "right" {
		lookedAt.Add(1)
	}
	switch {
	case again && s.how == "lost":
		return nil, objstore.ErrNotFound
	case again && s.how == "cut":
		return &cutObject{o}, nil
	}
	return o, nil
}

// lookedAt counts how often an output was opened again that is right.
var lookedAt atomic.Int64

// cutObject lacks its last byte.
type cutObject struct{ objstore.Object }

func (o *cutObject) Size() int64 { return o.Object.Size() - 1 }

// TestOutputsAreLookedAt: whoever applies a completion looks at outputs once more,
// as a worker did that is perhaps none of ours, says which are wrong, and goes on.
func TestOutputsAreLookedAt(t *testing.T) {
	for how, want := range map[string]string{"right": "", "lost": "it is missing", "cut": "bytes, not"} {
		t.Run(how, func(t *testing.T) {
			ctx := longContext(t)
			var mu sync.Mutex
			var text bytes.Buffer
			said := func() string {
				mu.Lock()
				defer mu.Unlock()
				return text.String()
			}
			log := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return text.Write(b)
			}), nil))
			s, n := newSmall(t, topology.NodeOptions{
				Warehouse: oddScheme + "://" + how + filepath.Join(dataDir(t), "lake"), Roles: topology.Roles(), Logger: log,
				Jobs: topology.JobOptions{PlanEvery: time.Hour, CheckOutputs: 1},
			})
			// A shard may meet the file too, and stop for it as it must.
			defer func() {
				if err := n.Close(longContext(t)); err != nil && want == "" {
					t.Error(err)
				}
			}()
			s.load(t, n, 100)
			published(ctx, t, n, s.f.def.Name)
			p, err := n.Compact(ctx, s.f.def.Name, nil)
			if err != nil || p.Jobs == 0 {
				t.Fatalf("%+v: %v", p, err)
			}
			jobsOver(ctx, t, n, s.f.def.Name)
			const wrong = "an output of a job is not what its completion says"
			if want == "" {
				waitUntil(t, "an output is looked at", func() bool { return lookedAt.Load() > 0 })
				if strings.Contains(said(), wrong) {
					t.Error(said())
				}
				return
			}
			waitUntil(t, "it is said", func() bool { return strings.Contains(said(), wrong) })
			if !strings.Contains(said(), want) || strings.Contains(said(), "ü-") {
				t.Error(said())
			}
		})
	}
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
