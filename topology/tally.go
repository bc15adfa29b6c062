package topology

import (
	"context"
	"time"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/statestore"
)

// tallyPatience is how long shards may take to hear of what the log has.
const tallyPatience = 5 * time.Second

// Tally is what became of the source records that this node read for a table
// since it opened, up to where the table's shards stand. false: other nodes own
// some of them, or they have not told yet.
func (n *Node) Tally(ctx context.Context, t *statestore.TableInfo) (ingest.Tally, bool) {
	until := time.Now().Add(tallyPatience)
	for {
		var sum ingest.Tally
		ends := map[int32]int64{}
		for _, s := range n.Shards() {
			if s.TableID == t.ID {
				sum.Add(&s.Tally)
				ends[s.Partition] = s.SourceEnd
			}
		}
		there := true
		for i := range t.Shards {
			end, owned := ends[t.Shards[i].Partition]
			there = there && (t.Shards[i].Retired || owned && end >= t.Shards[i].SourceEnd)
			if !owned && !t.Shards[i].Retired {
				return sum, false
			}
		}
		if there {
			return sum, true
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return sum, false
		}
		time.Sleep(10 * time.Millisecond)
	}
}
