package topology

import (
	"context"
	"errors"
)

// ProduceTo publishes events into a topic of any brokers, as Conn.Produce does
// into a source topic of its deployment.
func ProduceTo(ctx context.Context, o ClientOptions, topic string, partitions int, next func() (*SourceEvent, error), progress func(int64)) (n int64, err error) {
	admin, err := NewAdmin(o)
	if err != nil {
		return 0, err
	}
	defer admin.Close()
	if err := admin.Ping(ctx, 0); err != nil {
		return 0, err
	}
	info, err := admin.EnsureSourceTopic(ctx, topic, partitions)
	if err != nil {
		return 0, err
	}
	p, err := NewLogProducer(o, ProducerOptions{MaxBatchBytes: DefaultSourceBatchBytes})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	n, err = produce(ctx, p, topic, int32(info.Partitions), nil, next, progress)
	if errors.Is(err, ErrTooLarge) {
		return n, errors.Join(err, errors.New("raise the topic's max.message.bytes, or leave the event out"))
	}
	return n, err
}
