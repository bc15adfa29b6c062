package topology

import (
	"context"
	"errors"
	"strconv"
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
	return produceTo(ctx, admin, o, topic, partitions, nil, next, progress)
}

func produceTo(ctx context.Context, admin *Admin, o ClientOptions, topic string, partitions int, wait func(context.Context) error, next func() (*SourceEvent, error), progress func(int64)) (n int64, err error) {
	info, err := admin.EnsureSourceTopic(ctx, topic, partitions)
	if err != nil {
		return 0, err
	}
	limit, err := admin.batchLimit(ctx, topic)
	if err != nil {
		return 0, err
	}
	p, err := NewLogProducer(o, ProducerOptions{MaxBatchBytes: limit})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	n, err = produce(ctx, p, topic, int32(info.Partitions), wait, next, progress)
	if errors.Is(err, ErrTooLarge) {
		return n, errors.Join(err, errors.New("raise the topic's max.message.bytes, or leave the event out"))
	}
	return n, err
}

// batchMargin is what a batch may have beside its records. maxSourceBatch is
// far above any event that is decoded.
const (
	batchMargin    = 1024
	maxSourceBatch = 80 << 20
)

// batchLimit is the largest batch that a topic takes by its own settings,
// DefaultSourceBatchBytes where it does not tell them.
func (a *Admin) batchLimit(ctx context.Context, topic string) (int32, error) {
	have, err := a.settings(ctx, []string{topic})
	if err != nil {
		if ctx.Err() != nil {
			return 0, err
		}
		a.log.Debug("the topic's settings cannot be read", "topic", topic, "error", err)
		return DefaultSourceBatchBytes, nil
	}
	n, err := strconv.ParseInt(have[topic]["max.message.bytes"], 10, 64)
	if err != nil {
		return DefaultSourceBatchBytes, nil
	}
	return int32(min(max(n-batchMargin, batchMargin), maxSourceBatch)), nil
}
