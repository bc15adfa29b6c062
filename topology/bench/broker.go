package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/topology"
)

// openBroker reaches the brokers, or starts one in this process.
func (o *Options) openBroker(ctx context.Context) (closeBroker func() error, err error) {
	o.client = topology.ClientOptions{Brokers: o.Brokers}
	o.broker = "kafka"
	if len(o.Brokers) > 0 {
		return func() error { return nil }, topology.Ping(ctx, o.client, 0)
	}
	o.broker = "embedded"
	b, err := topology.OpenBroker(topology.BrokerOptions{Dir: filepath.Join(o.dir, "broker")})
	if err != nil {
		return nil, err
	}
	o.client.Brokers = []string{b.Addr()}
	return b.Close, nil
}

// ensureSource makes a source topic.
func (o *Options) ensureSource(ctx context.Context, topic string, partitions int) error {
	a, err := topology.NewAdmin(o.client)
	if err != nil {
		return err
	}
	defer a.Close()
	_, err = a.EnsureSourceTopic(ctx, topic, partitions)
	return err
}

// dropTopics deletes what a run made on brokers that stay.
func (o *Options) dropTopics(names ...string) error {
	if o.broker != "kafka" {
		return nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(o.client.Brokers...))
	if err != nil {
		return fmt.Errorf("delete the bench's topics: %w", err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	answers, err := kadm.NewClient(cl).DeleteTopics(ctx, names...)
	if err != nil {
		return fmt.Errorf("delete the bench's topics: %w", err)
	}
	for _, a := range answers.Sorted() {
		err = errors.Join(err, a.Err)
	}
	if err != nil {
		return fmt.Errorf("delete the bench's topics: %w", err)
	}
	return nil
}

// topicsOf are a deployment's own topics.
func topicsOf(deployment string) []string {
	return []string{deployment + ".transactions", deployment + ".outcomes", deployment + ".jobs"}
}

// feed is feedBy with all events in partition 0.
func (o *Options) feed(ctx context.Context, topic string, next func() (topology.Entry, bool, error)) error {
	return o.feedBy(ctx, topic, func() (int32, topology.Entry, bool, error) {
		e, ok, err := next()
		return 0, e, ok, err
	})
}

// feedBy sends events to partitions of a topic and waits for the broker to have
// them. next gives an event whose bytes it will not touch again, false at the end.
func (o *Options) feedBy(ctx context.Context, topic string, next func() (int32, topology.Entry, bool, error)) error {
	p, err := topology.NewLogProducer(o.client, topology.ProducerOptions{MaxBatchBytes: topology.DefaultSourceBatchBytes, Linger: 5 * time.Millisecond})
	if err != nil {
		return err
	}
	defer p.Close()
	failed := make(chan error, 1)
	done := func(_ int64, err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	}
	for {
		part, e, ok, err := next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		p.Append(ctx, topic, part, e, done)
		select {
		case err := <-failed:
			return err
		default:
		}
	}
	if err := p.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
