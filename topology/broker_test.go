package topology

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// brokerChildEnv makes the test binary a process that appends to an embedded broker in this folder until it is
// killed.
const brokerChildEnv = "VARVE_TEST_BROKER_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(brokerChildEnv); dir != "" {
		if err := brokerChild(dir); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// brokerChild prints each offset that was acknowledged.
func brokerChild(dir string) error {
	b, err := OpenBroker(BrokerOptions{Dir: dir})
	if err != nil {
		return err
	}
	o := ClientOptions{Brokers: []string{b.Addr()}}
	a, err := NewAdmin(o)
	if err != nil {
		return err
	}
	ctx, end := contextWithTimeout(time.Minute)
	defer end()
	topics, err := NewTopics("child", 1, 1, true)
	if err != nil {
		return err
	}
	if err := a.EnsureTopics(ctx, topics); err != nil {
		return err
	}
	p, err := NewLogProducer(o, ProducerOptions{})
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	for i := 0; ; i++ {
		p.Append(ctx, topics.Transactions, 0, Entry{Value: childValue(i)}, func(offset int64, err error) {
			if err != nil {
				fmt.Fprintln(out, "error", err)
			} else {
				fmt.Fprintln(out, offset)
			}
			if err := out.Flush(); err != nil {
				os.Exit(1) // the parent is gone
			}
		})
		if i%100 == 99 {
			time.Sleep(time.Millisecond) // many batches, not one large one
		}
	}
}

// childValue is what record i holds; some are large, so that segments fill.
func childValue(i int) []byte {
	return append(strconv.AppendInt(nil, int64(i), 10), bytes.Repeat([]byte{'.'}, 100+i%7*1000)...)
}

// killedBroker lets a child append into dir and kills it; it returns the number of acknowledged records.
func killedBroker(t *testing.T, dir string, atLeast int) int64 {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), brokerChildEnv+"="+dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked, killed := int64(0), false
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		offset, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil && !killed {
			t.Fatalf("child: %s %s", lines.Text(), stderr.String())
		}
		if err != nil || offset != acked {
			continue // a line cut by the kill
		}
		acked++
		if acked == int64(atLeast) {
			killed = true
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || !killed {
		t.Fatalf("child ended by itself: %v %s", err, stderr.String())
	}
	return acked
}

// TestBrokerKilled: every record that was acknowledged is there after the process was killed, twice over.
func TestBrokerKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "broker")
	acked := killedBroker(t, dir, 5_000)
	b, err := OpenBroker(BrokerOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	on := target{client: ClientOptions{Brokers: []string{b.Addr()}}, embedded: true}
	at, err := newAdmin(t, on.client).Offsets(testContext(t), "child.transactions")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d acknowledged, %d in the log", acked, at[0].High)
	if at[0].High < acked || at[0].Start != 0 || at[0].Stable != at[0].High {
		t.Fatalf("%d records were acknowledged, offsets are %+v", acked, at[0])
	}
	r := openReader(t, on, ReaderOptions{Topic: "child.transactions"})
	for i, rec := range readUntil(t, r, int(at[0].High)) {
		if rec.Offset != int64(i) || !bytes.Equal(rec.Value, childValue(i)) {
			t.Fatalf("record %d: offset %d, value %.20q", i, rec.Offset, rec.Value)
		}
	}
	// It goes on at the end.
	if offset, err := newProducer(t, on.client, ProducerOptions{}).AppendSync(testContext(t), "child.transactions", 0, Entry{}); err != nil || offset != at[0].High {
		t.Fatalf("appended at %d, %v", offset, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestBrokerSnapshotAfterKill: the next start after a kill loads by a snapshot, not by decoding the whole log
// into memory. A snapshot alone knows where a log starts whose first batch was partly deleted: decoding loses
// it.
func TestBrokerSnapshotAfterKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "broker")
	killedBroker(t, dir, 300)
	part := filepath.Join(dir, "partitions", "child.transactions-0")
	if _, err := os.Stat(filepath.Join(part, "snapshot.json")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a killed broker left a snapshot: %v", err)
	}
	if err := prepareBrokerLog(dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	var snap brokerSnapshot
	raw, err := os.ReadFile(filepath.Join(part, "snapshot.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &snap); err != nil {
		t.Fatal(err)
	}
	snap.LogStartOffset = 1
	if raw, err = json.Marshal(snap); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(part, "snapshot.json"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBroker(BrokerOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	at, err := newAdmin(t, ClientOptions{Brokers: []string{b.Addr()}}).Offsets(testContext(t), "child.transactions")
	if err != nil {
		t.Fatal(err)
	}
	if at[0].Start != 1 || at[0].High != snap.HighWatermark {
		t.Errorf("offsets %+v, want start 1 and end %d: the snapshot was not used", at[0], snap.HighWatermark)
	}
}

// brokerWithRecords returns the folder of a closed broker with a topic of single-record batches.
func brokerWithRecords(t *testing.T, records int) (dir, partition string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "broker")
	b, err := OpenBroker(BrokerOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	on := target{client: ClientOptions{Brokers: []string{b.Addr()}}, embedded: true}
	topics, err := NewTopics("d", 1, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	a := newAdmin(t, on.client)
	if err := a.EnsureTopics(testContext(t), topics); err != nil {
		t.Fatal(err)
	}
	// Small segments, so that there are several.
	if _, err := a.adm.AlterTopicConfigs(testContext(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "segment.bytes", Value: kadm.StringPtr("1000")}}, topics.Transactions); err != nil {
		t.Fatal(err)
	}
	p := newProducer(t, on.client, ProducerOptions{Linger: -1})
	for i := range records {
		appendAll(t, p, topics.Transactions, fmt.Sprintf("record %d %s", i, strings.Repeat("x", 200)))
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, "partitions", topics.Transactions+"-0")
}

// TestBrokerDamage: what a killed process may leave is mended; damage of acknowledged records is refused.
func TestBrokerDamage(t *testing.T) {
	const records = 20
	flip := func(t *testing.T, path string, at int64) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if at < 0 {
			at += info.Size()
		}
		var b [1]byte
		if _, err := f.ReadAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 0x40
		if _, err := f.WriteAt(b[:], at); err != nil {
			t.Fatal(err)
		}
	}
	add := func(t *testing.T, path string, b []byte) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cut := func(t *testing.T, path string, by int64) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, info.Size()-by); err != nil {
			t.Fatal(err)
		}
	}
	batch := func(t *testing.T, path string) []byte {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	remove := func(t *testing.T, path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	whole, wholePart := brokerWithRecords(t, records)
	partName, err := filepath.Rel(whole, wholePart)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		// killed: there was no clean close before.
		killed bool
		harm   func(t *testing.T, dir string, first, last string)
		mark   error
		part   string
		high   int64
	}{
		{name: "nothing", harm: func(*testing.T, string, string, string) {}, high: records},
		{name: "killed", killed: true, harm: func(*testing.T, string, string, string) {}, high: records},
		{name: "torn header", killed: true, harm: func(t *testing.T, _, _, last string) { add(t, last, []byte{0, 0, 0}) }, high: records},
		{name: "torn batch", killed: true, harm: func(t *testing.T, _, first, last string) { add(t, last, batch(t, first)[:100]) }, high: records},
		{name: "zeros of a power cut", killed: true, harm: func(t *testing.T, _, _, last string) { add(t, last, make([]byte, 4096)) }, high: records},
		{name: "last batch half on disk", killed: true, harm: func(t *testing.T, _, _, last string) { cut(t, last, 10) }, high: records - 1},
		{name: "index behind", killed: true, harm: func(t *testing.T, _, _, last string) { cut(t, strings.Replace(last, ".dat", ".idx", 1), 15) }, high: records},
		{name: "index torn", killed: true, harm: func(t *testing.T, _, _, last string) { cut(t, strings.Replace(last, ".dat", ".idx", 1), 7) }, high: records},
		{name: "no index", killed: true, harm: func(t *testing.T, _, _, last string) { remove(t, strings.Replace(last, ".dat", ".idx", 1)) }, high: records},
		{name: "empty new segment", killed: true, harm: func(t *testing.T, _, _, last string) {
			if err := os.WriteFile(filepath.Join(filepath.Dir(last), fmt.Sprintf("%d.dat", records)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}, high: records},

		{name: "changed byte in the first segment", killed: true, harm: func(t *testing.T, _, first, _ string) { flip(t, first, 80) }, mark: ErrBrokerDamaged, part: "0.dat"},
		{name: "changed byte, closed", harm: func(t *testing.T, _, first, _ string) { flip(t, first, 80) }, mark: ErrBrokerDamaged, part: "checksum"},
		{name: "changed byte in an earlier batch of the last segment", killed: true, harm: func(t *testing.T, _, _, last string) { flip(t, last, 80) }, mark: ErrBrokerDamaged, part: "checksum"},
		{name: "changed offset", killed: true, harm: func(t *testing.T, _, first, _ string) { flip(t, first, 6) }, mark: ErrBrokerDamaged, part: "has offset"},
		{name: "changed length", killed: true, harm: func(t *testing.T, _, _, last string) { flip(t, last, 8) }, mark: ErrBrokerDamaged},
		{name: "first segment cut", killed: true, harm: func(t *testing.T, _, first, _ string) { cut(t, first, 10) }, mark: ErrBrokerDamaged},
		{name: "last segment emptied", killed: true, harm: func(t *testing.T, _, _, last string) { cut(t, last, int64(len(batch(t, last)))) }, mark: ErrBrokerDamaged, part: "index has"},
		{name: "middle segment gone", killed: true, harm: func(t *testing.T, _, first, last string) {
			all, err := filepath.Glob(filepath.Join(filepath.Dir(first), "*.dat"))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				if s != first && s != last {
					remove(t, s)
					return
				}
			}
			t.Fatal("no middle segment")
		}, mark: ErrBrokerDamaged, part: "starts at offset"},
		{name: "last segment gone after a clean close", harm: func(t *testing.T, _, _, last string) { remove(t, last) }, mark: ErrBrokerDamaged, part: "last clean close"},
		{name: "no meta.json", harm: func(t *testing.T, dir, _, _ string) { remove(t, filepath.Join(dir, "meta.json")) }, mark: ErrBrokerDamaged, part: "meta.json"},
		{name: "no topics.json", harm: func(t *testing.T, dir, _, _ string) { remove(t, filepath.Join(dir, "topics.json")) }, mark: ErrBrokerDamaged, part: "topics.json"},
		{name: "newer format", harm: func(t *testing.T, dir, _, _ string) {
			if err := os.WriteFile(filepath.Join(dir, "meta.json"), []byte(`{"version":2}`), 0o644); err != nil {
				t.Fatal(err)
			}
		}, part: "version 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "broker")
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			part := filepath.Join(dir, partName)
			segments, err := filepath.Glob(filepath.Join(part, "*.dat"))
			if err != nil || len(segments) < 3 {
				t.Fatalf("segments %v, %v", segments, err)
			}
			first, last := filepath.Join(part, "0.dat"), ""
			highest := int64(-1)
			for _, s := range segments {
				base, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(s), ".dat"), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				if base > highest {
					highest, last = base, s
				}
			}
			if c.killed {
				remove(t, filepath.Join(part, "snapshot.json"))
			}
			c.harm(t, dir, first, last)
			b, err := OpenBroker(BrokerOptions{Dir: dir})
			if c.mark != nil || c.part != "" {
				if err == nil {
					b.Close()
				}
				if err == nil || c.mark != nil && !errors.Is(err, c.mark) || !strings.Contains(err.Error(), c.part) {
					t.Fatalf("got %v, want %v with %q", err, c.mark, c.part)
				}
				// A refused start gives the folder back.
				lock, err := LockDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				if err := lock.Unlock(); err != nil {
					t.Fatal(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			on := target{client: ClientOptions{Brokers: []string{b.Addr()}}, embedded: true}
			for i, rec := range readUntil(t, openReader(t, on, ReaderOptions{Topic: "d.transactions"}), int(c.high)) {
				if rec.Offset != int64(i) || !strings.HasPrefix(string(rec.Value), fmt.Sprintf("record %d ", i)) {
					t.Fatalf("record %d: offset %d, value %.20q", i, rec.Offset, rec.Value)
				}
			}
			p := newProducer(t, on.client, ProducerOptions{})
			if offset, err := p.AppendSync(testContext(t), "d.transactions", 0, Entry{Value: []byte("after")}); err != nil || offset != c.high {
				t.Fatalf("appended at %d, want %d: %v", offset, c.high, err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if b, err = OpenBroker(BrokerOptions{Dir: dir}); err != nil {
				t.Fatalf("open again: %v", err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestBrokerFolder: one process a folder, the same port again, the same topics again.
func TestBrokerFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "broker")
	b, err := OpenBroker(BrokerOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	_, err = OpenBroker(BrokerOptions{Dir: dir})
	wantError(t, err, ErrInUse, dir, strconv.Itoa(os.Getpid()))
	addr := b.Addr()
	if !strings.HasPrefix(addr, "127.0.0.1:") {
		t.Errorf("listens on %s", addr)
	}
	info, err := newAdmin(t, ClientOptions{Brokers: []string{addr}}).EnsureSourceTopic(testContext(t), "events", 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatalf("closed twice: %v", err)
	}
	if err := Ping(testContext(t), ClientOptions{Brokers: []string{addr}}, 200*time.Millisecond); !errors.Is(err, ErrUnreachable) {
		t.Fatalf("a closed broker answers: %v", err)
	}

	if b, err = OpenBroker(BrokerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if b.Addr() != addr {
		t.Errorf("listened on %s, now on %s", addr, b.Addr())
	}
	again, err := newAdmin(t, ClientOptions{Brokers: []string{addr}}).Topic(testContext(t), "events")
	if err != nil || again != info {
		t.Errorf("topic was %+v, is %+v, %v", info, again, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	// The port is taken: another one, unless it was asked for.
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if b, err = OpenBroker(BrokerOptions{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if b.Addr() == addr {
		t.Errorf("listens on the taken %s", addr)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := OpenBroker(BrokerOptions{Dir: dir, Port: ln.Addr().(*net.TCPAddr).Port}); err == nil {
		b.Close()
		t.Error("opened on a port that is taken")
	}
}

// TestBrokerKeepsAll: a topic with a retention of its own must not age the others (L4).
func TestBrokerKeepsAll(t *testing.T) {
	b := openBroker(t, t.TempDir())
	on := target{client: ClientOptions{Brokers: []string{b.Addr()}}, embedded: true}
	ctx := testContext(t)
	a := newAdmin(t, on.client)
	log := logTopic(t, on)
	for topic, retention := range map[string]string{"aging": "1000", "plain": ""} {
		configs := map[string]*string{}
		if retention != "" {
			configs["retention.ms"] = &retention
		}
		if _, err := a.adm.CreateTopic(ctx, 1, 1, configs, topic); err != nil {
			t.Fatal(err)
		}
	}
	cl, err := newClient(on.client)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	old := time.Now().Add(-30 * 24 * time.Hour)
	for _, topic := range []string{"aging", "plain", log} {
		for range 2 {
			if err := cl.ProduceSync(ctx, oldRecord(topic, old)).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.cluster.ApplyRetention()
	for topic, start := range map[string]int64{"aging": 2, "plain": 0, log: 0} {
		at, err := a.Offsets(ctx, topic)
		if err != nil || at[0].Start != start || at[0].High != 2 {
			t.Errorf("topic %s: %+v, %v, want start %d", topic, at, err, start)
		}
	}
}

// TestBrokerWriteFails: a record that could not be written is answered with an error, and what is acknowledged
// afterwards is there.
func TestBrokerWriteFails(t *testing.T) {
	b := openBroker(t, t.TempDir())
	on := target{client: ClientOptions{Brokers: []string{b.Addr()}}, embedded: true}
	log := logTopic(t, on)
	// Where the partition's folder would be made, a file is in the way.
	part := filepath.Join(b.Dir(), "partitions", log+"-0")
	if err := os.MkdirAll(filepath.Dir(part), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(part, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p := newProducer(t, on.client, ProducerOptions{})
	if offset, err := p.AppendSync(testContext(t), log, 0, Entry{Value: []byte("a")}); err == nil {
		t.Fatalf("acknowledged at offset %d without a place to write it", offset)
	}
	if err := os.Remove(part); err != nil {
		t.Fatal(err)
	}
	for i, v := range []string{"a", "b"} {
		if offset, err := p.AppendSync(testContext(t), log, 0, Entry{Value: []byte(v)}); err != nil || offset != int64(i) {
			t.Fatalf("record %s: offset %d, %v", v, offset, err)
		}
	}
	for i, rec := range readUntil(t, openReader(t, on, ReaderOptions{Topic: log}), 2) {
		if want := []string{"a", "b"}[i]; string(rec.Value) != want {
			t.Errorf("record %d is %q, want %q", i, rec.Value, want)
		}
	}
}

// TestBrokerWarnsAboutSize: above the limit it says so.
func TestBrokerWarnsAboutSize(t *testing.T) {
	var out syncBuffer
	b, err := OpenBroker(BrokerOptions{Dir: filepath.Join(t.TempDir(), "broker"), WarnBytes: 10, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for !strings.Contains(out.String(), "its log is large") {
		if time.Now().After(deadline) {
			t.Fatalf("no warning: %s", out.String())
		}
		time.Sleep(5 * time.Millisecond)
	}
	if size, err := b.SizeBytes(); err != nil || size < 10 {
		t.Errorf("size %d, %v", size, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}
