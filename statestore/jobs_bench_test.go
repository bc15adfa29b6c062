package statestore_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/varve-io/varve/schemas/forward"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// jobFiles makes a table of n published files of 100 rows.
func jobFiles(b testing.TB, l *logBuilder, n int) (id int64, first uint64) {
	l.genesis()
	id = l.do("t", -1, &record.CreateTable{Definition: definition("t")}).TableID
	claim := l.do("t", id, &record.ClaimShard{Shard: shardKey(0)})
	must := func(o record.OutcomeMessage) record.OutcomeMessage {
		if o.Outcome.Code != record.Accepted {
			b.Fatalf("%s: %s", o.Outcome.Code, o.Outcome.Reason)
		}
		l.commit()
		l.made = l.made[:0]
		return o
	}
	publish := func(c *record.SnapshotCommitted) {
		cut := must(l.do("t", id, &record.Cut{})).Offset
		c.Cut, c.Build, c.TimestampMs, c.MetadataVersion = cut, cut, l.timeMs, c.Sequence+1
		must(l.do("t", id, c))
	}
	publish(&record.SnapshotCommitted{})
	c := &record.SnapshotCommitted{SnapshotID: 7, Sequence: 1, Manifests: []record.ManifestInfo{{Path: "m"}}}
	const each = 10_000
	for at := 0; at < n; at += each {
		a := &record.AppendRows{
			Shard: shardKey(0), Epoch: claim.Offset, Counter: int64(at + 1), SourceFrom: int64(at), SourceTo: int64(at + each),
			RequestFrom: claim.Outcome.Numbers[record.ClaimRequestEnd], RequestTo: claim.Outcome.Numbers[record.ClaimRequestEnd], Changes: ref(1),
		}
		for i := at; i < min(at+each, n); i++ {
			f := statestore.FileID(1, uint64(i+1))
			a.Files = append(a.Files, record.DataFile{ID: f, Rows: 100, Bytes: 3000})
			c.Files = append(c.Files, record.FileRowID{File: f, FirstRowID: c.AddedRows})
			c.AddedRows += 100
		}
		must(l.do("t", id, a))
	}
	publish(c)
	return id, statestore.FileID(1, 1)
}

// BenchmarkJobs plans and completes jobs of 10 inputs and 1 output on a table of so
// many files: 1,000 jobs a plan, 50 a completion, each with a forwarding map of its
// own that is at hand. A fifth of the inputs lost a row before the plan, a fifth
// after it.
func BenchmarkJobs(b *testing.B) {
	for _, files := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			b.StopTimer()
			l := newLog(b, b.TempDir())
			id, first := jobFiles(b, l, files)
			const inputs, perPlan, perDone = 10, 1000, 50
			var names uint64
			planned, done := 0, 0
			b.StartTimer()
			for n := 0; n < b.N; n += perPlan {
				b.StopTimer()
				if (planned+perPlan)*inputs > files {
					b.Fatalf("%d jobs need more than %d files", n+perPlan, files)
				}
				p := &record.PlanJobs{}
				dead := &record.DeletePositions{}
				late := &record.DeletePositions{}
				for range perPlan {
					item := record.PlanItem{Strategy: "bench"}
					for i := range inputs {
						f := first + uint64(planned*inputs+i)
						item.Inputs = append(item.Inputs, record.JobInput{File: f, Hi: 100})
						if i%5 == 0 {
							dead.Deletes = append(dead.Deletes, record.DeleteBlock{File: f, Bitmap: positions(7)})
							late.Deletes = append(late.Deletes, record.DeleteBlock{File: f, Bitmap: positions(8)})
						}
					}
					planned++
					p.Items = append(p.Items, item)
				}
				l.do("t", id, dead)
				plan := l.raw("t", id, p)
				b.StartTimer()
				at := l.put(plan)
				box := l.commit()
				b.StopTimer()
				if len(box.Jobs) != perPlan {
					b.Fatalf("%d jobs of %d: %s %s", len(box.Jobs), perPlan, at.Outcome.Code, at.Outcome.Reason)
				}
				l.do("t", id, late)
				for from := 0; from < perPlan; from += perDone {
					c := &record.CompleteJob{Metrics: ref(2)}
					for i := from; i < from+perDone; i++ {
						names++
						c.Items = append(c.Items, completion(b, l.st, &box.Jobs[i], names))
					}
					r := l.raw("t", id, c)
					b.StartTimer()
					o := l.put(r)
					l.commit()
					b.StopTimer()
					if o.Outcome.Code != record.Accepted {
						b.Fatalf("%s: %s", o.Outcome.Code, o.Outcome.Reason)
					}
					done += perDone
				}
				l.made = l.made[:0]
				b.StartTimer()
			}
			if err := l.st.Flush(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

// completion is what a worker would send: its map is given to the store.
func completion(b testing.TB, st *statestore.Store, n *statestore.JobNotice, name uint64) record.CompletedJob {
	d, _, err := st.Dispatch(n)
	if err != nil || d == nil {
		b.Fatal(d, err)
	}
	var text bytes.Buffer
	var in []forward.Input
	var order []byte
	for i := range d.Inputs {
		x := &d.Inputs[i]
		f := forward.Input{File: x.File, Lo: uint32(x.Lo), Hi: uint32(x.Hi), Dead: x.Dead, Rows: uint64(x.Hi - x.Lo)}
		if len(x.Dead) > 0 {
			f.Rows--
		}
		in = append(in, f)
		order = append(order, bytes.Repeat([]byte{byte(i)}, int(f.Rows))...)
	}
	w, err := forward.NewWriter(&text, in)
	if err == nil {
		err = w.Append(order)
	}
	if err == nil {
		w.EndOutput()
		err = w.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
	hash := record.Hash(sha256.Sum256(text.Bytes()))
	st.ProvideMap(hash, text.Bytes())
	o := record.JobOutput{Rows: int64(len(order)), Bytes: 1000}
	binary.BigEndian.PutUint64(o.Name[:], name)
	return record.CompletedJob{
		Job: n.Job, Sorted: true, Outputs: []record.JobOutput{o},
		Map: record.Ref{Path: fmt.Sprintf("_varve/x/maps/%x", hash[:16]), Length: int64(text.Len()), Hash: hash},
	}
}
