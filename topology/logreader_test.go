package topology

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestReaderTakes: what a fetch may bring, and what stops a reader (L5).
func TestReaderTakes(t *testing.T) {
	records := func(offsets ...int64) []*kgo.Record {
		var rs []*kgo.Record
		for _, o := range offsets {
			rs = append(rs, &kgo.Record{Offset: o, Timestamp: time.UnixMilli(1000 + o)})
		}
		return rs
	}
	for _, c := range []struct {
		name    string
		fetch   kgo.FetchPartition
		offsets []int64
		missing []int64
		mark    error
		part    string
	}{
		{name: "the next", fetch: kgo.FetchPartition{Records: records(5, 6), HighWatermark: 7}, offsets: []int64{5, 6}, missing: []int64{0, 0}},
		{name: "a gap", fetch: kgo.FetchPartition{Records: records(7, 8, 10), HighWatermark: 11}, offsets: []int64{7, 8, 10}, missing: []int64{2, 0, 1}},
		{name: "nothing", fetch: kgo.FetchPartition{HighWatermark: 5}},
		{name: "wait is over", fetch: kgo.FetchPartition{Err: context.DeadlineExceeded}},
		{name: "an old record again", fetch: kgo.FetchPartition{Records: records(4), HighWatermark: 7}, mark: ErrFork, part: "offset 4"},
		{name: "start moved past", fetch: kgo.FetchPartition{Records: records(7), LogStartOffset: 7, HighWatermark: 9}, mark: ErrOffsetOutOfRange, part: "starts at offset 7"},
		{name: "out of range", fetch: kgo.FetchPartition{Err: kerr.OffsetOutOfRange}, mark: ErrOffsetOutOfRange},
		{name: "data loss, continuing", fetch: kgo.FetchPartition{Err: &kgo.ErrDataLoss{Topic: "log", ConsumedTo: 5, ConsumedToEpoch: 2, ResetTo: 3}}, mark: ErrFork, part: "ends at offset 3"},
		{name: "another topic", fetch: kgo.FetchPartition{Err: kerr.InconsistentTopicID}, mark: ErrTopicRecreated},
		{name: "no topic", fetch: kgo.FetchPartition{Err: kerr.UnknownTopicOrPartition}, mark: ErrNoTopic},
		{name: "no permission", fetch: kgo.FetchPartition{Err: kerr.TopicAuthorizationFailed}, mark: kerr.TopicAuthorizationFailed, part: "topic log partition 3 at offset 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &LogReader{opts: ReaderOptions{Topic: "log", Partition: 3}, next: 5, high: 5}
			err := r.take(&c.fetch)
			if c.mark != nil {
				wantError(t, err, c.mark, c.part, "topic log partition 3")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(r.buf) != len(c.offsets) {
				t.Fatalf("took %d records, want %d", len(r.buf), len(c.offsets))
			}
			for i, rec := range r.buf {
				if rec.Offset != c.offsets[i] || rec.Missing != c.missing[i] || rec.TimeMs != 1000+c.offsets[i] {
					t.Errorf("record %d: %+v", i, rec)
				}
			}
			if n := len(c.offsets); n > 0 && (r.Next() != c.offsets[n-1]+1 || r.HighWatermark() != c.fetch.HighWatermark) {
				t.Errorf("at %d of %d", r.Next(), r.HighWatermark())
			}
		})
	}
}

// TestReaderClosed: a Poll that waits returns when the reader is closed.
func TestReaderClosed(t *testing.T) {
	on := target{client: ClientOptions{Brokers: []string{openBroker(t, t.TempDir()).Addr()}}, embedded: true}
	r := openReader(t, on, ReaderOptions{Topic: logTopic(t, on)})
	time.AfterFunc(50*time.Millisecond, r.Close)
	start := time.Now()
	_, err := r.Poll(testContext(t), time.Minute, 0)
	if !errors.Is(err, kgo.ErrClientClosed) || time.Since(start) > 30*time.Second {
		t.Errorf("got %v after %s", err, time.Since(start))
	}
}

func TestReaderOptionsRefused(t *testing.T) {
	for _, r := range []ReaderOptions{{Offset: 1}, {Topic: "t", Offset: -1}, {Topic: "t", Partition: -1}} {
		if _, err := OpenLogReader(t.Context(), ClientOptions{Brokers: []string{"127.0.0.1:1"}}, r); err == nil || !strings.Contains(err.Error(), "must be given") {
			t.Errorf("%+v: got %v", r, err)
		}
	}
}
