package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/processors/collector"
	"github.com/varve-io/varve/topology"
)

// parseGrace is parseDuration, and takes none.
func parseGrace(s string) (time.Duration, error) {
	if s == "0" || s == "0s" {
		return 0, nil
	}
	return parseDuration(s)
}

func (a *app) gcCommand() *cobra.Command {
	var (
		dry, strays bool
		grace       string
	)
	cmd := &cobra.Command{
		Use:   "gc TABLE",
		Short: "Delete a table's files that nothing reaches any more, or explain them",
		Long: "Asks the log to let go of what no retained snapshot, index, job or pending cut of the\n" +
			"table needs any more: data files that were compacted or whose rows are all dead, and\n" +
			"manifests, lists and Puffin files of snapshots that expired. What the log has let go\n" +
			"is deleted once the node's grace (varve run --gc-grace, an hour) has passed. A running node does\n" +
			"both by itself, and lists the folder every six hours for what lost attempts left behind\n" +
			"(--strays: now). --grace takes the place of the node's, once: readers that still plan\n" +
			"on an expired snapshot lose its files.\n\n" +
			"--dry-run changes nothing: it lists each object that left the table, and why it can be\n" +
			"collected or what keeps it. What is not listed is used by the newest snapshot.",
		Example: "  varve gc shop.orders --dry-run\n  varve gc shop.orders\n  varve gc shop.orders --strays --grace 0s",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			wait := time.Duration(-1)
			if grace != "" {
				var err error
				if wait, err = parseGrace(grace); err != nil {
					return usagef("--grace: %w", err)
				}
			}
			if dry && (strays || grace != "") {
				return usagef("--dry-run lists what left the table; leave --strays and --grace out")
			}
			return a.with(cmd.Context(), publishRoles, func(s *session) error {
				if _, err := s.Table(cmd.Context(), args[0]); err != nil {
					return err
				}
				if dry {
					return a.explainGarbage(cmd.Context(), s, args[0])
				}
				return a.collect(cmd.Context(), s, args[0], strays, wait)
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.BoolVar(&dry, "dry-run", false, "explain each object, and change nothing")
	f.BoolVar(&strays, "strays", false, "list the table's folder for what lost attempts left behind")
	f.StringVar(&grace, "grace", "", "the `time` that objects stay after the log let them go (default: the node's)")
	return cmd
}

func (a *app) explainGarbage(ctx context.Context, s *session, table string) error {
	out := a.list("object", "kind", "state", "left", "why")
	row := func(g *topology.Garbage) error { return out.row(g.Object, g.Kind, g.State, g.Left, g.Why) }
	if s.node != nil {
		if err := s.node.Garbage(ctx, table, row); err != nil {
			return err
		}
		return out.close()
	}
	all, err := topology.RequestGarbage(ctx, a.data, table)
	if err != nil {
		return err
	}
	for i := range all {
		if err := row(&all[i]); err != nil {
			return err
		}
	}
	return out.close()
}

// collect asks until the log has nothing more to let go.
func (a *app) collect(ctx context.Context, s *session, table string, strays bool, grace time.Duration) error {
	sum := topology.Collected{Table: table}
	for round := 0; ; round++ {
		var c *topology.Collected
		var err error
		if s.node != nil {
			c, err = s.node.CollectGarbage(ctx, table, strays && round == 0, grace)
		} else {
			c, err = topology.RequestCollect(ctx, a.data, table, strays && round == 0, grace)
		}
		if err != nil {
			return err
		}
		sum.Taken, sum.Rejected, sum.Deleted, sum.Listed = sum.Taken+c.Taken, sum.Rejected+c.Rejected, sum.Deleted+c.Deleted, sum.Listed+c.Listed
		sum.Waiting, sum.Due = c.Waiting, c.Due
		a.log.Info("garbage", "table", table, "let go", sum.Taken, "deleted", sum.Deleted, "waiting", sum.Waiting)
		if c.Taken == 0 {
			break
		}
	}
	o := object{{"table", table}, {"taken", sum.Taken}, {"rejected", sum.Rejected}, {"deleted", sum.Deleted}, {"waiting", sum.Waiting}}
	due := any(nil)
	if sum.Due > 0 {
		due = time.UnixMilli(sum.Due).UTC().Format(time.RFC3339)
	}
	o = append(o, object{{"deleted_after", due}}...)
	if strays {
		o = append(o, object{{"listed", sum.Listed}}...)
	}
	return a.show(o)
}

// garbageFlags are the flags of varve run.
type garbageFlags struct{ grace, every, sweep string }

func (g *garbageFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&g.grace, "gc-grace", collector.DefaultGrace.String(), "the `time` that objects stay after nothing reaches them any more")
	f.StringVar(&g.every, "gc-interval", collector.DefaultEvery.String(), "how often a table's garbage is looked for; off: only by varve gc")
	f.StringVar(&g.sweep, "gc-sweep-interval", collector.DefaultSweepEvery.String(), "how often a table's folder is listed for what lost attempts left behind; off: never")
}

func (g *garbageFlags) options() (o topology.GarbageOptions, err error) {
	if o.Grace, err = parseGrace(g.grace); err != nil {
		return o, usagef("--gc-grace: %w", err)
	}
	if o.Grace == 0 {
		o.Grace = -1
	}
	for _, x := range []struct {
		name, text string
		into       *time.Duration
	}{{"--gc-interval", g.every, &o.Every}, {"--gc-sweep-interval", g.sweep, &o.SweepEvery}} {
		if x.text == "off" {
			*x.into = -1
			continue
		}
		if *x.into, err = parseDuration(x.text); err != nil {
			return o, usagef("%s: %w, or off", x.name, err)
		}
		if *x.into == 0 {
			return o, usagef("%s 0: more than that, or off", x.name)
		}
	}
	return o, nil
}
