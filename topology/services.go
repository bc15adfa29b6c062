package topology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// Errors of requests to a node.
var (
	// ErrNoTable: the deployment has no table of that name.
	ErrNoTable = errors.New("no such table")
	// ErrRejected: the state machine rejected a request; the message says why.
	ErrRejected = errors.New("rejected")
)

func sortShards(s []ShardStatus) {
	slices.SortFunc(s, func(a, b ShardStatus) int {
		if c := strings.Compare(a.Table, b.Table); c != 0 {
			return c
		}
		return int(a.Partition - b.Partition)
	})
}

// Conn is a way into a deployment: its topics, its lake, and someone who has
// the state. A Node has one of its own; Dial makes one to a running node.
type Conn struct {
	deployment string
	client     ClientOptions
	admin      *Admin
	topics     Topics
	store      objstore.Store
	bodies     *processors.Bodies
	producer   *LogProducer   // transactions and outcomes
	letters    *LogProducer   // source topics and dead letters
	remote     OutsideCatalog // the outside catalog that tables are published to; nil: none, or not known here
	views      views
	stuck      func(*statestore.TableInfo) error // why a table will not be published; nil: nobody knows
	fatal      chan error
	// wait holds producers back while there is no room for what they bring.
	wait func(context.Context) error
}

// views is who has the state.
type views interface {
	head(ctx context.Context, partition int32) (statestore.Head, error)
	tables(ctx context.Context) ([]*statestore.TableInfo, error)
	table(ctx context.Context, name string) (*statestore.TableInfo, error) // nil: none
	// seen waits until the others know what was decided up to a log offset.
	seen(ctx context.Context, partition int32, offset int64) error
}

// Addr is the first broker's address.
func (n *Conn) Addr() string { return n.client.Brokers[0] }

// Brokers are the brokers' addresses.
func (n *Conn) Brokers() []string { return n.client.Brokers }

// Store is the lake's object store.
func (n *Conn) Store() objstore.Store { return n.store }

// Topics are the deployment's topics.
func (n *Conn) Topics() Topics { return n.topics }

// Bodies is the store of records' bodies.
func (n *Conn) Bodies() *processors.Bodies { return n.bodies }

// Tables lists the deployment's tables by name.
func (n *Conn) Tables(ctx context.Context) ([]*statestore.TableInfo, error) {
	return n.views.tables(ctx)
}

// Table is a table by name, an error wrapping ErrNoTable when there is none.
func (n *Conn) Table(ctx context.Context, name string) (*statestore.TableInfo, error) {
	t, err := n.views.table(ctx, name)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fmt.Errorf("%w: %s; `varve table list` shows the tables of deployment %s", ErrNoTable, name, n.deployment)
	}
	return t, nil
}

func (n *Conn) partition(table string) int32 {
	return schemas.PartitionOf(table, int32(n.topics.Partitions))
}

// nodeViews are a node's own states and, for partitions that other nodes have,
// its directories.
type nodeViews struct{ n *Node }

func (v nodeViews) tables(ctx context.Context) ([]*statestore.TableInfo, error) {
	var out []*statestore.TableInfo
	for p := range v.n.topics.Partitions {
		ts, err := v.partition(ctx, int32(p))
		if err != nil {
			return nil, err
		}
		out = append(out, ts...)
	}
	slices.SortFunc(out, func(a, b *statestore.TableInfo) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// on calls own with the partition's state, or elsewhere with what its directory
// knows. A partition may move to or from this node meanwhile.
func (v nodeViews) on(ctx context.Context, p int32, own func(*statestore.Store) error, elsewhere func(statestore.Head, map[string]*statestore.TableInfo)) error {
	for {
		if w := v.n.state(p); w != nil {
			err := w.read(func() error { return own(w.store) })
			if v.n.dirs == nil || !errors.Is(err, errMoved) {
				return err
			}
		}
		if v.n.dirs == nil {
			return fmt.Errorf("this node does not have the state of transactions partition %d", p)
		}
		h, ts, err := v.n.dirs[p].view(ctx)
		switch {
		case err == nil:
			elsewhere(h, ts)
			return nil
		case !errors.Is(err, errRests):
			return err
		}
		if err := sleep(ctx, shardTick); err != nil {
			return err
		}
	}
}

func (v nodeViews) partition(ctx context.Context, p int32) (out []*statestore.TableInfo, err error) {
	err = v.on(ctx, p, func(st *statestore.Store) error {
		return st.Tables(func(t *statestore.TableInfo) error {
			out = append(out, t)
			return nil
		})
	}, func(_ statestore.Head, ts map[string]*statestore.TableInfo) {
		out = slices.Collect(maps.Values(ts))
	})
	return out, err
}

func (v nodeViews) table(ctx context.Context, name string) (t *statestore.TableInfo, err error) {
	err = v.on(ctx, v.n.partition(name), func(st *statestore.Store) (err error) {
		t, err = st.Table(name)
		return err
	}, func(_ statestore.Head, ts map[string]*statestore.TableInfo) { t = ts[name] })
	return t, err
}

func (v nodeViews) head(ctx context.Context, p int32) (h statestore.Head, err error) {
	err = v.on(ctx, p, func(st *statestore.Store) error {
		h = st.Head()
		return nil
	}, func(known statestore.Head, _ map[string]*statestore.TableInfo) { h = known })
	return h, err
}

// seen: an outcome is sent after the state has it, a directory may be behind.
func (v nodeViews) seen(ctx context.Context, p int32, offset int64) error {
	for v.n.dirs != nil {
		h, err := v.head(ctx, p)
		if err != nil || h.Offset >= offset {
			return err
		}
		if err := sleep(ctx, shardTick); err != nil {
			return err
		}
	}
	return nil
}

// stateOf is the worker of a table's partition, nil when this node does not
// have it.
func (n *Node) stateOf(table string) *stateWorker { return n.state(n.partition(table)) }

// ingestKnown takes the shards of every table that the state has and that this
// node is to ingest. One whose definition no shard can work by does not hold up
// the others: status tells of it.
func (n *Node) ingestKnown(ctx context.Context) error {
	ts, err := n.Tables(ctx)
	if err != nil {
		return err
	}
	for _, t := range ts {
		if !n.opt.Ingests(t.Name) {
			continue
		}
		err := n.Ingest(ctx, t)
		if errors.Is(err, ErrNoTopic) && len(t.Shards) == 0 {
			// It was made without its topic, which may come; Ingest is called again then.
			n.log.Warn("a table waits for its source topic", "table", t.Name, "topic", t.Definition.SourceTopic)
			continue
		}
		if sourceFault(err) {
			n.stopTable(t.Name, err)
			continue
		}
		if errors.Is(err, ingest.ErrUnusable) {
			n.log.Error("a table is not ingested", "table", t.Name, "error", err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Request appends a record of a table and waits until the state has
// decided it. A rejection is in the outcome, not in the error.
func (n *Conn) Request(ctx context.Context, table string, tableID int64, v any) (record.OutcomeMessage, error) {
	return n.request(ctx, table, tableID, v, -1)
}

// request is Request of a sender who says how far he had read the log; -1: up to now.
func (n *Conn) request(ctx context.Context, table string, tableID int64, v any, seen int64) (record.OutcomeMessage, error) {
	part := n.partition(table)
	h, err := n.views.head(ctx, part)
	if err != nil {
		return record.OutcomeMessage{}, err
	}
	if seen < 0 {
		seen = h.Offset
	}
	m, err := n.bodies.Message(ctx, record.Envelope{
		ApplyVersion: h.ApplyVersion, Request: record.NewRequestID(), OffsetSeen: seen, Table: table, TableID: tableID,
	}, v)
	if err != nil {
		return record.OutcomeMessage{}, err
	}
	off, err := n.producer.AppendSync(ctx, n.topics.Transactions, part, logEntry(m))
	if err != nil {
		return record.OutcomeMessage{}, fmt.Errorf("append a %s record: %w", record.TypeOf(v), err)
	}
	out, err := n.outcome(ctx, part, off)
	if err == nil {
		err = n.views.seen(ctx, part, off)
	}
	return out, err
}

// outcome waits for the outcome of a log offset in the outcomes topic.
func (n *Conn) outcome(ctx context.Context, partition int32, offset int64) (record.OutcomeMessage, error) {
	var out record.OutcomeMessage
	err := n.follow(ctx, partition, offset, func(d *processors.Decided) bool {
		if d.Outcome.Derived || d.Outcome.Offset != offset {
			return false
		}
		out = d.Outcome
		return true
	})
	return out, err
}

// follow reads decided entries from an offset until fn says true.
func (n *Conn) follow(ctx context.Context, partition int32, from int64, fn func(*processors.Decided) bool) error {
	d, err := openDecided(ctx, n.client, n.topics, partition, from)
	if err != nil {
		return err
	}
	defer d.close()
	for {
		ds, err := d.poll(ctx, 100*time.Millisecond)
		if err != nil {
			return err
		}
		for i := range ds {
			if fn(&ds[i]) {
				return nil
			}
		}
		if err := n.stopped(); err != nil {
			return err
		}
	}
}

// publishStuck is why a table is not published until a person acts, nil when it is.
func (n *Node) publishStuck(t *statestore.TableInfo) error {
	w := n.stateOf(t.Name)
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stuck[t.ID]
}

// tell makes an error known to all who wait.
func (n *Conn) tell(err error) {
	select {
	case n.fatal <- err:
	default: // another one is there
	}
}

// stopped is what stopped a role of the node, nil when all run.
func (n *Conn) stopped() error {
	select {
	case err := <-n.fatal:
		n.tell(err)
		return err
	default:
		return nil
	}
}

// EnsureTable creates a table, or finds it as it is. A definition that differs
// in what cannot change by itself is an error wrapping ErrConfig.
func (n *Conn) EnsureTable(ctx context.Context, def schemas.Definition) (t *statestore.TableInfo, created bool, err error) {
	if t, err = n.Table(ctx, def.Name); err == nil {
		return t, false, sameTable(t.Definition, &def)
	}
	if !errors.Is(err, ErrNoTable) {
		return nil, false, err
	}
	if err := checkIngestable(&def); err != nil {
		return nil, false, err
	}
	c := record.CreateTable{Definition: def}
	suffix := true
	if c.Definition.Location == "" {
		if c.Definition.Location, suffix, err = n.place(ctx, &c.Definition); err != nil {
			return nil, false, err
		}
	}
	if used, err := n.folderUsed(ctx, def.Name); err != nil {
		return nil, false, err
	} else if used && suffix {
		c.SuffixID = true
	}
	out, err := n.Request(ctx, def.Name, -1, &c)
	if err != nil {
		return nil, false, err
	}
	switch {
	case out.Outcome.Code == record.Accepted:
		created = true
	case out.Outcome.Reason == record.TableExists:
	case out.Outcome.Reason == record.BadDefinition:
		return nil, false, fmt.Errorf("%w: table %s: its definition cannot be a table: check schema, key, ordering column and partition spec", ErrConfig, def.Name)
	default:
		return nil, false, fmt.Errorf("create table %s: %w: %s", def.Name, ErrRejected, out.Outcome.Reason)
	}
	if t, err = n.Table(ctx, def.Name); err != nil {
		return nil, false, err
	}
	if !created {
		return t, false, sameTable(t.Definition, &def)
	}
	return t, true, nil
}

// checkIngestable refuses a definition that apply would take, but no shard
// could work with: it would stand in every node's way from then on.
func checkIngestable(d *schemas.Definition) error {
	if len(d.Schemas) == 0 || d.SchemaByID(d.CurrentSchema) == nil {
		return nil // apply says what is wrong with it
	}
	s := d.Schema()
	if err := s.Validate(); err != nil {
		return fmt.Errorf("%w: table %s: %w", ErrConfig, d.Name, err)
	}
	if err := checkRepartition(d); err != nil {
		return err
	}
	_, err := source.Open(d, d.Schema(), nil)
	if err == nil && d.Keyed() {
		_, err = rows.NewKeyEncoder(d.Schema(), d.Key)
	}
	if spec := d.Spec(d.DefaultSpec); err == nil && spec != nil && len(spec.Fields) > 0 {
		_, err = rows.NewTupleEncoder(d.Schema(), spec)
	}
	if err != nil {
		return fmt.Errorf("%w: table %s: %w", ErrConfig, d.Name, err)
	}
	return nil
}

func tablePath(name string) string {
	ns, t := schemas.SplitName(name)
	return ns + "/" + t
}

var errFound = errors.New("found")

func (n *Conn) folderUsed(ctx context.Context, name string) (bool, error) {
	err := n.store.List(ctx, tablePath(name)+"/metadata/", func(objstore.Info) error { return errFound })
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, err
}

// sameTable compares what a configuration says of a table with what it is.
func sameTable(have, want *schemas.Definition) error {
	differ := func(what, a, b string) error {
		return fmt.Errorf("%w: table %s has %s, not %s; leave it out to use the table as it is, or use another name", ErrConfig, have.Name, what+" "+a, b)
	}
	if format, _ := have.SourceFormat(); want.Format != "" && want.Format != format {
		return differ("format", format, want.Format)
	}
	if want.SourceTopic != "" && want.SourceTopic != have.SourceTopic {
		return differ("source topic", have.SourceTopic, want.SourceTopic)
	}
	if a, b := keyNames(have), keyNames(want); len(want.Schemas) > 0 && a != b {
		switch {
		case a == "":
			return fmt.Errorf("%w: table %s only gains rows: it has no key, not %s; leave it out to use the table as it is, or use another name", ErrConfig, have.Name, b)
		case b == "":
			return fmt.Errorf("%w: table %s has key %s and cannot be one that only gains rows; leave that out to use the table as it is, or use another name", ErrConfig, have.Name, a)
		}
		return differ("key", a, b)
	}
	if want.Order.Kind != have.Order.Kind || want.Order.Path != have.Order.Path {
		if len(want.Schemas) > 0 {
			return fmt.Errorf("%w: table %s has another ordering column; use another name", ErrConfig, have.Name)
		}
	}
	return nil
}

func keyNames(d *schemas.Definition) string {
	if len(d.Schemas) == 0 {
		return ""
	}
	s := d.Schema()
	var out []string
	for _, id := range d.Key {
		if i := s.ByID(id); i >= 0 {
			out = append(out, s.Fields[i].Name)
		}
	}
	return strings.Join(out, ",")
}

// SourceEvent is one record to produce into a source topic. A nil Key or Value
// is null; Partition -1 chooses by the key, as Kafka's own producer does.
type SourceEvent struct {
	Key, Value []byte
	Headers    []Header
	Partition  int32
}

// Produce publishes events into a source topic, which is made with so many
// partitions when it is not there, and waits for the broker to have them all.
func (n *Conn) Produce(ctx context.Context, topic string, partitions int, next func() (*SourceEvent, error), progress func(int64)) (int64, error) {
	return produceTo(ctx, n.admin, n.client, topic, partitions, n.wait, next, progress)
}

func produce(ctx context.Context, p *LogProducer, topic string, partitions int32, wait func(context.Context) error, next func() (*SourceEvent, error), progress func(int64)) (int64, error) {
	failed := make(chan error, 1)
	var n int64
	for {
		if wait != nil && n%1024 == 0 {
			if err := wait(ctx); err != nil {
				return n, err
			}
		}
		e, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return n, err
		}
		part := e.Partition
		switch {
		case part >= partitions:
			return n, fmt.Errorf("%w: event %d names partition %d of topic %s, which has %d", ErrConfig, n+1, part, topic, partitions)
		case part < 0 && e.Key == nil:
			part = int32(n % int64(partitions))
		case part < 0:
			part = int32(schemas.Murmur2(e.Key)&0x7fffffff) % partitions
		}
		p.Append(ctx, topic, part, Entry{Key: e.Key, Value: e.Value, Headers: e.Headers}, func(_ int64, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
		if n++; n%10_000 == 0 && progress != nil {
			progress(n)
		}
		select {
		case err := <-failed:
			return n, err
		default:
		}
	}
	if err := p.Flush(ctx); err != nil {
		return n, err
	}
	select {
	case err := <-failed:
		return n, err
	default:
		return n, nil
	}
}

// LoadProgress is how far a load is.
type LoadProgress struct {
	Read, Of int64 // source offsets taken into the log, and how many there are
	// Snapshot says that all is in the log and the snapshot is being made.
	Snapshot bool
}

// loadPatience is how long a load waits for what is away.
var loadPatience = 30 * time.Second // tests have less

// WaitLoaded waits until every event that the table's source holds now is in a
// committed snapshot (foundations.md, `load`).
func (n *Node) WaitLoaded(ctx context.Context, table string, progress func(LoadProgress)) error {
	t, err := n.Table(ctx, table)
	if err != nil {
		return err
	}
	if t.Definition.Rekeyed() {
		if err := n.waitMoved(ctx, t, progress); err != nil {
			return err
		}
	}
	ends, err := n.admin.Offsets(ctx, n.shardTopic(t.Definition))
	if err != nil {
		return err
	}
	var waitsSince time.Time
	for {
		if t, err = n.Table(ctx, table); err != nil {
			return err
		}
		var p LoadProgress
		loaded, waits := true, ""
		for i := range ends {
			p.Of += ends[i].High - ends[i].Start
			end := int64(-1)
			for _, s := range t.Shards {
				if s.Partition == int32(i) && s.Topic == n.shardTopic(t.Definition) {
					end = s.SourceEnd
				}
			}
			if end < ends[i].High {
				loaded = false
				if why := n.flushTable(table, ends[i].High, int32(i)); why != "" {
					waits = why
				}
			}
			if end > ends[i].Start {
				p.Read += end - ends[i].Start
			}
		}
		if !loaded {
			// Nothing else tells of it: the node goes on without the shard.
			why, err := n.groupWaits(table)
			if err != nil {
				return err
			}
			if waits == "" {
				waits = why
			}
		}
		switch {
		case waits == "":
			waitsSince = time.Time{}
		case waitsSince.IsZero():
			waitsSince = time.Now()
		case time.Since(waitsSince) > loadPatience:
			return fmt.Errorf("table %s: %s; what is not loaded yet is loaded by the next start", table, waits)
		}
		p.Snapshot = loaded
		if progress != nil {
			progress(p)
		}
		if loaded {
			return n.WaitVisible(ctx, table, t.LastChange)
		}
		if err := n.pause(ctx); err != nil {
			return err
		}
	}
}

// groupWaits is why a table's shards on this node do not go on: an error when
// one stopped, else what the table waits for.
func (n *Node) groupWaits(table string) (string, error) {
	for _, s := range n.Shards() {
		if s.Table == table && s.Stage == ingest.Stopped {
			return "", errors.New(s.Err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refused[table], nil
}

// flushTable asks a shard that has read to the end to flush at once. waits is
// what it waits for.
func (n *Node) flushTable(table string, high int64, partition int32) (waits string) {
	n.mu.Lock()
	w := n.shards[shardName(table, partition)]
	n.mu.Unlock()
	if w == nil {
		return ""
	}
	w.mu.Lock()
	at, waits := w.status.Position, w.status.Waiting
	w.mu.Unlock()
	if at >= high {
		w.flushSoon()
	}
	return waits
}

// pause waits a little, or ends with what stopped the node.
func (n *Conn) pause(ctx context.Context) error {
	if err := sleep(ctx, shardTick); err != nil {
		return err
	}
	return n.stopped()
}

// waitsForShards says that changes wait for files which shards have still to take: no
// cut is made before (C1).
func waitsForShards(t *statestore.TableInfo) bool {
	return len(t.Held) > 0 && slices.ContainsFunc(t.Shards, func(s statestore.ShardInfo) bool { return !s.Retired })
}

// WaitVisible waits until a committed snapshot, or commit of metadata, holds
// what the log offset changed.
func (n *Conn) WaitVisible(ctx context.Context, table string, offset int64) error {
	for {
		t, err := n.Table(ctx, table)
		if err != nil {
			return err
		}
		if t.Head.Through >= offset || t.Pending == nil && !t.Changes && !waitsForShards(t) {
			return nil
		}
		if n.stuck != nil {
			if err := n.stuck(t); err != nil {
				return err
			}
		}
		if err := n.pause(ctx); err != nil {
			return err
		}
	}
}

// DeleteKeys asks every shard to delete keys, given in canonical bytes,
// ascending and distinct (A5). order is the request's ordering value, nil: none.
func (n *Conn) DeleteKeys(ctx context.Context, table string, keys [][]byte, order *int64) (int64, error) {
	t, err := n.Table(ctx, table)
	if err != nil {
		return 0, err
	}
	b, err := record.EncodeKeysBody(nil, &record.KeysBody{Keys: keys})
	if err != nil {
		return 0, err
	}
	ref, err := n.bodies.Put(ctx, b)
	if err != nil {
		return 0, err
	}
	d := record.DeleteKeys{Keys: ref, Count: int64(len(keys))}
	if order != nil {
		d.HasOrder, d.Order = true, *order
	}
	out, err := n.Request(ctx, table, t.ID, &d)
	if err != nil {
		return 0, err
	}
	if out.Outcome.Code != record.Accepted {
		return 0, fmt.Errorf("delete from %s: %w: %s", table, ErrRejected, out.Outcome.Reason)
	}
	return out.Offset, nil
}

// WaitSettled waits until every shard has answered the request at a log offset,
// and returns the log offset up to which its effects lie.
func (n *Conn) WaitSettled(ctx context.Context, table string, offset int64) (int64, error) {
	for {
		t, err := n.Table(ctx, table)
		if err != nil {
			return 0, err
		}
		if !slices.Contains(t.Requests, offset) {
			return t.LastChange, nil
		}
		if err := n.pause(ctx); err != nil {
			return 0, err
		}
	}
}

// Transactions calls fn with the decided entries of a table's partition from a
// log offset, or from where the log begins, up to where it ends now. Entries of
// other tables come too.
func (n *Conn) Transactions(ctx context.Context, table string, from int64, fn func(*processors.Decided) error) error {
	part := n.partition(table)
	offsets, err := n.admin.Offsets(ctx, n.topics.Transactions)
	if err != nil {
		return err
	}
	high := offsets[part].High
	from = max(from, offsets[part].Start) // what came before was cut off (G5)
	if from >= high {
		return nil
	}
	var failed error
	err = n.follow(ctx, part, from, func(d *processors.Decided) bool {
		if failed = fn(d); failed != nil {
			return true
		}
		return !d.Outcome.Derived && d.Outcome.Offset >= high-1
	})
	return errors.Join(failed, err)
}

// SourceLag is how many offsets of a table's source its shards have not read.
func (n *Conn) SourceLag(ctx context.Context, t *statestore.TableInfo) (int64, error) {
	ends, err := n.admin.Offsets(ctx, n.shardTopic(t.Definition))
	if errors.Is(err, ErrNoTopic) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	at := make([]int64, len(ends))
	for i := range t.Shards {
		if s := &t.Shards[i]; !s.Retired && int(s.Partition) < len(at) {
			at[s.Partition] = s.SourceEnd
		}
	}
	lag := int64(0)
	for p := range ends {
		lag += max(0, ends[p].Stable-max(at[p], ends[p].Start))
	}
	return lag, nil
}
