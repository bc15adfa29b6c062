package endtoend

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
	"github.com/varve-io/varve/topology/readers"
	"github.com/varve-io/varve/topology/testcluster"
)

// TestRepartition (K5): events of one key lie in any partition of the source,
// with record keys of several framings or none. Through the internal topic each
// key has one shard, so that each has one row, its newest; dead letters say
// where the event was in the source. Another node with an empty folder goes on.
func TestRepartition(t *testing.T) {
	c := testcluster.Start(t, 1)
	r := rng(seed(t), 5)
	lake := t.TempDir()
	def := definition("shop.spread", source.RowsJSON, []schemas.Field{
		{Name: "id", Type: schemas.Of(schemas.Long)}, {Name: "ver", Type: schemas.Of(schemas.Long)}, {Name: "qty", Type: schemas.Of(schemas.Int)},
	})
	def.Order = schemas.Order{Kind: schemas.OrderByColumn, Column: 2}
	def.Properties = []schemas.Property{{Key: schemas.PropertyRepartition, Value: schemas.RepartitionAlways}}
	const partitions = 3
	want := map[int]string{}
	version, bad := 0, map[[2]int64]bool{}
	var next [partitions]int64
	events := func(n int) func() (*topology.SourceEvent, error) {
		return func() (*topology.SourceEvent, error) {
			if n--; n < 0 {
				return nil, io.EOF
			}
			id, p := r.IntN(40), r.IntN(partitions)
			version++
			e := &topology.SourceEvent{Partition: int32(p)}
			switch r.IntN(3) {
			case 0:
				e.Key = fmt.Appendf(nil, `{"id":%d}`, id)
			case 1:
				e.Key = fmt.Appendf(nil, `{ "id" : %d }`, id)
			}
			switch x := r.IntN(20); {
			case x == 0:
				e.Value = []byte(`{"id":"no number"}`)
				bad[[2]int64{int64(p), next[p]}] = true
			case x < 5:
				e.Value = fmt.Appendf(nil, `{"id":%d,"ver":%d,"__deleted":"true"}`, id, version)
				delete(want, id)
			default:
				e.Value = fmt.Appendf(nil, `{"id":%d,"ver":%d,"qty":%d}`, id, version, version%7)
				want[id] = fmt.Sprintf("id=%d qty=%d ver=%d", id, version%7, version)
			}
			next[p]++
			return e, nil
		}
	}
	ctx := longContext(t)
	for i, name := range []string{"one", "two"} {
		n := start(t, topology.NodeOptions{
			Data: dataDir(t), Brokers: c.Brokers(), Warehouse: lake, Deployment: "respread", Partitions: 1, Groups: true, NodeID: name, LeaveGroups: true,
			Logger: testLog(t, slog.LevelError),
		})
		if _, err := n.Produce(ctx, def.SourceTopic, partitions, events(300), nil); err != nil {
			t.Fatal(err)
		}
		if _, created, err := n.EnsureTable(ctx, def); err != nil || created != (i == 0) {
			t.Fatalf("created %t: %v", created, err)
		}
		if err := n.WaitLoaded(ctx, def.Name, nil); err != nil {
			t.Fatal(err)
		}
		info, err := n.Table(ctx, def.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range info.Shards {
			if s.Topic != "respread.rekey.shop.spread" || s.Framing != 0 {
				t.Errorf("a shard of topic %s, framing %d", s.Topic, s.Framing)
			}
		}
		got, err := readers.Read(ctx, readers.IcebergGo, info.Head.MetadataPath, readers.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, l := range want {
			lines = append(lines, l)
		}
		slices.Sort(lines)
		diff(t, "node "+name, got.Sorted(), lines)
		found := map[[2]int64]bool{}
		if err := n.DeadLetters(ctx, def.SourceTopic, func(l *topology.Letter) error {
			if l.Topic != def.SourceTopic || !strings.Contains(l.Reason, "id") {
				t.Errorf("a letter of topic %s: %s", l.Topic, l.Reason)
			}
			found[[2]int64{int64(l.Partition), l.SourceOffset}] = true
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(found) != len(bad) {
			t.Errorf("%d dead letters, want %d", len(found), len(bad))
		}
		for at := range bad {
			if !found[at] {
				t.Errorf("no dead letter of source partition %d offset %d", at[0], at[1])
			}
		}
		stop(t, n)
	}
}
