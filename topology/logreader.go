package topology

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	// ErrOffsetOutOfRange marks errors of an offset that the partition does not hold (any more, or yet).
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrFork marks errors of a partition that holds other records than those already read (L5).
	ErrFork = errors.New("log was replaced under its reader")
)

// DefaultReadBytes bounds what one fetch of a reader brings. A reader buffers up to twice that.
const DefaultReadBytes = 8 << 20

// ReaderOptions configure a LogReader.
type ReaderOptions struct {
	Topic     string
	Partition int32
	// Offset is the first offset to read.
	Offset int64
	// Committed reads committed records only, as for source topics, whose producers may use transactions.
	// Default false: everything, as for varve's own topics (L5). Control records are given in both cases, so
	// that every offset is accounted for (A1).
	Committed bool
	// MaxBytes bounds what one fetch brings; a single larger batch still comes. Default: DefaultReadBytes.
	MaxBytes int32
	// MaxWait is how long a broker holds a fetch that has nothing to bring. Default: 500 ms. New records end
	// it at once.
	MaxWait time.Duration
	// admin, if any, is asked for the partition's offsets. Default: one of its own,
	// for this time.
	admin *Admin
}

// LogRecord is a record as read. Its bytes are not reused and may be kept.
type LogRecord struct {
	Offset int64
	// LeaderEpoch is that of the batch.
	LeaderEpoch int32
	// TimeMs is the record's time in milliseconds since 1970: the broker's if AppendTime, else its producer's.
	TimeMs     int64
	AppendTime bool
	// Control says that it is a transaction marker. Key and value are Kafka's own then.
	Control bool
	// Missing is the number of offsets between the record before (or the offset asked for) and this one. In
	// varve's own topics any is a hole (L5); in a source read with Committed they are aborted or compacted.
	Missing int64

	Key, Value []byte
	Headers    []Header
}

// LogReader reads one partition from an offset on. It never resets: an offset out of range and any sign of
// data loss are errors, after which the reader stays stopped (L5). It is not safe for concurrent use, but
// Close may be called at any time.
type LogReader struct {
	opts ReaderOptions
	cl   *kgo.Client
	next int64
	high int64
	buf  []LogRecord
	err  error
}

// OpenLogReader returns a reader whose offset was checked: an offset below the start or above the high
// watermark is an error marked ErrOffsetOutOfRange, a missing topic one marked ErrNoTopic.
func OpenLogReader(ctx context.Context, o ClientOptions, r ReaderOptions) (*LogReader, error) {
	if r.Offset < 0 || r.Partition < 0 || r.Topic == "" {
		return nil, fmt.Errorf("read topic %q partition %d from offset %d: topic, partition and offset must be given", r.Topic, r.Partition, r.Offset)
	}
	if r.MaxBytes <= 0 {
		r.MaxBytes = DefaultReadBytes
	}
	if r.MaxWait <= 0 {
		r.MaxWait = 500 * time.Millisecond
	}
	a := r.admin
	if a == nil {
		var err error
		if a, err = NewAdmin(o); err != nil {
			return nil, err
		}
		defer a.Close()
	}
	offsets, err := a.Offsets(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	if int(r.Partition) >= len(offsets) {
		return nil, fmt.Errorf("read topic %s partition %d: %w: it has %d partitions", r.Topic, r.Partition, ErrOffsetOutOfRange, len(offsets))
	}
	at := offsets[r.Partition]
	if r.Offset < at.Start || r.Offset > at.High {
		return nil, fmt.Errorf("read topic %s partition %d from offset %d: %w: it holds offsets %d to %d", r.Topic, r.Partition, r.Offset, ErrOffsetOutOfRange, at.Start, at.High)
	}
	isolation := kgo.ReadUncommitted()
	if r.Committed {
		isolation = kgo.ReadCommitted()
	}
	cl, err := newClient(o,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			r.Topic: {r.Partition: kgo.NoResetOffset().At(r.Offset)},
		}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(isolation),
		kgo.KeepControlRecords(),
		kgo.FetchMaxBytes(r.MaxBytes),
		kgo.FetchMaxPartitionBytes(r.MaxBytes),
		kgo.FetchMaxWait(r.MaxWait),
		kgo.MaxConcurrentFetches(1),
	)
	if err != nil {
		return nil, err
	}
	return &LogReader{opts: r, cl: cl, next: r.Offset, high: at.High}, nil
}

// Next is the offset that the next record is expected to have.
func (r *LogReader) Next() int64 { return r.next }

// HighWatermark is the partition's end as last heard: with the last records read, or when opened.
func (r *LogReader) HighWatermark() int64 { return r.high }

// Poll returns the next records, at most limit of them (0: all that is fetched), in order of offsets. It
// waits up to wait for the first and returns none, without an error, when there is none by then. The slice is reused by
// the next Poll; the bytes in it are not. Errors stop the reader for good, except that of ctx.
func (r *LogReader) Poll(ctx context.Context, wait time.Duration, limit int) ([]LogRecord, error) {
	if r.err != nil {
		return nil, r.err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	pollCtx := ctx
	if wait <= 0 {
		pollCtx = nil // franz-go: what is buffered, at once
	} else {
		var cancel context.CancelFunc
		pollCtx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	fetches := r.cl.PollRecords(pollCtx, limit)
	clear(r.buf)
	r.buf = r.buf[:0]
	for i := range fetches {
		for j := range fetches[i].Topics {
			for k := range fetches[i].Topics[j].Partitions {
				p := &fetches[i].Topics[j].Partitions[k]
				if err := r.take(p); err != nil {
					r.err = err
				}
			}
		}
	}
	if r.err == nil && len(r.buf) == 0 && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(r.buf) > 0 {
		// Records before an error are good; the error comes with the next Poll.
		return r.buf, nil
	}
	return nil, r.err
}

func (r *LogReader) take(p *kgo.FetchPartition) error {
	if r.err != nil {
		return r.err
	}
	if err := r.partitionError(p.Err); err != nil {
		return err
	}
	if len(p.Records) == 0 {
		return nil
	}
	if p.LogStartOffset > r.next {
		return fmt.Errorf("%s: %w: it now starts at offset %d; check the topic's retention settings", r.at(), ErrOffsetOutOfRange, p.LogStartOffset)
	}
	r.high = p.HighWatermark
	for _, rec := range p.Records {
		if rec.Offset < r.next {
			return fmt.Errorf("%s: %w: the broker sent offset %d", r.at(), ErrFork, rec.Offset)
		}
		r.buf = append(r.buf, LogRecord{
			Offset:      rec.Offset,
			LeaderEpoch: rec.LeaderEpoch,
			TimeMs:      rec.Timestamp.UnixMilli(),
			AppendTime:  rec.Attrs.TimestampType() == 1,
			Control:     rec.Attrs.IsControl(),
			Missing:     rec.Offset - r.next,
			Key:         rec.Key,
			Value:       rec.Value,
			Headers:     rec.Headers,
		})
		r.next = rec.Offset + 1
	}
	return nil
}

func (r *LogReader) at() string {
	return fmt.Sprintf("read topic %s partition %d at offset %d", r.opts.Topic, r.opts.Partition, r.next)
}

// partitionError says which errors of a fetch stop the reader. franz-go retries by itself what is worth it.
func (r *LogReader) partitionError(err error) error {
	var loss *kgo.ErrDataLoss
	switch {
	case err == nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nil
	case errors.As(err, &loss):
		return fmt.Errorf("%s: %w: the broker's log of leader epoch %d ends at offset %d: %w", r.at(), ErrFork, loss.ConsumedToEpoch, loss.ResetTo, err)
	case errors.Is(err, kerr.OffsetOutOfRange):
		return fmt.Errorf("%s: %w: the broker holds other offsets than before: %w", r.at(), ErrOffsetOutOfRange, err)
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		return fmt.Errorf("%s: %w: %w", r.at(), ErrTopicRecreated, err)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("%s: %w: %w", r.at(), ErrNoTopic, err)
	}
	return fmt.Errorf("%s: %w", r.at(), err)
}

// Close ends the connections; a Poll that waits returns.
func (r *LogReader) Close() { r.cl.Close() }
