package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/varve-io/varve/schemas/source"
)

// Limits of a look through a routed topic.
const (
	// RouteSample is how many records of one text are kept to make a table of.
	RouteSample = 1000
	// maxRoutes bounds the texts that are told apart, maxRouteText each of them,
	// maxRouteBytes the records kept of all of them.
	maxRoutes     = 10_000
	maxRouteText  = 1024
	maxRouteBytes = 64 << 20
	routePoll     = 8192
)

// RouteScan looks through a topic whose records say themselves of which table
// they are, and counts the texts that say so. It begins at the topic's start each
// time, and writes nothing: tables read the topic on their own, from its start as
// well, so that a table that is made late has lost nothing.
type RouteScan struct {
	client ClientOptions
	topic  string
	route  *source.Route

	readers []*LogReader
	bytes   int
	seen    map[string]*RouteText
	// Without are the records that have no such text, or that cannot be read;
	// Beyond those whose text is one too many, or too long.
	Without, Beyond int64
}

// RouteText is one text and what was seen of its records.
type RouteText struct {
	Text    string
	Records int64
	Sample  []source.Record // dropped with Forget
	done    bool
}

// OpenRouteScan begins at a topic's start.
func OpenRouteScan(o ClientOptions, topic, by, format string, registry source.SchemaSource) (*RouteScan, error) {
	r, err := source.NewRoute(by, format, registry)
	if err != nil {
		return nil, fmt.Errorf("%w: topic %s: %w", ErrConfig, topic, err)
	}
	return &RouteScan{client: o, topic: topic, route: r, seen: map[string]*RouteText{}}, nil
}

// Close ends the connections.
func (s *RouteScan) Close() {
	for _, r := range s.readers {
		r.Close()
	}
	s.readers = nil
}

// Poll reads on, for about so long; more says that the topic's end as it was then
// is not reached. A topic that is not there has no records.
func (s *RouteScan) Poll(ctx context.Context, d time.Duration) (more bool, err error) {
	admin, err := NewAdmin(s.client)
	if err != nil {
		return false, err
	}
	defer admin.Close()
	ends, err := admin.Offsets(ctx, s.topic)
	if errors.Is(err, ErrNoTopic) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	until := time.Now().Add(d)
	for p := range ends {
		if p >= len(s.readers) {
			r, err := OpenLogReader(ctx, s.client, ReaderOptions{Topic: s.topic, Partition: int32(p), Offset: ends[p].Start, Committed: true, MaxBytes: sourceFetch})
			if err != nil {
				return false, err
			}
			s.readers = append(s.readers, r)
		}
		r := s.readers[p]
		for r.Next() < ends[p].Stable {
			if time.Now().After(until) {
				return true, nil
			}
			rs, err := r.Poll(ctx, 100*time.Millisecond, routePoll)
			if err != nil {
				return false, err
			}
			for i := range rs {
				if rs[i].Control {
					continue
				}
				if err := s.take(int32(p), &rs[i]); err != nil {
					return false, err
				}
			}
		}
	}
	return false, nil
}

func (s *RouteScan) take(p int32, x *LogRecord) error {
	rec := source.Record{Topic: s.topic, Partition: p, Offset: x.Offset, TimeMs: x.TimeMs, Key: x.Key, Value: x.Value, Headers: sourceHeaders(nil, x.Headers)}
	text, ok, err := s.route.Of(&rec)
	if err != nil {
		return err
	}
	if !ok {
		s.Without++
		return nil
	}
	t := s.seen[string(text)]
	if t == nil {
		if len(s.seen) >= maxRoutes || len(text) > maxRouteText {
			s.Beyond++
			return nil
		}
		t = &RouteText{Text: string(text)}
		s.seen[t.Text] = t
	}
	t.Records++
	if !t.done && len(t.Sample) < RouteSample && s.bytes < maxRouteBytes {
		t.Sample = append(t.Sample, rec)
		s.bytes += len(rec.Key) + len(rec.Value)
	}
	return nil
}

// Texts are what was seen, in order.
func (s *RouteScan) Texts() []*RouteText {
	out := make([]*RouteText, 0, len(s.seen))
	for _, t := range s.seen {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *RouteText) int { return strings.Compare(a.Text, b.Text) })
	return out
}

// Forget drops a text's sample: it has its table, or gets none.
func (s *RouteScan) Forget(t *RouteText) {
	for i := range t.Sample {
		s.bytes -= len(t.Sample[i].Key) + len(t.Sample[i].Value)
	}
	t.Sample, t.done = nil, true
}

// unrouted is what was found of topics whose records say of which table they are.
type unrouted struct {
	mu sync.Mutex
	by map[string]int64
}

// Unrouted tells the node how many records of a topic are of no table, as far as
// somebody looked.
func (n *Node) Unrouted(topic string, records int64) {
	n.unrouted.mu.Lock()
	defer n.unrouted.mu.Unlock()
	if n.unrouted.by == nil {
		n.unrouted.by = map[string]int64{}
	}
	n.unrouted.by[topic] = records
}

func (u *unrouted) each(fn func(topic string, records int64)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for topic, n := range u.by {
		fn(topic, n)
	}
}

// SourceTopics are the topics of the brokers that may be tables' sources: none of
// Kafka's own, of this deployment's, or of dead letters.
func (n *Conn) SourceTopics(ctx context.Context) ([]string, error) {
	all, err := n.admin.TopicNames(ctx)
	if err != nil {
		return nil, err
	}
	out := all[:0]
	for _, t := range all {
		switch {
		case strings.HasPrefix(t, "__"), strings.HasSuffix(t, ".dlq"), t == n.topics.Transactions, t == n.topics.Outcomes, t == n.topics.Jobs,
			strings.HasPrefix(t, n.topics.Deployment+".rekey."):
		default:
			out = append(out, t)
		}
	}
	slices.Sort(out)
	return out, nil
}
