package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/varve-io/varve/topology"
)

// drainTimeout is how long a node may take to bring what it holds into the
// log, and a snapshot, once it is told to stop.
const drainTimeout = 60 * time.Second

// session is a way into a deployment: to the node that runs on the data
// folder, or to one that this command starts for itself.
type session struct {
	*topology.Conn
	node   *topology.Node // nil: another process's
	status func(ctx context.Context) (*topology.Status, error)
}

// nodeOptions are the options of a node as flags, environment and file say,
// and else as the data folder remembers.
func (a *app) nodeOptions(roles ...string) (topology.NodeOptions, error) {
	o := topology.NodeOptions{
		Data: a.data, Brokers: a.brokers, Warehouse: a.warehouse, Deployment: a.deployment, Roles: roles, Logger: a.log, Client: a.client(), Registry: a.registry,
	}
	old, err := readNodeFacts(a.data)
	if err != nil {
		return o, err
	}
	if o.Remote, err = a.remoteOptions(old); err != nil || old == nil {
		return o, err
	}
	if !a.given("deployment") && old.Deployment != "" {
		o.Deployment = old.Deployment
	}
	if !a.given("brokers") && !old.Embedded {
		o.Brokers = old.Brokers
	}
	if !a.given("warehouse") && old.StoreURL != "" {
		o.Warehouse = old.StoreURL
	}
	return o, nil
}

// shared says that a node is one of those that share a deployment. A command
// that only looks, or publishes what it changed, takes no part: what it does
// beside the owners is done twice, to the same end.
func shared(o *topology.NodeOptions) {
	o.Groups = len(o.Brokers) > 0
	o.LeaveGroups = true
}

// openNode opens and starts a node on the data folder.
func (a *app) openNode(ctx context.Context, o topology.NodeOptions) (*topology.Node, error) {
	n, err := topology.OpenNode(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := n.Start(ctx); err != nil {
		return nil, errors.Join(err, closeNode(ctx, n))
	}
	return n, nil
}

// closeNode drains a node, also when ctx has ended.
func closeNode(ctx context.Context, n *topology.Node) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	return n.Close(ctx)
}

// connect reaches the node that runs on the data folder, or opens the stopped
// folder with these roles.
func (a *app) connect(ctx context.Context, tables []string, roles ...string) (*session, error) {
	conn, _, err := topology.Dial(ctx, a.data, a.client())
	if err == nil {
		return &session{Conn: conn, status: func(ctx context.Context) (*topology.Status, error) {
			c, st, err := topology.Dial(ctx, a.data, a.client())
			if err != nil {
				return nil, err
			}
			return st, c.CloseConn()
		}}, nil
	}
	if !errors.Is(err, topology.ErrNotRunning) {
		return nil, err
	}
	o, err := a.nodeOptions(roles...)
	if err != nil {
		return nil, err
	}
	o.Tables = tables
	if slices.Contains(roles, topology.RoleIngest) {
		shared(&o)
	}
	old, err := readNodeFacts(a.data)
	if err != nil {
		return nil, err
	}
	if old == nil && len(o.Brokers) == 0 {
		dir, err := filepath.Abs(a.data)
		if err != nil {
			dir = a.data
		}
		return nil, usagef("there is no deployment in %s; name its folder with --data, or make one with \"varve load\" or \"varve run\"", dir)
	}
	n, err := a.openNode(ctx, o)
	if err != nil {
		return nil, err
	}
	return &session{Conn: &n.Conn, node: n, status: n.Status}, nil
}

// close ends the session; err is what the command ends with anyway.
func (s *session) close(ctx context.Context, err error) error {
	if s.node == nil {
		return errors.Join(err, s.CloseConn())
	}
	return errors.Join(err, closeNode(ctx, s.node))
}

// with runs fn in a session.
func (a *app) with(ctx context.Context, roles []string, fn func(s *session) error) error {
	return a.withTables(ctx, nil, roles, fn)
}

// withTables is with, where a node that is started for it ingests only these tables.
func (a *app) withTables(ctx context.Context, tables, roles []string, fn func(s *session) error) error {
	s, err := a.connect(ctx, tables, roles...)
	if err != nil {
		return err
	}
	return s.close(ctx, fn(s))
}

// Roles of sessions on a stopped folder.
var (
	readRoles    = []string{topology.RoleState}
	publishRoles = []string{topology.RoleState, topology.RolePublisher}
	allRoles     = []string{topology.RoleIngest, topology.RoleState, topology.RolePublisher}
	// jobRoles take nothing in, and execute jobs.
	jobRoles = []string{topology.RoleState, topology.RolePublisher, topology.RolePlanner, topology.RoleCompactor}
)

// topicPartitions is the number of partitions of a topic, 0 when it is not there.
func (a *app) topicPartitions(ctx context.Context, brokers []string, topic string) (int, error) {
	admin, err := topology.NewAdmin(a.client(brokers...))
	if err != nil {
		return 0, err
	}
	defer admin.Close()
	info, err := admin.Topic(ctx, topic)
	if errors.Is(err, topology.ErrNoTopic) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("topic %s: %w", topic, err)
	}
	return info.Partitions, nil
}

func checkRoles(roles []string) error {
	known := topology.Roles()
	for _, r := range roles {
		if !slices.Contains(known, r) {
			return usagef("--roles: unknown role %q%s (known: %s)", r, didYouMean(r, known), strings.Join(known, ", "))
		}
	}
	return nil
}
