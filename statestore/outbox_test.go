package statestore_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	randv2 "math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// TestOutboxOfAnyLog: L11. Whatever was flushed when the node died, and however
// far the outcomes topic was, it ends with every outcome, in order, and what it
// has twice is twice the same.
func TestOutboxOfAnyLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st, err := openMem(vfs.NewMem(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		g := &logGen{t: t, st: st, timeMs: startMs}
		g.add("", -1, &record.SetApplyVersion{Deployment: testDeployment, Partitions: 1, Version: 1})
		for range rapid.IntRange(10, 80).Draw(t, "steps") {
			g.step()
		}
		var want []statestore.Message
		if err := st.Unsent(-1, func(m statestore.Message) error {
			want = append(want, m)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		seed := rapid.Uint64().Draw(t, "crashes")
		for i := range uint64(3) {
			if err := sendThroughCrashes(g.log, want, randv2.New(randv2.NewPCG(seed, i))); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func sendThroughCrashes(log []statestore.Record, want []statestore.Message, rng *randv2.Rand) error {
	fs := vfs.NewCrashableMem()
	held := int64(1) << (6 + rng.IntN(10))
	open := func() (*statestore.Store, error) {
		return statestore.Open("state", statestore.Options{
			FS: fs, WriteBack: held, MemTable: 64 << 10, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
	}
	st, err := open()
	if err != nil {
		return err
	}
	defer func() { st.Close() }()
	var topic, box []statestore.Message
	last := func() int64 {
		for i := len(topic) - 1; i >= 0; i-- {
			if !topic[i].Derived {
				return topic[i].Offset
			}
		}
		return -1
	}
	send := func(n int) {
		for range min(n, len(box)) {
			m := box[0]
			box = box[1:]
			topic = append(topic, statestore.Message{Offset: m.Offset, Derived: m.Derived, Key: bytes.Clone(m.Key), Value: bytes.Clone(m.Value)})
		}
	}
	for restarts := 0; st.Head().Offset+1 < int64(len(log)); {
		r := log[st.Head().Offset+1]
		if _, err := st.Apply(&r); err != nil {
			return err
		}
		if rng.IntN(3) == 0 {
			out, err := st.Commit()
			if err != nil {
				return err
			}
			box = append(box, out.Outcomes...)
		}
		if rng.IntN(3) == 0 {
			send(rng.IntN(8))
		}
		if rng.IntN(4) == 0 {
			st.Sent(last())
		}
		if rng.IntN(12) == 0 {
			if err := st.Flush(); err != nil {
				return err
			}
		}
		if restarts < 6 && rng.IntN(15) == 0 {
			restarts++
			clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			crash := rng.IntN(3) > 0
			if err := st.Close(); err != nil {
				return err
			}
			if crash {
				fs = clone
			}
			if st, err = open(); err != nil {
				return err
			}
			box = nil
			if err := st.Unsent(last(), func(m statestore.Message) error {
				box = append(box, m)
				return nil
			}); err != nil {
				return err
			}
		}
	}
	out, err := st.Commit()
	if err != nil {
		return err
	}
	box = append(box, out.Outcomes...)
	send(len(box))
	st.Sent(last())
	if err := st.Unsent(-1, func(m statestore.Message) error { return fmt.Errorf("%d is still in the outbox", m.Offset) }); err != nil {
		return err
	}
	next := 0
	for _, m := range topic {
		if next < len(want) && bytes.Equal(m.Key, want[next].Key) && bytes.Equal(m.Value, want[next].Value) {
			next++
			continue
		}
		again := false
		for i := range want[:next] {
			again = again || bytes.Equal(m.Key, want[i].Key) && bytes.Equal(m.Value, want[i].Value)
		}
		if !again {
			return fmt.Errorf("the topic has the outcome of %d (derived %t) too early, or with other bytes", m.Offset, m.Derived)
		}
	}
	if next != len(want) {
		return fmt.Errorf("the topic lacks the outcome of %d", want[next].Offset)
	}
	return nil
}
