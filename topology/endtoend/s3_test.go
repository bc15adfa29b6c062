package endtoend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/varve-io/varve/statestore/objstore/s3store"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
	"github.com/varve-io/varve/topology/testcluster"
)

// s3Lake is a lake on an S3 gateway, reached through a proxy that makes faults.
type s3Lake struct {
	gateway  *testcluster.S3
	proxy    *testcluster.Proxy
	url      string
	location string
	folder   string // where its files lie
}

// onS3 is the lake of the test that is running; nil: a local folder.
var onS3 *s3Lake

func startLake(t *testing.T) *s3Lake {
	t.Helper()
	g := testcluster.StartS3(t)
	l := &s3Lake{gateway: g, proxy: testcluster.StartProxy(t, g.Endpoint())}
	l.url = g.Via(l.proxy.Endpoint(), "some/lake") + "&max_backoff=200ms&stall_timeout=5s"
	l.location, l.folder = "s3://"+testcluster.S3Bucket+"/some/lake", g.Folder("some/lake")
	onS3 = l
	t.Cleanup(func() { onS3 = nil })
	return l
}

// disturb makes one in so many requests fail, by every fault that takes no
// long time.
func (l *s3Lake) disturb(t *testing.T, oneIn int) { disturb(t, "store", l.proxy, oneIn) }

var quickFaults = []testcluster.Fault{
	testcluster.Reset, testcluster.ResetRequest, testcluster.ResetResponse, testcluster.Unavailable, testcluster.LoseAnswer, testcluster.Slow,
}

func disturb(t *testing.T, name string, p *testcluster.Proxy, oneIn int) {
	s := seed(t)
	r := rand.New(rand.NewPCG(s, 3))
	p.Delay(300 * time.Millisecond)
	p.Fail(func(*http.Request) testcluster.Fault {
		if r.IntN(oneIn) > 0 {
			return testcluster.Pass
		}
		return append(quickFaults, testcluster.LoseAnswer)[r.IntN(len(quickFaults)+1)]
	})
	t.Cleanup(func() {
		passed, faults := faultCounts(p)
		t.Logf("%s: %d requests passed, faults %v", name, passed, faults)
		if len(faults) == 0 {
			t.Error("no request had a fault")
		}
	})
}

// faultCounts is what a proxy did, by the name of the fault.
func faultCounts(p *testcluster.Proxy) (passed int, faults map[string]int) {
	faults = map[string]int{}
	for _, f := range quickFaults {
		if n := p.Count(f); n > 0 {
			faults[f.String()] = n
		}
	}
	return p.Count(testcluster.Pass), faults
}

func (l *s3Lake) locate(location string) string {
	rest, ok := strings.CutPrefix(location, l.location+"/")
	if !ok {
		return location
	}
	return filepath.Join(l.folder, filepath.FromSlash(rest))
}

// copyTo copies the lake's files into a folder and takes that for the lake.
func (l *s3Lake) copyTo(t *testing.T, folder string) {
	t.Helper()
	if err := os.CopyFS(folder, os.DirFS(l.folder)); err != nil {
		t.Fatal(err)
	}
	l.folder = folder
}

// readLake reads a table of the test's lake. DuckDB and PyIceberg ask the
// gateway itself.
func readLake(ctx context.Context, engine readers.Engine, metadata string, o readers.Options) (*readers.Table, error) {
	if onS3 != nil {
		switch engine {
		case readers.IcebergGo:
			o.Locate = onS3.locate
		case readers.DuckDB:
			o.Properties = map[string]string{
				"s3_endpoint": onS3.gateway.Addr(), "s3_use_ssl": "false", "s3_url_style": "path", "s3_region": "us-east-1",
				"s3_access_key_id": testcluster.S3AccessKey, "s3_secret_access_key": testcluster.S3SecretKey,
			}
		case readers.PyIceberg:
			o.Properties = map[string]string{
				"s3.endpoint": onS3.gateway.Endpoint(), "s3.region": "us-east-1",
				"s3.access-key-id": testcluster.S3AccessKey, "s3.secret-access-key": testcluster.S3SecretKey,
			}
		}
	}
	return readers.Read(ctx, engine, metadata, o)
}

// TestRandomEventsOnS3: TestRandomEvents with the lake on S3, one request in
// twenty with a fault.
func TestRandomEventsOnS3(t *testing.T) {
	l := startLake(t)
	l.disturb(t, 20)
	randomEvents(t, backend{name: "embedded"}, l.url, 5)
}

// TestKillOnS3: TestKill with the lake on S3, one request in twenty with a fault.
func TestKillOnS3(t *testing.T) {
	l := startLake(t)
	l.disturb(t, 20)
	killNodes(t, backend{name: "embedded"}, l, 3)
}

// TestStoreAway: while the store is away no event is lost and none is taken
// twice; the node says what it waits for, and goes on by itself.
func TestStoreAway(t *testing.T) {
	l := startLake(t)
	ctx := longContext(t)
	n := start(t, topology.NodeOptions{Data: dataDir(t), Warehouse: l.url + "&max_attempts=2", Deployment: "away", Partitions: 1, Logger: testLog(t, slog.LevelError+4)})
	f := newFeed(orders("shop.orders", 40, 200), seed(t))
	m := f.model()
	produce := func(events int) {
		t.Helper()
		if _, err := n.Produce(ctx, f.def.SourceTopic, f.partitions, f.take(events), nil); err != nil {
			t.Fatal(err)
		}
	}
	produce(60)
	info, _, err := n.EnsureTable(ctx, f.def)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Ingest(ctx, info); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitLoaded(ctx, f.def.Name, nil); err != nil {
		t.Fatal(err)
	}
	l.proxy.Refuse(true)
	produce(60)
	for waits := false; !waits; time.Sleep(20 * time.Millisecond) {
		for _, s := range n.Shards() {
			waits = waits || strings.Contains(s.Waiting, "no answer from "+l.proxy.Endpoint())
		}
		if ctx.Err() != nil {
			t.Fatal("no shard says that it waits for the store")
		}
	}
	l.proxy.Refuse(false)
	l.disturb(t, 4)
	produce(60)
	settle(ctx, t, n, f, m)
	stop(t, n)
}

// TestStoreRefusals: a store that cannot be used is one clear error at the
// start, which names it and shows no secret.
func TestStoreRefusals(t *testing.T) {
	g := testcluster.StartS3(t)
	nobody := testcluster.StartProxy(t, g.Endpoint())
	nobody.Refuse(true)
	serve := func(text string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
		t.Cleanup(s.Close)
		return s
	}
	page, long, other := serve("<html>Welcome</html>"), serve("\n<!DOCTYPE html>\n<html><head>"+strings.Repeat("<meta>", 100)), serve("pong")
	secured := httptest.NewTLSServer(http.NotFoundHandler())
	defer secured.Close()
	quick := "&max_attempts=2&max_backoff=100ms"
	for name, c := range map[string]struct {
		url, secret string
		want        error // nil: it may pass, and no configuration mends it
		says        string
	}{
		"a bucket that is not there": {strings.Replace(g.URL("x"), testcluster.S3Bucket, "nowhere", 1), "", topology.ErrConfig, "nowhere"},
		"wrong credentials":          {g.URL("x"), "a-Wrong-one", topology.ErrConfig, testcluster.S3Bucket},
		"nobody":                     {g.Via(nobody.Endpoint(), "x"), "", nil, nobody.Endpoint()},
		"a page":                     {g.Via(page.URL, "x"), "", topology.ErrConfig, page.URL[len("http://"):]},
		"a long page":                {g.Via(long.URL, "x"), "", topology.ErrConfig, "answers with HTML, not with"},
		"something else":             {g.Via(other.URL, "x"), "", topology.ErrConfig, "holds something else"},
		"a certificate":              {g.Via(secured.URL, "x"), "", topology.ErrConfig, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.secret != "" {
				t.Setenv("AWS_SECRET_ACCESS_KEY", c.secret)
			}
			data := dataDir(t)
			o := topology.NodeOptions{Data: data, Warehouse: c.url + quick, Logger: testLog(t, 12)}
			n, err := topology.OpenNode(longContext(t), o)
			if err == nil {
				t.Fatal("the node opened; ", n.Close(longContext(t)))
			}
			if c.want == nil && errors.Is(err, topology.ErrConfig) {
				t.Errorf("%v is no error of the configuration", err)
			}
			told(t, err, cmp.Or(c.want, err), c.says)
			if _, err := os.Stat(filepath.Join(data, "node.json")); !os.IsNotExist(err) {
				t.Error("the folder belongs to that store now: ", err)
			}
		})
	}
}
