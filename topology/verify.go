package topology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/state"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/checkpoint"
	"github.com/varve-io/varve/statestore/objstore"
)

// VerifyOptions say what Verify looks at.
type VerifyOptions struct {
	Brokers    []string
	Client     ClientOptions
	Data       string // its key indexes are looked at, if it has some
	Stopped    bool   // no node runs on Data: its states are looked at too
	Deployment string
	Expect     [16]byte // the deployment's id, zeros: not known
	Store      objstore.Store
	Scratch    string              // an empty folder, for states and sorted runs
	Tables     []string            // nil: all
	Full       bool                // from the log's beginning, not from a checkpoint
	Deep       bool                // read footers, vectors and keys
	Source     bool                // fold the source topics; from the log's beginning
	Registry   source.SchemaSource // of the source topics' formats, nil: none
	Told       func(what string, done, all int64)
	Logger     *slog.Logger
}

// Finding is one thing that is not as it should be.
type Finding struct {
	Check     string // chain, checkpoint, state, catalog, object, vector, rows, index, source
	Table     string // "": of none
	Partition int32
	Offset    int64 // of the log, that the state stood at
	What      string
}

// maxFindings bounds what is told; the rest is counted.
const maxFindings = 100

// Verified is what Verify found.
type Verified struct {
	Heads    []statestore.Head
	Records  int64 // applied
	Chains   int64 // hashes that were the same
	States   int64 // of checkpoints and members, equal in content
	Tables   int64
	Files    int64 // data files, by state, catalog and store
	Vectors  int64
	Objects  int64 // manifests, lists, Puffins
	Rows     int64 // live rows whose keys were read
	Entries  int64 // of key indexes
	Events   int64 // of source topics
	Findings []Finding
	More     int64    // findings beyond those
	Skipped  []string // what could not be looked at, and why
	Elapsed  time.Duration
}

// verifier verifies one partition.
type verifier struct {
	o        *VerifyOptions
	out      *Verified
	bodies   *processors.Bodies
	src      *replaySource
	part     *replayPart
	store    *statestore.Store
	scratch  string
	indexes  []*localIndex
	touched  map[int64]int64        // by table: newest offset that changed its files
	taken    map[int64]*takenSource // by table: when its source was taken, and requests by key
	unread   map[int64]int64        // by table: data files that could not be read
	names    *scratchMap            // of files and other objects, on disk
	skipped  map[int64]bool         // by table: source ends that a user moved
	imported map[int64]bool         // by table: rows that no event is of
	gone     map[int64]*deletedRows // by table: what no event and no request by key deleted
	complete bool                   // from the log's beginning
}

func (v *verifier) find(check, table, format string, args ...any) {
	if len(v.out.Findings) >= maxFindings {
		v.out.More++
		return
	}
	offset := int64(-1)
	if v.store != nil {
		offset = v.store.Head().Offset
	}
	v.out.Findings = append(v.out.Findings, Finding{check, table, v.part.partition, offset, fmt.Sprintf(format, args...)})
}

func (v *verifier) skip(format string, args ...any) {
	v.out.Skipped = append(v.out.Skipped, fmt.Sprintf(format, args...))
}

func (v *verifier) told(what string, done, all int64) {
	if v.o.Told != nil {
		v.o.Told(what, done, all)
	}
}

func (v *verifier) wants(table string) bool {
	return len(v.o.Tables) == 0 || slices.Contains(v.o.Tables, table)
}

// Verify builds the states of a deployment beside whoever runs it, up to where
// the log ends now, and holds them against all others: chain hashes, members,
// checkpoints, catalog, objects, and with Deep and Source rows and events. It
// writes to nothing but Scratch. What it finds is no error.
func Verify(ctx context.Context, o VerifyOptions) (out *Verified, err error) {
	if o.Deployment == "" {
		o.Deployment = DefaultDeployment
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	began := time.Now()
	src := &replaySource{client: o.Client}
	defer func() { err = errors.Join(err, src.close()) }()
	starts, err := src.logs(ctx, &ReplayOptions{Brokers: o.Brokers, Data: o.Data, Deployment: o.Deployment, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	out = &Verified{}
	seen := map[string]bool{}
	for i := range src.parts {
		v := &verifier{
			o: &o, out: out, bodies: processors.NewBodies(o.Store, o.Deployment), src: src, part: &src.parts[i],
			scratch: filepath.Join(o.Scratch, fmt.Sprint(src.parts[i].partition)),
			touched: map[int64]int64{}, taken: map[int64]*takenSource{}, skipped: map[int64]bool{}, imported: map[int64]bool{}, gone: map[int64]*deletedRows{}, unread: map[int64]int64{},
		}
		v.names = newScratchMap(filepath.Join(v.scratch, "names"), o.Logger)
		if err := v.run(ctx, starts[i], seen); err != nil {
			return nil, fmt.Errorf("verify %s: %w", v.part.name, err)
		}
	}
	for _, t := range o.Tables {
		if !seen[t] {
			return nil, fmt.Errorf("%w: %s; \"varve table list\" shows those of deployment %s", ErrNoTable, t, o.Deployment)
		}
	}
	out.Elapsed = time.Since(began)
	return out, nil
}

func (v *verifier) run(ctx context.Context, start int64, seen map[string]bool) (err error) {
	if err := os.MkdirAll(v.scratch, 0o755); err != nil {
		return err
	}
	defer func() {
		if v.store != nil {
			err = errors.Join(err, v.store.Close())
		}
		for _, x := range v.indexes {
			err = errors.Join(err, x.index.Close())
		}
		err = errors.Join(err, v.names.close())
	}()
	es, err := checkpoint.At(v.o.Store, v.o.Deployment, v.part.partition).List(ctx)
	if err != nil {
		return err
	}
	v.checkCheckpoints(ctx, es)
	if v.o.Deep {
		if err := v.openIndexes(); err != nil {
			return err
		}
	}
	if err := v.start(ctx, start, es); err != nil {
		return err
	}
	if err := v.apply(ctx, es); err != nil {
		return err
	}
	v.out.Heads = append(v.out.Heads, v.store.Head())
	var tables []*statestore.TableInfo
	if err := v.store.Tables(func(t *statestore.TableInfo) error {
		if v.wants(t.Name) {
			seen[t.Name] = true
			tables = append(tables, t)
		}
		return nil
	}); err != nil {
		return err
	}
	for _, t := range tables {
		v.out.Tables++
		if err := v.catalog(ctx, t); err != nil {
			return fmt.Errorf("table %s: %w", t.Name, err)
		}
		if v.o.Source {
			if err := v.source(ctx, t); err != nil {
				return fmt.Errorf("table %s: %w", t.Name, err)
			}
		}
	}
	return nil
}

// checkCheckpoints looks at what checkpoints are made of.
func (v *verifier) checkCheckpoints(ctx context.Context, es []checkpoint.Entry) {
	at := fmt.Sprintf("_varve/%s/checkpoints/%d/", v.o.Deployment, v.part.partition)
	looked := map[string]bool{}
	for i := range es {
		if es[i].Err != nil {
			if errors.Is(es[i].Err, checkpoint.ErrNewer) {
				v.skip("partition %d: checkpoint %s: %v", v.part.partition, es[i].ID, es[i].Err)
				continue
			}
			v.find("checkpoint", "", "checkpoint %s: %v; delete it, a later one takes its place", es[i].ID, es[i].Err)
			continue
		}
		for _, f := range es[i].Manifest.Files {
			if f.Object == "" || looked[f.Object] {
				continue
			}
			looked[f.Object] = true
			v.out.Objects++
			switch info, err := v.o.Store.Stat(ctx, at+f.Object); {
			case errors.Is(err, objstore.ErrNotFound):
				v.find("checkpoint", "", "checkpoint %s: its object %s is missing", es[i].ID, f.Object)
			case err != nil:
				v.skip("checkpoint %s: object %s: %v", es[i].ID, f.Object, err)
			case info.Size != f.Length:
				v.find("checkpoint", "", "checkpoint %s: its object %s has %d bytes, not %d", es[i].ID, f.Object, info.Size, f.Length)
			}
		}
	}
}

// start makes the state to begin with: a checkpoint's, or none.
func (v *verifier) start(ctx context.Context, logStart int64, es []checkpoint.Entry) (err error) {
	dir := filepath.Join(v.scratch, "state")
	need := v.part.end // the offset that the state must not be beyond
	for _, x := range v.indexes {
		need = min(need, x.index.Offset())
	}
	if !v.o.Full && !v.o.Source || logStart > 0 {
		for _, e := range slices.Backward(es) {
			if e.Manifest == nil || e.Offset >= v.part.end || e.Offset > need && logStart == 0 {
				continue
			}
			h := e.Manifest.Head()
			if v.o.Expect != ([16]byte{}) && h.Deployment != v.o.Expect {
				continue
			}
			_, err := checkpoint.At(v.o.Store, v.o.Deployment, v.part.partition).Restore(ctx, checkpoint.RestoreOptions{
				Dir: dir, Deployment: h.Deployment, Partition: v.part.partition, ID: e.ID, Now: time.Now(), Log: v.o.Logger,
				Check: v.fits,
			})
			if err == nil {
				v.store, err = statestore.Open(dir, statestore.Options{Log: v.o.Logger})
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, statestore.ErrLayout) {
				v.skip("partition %d: checkpoint %s was made by another version of this program", v.part.partition, e.ID)
				continue
			}
			v.find("checkpoint", "", "checkpoint %s cannot be restored: %v", e.ID, err)
		}
	}
	if logStart > 0 {
		return fmt.Errorf("%w: it begins at offset %d, and no checkpoint can be used to start from", ErrLogTrimmed, logStart)
	}
	v.complete = true
	v.store, err = statestore.Open(dir, statestore.Options{Log: v.o.Logger})
	return err
}

// otherLayout says that another version of this program wrote a checkpoint: its
// state has other bytes, and is not to be used.
func (v *verifier) otherLayout(ctx context.Context, m *checkpoint.Manifest) bool {
	dir := filepath.Join(v.scratch, "layout")
	_, err := checkpoint.At(v.o.Store, v.o.Deployment, v.part.partition).Restore(ctx, checkpoint.RestoreOptions{
		Dir: dir, Deployment: m.Head().Deployment, Partition: v.part.partition, ID: m.ID(), Now: time.Now(), Log: v.o.Logger,
	})
	if err := os.RemoveAll(dir); err != nil {
		v.o.Logger.Warn("a folder of verify stays", "error", err)
	}
	return errors.Is(err, statestore.ErrLayout)
}

// fits holds a checkpoint's last record against the log (L5).
func (v *verifier) fits(ctx context.Context, m *checkpoint.Manifest) error {
	h := m.Head()
	src, err := topicRecords(ctx, v.src.client, v.src.topics.Transactions, v.part.partition, h.Offset, h.Offset+1)
	if err != nil {
		return err
	}
	defer src.close()
	rs, err := src.next(ctx)
	if err != nil {
		return err
	}
	if rs[0].Checksum() != h.Checksum {
		return fmt.Errorf("%w: the log has another record at offset %d: they are of two logs with the same beginning", statestore.ErrFork, h.Offset)
	}
	return nil
}

// apply brings the state to the log's end, and looks on its way at what stands
// at an offset.
func (v *verifier) apply(ctx context.Context, es []checkpoint.Entry) (err error) {
	from := v.store.Head().Offset + 1
	chains, err := v.src.openChains(ctx, &ReplayOptions{Compare: v.o.Store, Deployment: v.o.Deployment}, v.part)
	if err != nil {
		return err
	}
	defer chains.close()
	stops := map[int64][]func(context.Context) error{}
	if v.o.Deep {
		v.indexStops(stops)
	}
	v.memberStop(stops)
	if v.complete {
		for _, e := range slices.Backward(es) {
			if m := e.Manifest; m != nil && e.Offset < v.part.end {
				stops[e.Offset] = append(stops[e.Offset], func(ctx context.Context) error {
					if v.otherLayout(ctx, m) {
						v.skip("partition %d: checkpoint %s was made by another version of this program", v.part.partition, m.ID())
						return nil
					}
					return v.sameContent("checkpoint "+m.ID(), m.Content.SHA256)
				})
				break
			}
		}
	}
	stop := func(offset int64) error {
		for _, fn := range stops[offset] {
			if err := fn(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	if err := stop(from - 1); err != nil {
		return err
	}
	log, err := topicRecords(ctx, v.src.client, v.src.topics.Transactions, v.part.partition, from, v.part.end)
	if err != nil {
		return err
	}
	defer log.close()
	for since := 0; ; {
		rs, err := log.next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for i := range rs {
			m, err := state.Apply(ctx, v.store, v.bodies, &rs[i])
			if err != nil {
				return fmt.Errorf("log offset %d: %w", rs[i].Offset, err)
			}
			v.out.Records++
			n, err := chains.check(ctx, &m)
			v.out.Chains += n
			if errors.Is(err, ErrReplayDiffers) {
				v.find("chain", m.Table, "%v", err)
				chains.close()
				chains = &chainCheck{partition: v.part.partition} // what follows differs too
			} else if err != nil {
				return err
			}
			if err := v.note(ctx, &rs[i], &m); err != nil {
				return err
			}
			if since++; since >= replayCommitEvery || len(stops[rs[i].Offset]) > 0 {
				since = 0
				if err := v.commit(); err != nil {
					return err
				}
			}
			if err := stop(rs[i].Offset); err != nil {
				return err
			}
		}
		v.told(fmt.Sprintf("partition %d: the log", v.part.partition), v.store.Head().Offset-from+1, v.part.end-from)
	}
	return v.commit()
}

func (v *verifier) commit() error {
	box, err := v.store.Commit()
	if n := len(box.Outcomes); n > 0 {
		v.store.Sent(box.Outcomes[n-1].Offset)
	}
	return err
}

// note keeps what later checks must know of a record.
func (v *verifier) note(ctx context.Context, r *statestore.Record, m *record.OutcomeMessage) error {
	if m.Outcome.Code == record.Rejected {
		return nil
	}
	switch m.Type {
	case record.TypeAppendRows, record.TypeCompleteJob, record.TypeDeletePositions, record.TypeRowsFound, record.TypeAddFiles, record.TypeAdoptFiles, record.TypeForeignSnapshot:
		v.touched[m.TableID] = m.Offset
		if m.Type == record.TypeAddFiles || m.Type == record.TypeAdoptFiles || m.Type == record.TypeForeignSnapshot {
			v.imported[m.TableID] = true
		}
		if m.Type == record.TypeDeletePositions || m.Type == record.TypeRowsFound {
			x := v.gone[m.TableID]
			if x == nil {
				x = &deletedRows{finds: map[int64]int64{}}
				v.gone[m.TableID] = x
			}
			x.note(m)
		}
	case record.TypeSkipSource:
		v.skipped[m.TableID] = true
	}
	if !v.o.Source || m.Outcome.Code != record.Accepted {
		return nil
	}
	switch m.Type {
	case record.TypeAppendRows, record.TypeClaimShard, record.TypeDeleteKeys:
	default:
		return nil
	}
	env, body, err := v.bodies.Open(ctx, r.Key, r.Header, r.Value)
	if err != nil {
		return err
	}
	x, err := record.DecodeBody(env.Type, env.TypeVersion, body)
	if err != nil {
		return err
	}
	t := v.taken[m.TableID]
	if t == nil {
		t = &takenSource{runs: map[sourceShard][]takenRun{}}
		v.taken[m.TableID] = t
	}
	t.note(m.Offset, x)
	return nil
}

// sameContent holds the state's content hash against another's of this offset.
func (v *verifier) sameContent(whose, want string) error {
	dir := filepath.Join(v.scratch, "content")
	if err := v.store.Checkpoint(dir); err != nil {
		return err
	}
	im, err := statestore.Inspect(dir, true, statestore.Options{Log: v.o.Logger})
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		return err
	}
	if got := im.Content.String(); got != want {
		v.find("state", "", "%s has content hash %s at offset %d, the log gives %s", whose, want, im.Head.Offset, got)
		return nil
	}
	v.out.States++
	return nil
}

// memberStop looks at the state of the data folder where it stands.
func (v *verifier) memberStop(stops map[int64][]func(context.Context) error) {
	if !v.o.Stopped || v.o.Data == "" {
		return
	}
	dir := stateDir(v.o.Data, v.part.partition)
	if _, err := os.Stat(dir); err != nil {
		return
	}
	im, err := statestore.Inspect(dir, true, statestore.Options{Log: v.o.Logger})
	if errors.Is(err, statestore.ErrLayout) {
		v.skip("partition %d: the state folder %s was written by another version of this program: the next start makes it anew", v.part.partition, dir)
		return
	}
	if err != nil {
		v.find("state", "", "the state folder %s cannot be read: %v; the next start makes it anew from a checkpoint or the log", dir, err)
		return
	}
	if im.Head.Offset >= v.part.end {
		v.find("state", "", "the state folder %s stands at offset %d, the log ends at %d: the log lost records, or is another one", dir, im.Head.Offset, v.part.end)
		return
	}
	if im.Head.Offset < v.store.Head().Offset {
		v.skip("partition %d: the state folder stands at offset %d, before the checkpoint that this began with; --full compares it", v.part.partition, im.Head.Offset)
		return
	}
	stops[im.Head.Offset] = append(stops[im.Head.Offset], func(context.Context) error {
		h := v.store.Head()
		if h.Chain != im.Head.Chain {
			v.find("chain", "", "the state folder %s has chain hash %s at offset %d, the log gives %s: it was built from another log", dir, im.Head.Chain, h.Offset, h.Chain)
			return nil
		}
		v.out.Chains++
		before := len(v.out.Findings)
		if err := v.sameContent("the state folder "+dir, im.Content.String()); err != nil || len(v.out.Findings) == before {
			return err
		}
		st, err := statestore.Open(dir, statestore.Options{Log: v.o.Logger})
		if err != nil {
			return err
		}
		d, err := statestore.Compare(st, v.store)
		if err := errors.Join(err, st.Close()); err != nil || d == nil {
			return err
		}
		v.find("state", "", "the first difference of the state folder (first) and the log (second) is of kind %q, table id %d: %s", d.Kind, d.Table, d.How)
		return nil
	})
}

// logs finds the partitions and where their logs start.
func (s *replaySource) logs(ctx context.Context, o *ReplayOptions) ([]int64, error) {
	var starts []int64
	err := s.topicFrom(ctx, o, func(_ string, at PartitionOffsets) error {
		starts = append(starts, at.Start)
		return nil
	})
	return starts, err
}
