package topology

import (
	"context"
	"fmt"
	"time"

	"github.com/varve-io/varve/schemas/source"
)

// TopicSample is a look at a topic: records of all its partitions.
type TopicSample struct {
	Partitions int
	Records    []source.Record
	Held       int64 // records that the topic holds, gaps included
	Bytes      int64 // of the records read
}

// maxSampleBytes bounds what a sample holds.
const maxSampleBytes = 256 << 20

// SampleTopic reads up to limit records of a topic, as many of each partition:
// its newest ones, or its oldest. It writes nothing and joins no group.
func SampleTopic(ctx context.Context, o ClientOptions, topic string, oldest bool, limit int) (*TopicSample, error) {
	admin, err := NewAdmin(o)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if err := admin.Ping(ctx, 0); err != nil {
		return nil, err
	}
	ends, err := admin.Offsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	s := &TopicSample{Partitions: len(ends)}
	each := max(1, limit/max(1, len(ends)))
	for p, at := range ends {
		s.Held += max(0, at.Stable-at.Start)
		if at.Stable <= at.Start || len(s.Records) >= limit || s.Bytes >= maxSampleBytes {
			continue
		}
		from := at.Start
		if !oldest {
			from = max(at.Start, at.Stable-int64(each))
		}
		if err := s.read(ctx, o, topic, int32(p), from, at.Stable, each); err != nil {
			return nil, fmt.Errorf("read topic %s, partition %d: %w", topic, p, err)
		}
	}
	return s, nil
}

func (s *TopicSample) read(ctx context.Context, o ClientOptions, topic string, partition int32, from, end int64, limit int) error {
	r, err := OpenLogReader(ctx, o, ReaderOptions{Topic: topic, Partition: partition, Offset: from, Committed: true, MaxWait: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	defer r.Close()
	for n := 0; n < limit && r.Next() < end && s.Bytes < maxSampleBytes; {
		rs, err := r.Poll(ctx, time.Second, limit-n)
		if err != nil {
			return err
		}
		for i := range rs {
			if rs[i].Control {
				continue
			}
			x := &rs[i]
			s.Records = append(s.Records, source.Record{
				Topic: topic, Partition: partition, Offset: x.Offset, TimeMs: x.TimeMs, Key: x.Key, Value: x.Value, Headers: sourceHeaders(nil, x.Headers),
			})
			s.Bytes += int64(len(x.Key) + len(x.Value))
			n++
		}
	}
	return nil
}
