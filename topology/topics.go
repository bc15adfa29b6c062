package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrTopicSettings marks errors of topics whose settings or partition count would break a rule (L1, L4).
var ErrTopicSettings = errors.New("wrong topic settings")

const (
	// DefaultDeployment is the deployment name when none is configured.
	DefaultDeployment = "varve"
	// DefaultPartitionsCluster and DefaultPartitionsEmbedded are P, the partitions of the transactions and
	// outcomes topics (L1). P is recorded at the first start and never changed.
	DefaultPartitionsCluster  = 8
	DefaultPartitionsEmbedded = 1
	// DefaultJobPartitions is the partitions of the jobs topic on a cluster: no more than so many compactors
	// take jobs at a time. The embedded broker has DefaultPartitionsEmbedded.
	DefaultJobPartitions = 32

	// MaxBatchBytes is max.message.bytes of varve's own topics: the largest batch of records, and so the
	// largest record, that a broker takes. Bodies over 256 KiB lie in the object store (L10), so only a batch
	// comes near it.
	MaxBatchBytes = 8 << 20

	// jobRetention of the jobs topic: dispatches are sent again from the state (L11), so old ones are waste.
	jobRetention = 7 * 24 * time.Hour

	wantReplicas   = 3
	wantMinInsync  = 2
	maxTopicName   = 249
	maxTopicSuffix = len(".transactions")
)

// Topics are a deployment's own topics and their shape.
type Topics struct {
	Deployment string
	// Transactions and Outcomes have Partitions partitions each, P of L1.
	Transactions, Outcomes string
	Partitions             int
	// Jobs has JobPartitions.
	Jobs          string
	JobPartitions int
}

// NewTopics names a deployment's topics. Zero counts take the defaults for a cluster, or for the embedded
// broker if embedded is true. A name that Kafka would refuse is an error.
func NewTopics(deployment string, partitions, jobPartitions int, embedded bool) (Topics, error) {
	if err := checkDeploymentName(deployment); err != nil {
		return Topics{}, err
	}
	if partitions < 0 || jobPartitions < 0 {
		return Topics{}, fmt.Errorf("deployment %s: partition counts %d and %d: must not be below zero", deployment, partitions, jobPartitions)
	}
	if partitions == 0 {
		partitions = DefaultPartitionsCluster
		if embedded {
			partitions = DefaultPartitionsEmbedded
		}
	}
	if jobPartitions == 0 {
		jobPartitions = DefaultJobPartitions
		if embedded {
			jobPartitions = DefaultPartitionsEmbedded
		}
	}
	return Topics{
		Deployment:    deployment,
		Transactions:  deployment + ".transactions",
		Outcomes:      deployment + ".outcomes",
		Partitions:    partitions,
		Jobs:          deployment + ".jobs",
		JobPartitions: jobPartitions,
	}, nil
}

func checkDeploymentName(name string) error {
	bad := func(why string) error {
		return fmt.Errorf("deployment name %q: %s; use letters, digits, '-' and '_', at most %d of them", name, why, maxTopicName-maxTopicSuffix)
	}
	switch {
	case name == "":
		return bad("is empty")
	case len(name) > maxTopicName-maxTopicSuffix:
		return bad("is too long for a topic name")
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_') {
			// No dots: Kafka's metrics take "a.b" and "a_b" for one topic and brokers refuse such pairs.
			return bad(fmt.Sprintf("has the character %q", r))
		}
	}
	return nil
}

// setting is one topic setting that a rule asks for.
type setting struct {
	key, want string
	// ok judges the value found; nil means that it must equal want.
	ok func(got string) bool
	// why is what breaks otherwise, with the rule.
	why string
	// notEmbedded is a setting that the embedded broker does not know, or does badly (it starts a partition at
	// offset 0 again once retention deleted all of it), and does not need.
	notEmbedded bool
	// maybeUnknown is a setting that brokers without Kafka's replication (those that replicate by Raft) do not
	// have: one that is not shown cannot be wrong, and is only warned about.
	maybeUnknown bool
}

func atLeast(n int64) func(string) bool {
	return func(got string) bool {
		v, err := strconv.ParseInt(got, 10, 64)
		return err == nil && v >= n
	}
}

// logSettings are those of the transactions and outcomes topics (L4).
func logSettings(brokers int) []setting {
	s := []setting{
		{key: "message.timestamp.type", want: "LogAppendTime", why: "table time must be the broker's, not a sender's (L4)"},
		{key: "cleanup.policy", want: "delete", why: "compaction would take records out of the log (L4, L5)"},
		{key: "retention.ms", want: "-1", why: "the log is the source of truth and must not age (L4)"},
		{key: "retention.bytes", want: "-1", why: "the log is the source of truth and must not be cut by size (L4)"},
		{key: "unclean.leader.election.enable", want: "false", why: "an unclean election loses acknowledged records (L4)", notEmbedded: true, maybeUnknown: true},
		{key: "max.message.bytes", want: strconv.Itoa(MaxBatchBytes), ok: atLeast(MaxBatchBytes), why: "batches of records would be refused"},
	}
	return append(s, replicationSettings(brokers)...)
}

// replicationSettings: two copies of each acknowledged record, where there are brokers enough.
func replicationSettings(brokers int) []setting {
	if brokers < wantReplicas {
		return nil
	}
	return []setting{{key: "min.insync.replicas", want: strconv.Itoa(wantMinInsync), ok: atLeast(wantMinInsync),
		why: "with one copy a lost disk loses acknowledged records (L4)", maybeUnknown: true}}
}

func jobSettings(brokers int) []setting {
	return append([]setting{
		{key: "cleanup.policy", want: "delete", why: "jobs have no keys to compact by"},
		{key: "retention.ms", want: strconv.FormatInt(jobRetention.Milliseconds(), 10), ok: func(string) bool { return true }, notEmbedded: true},
		{key: "max.message.bytes", want: strconv.Itoa(MaxBatchBytes), ok: atLeast(MaxBatchBytes), why: "large jobs would be refused"},
	}, replicationSettings(brokers)...)
}

// sourceSettings are those of a source topic that varve makes. Retention stays the broker's default: a
// topic that others write to is theirs to size. (The embedded broker keeps all.)
func sourceSettings(brokers int) []setting {
	return append([]setting{
		{key: "cleanup.policy", want: "delete"},
		{key: "max.message.bytes", want: strconv.Itoa(MaxBatchBytes)},
	}, replicationSettings(brokers)...)
}

type wantedTopic struct {
	name       string
	partitions int
	settings   []setting
	// why the count matters
	fixed string
}

func (t Topics) wanted(brokers int) []wantedTopic {
	const fixed = "the partition of a table follows from the count, which never changes (L1)"
	return []wantedTopic{
		{t.Transactions, t.Partitions, logSettings(brokers), fixed},
		{t.Outcomes, t.Partitions, logSettings(brokers), fixed},
		{t.Jobs, t.JobPartitions, jobSettings(brokers), ""},
	}
}

// EnsureTopics creates those of a deployment's topics that do not exist, and then checks all of them as
// CheckTopics does. Two nodes that start at once both succeed.
func (a *Admin) EnsureTopics(ctx context.Context, t Topics) error {
	cluster, err := a.Cluster(ctx)
	if err != nil {
		return err
	}
	for _, w := range t.wanted(cluster.Brokers) {
		if err := a.createTopic(ctx, cluster, w); err != nil {
			return err
		}
	}
	// A broker may not have heard yet of a topic that another one has just told of.
	const limit = 30 * time.Second
	for end := time.Now().Add(limit); ; {
		err := a.checkTopics(ctx, cluster, t)
		if !errors.Is(err, ErrNoTopic) || time.Now().After(end) {
			return err
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// CheckTopics refuses topics that would break a rule: missing ones, another partition count, settings that
// would lose, age or reorder the log. The error is marked ErrTopicSettings or ErrNoTopic and has one line
// a finding, each with the command that mends it.
func (a *Admin) CheckTopics(ctx context.Context, t Topics) error {
	cluster, err := a.Cluster(ctx)
	if err != nil {
		return err
	}
	return a.checkTopics(ctx, cluster, t)
}

func (a *Admin) createTopic(ctx context.Context, cluster ClusterInfo, w wantedTopic) error {
	have, err := a.topics(ctx, w.name)
	if err != nil {
		return err
	}
	if _, ok := have[w.name]; ok {
		return nil
	}
	configs := make(map[string]*string, len(w.settings))
	for _, s := range w.settings {
		if cluster.Embedded && s.notEmbedded {
			continue
		}
		configs[s.key] = kadm.StringPtr(s.want)
	}
	replicas := min(wantReplicas, max(cluster.Brokers, 1))
	res, err := a.adm.CreateTopics(ctx, int32(w.partitions), int16(replicas), configs, w.name)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", w.name, err)
	}
	r, ok := res[w.name]
	switch {
	case !ok:
		return fmt.Errorf("create topic %s: Kafka gave no answer for it", w.name)
	case errors.Is(r.Err, kerr.TopicAlreadyExists): // another node was faster; what it made is checked after
	case r.Err != nil:
		return fmt.Errorf("create topic %s with %d partitions and %d replicas: %w %s; create it by hand with: %s",
			w.name, w.partitions, replicas, r.Err, r.ErrMessage, w.createCommand(replicas))
	}
	// Creation is acknowledged before every broker can describe the topic.
	return a.waitForTopic(ctx, w.name, w.partitions)
}

// createCommand is the line for Kafka's own tools, for users whose clients may not create topics.
func (w wantedTopic) createCommand(replicas int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kafka-topics.sh --create --topic %s --partitions %d --replication-factor %d", w.name, w.partitions, replicas)
	for _, s := range w.settings {
		fmt.Fprintf(&b, " --config %s=%s", s.key, s.want)
	}
	return b.String()
}

func (a *Admin) waitForTopic(ctx context.Context, name string, partitions int) error {
	const limit = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		var offsets []PartitionOffsets
		if offsets, last = a.Offsets(ctx, name); last == nil && len(offsets) > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("topic %s was created but is not ready with %d partitions after %s: %w", name, partitions, limit, errors.Join(ctx.Err(), last))
		case <-time.After(wait):
		}
	}
}

func (a *Admin) checkTopics(ctx context.Context, cluster ClusterInfo, t Topics) error {
	wanted := t.wanted(cluster.Brokers)
	names := make([]string, len(wanted))
	for i, w := range wanted {
		names[i] = w.name
	}
	infos, err := a.topics(ctx, names...)
	if err != nil {
		return err
	}
	var findings []error
	var present []string
	for _, w := range wanted {
		info, ok := infos[w.name]
		if !ok {
			findings = append(findings, fmt.Errorf("%w: topic %s; create it with: %s",
				ErrNoTopic, w.name, w.createCommand(min(wantReplicas, max(cluster.Brokers, 1)))))
			continue
		}
		present = append(present, w.name)
		if w.fixed != "" && info.Partitions != w.partitions {
			findings = append(findings, fmt.Errorf("%w: topic %s has %d partitions, this deployment has %d: %s; "+
				"start with the deployment's own count (--log-partitions), or with another deployment name",
				ErrTopicSettings, w.name, info.Partitions, w.partitions, w.fixed))
		}
		if cluster.Brokers >= wantReplicas && info.Replicas < wantMinInsync {
			findings = append(findings, fmt.Errorf("%w: topic %s has a partition with %d replica on %d brokers: one lost disk loses it; "+
				"add replicas with: kafka-reassign-partitions.sh", ErrTopicSettings, w.name, info.Replicas, cluster.Brokers))
		}
	}
	settings, err := a.settings(ctx, present)
	if err != nil {
		return err
	}
	for _, w := range wanted {
		if !slices.Contains(present, w.name) {
			continue
		}
		for _, s := range w.settings {
			if cluster.Embedded && s.notEmbedded {
				continue
			}
			if _, shown := settings[w.name][s.key]; !shown && s.maybeUnknown {
				a.log.Warn("the brokers do not show a topic setting that protects the log; make sure that they never lose acknowledged records",
					"topic", w.name, "setting", s.key, "needed", s.want)
				continue
			}
			if err := s.check(w.name, settings[w.name]); err != nil {
				findings = append(findings, err)
			}
		}
	}
	return errors.Join(findings...)
}

func (s setting) check(topic string, have map[string]string) error {
	got, ok := have[s.key]
	good := ok && got == s.want
	if ok && s.ok != nil {
		good = s.ok(got)
	}
	if good {
		return nil
	}
	if !ok {
		got = "(not shown by the broker)"
	}
	want := s.want
	if s.ok != nil {
		want += " or more"
	}
	return fmt.Errorf("%w: topic %s has %s=%s, needed is %s: %s; mend it with: kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config %s=%s",
		ErrTopicSettings, topic, s.key, got, want, s.why, topic, s.key, s.want)
}

// settings describes topics: key to value for each.
func (a *Admin) settings(ctx context.Context, names []string) (map[string]map[string]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	var described kadm.ResourceConfigs
	err := patiently(ctx, func() (err error) {
		described, err = a.adm.DescribeTopicConfigs(ctx, names...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask Kafka for the settings of topics %v: %w", names, err)
	}
	out := make(map[string]map[string]string, len(names))
	for _, r := range described {
		if r.Err != nil {
			return nil, fmt.Errorf("ask Kafka for the settings of topic %s: %w %s", r.Name, r.Err, r.ErrMessage)
		}
		m := make(map[string]string, len(r.Configs))
		for _, c := range r.Configs {
			if c.Value != nil {
				m[c.Key] = *c.Value
			}
		}
		out[r.Name] = m
	}
	return out, nil
}

// EnsureSourceTopic creates a source topic if it does not exist, and returns what is there. partitions is
// the count for a new topic (0: one); a topic that exists keeps its own, and a count asked for that differs
// is an error marked ErrTopicSettings. Settings of a topic that exists are its owner's and not checked.
func (a *Admin) EnsureSourceTopic(ctx context.Context, name string, partitions int) (TopicInfo, error) {
	cluster, err := a.Cluster(ctx)
	if err != nil {
		return TopicInfo{}, err
	}
	w := wantedTopic{name: name, partitions: max(partitions, 1), settings: sourceSettings(cluster.Brokers)}
	if err := a.createTopic(ctx, cluster, w); err != nil {
		return TopicInfo{}, err
	}
	info, err := a.Topic(ctx, name)
	if err != nil {
		return TopicInfo{}, err
	}
	if partitions > 0 && info.Partitions != partitions {
		return TopicInfo{}, fmt.Errorf("%w: source topic %s has %d partition(s), not %d as asked for; leave the count out to use the topic as it is",
			ErrTopicSettings, name, info.Partitions, partitions)
	}
	return info, nil
}
