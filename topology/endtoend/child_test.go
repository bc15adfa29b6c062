package endtoend

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/processors/planner"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/topology"
)

// childEnv holds a childOrder: this process is then no test but a node.
const childEnv = "VARVE_ENDTOEND_CHILD"

// childOrder is what a child process does: it runs a node over a data folder,
// with the table of a workload, until it is killed.
type childOrder struct {
	Data       string
	Brokers    []string
	Warehouse  string
	Deployment string
	Partitions int
	Workload   string // a name of workloads
	NodeID     string
	Session    time.Duration // of the node's groups
	Roles      []string      // none: withoutJobs
	Jobs       topology.JobOptions
	// Checkpoints of the child's node.
	Checkpoints topology.CheckpointOptions
	Remote      *restclient.Options // an outside catalog
	Garbage     topology.GarbageOptions
	KillPoints  bool // it takes kill points on its standard input
}

// workloads are those that a child can be told of by name.
var workloads = map[string]func() workload{
	"orders": func() workload { return orders("shop.orders", 40, 2000) },
	// For tests that share brokers with others.
	"other-orders": func() workload { return orders("other.orders", 40, 2000) },
	// For jobs of many rows, all of one partition, and of all files.
	"steps": func() workload {
		w := orders("shop.orders", 2000, 1<<30)
		w.def.Specs, w.def.LastPartitionID = []schemas.Spec{{}}, 999
		w.def.Properties = []schemas.Property{{Key: planner.PropertyStrategy, Value: string(planner.Full)}}
		w.def.RetentionCount, w.def.RetentionMs = 8, 1
		return w
	},
	// For runs of many minutes: every snapshot is read in the end.
	"orders-slow": func() workload {
		w := orders("shop.orders", 40, 2000)
		w.def.CommitIntervalMs = 3000
		return w
	},
}

func TestMain(m *testing.M) {
	order := os.Getenv(childEnv)
	if order == "" {
		os.Exit(m.Run())
	}
	if err := runChild(order); err != nil {
		fmt.Fprintln(os.Stderr, "child: ", err)
		os.Exit(1)
	}
}

func runChild(order string) error {
	var o childOrder
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // the parent is gone when its end of the pipe is
		var err error
		if o.KillPoints {
			err = follow(os.Stdin)
		} else {
			_, err = io.Copy(io.Discard, os.Stdin)
		}
		fmt.Fprintln(os.Stderr, "child: the parent has gone: ", err)
		os.Exit(2)
	}()
	n, err := topology.OpenNode(ctx, o.options(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	if err != nil {
		return err
	}
	if err := n.Start(ctx); err != nil {
		return errors.Join(err, n.Close(ctx))
	}
	if o.Workload != "" {
		if err := prepare(ctx, n, workloads[o.Workload]()); err != nil {
			return errors.Join(err, n.Close(ctx))
		}
	}
	fmt.Printf("ready %s\n", n.Addr())
	return <-n.Fatal()
}

func (o *childOrder) options(log *slog.Logger) topology.NodeOptions {
	if o.Roles == nil {
		o.Roles = withoutJobs
	}
	var client topology.ClientOptions
	if o.KillPoints {
		client.Hooks = append(client.Hooks, &killHooks{o.Deployment})
	}
	return topology.NodeOptions{Data: o.Data, Client: client, Garbage: o.Garbage, Brokers: o.Brokers, Warehouse: o.Warehouse, Deployment: o.Deployment, Partitions: o.Partitions, Checkpoints: o.Checkpoints, Groups: len(o.Brokers) > 0, Roles: o.Roles, Jobs: o.Jobs, Remote: o.Remote,
		NodeID: o.NodeID, SessionTimeout: o.Session, Logger: log}
}

// prepare makes a workload's topic and table where they are not there yet, and
// takes its shards.
func prepare(ctx context.Context, n *topology.Node, w workload) error {
	none := func() (*topology.SourceEvent, error) { return nil, io.EOF }
	if _, err := n.Produce(ctx, w.def.SourceTopic, w.partitions, none, nil); err != nil {
		return err
	}
	info, _, err := n.EnsureTable(ctx, w.def)
	if err != nil {
		return err
	}
	return n.Ingest(ctx, info)
}

// child is a running child process.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   string
	addr  chan string // the broker's address, once the node is ready
	ended chan error
	stdin io.Writer
	armed chan struct{} // one for each kill point taken
}

func startChild(t *testing.T, o *childOrder, log string) *child {
	t.Helper()
	order, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, log: log, addr: make(chan string, 1), ended: make(chan error, 1), armed: make(chan struct{}, 1)}
	c.cmd = exec.Command(os.Args[0], "-test.run=^$")
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(order))
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c.cmd.Stderr = out
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	go func() {
		defer stdin.Close()
		for s := bufio.NewScanner(stdout); s.Scan(); {
			if s.Text() == "armed" {
				c.armed <- struct{}{}
			}
			if addr, ok := strings.CutPrefix(s.Text(), "ready "); ok {
				c.addr <- addr
			}
		}
		c.ended <- c.cmd.Wait()
	}()
	return c
}

// ready waits until the node runs.
func (c *child) ready() string {
	c.t.Helper()
	select {
	case a := <-c.addr:
		return a
	case err := <-c.ended:
		c.t.Fatalf("the node ended by itself: %v\n%s", err, c.tail())
	case <-time.After(longTime):
		c.kill()
		c.t.Fatalf("the node is not ready\n%s", c.tail())
	}
	return ""
}

// kill ends the child without warning. One that had ended by itself fails the test.
func (c *child) kill() {
	c.t.Helper()
	select {
	case err := <-c.ended:
		c.t.Fatalf("the node ended by itself: %v\n%s", err, c.tail())
	default:
	}
	if err := c.cmd.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	<-c.ended
}

func (c *child) tail() string {
	b, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return filepath.Base(c.log) + ":\n" + string(b[max(0, len(b)-6000):])
}
