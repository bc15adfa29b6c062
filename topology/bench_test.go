package topology

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/varve-io/varve/topology/testcluster"
)

// BenchmarkLog appends and reads records of 300 bytes on one partition.
func BenchmarkLog(b *testing.B) {
	run := func(b *testing.B, addrs []string) {
		o := ClientOptions{Brokers: addrs}
		a, err := NewAdmin(o)
		if err != nil {
			b.Fatal(err)
		}
		defer a.Close()
		const topic = "bench"
		if _, err := a.EnsureSourceTopic(b.Context(), topic, 1); err != nil {
			b.Fatal(err)
		}
		p, err := NewLogProducer(o, ProducerOptions{})
		if err != nil {
			b.Fatal(err)
		}
		defer p.Close()
		at, err := a.Offsets(b.Context(), topic)
		if err != nil {
			b.Fatal(err)
		}
		start := at[0].High
		value := bytes.Repeat([]byte("v"), 300)
		b.Run("append", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Append(b.Context(), topic, 0, Entry{Value: value}, func(_ int64, err error) {
					if err != nil {
						b.Error(err)
					}
				})
			}
			if err := p.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
		b.Run("read", func(b *testing.B) {
			b.ReportAllocs()
			at, err := a.Offsets(b.Context(), topic)
			if err != nil {
				b.Fatal(err)
			}
			for n := 0; n < b.N; {
				r, err := OpenLogReader(b.Context(), o, ReaderOptions{Topic: topic, Offset: start})
				if err != nil {
					b.Fatal(err)
				}
				for n < b.N && r.Next() < at[0].High {
					recs, err := r.Poll(b.Context(), time.Second, 0)
					if err != nil {
						b.Fatal(err)
					}
					n += len(recs)
				}
				r.Close()
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
	b.Run("embedded", func(b *testing.B) {
		broker, err := OpenBroker(BrokerOptions{Dir: filepath.Join(b.TempDir(), "broker")})
		if err != nil {
			b.Fatal(err)
		}
		defer broker.Close()
		run(b, []string{broker.Addr()})
	})
	b.Run("kafka", func(b *testing.B) {
		run(b, testcluster.Start(b, 1).Brokers())
	})
}
