package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Ownership on a cluster.
//
// A deployment has two consumer groups: <deployment>.state over the partitions
// of the transactions topic, <deployment>.ingest over the partitions of the
// tables' source topics. Kafka's group protocol says who owns what; varve adds
// no coordinator, and no decision of a group is trusted: epochs (A2, A3) and
// build offsets (C1 to C3) decide what counts.
//
// A member only takes part in the group. It never fetches: the data is read by
// LogReaders from the positions that our own state names (A2, L5), so there is
// no committed offset to start from and none to reset. The offsets that a
// member commits are what it knows to be accepted or applied. They are there
// for lag monitors and are read back by nobody; deleting them, or setting them
// to anything, changes nothing.
//
// The balancer is cooperative-sticky: a rebalance takes away only what moves.
// Membership is static: the instance id is the deployment and the node's id,
// which node.json keeps, so that a node that comes back within the session
// timeout has what it had, with its local state, and nothing moves. A node
// that is closed stays a member for that time; with LeaveGroups it leaves.
//
// What a callback does:
//
//   - assigned: the partition's holding begins, in the background: a state is
//     opened and catches up, a shard restores its index and claims.
//   - revoked: a shard stops reading its source, flushes, waits for the
//     outcomes of what is in flight, and ends; then the offsets are committed.
//     The callback returns only then, so the partition is given to nobody
//     else meanwhile: heartbeats go on, the rebalance waits. The wait is bounded
//     by half the rebalance timeout. What is in flight after that is accepted
//     before the next owner's claim, or rejected by it: either way once (A3).
//   - lost: the session is over and others may own the partitions already.
//     Everything in memory is dropped, nothing is flushed.
//
// A member whose epoch was closed by another claim does not claim again before
// it has joined the group anew and still has the partition (A3): a member that
// was stalled past its session learns there that it lost it. Of two believers
// one is always wrong, and it stops.
//
// A partition that cannot be served, as one with a poison event and on-error
// stop or a source that is gone, does not end the node: status says why, the
// others go on, and it is tried again with growing waits. It stays this node's
// until the group says otherwise: another node would stop at the same record.

const (
	// DefaultSessionTimeout is how long a member may be silent before its
	// partitions are given to others. It is Kafka's own default.
	DefaultSessionTimeout = 45 * time.Second
	// DefaultRebalanceTimeout bounds how long a hand-over may hold a rebalance.
	DefaultRebalanceTimeout = 60 * time.Second
	// commitEvery is how often group offsets are set to what is accepted.
	commitEvery = 5 * time.Second
	// groupTimeout bounds a single request to a group.
	groupTimeout = 5 * time.Second
	// rejoinAgain is how often a member that must rejoin asks for it.
	rejoinAgain = 5 * time.Second
	// serveMin and serveMax bound the waits before a partition that stopped is
	// tried again.
	serveMin = time.Second
	serveMax = 5 * time.Minute
)

// ErrNodeID: another process takes part in the group under this node's id.
var ErrNodeID = errors.New("another process has this node's id")

// StateGroup and IngestGroup are the names of a deployment's groups.
func StateGroup(deployment string) string { return deployment + ".state" }

// IngestGroup is the group over the source topics.
func IngestGroup(deployment string) string { return deployment + ".ingest" }

// memberOptions say of which group, and what to do.
type memberOptions struct {
	client             ClientOptions
	group, node        string
	deployment         string
	session, rebalance time.Duration
	assigned           func(added map[string][]int32)
	// revoked ends what is held of these partitions; until it returns they are
	// nobody else's, for as long as ctx allows.
	revoked func(ctx context.Context, gone map[string][]int32)
	lost    func(gone map[string][]int32)
	fatal   func(error)
	log     *slog.Logger
}

// member is this node's part in one group.
type member struct {
	o        memberOptions
	instance string
	ended    chan struct{} // closed with the membership

	mu       sync.Mutex
	cl       *kgo.Client
	fenced   []time.Time // by other processes, lately
	sessions int64
	session  chan struct{} // closed when the next one begins
	topics   map[string]bool
	closed   bool
}

// A member may be thrown out by its own node's process of before: what that one
// had sent to a broker that was away may come after the new one's request, and
// the group takes the sender for the newer. So a member joins again some times;
// two processes that live throw each other out until one has had enough.
const (
	mostFenced   = 3
	fencedWindow = 10 * time.Minute
	fencedWait   = time.Second // before the first time; twice as long before each other
)

// joinGroup makes a member. It takes part once it is subscribed to a topic.
func joinGroup(o memberOptions) (*member, error) {
	m := &member{o: o, instance: o.deployment + "." + o.node, ended: make(chan struct{}), session: make(chan struct{}), topics: map[string]bool{}}
	var err error
	m.cl, err = m.join()
	return m, err
}

// join makes the client that takes part.
func (m *member) join() (*kgo.Client, error) {
	o := &m.o
	return newClient(o.client,
		kgo.ConsumerGroup(o.group),
		kgo.InstanceID(m.instance),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(o.session),
		kgo.HeartbeatInterval(min(o.session/4, 3*time.Second)),
		kgo.RebalanceTimeout(o.rebalance),
		kgo.DisableAutoCommit(),
		// Nothing is fetched: no partition ever gets a position, and a fetch would
		// need a poll, which nobody does.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		// How soon the group divides partitions that a topic gained: franz-go's
		// 5 minutes are a long stand-still.
		kgo.MetadataMaxAge(sourceCheck),
		kgo.MaxConcurrentFetches(0),
		kgo.AdjustFetchOffsetsFn(func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			return nil, nil
		}),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) { m.began(added) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { m.revoked(gone) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { m.o.lost(gone) }),
		kgo.WithHooks(m),
	)
}

// client is the one that takes part now.
func (m *member) client() *kgo.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cl
}

func (m *member) began(added map[string][]int32) {
	m.o.assigned(added)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions++
	close(m.session)
	m.session = make(chan struct{})
}

func (m *member) revoked(gone map[string][]int32) {
	if len(gone) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.handover())
	defer cancel()
	m.o.revoked(ctx, gone)
}

// handover is how long giving partitions back may take.
func (m *member) handover() time.Duration { return m.o.rebalance / 2 }

// OnGroupManageError sees what ends a session. That another process has this
// node's id ends the member unless that one goes (mostFenced): each would throw
// the other out for ever. So does a session timeout that the brokers do not allow.
func (m *member) OnGroupManageError(err error) {
	switch {
	case errors.Is(err, kerr.InvalidSessionTimeout):
		go m.close() // the client waits for this callback
		m.o.fatal(fmt.Errorf("%w: group %s: the brokers refuse a session timeout of %s: it must be from their group.min.session.timeout.ms to their group.max.session.timeout.ms (6s to 30m unless they were set); give another one with --session-timeout",
			ErrConfig, m.o.group, m.o.session))
	case errors.Is(err, kerr.FencedInstanceID):
		m.throwOut()
	}
}

// throwOut joins again under the node's id, or gives up.
func (m *member) throwOut() {
	now := time.Now()
	m.mu.Lock()
	m.fenced = slices.DeleteFunc(m.fenced, func(at time.Time) bool { return now.Sub(at) > fencedWindow })
	m.fenced = append(m.fenced, now)
	times := len(m.fenced)
	m.mu.Unlock()
	if times > mostFenced {
		go m.close()
		m.o.fatal(fmt.Errorf("%w: group %s has a newer member with the id %s, and took %d times in %s another process for this node; give each node a data folder or a --node-id of its own, and stop this one or the other",
			ErrNodeID, m.o.group, m.o.node, times, fencedWindow))
		return
	}
	wait := fencedWait << (times - 1)
	m.o.log.Warn("the group took another process for this node: one that was killed, whose last request came late, or one that runs with the same id; the node joins again",
		"group", m.o.group, "node", m.o.node, "in", wait, "time", times, "of", mostFenced)
	go m.joinAgain(wait)
}

// joinAgain takes part with a new client: the group refuses the old one's member
// for ever. Its partitions were lost before.
func (m *member) joinAgain(wait time.Duration) {
	m.client().Close()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-m.ended:
		return
	case <-t.C:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	cl, err := m.join()
	if err != nil { // of options that were good before
		m.o.fatal(fmt.Errorf("group %s: join again: %w", m.o.group, err))
		return
	}
	m.cl = cl
	cl.AddConsumeTopics(slices.Collect(maps.Keys(m.topics))...)
}

// subscribe makes these the topics whose partitions the member wants.
func (m *member) subscribe(topics []string) {
	var more, less []string
	m.mu.Lock()
	for _, t := range topics {
		if !m.topics[t] {
			more = append(more, t)
		}
	}
	for t := range m.topics {
		if !slices.Contains(topics, t) {
			less = append(less, t)
		}
	}
	for _, t := range more {
		m.topics[t] = true
	}
	for _, t := range less {
		delete(m.topics, t)
	}
	cl := m.cl
	m.mu.Unlock()
	if len(less) > 0 {
		cl.PurgeTopicsFromConsuming(less...)
	}
	cl.AddConsumeTopics(more...)
}

// rejoin joins the group again and returns once a new session has begun, or ctx
// has ended. Whoever lost its partition meanwhile was told before.
func (m *member) rejoin(ctx context.Context) error {
	m.mu.Lock()
	next := m.session
	m.mu.Unlock()
	for {
		m.client().ForceRebalance()
		t := time.NewTimer(rejoinAgain)
		select {
		case <-next:
			t.Stop()
			return nil
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}

// commit sets the group's offsets of partitions that this member holds. The
// broker refuses a member that is none any more. (The client's own commits keep
// books of what was fetched, which is nothing.)
func (m *member) commit(ctx context.Context, topic string, offsets map[int32]int64) error {
	if len(offsets) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	cl := m.client()
	info, err := (&Admin{cl: cl}).Topic(ctx, topic)
	if err != nil {
		return fmt.Errorf("commit offsets of group %s: %w", m.o.group, err)
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.InstanceID = m.o.group, &m.instance
	req.MemberID, req.Generation = cl.GroupMetadata()
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = topic, info.ID
	for p, o := range offsets {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = p, o
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	}
	if err != nil {
		return fmt.Errorf("commit offsets of group %s: %w", m.o.group, err)
	}
	return nil
}

// close ends the membership of this process. As a static member it stays in the
// group until its session times out.
func (m *member) close() {
	m.mu.Lock()
	was := m.closed
	m.closed = true
	cl := m.cl
	m.mu.Unlock()
	if !was {
		close(m.ended)
		cl.Close()
	}
}

// leave takes the node out of the group, so that others get its partitions at
// once. The member is closed.
func (m *member) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	cl, err := newClient(m.o.client)
	if err != nil {
		return err
	}
	defer cl.Close()
	res, err := kadm.NewClient(cl).LeaveGroup(ctx, kadm.LeaveGroup(m.o.group).Reason("the node was stopped").InstanceIDs(m.instance))
	res.EachError(func(r kadm.LeaveGroupResponse) {
		if !errors.Is(r.Err, kerr.UnknownMemberID) { // it had left already
			err = errors.Join(err, r.Err)
		}
	})
	if err != nil {
		return fmt.Errorf("leave group %s: %w; its members take over when the session times out", m.o.group, err)
	}
	return nil
}

// tenure is the time for which this node holds something that a group gave it.
type tenure struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when nothing of it is left
}

// wait waits until the tenure is over, or ctx has ended.
func (t *tenure) wait(ctx context.Context) {
	select {
	case <-t.done:
	case <-ctx.Done():
	}
}
