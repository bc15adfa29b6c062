package statestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/varve-io/varve/schemas/record"
)

// CutNotice says that a table has a pending cut to publish.
type CutNotice struct {
	Table   string
	TableID int64
	Build   int64
}

// Message is one message of the outcomes topic. A derived one goes out before
// the record's own, so only the own one says that an offset was sent.
type Message struct {
	Offset     int64
	Derived    bool
	Key, Value []byte
}

// Outbox is what a commit made ready to send (L11). All of it is "perhaps again".
type Outbox struct {
	Outcomes []Message
	Cuts     []CutNotice
	Jobs     []JobNotice
}

// outBatch is messages of neighbouring records. Until they are stored they are
// in memory, and those that Commit has not returned yet stay there.
type outBatch struct {
	first, last int64 // log offsets
	msgs        []Message
	stored      bool // under first in the database
	released    bool // returned by Commit
}

// emit puts an outcome into the outbox.
func (s *Store) emit(m *record.OutcomeMessage) error {
	if s.opt.Silent {
		return nil
	}
	const usual = 1 << 10
	if cap(s.arena)-len(s.arena) < usual {
		s.arena = make([]byte, 0, arenaBytes)
	}
	n := len(s.arena)
	at := n + record.OutcomeKeySize
	k, v, err := record.EncodeOutcomeMessage(s.arena[n:n:at], s.arena[at:at], m)
	if err != nil {
		return fmt.Errorf("outcome of record %d: %w", m.Offset, err)
	}
	if at+len(v) <= cap(s.arena) {
		s.arena = s.arena[:at+len(v)]
		v = s.arena[at:len(s.arena):len(s.arena)]
	} else {
		s.arena = s.arena[:at] // v has memory of its own
	}
	b := s.openBatch(m.Offset)
	b.last = m.Offset
	b.msgs = append(b.msgs, Message{Offset: m.Offset, Derived: m.Derived, Key: k, Value: v})
	s.held += int64(len(k)+len(v)) + messageBytes
	return nil
}

// messageBytes is what a Message takes beside its bytes.
const messageBytes = 64

func (s *Store) openBatch(offset int64) *outBatch {
	n := len(s.outbox)
	if n == 0 || s.outbox[n-1].stored || s.outbox[n-1].released {
		var room []Message
		if n > 0 {
			room = make([]Message, 0, min(max(len(s.outbox[n-1].msgs), 16), 1<<14))
		}
		s.outbox = append(s.outbox, outBatch{first: offset, msgs: room})
		n++
	}
	return &s.outbox[n-1]
}

// release is the messages since the last Commit.
func (s *Store) release() []Message {
	n := len(s.outbox)
	from := n
	for from > 0 && !s.outbox[from-1].released {
		from--
	}
	var out []Message
	for i := from; i < n; i++ {
		b := &s.outbox[i]
		if i == from {
			out = b.msgs[:len(b.msgs):len(b.msgs)]
		} else {
			out = append(out, b.msgs...)
		}
		b.released = true
		if b.stored {
			b.msgs = nil
		}
	}
	return out
}

// storeOutbox adds the outbox to a batch: what the topic is not known to have
// goes in, what it has goes out.
func (s *Store) storeOutbox(w *pebble.Batch) error {
	for _, first := range s.stale {
		if err := w.Delete(key8(keyOutbox, uint64(first)), nil); err != nil {
			return err
		}
	}
	for i := range s.outbox {
		b := &s.outbox[i]
		if b.stored {
			continue
		}
		size := 10
		for _, m := range b.msgs {
			size += len(m.Key) + len(m.Value) + 10
		}
		e := enc{b: make([]byte, 0, size)}
		e.u(uint64(len(b.msgs)))
		for _, m := range b.msgs {
			e.byts(m.Key)
			e.byts(m.Value)
		}
		if err := w.Set(key8(keyOutbox, uint64(b.first)), e.b, nil); err != nil {
			return err
		}
	}
	return nil
}

// outboxStored is called once what storeOutbox wrote is in the database.
func (s *Store) outboxStored() {
	s.stale = s.stale[:0]
	for i := range s.outbox {
		b := &s.outbox[i]
		if b.stored = true; b.released {
			b.msgs = nil
		}
	}
}

func (s *Store) loadOutbox() error {
	it, err := s.iter([]byte{keyOutbox})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if len(it.Key()) != 9 {
			return errors.Join(fmt.Errorf("%w: outbox key", ErrCorrupt), it.Close())
		}
		b := outBatch{first: int64(binary.BigEndian.Uint64(it.Key()[1:])), stored: true, released: true}
		b.last = b.first
		if err := readOutbox(it.Value(), func(m Message) error {
			b.last = m.Offset
			return nil
		}); err != nil {
			return errors.Join(err, it.Close())
		}
		s.outbox = append(s.outbox, b)
	}
	return errors.Join(it.Error(), it.Close())
}

func readOutbox(v []byte, fn func(Message) error) error {
	d := dec{b: v}
	for n := d.count(); n > 0; n-- {
		key, value := d.byts(), d.byts()
		if d.bad || len(key) != record.OutcomeKeySize {
			d.fail()
			break
		}
		if err := fn(Message{Offset: int64(binary.BigEndian.Uint64(key)), Derived: key[8] != 0, Key: key, Value: value}); err != nil {
			return err
		}
	}
	return d.done("outbox")
}

// Unsent calls fn with every outcome message above the offset after that
// Commit has returned and that was not told to be sent, in order.
func (s *Store) Unsent(after int64, fn func(Message) error) error {
	s.mu.Lock()
	batches := slices.Clone(s.outbox)
	after = max(after, s.sent)
	s.mu.Unlock()
	for _, b := range batches {
		if !b.released || b.last <= after {
			continue
		}
		send := func(m Message) error {
			if m.Offset <= after {
				return nil
			}
			return fn(m)
		}
		if b.msgs == nil {
			v, err := s.stored(key8(keyOutbox, uint64(b.first)))
			if err != nil {
				return err
			}
			if err := readOutbox(v, send); err != nil {
				return err
			}
			continue
		}
		for _, m := range b.msgs {
			if err := send(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// Sent drops the outbox up to and including offset: those messages are in the
// outcomes topic.
func (s *Store) Sent(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = max(s.sent, offset)
	n := 0
	for n < len(s.outbox) && s.outbox[n].released && s.outbox[n].last <= s.sent {
		if s.outbox[n].stored {
			s.stale = append(s.stale, s.outbox[n].first)
		}
		n++
	}
	clear(s.outbox[:n])
	s.outbox = s.outbox[n:]
}
