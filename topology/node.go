package topology

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/topology/restcatalog"
)

// ErrConfig marks errors of a configuration that cannot work: exit code 2.
var ErrConfig = errors.New("configuration")

// Roles of a node.
const (
	RoleIngest    = "ingest"
	RoleState     = "state"
	RolePublisher = "publisher"
	// RolePlanner plans the jobs of the node's states, sends them to workers and
	// follows them.
	RolePlanner = "planner"
	// RoleCompactor executes jobs of any table.
	RoleCompactor = "compactor"
)

// NodeOptions configure a node.
type NodeOptions struct {
	// Data is the folder of local state, embedded broker and embedded lake.
	Data string
	// Brokers of a Kafka cluster; empty: the embedded broker under Data.
	Brokers []string
	// Client holds what else is needed to reach the brokers.
	Client ClientOptions
	// Warehouse is the store URL of the lake. Default: Data/lake.
	Warehouse string
	// Deployment names topics and the _varve prefix. Default: varve.
	Deployment string
	// Partitions of the transactions topic; 0: 8 on a cluster, 1 embedded.
	Partitions int
	// Roles to run. Default: all, as Roles has them.
	Roles []string
	// Tables, if any, are the only tables that this node ingests: names, or
	// patterns as "shop.*".
	Tables []string
	// Groups shares states and shards with the other nodes of the deployment, by
	// Kafka's consumer groups (groups.go). Without it the node takes all of them.
	Groups bool
	// NodeID names the node in its groups. Default: the one that the data folder
	// had, else made of the host's name and the folder.
	NodeID string
	// SessionTimeout is how long the node may be silent before the groups give
	// what it has to others, RebalanceTimeout bounds their rebalances; a node
	// takes at most half of that to give something back. Defaults:
	// DefaultSessionTimeout, DefaultRebalanceTimeout.
	SessionTimeout, RebalanceTimeout time.Duration
	// SourcePartitions, if any, are the source partitions that this node takes
	// for itself, without the group over sources.
	SourcePartitions []int32
	// LeaveGroups leaves the groups when the node is closed, so that others take
	// over at once. Else it stays a member until its session times out, and has
	// what it had if it is back by then.
	LeaveGroups bool
	// DiskReserve is the free space of local disks below which no more events are
	// taken in, in bytes. Default: DefaultDiskReserve; below zero: they are not
	// watched, and a disk that gets full may stop the node.
	DiskReserve int64
	// Traces takes spans of what the node does; its owner closes it. Default: none.
	Traces *Traces
	// Monitor says where the node can be watched. Default: at its loopback port.
	Monitor MonitorOptions
	// StopOnError stops a shard at its first refused event.
	StopOnError bool
	// Registry has the writers' schemas of formats that need a schema registry;
	// without one their tables wait.
	Registry source.SchemaSource
	// Checkpoints say when the states are kept in the object store.
	Checkpoints CheckpointOptions
	// LockWait is how long a data folder may stay locked by another process,
	// as by a command that looks at it while no node runs. Default: not at all.
	LockWait time.Duration
	// Catalog, if any, is how the node serves its warehouse to other engines.
	Catalog *CatalogOptions
	// Remote, if any, is the outside catalog that tables are published to.
	// Default: the tables' own folders.
	Remote *restclient.Options
	// LookEvery is how often a table that has nothing to publish is looked at there.
	// Default: DefaultLookEvery.
	LookEvery time.Duration
	// Jobs say how compaction jobs are planned and executed.
	Jobs JobOptions
	// Garbage says when what no reader reaches any more is deleted.
	Garbage GarbageOptions
	// BufferBytes is what the shards may hold of events that are not in the log
	// yet, together. Default: ingest.DefaultRoom.
	BufferBytes int64
	Logger      *slog.Logger
}

// Node runs roles over one deployment.
type Node struct {
	Conn
	opt    NodeOptions
	log    *slog.Logger
	lock   *DirLock
	broker *Broker
	id     [16]byte         // the deployment's
	begun  record.RequestID // of the genesis that decided: it names a warehouse (genesisID)
	states []*stateWorker
	http   *adminServer
	watched
	catalog *restcatalog.Server // as Iceberg tables; nil: not served
	disk    *diskGuard

	publishes *RemoteFacts // nil: to the tables' own folders
	published bool         // some node on this folder was a publisher

	mu        sync.Mutex
	memory    int64 // wanted of the process (sizeMemory)
	shards    map[string]*shardWorker
	refused   map[string]string // why tables are not ingested
	unsourced map[string]bool   // tables that stopped for their source
	failed    error             // the first that stopped a role
	late      []error           // of roles that were ending

	compactors    *compactors // nil: the node has not the role
	jobPartitions int32       // of the jobs topic

	unrouted unrouted
	room     ingest.Room           // of the shards' buffers
	hubs     map[int32]*decidedHub // by transactions partition

	movers map[int64]bool // tables, by id, whose events are moved (K5)

	started       bool
	ingesting     sync.Mutex // held while shards are taken
	checkpointing sync.Mutex // held while a checkpoint is made

	// Of a node in groups; nil or empty in others.
	stateGroup  *stateGroup
	ingestGroup *ingestGroup
	dirs        []*directory     // by transactions partition
	halted      map[int32]string // why a partition of this node is not applied

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// nodeFile is DIR/node.json: how commands reach a running node.
type nodeFile struct {
	Deployment string `json:"deployment"`
	ID         string `json:"deployment_id"`
	Partitions int    `json:"partitions"`
	Warehouse  string `json:"warehouse"` // its location
	// WarehouseURL is how its store is reached where the location does not say
	// that: with an endpoint, a region. It holds no secrets: stores refuse them
	// in URLs.
	WarehouseURL string   `json:"warehouse_url,omitempty"`
	Brokers      []string `json:"brokers"`
	// Kafka is how the brokers are reached, without secrets.
	Kafka   *SecurityFacts `json:"kafka,omitempty"`
	Admin   string         `json:"admin,omitempty"`
	Catalog string         `json:"catalog,omitempty"`
	// Remote is the outside catalog that tables are published to. Published says
	// that a publisher ran: where it publishes does not change any more.
	Remote    *RemoteFacts `json:"remote,omitempty"`
	Published bool         `json:"published,omitempty"`
	PID       int          `json:"pid"`
	NodeID    string       `json:"node_id,omitempty"`
	Embedded  bool         `json:"embedded"`
}

// OpenNode starts a node: it locks the data folder, reaches the broker, makes
// and checks the topics, opens the state and catches up. Roles run from Start on.
func OpenNode(ctx context.Context, opt NodeOptions) (_ *Node, err error) {
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	if err := opt.check(); err != nil {
		return nil, err
	}
	if opt.Data, err = filepath.Abs(opt.Data); err != nil {
		return nil, fmt.Errorf("%w: data folder: %w", ErrConfig, err)
	}
	if err := os.MkdirAll(opt.Data, 0o755); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", notWritable(err))
	}
	if opt.Warehouse == "" {
		opt.Warehouse = filepath.Join(opt.Data, "lake")
	}
	n := &Node{opt: opt, log: opt.Logger, shards: map[string]*shardWorker{}, refused: map[string]string{}, unsourced: map[string]bool{}, halted: map[int32]string{}}
	n.room.Limit = opt.BufferBytes
	n.deployment, n.fatal, n.views = opt.Deployment, make(chan error, 1), nodeViews{n}
	n.metrics = newMetrics(n)
	if n.has(RoleState) {
		n.stuck = n.publishStuck
	}
	n.ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, n.release())
		}
	}()
	if n.disk, err = newDiskGuard(opt.Data, opt.Warehouse, opt.DiskReserve); err != nil {
		return nil, err
	}
	n.wait = n.hold
	if n.lock, err = lockWithin(ctx, opt.Data, opt.LockWait); err != nil {
		return nil, err
	}
	if n.monitor, err = n.serveMonitor(); err != nil {
		return nil, err
	}
	if err := n.openBroker(ctx); err != nil {
		return nil, err
	}
	embedded := len(opt.Brokers) == 0
	old, err := readNodeFile(opt.Data)
	if err != nil {
		return nil, err
	}
	if n.topics, err = NewTopics(opt.Deployment, opt.Partitions, opt.Jobs.Partitions, embedded); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if old != nil {
		switch {
		case old.Deployment != opt.Deployment:
			return nil, fmt.Errorf("%w: %s belongs to deployment %q, not %q; use another data folder", ErrConfig, opt.Data, old.Deployment, opt.Deployment)
		case opt.Partitions != 0 && old.Partitions != opt.Partitions:
			return nil, fmt.Errorf("%w: the deployment has %d transactions partitions, for ever; not %d", ErrConfig, old.Partitions, opt.Partitions)
		case old.Embedded != embedded:
			return nil, fmt.Errorf("%w: %s was made on another broker; use another data folder", ErrConfig, opt.Data)
		}
		if opt.Partitions == 0 {
			if n.topics, err = NewTopics(opt.Deployment, old.Partitions, opt.Jobs.Partitions, embedded); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrConfig, err)
			}
		}
	}
	if n.store, err = openWarehouse(ctx, opt.Warehouse); err != nil {
		return nil, err
	}
	if old != nil && old.Warehouse != n.store.Location("") {
		return nil, fmt.Errorf("%w: the deployment's warehouse is %s, not %s", ErrConfig, old.Warehouse, n.store.Location(""))
	}
	if err := n.openRemote(ctx, old); err != nil {
		return nil, err
	}
	n.published = n.has(RolePublisher) || old != nil && old.Published
	n.bodies = processors.NewBodies(n.store, opt.Deployment)
	if err := n.checkLogThere(ctx, old); err != nil {
		return nil, err
	}
	if old == nil && opt.Partitions == 0 && !embedded {
		if err := n.adoptPartitions(ctx); err != nil {
			return nil, err
		}
	}
	if err := n.admin.EnsureTopics(ctx, n.topics); err != nil {
		return nil, err
	}
	jobs, err := n.admin.Topic(ctx, n.topics.Jobs)
	if err != nil {
		return nil, err
	}
	n.jobPartitions = int32(jobs.Partitions)
	if n.producer, err = NewLogProducer(n.client, ProducerOptions{}); err != nil {
		return nil, err
	}
	if n.letters, err = NewLogProducer(n.client, ProducerOptions{MaxBatchBytes: DefaultSourceBatchBytes}); err != nil {
		return nil, err
	}
	if err := n.genesis(ctx); err != nil {
		return nil, err
	}
	if err := n.checkFolder(old); err != nil {
		return nil, err
	}
	if err := n.checkWarehouse(ctx); err != nil {
		return nil, err
	}
	if err := n.nameNode(old); err != nil {
		return nil, err
	}
	switch {
	case n.opt.Groups:
		err = n.openDirectories(ctx)
	case n.has(RoleState):
		err = n.openStates(ctx)
	}
	if err != nil {
		return nil, err
	}
	n.sizeMemory(false)
	if err := n.serveCatalog(); err != nil {
		return nil, err
	}
	n.opened.Store(true)
	if n.http, err = n.serveAdmin(); err != nil {
		return nil, err
	}
	return n, n.writeNodeFile(n.http.addr)
}

func (n *Node) has(role string) bool { return slices.Contains(n.opt.Roles, role) }

func (n *Node) openBroker(ctx context.Context) (err error) {
	n.client = n.opt.Client
	n.client.Brokers = n.opt.Brokers
	n.client.Hooks = append(slices.Clone(n.client.Hooks), n.metrics.hooks...)
	if n.opt.Traces != nil {
		n.client.Hooks = append(n.client.Hooks, n.opt.Traces.hooks...)
	}
	if n.client.Logger == nil {
		n.client.Logger = n.log
	}
	if len(n.opt.Brokers) == 0 {
		if n.broker, err = OpenBroker(BrokerOptions{Dir: filepath.Join(n.opt.Data, "broker"), Logger: n.log}); err != nil {
			return err
		}
		n.client.Brokers = []string{n.broker.Addr()}
	}
	if n.admin, err = NewAdmin(n.client); err != nil {
		return err
	}
	return n.admin.Ping(ctx, 0)
}

// genesis makes or reads offset 0 of every partition (L8). Two nodes that
// start at once may both write one: the first decides. Partition 0 goes first,
// so that all partitions get the identity that stands there.
func (n *Node) genesis(ctx context.Context) error {
	offsets, err := n.admin.Offsets(ctx, n.topics.Transactions)
	if err != nil {
		return err
	}
	rand.Read(n.id[:]) // never fails
	for p := range offsets {
		if offsets[p].High == 0 {
			if p == 0 {
				if err := n.tryWarehouse(ctx); err != nil {
					return err
				}
			}
			if err := n.writeGenesis(ctx, int32(p), int32(len(offsets))); err != nil {
				return fmt.Errorf("write the genesis of transactions partition %d: %w", p, err)
			}
		}
		id, err := n.identity(ctx, int32(p), int32(len(offsets)), offsets[p].Start)
		if err != nil {
			return err
		}
		if p > 0 && id != n.id {
			return fmt.Errorf("%w: topic %s: partition %d belongs to deployment %x, partition 0 to %x; the topic was put together from two: name another deployment", ErrConfig, n.topics.Transactions, p, id, n.id)
		}
		n.id = id
	}
	return nil
}

func (n *Node) writeGenesis(ctx context.Context, p, of int32) error {
	v := record.SetApplyVersion{Deployment: n.id, Partitions: of, Partition: p, Version: statestore.ApplyVersion}
	m, err := n.bodies.Message(ctx, record.Envelope{ApplyVersion: statestore.ApplyVersion, Request: n.genesisID(), OffsetSeen: -1, TableID: -1}, &v)
	if err != nil {
		return err
	}
	_, err = n.producer.AppendSync(ctx, n.topics.Transactions, p, logEntry(m))
	return err
}

// readGenesis is the identity that a partition begins with.
func (n *Node) readGenesis(ctx context.Context, p, of int32) (id [16]byte, err error) {
	g, err := n.readOne(ctx, n.topics.Transactions, p, 0)
	if err != nil {
		return id, err
	}
	var env record.Envelope
	r := stateRecord(g)
	if err := record.DecodeEnvelope(r.Key, r.Header, r.Value, &env); err != nil {
		return id, fmt.Errorf("%w: topic %s partition %d does not begin with a varve genesis: %w; name another deployment", ErrConfig, n.topics.Transactions, p, err)
	}
	v, err := record.DecodeBody(env.Type, env.TypeVersion, env.Body)
	set, ok := v.(*record.SetApplyVersion)
	if err != nil || !ok {
		return id, fmt.Errorf("%w: topic %s partition %d does not begin with a varve genesis; name another deployment", ErrConfig, n.topics.Transactions, p)
	}
	if p == 0 {
		n.begun = env.Request
	}
	if set.Partitions != of || set.Partition != p {
		return id, fmt.Errorf("%w: topic %s partition %d was made as %d of %d; partitions never change (L1)", ErrConfig, n.topics.Transactions, p, set.Partition, set.Partitions)
	}
	return set.Deployment, nil
}

// readOne reads the record at an offset that exists.
func (n *Conn) readOne(ctx context.Context, topic string, partition int32, offset int64) (*LogRecord, error) {
	r, err := OpenLogReader(ctx, n.client, ReaderOptions{Topic: topic, Partition: partition, Offset: offset, MaxBytes: 1 << 20})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		rs, err := r.Poll(ctx, time.Second, 1)
		if err != nil {
			return nil, fmt.Errorf("read %s/%d at offset %d: %w", topic, partition, offset, err)
		}
		if len(rs) > 0 {
			out := rs[0]
			return &out, nil
		}
	}
}

func readNodeFile(dir string) (*nodeFile, error) {
	b, err := os.ReadFile(filepath.Join(dir, "node.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read node.json: %w", err)
	}
	var f nodeFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%s is no node file: %w; remove it, and start with the deployment and the warehouse of before: it is written again", filepath.Join(dir, "node.json"), err)
	}
	return &f, nil
}

func (n *Node) writeNodeFile(admin string) error {
	f := nodeFile{
		Deployment: n.opt.Deployment, ID: fmt.Sprintf("%x", n.id), Partitions: n.topics.Partitions,
		Warehouse: n.store.Location(""), WarehouseURL: storeURL(n.opt.Warehouse), Brokers: n.client.Brokers, Admin: admin, Catalog: n.Catalog(), PID: os.Getpid(), Embedded: n.broker != nil,
		NodeID: n.opt.NodeID, Remote: n.publishes, Published: n.published, Kafka: n.opt.Client.Facts,
	}
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("write node.json: %w", err)
	}
	tmp := filepath.Join(n.opt.Data, "node.json.tmp")
	if err := writeSynced(tmp, append(b, '\n')); err != nil {
		return fmt.Errorf("write node.json: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(n.opt.Data, "node.json")); err != nil {
		return fmt.Errorf("write node.json: %w", err)
	}
	return nil
}

// writeSynced writes a file that is whole after a loss of power, once it is renamed.
func writeSynced(path string, b []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

// openStates opens every partition's state, checks it against its log and
// catches up with it.
func (n *Node) openStates(ctx context.Context) error {
	offsets, err := n.admin.Offsets(ctx, n.topics.Transactions)
	if err != nil {
		return err
	}
	n.states = make([]*stateWorker, len(offsets))
	for p := range offsets {
		w, err := n.openState(ctx, int32(p), offsets[p].High)
		if err != nil {
			return err
		}
		n.states[p] = w
	}
	if !n.has(RoleIngest) {
		return nil // whoever mends a lost source must be able to
	}
	return n.checkSources(ctx)
}

// checkSources refuses to ingest when a source partition lost what a shard has
// used of it.
func (n *Node) checkSources(ctx context.Context) error {
	var used []UsedOffset
	for _, w := range n.states {
		if err := w.store.Tables(func(t *statestore.TableInfo) error {
			for _, s := range t.Shards {
				if s.Retired || s.SourceEnd == 0 {
					continue
				}
				used = append(used, UsedOffset{Topic: s.Topic, Partition: s.Partition, ID: s.TopicID, Next: s.SourceEnd, By: "table " + t.Name, Table: t.Name})
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if len(used) == 0 {
		return nil
	}
	return n.admin.CheckHighWatermark(ctx, used)
}

// Start runs the node's roles until Close. Fatal gives the first error that
// stops one.
func (n *Node) Start(ctx context.Context) error {
	n.started = true
	n.spawn(n.guard)
	if n.has(RoleCompactor) {
		if err := n.startCompactors(); err != nil {
			return err
		}
	}
	if n.opt.Groups {
		return n.startGroups()
	}
	for _, w := range n.states {
		n.spawn(w.run)
	}
	if n.has(RoleIngest) && n.has(RoleState) {
		n.spawn(func(ctx context.Context) error { return n.watchSources(ctx, sourceCheck) })
		return n.ingestKnown(ctx)
	}
	return nil
}

func (n *Node) spawn(fn func(ctx context.Context) error) {
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		err := fn(n.ctx)
		switch {
		case err == nil:
		case n.ctx.Err() == nil:
			n.fail(err)
		case !errors.Is(err, context.Canceled):
			n.mu.Lock()
			n.late = append(n.late, err)
			n.mu.Unlock()
		}
	}()
}

func (n *Node) fail(err error) {
	n.log.Debug("node failed", "error", err)
	n.mu.Lock()
	if n.failed == nil {
		n.failed = err
	}
	n.mu.Unlock()
	n.tell(err)
}

// Fatal receives the first error that stopped a role. The other roles go on
// until Close.
func (n *Node) Fatal() <-chan error { return n.fatal }

// Close drains and stops: shards flush what they hold, their appends get their
// outcomes, and what was accepted is published; everything waits at most as
// long as ctx allows. What cannot be drained, because its shard, its partition
// or its table has stopped, is passed over: Fatal has told of it, and the log
// has it.
func (n *Node) Close(ctx context.Context) error {
	err := n.drain(ctx)
	n.cancel()
	n.closeGroups()
	n.wg.Wait()
	return errors.Join(err, errors.Join(n.late...), n.release())
}

func (n *Node) drain(ctx context.Context) error {
	if !n.started {
		return nil
	}
	if n.compactors != nil {
		n.compactors.stop(ctx)
	}
	n.mu.Lock()
	shards := make([]*shardWorker, 0, len(n.shards))
	for _, s := range n.shards {
		shards = append(shards, s)
	}
	n.mu.Unlock()
	for _, s := range shards {
		s.stopReading()
	}
	var err error
	for _, s := range shards {
		err = errors.Join(err, s.waitDrained(ctx))
	}
	n.leaveIngest(ctx)
	if n.has(RolePublisher) {
		for _, w := range n.openStateList() {
			err = errors.Join(err, w.waitPublished(ctx))
		}
	}
	n.leaveStates(ctx)
	if err == nil {
		err = n.producer.Flush(ctx) // outcomes; what is not flushed is sent again by the next start
	}
	return err
}

func (n *Node) release() error {
	n.cancel()
	n.wg.Wait()
	n.sizeMemory(true)
	var err error
	if n.catalog != nil {
		err = n.catalog.Close()
	}
	if n.http != nil {
		err = errors.Join(err, n.http.close())
	}
	if c, ok := n.remote.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	if n.producer != nil {
		n.producer.Close()
	}
	if n.letters != nil {
		n.letters.Close()
	}
	for _, w := range n.openStateList() {
		err = errors.Join(err, w.end())
	}
	if n.admin != nil {
		n.admin.Close()
	}
	if n.broker != nil {
		err = errors.Join(err, n.broker.Close())
	}
	if n.lock != nil {
		err = errors.Join(err, n.lock.Unlock())
	}
	return err
}

// adoptPartitions takes over how many partitions the deployment's log has, when
// another node made it and nobody said a number here.
func (n *Node) adoptPartitions(ctx context.Context) error {
	info, err := n.admin.Topic(ctx, n.topics.Transactions)
	if errors.Is(err, ErrNoTopic) {
		return nil
	}
	if err != nil {
		return err
	}
	if n.topics, err = NewTopics(n.opt.Deployment, info.Partitions, n.opt.Jobs.Partitions, false); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}
