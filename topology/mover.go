package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/processors/rekey"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
)

// ErrNeedsCluster marks errors of what the embedded broker cannot do.
var ErrNeedsCluster = errors.New("needs a Kafka cluster")

const (
	// moverBatch is the most records of one Kafka transaction of a mover.
	moverBatch = 10_000
	// moverTimeout is after what a broker gives up a transaction whose mover is gone.
	moverTimeout = 30 * time.Second
	// moverEnd bounds the end of a transaction.
	moverEnd = 10 * time.Second
)

// RekeyTopic is the internal topic of a table whose source is re-keyed (K5).
func (t Topics) RekeyTopic(table string) string { return t.Deployment + ".rekey." + table }

// moverConfig is what a mover works with.
type moverConfig struct {
	client     ClientOptions
	admin      *Admin
	def        *schemas.Definition
	source     TopicInfo
	target     string
	partitions int    // of target
	deployment string // names group and transactions
	member     string // unique among the movers that run at once
	logger     *slog.Logger
	registry   source.SchemaSource
	wait       func(context.Context) error // before each batch: a full disk, say
	// outdated says whether the table's source is read otherwise by now. It is asked
	// when a record is not read: its partition is not its key's then.
	outdated func(context.Context) (bool, error)
}

// mover moves a table's source events into its internal topic, each record to
// the partitions that the typed keys of its events hash to (K5). Records and
// progress are written in one Kafka transaction, so that each is there once for
// readers of committed records; a mover that stalled is fenced by the broker.
type mover struct {
	cfg   moverConfig
	log   *slog.Logger
	split *rekey.Splitter
	sess  *kgo.GroupTransactSession
	lost  atomic.Pointer[error]

	places  []int32
	origins []byte
	asked   bool // of this batch: outdated
}

// group is the mover's consumer group. The topic's id stands in it: offsets of
// a topic that was made again under its name are never taken for its own.
func (c *moverConfig) group() string {
	return fmt.Sprintf("%s.rekey.%s.%x", c.deployment, c.def.Name, c.source.ID[:4])
}

// newMover makes the internal topic where it is not there, and checks that it
// holds nothing of another topic.
func newMover(ctx context.Context, c moverConfig) (*mover, error) {
	if _, err := c.admin.EnsureSourceTopic(ctx, c.target, c.partitions); err != nil {
		return nil, err
	}
	m := &mover{cfg: c, log: c.logger.With("table", c.def.Name, "topic", c.source.Name)}
	if err := m.checkTarget(ctx); err != nil {
		return nil, err
	}
	var err error
	if m.split, err = rekey.NewSplitter(c.def, int32(c.partitions), c.registry); err != nil {
		return nil, fmt.Errorf("table %s: %w", c.def.Name, err)
	}
	opts, err := c.client.kgoOptions()
	if err != nil {
		return nil, err
	}
	m.sess, err = kgo.NewGroupTransactSession(append(opts,
		kgo.ConsumerGroup(c.group()), kgo.ConsumeTopics(c.source.Name),
		kgo.TransactionalID(c.group()+"."+c.member), kgo.TransactionTimeout(moverTimeout),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.AdjustFetchOffsetsFn(m.starts),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(DefaultSourceBatchBytes),
		kgo.FetchMaxBytes(sourceFetch), kgo.FetchMaxWait(100*time.Millisecond),
	)...)
	if err != nil {
		return nil, fmt.Errorf("set up the mover of table %s: %w", c.def.Name, err)
	}
	return m, nil
}

// checkTarget refuses an internal topic whose newest records came from another
// source topic: that one was made again under its name.
func (m *mover) checkTarget(ctx context.Context) error {
	ends, err := m.cfg.admin.Offsets(ctx, m.cfg.target)
	if err != nil {
		return err
	}
	const look = 64 // the newest may be markers of transactions
	for p := range ends {
		from := max(ends[p].Start, ends[p].Stable-look)
		if from >= ends[p].Stable {
			continue
		}
		r, err := OpenLogReader(ctx, m.cfg.client, ReaderOptions{Topic: m.cfg.target, Partition: int32(p), Offset: from, Committed: true})
		if err != nil {
			return err
		}
		for r.Next() < ends[p].Stable {
			rs, err := r.Poll(ctx, time.Second, look)
			if err != nil {
				r.Close()
				return err
			}
			for i := range rs {
				if o, ok := rekey.OriginOf(sourceHeaders(nil, rs[i].Headers)); ok && o.TopicID != m.cfg.source.ID {
					r.Close()
					return fmt.Errorf("%w: table %s: topic %s was made again under its name; give the new topic a table of its own, or delete topic %s and make the table anew",
						ErrTopicRecreated, m.cfg.def.Name, m.cfg.source.Name, m.cfg.target)
				}
			}
		}
		r.Close()
	}
	return nil
}

// starts is where each partition is read from: what the group committed, else
// the log's start. What was lost in between is an error, never passed over.
func (m *mover) starts(ctx context.Context, asked map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	ends, err := m.cfg.admin.Offsets(ctx, m.cfg.source.Name)
	if err != nil {
		return nil, err
	}
	for p, o := range asked[m.cfg.source.Name] {
		at := o.EpochOffset().Offset
		if at < 0 {
			asked[m.cfg.source.Name][p] = kgo.NewOffset().AtStart()
			continue
		}
		if int(p) >= len(ends) || at < ends[p].Start || at > ends[p].High {
			err := m.gone(p, at)
			m.lost.CompareAndSwap(nil, &err)
			return nil, err
		}
	}
	return asked, nil
}

func (m *mover) gone(partition int32, at int64) error {
	return fmt.Errorf("%w: table %s: source topic %s partition %d no longer has offset %d, which is the next to move: retention or somebody deleted records before they were read, or the topic lost its end; restore them, or go on without them by setting the committed offset of group %s",
		ErrOffsetOutOfRange, m.cfg.def.Name, m.cfg.source.Name, partition, at, m.cfg.group())
}

// run moves until ctx ends. An error is one that time does not mend.
func (m *mover) run(ctx context.Context) error {
	defer m.sess.CloseAllowingRebalance()
	for {
		if m.cfg.wait != nil {
			if err := m.cfg.wait(ctx); err != nil {
				return ended(ctx, err)
			}
		}
		fetches := m.sess.PollRecords(ctx, moverBatch)
		if p := m.lost.Load(); p != nil {
			return *p
		}
		if ctx.Err() != nil {
			return nil
		}
		var fatal error
		fetches.EachError(func(_ string, p int32, err error) {
			switch {
			case errors.Is(err, kerr.OffsetOutOfRange):
				fatal = fmt.Errorf("%w: table %s: source topic %s partition %d: %w", ErrOffsetOutOfRange, m.cfg.def.Name, m.cfg.source.Name, p, err)
			case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
				// Of a topic that was deleted, or made again: the next start says which.
				fatal = fmt.Errorf("table %s: source topic %s partition %d: %w", m.cfg.def.Name, m.cfg.source.Name, p, err)
			default:
				m.log.Warn("a source cannot be read; it is tried again", "partition", p, "error", err)
			}
		})
		if fatal != nil {
			return fatal
		}
		if fetches.NumRecords() == 0 {
			m.sess.AllowRebalance()
			continue
		}
		if err := m.move(ctx, fetches); err != nil {
			return ended(ctx, err)
		}
	}
}

// ended is nil when it was ctx that ended things.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// move writes what was fetched in one transaction. One that is not committed is
// read again.
func (m *mover) move(ctx context.Context, fetches kgo.Fetches) error {
	if err := m.sess.Begin(); err != nil {
		return fmt.Errorf("table %s: begin a transaction of the mover: %w", m.cfg.def.Name, err)
	}
	m.origins, m.asked = m.origins[:0], false
	var failed error
	promise := kgo.AbortingFirstErrPromise(m.sess.Client())
	fetches.EachRecord(func(r *kgo.Record) {
		if failed != nil {
			return
		}
		failed = m.one(ctx, r, promise)
	})
	if err := promise.Err(); err != nil && failed == nil {
		m.log.Warn("a batch was not moved; it is read again", "error", err)
		failed = errNotMoved
	}
	if errors.Is(failed, source.ErrAway) || errors.Is(failed, errNotAsked) {
		m.log.Warn("a batch waits to be moved", "error", failed)
		failed = errNotMoved
	}
	// Also when ctx has ended: readers of committed records wait behind an open transaction.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), moverEnd)
	defer cancel()
	committed, err := m.sess.End(last, kgo.TransactionEndTry(failed == nil && ctx.Err() == nil))
	switch {
	case failed != nil && !errors.Is(failed, errNotMoved):
		return failed
	case err != nil && ctx.Err() == nil:
		// The session rewinds to what was committed.
		m.log.Warn("a transaction of the mover did not end; what it moved is read again", "error", err)
		return sleep(ctx, retryMin)
	case !committed && failed != nil:
		return sleep(ctx, retryMin)
	}
	return nil
}

var errNotMoved = errors.New("not moved")

// errNotAsked: it is not known whether the table reads its source otherwise by now.
var errNotAsked = errors.New("the table cannot be looked at")

// errOtherFormat: the table reads its source otherwise by now.
var errOtherFormat = errors.New("the format of the table's source was changed")

// one produces a record to the partitions of its events.
func (m *mover) one(ctx context.Context, r *kgo.Record, promise *kgo.FirstErrPromise) error {
	x := source.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, TimeMs: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
	x.Headers = sourceHeaders(nil, r.Headers)
	var err error
	if m.places, err = m.split.Split(m.places[:0], &x); errors.Is(err, rekey.ErrUnread) {
		if !m.asked && m.cfg.outdated != nil {
			switch other, err := m.cfg.outdated(ctx); {
			case err != nil:
				return fmt.Errorf("%w: %w", errNotAsked, err)
			case other:
				return errOtherFormat
			}
			m.asked = true
		}
		m.places, err = m.split.Place(m.places[:0], &x)
	}
	if err != nil {
		return fmt.Errorf("table %s: source topic %s partition %d offset %d: %w", m.cfg.def.Name, r.Topic, r.Partition, r.Offset, err)
	}
	at := len(m.origins)
	o := rekey.Origin{TopicID: m.cfg.source.ID, Partition: r.Partition, Offset: r.Offset}
	m.origins = o.Append(m.origins)
	headers := append([]kgo.RecordHeader{{Key: rekey.OriginHeader, Value: slices.Clip(m.origins[at:])}}, r.Headers...)
	for _, p := range m.places {
		m.sess.Produce(ctx, &kgo.Record{Topic: m.cfg.target, Partition: p, Key: r.Key, Value: r.Value, Headers: headers, Timestamp: r.Timestamp}, promise.Promise())
	}
	return nil
}

// sourceHeaders appends a log record's headers as a source's.
func sourceHeaders(dst []source.Header, hs []Header) []source.Header {
	for i := range hs {
		dst = append(dst, source.Header{Key: hs[i].Key, Value: hs[i].Value})
	}
	return dst
}
