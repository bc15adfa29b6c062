package endtoend

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
)

// residentBytes is what the process takes now, 0 where that is not known.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			if err == nil {
				return kb << 10
			}
		}
	}
	return 0
}

// TestManyTables: one node has many tables, each with a topic of its own
// (VARVE_TABLES; the long form has 500). All of them are loaded, a table that
// comes later too; buffers together stay within what they may take, and so does
// the process.
func TestManyTables(t *testing.T) {
	tables := count(t, "VARVE_TABLES", 20, 20)
	const events, room = 2000, 64 << 20
	ctx := longContext(t)
	o := topology.NodeOptions{Data: dataDir(t), BufferBytes: room}
	if tables > 50 { // the embedded broker is none for so many topics
		o.Brokers = kafkaBackend(t).brokers
		o.Warehouse = filepath.Join(o.Data, "lake")
	}
	n := start(t, o)
	defer stop(t, n)
	pad := strings.Repeat("x", 400)
	feed := func(name string, from, to int) {
		i := from - 1
		if _, err := n.Produce(ctx, name, 1, func() (*topology.SourceEvent, error) {
			if i++; i == to {
				return nil, io.EOF
			}
			return &topology.SourceEvent{Key: fmt.Appendf(nil, `{"id":%d}`, i%1000), Partition: -1,
				Value: fmt.Appendf(nil, `{"before":null,"after":{"id":%d,"name":"%s-%d-%s"},"op":"u"}`, i%1000, name, i, pad)}, nil
		}, nil); err != nil {
			t.Error(err)
		}
	}
	var resident, held int64
	var watching sync.WaitGroup
	var over atomic.Bool
	watching.Go(func() {
		for !over.Load() {
			resident, held = max(resident, residentBytes()), max(held, n.BufferBytes())
			time.Sleep(20 * time.Millisecond)
		}
	})
	name := func(i int) string { return fmt.Sprintf("many.t%03d", i) }
	began := time.Now()
	slots := make(chan struct{}, 4)
	var work sync.WaitGroup
	make := func(i int) {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			feed(name(i), 0, events)
			def := definition(name(i), source.DebeziumJSON, []schemas.Field{{Name: "id", Type: schemas.Of(schemas.Long)}, {Name: "name", Type: schemas.Of(schemas.String)}})
			def.CommitIntervalMs = 1000
			info, _, err := n.EnsureTable(ctx, def)
			if err == nil {
				err = n.Ingest(ctx, info)
			}
			if err != nil {
				t.Error(name(i), err)
			}
		})
	}
	loaded := func(of int, rows int64) {
		t.Helper()
		for i := range of {
			if err := n.WaitLoaded(ctx, name(i), nil); err != nil {
				t.Fatal(name(i), err)
			}
			info, err := n.Table(ctx, name(i))
			if err != nil {
				t.Fatal(err)
			}
			if info.Rows-info.Dead != rows || info.Head.SnapshotID == 0 {
				t.Fatalf("table %s: %d rows, snapshot %d", name(i), info.Rows-info.Dead, info.Head.SnapshotID)
			}
		}
	}
	for i := range tables {
		make(i)
	}
	work.Wait()
	made := time.Since(began)
	if t.Failed() {
		return
	}
	loaded(tables, 1000)
	first := time.Since(began)
	base := residentBytes()
	cpu := processorTime(t)
	idle := 5 * time.Second
	time.Sleep(idle)
	cpu = processorTime(t) - cpu
	// All of them at once, and one more that comes meanwhile.
	again := time.Now()
	for i := range tables {
		slots <- struct{}{}
		work.Go(func() { defer func() { <-slots }(); feed(name(i), events, events+1000) })
	}
	make(tables)
	work.Wait()
	loaded(tables+1, 1000)
	over.Store(true)
	watching.Wait()
	t.Logf("figures: %d tables made and fed in %s, all in snapshots after %s; %d events more for each in %s; %d MiB resident when idle, %d MiB at most, buffers %d MiB at most; %.1f %% of a core when idle; %d goroutines",
		tables, made.Round(time.Millisecond), first.Round(time.Millisecond), 1000, time.Since(again).Round(time.Millisecond), base>>20, resident>>20, held>>20, 100*cpu.Seconds()/idle.Seconds(), runtime.NumGoroutine())
	// A buffer is full after the batch that fills it.
	if held > room+int64(tables)<<20 {
		t.Errorf("buffers took %d MiB, and may take %d", held>>20, room>>20)
	}
	if most := int64(600+4*tables) << 20; resident > most {
		t.Errorf("the process took %d MiB, with %d tables", resident>>20, tables)
	}
}

// processorTime is what the process has had of processors.
func processorTime(t *testing.T) time.Duration {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}
