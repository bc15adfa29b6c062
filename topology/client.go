package topology

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/plugin/kslog"
)

// ErrUnreachable marks errors of brokers that did not answer in time.
var ErrUnreachable = errors.New("kafka unreachable")

const (
	// DefaultPingTimeout bounds how long Ping waits for any one broker to answer.
	DefaultPingTimeout = 10 * time.Second
	// DefaultDialTimeout bounds one connection attempt.
	DefaultDialTimeout = 5 * time.Second
	// DefaultClientID is the client id shown in a broker's logs and quotas.
	DefaultClientID = "varve"
)

// ClientOptions say how to reach the brokers. They are the same for producers, readers and admin calls.
type ClientOptions struct {
	// Brokers are the seed brokers as host:port. At least one is needed.
	Brokers []string
	// ClientID is shown in the brokers' logs. Default: DefaultClientID.
	ClientID string
	// Logger takes the client's own messages, one level down (its info is our debug). Default: none.
	Logger *slog.Logger
	// TLS, if set, encrypts every connection with this configuration. Default: plain text.
	TLS *tls.Config
	// SASL are the mechanisms to log in with, in order of preference. Default: none.
	SASL []sasl.Mechanism
	// Facts are what a node's folder remembers of TLS and SASL. Default: nothing.
	Facts *SecurityFacts
	// DialTimeout bounds one connection attempt. Default: DefaultDialTimeout.
	DialTimeout time.Duration
	// Hooks are told what the clients do, to count it. Default: none.
	Hooks []kgo.Hook
}

// kgoOptions are the options that every client shares.
func (o ClientOptions) kgoOptions() ([]kgo.Opt, error) {
	if len(o.Brokers) == 0 {
		return nil, errors.New("no Kafka brokers given: name at least one as host:port")
	}
	if err := checkBrokers(o.Brokers); err != nil {
		return nil, err
	}
	id := o.ClientID
	if id == "" {
		id = DefaultClientID
	}
	dial := o.DialTimeout
	if dial <= 0 {
		dial = DefaultDialTimeout
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...),
		kgo.ClientID(id),
		kgo.DialTimeout(dial),
		// How soon a client asks again who leads a partition: franz-go's 5 s are a long stand-still when a
		// broker is lost.
		kgo.MetadataMinAge(250 * time.Millisecond),
		// Pushing metrics of the client to the broker (KIP-714) is nothing that a user asked for.
		kgo.DisableClientMetrics(),
	}
	if o.Logger != nil {
		opts = append(opts, kgo.WithLogger(kslog.New(slog.New(quieter{o.Logger.Handler(), repeats}))))
	}
	if len(o.Hooks) > 0 {
		opts = append(opts, kgo.WithHooks(o.Hooks...))
	}
	if o.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(o.TLS.Clone()))
	}
	if len(o.SASL) > 0 {
		opts = append(opts, kgo.SASL(o.SASL...))
	}
	return opts, nil
}

// quieter passes the client's info messages on as debug messages: franz-go says
// at info what a user of varve need not read at each start. Of a warning that
// comes again and again, as while brokers are away, one in repeatEvery passes.
type quieter struct {
	slog.Handler
	seen *repeatFilter
}

func (q quieter) Enabled(ctx context.Context, l slog.Level) bool {
	return q.Handler.Enabled(ctx, quiet(l))
}

func (q quieter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		n, pass := q.seen.pass(r.Message, r.Time)
		if !pass {
			return nil
		}
		if n > 0 {
			r.AddAttrs(slog.Int("left_out", n))
		}
	}
	r.Level = quiet(r.Level)
	return q.Handler.Handle(ctx, r)
}

func (q quieter) WithAttrs(a []slog.Attr) slog.Handler {
	return quieter{q.Handler.WithAttrs(a), q.seen}
}
func (q quieter) WithGroup(name string) slog.Handler {
	return quieter{q.Handler.WithGroup(name), q.seen}
}

// repeatEvery is how often one and the same warning of the clients is logged.
const repeatEvery = 10 * time.Second

// repeats is shared by all clients of the process: each of them would tell the
// same.
var repeats = &repeatFilter{seen: map[string]repeat{}}

// repeatFilter knows when a message was last passed on. The messages are the
// client's own constant texts, so there are few.
type repeatFilter struct {
	mu   sync.Mutex
	seen map[string]repeat
}

type repeat struct {
	at      time.Time
	leftOut int
}

// pass says whether a message is to be logged, and how many were not since the
// last one that was.
func (f *repeatFilter) pass(msg string, now time.Time) (leftOut int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, again := f.seen[msg]
	if again && now.Sub(r.at) < repeatEvery {
		r.leftOut++
		f.seen[msg] = r
		return 0, false
	}
	f.seen[msg] = repeat{at: now}
	return r.leftOut, true
}

func quiet(l slog.Level) slog.Level {
	if l == slog.LevelInfo {
		return slog.LevelDebug
	}
	return l
}

func newClient(o ClientOptions, extra ...kgo.Opt) (*kgo.Client, error) {
	opts, err := o.kgoOptions()
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, fmt.Errorf("set up Kafka client for %s: %w", strings.Join(o.Brokers, ","), err)
	}
	return cl, nil
}

// Ping returns nil once any of the brokers has answered, and an error marked ErrUnreachable when none did
// within timeout (0: DefaultPingTimeout). Clients otherwise retry in silence, so a node asks this first.
func Ping(ctx context.Context, o ClientOptions, timeout time.Duration) error {
	cl, err := newClient(o)
	if err != nil {
		return err
	}
	defer cl.Close()
	return ping(ctx, cl, o.Brokers, timeout)
}

func ping(ctx context.Context, cl *kgo.Client, brokers []string, timeout time.Duration) error {
	if timeout <= 0 {
		timeout = DefaultPingTimeout
	}
	pctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// One round over the seeds ends when each refused the connection; a broker that is just starting
	// deserves another look until the time is over.
	var cause error
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := cl.Ping(pctx)
		if err == nil {
			return nil
		}
		if final := refused(err, strings.Join(brokers, ",")); final != nil {
			return final
		}
		if cause == nil || pctx.Err() == nil {
			cause = err
		}
		select {
		case <-pctx.Done():
			if ctx.Err() != nil { // the caller's end, not that of the time to answer
				return fmt.Errorf("waiting for Kafka at %s: %w", strings.Join(brokers, ","), ctx.Err())
			}
			if errors.Is(cause, io.EOF) || errors.Is(cause, io.ErrUnexpectedEOF) {
				cause = fmt.Errorf("%w (the connection was closed at once: is it a TLS or SASL port?)", cause)
			}
			return fmt.Errorf("%w: none of the brokers %s answered within %s: %w; check that Kafka runs there and that the address is right",
				ErrUnreachable, strings.Join(brokers, ","), timeout, cause)
		case <-time.After(wait):
		}
	}
}

// checkBrokers refuses addresses that no client could dial: it would try them
// until its patience ends. A host without a port has Kafka's 9092.
func checkBrokers(brokers []string) error {
	for _, b := range brokers {
		if strings.TrimSpace(b) == "" {
			return fmt.Errorf("%w: broker list %q has an empty entry: name each broker as host:port", ErrConfig, strings.Join(brokers, ","))
		}
		host, port := b, "9092"
		if strings.Contains(b, ":") && (strings.HasPrefix(b, "[") || strings.Count(b, ":") == 1 || strings.Contains(b, "/")) {
			var err error
			if host, port, err = net.SplitHostPort(b); err != nil {
				return fmt.Errorf("%w: broker %q is no address: name it as host:port", ErrConfig, b)
			}
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || host == "" || strings.ContainsAny(host, "/ \t,@") {
			return fmt.Errorf("%w: broker %q is no address: name it as host:port", ErrConfig, b)
		}
	}
	return nil
}
