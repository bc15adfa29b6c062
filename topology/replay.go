package topology

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	// StateOnly builds states and publishes nothing.
	StateOnly bool
	// Compare is a lake that what is published is held against, byte by byte, as
	// are the chain hashes of its checkpoints and, where the log is a topic, of the
	// outcomes. Nothing is written to it.
	Compare objstore.Store
	// Outside says that the tables are published to an outside catalog, which
	// writes their metadata and dates it. Manifests, lists and vectors are made
	// and compared all the same (C7).
	Outside bool
	// Against is a data folder on which no node runs: a state of it that stands
	// where the replay ended is held against the one that was built, key by key.
	Against string
	// Exports are files of Conn.Export to read in place of the topic, each of
	// another partition. Brokers, Client and Data are not used then.
	Exports []string
	// Expect, if not zero, is the deployment that the log must be of.
	Expect [16]byte
	// Partitions are those to replay. Default: all.
	Partitions []int32
	To         ReplayTo
	// Told hears how far the replay is. Default: nobody.
	Told   func(ReplayProgress)
	Logger *slog.Logger
}

// ReplayTo is where a replay ends: the end of the log, unless one is set.
type ReplayTo struct {
	Offset   *int64 // the last one that is applied
	TimeMs   int64  // by the records' times: the first later one is not applied
	Snapshot int64  // the record that confirms it is the last one
}

// ReplayProgress is how far a replay is.
type ReplayProgress struct {
	Partition  int32
	Next, End  int64 // offsets
	Records    int64 // of all partitions
	Elapsed    time.Duration
	PerSecond  float64
	Left       time.Duration // of this partition
	Cuts, Same int64         // published again, objects that were the same
}

// Replayed is what a replay came to.
type Replayed struct {
	Heads   []statestore.Head // by partition: equal to the node's own at the same offset
	Records int64
	Cuts    int // accepted and published again
	// Compared and Gone are objects of metadata that the lake has with the same
	// bytes, and those that are not there any more, as after an expiry.
	Compared, Gone int64
	// Chains is how many chain hashes of outcomes and checkpoints were the same,
	// States how many of Against's states.
	Chains, States int64
	Elapsed        time.Duration
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
	publish := func(store objstore.Store) func(context.Context, *statestore.FrozenCut) (publisher.Result, error) {
		p := publisher.New(publisher.Config{Store: store, Bodies: bodies, Logger: o.Logger})
		if o.Outside {
			return p.Again
		}
		return p.Publish
	}
	if o.Publish == nil && !o.StateOnly {
		o.Publish = publish(o.Store)
	}
	if es, err := os.ReadDir(o.State); err == nil && len(es) > 0 {
		return nil, fmt.Errorf("%w: %s is not empty; a replay builds its state from nothing", ErrConfig, o.State)
	}
	began := time.Now()
	src, err := openReplaySource(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	out := &Replayed{}
	var checks *compared
	if o.Compare != nil && !o.StateOnly {
		checks = &compared{Store: o.Store, lake: o.Compare, out: out}
		o.Publish = publish(checks)
	}
	found := false
	for i := range src.parts {
		r := replay{o: &o, bodies: bodies, out: out, src: src, part: &src.parts[i], checks: checks, began: began, pending: map[int64]*record.SnapshotCommitted{}}
		if err := r.partition(ctx); err != nil {
			return nil, fmt.Errorf("replay of %s: %w", r.part.name, err)
		}
		found = found || r.ended
	}
	if !found && o.To.Snapshot != 0 {
		return nil, fmt.Errorf("%w: the log confirms no snapshot %d; \"varve snapshots TABLE\" shows those of a table", ErrConfig, o.To.Snapshot)
	}
	out.Elapsed = time.Since(began)
	return out, nil
}

// replay is that of one partition.
type replay struct {
	o       *ReplayOptions
	bodies  *processors.Bodies
	out     *Replayed
	src     *replaySource
	part    *replayPart
	checks  *compared // nil: what is published is not compared
	began   time.Time
	store   *statestore.Store
	pending map[int64]*record.SnapshotCommitted // by table: published, not confirmed yet
	applied int                                 // since the last commit
	ended   bool                                // at the snapshot that was asked for
	chains  *chainCheck                         // nil: none
}

func (r *replay) partition(ctx context.Context) (err error) {
	p := r.part
	if r.store, err = statestore.Open(filepath.Join(r.o.State, strconv.Itoa(int(p.partition))), statestore.Options{Log: r.o.Logger, Silent: r.o.Compare == nil}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.store.Close()) }()
	source, err := r.src.records(ctx, p)
	if err != nil {
		return err
	}
	log := openAhead(ctx, source)
	defer log.close()
	if r.o.Compare != nil {
		if r.chains, err = r.src.openChains(ctx, r.o, p); err != nil {
			return err
		}
		defer r.chains.close()
	}
	from, began, told := r.out.Records, time.Now(), time.Now()
	stop := false
	for !stop {
		rs, err := log.next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for i := range rs {
			if to := r.o.To; to.TimeMs != 0 && rs[i].TimeMs > to.TimeMs {
				stop = true
				break
			}
			if err := r.apply(ctx, &rs[i]); err != nil {
				return fmt.Errorf("log offset %d: %w", rs[i].Offset, err)
			}
			if rs[i].Offset == 0 && r.o.Expect != ([16]byte{}) { // its genesis tells
				if h := r.store.Head(); h.Deployment != r.o.Expect {
					return fmt.Errorf("%w: it is the log of deployment %x, not of %x: a topic that was made again, or the folder of another one; name those that belong together", ErrConfig, h.Deployment, r.o.Expect)
				}
			}
			if r.ended {
				stop = true
				break
			}
		}
		if r.o.Told != nil && time.Since(told) > 100*time.Millisecond {
			told = time.Now()
			done := r.out.Records - from
			g := ReplayProgress{Partition: p.partition, Next: r.store.Head().Offset + 1, End: p.end, Records: r.out.Records, Elapsed: time.Since(r.began),
				Cuts: int64(r.out.Cuts), Same: r.out.Compared}
			if s := time.Since(began).Seconds(); s > 0 && done > 0 {
				g.PerSecond = float64(done) / s
				g.Left = time.Duration(float64(p.end-g.Next) / g.PerSecond * float64(time.Second))
			}
			r.o.Told(g)
		}
	}
	if err := r.commit(ctx); err != nil {
		return err
	}
	r.out.Heads = append(r.out.Heads, r.store.Head())
	return r.against(ctx)
}

func (r *replay) apply(ctx context.Context, rec *statestore.Record) error {
	_, typ, _, _, _ := record.PeekHeader(rec.Header)
	if typ == record.TypeSnapshotCommitted { // it ends the cut that a commit tells of
		if err := r.commit(ctx); err != nil {
			return err
		}
		if r.o.Outside && !r.o.StateOnly {
			if err := r.again(ctx, rec); err != nil {
				return err
			}
		}
	}
	out, err := state.Apply(ctx, r.store, r.bodies, rec)
	if err != nil {
		return err
	}
	r.out.Records++
	r.applied++
	if r.chains != nil {
		n, err := r.chains.check(ctx, &out)
		if r.out.Chains += n; err != nil {
			return err
		}
	}
	if out.Outcome.Code == record.Accepted && typ == record.TypeSnapshotCommitted {
		if err := r.confirmed(ctx, rec, &out); err != nil {
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
		if r.o.StateOnly || r.o.Outside {
			break
		}
		if err := r.publish(ctx, c.TableID); err != nil {
			return err
		}
	}
	return nil
}

// again publishes what a record confirms, as the catalog's facts in the log have
// moved it by then (H5).
func (r *replay) again(ctx context.Context, rec *statestore.Record) error {
	env, _, err := r.bodies.Open(ctx, rec.Key, rec.Header, rec.Value)
	if err != nil {
		return nil // the state rejects it, whatever it is
	}
	return r.publish(ctx, env.TableID)
}

// publish makes the snapshot of a table's pending cut.
func (r *replay) publish(ctx context.Context, table int64) error {
	f, err := r.store.Frozen(table)
	if err != nil || f == nil {
		return err
	}
	if p := r.pending[table]; p != nil && p.Build == f.Build {
		return nil
	}
	res, err := r.o.Publish(ctx, f)
	if err == nil && r.checks != nil {
		err = r.checks.found(f.Definition.Name, f.Build)
	}
	if err != nil {
		return err
	}
	r.out.Cuts++
	r.pending[table] = &res.Committed
	return nil
}

// confirmed holds the record of a snapshot against the one that was made again.
func (r *replay) confirmed(ctx context.Context, rec *statestore.Record, out *record.OutcomeMessage) error {
	_, got, err := r.bodies.Open(ctx, rec.Key, rec.Header, rec.Value)
	if err != nil {
		return err
	}
	if to := r.o.To.Snapshot; to != 0 {
		v, err := record.DecodeBody(record.TypeSnapshotCommitted, 1, got)
		if err != nil {
			return err
		}
		c, ok := v.(*record.SnapshotCommitted)
		r.ended = ok && c.SnapshotID == to
	}
	if r.o.StateOnly {
		return nil
	}
	mine := r.pending[out.TableID]
	if mine == nil {
		return fmt.Errorf("%w: table %s: the log confirms a snapshot that no cut asked for", ErrReplayDiffers, out.Table)
	}
	delete(r.pending, out.TableID)
	if r.o.Outside { // its part
		v, err := record.DecodeBody(record.TypeSnapshotCommitted, 1, got)
		if err != nil {
			return err
		}
		if c, ok := v.(*record.SnapshotCommitted); ok {
			mine.TimestampMs, mine.MetadataPath = c.TimestampMs, c.MetadataPath
		}
	}
	want, err := record.EncodeBody(nil, mine)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: table %s, partition %d: the snapshot of build offset %d is not the one that was committed", ErrReplayDiffers, out.Table, r.part.partition, mine.Build)
	}
	return nil
}
