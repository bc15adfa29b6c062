package topology

import (
	"context"
	"errors"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// DefinitionInLog is what the log of a deployment decided about a table last, nil
// when it has no such table, or there is no such deployment. It reads the outcomes
// topic from its beginning, joins no group, opens no state and writes nothing.
func DefinitionInLog(ctx context.Context, o ClientOptions, deployment, table string) (def *schemas.Definition, err error) {
	topics, err := NewTopics(deployment, 0, 0, false)
	if err != nil {
		return nil, err
	}
	admin, err := NewAdmin(o)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	ends, err := admin.Offsets(ctx, topics.Outcomes)
	if errors.Is(err, ErrNoTopic) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := schemas.PartitionOf(table, int32(len(ends)))
	end := ends[p]
	r, err := OpenLogReader(ctx, o, ReaderOptions{Topic: topics.Outcomes, Partition: p, Offset: end.Start, admin: admin})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for r.Next() < end.High {
		rs, err := r.Poll(ctx, time.Second, 8192)
		if err != nil {
			return nil, err
		}
		for i := range rs {
			var m record.OutcomeMessage
			switch {
			case !isOutcome(&rs[i], &m) || m.Table != table || m.Outcome.Code != record.Accepted:
			case m.Type == record.TypeDropTable:
				def = nil
			case m.Definition != nil:
				def = m.Definition
			}
		}
	}
	return def, nil
}
