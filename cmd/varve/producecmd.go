package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/topology"
)

func (a *app) produceCommand() *cobra.Command {
	var (
		table, topic, format string
		records              bool
		partitions           int
	)
	cmd := &cobra.Command{
		Use:   "produce FILE…",
		Short: "Publish events of files into a running deployment",
		Long: "Publishes events into a table's source topic. The table's topic, format and key are\n" +
			"asked of the node that runs on the data folder; with --brokers and no node there,\n" +
			"the topic is --topic or the table's name. - reads stdin. Lines are as for load.",
		Example: "  varve produce --data ./varve-data --table shop.orders events.jsonl\n" +
			"  tail -f orders.jsonl | varve produce --brokers kafka-1:9092 --table shop.orders --records -",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if table == "" && topic == "" {
				return usagef("name the table with --table, or the topic with --topic")
			}
			src, err := newEventSource(args, a.in, records)
			if err != nil {
				return err
			}
			to, n, err := a.produce(cmd.Context(), src, table, topic, format, partitions)
			if err = errors.Join(err, src.close()); err != nil {
				return err
			}
			return a.show(object{{"topic", to}, {"events", n}})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&table, "table", "", "`name` of the table")
	f.StringVar(&topic, "topic", "", "`topic` to publish to (default: the table's source topic)")
	f.StringVar(&format, "format", "", "check that the table reads this `format`")
	f.BoolVar(&records, "records", false, "each line is a whole Kafka record as JSON: "+recordForm)
	f.IntVar(&partitions, "partitions", 0, "`number` of partitions of the topic, when it is made (default 1)")
	return cmd
}

func (a *app) produce(ctx context.Context, src *eventSource, table, topic, format string, partitions int) (string, int64, error) {
	p := a.progress()
	defer p.done()
	tell := func(n int64) { p.set(fraction(src.read, src.total), "%d events published", n) }
	conn, _, err := topology.Dial(ctx, a.data, a.client())
	switch {
	case errors.Is(err, topology.ErrNotRunning) && len(a.brokers) > 0:
		if topic == "" {
			topic = table
		}
		if format != "" {
			a.notef("no node runs on %s: nobody checks --format", a.data)
		}
		n, err := topology.ProduceTo(ctx, a.client(a.brokers...), topic, partitions, src.next, tell)
		return topic, n, err
	case errors.Is(err, topology.ErrNotRunning):
		return "", 0, usagef("%w; start one with \"varve run\", name a cluster with --brokers, or use \"varve load\"", err)
	case err != nil:
		return "", 0, err
	}
	defer func() { err = errors.Join(err, conn.CloseConn()) }()
	next := src.next
	if table != "" {
		t, err := conn.Table(ctx, table)
		switch {
		case errors.Is(err, topology.ErrNoTable) && topic == "":
			return "", 0, err
		case err != nil && !errors.Is(err, topology.ErrNoTable):
			return "", 0, err
		case err == nil:
			d := t.Definition
			if reads, _ := d.SourceFormat(); format != "" && !slices.Contains(strings.Split(reads, ","), format) {
				return "", 0, usagef("table %s reads %s, not %s", table, reads, format)
			}
			if topic == "" {
				topic = d.SourceTopic
			}
			if next, err = a.placed(ctx, conn, d, src, partitions); err != nil {
				return "", 0, err
			}
		}
	}
	n, err := conn.Produce(ctx, topic, partitions, next, tell)
	return topic, n, err
}
