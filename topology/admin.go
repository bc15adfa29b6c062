package topology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	// ErrNoTopic marks errors of a topic that does not exist.
	ErrNoTopic = errors.New("topic does not exist")
	// ErrTopicRecreated marks errors of a topic whose id is not the one that the state knows: it was deleted
	// and made again under its name, so its offsets mean other records (A1).
	ErrTopicRecreated = errors.New("topic was made again")
	// ErrLogBehind marks errors of a partition that ends before an offset that was already used: records
	// that were acknowledged are gone.
	ErrLogBehind = errors.New("log ends before an offset already used")
	// ErrLogTrimmed marks errors of a partition that starts after an offset that is still needed.
	ErrLogTrimmed = errors.New("log starts after an offset still needed")
)

// TopicID is Kafka's own 16-byte id of a topic: a topic made again under its name has another one (A1).
type TopicID [16]byte

// String is the id in the base64 form that Kafka's own tools print.
func (id TopicID) String() string { return kadm.TopicID(id).String() }

// Admin asks the brokers about topics and offsets, and creates topics. It is safe for concurrent use.
type Admin struct {
	brokers []string
	log     *slog.Logger
	cl      *kgo.Client
	adm     *kadm.Client
}

// NewAdmin returns an admin client. It does not connect: call Ping to know whether a broker is there.
func NewAdmin(o ClientOptions) (*Admin, error) {
	cl, err := newClient(o,
		// A caller's context bounds a request; within it a request is retried, for brokers come back.
		kgo.RetryTimeout(30*time.Second),
	)
	if err != nil {
		return nil, err
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Admin{brokers: o.Brokers, log: log, cl: cl, adm: kadm.NewClient(cl)}, nil
}

// Close ends the connections.
func (a *Admin) Close() { a.cl.Close() }

// Ping returns nil once any broker has answered, see Ping.
func (a *Admin) Ping(ctx context.Context, timeout time.Duration) error {
	return ping(ctx, a.cl, a.brokers, timeout)
}

// ClusterInfo describes the brokers as they answer now.
type ClusterInfo struct {
	// ClusterID is the id that the cluster gave itself.
	ClusterID string
	// Brokers is how many are alive.
	Brokers int
	// Embedded says that it is varve's own broker (Broker), which lacks some settings.
	Embedded bool
}

// Cluster asks who answers.
func (a *Admin) Cluster(ctx context.Context) (ClusterInfo, error) {
	m, err := a.metadata(ctx)
	if err != nil {
		return ClusterInfo{}, fmt.Errorf("ask Kafka for its brokers: %w", err)
	}
	info := ClusterInfo{Brokers: len(m.Brokers)}
	if m.ClusterID != nil {
		info.ClusterID = *m.ClusterID
	}
	info.Embedded = info.ClusterID == embeddedClusterID
	return info, nil
}

// metadata asks a broker: the client's own cache may still tell of a topic that was just deleted, or made
// again under its name.
func (a *Admin) metadata(ctx context.Context, topics ...string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(topics)) // empty, not nil: nil asks for all topics
	for _, t := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(t)
		req.Topics = append(req.Topics, rt)
	}
	var res *kmsg.MetadataResponse
	err := patiently(ctx, func() (err error) {
		res, err = req.RequestWith(ctx, a.cl)
		return err
	})
	return res, err
}

// TopicInfo is what identifies a topic.
type TopicInfo struct {
	Name string
	ID   TopicID
	// Partitions is the number of partitions, Replicas the smallest number of replicas that one has.
	Partitions, Replicas int
}

// Topic looks one topic up; the error is marked ErrNoTopic when it does not exist.
func (a *Admin) Topic(ctx context.Context, name string) (TopicInfo, error) {
	ts, err := a.topics(ctx, name)
	if err != nil {
		return TopicInfo{}, err
	}
	t, ok := ts[name]
	if !ok {
		return TopicInfo{}, fmt.Errorf("topic %s: %w", name, ErrNoTopic)
	}
	return t, nil
}

// topics looks topics up; those that do not exist are absent from the answer.
func (a *Admin) topics(ctx context.Context, names ...string) (map[string]TopicInfo, error) {
	m, err := a.metadata(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("ask Kafka for topics %v: %w", names, err)
	}
	out := make(map[string]TopicInfo, len(names))
	for _, t := range m.Topics {
		if t.Topic == nil {
			continue
		}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			continue
		case err != nil:
			return nil, fmt.Errorf("topic %s: %w", *t.Topic, err)
		}
		info := TopicInfo{Name: *t.Topic, ID: TopicID(t.TopicID), Partitions: len(t.Partitions)}
		for _, p := range t.Partitions {
			if info.Replicas == 0 || len(p.Replicas) < info.Replicas {
				info.Replicas = len(p.Replicas)
			}
		}
		out[info.Name] = info
	}
	return out, nil
}

// TopicNames are all topics but Kafka's internal ones.
func (a *Admin) TopicNames(ctx context.Context) ([]string, error) {
	var names []string
	err := patiently(ctx, func() error {
		ts, err := a.adm.ListTopics(ctx)
		names = ts.Names()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask Kafka for its topics: %w", err)
	}
	return names, nil
}

// adminPatience is how long an answer is waited for while a broker is away: its
// partitions get another leader, or it comes back.
const adminPatience = 30 * time.Second

// patiently asks again while what fails may pass by itself. The client retries
// many such requests of its own accord, but not those that go to several
// brokers of which one is away.
func patiently(ctx context.Context, ask func() error) error {
	began := time.Now()
	for wait := retryMin; ; wait = min(2*wait, 2*time.Second) {
		err := ask()
		if err == nil || !passing(err) || time.Since(began) > adminPatience {
			return err
		}
		if sleep(ctx, wait) != nil {
			return err
		}
	}
}

// passing says whether an error of a request is one that time may mend.
func passing(err error) bool {
	var shards *kadm.ShardErrors
	if errors.As(err, &shards) {
		for i := range shards.Errs {
			if !passing(shards.Errs[i].Err) {
				return false
			}
		}
		return len(shards.Errs) > 0
	}
	var op *net.OpError
	return kerr.IsRetriable(err) || errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// PartitionOffsets are the ends of one partition.
type PartitionOffsets struct {
	// Start is the earliest offset still kept.
	Start int64
	// High is the high watermark: the offset that the next record gets.
	High int64
	// Stable is the last stable offset: a read_committed reader gets no further. At or below High.
	Stable int64
}

// Offsets returns the ends of every partition of a topic, by partition number.
func (a *Admin) Offsets(ctx context.Context, topic string) ([]PartitionOffsets, error) {
	info, err := a.Topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make([]PartitionOffsets, info.Partitions)
	// The end is asked for before the stable end and the start, so that Stable may only look too new; it is
	// then cut to High.
	for _, ask := range []struct {
		what string
		list func(context.Context, ...string) (kadm.ListedOffsets, error)
		put  func(*PartitionOffsets, int64)
	}{
		{"end", a.adm.ListEndOffsets, func(p *PartitionOffsets, o int64) { p.High = o }},
		{"stable end", a.adm.ListCommittedOffsets, func(p *PartitionOffsets, o int64) { p.Stable = min(o, p.High) }},
		{"start", a.adm.ListStartOffsets, func(p *PartitionOffsets, o int64) { p.Start = o }},
	} {
		var listed kadm.ListedOffsets
		err := patiently(ctx, func() (err error) {
			if listed, err = ask.list(ctx, topic); err == nil {
				err = listed.Error()
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("ask Kafka for the %s offsets of topic %s: %w", ask.what, topic, err)
		}
		for p := range out {
			o, ok := listed.Lookup(topic, int32(p))
			if !ok {
				return nil, fmt.Errorf("ask Kafka for the %s offset of topic %s partition %d: no answer for it", ask.what, topic, p)
			}
			ask.put(&out[p], o.Offset)
		}
	}
	return out, nil
}

// DeleteRecords deletes the records of a partition before an offset, for good. The last record always stays:
// the state reads it again at its next start (L5), and the embedded broker begins a partition anew that was
// emptied.
func (a *Admin) DeleteRecords(ctx context.Context, topic string, partition int32, before int64) error {
	at, err := a.Offsets(ctx, topic)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("delete records of topic %s partition %d before offset %d", topic, partition, before)
	if partition < 0 || int(partition) >= len(at) {
		return fmt.Errorf("%s: the topic has %d partitions", what, len(at))
	}
	if before >= at[partition].High {
		return fmt.Errorf("%s: the last record must stay; the most is offset %d", what, max(at[partition].High-1, 0))
	}
	if before <= at[partition].Start {
		return nil
	}
	res, err := a.adm.DeleteRecords(ctx, kadm.Offsets{topic: {partition: {Topic: topic, Partition: partition, At: before}}})
	if err == nil {
		err = res.Error()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// UsedOffset says how far a partition was used: by the state (offsets applied of the transactions topic) or
// by a shard (source end).
type UsedOffset struct {
	Topic     string
	Partition int32
	// ID, if not zero, is the topic id under which the offset was used.
	ID TopicID
	// Next is the first offset not yet used.
	Next int64
	// Since, if above zero, is an offset that must still be readable (the record that L5 reads again).
	// Zero: Next must be.
	Since int64
	// By names the user in the error, as "the state of partition 0" or "table orders".
	By string
	// Table, if the user is a table's shard, is its name: the error then says how to go on without the records.
	Table string
}

// wayOut is what can be done about records of a source that are gone.
func (u UsedOffset) wayOut(start int64) string {
	switch {
	case u.Table == "":
		return ""
	case start > u.Next:
		return fmt.Sprintf("; go on without them with: varve table skip %s --partition %d --to %d --cause WHY", u.Table, u.Partition, start)
	}
	return fmt.Sprintf("; if the topic is gone for good, end the shard with: varve table retire %s --partition %d", u.Table, u.Partition)
}

// CheckHighWatermark refuses partitions that do not hold what was already used of them: a high watermark
// below Next (ErrLogBehind), a start above what is still needed (ErrLogTrimmed), another topic under the
// name (ErrTopicRecreated), or none (ErrNoTopic). All findings are joined into one error.
//
// A node asks this at each start, before it reads or appends anything. It is the guard against a broker
// that lost acknowledged records; the embedded broker drops fsync errors and cuts a damaged log (see
// Broker), and a cluster may have had an unclean election.
func (a *Admin) CheckHighWatermark(ctx context.Context, used []UsedOffset) error {
	names := make([]string, 0, len(used))
	seen := make(map[string]bool, len(used))
	for _, u := range used {
		if !seen[u.Topic] {
			seen[u.Topic] = true
			names = append(names, u.Topic)
		}
	}
	if len(names) == 0 {
		return nil
	}
	infos, err := a.topics(ctx, names...)
	if err != nil {
		return err
	}
	offsets := make(map[string][]PartitionOffsets, len(names))
	for _, name := range names {
		if _, ok := infos[name]; !ok {
			continue
		}
		if offsets[name], err = a.Offsets(ctx, name); err != nil {
			return err
		}
	}
	var errs []error
	for _, u := range used {
		if err := u.check(infos, offsets[u.Topic]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (u UsedOffset) check(infos map[string]TopicInfo, offsets []PartitionOffsets) error {
	what := fmt.Sprintf("topic %s partition %d", u.Topic, u.Partition)
	info, ok := infos[u.Topic]
	switch {
	case !ok:
		return fmt.Errorf("%s: %w, but %s used it up to offset %d; are these the right brokers?%s", what, ErrNoTopic, u.By, u.Next, u.wayOut(-1))
	case u.ID != TopicID{} && info.ID != TopicID{} && u.ID != info.ID:
		return fmt.Errorf("%s: %w: its id is %s, %s used id %s up to offset %d; its offsets now mean other records%s",
			what, ErrTopicRecreated, info.ID, u.By, u.ID, u.Next, u.wayOut(-1))
	case int(u.Partition) >= len(offsets) || u.Partition < 0:
		return fmt.Errorf("%s: %w: the topic has %d partitions, but %s used this one up to offset %d",
			what, ErrLogBehind, len(offsets), u.By, u.Next)
	}
	need := u.Next
	if u.Since > 0 {
		need = min(u.Since, u.Next)
	}
	switch o := offsets[u.Partition]; {
	case o.High < u.Next:
		return fmt.Errorf("%s: %w: it ends at offset %d, but %s used it up to offset %d, so %d acknowledged records are gone; "+
			"restore the topic (embedded broker: its folder) from a copy, or rebuild from a checkpoint that is not newer than the log%s",
			what, ErrLogBehind, o.High, u.By, u.Next, u.Next-o.High, u.wayOut(-1))
	case o.Start > need:
		return fmt.Errorf("%s: %w: it starts at offset %d, but %s still needs offset %d, so %d records were deleted before they were read; "+
			"check the topic's retention settings%s",
			what, ErrLogTrimmed, o.Start, u.By, need, o.Start-need, u.wayOut(o.Start))
	}
	return nil
}
