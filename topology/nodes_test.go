package topology

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/varve-io/varve/topology/testcluster"
)

// TestNodeLost: on three brokers the leader of the log is killed and comes back while a producer appends and a
// reader reads. Every record is acknowledged and read once, in order; nothing is reset.
func TestNodeLost(t *testing.T) {
	c := testcluster.Start(t, 3)
	o := ClientOptions{Brokers: c.Brokers()}
	on := target{client: o}
	a := newAdmin(t, o)
	ctx, cancel := contextWithTimeout(3 * time.Minute)
	defer cancel()
	began := time.Now()
	step := func(what string) { t.Logf("%5.1f s: %s", time.Since(began).Seconds(), what) }

	topics, err := NewTopics("three", 1, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.EnsureTopics(ctx, topics); err != nil {
		t.Fatal(err)
	}
	info, err := a.Topic(ctx, topics.Transactions)
	if err != nil || info.Replicas != 3 {
		t.Fatalf("%+v, %v, want 3 replicas", info, err)
	}
	settings, err := a.settings(ctx, []string{topics.Transactions})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"min.insync.replicas": "2", "unclean.leader.election.enable": "false"} {
		if got := settings[topics.Transactions][key]; got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}

	// L4: one copy on three brokers is refused.
	careless, err := NewTopics("careless", 1, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.adm.CreateTopic(ctx, 1, 1, map[string]*string{"min.insync.replicas": kadm.StringPtr("1")}, careless.Outcomes); err != nil {
		t.Fatal(err)
	}
	err = a.EnsureTopics(ctx, careless)
	wantError(t, err, ErrTopicSettings, "careless.outcomes has a partition with 1 replica on 3 brokers", "careless.outcomes has min.insync.replicas=1, needed is 2 or more")
	if strings.Contains(err.Error(), "careless.jobs") {
		t.Errorf("a good topic is refused: %v", err)
	}

	const records, killAt, startAt = 3000, 1000, 2000
	p := newProducer(t, o, ProducerOptions{Linger: -1})
	r := openReader(t, on, ReaderOptions{Topic: topics.Transactions})
	acked := make(chan error, records)
	victim := -1
	for i := range records {
		switch i {
		case killAt:
			if err := p.Flush(ctx); err != nil { // so that records of two leaders are in the log
				t.Fatal(err)
			}
			m, err := a.metadata(ctx, topics.Transactions)
			if err != nil {
				t.Fatal(err)
			}
			victim = int(m.Topics[0].Partitions[0].Leader) - 1
			c.KillNode(victim)
			step("killed the leader")
		case startAt:
			if err := p.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			step("all appended without it")
			c.StartNode(victim)
			step("started it again")
		}
		p.Append(ctx, topics.Transactions, 0, Entry{Value: strconv.AppendInt(nil, int64(i), 10)}, func(offset int64, err error) {
			if err == nil && offset != int64(i) {
				err = fmt.Errorf("record %d got offset %d", i, offset)
			}
			acked <- err
		})
		if i%10 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	step("all appended")
	for range records {
		if err := <-acked; err != nil {
			t.Fatal(err)
		}
	}
	epochs := map[int32]bool{}
	for i, rec := range readUntil(t, r, records) {
		if rec.Offset != int64(i) || rec.Missing != 0 || string(rec.Value) != strconv.Itoa(i) || !rec.AppendTime {
			t.Fatalf("record %d: %+v", i, rec)
		}
		epochs[rec.LeaderEpoch] = true
	}
	if len(epochs) < 2 {
		t.Errorf("the leader never changed: epochs %v", epochs)
	}
}
