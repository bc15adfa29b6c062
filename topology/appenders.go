package topology

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/rekey"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// logAppender appends to one partition of the transactions topic for one processor.
type logAppender struct {
	ctx       context.Context
	producer  *LogProducer
	topic     string
	partition int32
	box       *mailbox
}

// logEntry is a request as an entry of the transactions topic.
func logEntry(m record.Message) Entry {
	return Entry{Key: m.Key, Value: m.Value, Headers: []Header{{Key: record.HeaderKey, Value: m.Header[:]}}}
}

func (a *logAppender) Append(m record.Message, done func(offset int64, err error)) {
	a.producer.Append(a.ctx, a.topic, a.partition, logEntry(m), func(offset int64, err error) {
		a.box.post(func() { done(offset, notTaken(err)) })
	})
}

// notTaken marks the errors after which sending again cannot help.
func notTaken(err error) error {
	if errors.Is(err, ErrTooLarge) || errors.Is(err, ErrProducerStopped) {
		return fmt.Errorf("%w: %w", processors.ErrNotTaken, err)
	}
	return err
}

// outcomeSender sends outcome messages of one partition.
type outcomeSender struct {
	ctx       context.Context
	producer  *LogProducer
	topic     string
	partition int32
	box       *mailbox
}

func (s *outcomeSender) Send(m statestore.Message, done func(error)) {
	s.producer.Append(s.ctx, s.topic, s.partition, Entry{Key: m.Key, Value: m.Value}, func(_ int64, err error) {
		s.box.post(func() { done(notTaken(err)) })
	})
}

// Dead letters are headed as Kafka Connect heads them (inputs.md).
const (
	dlqTopicHeader     = "__connect.errors.topic"
	dlqPartitionHeader = "__connect.errors.partition"
	dlqOffsetHeader    = "__connect.errors.offset"
	dlqClassHeader     = "__connect.errors.exception.class.name"
	dlqMessageHeader   = "__connect.errors.exception.message"
	dlqStageHeader     = "__connect.errors.stage"
	// Headers of varve's own: the table that refused the event, that the letter
	// has no event, and on an event that is published again, the letter it was.
	letterTableHeader = "varve.table"
	stubHeader        = "varve.stub"
	retriedHeader     = "varve.retried-letter"
	// maxLetterHeaders bounds the headers that a letter keeps of its event, in bytes.
	maxLetterHeaders = 64 << 10
	maxLetterReason  = 1024
)

// letterHeaders are those that a letter has before its event's own.
var letterHeaders = map[string]bool{
	dlqTopicHeader: true, dlqPartitionHeader: true, dlqOffsetHeader: true, dlqClassHeader: true, dlqMessageHeader: true, dlqStageHeader: true,
	letterTableHeader: true, stubHeader: true,
}

// letterSender sends dead letters to <source>.dlq, made when first needed.
type letterSender struct {
	ctx      context.Context
	producer *LogProducer
	source   string // topic of the events
	topic    string
	box      *mailbox
	ensure   func(ctx context.Context, topic string) error
	made     bool
	count    func(l *processors.DeadLetter)
}

func (s *letterSender) Send(l *processors.DeadLetter, done func(error)) {
	if !s.made {
		if err := s.ensure(s.ctx, s.topic); err != nil {
			done(err)
			return
		}
		s.made = true
	}
	if s.count != nil {
		s.count(l)
	}
	r := l.Record
	partition, offset := r.Partition, r.Offset
	if o, ok := rekey.OriginOf(r.Headers); ok { // it came through an internal topic
		partition, offset = o.Partition, o.Offset
	}
	reason := l.Reject.Error()
	if len(reason) > maxLetterReason {
		reason = reason[:maxLetterReason]
	}
	e := Entry{
		Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value),
		Headers: []Header{
			{Key: dlqTopicHeader, Value: []byte(s.source)},
			{Key: dlqPartitionHeader, Value: strconv.AppendInt(nil, int64(partition), 10)},
			{Key: dlqOffsetHeader, Value: strconv.AppendInt(nil, offset, 10)},
			{Key: dlqClassHeader, Value: []byte("varve." + l.Reject.Code)},
			{Key: dlqMessageHeader, Value: []byte(reason)},
			{Key: dlqStageHeader, Value: []byte("VALUE_CONVERTER")},
			{Key: letterTableHeader, Value: []byte(l.Table)},
		},
	}
	size := 0
	for _, h := range r.Headers {
		if size += len(h.Key) + len(h.Value); size > maxLetterHeaders {
			break
		}
		e.Headers = append(e.Headers, Header{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	if len(e.Key)+len(e.Value) > DefaultSourceBatchBytes-maxLetterHeaders-4096 {
		// Too large to carry on: a stub that says where it is.
		e.Key, e.Value = nil, nil
		e.Headers = append(e.Headers[:7:7], Header{Key: stubHeader, Value: []byte("the event is too large for a dead letter; read it at its topic, partition and offset")})
	}
	s.producer.Append(s.ctx, s.topic, 0, e, func(_ int64, err error) {
		s.box.post(func() { done(notTaken(err)) })
	})
}

// logEnd asks where a partition of the log ends, for a shard.
func (n *Node) logEnd(partition int32, box *mailbox) func(done func(int64, error)) {
	return func(done func(int64, error)) {
		n.wg.Go(func() {
			ends, err := n.admin.Offsets(n.ctx, n.topics.Transactions)
			box.post(func() {
				if err != nil {
					done(0, err)
					return
				}
				done(ends[partition].High, nil)
			})
		})
	}
}
