package topology

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// ErrNoEvent marks letters whose event is nowhere any more.
var ErrNoEvent = errors.New("the event is not there any more")

// Retried is what became of letters that were published again.
type Retried struct {
	Published int64
	// Ends are the source offsets behind the events published, by partition.
	Ends map[int32]int64
	// Offsets are where they are now, by partition and offset, with the letter's offset.
	Offsets map[[2]int64]int64
}

// RetryLetters publishes the events of letters again, in their order, each into
// the partition that it names: that which it came from, for the key's other events
// are there (K5). Headers of the letter are left behind, and one says which letter
// the event was.
func (n *Conn) RetryLetters(ctx context.Context, source string, letters []*Letter) (*Retried, error) {
	info, err := n.admin.Topic(ctx, source)
	if err != nil {
		return nil, err
	}
	limit, err := n.admin.batchLimit(ctx, source)
	if err != nil {
		return nil, err
	}
	p, err := NewLogProducer(n.client, ProducerOptions{MaxBatchBytes: limit})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	out := &Retried{Ends: map[int32]int64{}, Offsets: map[[2]int64]int64{}}
	for _, l := range letters {
		if l.Topic != source || l.Partition < 0 || int(l.Partition) >= info.Partitions {
			return out, fmt.Errorf("%w: the letter at offset %d does not say from which partition of topic %s it came", ErrNoEvent, l.Offset, source)
		}
		if n.wait != nil {
			if err := n.wait(ctx); err != nil {
				return out, err
			}
		}
		e := Entry{Key: l.Key, Value: l.Value, Headers: append(append([]Header(nil), l.Headers...), Header{Key: retriedHeader, Value: strconv.AppendInt(nil, l.Offset, 10)})}
		done := make(chan error, 1) // one at a time: letters are few, and their order stays
		p.Append(ctx, source, l.Partition, e, func(offset int64, err error) {
			if err == nil {
				out.Published++
				out.Ends[l.Partition] = max(out.Ends[l.Partition], offset+1)
				out.Offsets[[2]int64{int64(l.Partition), offset}] = l.Offset
			}
			done <- err
		})
		if err := <-done; err != nil {
			return out, fmt.Errorf("publish the event of the letter at offset %d again: %w", l.Offset, err)
		}
	}
	return out, nil
}

// Unstub gives a letter without event the event that is at its place in the
// source topic.
func (n *Conn) Unstub(ctx context.Context, l *Letter) error {
	r, err := OpenLogReader(ctx, n.client, ReaderOptions{Topic: l.Topic, Partition: l.Partition, Offset: l.SourceOffset, Committed: true, MaxWait: 100 * time.Millisecond})
	if errors.Is(err, ErrOffsetOutOfRange) || errors.Is(err, ErrNoTopic) {
		return fmt.Errorf("%w: letter %d, %s/%d offset %d", ErrNoEvent, l.Offset, l.Topic, l.Partition, l.SourceOffset)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	rs, err := r.Poll(ctx, 5*time.Second, 1)
	if err != nil {
		return err
	}
	if len(rs) == 0 || rs[0].Offset != l.SourceOffset || rs[0].Control {
		return fmt.Errorf("%w: letter %d, %s/%d offset %d", ErrNoEvent, l.Offset, l.Topic, l.Partition, l.SourceOffset)
	}
	l.Key, l.Value, l.Headers, l.Stub = rs[0].Key, rs[0].Value, rs[0].Headers, false
	return nil
}

// WaitTaken waits until a table's shards have taken their source topic up to
// these ends, by partition.
func (n *Conn) WaitTaken(ctx context.Context, table string, ends map[int32]int64) error {
	for {
		t, err := n.Table(ctx, table)
		if err != nil {
			return err
		}
		left := len(ends)
		for i := range t.Shards {
			if end, asked := ends[t.Shards[i].Partition]; asked && t.Shards[i].Topic == t.Definition.SourceTopic && t.Shards[i].SourceEnd >= end {
				left--
			}
		}
		if left <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
