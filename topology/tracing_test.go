package topology

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// otlpServer keeps what OTLP clients send, as bytes: names of spans and the values
// of attributes stand in them as they are.
type otlpServer struct {
	mu  sync.Mutex
	got bytes.Buffer
}

func (c *otlpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := io.Copy(&c.got, io.LimitReader(body, 1<<20)); err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "no", http.StatusBadRequest)
	}
}

// Spans reach the collector with their tables and errors; a record's key does not,
// and a record that is produced gets no header.
func TestTraces(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c := &otlpServer{}
	srv := httptest.NewServer(c)
	defer srv.Close()
	tr, err := OpenTraces(ctx, TraceOptions{Endpoint: srv.URL, Records: 1, Deployment: "shop-eu"})
	if err != nil {
		t.Fatal(err)
	}
	_, end := tr.span(ctx, "publish")
	end(errors.New("catalog away"))
	b, err := OpenBroker(BrokerOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.WithHooks(tr.hooks...), kgo.ConsumeTopics("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	r := &kgo.Record{Topic: "orders", Key: []byte("anna@example.org"), Value: []byte("secret-value"), Headers: []kgo.RecordHeader{{Key: "own", Value: []byte("x")}}}
	if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	got := cl.PollFetches(ctx)
	if got.Err() != nil || got.NumRecords() != 1 || len(got.Records()[0].Headers) != 1 {
		t.Fatalf("%v, %d records, headers %v", got.Err(), got.NumRecords(), got.Records()[0].Headers)
	}
	if err := tr.Close(ctx); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, want := range []string{"publish", "catalog away", "shop-eu", "orders"} {
		if !bytes.Contains(c.got.Bytes(), []byte(want)) {
			t.Errorf("no %q among what was sent", want)
		}
	}
	for _, secret := range []string{"anna", "secret"} {
		if bytes.Contains(c.got.Bytes(), []byte(secret)) {
			t.Errorf("%q was sent", secret)
		}
	}
}

func TestTraceOptions(t *testing.T) {
	for _, o := range []TraceOptions{{Endpoint: "127.0.0.1:4318"}, {Endpoint: "ftp://x"}, {Endpoint: "http://x:1", Records: 1.5}, {Endpoint: "http://x:1", Records: -1}} {
		if _, err := OpenTraces(context.Background(), o); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "traces") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	var none *Traces
	_, end := none.span(context.Background(), "x")
	end(nil)
	if err := none.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
