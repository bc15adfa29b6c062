package endtoend

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
	"github.com/varve-io/varve/topology"
)

// TestClose: a node that is closed leaves nothing that it had taken in
// unpublished, however long its commit interval is, and no goroutine behind.
func TestClose(t *testing.T) {
	ctx := longContext(t)
	o := topology.NodeOptions{Data: dataDir(t)}
	before := runtime.NumGoroutine()
	f := newFeed(users("people.users", 30, 100), 9)
	f.def.CommitIntervalMs = 2000
	n := start(t, o)
	if err := prepare(ctx, n, f.workload); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Produce(ctx, f.def.SourceTopic, f.partitions, f.take(1000), nil); err != nil {
		t.Fatal(err)
	}
	for taken := false; !taken; { // something is in the shards' buffers, and nothing is published
		time.Sleep(time.Millisecond)
		for _, s := range n.Shards() {
			taken = taken || s.Position > 0
		}
	}
	stop(t, n)
	// The database and its caches end some of theirs a little later.
	for end := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > before+2; {
		if time.Now().After(end) {
			var out strings.Builder
			if err := pprof.Lookup("goroutine").WriteTo(&out, 1); err != nil {
				t.Error(err)
			}
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, out.String())
		}
		time.Sleep(10 * time.Millisecond)
	}

	n, err := topology.OpenNode(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	info, err := n.Table(ctx, f.def.Name)
	if err != nil {
		t.Fatal(err)
	}
	if info.Pending != nil || info.Changes || info.Head.Through < info.LastChange || info.Rows == 0 {
		t.Errorf("closed with pending %+v, changes %v, published through %d of %d, %d rows", info.Pending, info.Changes, info.Head.Through, info.LastChange, info.Rows)
	}
	if err := n.Close(ctx); err != nil { // never started
		t.Fatal(err)
	}
	n = start(t, o)
	settle(ctx, t, n, f, f.model())
	stop(t, n)
}

// TestRestart: a clean stop keeps everything that a start needs: nothing of
// the log is applied again, and no shard reads it again.
func TestRestart(t *testing.T) {
	s, n := newSmall(t, topology.NodeOptions{})
	for range 10 {
		s.load(t, n, 100)
	}
	stop(t, n)
	st, err := statestore.Open(filepath.Join(s.o.Data, "state", "0"), statestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	head := st.Head().Offset
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	n = start(t, s.o)
	log := readTopic(longContext(t), t, n, n.Topics().Transactions, 0)
	if len(log) < 20 {
		t.Fatalf("a log of %d records proves nothing", len(log))
	}
	for i := head + 1; i < int64(len(log)); i++ {
		// The new claims alone.
		if string(log[i].Key) != s.f.def.Name || i > head+int64(s.f.partitions) {
			t.Fatalf("the state has applied the log up to %d, %d is more than a claim", head, i)
		}
	}
	for _, x := range n.Shards() {
		// What came after the shards had been drained: the last cut and its commit.
		if x.ReadFrom < head-4 {
			t.Errorf("shard %d reads the log again from %d of %d on", x.Partition, x.ReadFrom, head)
		}
	}
	s.load(t, n, 10)
	settle(longContext(t), t, n, s.f, s.m)
	stop(t, n)
}

// TestDaysLater: given a log that is a day older than its newest record, the
// claims and requests of a new owner are not too old (L9).
func TestDaysLater(t *testing.T) {
	s, n := newSmall(t, topology.NodeOptions{})
	_, cl := admin(t, n.Brokers())
	now := time.Now()
	for _, later := range []time.Duration{time.Hour, 26 * time.Hour, 27 * time.Hour} {
		// Table time is the record's, whatever the record says (L4, L7).
		r := &kgo.Record{Topic: n.Topics().Transactions, Value: []byte("not ours"), Timestamp: now.Add(later)}
		if err := cl.ProduceSync(longContext(t), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	s.load(t, n, 100)
	stop(t, n)
	s.check(t)
	st, err := statestore.Open(filepath.Join(s.o.Data, "state", "0"), statestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if st.Head().Horizon <= 0 {
		t.Error("there is no dedupe horizon: the test proves nothing")
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// smallDisk mounts a file system of so many MiB in memory.
func smallDisk(t *testing.T, mib string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+mib+"m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("skipped: a small disk cannot be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return dir
}

// fill leaves at most so many bytes free.
func fill(t *testing.T, dir string, leave int) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 64<<10)
	size := 0
	for {
		n, err := f.Write(chunk)
		size += n
		if err != nil {
			break
		}
	}
	if err := f.Truncate(int64(max(size-leave, 0))); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// waitForAll waits until every shard waits for something: one that does not yet
// may still be about to take in the records that come next.
func waitForAll(t *testing.T, n *topology.Node) {
	t.Helper()
	for end := time.Now().Add(longTime); ; time.Sleep(10 * time.Millisecond) {
		busy := slices.IndexFunc(n.Shards(), func(s topology.ShardStatus) bool { return s.Waiting == "" })
		if busy < 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("shard %d of %d waits for nothing", busy, len(n.Shards()))
		}
	}
}

// waitFor waits until a shard waits for something that says all these words.
func waitFor(t *testing.T, n *topology.Node, words ...string) {
	t.Helper()
	last := ""
	for end := time.Now().Add(longTime); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	shards:
		for _, s := range n.Shards() {
			last = s.Waiting
			for _, w := range words {
				if !strings.Contains(last, w) {
					continue shards
				}
			}
			t.Log("waits: ", last)
			return
		}
		select {
		case err := <-n.Fatal():
			t.Fatal(err)
		default:
		}
	}
	t.Fatalf("no shard waits for %q; the last said %q", words, last)
}

// TestDiskFull: on a disk that gets full a node pauses, says where, and goes on
// by itself when there is space. Nothing is lost, nothing doubled.
func TestDiskFull(t *testing.T) {
	produce := func(t *testing.T, n *topology.Node, s *small, events int) {
		t.Helper()
		o := topology.ClientOptions{Brokers: n.Brokers()}
		if _, err := topology.ProduceTo(longContext(t), o, s.f.def.SourceTopic, s.f.partitions, s.f.take(events), nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("reserve", func(t *testing.T) {
		disk := smallDisk(t, "96")
		f := newFeed(users("people.users", 20, 1<<30), 5)
		s := &small{topology.NodeOptions{Data: disk, DiskReserve: 16 << 20}, f, f.model()}
		n := start(t, s.o)
		if err := prepare(longContext(t), n, f.workload); err != nil {
			t.Fatal(err)
		}
		s.load(t, n, 100)
		empty := fill(t, disk, 8<<20)
		waitFor(t, n, disk, "bytes free")
		waitForAll(t, n)
		produce(t, n, s, 500)
		time.Sleep(300 * time.Millisecond)
		for _, x := range n.Shards() {
			if x.Position >= int64(len(f.made[x.Partition])) {
				t.Errorf("shard %d reads on: it is at %d of %d", x.Partition, x.Position, len(f.made[x.Partition]))
			}
		}
		empty()
		settle(longContext(t), t, n, f, s.m)
		stop(t, n)
	})
	t.Run("lake", func(t *testing.T) {
		lake := smallDisk(t, "8")
		s, n := newSmall(t, topology.NodeOptions{Warehouse: lake, DiskReserve: -1})
		empty := fill(t, lake, 0)
		produce(t, n, s, 500)
		waitFor(t, n, lake, "no space left")
		time.Sleep(500 * time.Millisecond) // several attempts
		empty()
		settle(longContext(t), t, n, s.f, s.m)
		stop(t, n)
	})
	t.Run("broker", func(t *testing.T) {
		// The log's own disk: appends fail, the shards claim again until one does not.
		disk := smallDisk(t, "8")
		data := dataDir(t)
		if err := os.Symlink(disk, filepath.Join(data, "broker")); err != nil {
			t.Fatal(err)
		}
		f := newFeed(users("people.users", 20, 1<<30), 5)
		s := &small{topology.NodeOptions{Data: data, DiskReserve: -1}, f, f.model()}
		n := start(t, s.o)
		if err := prepare(longContext(t), n, f.workload); err != nil {
			t.Fatal(err)
		}
		s.load(t, n, 100)
		empty := fill(t, disk, 0)
		for i := 0; ; i++ { // requests that change nothing, until the last pages are full too
			if i == 1000 {
				t.Fatal("a full disk takes a thousand requests")
			}
			ctx, cancel := context.WithTimeout(longContext(t), 2*time.Second)
			_, err := n.DeleteKeys(ctx, f.def.Name, [][]byte{[]byte("nobody")}, nil)
			cancel()
			if err != nil {
				t.Logf("after %d requests: %v", i, err)
				break
			}
		}
		time.Sleep(time.Second)
		empty()
		produce(t, n, s, 300)
		settle(longContext(t), t, n, f, s.m)
		stop(t, n)
		s.check(t)
	})
	t.Run("start", func(t *testing.T) {
		disk := smallDisk(t, "4")
		empty := fill(t, disk, 0)
		refused(t, topology.NodeOptions{Data: disk}, objstore.ErrNoSpace, disk, "make space")
		empty()
	})
}

// TestStoppedShard: a shard that stops, as it was told to at a bad event, is
// told of; the other tables' shards go on, and their work is not lost.
func TestStoppedShard(t *testing.T) {
	ctx := longContext(t)
	o := topology.NodeOptions{Data: dataDir(t), StopOnError: true}
	n := start(t, o)
	good := newFeed(orders("shop.good", 20, 1<<30), 3)
	all := good.event
	good.event = func(seed uint64, p int32, i int) event {
		e := all(seed, p, i)
		for k := uint64(1); e.bad; k++ {
			e = all(seed+k, p, i)
		}
		return e
	}
	bad := newFeed(users("people.bad", 20, 1<<30), 3)
	for _, f := range []*feed{good, bad} {
		if err := prepare(ctx, n, f.workload); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.Produce(ctx, bad.def.SourceTopic, bad.partitions, bad.take(300), nil); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-n.Fatal():
		told(t, err, ingest.ErrRefused, "people.bad", "source offset")
	case <-ctx.Done():
		t.Fatal("nobody is told of the bad event")
	}
	if _, err := n.Produce(ctx, good.def.SourceTopic, good.partitions, good.take(300), nil); err != nil {
		t.Fatal(err)
	}
	for read := false; !read; time.Sleep(time.Millisecond) {
		read = true
		for _, s := range n.Shards() {
			read = read && (s.Table != good.def.Name || s.Position == int64(len(good.made[s.Partition])))
		}
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	n, err := topology.OpenNode(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	info, err := n.Table(ctx, good.def.Name)
	if err != nil {
		t.Fatal(err)
	}
	if info.Pending != nil || info.Changes || info.Counts.Events == 0 {
		t.Errorf("the good table was closed with pending %+v, changes %v, %d events", info.Pending, info.Changes, info.Counts.Events)
	}
	if err := n.Close(ctx); err != nil {
		t.Fatal(err)
	}
	o.StopOnError = false
	n = start(t, o)
	for _, f := range []*feed{good, bad} {
		settle(ctx, t, n, f, f.model())
	}
	stop(t, n)
}
