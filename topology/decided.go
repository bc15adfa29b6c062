package topology

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// stateRecord is a record of the transactions topic as apply wants it.
func stateRecord(r *LogRecord) statestore.Record {
	s := statestore.Record{
		Offset: r.Offset, LeaderEpoch: r.LeaderEpoch, TimeMs: r.TimeMs, Key: r.Key, Value: r.Value, Control: r.Control,
	}
	for i := range r.Headers {
		if r.Headers[i].Key == record.HeaderKey {
			s.Header = r.Headers[i].Value
			break
		}
	}
	return s
}

// decidedReader pairs the records of a transactions partition with their
// outcomes. Both topics have one entry a record in offset order; the outcomes
// topic may hold more (derived ones, doubles after a crash), never fewer, so
// the outcome of log offset o lies at topic offset o or above.
type decidedReader struct {
	log, outcomes *LogReader
	records       []statestore.Record
	messages      []record.OutcomeMessage
	next          int64 // log offset of the next pair
}

func openDecided(ctx context.Context, o ClientOptions, t Topics, partition int32, from int64) (*decidedReader, error) {
	log, err := OpenLogReader(ctx, o, ReaderOptions{Topic: t.Transactions, Partition: partition, Offset: from, MaxWait: 100 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	outcomes, err := openOutcomes(ctx, o, t, partition, from)
	if err != nil {
		log.Close()
		return nil, err
	}
	return &decidedReader{log: log, outcomes: outcomes, next: from}, nil
}

// openOutcomes reads the outcomes topic from where the outcome of a log offset
// may lie at the earliest. While apply is behind, that is where the topic ends.
func openOutcomes(ctx context.Context, o ClientOptions, t Topics, partition int32, from int64) (*LogReader, error) {
	r, err := OpenLogReader(ctx, o, ReaderOptions{Topic: t.Outcomes, Partition: partition, Offset: from, MaxWait: 100 * time.Millisecond})
	if !errors.Is(err, ErrOffsetOutOfRange) {
		return r, err
	}
	a, err := NewAdmin(o)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	at, err := a.Offsets(ctx, t.Outcomes)
	if err != nil {
		return nil, err
	}
	return OpenLogReader(ctx, o, ReaderOptions{
		Topic: t.Outcomes, Partition: partition, Offset: min(from, at[partition].High), MaxWait: 100 * time.Millisecond,
	})
}

func (d *decidedReader) close() {
	d.log.Close()
	d.outcomes.Close()
}

// poll returns the next pairs, none when there is none within wait.
func (d *decidedReader) poll(ctx context.Context, wait time.Duration) ([]processors.Decided, error) {
	ms, err := d.outcomes.Poll(ctx, wait, 4096)
	if err != nil {
		return nil, err
	}
	for i := range ms {
		if ms[i].Control {
			continue
		}
		var m record.OutcomeMessage
		if err := record.DecodeOutcomeMessage(ms[i].Key, ms[i].Value, &m); err != nil {
			return nil, fmt.Errorf("outcomes topic, offset %d: %w; the topic holds a message that varve did not write", ms[i].Offset, err)
		}
		if m.Offset >= d.next {
			d.messages = append(d.messages, m)
		}
	}
	if len(d.messages) == 0 {
		return nil, nil
	}
	if last := d.messages[len(d.messages)-1].Offset; len(d.records) == 0 || d.records[len(d.records)-1].Offset < last {
		rs, err := d.log.Poll(ctx, wait, 4096)
		if err != nil {
			return nil, err
		}
		for i := range rs {
			d.records = append(d.records, stateRecord(&rs[i]))
		}
	}
	var out []processors.Decided
	r, m := 0, 0
	for m < len(d.messages) && r < len(d.records) {
		switch msg := &d.messages[m]; {
		case msg.Offset < d.next: // sent again after a crash
			m++
		case msg.Offset > d.records[r].Offset:
			return nil, fmt.Errorf("outcomes topic: no outcome of log offset %d; the topic lost messages: delete it and the state folders, they are made again from the log", d.records[r].Offset)
		case msg.Derived:
			out = append(out, processors.Decided{Record: d.records[r], Outcome: *msg})
			m++
		default:
			out = append(out, processors.Decided{Record: d.records[r], Outcome: *msg})
			d.next = msg.Offset + 1
			m++
			r++
		}
	}
	d.messages = append(d.messages[:0], d.messages[m:]...)
	d.records = append(d.records[:0], d.records[r:]...)
	return out, nil
}
