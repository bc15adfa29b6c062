package topology

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Letter is a dead letter: an event that could not be taken, and why.
type Letter struct {
	Offset int64 // in the topic of dead letters
	TimeMs int64

	// Where the event was.
	Topic        string
	Partition    int32
	SourceOffset int64

	Code   string
	Reason string // names columns and offsets, never values
	Table  string // that refused it; letters of older versions do not say
	// Retried is the offset of the letter whose event was published again and
	// refused again, -1: none.
	Retried int64
	// Stub says that the event was too large for a letter.
	Stub bool

	// The event itself, and its own headers. They may be personal data.
	Key, Value []byte
	Headers    []Header
}

// lettersAtATime bounds what is read of dead letters before fn has them.
const lettersAtATime = 1024

// LettersTopic is the topic of a source topic's dead letters.
func LettersTopic(source string) string { return source + ".dlq" }

// DeadLetters calls fn with the dead letters of a source topic that are there
// now, in order.
func (n *Conn) DeadLetters(ctx context.Context, source string, fn func(*Letter) error) error {
	topic := LettersTopic(source)
	ends, err := n.admin.Offsets(ctx, topic)
	if errors.Is(err, ErrNoTopic) {
		return nil // made with the first letter
	}
	if err != nil {
		return err
	}
	for p, end := range ends {
		if end.Stable <= end.Start {
			continue
		}
		if err := n.lettersOf(ctx, topic, int32(p), end, fn); err != nil {
			return fmt.Errorf("read topic %s, partition %d: %w", topic, p, err)
		}
	}
	return nil
}

func (n *Conn) lettersOf(ctx context.Context, topic string, partition int32, end PartitionOffsets, fn func(*Letter) error) error {
	r, err := OpenLogReader(ctx, n.client, ReaderOptions{Topic: topic, Partition: partition, Offset: end.Start, Committed: true, MaxWait: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	defer r.Close()
	for r.Next() < end.Stable {
		rs, err := r.Poll(ctx, time.Second, lettersAtATime)
		if err != nil {
			return err
		}
		for i := range rs {
			if rs[i].Control {
				continue
			}
			if err := fn(letterOf(&rs[i])); err != nil {
				return err
			}
		}
	}
	return nil
}

// letterOf reads a letter's headers. The event's own headers come behind
// varve's, so the first of a name counts. A topic of letters may hold records
// of others, too: what is missing stays empty, numbers -1.
func letterOf(r *LogRecord) *Letter {
	l := &Letter{Offset: r.Offset, TimeMs: r.TimeMs, Partition: -1, SourceOffset: -1, Retried: -1, Key: r.Key, Value: r.Value}
	seen := map[string]bool{}
	for _, h := range r.Headers {
		if h.Key == retriedHeader {
			if v, err := strconv.ParseInt(string(h.Value), 10, 64); err == nil {
				l.Retried = v
			}
			continue
		}
		if seen[h.Key] || !letterHeaders[h.Key] {
			l.Headers = append(l.Headers, h)
			continue
		}
		seen[h.Key] = true
		switch h.Key {
		case letterTableHeader:
			l.Table = string(h.Value)
		case stubHeader:
			l.Stub = true
		case dlqTopicHeader:
			l.Topic = string(h.Value)
		case dlqPartitionHeader:
			if v, err := strconv.ParseInt(string(h.Value), 10, 32); err == nil {
				l.Partition = int32(v)
			}
		case dlqOffsetHeader:
			if v, err := strconv.ParseInt(string(h.Value), 10, 64); err == nil {
				l.SourceOffset = v
			}
		case dlqClassHeader:
			l.Code = string(h.Value)
		case dlqMessageHeader:
			l.Reason = string(h.Value)
		}
	}
	return l
}
