package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// fedTable is a table in a deployment of its own, whose source topic a work feeds.
type fedTable struct {
	o          *Options
	deployment string
	def        schemas.Definition
	enc        encoder
}

// openTable makes the source topic, of so many partitions. Who opens drops.
func (o *Options) openTable(ctx context.Context, format string, commitMs int64, partitions int) (*fedTable, error) {
	t := &fedTable{o: o, deployment: "bench-" + strconv.FormatUint(rand.Uint64(), 36)}
	t.def = customers(t.deployment+".customers", format, commitMs)
	var err error
	if t.enc, err = newEncoder(&t.def); err != nil {
		return nil, err
	}
	return t, o.ensureSource(ctx, t.def.SourceTopic, partitions)
}

// drop deletes its topics on brokers that stay.
func (t *fedTable) drop() error {
	return t.o.dropTopics(append(topicsOf(t.deployment), t.def.SourceTopic)...)
}

// feed sends n upserts whose ids id draws, to a topic of one partition.
func (t *fedTable) feed(ctx context.Context, n int64, r *rand.Rand, id func(i int64) int64) error {
	return t.o.feed(ctx, t.def.SourceTopic, events(t.enc, n, r, id))
}

// spec is a node with the table, its data in a folder.
func (t *fedTable) spec(data string) (nodeSpec, error) {
	table, err := record.EncodeBody(nil, &record.CreateTable{Definition: t.def})
	if err != nil {
		return nodeSpec{}, fmt.Errorf("encode the table: %w", err)
	}
	return nodeSpec{Deployment: t.deployment, Data: data, Partitions: 1, Table: table}, nil
}
