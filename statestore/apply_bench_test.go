//go:build unix

package statestore_test

import (
	"fmt"
	"math/rand"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// packedLog is a log outside of the heap, so that the collector does what it
// does in a node, which holds a poll's records only.
type packedLog struct {
	first   int64
	timeMs  int64
	tables  [][]byte
	table   []uint16
	ends    []uint64
	header  []byte
	mem     []byte
	records int
}

func newPackedLog(b testing.TB, n int, first, timeMs int64) *packedLog {
	mem, err := unix.Mmap(-1, 0, n*600+1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			b.Error(err)
		}
	})
	return &packedLog{first: first, timeMs: timeMs, mem: mem, ends: make([]uint64, 1, n+1)}
}

func (p *packedLog) add(table int, r *statestore.Record) {
	for len(p.tables) <= table {
		p.tables = append(p.tables, nil)
	}
	if p.tables[table] == nil {
		p.tables[table] = r.Key
	}
	at := p.ends[len(p.ends)-1]
	p.header = r.Header
	p.table = append(p.table, uint16(table))
	p.ends = append(p.ends, at+uint64(copy(p.mem[at:], r.Value)))
	p.records++
}

func (p *packedLog) at(i int, r *statestore.Record) {
	*r = statestore.Record{
		Offset: p.first + int64(i), TimeMs: p.timeMs, Key: p.tables[p.table[i]], Header: p.header, Value: p.mem[p.ends[i]:p.ends[i+1]:p.ends[i+1]],
	}
}

func (p *packedLog) bytes() uint64 { return p.ends[len(p.ends)-1] }

// appendLog makes a log of AppendRows chains: tables × shards take turns, each
// record adds a file and deletes from four older files of its table.
func appendLog(b testing.TB, l *logBuilder, tables, shards, n int) *packedLog {
	type chain struct {
		table   string
		number  int
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
			c := &chain{table: name, number: t, id: out.TableID, key: shardKey(int32(p))}
			o := l.do(name, c.id, &record.ClaimShard{Shard: c.key})
			c.epoch, c.writer, c.request = o.Offset, uint32(o.Outcome.Numbers[record.ClaimWriter]), o.Outcome.Numbers[record.ClaimRequestEnd]
			chains = append(chains, c)
		}
	}
	l.commit()
	rng := rand.New(rand.NewSource(1))
	p := newPackedLog(b, n, l.next, l.timeMs)
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
		if old = append(old, a.Files[0].ID); len(old) > 1000 {
			old = append(old[:0], old[len(old)-200:]...)
		}
		files[c.id] = old
		r := l.raw(c.table, c.id, &a)
		p.add(c.number, &r)
	}
	return p
}

func sortBlocks(d []record.DeleteBlock) {
	for i := range d {
		for j := i; j > 0 && d[j].File < d[j-1].File; j-- {
			d[j], d[j-1] = d[j-1], d[j]
		}
	}
}

// BenchmarkApply applies and commits as a node does that reads 20,000 records
// every 0.2 s; the outcomes topic is one commit behind. All of the database's
// work that is under way at the end is waited for.
func BenchmarkApply(b *testing.B) {
	for _, s := range []struct{ tables, shards int }{{1, 8}, {20, 16}} {
		b.Run(fmt.Sprintf("tables=%d/shards=%d", s.tables, s.shards), func(b *testing.B) {
			l := newLog(b, b.TempDir())
			p := appendLog(b, l, s.tables, s.shards, b.N)
			runtime.GC()
			b.ResetTimer()
			cpu := cpuTime(b)
			sent, r := int64(-1), statestore.Record{}
			for i := range b.N {
				p.at(i, &r)
				out, err := l.st.Apply(&r)
				if err != nil || out.Outcome.Code != record.Accepted {
					b.Fatalf("record %d: %v %v %v", i, out.Outcome.Code, out.Outcome.Reason, err)
				}
				if i%20_000 == 19_999 {
					l.commit()
					l.st.Sent(sent)
					sent = r.Offset
				}
			}
			l.commit()
			if err := l.st.Flush(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(p.bytes())/float64(b.N), "B/record")
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
