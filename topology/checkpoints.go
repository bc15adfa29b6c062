package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/checkpoint"
	"github.com/varve-io/varve/statestore/objstore"
)

// Defaults of CheckpointOptions.
const (
	DefaultCheckpointRecords  = 1 << 20
	DefaultCheckpointInterval = 15 * time.Minute
)

// CheckpointOptions say when the state of a partition is kept in the object
// store, for members without it to start from.
type CheckpointOptions struct {
	// Records is how many records of the log may be applied until there is a new
	// checkpoint. Default: DefaultCheckpointRecords; below zero: any number.
	Records int64
	// Interval is how long records may wait for a new checkpoint. Without new
	// records there is none. Default: DefaultCheckpointInterval; below zero: for ever.
	Interval time.Duration
	// Keep is how many checkpoints of a partition stay. Default: checkpoint.DefaultKeep.
	Keep int
	// Grace is how long files stay in the store that no checkpoint names any
	// more; it must be longer than two checkpoints take, and than the clocks of
	// node and store differ. Default: checkpoint.DefaultGrace.
	Grace time.Duration
	// IndexAppends is how many appends of a shard may be accepted until its key
	// index goes to the object store, for a member that takes the shard over.
	// Default: ingest.DefaultCheckpointAppends.
	IndexAppends int
	// IndexEvery is after how long it goes there though fewer were accepted, if the
	// table changed: what left the table later cannot be collected.
	// Default: ingest.DefaultCheckpointEveryMs; below zero: for ever.
	IndexEvery time.Duration
	// Rate bounds the upload, in bytes a second. Default: checkpoint.DefaultRate;
	// below zero: not at all.
	Rate int64
}

func (o CheckpointOptions) defaulted() CheckpointOptions {
	if o.Records == 0 {
		o.Records = DefaultCheckpointRecords
	}
	if o.Interval == 0 {
		o.Interval = DefaultCheckpointInterval
	}
	if o.Grace == 0 {
		o.Grace = checkpoint.DefaultGrace
	}
	return o
}

const (
	// checkpointLook is how often a partition looks whether a checkpoint is due.
	checkpointLook = 10 * time.Second
	// checkpointRetry is how long a failed one is not tried again.
	checkpointRetry = time.Minute
	// checkpointTurn is how often one that waits for another looks for its turn.
	checkpointTurn = 50 * time.Millisecond
)

// CheckpointStatus is what a node knows of the checkpoints of a partition
// whose state it has.
type CheckpointStatus struct {
	Partition int32  `json:"partition"`
	ID        string `json:"id,omitempty"`
	Offset    int64  `json:"offset"`   // of the newest, -1: none is known
	MadeMs    int64  `json:"made_ms"`  // table time of one that another node or run made; 0: none is known
	Behind    int64  `json:"behind"`   // records that it lacks
	Running   bool   `json:"running"`  // one is being made
	Uploaded  int64  `json:"uploaded"` // bytes of that, of
	ToUpload  int64  `json:"to_upload"`
	// Restored is the checkpoint that the state was started from, "": none.
	Restored string `json:"restored,omitempty"`
	Error    string `json:"error,omitempty"` // of the last attempt
}

// CheckpointMade is a checkpoint that was asked for.
type CheckpointMade struct {
	Partition int32  `json:"partition"`
	ID        string `json:"id"`
	Offset    int64  `json:"offset"`
	Uploaded  int64  `json:"uploaded"`
	Shared    int64  `json:"shared"`
	TookMs    int64  `json:"took_ms"`
}

// keeper keeps checkpoints of one partition while its state is driven.
type keeper struct {
	place checkpoint.Place
	ask   chan chan askedCheckpoint

	mu     sync.Mutex
	status CheckpointStatus
	avoid  map[string]bool // objects that are known to be damaged
}

type askedCheckpoint struct {
	made *CheckpointMade
	err  error
}

func newKeeper(place checkpoint.Place, partition int32) *keeper {
	return &keeper{place: place, ask: make(chan chan askedCheckpoint), status: CheckpointStatus{Partition: partition, Offset: -1}, avoid: map[string]bool{}}
}

func (k *keeper) set(fn func(*CheckpointStatus)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fn(&k.status)
}

func stateDir(data string, partition int32) string {
	return filepath.Join(data, "state", strconv.Itoa(int(partition)))
}

// openStore opens the state of a partition. Without one, or with one that is
// damaged or that its log has left behind, it starts from the newest checkpoint
// that fits the log; without such a one from the log's beginning.
func (n *Node) openStore(ctx context.Context, p int32, dir string) (*statestore.Store, *keeper, error) {
	k := newKeeper(checkpoint.At(n.store, n.opt.Deployment, p), p)
	log := n.log.With("partition", p)
	offsets, err := n.admin.Offsets(ctx, n.topics.Transactions)
	if err != nil {
		return nil, nil, err
	}
	at := offsets[p]
	st, why, err := n.localState(dir, at.Start)
	if err != nil || st != nil {
		return st, k, err
	}
	if why != "" {
		log.Warn("the local state is of no use; another one is looked for, this one is set aside", "folder", dir, "because", why)
	}
	none := n.restoreState(ctx, p, dir, at, k)
	switch {
	case none == nil:
	case !errors.Is(none, checkpoint.ErrNone):
		return nil, nil, none
	case at.Start > 0:
		if why == "" {
			why = "there is none"
		}
		return nil, nil, fmt.Errorf("topic %s partition %d: %w: it begins at offset %d, and there is nothing to start from: local state %s: %s; checkpoints: %w; "+
			"restore the checkpoint's objects or the log's beginning from a copy; nothing was changed", n.topics.Transactions, p, ErrLogTrimmed, at.Start, dir, why, none)
	default:
		aside, err := checkpoint.SetAside(vfs.Default, dir, time.Now())
		if err != nil {
			return nil, nil, fmt.Errorf("set a state folder aside: %w", err)
		}
		if aside != "" {
			log.Warn("a state folder was set aside; the state is built again from the log", "folder", aside)
		}
		if at.High > 1 {
			log.Info("no checkpoint to start from; the state is built from the log", "records", at.High, "checkpoints", none)
		}
	}
	st, err = statestore.Open(dir, statestore.Options{Log: n.log})
	return st, k, err
}

// localState opens the state that is there. nil without an error: there is
// none, or why says why it cannot be used.
func (n *Node) localState(dir string, logStart int64) (st *statestore.Store, why string, err error) {
	es, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(es) == 0 {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the state folder: %w", err)
	}
	if why, err := markedDamaged(dir); err != nil || why != "" {
		return nil, why, err
	}
	st, err = statestore.Open(dir, statestore.Options{Log: n.log})
	switch {
	case statestore.IsDamage(err), errors.Is(err, os.ErrNotExist):
		return nil, err.Error(), nil
	case err != nil:
		return nil, "", err
	}
	h := st.Head()
	switch {
	case h.Offset < 0 && !holdsTables(es):
		return nil, "", errors.Join(st.Close(), os.RemoveAll(dir)) // nothing was applied yet
	case h.Offset < 0:
		return nil, "its database has files, but nothing that was applied", st.Close()
	case h.Offset < logStart && h.Deployment == n.id:
		return nil, fmt.Sprintf("it stands at offset %d, and its log begins at %d", h.Offset, logStart), st.Close()
	}
	return st, "", nil
}

// holdsTables says whether a database had anything flushed to it.
func holdsTables(es []os.DirEntry) bool {
	for _, e := range es {
		if strings.HasSuffix(e.Name(), ".sst") {
			return true
		}
	}
	return false
}

// A state that was found damaged while it was used has a mark beside its
// folder: what is damaged may not be read at the next start before much was
// applied to it.
func damageMark(dir string) string { return dir + ".damaged" }

func markedDamaged(dir string) (string, error) {
	b, err := os.ReadFile(damageMark(dir))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the mark of a damaged state: %w", err)
	}
	return string(b), nil
}

// markDamaged notes that a state's folder is damaged, so that the next start
// does not use it.
func (w *stateWorker) markDamaged(err error) {
	if !statestore.IsDamage(err) {
		return
	}
	dir := stateDir(w.n.opt.Data, w.partition)
	w.log.Error("the state folder is damaged; the next start sets it aside and starts from a checkpoint or the log", "folder", dir, "error", err)
	if err := writeSynced(damageMark(dir), []byte(err.Error())); err != nil {
		w.log.Error("a damaged state could not be marked; remove its folder by hand", "folder", dir, "error", err)
	}
}

// restoreState brings the newest checkpoint that fits the log into the folder.
// A store that is away is waited for.
func (n *Node) restoreState(ctx context.Context, p int32, dir string, at PartitionOffsets, k *keeper) error {
	outcomes, err := n.admin.Offsets(ctx, n.topics.Outcomes)
	if err != nil {
		return err
	}
	if outcomes[p].High == 0 {
		// They are sent again only by a state that applies all of the log.
		return fmt.Errorf("%w: topic %s partition %d has no outcomes", checkpoint.ErrNone, n.topics.Outcomes, p)
	}
	log := n.log.With("partition", p)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make the state folder: %w", err)
	}
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		r, err := k.place.Restore(ctx, checkpoint.RestoreOptions{
			Dir: dir, Deployment: n.id, Partition: p, Now: time.Now(), Log: log, State: statestore.Options{Log: n.log},
			Check: func(ctx context.Context, m *checkpoint.Manifest) error { return n.checkCheckpoint(ctx, m, at) },
		})
		k.mu.Lock()
		for o := range r.Bad {
			k.avoid[o] = true
		}
		k.mu.Unlock()
		if err == nil {
			if r.Aside != "" {
				log.Warn("a state folder was set aside; it can be removed once it is of no interest", "folder", r.Aside)
			}
			if err := os.Remove(damageMark(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("remove the mark of a damaged state: %w", err)
			}
			m := r.Manifest
			k.set(func(s *CheckpointStatus) { s.Restored, s.ID, s.Offset, s.MadeMs = m.ID(), m.ID(), m.Offset, m.TimeMs })
			log.Info("state restored from a checkpoint", "checkpoint", m.ID(), "offset", m.Offset, "bytes", m.Bytes(), "took", r.Took.Round(time.Millisecond), "tail", at.High-1-m.Offset)
			return nil
		}
		if errors.Is(err, checkpoint.ErrNone) || errors.Is(err, objstore.ErrNoSpace) || isLocal(err) {
			return err
		}
		if ctx.Err() != nil {
			return err
		}
		log.Warn("a checkpoint cannot be read now; it is tried again", "error", err)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// isLocal says whether an error is of the local disk: nothing that waiting mends.
func isLocal(err error) bool {
	var p *os.PathError
	var l *os.LinkError
	return errors.As(err, &p) || errors.As(err, &l)
}

// checkCheckpoint holds a checkpoint against the log (L5): its last record must
// stand there, with the chain hash that the outcomes topic has of it.
func (n *Node) checkCheckpoint(ctx context.Context, m *checkpoint.Manifest, at PartitionOffsets) error {
	h := m.Head()
	p := h.Partition
	if h.Offset < at.Start || h.Offset >= at.High {
		return fmt.Errorf("%w: checkpoint %s stands at offset %d, topic %s partition %d holds %d to %d", checkpoint.ErrUnfit, m.ID(), h.Offset, n.topics.Transactions, p, at.Start, at.High)
	}
	r, err := n.readOne(ctx, n.topics.Transactions, p, h.Offset)
	if err != nil {
		return err
	}
	rec := stateRecord(r)
	if rec.Offset != h.Offset || rec.Checksum() != h.Checksum {
		return fmt.Errorf("%w: checkpoint %s: topic %s partition %d has another record at offset %d", statestore.ErrFork, m.ID(), n.topics.Transactions, p, h.Offset)
	}
	return n.checkChain(ctx, &h, m.ID())
}

// checkChain compares a chain hash with that of the outcome at its offset, if
// the outcomes topic has it.
func (n *Node) checkChain(ctx context.Context, h *statestore.Head, id string) error {
	outcomes, err := openOutcomes(ctx, n.client, n.topics, h.Partition, h.Offset, 100*time.Millisecond)
	if err != nil {
		return err
	}
	defer outcomes.Close()
	for {
		rs, err := outcomes.Poll(ctx, time.Second, 0)
		if err != nil {
			return err
		}
		for i := range rs {
			var m record.OutcomeMessage
			if !isOutcome(&rs[i], &m) || m.Derived || m.Offset < h.Offset {
				continue
			}
			if m.Offset == h.Offset && m.Chain != h.Chain {
				return fmt.Errorf("%w: checkpoint %s: topic %s partition %d tells another chain hash at log offset %d", statestore.ErrFork, id, n.topics.Outcomes, h.Partition, h.Offset)
			}
			return nil
		}
		if outcomes.Next() >= outcomes.HighWatermark() {
			return nil
		}
	}
}

// keepCheckpoints makes checkpoints when they are due or asked for, until ctx ends.
func (w *stateWorker) keepCheckpoints(ctx context.Context) {
	k, o := w.keeper, w.n.opt.Checkpoints.defaulted()
	look := checkpointLook
	if o.Interval > 0 {
		look = min(look, max(o.Interval/4, time.Millisecond))
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	since, notBefore := time.Now(), time.Time{}
	known := k.status.Offset >= 0 // only this goroutine writes it from here on
	for {
		var answer chan askedCheckpoint
		select {
		case <-ctx.Done():
			return
		case answer = <-k.ask:
		case <-tick.C:
		}
		head := w.store.Head().Offset
		if !known {
			switch m, err := k.place.Newest(ctx, w.n.id, w.partition, nil, nil); {
			case err == nil && m.Offset <= head:
				k.set(func(s *CheckpointStatus) { s.ID, s.Offset, s.MadeMs = m.ID(), m.Offset, m.TimeMs })
				known = true
			case err == nil || errors.Is(err, checkpoint.ErrNone):
				known = true
			}
		}
		if answer == nil {
			behind := head - k.status.Offset
			due := o.Records > 0 && behind >= o.Records || o.Interval > 0 && behind > 0 && time.Since(since) >= o.Interval
			if !due || time.Now().Before(notBefore) {
				continue
			}
		}
		made, err := w.checkpoint(ctx, &o)
		if err == nil {
			since = time.Now()
		} else {
			notBefore = time.Now().Add(min(checkpointRetry, max(o.Interval, look)))
		}
		if answer != nil {
			answer <- askedCheckpoint{made, err} // there is room for it
		}
	}
}

// checkpoint makes one and expires old ones. Only one is made at a time on a node.
func (w *stateWorker) checkpoint(ctx context.Context, o *CheckpointOptions) (*CheckpointMade, error) {
	n, k := w.n, w.keeper
	for !n.checkpointing.TryLock() {
		if err := sleep(ctx, checkpointTurn); err != nil {
			return nil, err
		}
	}
	defer n.checkpointing.Unlock()
	k.mu.Lock()
	avoid := make(map[string]bool, len(k.avoid))
	for object := range k.avoid {
		avoid[object] = true
	}
	k.mu.Unlock()
	k.set(func(s *CheckpointStatus) { s.Running, s.Uploaded, s.ToUpload = true, 0, 0 })
	made, err := k.place.Create(ctx, w.store, checkpoint.CreateOptions{
		Scratch: stateDir(n.opt.Data, w.partition) + ".checkpoint", Rate: o.Rate, Grace: o.Grace, Avoid: avoid, State: statestore.Options{Log: n.log},
		Progress: func(done, total int64) { k.set(func(s *CheckpointStatus) { s.Uploaded, s.ToUpload = done, total }) },
	})
	now := time.Now()
	k.set(func(s *CheckpointStatus) {
		s.Running, s.Error = false, ""
		if err != nil {
			s.Error = err.Error()
		}
		if err == nil {
			s.ID, s.Offset, s.MadeMs = made.Manifest.ID(), made.Manifest.Offset, now.UnixMilli()
		}
	})
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("no checkpoint of the state; it is tried again", "error", err)
		}
		return nil, err
	}
	m := made.Manifest
	w.log.Info("checkpoint of the state", "checkpoint", m.ID(), "offset", m.Offset, "uploaded", made.Uploaded, "shared", made.Shared, "took", made.Took.Round(time.Millisecond))
	x, err := k.place.Expire(ctx, checkpoint.ExpireOptions{Keep: o.Keep, Grace: o.Grace, Offset: m.Offset, Now: now})
	switch {
	case err != nil && ctx.Err() == nil:
		w.log.Warn("old checkpoints could not be removed; they are tried again after the next one", "error", err)
	case err == nil && x.Manifests+x.Files > 0:
		w.log.Info("old checkpoints removed", "checkpoints", x.Manifests, "files", x.Files, "bytes", x.Bytes)
	}
	return &CheckpointMade{
		Partition: w.partition, ID: m.ID(), Offset: m.Offset, Uploaded: made.Uploaded, Shared: made.Shared, TookMs: made.Took.Milliseconds(),
	}, nil
}

// askCheckpoint has a partition's keeper make one now.
func (w *stateWorker) askCheckpoint(ctx context.Context) (*CheckpointMade, error) {
	answer := make(chan askedCheckpoint, 1)
	select {
	case w.keeper.ask <- answer:
	case <-ctx.Done():
		return nil, fmt.Errorf("partition %d: its state is not driven now, or a checkpoint of it is under way: %w", w.partition, ctx.Err())
	}
	select {
	case a := <-answer:
		return a.made, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// checkpointStatus is where the checkpoints of the node's partitions stand.
func (w *stateWorker) checkpointStatus(head int64) CheckpointStatus {
	w.keeper.mu.Lock()
	defer w.keeper.mu.Unlock()
	s := w.keeper.status
	s.Behind = max(0, head-s.Offset)
	return s
}

// Checkpoint makes checkpoints of the partitions whose state this node has, of
// one or (-1) of all.
func (n *Node) Checkpoint(ctx context.Context, partition int32) ([]CheckpointMade, error) {
	out := []CheckpointMade{}
	for _, w := range n.openStateList() {
		if partition >= 0 && w.partition != partition {
			continue
		}
		m, err := w.askCheckpoint(ctx)
		if err != nil {
			return out, err
		}
		out = append(out, *m)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("this node does not have the state of partition %d", partition)
	}
	return out, nil
}

// commandHeader marks requests of commands: no page in a browser can send it.
const commandHeader = "X-Varve-Command"

func (n *Node) serveCheckpoint(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(commandHeader) == "" {
		http.Error(w, "not a request of a varve command", http.StatusForbidden)
		return
	}
	p := int64(-1)
	if v := r.URL.Query().Get("partition"); v != "" {
		var err error
		if p, err = strconv.ParseInt(v, 10, 32); err != nil {
			http.Error(w, "partition: "+err.Error(), http.StatusBadRequest)
			return
		}
	}
	made, err := n.Checkpoint(r.Context(), int32(p))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(made); err != nil {
		n.log.Debug("answer not written", "error", err)
	}
}

// RequestCheckpoint asks the node that runs on a data folder for checkpoints;
// an error wrapping ErrNotRunning when none does.
func RequestCheckpoint(ctx context.Context, data string, partition int32) ([]CheckpointMade, error) {
	c, _, err := Dial(ctx, data, ClientOptions{})
	if err != nil {
		return nil, err
	}
	if err := c.CloseConn(); err != nil {
		return nil, err
	}
	f, err := readNodeFile(data)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("%w: %s", ErrNotRunning, data)
	}
	url := f.Admin + "/checkpoints"
	if partition >= 0 {
		url += "?partition=" + strconv.Itoa(int(partition))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the node: %w", err)
	}
	req.Header.Set(commandHeader, "checkpoint")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the node: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("ask the node: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the node: %s", strings.TrimSpace(string(b)))
	}
	var out []CheckpointMade
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("the node's answer: %w", err)
	}
	return out, nil
}
