package endtoend

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
	"github.com/varve-io/varve/topology/testcluster"
)

// way is one of many in which the same events can become a table.
type way struct {
	name       string
	commitMs   int64
	partitions int // of the source
	chunk      int // events that are published at a time, before the table is waited for; 0: all
	strategy   string
	restart    string // after the first half: "" not at all, else the local folder that is lost
}

// TestSameRowsAnyway: the rows that a table ends with do not depend on commit
// intervals, batches, partitions, what is compacted, or what a node loses, on the
// embedded broker and on a real Kafka. (Buffers, checkpoints and members: the
// simulation's test of this name.)
func TestSameRowsAnyway(t *testing.T) {
	ways := []way{
		{name: "plain", commitMs: 200, partitions: 1},
		{name: "one by one", commitMs: 20, partitions: 2, chunk: 40, strategy: "none"},
		{name: "full", commitMs: 50, partitions: 3, chunk: 80, strategy: "full"},
		{name: "small files", commitMs: 50, partitions: 2, chunk: 60, strategy: "small-files"},
		{name: "size ratio", commitMs: 50, partitions: 1, chunk: 60, strategy: "size-ratio"},
		{name: "deletes", commitMs: 50, partitions: 2, chunk: 60, strategy: "deletes"},
		{name: "without its state", commitMs: 100, partitions: 2, strategy: "full", restart: "state"},
		{name: "without its index", commitMs: 100, partitions: 2, chunk: 120, restart: "index"},
	}
	r := rng(seed(t), 31)
	const keys, total = 60, 480
	type made struct {
		name  string
		score int // −1: a delete
	}
	var all []made
	want := map[string]int{}
	for range total {
		m := made{fmt.Sprintf("k-%02d", r.IntN(keys)), r.IntN(1000)}
		if r.IntN(4) == 0 {
			m.score = -1
		}
		all = append(all, m)
		if want[m.name] = m.score; m.score < 0 {
			delete(want, m.name)
		}
	}
	var lines []string
	for name, score := range want {
		lines = append(lines, fmt.Sprintf("name=%s score=%d", name, score))
	}
	slices.Sort(lines)
	try := func(t *testing.T, w way, brokers []string) {
		ctx := longContext(t)
		def := definition("shop.same", source.RowsJSON, []schemas.Field{{Name: "name", Type: schemas.Of(schemas.String)}, {Name: "score", Type: schemas.Of(schemas.Int)}})
		def.CommitIntervalMs = w.commitMs
		if w.strategy != "" {
			def.Properties = append(def.Properties, schemas.Property{Key: "varve.compaction.strategy", Value: w.strategy})
		}
		o := topology.NodeOptions{Data: dataDir(t), Brokers: brokers, Deployment: "same", Partitions: 1, Roles: topology.Roles(), Jobs: quickJobs}
		n := start(t, o)
		if err := prepare(ctx, n, workload{def: def, partitions: w.partitions}); err != nil {
			t.Fatal(err)
		}
		chunk := w.chunk
		if chunk == 0 {
			chunk = total
			if w.restart != "" {
				chunk = total / 2
			}
		}
		for at := 0; at < total; at += chunk {
			if w.restart != "" && at == total/2 {
				stop(t, n)
				if err := os.RemoveAll(filepath.Join(o.Data, w.restart)); err != nil {
					t.Fatal(err)
				}
				n = start(t, o)
				info, err := n.Table(ctx, def.Name)
				if err == nil {
					err = n.Ingest(ctx, info)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			part := all[at:min(at+chunk, total)]
			if _, err := n.Produce(ctx, def.SourceTopic, w.partitions, func() (*topology.SourceEvent, error) {
				if len(part) == 0 {
					return nil, io.EOF
				}
				m := part[0]
				part = part[1:]
				text := fmt.Sprintf(`{"name":"%s","score":%d}`, m.name, m.score)
				if m.score < 0 {
					text = fmt.Sprintf(`{"name":"%s","__deleted":"true"}`, m.name)
				}
				p := 0
				for _, c := range m.name {
					p += int(c)
				}
				return &topology.SourceEvent{Key: fmt.Appendf(nil, `{"name":"%s"}`, m.name), Value: []byte(text), Partition: int32(p % w.partitions)}, nil
			}, nil); err != nil {
				t.Fatal(err)
			}
			if err := n.WaitLoaded(ctx, def.Name, nil); err != nil {
				t.Fatal(err)
			}
		}
		if w.strategy != "none" {
			jobsOver(ctx, t, n, def.Name)
		}
		i, err := n.Table(ctx, def.Name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readers.Read(ctx, readers.IcebergGo, i.Head.MetadataPath, readers.Options{Columns: []string{"name", "score"}})
		if err != nil {
			t.Fatal(err)
		}
		diff(t, w.name, got.Sorted(), lines)
		stop(t, n)
	}
	for _, w := range ways {
		t.Run("embedded, "+w.name, func(t *testing.T) { try(t, w, nil) })
	}
	t.Run("kafka", func(t *testing.T) {
		try(t, way{name: "kafka", commitMs: 100, partitions: 4, chunk: 120, strategy: "full", restart: "state"}, testcluster.Start(t, 1).Brokers())
	})
}
