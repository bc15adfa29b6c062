package topology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// VoidOptions say what is lost (L10).
type VoidOptions struct {
	Data       string   // folder of the embedded broker
	Brokers    []string // nil: the embedded broker of Data, which nobody else may use
	Deployment string
	Client     ClientOptions
	Store      objstore.Store // the warehouse
	Logger     *slog.Logger
	Partition  int32
	Offset     int64
	// Object is what is lost: a forwarding map that the record needs. Nil: the
	// record's own body.
	Object *record.Ref
}

// ErrApplied: a record whose outcome is known cannot lose what it was decided by.
var ErrApplied = errors.New("the record was applied")

// Void declares for good that what a record of the log names is lost, so that the
// partition, which waits for it, goes on without: everyone applies the record as
// if its body were undecodable, or the map a wrong one. It is refused for what is
// in the store, and for a record that has an outcome (ErrApplied).
func Void(ctx context.Context, o VoidOptions) (ref record.Ref, err error) {
	src := &replaySource{client: o.Client}
	if err := src.topicFrom(ctx, &ReplayOptions{Data: o.Data, Brokers: o.Brokers, Deployment: o.Deployment, Logger: o.Logger}, func(string, PartitionOffsets) error { return nil }); err != nil {
		return ref, errors.Join(err, src.close())
	}
	defer func() { err = errors.Join(err, src.close()) }()
	if o.Partition < 0 || int(o.Partition) >= len(src.parts) {
		return ref, fmt.Errorf("%w: topic %s has partitions 0 to %d", ErrConfig, src.topics.Transactions, len(src.parts)-1)
	}
	part := &src.parts[o.Partition]
	rec, err := recordAt(ctx, src, part, o.Offset)
	if err != nil {
		return ref, err
	}
	last, err := src.lastOutcome(ctx, part)
	if err != nil {
		return ref, err
	}
	if last >= o.Offset {
		return ref, fmt.Errorf("%w: %s, offset %d has its outcome (the newest is of %d); a state without what it was decided by would be another one: restore the object, or start from a checkpoint above that offset",
			ErrApplied, part.name, o.Offset, last)
	}
	if o.Object != nil {
		ref = *o.Object
	} else if own := statestore.NeedsBody(rec); own != nil {
		ref = *own
	} else {
		return ref, fmt.Errorf("%w: %s: the record at offset %d has its body in itself; the forwarding map that it waits for is named with --object, --length and --hash", ErrConfig, part.name, o.Offset)
	}
	return ref, processors.NewBodies(o.Store, o.Deployment).Void(ctx, o.Partition, o.Offset, &ref)
}

func recordAt(ctx context.Context, src *replaySource, part *replayPart, offset int64) (*statestore.Record, error) {
	if offset < 0 || offset >= part.end {
		return nil, fmt.Errorf("%w: %s ends at offset %d; there is no record at %d", ErrConfig, part.name, part.end, offset)
	}
	r, err := topicRecords(ctx, src.client, src.topics.Transactions, part.partition, offset, offset+1)
	if err != nil {
		return nil, err
	}
	defer r.close()
	rs, err := r.next(ctx)
	if errors.Is(err, io.EOF) || err == nil && (len(rs) != 1 || rs[0].Offset != offset) {
		return nil, fmt.Errorf("%s has no record at offset %d", part.name, offset)
	}
	if err != nil {
		return nil, err
	}
	return &rs[0], nil
}

// lastOutcome is the newest log offset whose outcome the outcomes topic has, -1: none.
func (s *replaySource) lastOutcome(ctx context.Context, part *replayPart) (int64, error) {
	a, err := NewAdmin(s.client)
	if err != nil {
		return -1, err
	}
	defer a.Close()
	ends, err := a.Offsets(ctx, s.topics.Outcomes)
	if err != nil {
		return -1, err
	}
	if int(part.partition) >= len(ends) {
		return -1, fmt.Errorf("topic %s has no partition %d", s.topics.Outcomes, part.partition)
	}
	// A derived outcome is sent with the record before which it was decided.
	for at := ends[part.partition].High - 1; at >= ends[part.partition].Start; at-- {
		c := &Conn{client: s.client}
		r, err := c.readOne(ctx, s.topics.Outcomes, part.partition, at)
		if err != nil {
			return -1, err
		}
		var m record.OutcomeMessage
		if r.Offset == at && isOutcome(r, &m) && m.Offset < part.end {
			return m.Offset, nil
		}
	}
	return -1, nil
}
