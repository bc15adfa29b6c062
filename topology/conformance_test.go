package topology

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/topology/testcluster"
)

// TestConformance runs the same tests against the embedded broker and a real Apache Kafka: what the first
// allows, the second must allow too.
func TestConformance(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		conformance(t, target{client: ClientOptions{Brokers: []string{openBroker(t, t.TempDir()).Addr()}}, embedded: true})
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		conformance(t, target{client: ClientOptions{Brokers: testcluster.Start(t, 1).Brokers()}})
	})
}

type target struct {
	client   ClientOptions
	embedded bool
}

func conformance(t *testing.T, on target) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, target)
	}{
		{"cluster", testCluster},
		{"topics", testTopics},
		{"topics with wrong settings", testWrongSettings},
		{"source topics", testSourceTopics},
		{"append and read", testAppendAndRead},
		{"append many", testAppendMany},
		{"append too large", testAppendTooLarge},
		{"offsets out of range", testOffsetOutOfRange},
		{"start of log moves", testLogStartMoves},
		{"transactions leave no gap", testTransactions},
		{"topic made again", testTopicMadeAgain},
		{"high watermark check", testCheckHighWatermark},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, on) })
	}
}

func openBroker(t *testing.T, dir string) *Broker {
	t.Helper()
	b, err := OpenBroker(BrokerOptions{Dir: filepath.Join(dir, "broker")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func newAdmin(t *testing.T, o ClientOptions) *Admin {
	t.Helper()
	a, err := NewAdmin(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func newProducer(t *testing.T, o ClientOptions, p ProducerOptions) *LogProducer {
	t.Helper()
	lp, err := NewLogProducer(o, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lp.Close)
	return lp
}

// topicName is a name that no other test on the same brokers uses.
func topicName(t *testing.T) string {
	return strings.NewReplacer("/", ".", " ", "-").Replace(t.Name())
}

// logTopic makes a deployment's topics and returns the name of its log.
func logTopic(t *testing.T, on target) string {
	t.Helper()
	topics, err := NewTopics(strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()), 1, 1, on.embedded)
	if err != nil {
		t.Fatal(err)
	}
	if err := newAdmin(t, on.client).EnsureTopics(testContext(t), topics); err != nil {
		t.Fatal(err)
	}
	return topics.Transactions
}

func appendAll(t *testing.T, p *LogProducer, topic string, values ...string) {
	t.Helper()
	for _, v := range values {
		if _, err := p.AppendSync(testContext(t), topic, 0, Entry{Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
}

// readUntil polls until n records have come.
func readUntil(t *testing.T, r *LogReader, n int) []LogRecord {
	t.Helper()
	ctx := testContext(t)
	var out []LogRecord
	for len(out) < n {
		recs, err := r.Poll(ctx, 10*time.Second, 0)
		if err != nil {
			t.Fatalf("after %d of %d records: %v", len(out), n, err)
		}
		out = append(out, recs...)
	}
	return out
}

func openReader(t *testing.T, on target, r ReaderOptions) *LogReader {
	t.Helper()
	lr, err := OpenLogReader(testContext(t), on.client, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lr.Close)
	return lr
}

func wantError(t *testing.T, err, mark error, parts ...string) {
	t.Helper()
	if !errors.Is(err, mark) {
		t.Fatalf("got error %v, want one marked %q", err, mark)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

func testCluster(t *testing.T, on target) {
	a := newAdmin(t, on.client)
	if err := a.Ping(testContext(t), 0); err != nil {
		t.Fatal(err)
	}
	c, err := a.Cluster(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if c.Brokers != 1 || c.Embedded != on.embedded || c.ClusterID == "" {
		t.Errorf("cluster is %+v", c)
	}
}

func testTopics(t *testing.T, on target) {
	ctx := testContext(t)
	a := newAdmin(t, on.client)
	topics, err := NewTopics("ledger", 3, 2, on.embedded)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, a.CheckTopics(ctx, topics), ErrNoTopic, "ledger.transactions", "ledger.outcomes", "ledger.jobs", "kafka-topics.sh --create")
	for range 2 { // the second time they exist
		if err := a.EnsureTopics(ctx, topics); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.CheckTopics(ctx, topics); err != nil {
		t.Fatal(err)
	}
	for name, partitions := range map[string]int{"ledger.transactions": 3, "ledger.outcomes": 3, "ledger.jobs": 2} {
		info, err := a.Topic(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Partitions != partitions || info.ID == (TopicID{}) {
			t.Errorf("topic %s: %+v, want %d partitions and an id", name, info, partitions)
		}
	}
	// L4, as the broker shows it.
	settings, err := a.settings(ctx, []string{topics.Transactions})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1",
	} {
		if got := settings[topics.Transactions][key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	// L1: another P is refused.
	topics.Partitions = 4
	wantError(t, a.EnsureTopics(ctx, topics), ErrTopicSettings, "ledger.transactions has 3 partitions", "this deployment has 4", "L1")
}

// testWrongSettings: every setting of L4 that is wrong has its own line and its cure.
func testWrongSettings(t *testing.T, on target) {
	ctx := testContext(t)
	a := newAdmin(t, on.client)
	topics, err := NewTopics("careless", 1, 1, on.embedded)
	if err != nil {
		t.Fatal(err)
	}
	wrong := map[string]*string{
		"message.timestamp.type": kadm.StringPtr("CreateTime"),
		"cleanup.policy":         kadm.StringPtr("compact"),
		"retention.ms":           kadm.StringPtr("604800000"),
		"retention.bytes":        kadm.StringPtr("1073741824"),
		"max.message.bytes":      kadm.StringPtr("1048588"),
	}
	if !on.embedded {
		wrong["unclean.leader.election.enable"] = kadm.StringPtr("true")
	}
	if _, err := a.adm.CreateTopic(ctx, 1, 1, wrong, topics.Transactions); err != nil {
		t.Fatal(err)
	}
	err = a.EnsureTopics(ctx, topics)
	wantError(t, err, ErrTopicSettings)
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(wrong) {
		t.Errorf("%d findings, want %d:\n%v", len(lines), len(wrong), err)
	}
	for key, value := range wrong {
		if !strings.Contains(err.Error(), fmt.Sprintf("topic careless.transactions has %s=%s", key, *value)) {
			t.Errorf("no finding about %s:\n%v", key, err)
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("kafka-configs.sh --alter --entity-type topics --entity-name careless.transactions --add-config %s=", key)) {
			t.Errorf("no cure for %s:\n%v", key, err)
		}
	}
}

func testSourceTopics(t *testing.T, on target) {
	ctx := testContext(t)
	a := newAdmin(t, on.client)
	name := topicName(t)
	if _, err := a.Topic(ctx, name); !errors.Is(err, ErrNoTopic) {
		t.Fatalf("got %v, want ErrNoTopic", err)
	}
	made, err := a.EnsureSourceTopic(ctx, name, 3)
	if err != nil {
		t.Fatal(err)
	}
	found, err := a.EnsureSourceTopic(ctx, name, 0)
	if err != nil {
		t.Fatal(err)
	}
	if made != found || made.Partitions != 3 {
		t.Errorf("made %+v, found %+v", made, found)
	}
	_, err = a.EnsureSourceTopic(ctx, name, 5)
	wantError(t, err, ErrTopicSettings, "has 3 partition(s), not 5 as asked for")
}

func testAppendAndRead(t *testing.T, on target) {
	topic := logTopic(t, on)
	before := time.Now().UnixMilli()
	p := newProducer(t, on.client, ProducerOptions{})
	entries := []Entry{
		{Key: []byte("k"), Value: []byte("v0"), Headers: []Header{{Key: "type", Value: []byte{7}}, {Key: "none"}}},
		{Value: []byte("v1")},
		{Key: []byte{}, Value: nil},
	}
	for i, e := range entries {
		offset, err := p.AppendSync(testContext(t), topic, 0, e)
		if err != nil {
			t.Fatal(err)
		}
		if offset != int64(i) {
			t.Errorf("record %d got offset %d", i, offset)
		}
	}
	r := openReader(t, on, ReaderOptions{Topic: topic})
	if r.HighWatermark() != 3 || r.Next() != 0 {
		t.Errorf("opened at %d of %d", r.Next(), r.HighWatermark())
	}
	for i, rec := range readUntil(t, r, len(entries)) {
		e := entries[i]
		if rec.Offset != int64(i) || rec.Missing != 0 || rec.Control || rec.LeaderEpoch < 0 {
			t.Errorf("record %d: %+v", i, rec)
		}
		if !bytes.Equal(rec.Key, e.Key) || !bytes.Equal(rec.Value, e.Value) || (rec.Value == nil) != (e.Value == nil) {
			t.Errorf("record %d: key %q value %q, want %q and %q", i, rec.Key, rec.Value, e.Key, e.Value)
		}
		if len(rec.Headers) != len(e.Headers) {
			t.Fatalf("record %d: headers %v, want %v", i, rec.Headers, e.Headers)
		}
		for h := range e.Headers {
			if rec.Headers[h].Key != e.Headers[h].Key || !bytes.Equal(rec.Headers[h].Value, e.Headers[h].Value) {
				t.Errorf("record %d: headers %v, want %v", i, rec.Headers, e.Headers)
			}
		}
		// L4: the time is the broker's; the embedded one leaves it to its node.
		if rec.AppendTime == on.embedded {
			t.Errorf("record %d: LogAppendTime %v", i, rec.AppendTime)
		}
		if after := time.Now().UnixMilli(); rec.TimeMs < before || rec.TimeMs > after {
			t.Errorf("record %d: time %d is not within %d to %d", i, rec.TimeMs, before, after)
		}
	}
	// The end: none without waiting, none after waiting, and a record appended while waiting.
	for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
		if recs, err := r.Poll(testContext(t), wait, 0); err != nil || len(recs) != 0 {
			t.Errorf("at the end: %d records, %v", len(recs), err)
		}
	}
	go p.Append(t.Context(), topic, 0, Entry{Value: []byte("late")}, func(int64, error) {})
	if rec := readUntil(t, r, 1)[0]; rec.Offset != 3 || string(rec.Value) != "late" {
		t.Errorf("got %+v", rec)
	}
	if r.Next() != 4 || r.HighWatermark() != 4 {
		t.Errorf("at %d of %d", r.Next(), r.HighWatermark())
	}
	// From the middle, as L5 does with the last applied record.
	if rec := readUntil(t, openReader(t, on, ReaderOptions{Topic: topic, Offset: 2}), 2)[0]; rec.Offset != 2 || rec.Missing != 0 {
		t.Errorf("from offset 2: %+v", rec)
	}
	// A context that is over is an error, and the reader goes on after it.
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Poll(over, time.Second, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := r.Poll(testContext(t), 0, 0); err != nil {
		t.Error(err)
	}
}

// testAppendMany: callbacks and offsets come in the order of appends, and every record is read once.
func testAppendMany(t *testing.T, on target) {
	const n = 50_000
	topic := logTopic(t, on)
	p := newProducer(t, on.client, ProducerOptions{MaxBufferedRecords: 4096, Compression: Zstd})
	value := bytes.Repeat([]byte("x"), 300)
	var offsets []int64
	var failed error
	for i := range n {
		key := fmt.Appendf(nil, "%d", i)
		p.Append(t.Context(), topic, 0, Entry{Key: key, Value: value}, func(offset int64, err error) {
			if err != nil && failed == nil {
				failed = err
			}
			offsets = append(offsets, offset) // callbacks never overlap
		})
	}
	if err := p.Flush(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if failed != nil || len(offsets) != n || p.Buffered() != 0 {
		t.Fatalf("%d answers, %d buffered, error %v", len(offsets), p.Buffered(), failed)
	}
	for i, o := range offsets {
		if o != int64(i) {
			t.Fatalf("answer %d has offset %d", i, o)
		}
	}
	r := openReader(t, on, ReaderOptions{Topic: topic, MaxBytes: 1 << 20})
	ctx := testContext(t)
	for i := 0; i < n; {
		recs, err := r.Poll(ctx, 10*time.Second, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(recs) > 1000 {
			t.Fatalf("%d records, at most 1000 were asked for", len(recs))
		}
		for _, rec := range recs {
			if rec.Offset != int64(i) || rec.Missing != 0 || string(rec.Key) != fmt.Sprint(i) {
				t.Fatalf("record %d: offset %d, key %s", i, rec.Offset, rec.Key)
			}
			i++
		}
	}
}

func testAppendTooLarge(t *testing.T, on target) {
	topic := logTopic(t, on)
	p := newProducer(t, on.client, ProducerOptions{})
	_, err := p.AppendSync(testContext(t), topic, 0, Entry{Value: make([]byte, MaxBatchBytes+1)})
	wantError(t, err, ErrTooLarge, topic, "8388609 bytes")
	// A large one that is allowed, and the producer goes on.
	if offset, err := p.AppendSync(testContext(t), topic, 0, Entry{Value: make([]byte, MaxBatchBytes-1024)}); err != nil || offset != 0 {
		t.Fatalf("offset %d, %v", offset, err)
	}
	if rec := readUntil(t, openReader(t, on, ReaderOptions{Topic: topic, MaxBytes: 1 << 20}), 1)[0]; len(rec.Value) != MaxBatchBytes-1024 {
		t.Errorf("read %d bytes", len(rec.Value))
	}
	// A topic that takes less than the producer thinks: the broker's word.
	small := topicName(t) + ".small"
	if _, err := newAdmin(t, on.client).adm.CreateTopic(testContext(t), 1, 1, map[string]*string{"max.message.bytes": kadm.StringPtr("1000")}, small); err != nil {
		t.Fatal(err)
	}
	_, err = p.AppendSync(testContext(t), small, 0, Entry{Value: make([]byte, 2000)})
	wantError(t, err, ErrTooLarge, small)
}

func testOffsetOutOfRange(t *testing.T, on target) {
	topic := logTopic(t, on)
	appendAll(t, newProducer(t, on.client, ProducerOptions{}), topic, "a", "b")
	_, err := OpenLogReader(testContext(t), on.client, ReaderOptions{Topic: topic, Offset: 3})
	wantError(t, err, ErrOffsetOutOfRange, "from offset 3", "0 to 2")
	_, err = OpenLogReader(testContext(t), on.client, ReaderOptions{Topic: topic, Partition: 1})
	wantError(t, err, ErrOffsetOutOfRange, "partition 1", "1 partitions")
	_, err = OpenLogReader(testContext(t), on.client, ReaderOptions{Topic: "nowhere"})
	wantError(t, err, ErrNoTopic, "nowhere")
}

// testLogStartMoves: records deleted before they were read are an error, never a silent reset (L5).
func testLogStartMoves(t *testing.T, on target) {
	topic := logTopic(t, on)
	a := newAdmin(t, on.client)
	p := newProducer(t, on.client, ProducerOptions{})
	appendAll(t, p, topic, "0", "1", "2")
	r := openReader(t, on, ReaderOptions{Topic: topic, Offset: 3})
	behind := openReader(t, on, ReaderOptions{Topic: topic, Offset: 1})
	appendAll(t, p, topic, "3", "4", "5")
	if err := a.DeleteRecords(testContext(t), topic, 0, 4); err != nil {
		t.Fatal(err)
	}
	at, err := a.Offsets(testContext(t), topic)
	if err != nil || at[0] != (PartitionOffsets{Start: 4, High: 6, Stable: 6}) {
		t.Fatalf("offsets %+v, %v", at, err)
	}
	_, err = OpenLogReader(testContext(t), on.client, ReaderOptions{Topic: topic, Offset: 3})
	wantError(t, err, ErrOffsetOutOfRange, "4 to 6")
	for name, r := range map[string]*LogReader{"before deletion at 3": r, "before deletion at 1": behind} {
		ctx := testContext(t)
		var err error
		for err == nil {
			var recs []LogRecord
			recs, err = r.Poll(ctx, 10*time.Second, 0)
			// What was fetched before the deletion may come; a jump may not.
			for _, rec := range recs {
				if rec.Missing != 0 {
					t.Fatalf("%s: jumped to offset %d", name, rec.Offset)
				}
			}
			if r.Next() == 6 {
				break // it had all of them fetched
			}
		}
		if r.Next() == 6 {
			continue
		}
		wantError(t, err, ErrOffsetOutOfRange, topic)
		if _, again := r.Poll(ctx, time.Second, 0); !errors.Is(again, ErrOffsetOutOfRange) {
			t.Errorf("%s: a stopped reader went on: %v", name, again)
		}
	}
}

// testTransactions: sources are read committed, with markers, so that every offset is accounted for (A1).
func testTransactions(t *testing.T, on target) {
	ctx := testContext(t)
	a := newAdmin(t, on.client)
	topic := topicName(t)
	if _, err := a.EnsureSourceTopic(ctx, topic, 1); err != nil {
		t.Fatal(err)
	}
	cl, err := newClient(on.client, kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for j := range 2 {
			if err := cl.ProduceSync(ctx, kgo.StringRecord(fmt.Sprintf("%d.%d", i, j))).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := cl.EndTransaction(ctx, how); err != nil {
			t.Fatal(err)
		}
	}
	// Offsets: 0 1 committed, 2 marker, 3 4 aborted, 5 marker, 6 7 committed, 8 marker, 9 10 aborted, 11 marker.
	type seen struct {
		offset, missing int64
		control         bool
	}
	check := func(name string, committed bool, want []seen) {
		recs := readUntil(t, openReader(t, on, ReaderOptions{Topic: topic, Committed: committed}), len(want))
		var got []seen
		for _, r := range recs {
			got = append(got, seen{r.Offset, r.Missing, r.Control})
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	check("read committed", true, []seen{{0, 0, false}, {1, 0, false}, {2, 0, true}, {5, 2, true}, {6, 0, false}, {7, 0, false}, {8, 0, true}, {11, 2, true}})
	var all []seen
	for o := int64(0); o < 12; o++ {
		all = append(all, seen{o, 0, o%3 == 2})
	}
	check("read uncommitted", false, all)
	// An open transaction holds the stable end back.
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("open")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	at, err := a.Offsets(ctx, topic)
	if err != nil || at[0] != (PartitionOffsets{Start: 0, High: 13, Stable: 12}) {
		t.Errorf("offsets %+v, %v", at, err)
	}
	if err := cl.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
}

// testTopicMadeAgain: a topic made again under its name is another one (A1), and its reader notices.
func testTopicMadeAgain(t *testing.T, on target) {
	if testing.Short() {
		t.Skip("skipped with -short: the client looks for the old topic for 10 s before it gives up")
	}
	ctx := testContext(t)
	a := newAdmin(t, on.client)
	name := topicName(t)
	first, err := a.EnsureSourceTopic(ctx, name, 1)
	if err != nil {
		t.Fatal(err)
	}
	p := newProducer(t, on.client, ProducerOptions{})
	appendAll(t, p, name, "a", "b")
	r := openReader(t, on, ReaderOptions{Topic: name, Committed: true})
	readUntil(t, r, 2)
	if _, err := a.adm.DeleteTopic(ctx, name); err != nil {
		t.Fatal(err)
	}
	var second TopicInfo
	for { // deletion is not instant
		if second, err = a.EnsureSourceTopic(ctx, name, 1); err == nil && second.ID != first.ID {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("topic was not made again: %+v, %v", second, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	appendAll(t, newProducer(t, on.client, ProducerOptions{}), name, "c", "d", "e")
	err = a.CheckHighWatermark(ctx, []UsedOffset{{Topic: name, ID: first.ID, Next: 2, By: "table orders"}})
	wantError(t, err, ErrTopicRecreated, first.ID.String(), second.ID.String(), "table orders")
	for err = nil; err == nil; {
		var recs []LogRecord
		if recs, err = r.Poll(ctx, 20*time.Second, 0); len(recs) > 0 {
			t.Fatalf("the reader of the old topic got %q at offset %d of the new one", recs[0].Value, recs[0].Offset)
		}
	}
	if ctx.Err() != nil {
		t.Fatal("the reader did not notice")
	}
	t.Log(err)
}

func testCheckHighWatermark(t *testing.T, on target) {
	ctx := testContext(t)
	topic := logTopic(t, on)
	a := newAdmin(t, on.client)
	appendAll(t, newProducer(t, on.client, ProducerOptions{}), topic, "0", "1", "2", "3")
	for _, before := range []int64{2, 1, 0} { // earlier offsets are deleted already
		if err := a.DeleteRecords(ctx, topic, 0, before); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.DeleteRecords(ctx, topic, 0, 4); err == nil || !strings.Contains(err.Error(), "the most is offset 3") {
		t.Fatalf("deleted the last record: %v", err)
	}
	info, err := a.Topic(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		used  UsedOffset
		mark  error
		parts []string
	}{
		{"at the end", UsedOffset{Topic: topic, ID: info.ID, Next: 4, Since: 3}, nil, nil},
		{"in the middle", UsedOffset{Topic: topic, Next: 3}, nil, nil},
		{"at the start", UsedOffset{Topic: topic, Next: 2}, nil, nil},
		{"above the end", UsedOffset{Topic: topic, Next: 6, By: "the state"}, ErrLogBehind, []string{"ends at offset 4", "the state", "offset 6", "2 acknowledged records"}},
		{"below the start", UsedOffset{Topic: topic, Next: 1, By: "table orders"}, ErrLogTrimmed, []string{"starts at offset 2", "needs offset 1"}},
		{"last record deleted", UsedOffset{Topic: topic, Next: 2, Since: 1}, ErrLogTrimmed, []string{"needs offset 1"}},
		{"another id", UsedOffset{Topic: topic, Next: 3, ID: TopicID{1}}, ErrTopicRecreated, nil},
		{"another partition", UsedOffset{Topic: topic, Partition: 1, Next: 1}, ErrLogBehind, []string{"1 partitions"}},
		{"no topic", UsedOffset{Topic: "nowhere", Next: 1}, ErrNoTopic, []string{"nowhere"}},
	} {
		err := a.CheckHighWatermark(ctx, []UsedOffset{c.used})
		if c.mark == nil {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if !errors.Is(err, c.mark) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.mark)
		}
		for _, part := range c.parts {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %v does not say %q", c.name, err, part)
			}
		}
	}
	err = a.CheckHighWatermark(ctx, []UsedOffset{{Topic: topic, Next: 3}, {Topic: topic, Next: 9}, {Topic: "nowhere", Next: 1}})
	wantError(t, err, ErrLogBehind, topic)
	wantError(t, err, ErrNoTopic, "nowhere")
}
