package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/objstore"
)

// Status is what a node says of itself at GET /status.
type Status struct {
	Deployment string                  `json:"deployment"`
	ID         string                  `json:"deployment_id"`
	Brokers    []string                `json:"brokers"`
	Warehouse  string                  `json:"warehouse"`
	NodeID     string                  `json:"node_id,omitempty"`
	Groups     bool                    `json:"groups"`            // the deployment is shared between nodes
	Catalog    string                  `json:"catalog,omitempty"` // where its tables are served as a REST catalog
	Heads      []statestore.Head       `json:"heads"`             // by transactions partition
	Owned      []int32                 `json:"owned"`             // the partitions whose state this node has
	Stopped    map[int32]string        `json:"stopped,omitempty"` // by partition: why it is not applied, or not known
	Tables     []*statestore.TableInfo `json:"tables"`
	Shards     []ShardStatus           `json:"shards"`
	// Checkpoints are those of the partitions whose state the node has.
	Checkpoints []CheckpointStatus `json:"checkpoints"`
	Waiting     map[string]string  `json:"waiting"` // by table: why it is not ingested, applied or published on
	// Unrouted are the records of no table, by topic, where records say of which
	// they are, as far as this node looked.
	Unrouted map[string]int64 `json:"unrouted,omitempty"`
	Error    string           `json:"error,omitempty"`
}

// statusWait is how long a status waits for what is not known yet.
const statusWait = 2 * time.Second

// Status is where the node stands.
func (n *Node) Status(ctx context.Context) (*Status, error) {
	s := &Status{
		Deployment: n.deployment, ID: fmt.Sprintf("%x", n.id), Brokers: n.client.Brokers, Warehouse: n.store.Location(""), Catalog: n.Catalog(),
		Shards: n.Shards(), Waiting: map[string]string{}, NodeID: n.opt.NodeID, Groups: n.opt.Groups, Stopped: map[int32]string{},
	}
	if n.opt.Groups {
		// Nobody may have the state of a partition yet: what is known is told.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, statusWait)
		defer cancel()
	}
	for p := range n.topics.Partitions {
		if !n.opt.Groups && !n.has(RoleState) {
			break
		}
		ts, err := nodeViews{n}.partition(ctx, int32(p))
		var h statestore.Head
		if err == nil {
			h, err = n.views.head(ctx, int32(p))
		}
		if err != nil && !n.opt.Groups {
			return nil, err
		}
		if err != nil {
			s.Stopped[int32(p)] = err.Error()
			h = statestore.Head{Offset: -1, Partition: int32(p)}
		}
		s.Tables, s.Heads = append(s.Tables, ts...), append(s.Heads, h)
	}
	slices.SortFunc(s.Tables, func(a, b *statestore.TableInfo) int { return strings.Compare(a.Name, b.Name) })
	names := map[int64]string{}
	for _, t := range s.Tables {
		names[t.ID] = t.Name
	}
	n.unrouted.each(func(topic string, records int64) {
		if s.Unrouted == nil {
			s.Unrouted = map[string]int64{}
		}
		s.Unrouted[topic] = records
	})
	n.mu.Lock()
	maps.Copy(s.Waiting, n.refused)
	maps.Copy(s.Stopped, n.halted)
	n.mu.Unlock()
	for _, w := range n.openStateList() {
		s.Owned = append(s.Owned, w.partition)
		s.Checkpoints = append(s.Checkpoints, w.checkpointStatus(w.store.Head().Offset))
		w.mu.Lock()
		for id, why := range w.waiting {
			s.Waiting[names[id]] = why
		}
		for _, t := range s.Tables {
			if w.bodyWait != "" && n.partition(t.Name) == w.partition {
				s.Waiting[t.Name] = w.bodyWait
			}
		}
		w.mu.Unlock()
	}
	n.mu.Lock()
	if n.failed != nil {
		s.Error = n.failed.Error()
	}
	n.mu.Unlock()
	return s, nil
}

// adminServer is the loopback HTTP server by which commands see a running node.
type adminServer struct {
	addr string
	srv  *http.Server
	done chan error
}

func (n *Node) serveAdmin() (*adminServer, error) {
	mux := n.monitorHandler(MonitorOptions{Profiles: n.opt.Monitor.Profiles})
	mux.HandleFunc("POST /checkpoints", n.serveCheckpoint)
	mux.HandleFunc("POST /compact", n.serveCompact)
	mux.HandleFunc("POST /count-where", n.serveCountWhere)
	mux.HandleFunc("POST /rollback", n.serveRollback)
	mux.HandleFunc("POST /truncate", n.serveTruncate)
	mux.HandleFunc("GET /jobs", n.serveJobs)
	mux.HandleFunc("POST /gc", n.serveCollect)
	mux.HandleFunc("GET /gc", n.serveGarbage)
	mux.HandleFunc("GET /tree", n.serveTree)
	return listenHTTP("127.0.0.1:0", mux)
}

// close lets requests under way end, which read the state.
func (s *adminServer) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := s.srv.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.srv.Close())
	}
	if e := <-s.done; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// ErrNotRunning: no node runs on a data folder.
var ErrNotRunning = errors.New("no node is running on the data folder")

// Dial connects to the node that runs on a data folder, an error wrapping
// ErrNotRunning when none does.
func Dial(ctx context.Context, data string, o ClientOptions) (*Conn, *Status, error) {
	data, err := filepath.Abs(data)
	if err != nil {
		return nil, nil, fmt.Errorf("data folder: %w", err)
	}
	f, err := readNodeFile(data)
	if err != nil {
		return nil, nil, err
	}
	if f == nil || f.Admin == "" {
		return nil, nil, fmt.Errorf("%w: %s", ErrNotRunning, data)
	}
	v := &remoteViews{url: f.Admin + "/status", client: &http.Client{Timeout: 30 * time.Second}}
	st, err := v.status(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s (no answer at the address it had: %w)", ErrNotRunning, data, err)
	}
	if st.ID != f.ID {
		// The port of a node that was killed may be another's by now.
		return nil, nil, fmt.Errorf("%w: %s (at its address is a node of another deployment)", ErrNotRunning, data)
	}
	c := &Conn{deployment: f.Deployment, client: o, views: v, fatal: make(chan error, 1)}
	c.client.Brokers = f.Brokers
	if c.topics, err = NewTopics(f.Deployment, f.Partitions, 0, f.Embedded); err != nil {
		return nil, nil, err
	}
	if c.admin, err = NewAdmin(c.client); err != nil {
		return nil, nil, err
	}
	if c.store, err = openWarehouse(ctx, f.store(), objstore.KeepTemporaries()); err != nil {
		return nil, nil, errors.Join(err, c.CloseConn())
	}
	c.bodies = processors.NewBodies(c.store, f.Deployment)
	if c.producer, err = NewLogProducer(c.client, ProducerOptions{}); err != nil {
		return nil, nil, errors.Join(err, c.CloseConn())
	}
	if c.letters, err = NewLogProducer(c.client, ProducerOptions{MaxBatchBytes: DefaultSourceBatchBytes}); err != nil {
		return nil, nil, errors.Join(err, c.CloseConn())
	}
	return c, st, nil
}

// CloseConn ends a connection made by Dial.
func (n *Conn) CloseConn() error {
	if n.producer != nil {
		n.producer.Close()
	}
	if n.letters != nil {
		n.letters.Close()
	}
	if n.admin != nil {
		n.admin.Close()
	}
	return nil
}

// remoteViews asks a running node.
type remoteViews struct {
	url    string
	client *http.Client
}

func (v *remoteViews) status(ctx context.Context) (*Status, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the node: %w", err)
	}
	resp, err := v.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the node: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the node: it answers %s", resp.Status)
	}
	var s Status
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return nil, fmt.Errorf("ask the node: %w", err)
	}
	return &s, nil
}

func (v *remoteViews) head(ctx context.Context, partition int32) (statestore.Head, error) {
	s, err := v.status(ctx)
	if err != nil {
		return statestore.Head{}, err
	}
	if int(partition) >= len(s.Heads) {
		return statestore.Head{}, fmt.Errorf("the node does not have the state of partition %d", partition)
	}
	return s.Heads[partition], nil
}

func (v *remoteViews) tables(ctx context.Context) ([]*statestore.TableInfo, error) {
	s, err := v.status(ctx)
	if err != nil {
		return nil, err
	}
	return s.Tables, nil
}

func (v *remoteViews) table(ctx context.Context, name string) (*statestore.TableInfo, error) {
	ts, err := v.tables(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range ts {
		if t.Name == name {
			return t, nil
		}
	}
	return nil, nil
}

func (v *remoteViews) seen(ctx context.Context, p int32, offset int64) error {
	for {
		h, err := v.head(ctx, p)
		if err != nil || h.Offset >= offset {
			return err
		}
		if err := sleep(ctx, directoryPoll); err != nil {
			return err
		}
	}
}
