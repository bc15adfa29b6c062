package topology

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/processors/state"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// ErrReplayDiffers: what the log determines is not what was committed.
var ErrReplayDiffers = errors.New("the replay came to something else")

// ReplayOptions say what Replay reads and where it writes.
type ReplayOptions struct {
	// Brokers and Client reach the log. Without brokers the embedded broker of
	// Data is started for the time of the replay; no node may run on the folder.
	Brokers []string
	Client  ClientOptions
	Data    string
	// Deployment names the topics. Default: varve.
	Deployment string
	// State is the folder of the states that the replay builds. It must not be
	// there, or be empty.
	State string
	// Store is where snapshots are published. What is there already must be the
	// same, byte for byte: publish into another store, or where metadata is missing.
	Store objstore.Store
	// Bodies is where the records' bodies lie. Default: Store.
	Bodies objstore.Store
	// Publish makes and commits a cut's snapshot. Default: a publisher over Store.
	Publish func(ctx context.Context, f *statestore.FrozenCut) (publisher.Result, error)
	Logger  *slog.Logger
}

// Replayed is what a replay came to.
type Replayed struct {
	Heads   []statestore.Head // by partition: equal to the node's own at the same offset
	Records int64
	Cuts    int // accepted and published again
}

// replayCommitEvery bounds what is applied between two commits, in records.
const replayCommitEvery = 1024

// Replay applies a deployment's log from its genesis to fresh states and
// publishes every accepted cut again, at its place in the log. It sends nothing
// (L11). An error wrapping ErrReplayDiffers means that a snapshot came out
// other than the one that the log confirmed.
func Replay(ctx context.Context, o ReplayOptions) (_ *Replayed, err error) {
	if o.Deployment == "" {
		o.Deployment = DefaultDeployment
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Bodies == nil {
		o.Bodies = o.Store
	}
	bodies := processors.NewBodies(o.Bodies, o.Deployment)
	if o.Publish == nil {
		o.Publish = publisher.New(publisher.Config{Store: o.Store, Bodies: bodies, Logger: o.Logger}).Publish
	}
	if es, err := os.ReadDir(o.State); err == nil && len(es) > 0 {
		return nil, fmt.Errorf("%w: %s is not empty; a replay builds its state from nothing", ErrConfig, o.State)
	}
	client := o.Client
	client.Brokers = o.Brokers
	if len(client.Brokers) == 0 {
		b, err := OpenBroker(BrokerOptions{Dir: filepath.Join(o.Data, "broker"), Logger: o.Logger})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		client.Brokers = []string{b.Addr()}
	}
	a, err := NewAdmin(client)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	if err := a.Ping(ctx, 0); err != nil {
		return nil, err
	}
	topic := o.Deployment + ".transactions"
	ends, err := a.Offsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := &Replayed{}
	for p := range ends {
		r := replay{o: &o, bodies: bodies, out: out, pending: map[int64]*record.SnapshotCommitted{}}
		if err := r.partition(ctx, client, topic, int32(p), ends[p].High); err != nil {
			return nil, fmt.Errorf("replay of topic %s partition %d: %w", topic, p, err)
		}
	}
	return out, nil
}

// replay is that of one partition.
type replay struct {
	o       *ReplayOptions
	bodies  *processors.Bodies
	out     *Replayed
	store   *statestore.Store
	pending map[int64]*record.SnapshotCommitted // by table: published, not confirmed yet
	applied int                                 // since the last commit
}

func (r *replay) partition(ctx context.Context, client ClientOptions, topic string, p int32, end int64) (err error) {
	if r.store, err = statestore.Open(filepath.Join(r.o.State, strconv.Itoa(int(p))), statestore.Options{Log: r.o.Logger}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.store.Close()) }()
	log, err := OpenLogReader(ctx, client, ReaderOptions{Topic: topic, Partition: p})
	if err != nil {
		return err
	}
	defer log.Close()
	for log.Next() < end {
		rs, err := log.Poll(ctx, time.Second, 0)
		if err != nil {
			return err
		}
		for i := range rs {
			if rs[i].Offset >= end {
				break
			}
			rec := stateRecord(&rs[i])
			if err := r.apply(ctx, &rec); err != nil {
				return fmt.Errorf("log offset %d: %w", rec.Offset, err)
			}
		}
	}
	if err := r.commit(ctx); err != nil {
		return err
	}
	r.out.Heads = append(r.out.Heads, r.store.Head())
	return nil
}

func (r *replay) apply(ctx context.Context, rec *statestore.Record) error {
	_, typ, _, _, _ := record.PeekHeader(rec.Header)
	if typ == record.TypeSnapshotCommitted { // it ends the cut that a commit tells of
		if err := r.commit(ctx); err != nil {
			return err
		}
	}
	out, err := state.Apply(ctx, r.store, r.bodies, rec)
	if err != nil {
		return err
	}
	r.out.Records++
	r.applied++
	if out.Outcome.Code == record.Accepted && typ == record.TypeSnapshotCommitted {
		if err := r.confirmed(ctx, rec, out.TableID); err != nil {
			return err
		}
	}
	if typ == record.TypeCut || r.applied >= replayCommitEvery {
		return r.commit(ctx)
	}
	return nil
}

// commit makes the state durable and publishes the cuts that it tells of.
func (r *replay) commit(ctx context.Context) error {
	r.applied = 0
	box, err := r.store.Commit()
	if err != nil {
		return err
	}
	if n := len(box.Outcomes); n > 0 { // never sent: they need no outbox
		r.store.Sent(box.Outcomes[n-1].Offset)
	}
	for _, c := range box.Cuts {
		f, err := r.store.Frozen(c.TableID)
		if err != nil {
			return err
		}
		if f == nil {
			continue
		}
		res, err := r.o.Publish(ctx, f)
		if err != nil {
			return err
		}
		r.out.Cuts++
		r.pending[c.TableID] = &res.Committed
	}
	return nil
}

// confirmed holds the record of a snapshot against the one that was made again.
func (r *replay) confirmed(ctx context.Context, rec *statestore.Record, table int64) error {
	mine := r.pending[table]
	if mine == nil {
		return fmt.Errorf("%w: table %d: the log confirms a snapshot that no cut asked for", ErrReplayDiffers, table)
	}
	delete(r.pending, table)
	want, err := record.EncodeBody(nil, mine)
	if err != nil {
		return err
	}
	_, got, err := r.bodies.Open(ctx, rec.Key, rec.Header, rec.Value)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: table %d: the snapshot of build offset %d is not the one that was committed", ErrReplayDiffers, table, mine.Build)
	}
	return nil
}
