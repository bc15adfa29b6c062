package topology

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

// TestPing: a broker that is not there is an error within the time given, with the address in it.
func TestPing(t *testing.T) {
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := refusing.Addr().String()
	if err := refusing.Close(); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, addr := range map[string]string{"nobody listens": addr, "nobody answers": silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			err := Ping(testContext(t), ClientOptions{Brokers: []string{addr}}, 300*time.Millisecond)
			wantError(t, err, ErrUnreachable, addr, "300ms", "check that Kafka runs there")
		})
	}
	t.Run("context over", func(t *testing.T) {
		for after := time.Duration(0); after < 160*time.Millisecond; after += 20 * time.Millisecond { // in a dial, and between two
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(after, cancel)
			if err := Ping(ctx, ClientOptions{Brokers: []string{addr}}, time.Minute); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
				t.Errorf("after %s: got %v", after, err)
			}
		}
	})
	t.Run("one of two answers", func(t *testing.T) {
		b := openBroker(t, t.TempDir())
		if err := Ping(testContext(t), ClientOptions{Brokers: []string{addr, b.Addr()}}, 0); err != nil {
			t.Error(err)
		}
	})
}

func TestClientOptionsRefused(t *testing.T) {
	for _, c := range []struct {
		brokers []string
		part    string
	}{
		{nil, "no Kafka brokers given"},
		{[]string{"localhost:9092", ""}, "empty entry"},
		{[]string{"localhost:port"}, "localhost:port"},
	} {
		if a, err := NewAdmin(ClientOptions{Brokers: c.brokers}); err == nil || !strings.Contains(err.Error(), c.part) {
			if err == nil {
				a.Close()
			}
			t.Errorf("brokers %q: got %v, want %q", c.brokers, err, c.part)
		}
	}
}

// TestClientLogsQuietly: what franz-go says at info is debug to a user of varve.
func TestClientLogsQuietly(t *testing.T) {
	var out syncBuffer
	log := slog.New(quieter{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo}), &repeatFilter{seen: map[string]repeat{}}}.WithAttrs([]slog.Attr{slog.Int("n", 1)}))
	log.Info("quiet")
	log.Warn("loud")
	if s := out.String(); strings.Contains(s, "quiet") || !strings.Contains(s, "loud") || !strings.Contains(s, "n=1") {
		t.Errorf("logged %q", s)
	}
}

// TestClientWarnsSeldom: a warning that comes again and again is logged once in
// a while, with how many were left out; another one is not held back by it.
func TestClientWarnsSeldom(t *testing.T) {
	f := &repeatFilter{seen: map[string]repeat{}}
	at := time.Unix(1_000_000, 0)
	for i, step := range []struct {
		after   time.Duration
		msg     string
		pass    bool
		leftOut int
	}{
		{0, "away", true, 0},
		{time.Millisecond, "away", false, 0},
		{time.Millisecond, "other", true, 0},
		{repeatEvery - time.Second, "away", false, 0},
		{time.Second, "away", true, 2},
		{2 * repeatEvery, "away", true, 0},
	} {
		at = at.Add(step.after)
		if n, ok := f.pass(step.msg, at); ok != step.pass || n != step.leftOut {
			t.Errorf("step %d: passed %v with %d left out, want %v with %d", i, ok, n, step.pass, step.leftOut)
		}
	}
}

// TestAppendWithoutBroker: while no broker is there, nothing is dropped and nothing blocks for ever: Append
// waits at a full buffer until its context ends, and Close answers every record.
func TestAppendWithoutBroker(t *testing.T) {
	p, err := NewLogProducer(ClientOptions{Brokers: []string{"127.0.0.1:1"}}, ProducerOptions{MaxBufferedRecords: 2})
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan error, 3)
	done := func(offset int64, err error) {
		if offset != -1 {
			t.Errorf("got offset %d", offset)
		}
		answers <- err
	}
	for range 2 {
		p.Append(t.Context(), "log", 0, Entry{Value: []byte("v")}, done)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	p.Append(ctx, "log", 0, Entry{Value: []byte("no room")}, done)
	if err := <-answers; !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "topic log partition 0") {
		t.Errorf("got %v", err)
	}
	if n := p.Buffered(); n != 2 {
		t.Errorf("%d buffered, want 2", n)
	}
	if err := p.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	p.Close()
	for range 2 {
		if err := <-answers; err == nil {
			t.Error("acknowledged without a broker")
		}
	}
}

func TestNewTopics(t *testing.T) {
	for _, c := range []struct {
		embedded   bool
		partitions int
		want       Topics
	}{
		{false, 0, Topics{"d", "d.transactions", "d.outcomes", 8, "d.jobs", 32}},
		{true, 0, Topics{"d", "d.transactions", "d.outcomes", 1, "d.jobs", 1}},
		{true, 5, Topics{"d", "d.transactions", "d.outcomes", 5, "d.jobs", 1}},
	} {
		got, err := NewTopics("d", c.partitions, 0, c.embedded)
		if err != nil || got != c.want {
			t.Errorf("got %+v, %v, want %+v", got, err, c.want)
		}
	}
	for _, bad := range []string{"", "a.b", "a b", "ä", "../x", strings.Repeat("x", 237)} {
		if _, err := NewTopics(bad, 1, 1, false); err == nil {
			t.Errorf("deployment name %q is allowed", bad)
		}
	}
	if _, err := NewTopics("d", -1, 0, false); err == nil {
		t.Error("-1 partitions are allowed")
	}
}

// TestSettingNotShown: a broker that replicates by Raft has no min.insync.replicas to be wrong; one that does not
// show whose time it stamps is refused.
func TestSettingNotShown(t *testing.T) {
	for _, s := range logSettings(3) {
		err := s.check("log", map[string]string{})
		if !errors.Is(err, ErrTopicSettings) || !strings.Contains(err.Error(), "not shown by the broker") {
			t.Errorf("%s: got %v", s.key, err)
		}
		if want := s.key == "min.insync.replicas" || s.key == "unclean.leader.election.enable"; s.maybeUnknown != want {
			t.Errorf("%s: may be unknown: %v", s.key, s.maybeUnknown)
		}
	}
}
