package endtoend

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/testcluster"
)

// probe is what a node's /readyz or /healthz answers now.
func probe(t *testing.T, n *topology.Node, path string) (code int, body string) {
	t.Helper()
	r, err := http.Get(n.Monitor() + path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if cerr := r.Body.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
	return r.StatusCode, string(b)
}

// TestBrokerAwayIsBounded: while a node is in the midst of far more events than
// its buffers may hold and its broker is gone, it is not ready and says why, but
// lives; its buffers and its memory stay within their bound. When the broker is
// back the node goes on by itself, is ready, and has each event once.
func TestBrokerAwayIsBounded(t *testing.T) {
	const room, events, keys = 4 << 20, 60_000, 500
	kafka := testcluster.Start(t, 1)
	ctx := longContext(t)
	n := start(t, topology.NodeOptions{
		Data: dataDir(t), Brokers: kafka.Brokers(), Deployment: "away", Partitions: 1, BufferBytes: room, Logger: testLog(t, slog.LevelError+4),
	})
	def := definition("shop.away", source.DebeziumJSON, []schemas.Field{{Name: "id", Type: schemas.Of(schemas.Long)}, {Name: "name", Type: schemas.Of(schemas.String)}})
	pad, i := strings.Repeat("x", 400), 0
	produce := func(to int) {
		t.Helper()
		if _, err := n.Produce(ctx, def.SourceTopic, 1, func() (*topology.SourceEvent, error) {
			if i == to {
				return nil, io.EOF
			}
			i++
			return &topology.SourceEvent{
				Key: fmt.Appendf(nil, `{"id":%d}`, i%keys), Value: fmt.Appendf(nil, `{"before":null,"after":{"id":%d,"name":"%d %s"},"op":"u"}`, i%keys, i, pad), Partition: -1,
			}, nil
		}, nil); err != nil {
			t.Fatal(err)
		}
	}
	ready := func() {
		t.Helper()
		for {
			code, why := probe(t, n, "/readyz")
			if code == http.StatusOK {
				return
			}
			if time.Sleep(50 * time.Millisecond); ctx.Err() != nil {
				t.Fatalf("the node is not ready: %s", why)
			}
		}
	}
	produce(events)
	info, _, err := n.EnsureTable(ctx, def)
	if err == nil {
		err = n.Ingest(ctx, info)
	}
	if err != nil {
		t.Fatal(err)
	}
	ready()
	for info.Counts.Events == 0 || n.BufferBytes() < room/4 { // until it is in the midst of them
		time.Sleep(time.Millisecond)
		if info, err = n.Table(ctx, def.Name); err != nil {
			t.Fatal(err)
		}
	}
	kafka.KillNode(0)
	resident, held, grown := residentBytes(), int64(0), int64(0)
	unready, told := 0, ""
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		held, grown = max(held, n.BufferBytes()), max(grown, residentBytes()-resident)
		if code, body := probe(t, n, "/healthz"); code != http.StatusOK {
			t.Fatalf("healthz: %d, %s", code, body)
		}
		code, why := probe(t, n, "/readyz")
		switch {
		case code == http.StatusServiceUnavailable && strings.Contains(why, kafka.Brokers()[0]):
			unready, told = unready+1, why
		case code != http.StatusOK || unready > 0:
			t.Fatalf("readyz without a broker: %d, %s", code, why)
		}
	}
	if unready == 0 {
		t.Fatal("the node is ready without its broker")
	}
	if held > 3*room {
		t.Errorf("buffers took %d KiB, and may take %d", held>>10, room>>10)
	}
	if grown > 128<<20 {
		t.Errorf("%d MiB more are resident", grown>>20)
	}
	if info, err = n.Table(ctx, def.Name); err != nil {
		t.Fatal(err)
	}
	if info.Counts.Events == events {
		t.Error("all events were in the log before the broker went: nothing was tried")
	}
	t.Logf("%d of %d events were in the log; %d KiB of buffers, %d MiB more resident; it said: %s", info.Counts.Events, events, held>>10, grown>>20, told)
	kafka.StartNode(0)
	back := time.Now()
	ready()
	t.Logf("ready %s after the broker answered", time.Since(back))
	if err := n.WaitLoaded(ctx, def.Name, nil); err != nil {
		t.Fatal(err)
	}
	if info, err = n.Table(ctx, def.Name); err != nil {
		t.Fatal(err)
	}
	if rows := info.Rows - info.Dead; rows != keys || info.Counts.Events != events {
		t.Errorf("%d rows of %d events; there are %d keys, and came %d events", rows, info.Counts.Events, keys, events)
	}
	ready()
	stop(t, n)
}

// TestAwayIsBounded: while the store is away and events go on coming, far more
// than the buffers may hold, the node is not ready, its buffers and its memory
// stay within their bound, and nothing is lost when the store is back.
func TestAwayIsBounded(t *testing.T) {
	const room, events, keys = 4 << 20, 60_000, 500
	l := startLake(t)
	ctx := longContext(t)
	n := start(t, topology.NodeOptions{
		Data: dataDir(t), Warehouse: l.url + "&max_attempts=2", Deployment: "bounded", Partitions: 1, BufferBytes: room, Logger: testLog(t, slog.LevelError+4),
	})
	def := definition("shop.bounded", source.DebeziumJSON, []schemas.Field{{Name: "id", Type: schemas.Of(schemas.Long)}, {Name: "name", Type: schemas.Of(schemas.String)}})
	pad, i := strings.Repeat("x", 400), 0
	produce := func(to int) {
		t.Helper()
		if _, err := n.Produce(ctx, def.SourceTopic, 1, func() (*topology.SourceEvent, error) {
			if i == to {
				return nil, io.EOF
			}
			i++
			return &topology.SourceEvent{
				Key: fmt.Appendf(nil, `{"id":%d}`, i%keys), Value: fmt.Appendf(nil, `{"before":null,"after":{"id":%d,"name":"%d %s"},"op":"u"}`, i%keys, i, pad), Partition: -1,
			}, nil
		}, nil); err != nil {
			t.Fatal(err)
		}
	}
	produce(100)
	info, _, err := n.EnsureTable(ctx, def)
	if err == nil {
		err = n.Ingest(ctx, info)
	}
	if err == nil {
		err = n.WaitLoaded(ctx, def.Name, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Ready(ctx); err != nil {
		t.Errorf("before: %v", err)
	}
	l.proxy.Refuse(true)
	produce(events / 2) // more than the buffers may hold
	for unready := false; !unready; time.Sleep(20 * time.Millisecond) {
		err := n.Ready(ctx)
		unready = err != nil && strings.Contains(err.Error(), l.proxy.Endpoint())
		if ctx.Err() != nil {
			t.Fatalf("the node is ready without its store: %v", err)
		}
	}
	for n.BufferBytes() < room/2 { // as full as they get, about
		if time.Sleep(20 * time.Millisecond); ctx.Err() != nil {
			t.Fatalf("the buffers hold %d bytes", n.BufferBytes())
		}
	}
	resident := residentBytes()
	produce(events)
	held, grown := int64(0), int64(0)
	for range 150 {
		held, grown = max(held, n.BufferBytes()), max(grown, residentBytes()-resident)
		time.Sleep(20 * time.Millisecond)
	}
	// What is counted is the memory that the events' arenas have, which double as they
	// grow, and what a flush works with; all that came is twelve times the room.
	if held > 3*room {
		t.Errorf("buffers took %d KiB, and may take %d", held>>10, room>>10)
	}
	if grown > 128<<20 { // the client's own buffers, and what the collector has not taken yet
		t.Errorf("%d MiB more are resident after %d events that nobody could take", grown>>20, events/2)
	}
	l.proxy.Refuse(false)
	if err := n.WaitLoaded(ctx, def.Name, nil); err != nil {
		t.Fatal(err)
	}
	if info, err = n.Table(ctx, def.Name); err != nil {
		t.Fatal(err)
	}
	if rows := info.Rows - info.Dead; rows != keys || info.Counts.Events != events {
		t.Errorf("%d rows of %d events; there are %d keys, and came %d events", rows, info.Counts.Events, keys, events)
	}
	for ready := false; !ready; time.Sleep(20 * time.Millisecond) {
		if err := n.Ready(ctx); err == nil {
			ready = true
		} else if ctx.Err() != nil {
			t.Fatalf("after: %v", err)
		}
	}
	stop(t, n)
}
