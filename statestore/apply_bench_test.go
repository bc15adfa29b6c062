//go:build unix

package statestore_test

import (
	"fmt"
	"math/rand"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// appendLog makes a log of AppendRows chains: tables × shards take turns, each
// record adds a file and deletes from four older files of its table.
func appendLog(b testing.TB, l *logBuilder, tables, shards, n int) []statestore.Record {
	type chain struct {
		table   string
		id      int64
		key     record.ShardKey
		epoch   int64
		writer  uint32
		counter int64
		source  int64
		request int64
	}
	var chains []*chain
	files := map[int64][]uint64{}
	l.genesis()
	for t := range tables {
		name := fmt.Sprintf("t%d", t)
		out := l.do(name, -1, &record.CreateTable{Definition: definition(name)})
		for p := range shards {
			c := &chain{table: name, id: out.TableID, key: shardKey(int32(p))}
			o := l.do(name, c.id, &record.ClaimShard{Shard: c.key})
			c.epoch, c.writer, c.request = o.Offset, uint32(o.Outcome.Numbers[record.ClaimWriter]), o.Outcome.Numbers[record.ClaimRequestEnd]
			chains = append(chains, c)
		}
	}
	l.commit()
	rng := rand.New(rand.NewSource(1))
	recs := make([]statestore.Record, 0, n)
	for i := range n {
		c := chains[i%len(chains)]
		c.counter++
		a := record.AppendRows{
			Shard: c.key, Epoch: c.epoch, Counter: c.counter, SourceFrom: c.source, SourceTo: c.source + 1000,
			RequestFrom: c.request, RequestTo: c.request, Changes: ref(1),
			Files:  []record.DataFile{{ID: statestore.FileID(c.writer, uint64(c.counter)), Rows: 1000, Bytes: 30_000}},
			Counts: record.Counts{Events: 1000, Upserts: 1000},
		}
		c.source += 1000
		old := files[c.id]
		picked := map[uint64]bool{}
		for range min(4, len(old)) {
			picked[old[max(0, len(old)-1-rng.Intn(200))]] = true
		}
		for _, f := range old[max(0, len(old)-200):] {
			if picked[f] {
				p := rng.Uint32() % 900
				a.Deletes = append(a.Deletes, record.DeleteBlock{File: f, Bitmap: positions(p, p+7, p+20, p+33, p+60)})
			}
		}
		sortBlocks(a.Deletes)
		files[c.id] = append(old, a.Files[0].ID)
		r := l.raw(c.table, c.id, &a)
		r.Offset, r.TimeMs = l.next+int64(i), l.timeMs
		recs = append(recs, r)
	}
	return recs
}

func sortBlocks(d []record.DeleteBlock) {
	for i := range d {
		for j := i; j > 0 && d[j].File < d[j-1].File; j-- {
			d[j], d[j-1] = d[j-1], d[j]
		}
	}
}

func BenchmarkApply(b *testing.B) {
	for _, s := range []struct{ tables, shards int }{{1, 8}, {20, 16}} {
		b.Run(fmt.Sprintf("tables=%d/shards=%d", s.tables, s.shards), func(b *testing.B) {
			l := newLog(b, b.TempDir())
			recs := appendLog(b, l, s.tables, s.shards, b.N)
			size := 0
			for i := range recs {
				size += len(recs[i].Value)
			}
			b.ResetTimer()
			b.ReportMetric(float64(size)/float64(b.N), "B/record")
			cpu := cpuTime(b)
			for i := range recs {
				out, err := l.st.Apply(&recs[i])
				if err != nil || out.Outcome.Code != record.Accepted {
					b.Fatalf("record %d: %v %v %v", i, out.Outcome.Code, out.Outcome.Reason, err)
				}
				if i%20_000 == 19_999 {
					l.commit()
				}
			}
			l.commit()
			b.ReportMetric(float64(cpuTime(b)-cpu)/float64(b.N), "cpu-ns/record")
		})
	}
}

// cpuTime is what the process has used, in ns: machines are shared, so wall
// time says little.
func cpuTime(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
