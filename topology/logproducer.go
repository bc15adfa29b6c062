package topology

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	// ErrTooLarge marks errors of records that the topic does not take for their size. Sending it again cannot
	// help.
	ErrTooLarge = errors.New("record is too large for the topic")
	// ErrProducerStopped marks errors of a producer that saw the broker lose what it had acknowledged to it, or
	// that was fenced. It takes no more records: what is in the log must be read before another is made.
	ErrProducerStopped = errors.New("producer is stopped")
)

// Compression of the batches that a producer sends.
type Compression int

// Codecs. Records of the log are small and mostly ids and bitmaps, which hardly shrink.
const (
	NoCompression Compression = iota
	LZ4
	Zstd
)

func (c Compression) codec() (kgo.CompressionCodec, error) {
	switch c {
	case NoCompression:
		return kgo.NoCompression(), nil
	case LZ4:
		return kgo.Lz4Compression(), nil
	case Zstd:
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, fmt.Errorf("unknown compression %d", c)
}

const (
	// DefaultMaxBufferedRecords and DefaultMaxBufferedBytes bound what a producer holds that is not yet
	// acknowledged.
	DefaultMaxBufferedRecords = 64 << 10
	DefaultMaxBufferedBytes   = 64 << 20
	// DefaultLinger is how long a batch waits for company.
	DefaultLinger = time.Millisecond
	// DefaultSourceBatchBytes is the batch limit towards topics that others made: Kafka's own default
	// max.message.bytes, less what a request adds.
	DefaultSourceBatchBytes = 1_000_000
)

// ProducerOptions configure a LogProducer.
type ProducerOptions struct {
	// MaxBufferedRecords and MaxBufferedBytes bound what is appended but not yet acknowledged; at the bound
	// Append waits. Defaults: DefaultMaxBufferedRecords, DefaultMaxBufferedBytes.
	MaxBufferedRecords int
	MaxBufferedBytes   int
	// MaxBatchBytes is the largest batch, and so the largest record. Default: MaxBatchBytes, which only
	// varve's own topics take; use DefaultSourceBatchBytes towards others.
	MaxBatchBytes int32
	// Compression of batches. Default: none.
	Compression Compression
	// Linger is how long a batch waits for company: more is fewer and larger requests, less is a quicker
	// answer. Default: DefaultLinger; below zero: not at all.
	Linger time.Duration
}

// Header is a header of a record.
type Header = kgo.RecordHeader

// Entry is a record to append. Its bytes belong to the producer until the callback has been called.
type Entry struct {
	Key, Value []byte
	Headers    []Header
}

// LogProducer appends records to the partitions that its caller names: idempotent, acknowledged by all
// in-sync replicas, in order per partition.
//
// A record is never dropped in silence, and there is no timeout after which it would be: while brokers are
// away, records wait in the buffer, Append waits once that is full, and contexts bound both. It is safe for
// concurrent use.
type LogProducer struct {
	cl      *kgo.Client
	pending sync.Pool
}

// NewLogProducer returns a producer. It does not connect: Ping tells whether a broker is there.
func NewLogProducer(o ClientOptions, p ProducerOptions) (*LogProducer, error) {
	codec, err := p.Compression.codec()
	if err != nil {
		return nil, err
	}
	if p.MaxBufferedRecords <= 0 {
		p.MaxBufferedRecords = DefaultMaxBufferedRecords
	}
	if p.MaxBufferedBytes <= 0 {
		p.MaxBufferedBytes = DefaultMaxBufferedBytes
	}
	if p.MaxBatchBytes <= 0 {
		p.MaxBatchBytes = MaxBatchBytes
	}
	switch {
	case p.Linger == 0:
		p.Linger = DefaultLinger
	case p.Linger < 0:
		p.Linger = 0
	}
	cl, err := newClient(o,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Out of order sequence numbers mean that the broker lost what it acknowledged: going on would hide it.
		kgo.StopProducerOnDataLossDetected(),
		kgo.ProducerBatchCompression(codec),
		kgo.ProducerBatchMaxBytes(p.MaxBatchBytes),
		kgo.MaxBufferedRecords(p.MaxBufferedRecords),
		kgo.MaxBufferedBytes(p.MaxBufferedBytes),
		kgo.ProducerLinger(p.Linger),
		// No RecordDeliveryTimeout and no RecordRetries: both would give up records whose fate is unknown.
	)
	if err != nil {
		return nil, err
	}
	lp := &LogProducer{cl: cl}
	lp.pending.New = func() any {
		q := &pendingAppend{owner: lp}
		q.promise = q.finish // bound once, so that an append allocates nothing
		return q
	}
	return lp, nil
}

// pendingAppend is an append that waits for its acknowledgement.
type pendingAppend struct {
	owner   *LogProducer
	rec     kgo.Record
	done    func(offset int64, err error)
	promise func(*kgo.Record, error)
}

func (q *pendingAppend) finish(r *kgo.Record, err error) {
	done, offset := q.done, r.Offset
	if err != nil {
		offset, err = -1, appendError(r, err)
	}
	q.rec, q.done = kgo.Record{}, nil
	q.owner.pending.Put(q)
	done(offset, err)
}

func appendError(r *kgo.Record, err error) error {
	at := fmt.Sprintf("append to topic %s partition %d", r.Topic, r.Partition)
	switch {
	case errors.Is(err, kerr.MessageTooLarge):
		return fmt.Errorf("%s: %w: %d bytes: %w", at, ErrTooLarge, len(r.Key)+len(r.Value), err)
	case errors.Is(err, kerr.OutOfOrderSequenceNumber), errors.Is(err, kerr.UnknownProducerID),
		errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.InvalidProducerIDMapping):
		return fmt.Errorf("%s: %w: the broker no longer knows what it acknowledged to this producer: %w", at, ErrProducerStopped, err)
	}
	return fmt.Errorf("%s: %w", at, err)
}

// Append sends a record and returns; done is called once with its offset or an error. Append waits while the
// buffer is full. Per partition, offsets and calls of done are in the order of Append.
//
// An error does not say that the record is not in the log: its batch may have been written before the
// connection broke, or ctx may have ended meanwhile. Whoever appends again sends the same bytes and lets
// apply decide (L2, L9). An error of one record fails those buffered behind it in its partition too.
//
// done runs on the producer's own goroutine: it must be quick and must not call Append, Flush or Close.
func (p *LogProducer) Append(ctx context.Context, topic string, partition int32, e Entry, done func(offset int64, err error)) {
	q := p.pending.Get().(*pendingAppend)
	q.done = done
	q.rec = kgo.Record{Topic: topic, Partition: partition, Key: e.Key, Value: e.Value, Headers: e.Headers}
	p.cl.Produce(ctx, &q.rec, q.promise)
}

// AppendSync appends one record and waits for its offset.
func (p *LogProducer) AppendSync(ctx context.Context, topic string, partition int32, e Entry) (int64, error) {
	type answer struct {
		offset int64
		err    error
	}
	c := make(chan answer, 1)
	p.Append(ctx, topic, partition, e, func(offset int64, err error) { c <- answer{offset, err} })
	a := <-c
	return a.offset, a.err
}

// Buffered is the number of records that wait for their acknowledgement.
func (p *LogProducer) Buffered() int64 { return p.cl.BufferedProduceRecords() }

// Flush waits until every record appended before has been answered.
func (p *LogProducer) Flush(ctx context.Context) error {
	if err := p.cl.Flush(ctx); err != nil {
		return fmt.Errorf("wait for %d records not yet acknowledged: %w", p.Buffered(), err)
	}
	return nil
}

// Close ends the connections. Records not yet acknowledged are answered with an error, see Append; Flush
// first to wait for them.
func (p *LogProducer) Close() { p.cl.Close() }
