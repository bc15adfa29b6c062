package topology

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/statestore/objstore"
)

// openClosed opens a node and closes it again.
func openClosed(t *testing.T, o NodeOptions) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	n, err := OpenNode(ctx, o)
	if err != nil {
		return err
	}
	return n.Close(ctx)
}

func wantConfigError(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, ErrConfig) {
		t.Fatalf("error %v, want one of the configuration", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

// TestForeignParts: log, warehouse and data folder of a deployment belong
// together. What is of another one, or gone, is refused before anything is
// appended or made.
func TestForeignParts(t *testing.T) {
	b, err := OpenBroker(BrokerOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	root := t.TempDir()
	at := func(data, lake string) NodeOptions {
		return NodeOptions{Data: filepath.Join(root, data), Warehouse: filepath.Join(root, lake), Brokers: []string{b.Addr()}, Partitions: 1}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	n, err := OpenNode(ctx, at("a", "lake"))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if _, _, err := n.EnsureTable(ctx, testDefinition("t")); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	a := newAdmin(t, ClientOptions{Brokers: []string{b.Addr()}})
	high := func() int64 {
		o, err := a.Offsets(ctx, "varve.transactions")
		if err != nil {
			t.Fatal(err)
		}
		return o[0].High
	}
	before := high()

	wantConfigError(t, openClosed(t, at("b", "other")), "other is not the warehouse of deployment varve", "--warehouse")
	if high() != before {
		t.Errorf("a node with a wrong warehouse appended %d records", high()-before)
	}
	if err := openClosed(t, at("c", "lake")); err != nil {
		t.Errorf("a second folder of the deployment: %v", err)
	}

	// The same names on brokers that never saw the deployment.
	other, err := OpenBroker(BrokerOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	wrong := at("a", "lake")
	wrong.Brokers = []string{other.Addr()}
	wantConfigError(t, openClosed(t, wrong), "varve.transactions", "are these the right brokers")
	oa := newAdmin(t, ClientOptions{Brokers: wrong.Brokers})
	if _, err := oa.Topic(ctx, "varve.transactions"); !errors.Is(err, ErrNoTopic) {
		t.Errorf("a log was made on the wrong brokers: %v", err)
	}
	// Another log under the name.
	third := at("d", "lake2")
	third.Brokers = wrong.Brokers
	if err := openClosed(t, third); err != nil {
		t.Fatal(err)
	}
	wantConfigError(t, openClosed(t, wrong), "belongs to the log with id", "are these the right brokers")
	third.Data, third.Warehouse = filepath.Join(root, "e"), filepath.Join(root, "lake")
	wantConfigError(t, openClosed(t, third), "belongs to another deployment of the name varve")
}

// TestEmbeddedLogGone: without the broker's folder nothing is made anew.
func TestEmbeddedLogGone(t *testing.T) {
	dir := t.TempDir()
	if err := openClosed(t, NodeOptions{Data: dir}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "broker")); err != nil {
		t.Fatal(err)
	}
	wantConfigError(t, openClosed(t, NodeOptions{Data: dir}), "varve.transactions", "from a copy")
}

// TestLockWait: a node waits for a command that only looks at its folder.
func TestLockWait(t *testing.T) {
	dir := t.TempDir()
	l, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := openClosed(t, NodeOptions{Data: dir}); !errors.Is(err, ErrInUse) {
		t.Fatalf("error %v, want one of a folder in use", err)
	}
	time.AfterFunc(200*time.Millisecond, func() {
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	})
	if err := openClosed(t, NodeOptions{Data: dir, LockWait: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}
}

// ignoring is a store without conditional writes that says nothing of it.
type ignoring struct{ objstore.Store }

func (s ignoring) CreateExclusive(ctx context.Context, key string, data []byte) error {
	return s.Replace(ctx, key, data)
}

// A store that ignores the condition of a create is noticed at the first start.
func TestConditionalWritesAreTried(t *testing.T) {
	ctx := context.Background()
	mem := objstore.NewMem()
	n := &Node{opt: NodeOptions{Deployment: "d"}}
	n.store = mem
	if err := n.checkConditional(ctx); err != nil {
		t.Error(err)
	}
	n.store = ignoring{mem}
	if err := n.checkConditional(ctx); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "conditional_writes=false") {
		t.Errorf("got %v", err)
	}
	if err := mem.List(ctx, "", func(i objstore.Info) error { t.Errorf("left over: %s", i.Key); return nil }); err != nil {
		t.Fatal(err)
	}
}

// TestNodesStartAtOnce: nodes of a new deployment that start at the same time
// all take part: whoever is late finds a log with more than one genesis, and a
// warehouse that another has just marked.
func TestNodesStartAtOnce(t *testing.T) {
	b := openBroker(t, t.TempDir())
	lake := t.TempDir()
	ctx := groupContext(t)
	failed := make(chan error, 6)
	for i := range cap(failed) {
		data := t.TempDir()
		go func() {
			failed <- func() error {
				n, err := OpenNode(ctx, NodeOptions{
					Data: data, Warehouse: lake, Brokers: []string{b.Addr()}, Partitions: 2, Groups: true, NodeID: string(rune('a' + i)), Logger: slog.New(slog.DiscardHandler),
					SessionTimeout: 6 * time.Second,
				})
				if err != nil {
					return err
				}
				return errors.Join(n.Start(ctx), n.Close(ctx))
			}()
		}()
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// TestTwoWarehouses: two nodes that start a deployment at once with different
// warehouses: the log decides whose it is, and the other is told. Whoever reaches
// the same warehouse by another URL is not.
func TestTwoWarehouses(t *testing.T) {
	b := openBroker(t, t.TempDir())
	ctx := groupContext(t)
	lakes := []string{t.TempDir(), t.TempDir()}
	failed := make(chan error, len(lakes))
	for i, lake := range lakes {
		data := t.TempDir()
		go func() {
			n, err := OpenNode(ctx, NodeOptions{Data: data, Warehouse: lake, Brokers: []string{b.Addr()}, Partitions: 2, Groups: true, NodeID: string(rune('a' + i)), Logger: slog.New(slog.DiscardHandler)})
			if err == nil {
				err = n.Close(ctx)
			}
			failed <- err
		}()
	}
	refused := 0
	for range lakes {
		if err := <-failed; err != nil {
			refused++
			wantConfigError(t, err, "was begun by a node with another warehouse than", "--warehouse")
		}
	}
	marked := 0
	for _, lake := range lakes {
		if _, err := os.Stat(filepath.Join(lake, "_varve", "varve", "deployment")); err == nil {
			marked++
		} else if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if refused != 1 || marked != 1 {
		t.Errorf("%d nodes were refused, %d warehouses are marked: want one each", refused, marked)
	}
}

// TestMarkOfAnother: a node whose warehouse is the one that the log names, but
// by another URL, waits for the mark that the node makes that began the log.
func TestMarkOfAnother(t *testing.T) {
	ctx := groupContext(t)
	n := &Node{opt: NodeOptions{Deployment: "d"}}
	n.store = objstore.NewMem()
	time.AfterFunc(300*time.Millisecond, func() {
		if err := n.store.Create(ctx, markKey("d"), []byte("mine")); err != nil {
			t.Error(err)
		}
	})
	if err := n.marked(ctx, markKey("d"), "mine"); err != nil {
		t.Error(err)
	}
}

// TestUnusableWarehouse: a log does not begin with a warehouse that cannot be
// used: the next start may name another.
func TestUnusableWarehouse(t *testing.T) {
	b := openBroker(t, t.TempDir())
	n := &Node{opt: NodeOptions{Deployment: "d"}}
	n.store = ignoring{objstore.NewMem()}
	n.client = ClientOptions{Brokers: []string{b.Addr()}}
	n.admin = newAdmin(t, n.client)
	topics, err := NewTopics("d", 1, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	n.topics = topics
	ctx := groupContext(t)
	if err := n.admin.EnsureTopics(ctx, topics); err != nil {
		t.Fatal(err)
	}
	if err := n.genesis(ctx); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "conditional_writes=false") {
		t.Errorf("got %v", err)
	}
	at, err := n.admin.Offsets(ctx, topics.Transactions)
	if err != nil || at[0].High != 0 {
		t.Errorf("the log holds %+v, %v", at, err)
	}
}
