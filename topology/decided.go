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
// topic may hold more (derived ones, doubles after a crash, what others wrote),
// never fewer, so the outcome of log offset o lies at topic offset o or above.
type decidedReader struct {
	client        ClientOptions
	log, outcomes *LogReader
	records       []statestore.Record
	messages      []record.OutcomeMessage
	next          int64 // log offset of the next pair
}

func openDecided(ctx context.Context, o ClientOptions, t Topics, partition int32, from int64) (*decidedReader, error) {
	return openDecidedWait(ctx, o, t, partition, from, 100*time.Millisecond)
}

// openDecidedWait is openDecided, where a broker holds a fetch that has nothing
// to bring for so long.
func openDecidedWait(ctx context.Context, o ClientOptions, t Topics, partition int32, from int64, wait time.Duration) (*decidedReader, error) {
	log, err := OpenLogReader(ctx, o, ReaderOptions{Topic: t.Transactions, Partition: partition, Offset: from, MaxWait: wait})
	if err != nil {
		return nil, err
	}
	outcomes, err := openOutcomes(ctx, o, t, partition, from, wait)
	if err != nil {
		log.Close()
		return nil, err
	}
	return &decidedReader{client: o, log: log, outcomes: outcomes, next: from}, nil
}

// isOutcome decodes what varve writes into the outcomes topic. Anyone may have
// written something else there: it says nothing about the log.
func isOutcome(r *LogRecord, m *record.OutcomeMessage) bool {
	return !r.Control && record.DecodeOutcomeMessage(r.Key, r.Value, m) == nil
}

// logEnd is where the log ends now.
func (d *decidedReader) logEnd(ctx context.Context) (int64, error) {
	a, err := NewAdmin(d.client)
	if err != nil {
		return 0, err
	}
	defer a.Close()
	at, err := a.Offsets(ctx, d.log.opts.Topic)
	if err != nil {
		return 0, err
	}
	return at[d.log.opts.Partition].High, nil
}

// openOutcomes reads the outcomes topic from where the outcome of a log offset
// may lie at the earliest. While apply is behind, that is where the topic ends.
func openOutcomes(ctx context.Context, o ClientOptions, t Topics, partition int32, from int64, wait time.Duration) (*LogReader, error) {
	r, err := OpenLogReader(ctx, o, ReaderOptions{Topic: t.Outcomes, Partition: partition, Offset: from, MaxWait: wait})
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
		Topic: t.Outcomes, Partition: partition, Offset: min(from, at[partition].High), MaxWait: wait,
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
		var m record.OutcomeMessage
		if !isOutcome(&ms[i], &m) {
			continue
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
			high, err := d.logEnd(ctx)
			if err != nil {
				return nil, err
			}
			if msg.Offset >= high { // of no record: varve did not write it
				m++
				continue
			}
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
