package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/topology"
)

const (
	// watchInterval is how often a node looks for tables that others made, and
	// for the topics of configured tables that are not there yet.
	watchInterval = 500 * time.Millisecond
	// sampleTimeout bounds how long reading the first events of a topic takes.
	sampleTimeout = 30 * time.Second
	// lockWait is how long a starting node waits for a command that looks at
	// its folder, as a status that a monitor asks for.
	lockWait = 10 * time.Second
)

func (a *app) runCommand() *cobra.Command {
	var (
		roles, tables []string
		onError       string
		buffers       int64
		groups        groupFlags
		checkpoints   checkpointFlags
		catalog       catalogFlags
		monitor       monitorFlags
		jobs          jobFlags
		garbage       garbageFlags
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run a node until it is told to stop",
		Long: "Runs a node: by default every role on the embedded broker of the data folder. It prints\n" +
			"where it listens, ingests the tables of the configuration file and those that the\n" +
			"deployment knows, and on SIGTERM or an interrupt brings what it holds into the log and\n" +
			"a snapshot before it ends. A second interrupt ends it at once; nothing is lost, the\n" +
			"next start reads it again.\n\n" +
			"A configured table whose schema nobody gave gets the one that its topic's first\n" +
			"events show.\n\n" +
			"On a cluster the nodes of a deployment share the work as consumer groups: role\n" +
			"state divides the partitions of the log, with the publishing of their tables and the\n" +
			"planning of their compaction, role ingest the partitions of the source topics, role\n" +
			"compactor the jobs. A node that is gone for longer than the\n" +
			"session timeout loses what it had to the others; one that is back before has it\n" +
			"again. --leave gives it away at once at the end, for scaling down. --partitions\n" +
			"takes source partitions out of the sharing: whoever does that must see that each is\n" +
			"taken by one node.\n\n" +
			"It serves the tables of its warehouse to other engines, as a read-only Iceberg REST\n" +
			"catalog. Beyond this machine it does so only with --catalog-listen and a token.",
		Example: "  varve run --data ./varve-data\n  varve run --config varve.yaml\n" +
			"  varve run --brokers kafka-1:9092,kafka-2:9092 --warehouse s3://lake/varve?region=eu-west-1 --roles state,publisher,planner\n" +
			"  varve run --brokers kafka-1:9092 --warehouse /mnt/lake --data ./node-2 --roles ingest --tables 'shop.*'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.cfg.check(); err != nil {
				return err
			}
			if err := checkRoles(roles); err != nil {
				return err
			}
			if len(roles) == 0 {
				roles = topology.Roles()
			}
			if onError != "dlq" && onError != "stop" {
				return usagef("--on-error %q: use dlq or stop", onError)
			}
			o, err := a.nodeOptions(roles...)
			if err != nil {
				return err
			}
			if buffers < 1<<20 {
				return usagef("--buffer-bytes %d: a mebibyte (1048576) or more", buffers)
			}
			o.Tables, o.StopOnError, o.BufferBytes = tables, onError == "stop", buffers
			o.LockWait = lockWait
			if err := groups.apply(&o); err != nil {
				return err
			}
			if o.Checkpoints, err = checkpoints.options(); err != nil {
				return err
			}
			o.Jobs = jobs.o
			if o.Garbage, err = garbage.options(); err != nil {
				return err
			}
			if o.Catalog, err = a.catalogOptions(&catalog); err != nil {
				return err
			}
			if o.Remote != nil {
				if catalog.listen != "" && catalog.listen != catalogOff {
					return usagef("--catalog-listen serves the tables' own folders, and the tables are published to %s; leave one of the two out", o.Remote.URI)
				}
				o.Catalog = nil
			}
			if o.Monitor, err = a.monitorOptions(&monitor); err != nil {
				return err
			}
			if o.Traces, err = a.openTraces(cmd.Context(), &monitor, o.Deployment); err != nil {
				return err
			}
			if a.dry {
				return errors.Join(o.Check(cmd.Context()), o.Traces.Close(cmd.Context()))
			}
			err = a.run(cmd.Context(), o)
			// After a signal the node has drained: the last spans still go out.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 5*time.Second)
			defer cancel()
			if lost := o.Traces.Close(ctx); lost != nil {
				a.log.Warn("the last traces were not taken by their collector", "error", lost)
			}
			return err
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringSliceVar(&roles, "roles", nil, "`roles` of this node: ingest, state, publisher, planner, compactor (default: all)")
	f.StringSliceVar(&tables, "tables", nil, "ingest only these `tables`: names, or patterns as 'shop.*' (default: all)")
	groups.add(f)
	f.StringVar(&onError, "on-error", "dlq", "what happens to an event that cannot be read: dlq or stop")
	f.Int64Var(&buffers, "buffer-bytes", ingest.DefaultRoom, "what events that are not in the log yet may take, of all tables together, in `bytes`")
	checkpoints.add(cmd)
	catalog.add(f)
	monitor.add(f)
	jobs.add(cmd)
	garbage.add(cmd)
	return cmd
}

func (a *app) run(ctx context.Context, o topology.NodeOptions) error {
	n, err := a.openNode(ctx, o)
	if err != nil {
		return err
	}
	err = a.serve(ctx, n, &o)
	if err == nil || errors.Is(err, context.Canceled) {
		a.log.Info("draining")
		if err = closeNode(ctx, n); err != nil {
			return &codeError{exitStopped, fmt.Errorf("stopped before everything was in the log: %w; the next start goes on", err)}
		}
		return nil
	}
	return errors.Join(err, closeNode(ctx, n))
}

// serve is a node's life between its start and its drain.
func (a *app) serve(ctx context.Context, n *topology.Node, o *topology.NodeOptions) error {
	roles := o.Roles
	if len(roles) == 0 {
		roles = topology.Roles()
	}
	if err := a.show(object{
		{"deployment", n.Topics().Deployment}, {"brokers", n.Brokers()}, {"warehouse", n.Store().Location("")}, {"catalog", textOrNull(n.Catalog())}, {"monitor", n.Monitor()}, {"data", o.Data}, {"roles", roles},
	}); err != nil {
		return err
	}
	if err := a.flush(); err != nil {
		return fmt.Errorf("print where the node listens: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	failed := make(chan error, 1)
	if slices.Contains(roles, topology.RoleIngest) {
		work.Add(1)
		go func() {
			defer work.Done()
			if err := a.watch(ctx, n, o); err != nil && ctx.Err() == nil {
				failed <- err
			}
		}()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-n.Fatal():
		return err
	case err := <-failed:
		return err
	}
}

// watch makes the configured tables as soon as that is possible, and takes the
// shards of tables that others made.
func (a *app) watch(ctx context.Context, n *topology.Node, o *topology.NodeOptions) error {
	mine := o.Ingests
	waiting := map[string]*wish{}
	var order []string
	many := a.newTemplates(n, mine)
	defer many.close()
	for i := range a.cfg.Tables {
		if a.cfg.Tables[i].isTemplate() {
			continue
		}
		w := a.cfg.Tables[i].wish()
		if mine(w.name) {
			waiting[w.name] = w
			order = append(order, w.name)
		}
	}
	told := map[string]string{}
	taken := map[int64]bool{}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		if err := many.look(ctx); err != nil {
			return err
		}
		for _, name := range order {
			w := waiting[name]
			if w == nil {
				continue
			}
			why, err := a.configured(ctx, n, w, len(o.Brokers) == 0, many.sampleOf(w))
			if err != nil {
				return err
			}
			if why == "" {
				delete(waiting, name)
			} else if told[name] != why {
				told[name] = why
				a.log.Info("a configured table waits", "table", name, "for", why)
			}
		}
		var known []*statestore.TableInfo
		if !o.Groups { // else the node sees to it itself
			var err error
			if known, err = n.Tables(ctx); err != nil {
				return err
			}
		}
		for _, t := range known {
			if taken[t.ID] || !mine(t.Name) || waiting[t.Name] != nil {
				continue
			}
			err := n.Ingest(ctx, t)
			if errors.Is(err, topology.ErrNoTopic) {
				continue // made without one; it may come
			}
			if errors.Is(err, ingest.ErrUnusable) {
				// It stays as it is until it is dropped, and does not stop the others.
				taken[t.ID] = true
				a.log.Error("a table is not ingested", "table", t.Name, "error", err)
				continue
			}
			if err != nil {
				return err
			}
			taken[t.ID] = true
			a.log.Info("ingesting", "table", t.Name, "topic", t.Definition.SourceTopic)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// configured makes sure that a configured table is as configured. why says
// what it still waits for.
// sample are events of the table, nil: its topic's first ones are read.
func (a *app) configured(ctx context.Context, n *topology.Node, w *wish, embedded bool, sample []source.Record) (why string, err error) {
	have, err := n.Table(ctx, w.name)
	if err != nil && !errors.Is(err, topology.ErrNoTable) {
		return "", err
	}
	want := *w
	var schema schemas.Schema
	switch {
	case have != nil:
		notes, err := w.unread(have.Definition)
		if err != nil {
			return "", err
		}
		for _, n := range notes {
			a.log.Warn(n)
		}
		want.like(have.Definition)
		schema = *have.Definition.Schema()
	case w.schemaFile != "":
		if schema, err = readSchema(w.schemaFile); err != nil {
			return "", err
		}
	default:
		topic := w.topic
		if topic == "" {
			topic = w.name
		}
		err = nil // there is no table yet
		if sample == nil && w.options["route.by"] == "" {
			sample, err = a.firstEvents(ctx, n.Brokers(), topic)
		}
		if errors.Is(err, topology.ErrNoTopic) || err == nil && len(sample) == 0 {
			return "events in topic " + topic + ", whose schema it gets", nil
		}
		if err != nil {
			return "", err
		}
		if schema, err = a.discoverFrom(w, sample); err != nil {
			return "", err
		}
	}
	d, _, err := want.definition(schema)
	if err != nil {
		return "", err
	}
	parts, err := a.topicPartitions(ctx, n.Brokers(), d.SourceTopic)
	if err != nil {
		return "", err
	}
	if parts == 0 {
		if !embedded {
			return "topic " + d.SourceTopic, nil
		}
		if err := a.makeTopic(ctx, n.Brokers(), d.SourceTopic, 0); err != nil {
			return "", err
		}
	}
	_, created, err := n.EnsureTable(ctx, d)
	if err != nil {
		return "", err
	}
	if created {
		a.showDefinition(&d)
	}
	return "", nil
}

// makeTopic makes a source topic if it is not there.
func (a *app) makeTopic(ctx context.Context, brokers []string, topic string, partitions int) error {
	admin, err := topology.NewAdmin(a.client(brokers...))
	if err != nil {
		return err
	}
	defer admin.Close()
	_, err = admin.EnsureSourceTopic(ctx, topic, partitions)
	return err
}

// firstEvents reads the first events of a topic, from each partition in turn.
func (a *app) firstEvents(ctx context.Context, brokers []string, topic string) ([]source.Record, error) {
	client := a.client(brokers...)
	admin, err := topology.NewAdmin(client)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	ends, err := admin.Offsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	var out []source.Record
	for p, end := range ends {
		share := (source.DiscoverEvents - len(out)) / (len(ends) - p)
		if end.Stable <= end.Start || share == 0 {
			continue
		}
		rs, err := readSome(ctx, client, topic, int32(p), end, share)
		if err != nil {
			return nil, fmt.Errorf("topic %s, partition %d: read its first events: %w", topic, p, err)
		}
		out = append(out, rs...)
	}
	return out, nil
}

func readSome(ctx context.Context, client topology.ClientOptions, topic string, partition int32, end topology.PartitionOffsets, n int) ([]source.Record, error) {
	r, err := topology.OpenLogReader(ctx, client, topology.ReaderOptions{Topic: topic, Partition: partition, Offset: end.Start, Committed: true, MaxWait: 100 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out []source.Record
	for len(out) < n && r.Next() < end.Stable {
		rs, err := r.Poll(ctx, time.Second, n-len(out))
		if err != nil {
			return nil, err
		}
		for i := range rs {
			if rs[i].Control {
				continue
			}
			s := source.Record{Topic: topic, Partition: partition, Offset: rs[i].Offset, TimeMs: rs[i].TimeMs, Key: rs[i].Key, Value: rs[i].Value}
			for _, h := range rs[i].Headers {
				s.Headers = append(s.Headers, source.Header{Key: h.Key, Value: h.Value})
			}
			out = append(out, s)
		}
	}
	return out, nil
}
