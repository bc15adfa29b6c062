package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/planner"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology"
)

// jobsPoll is how often a command that waits for jobs looks at them.
const jobsPoll = 200 * time.Millisecond

func (a *app) compactCommand() *cobra.Command {
	var (
		strategy string
		wait     bool
	)
	cmd := &cobra.Command{
		Use:   "compact TABLE",
		Short: "Plan compaction jobs for a table now",
		Long: "Chooses files of the table by its own strategies, or by --strategy, and asks the log\n" +
			"to make jobs of them, also where the table's compaction is paused. Workers execute\n" +
			"them; --wait waits until none of them is open and a snapshot shows the result. Asks\n" +
			"the node that runs on the data folder, which must have the table's state; a stopped\n" +
			"folder is opened, and the jobs are executed before the command ends.",
		Example: "  varve compact shop.orders --wait\n  varve compact shop.orders --strategy full --wait",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strategy != "" {
				if _, err := planner.ParseStrategies(strategy); err != nil {
					return usagef("--strategy: %w", err)
				}
			}
			return a.with(cmd.Context(), jobRoles, func(s *session) error {
				p, err := a.compact(cmd.Context(), s, args[0], strategy)
				if err != nil {
					return err
				}
				done := p.Jobs
				if wait || s.node != nil {
					if err := a.waitJobs(cmd.Context(), s, args[0], p); err != nil {
						return err
					}
					if done, err = jobsDone(cmd.Context(), s, args[0], p); err != nil {
						return err
					}
				}
				plans, err := json.Marshal(p.Plans)
				if err != nil {
					return fmt.Errorf("show the plans: %w", err)
				}
				if err := a.show(object{{"table", p.Table}, {"jobs", p.Jobs}, {"files", p.Files}, {"rejected", p.Rejected}, {"reason", textOrNull(p.Reason)}, {"plans", json.RawMessage(plans)}}); err != nil {
					return err
				}
				if done < p.Jobs {
					return fmt.Errorf("table %s: %d of %d jobs were given up, their files are as they were; the log of the node that tried them says why", p.Table, p.Jobs-done, p.Jobs)
				}
				return nil
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&strategy, "strategy", "", "`strategies` by commas: "+strings.Join(planner.Strategies(), ", ")+" (default: the table's)")
	f.BoolVar(&wait, "wait", false, "wait until the jobs are done and published")
	return cmd
}

func (a *app) compact(ctx context.Context, s *session, table, strategy string) (*topology.Planned, error) {
	if _, err := s.Table(ctx, table); err != nil {
		return nil, err
	}
	if s.node == nil {
		return topology.RequestCompact(ctx, a.data, table, strategy)
	}
	var list []planner.Strategy
	if strategy != "" {
		var err error
		if list, err = planner.ParseStrategies(strategy); err != nil {
			return nil, err
		}
	}
	return s.node.Compact(ctx, table, list)
}

// openJobs are the open jobs that the session's node knows of.
func (a *app) openJobs(ctx context.Context, s *session, table string) ([]topology.JobStatus, error) {
	if s.node != nil {
		return s.node.Jobs(table)
	}
	return topology.RequestJobs(ctx, a.data, table)
}

// waitJobs waits until no job of these plans is open, and what they changed is published.
func (a *app) waitJobs(ctx context.Context, s *session, table string, p *topology.Planned) error {
	for {
		jobs, err := a.openJobs(ctx, s, table)
		if err != nil {
			return err
		}
		open := 0
		for i := range jobs {
			if slices.Contains(p.Plans, jobs[i].Job.Plan) {
				open++
			}
		}
		if open == 0 {
			break
		}
		t := time.NewTimer(jobsPoll)
		select {
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%d of %d jobs are still open; they go on: %w", open, p.Jobs, ctx.Err())
		case <-t.C:
		}
	}
	t, err := s.Table(ctx, table)
	if err != nil {
		return err
	}
	return s.WaitVisible(ctx, table, t.LastChange)
}

// jobsDone is how many jobs of these plans, none of which is open, were completed.
// The others were given up.
func jobsDone(ctx context.Context, s *session, table string, p *topology.Planned) (int64, error) {
	if len(p.Plans) == 0 {
		return 0, nil
	}
	done := int64(0)
	err := s.Transactions(ctx, table, slices.Min(p.Plans), func(d *processors.Decided) error {
		o := &d.Outcome
		if o.Type != record.TypeCompleteJob || o.Table != table || o.Derived || o.Outcome.Code == record.Rejected {
			return nil
		}
		env, body, err := s.Bodies().Open(ctx, d.Record.Key, d.Record.Header, d.Record.Value)
		if err != nil {
			return fmt.Errorf("log offset %d: %w", o.Offset, err)
		}
		v, err := record.DecodeBody(env.Type, env.TypeVersion, body)
		if err != nil {
			return fmt.Errorf("log offset %d: %w", o.Offset, err)
		}
		items := v.(*record.CompleteJob).Items
		rejected, err := o.Outcome.Rejected(len(items))
		if err != nil {
			return fmt.Errorf("log offset %d: %w", o.Offset, err)
		}
		for i := range items {
			if !rejected[i] && slices.Contains(p.Plans, items[i].Job.Plan) {
				done++
			}
		}
		return nil
	})
	return done, err
}

func (a *app) jobsCommand() *cobra.Command {
	return group("jobs", "Follow compaction jobs, and give them up",
		"  varve jobs list\n  varve jobs show 1234.0\n  varve jobs release shop.orders 1234.0",
		a.jobsListCommand(), a.jobsShowCommand(), a.jobsReleaseCommand())
}

func jobRow(j *topology.JobStatus) []any {
	state := "planned"
	switch {
	case j.HeardMs > 0:
		state = "running"
	case j.Sent:
		state = "sent"
	}
	var share, speed any
	if j.Speed > 0 {
		speed = int64(j.Speed)
	}
	if j.Rows > 0 && j.HeardMs > 0 {
		share = fmt.Sprintf("%d%%", 100*j.Done/j.Rows)
	}
	return []any{j.Table, jobName(&j.Job), int64(j.Job.Attempt), j.Strategy, int64(j.Inputs), j.Rows, state, textOrNull(j.Worker), j.Done, share, speed, millisOrNull(j.HeardMs)}
}

func jobName(j *record.JobID) string { return fmt.Sprintf("%d.%d", j.Plan, j.Item) }

func parseJobName(s string) (plan int64, item int32, err error) {
	p, i, ok := strings.Cut(s, ".")
	if ok {
		if plan, err = strconv.ParseInt(p, 10, 64); err == nil {
			var n int64
			n, err = strconv.ParseInt(i, 10, 32)
			item = int32(n)
		}
	}
	if !ok || err != nil || plan < 0 || item < 0 {
		return 0, 0, usagef("%q is no job; \"varve jobs list\" shows them, as 1234.0: the log offset of their plan and their place in it", s)
	}
	return plan, item, nil
}

func (a *app) jobsListCommand() *cobra.Command {
	var table string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the open jobs",
		Long: "Lists the jobs that are not completed: those of the partitions whose state the node on\n" +
			"the data folder has.",
		Example: "  varve jobs list\n  varve jobs list --table shop.orders --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				jobs, err := a.openJobs(cmd.Context(), s, table)
				if err != nil {
					return err
				}
				out := a.list(jobColumns...)
				for i := range jobs {
					if err := out.row(jobRow(&jobs[i])...); err != nil {
						return err
					}
				}
				return out.close()
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	cmd.Flags().StringVar(&table, "table", "", "jobs of this `table` only")
	return cmd
}

func (a *app) jobsShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show JOB",
		Short:   "Show one open job",
		Example: "  varve jobs show 1234.0",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, item, err := parseJobName(args[0])
			if err != nil {
				return err
			}
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				jobs, err := a.openJobs(cmd.Context(), s, "")
				if err != nil {
					return err
				}
				for i := range jobs {
					if j := &jobs[i]; j.Job.Plan == plan && j.Job.Item == item {
						o := object{}
						for k, v := range jobRow(j) {
							o = append(o, field{jobColumns[k], v})
						}
						return a.show(o)
					}
				}
				return fmt.Errorf("no open job %s: it is completed or was given up; \"varve transaction list TABLE --from %d\" shows what became of it", args[0], plan)
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	return cmd
}

func (a *app) jobsReleaseCommand() *cobra.Command {
	var again bool
	cmd := &cobra.Command{
		Use:   "release TABLE JOB…",
		Short: "Give open jobs up, so that their files are free",
		Long: "Ends the newest attempt at these jobs: a worker that has one in hand goes on, but its\n" +
			"result is rejected. Their files may then be planned for other jobs; with --again the\n" +
			"jobs stay and another worker gets them.",
		Example: "  varve jobs release shop.orders 1234.0\n  varve jobs release shop.orders 1234.0 --again",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			type name struct {
				plan int64
				item int32
			}
			var names []name
			for _, s := range args[1:] {
				plan, item, err := parseJobName(s)
				if err != nil {
					return err
				}
				names = append(names, name{plan, item})
			}
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				t, err := s.Table(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				jobs, err := a.openJobs(cmd.Context(), s, args[0])
				if err != nil {
					return err
				}
				rel := &record.ReleaseJob{Cause: "released by hand"}
				for k, n := range names {
					i := slices.IndexFunc(jobs, func(j topology.JobStatus) bool { return j.Job.Plan == n.plan && j.Job.Item == n.item })
					if i < 0 {
						return fmt.Errorf("table %s has no open job %s; \"varve jobs list\" shows those there are", args[0], args[k+1])
					}
					rel.Items = append(rel.Items, record.ReleasedJob{Job: jobs[i].Job, Again: again})
				}
				out, err := s.Request(cmd.Context(), t.Name, t.ID, rel)
				if err != nil {
					return err
				}
				rejected := []string{}
				if err := out.Outcome.RejectedItems(len(rel.Items), func(i int, why record.Reason) {
					rejected = append(rejected, fmt.Sprintf("%s: %s", args[i+1], why))
				}); err != nil {
					return err
				}
				if err := a.show(object{{"table", t.Name}, {"offset", out.Offset}, {"outcome", out.Outcome.Code.String()}, {"rejected", rejected}}); err != nil {
					return err
				}
				if out.Outcome.Code == record.Rejected {
					return fmt.Errorf("table %s: %w: %s (log offset %d)", t.Name, topology.ErrRejected, out.Outcome.Reason, out.Offset)
				}
				return nil
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	cmd.Flags().BoolVar(&again, "again", false, "another worker is to execute them")
	return cmd
}

// jobColumns name what jobRow has.
var jobColumns = []string{"table", "job", "attempt", "strategy", "inputs", "rows", "state", "worker", "written", "done", "rows_per_second", "heard"}

// jobFlags are the flags by which a node's jobs are set.
type jobFlags struct{ o topology.JobOptions }

func (j *jobFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.DurationVar(&j.o.PlanEvery, "plan-interval", topology.DefaultPlanEvery, "how often a table is looked at for files to compact")
	f.DurationVar(&j.o.Timeout, "job-timeout", topology.DefaultJobTimeout, "`time` of silence after which a worker's job is given to another")
	f.IntVar(&j.o.Attempts, "job-attempts", topology.DefaultJobAttempts, "attempts at a job before its files are free again")
	f.Int64Var(&j.o.MaxJobs, "max-jobs", topology.DefaultMaxJobs, "open jobs of the deployment; each partition of the log has its share")
	f.IntVar(&j.o.CheckOutputs, "check-outputs", topology.DefaultCheckOutputs, "of so many completed jobs the outputs of one are looked at in the store; -1: of none")
	f.IntVar(&j.o.Workers, "compactions", 0, "jobs that this node executes at a time (default: half the processors)")
	f.IntVar(&j.o.Partitions, "job-partitions", 0, "partitions of the jobs topic where it is made (default 32 on a cluster, 1 embedded)")
}
