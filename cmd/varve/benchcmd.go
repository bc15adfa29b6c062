package main

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/topology/bench"
)

func (a *app) benchCommand() *cobra.Command {
	var o bench.Options
	var works []string
	long := "Runs a named work with something plain beside it, and prints its set-up, its\n" +
		"figure and the ratio of both. Trust the ratio: other processes move the figure.\n" +
		"Figures per cpu-s count the processor time of the measured processes alone. Scale, move and\n" +
		"steady judge themselves: exit code 1 tells that what must not grow grew.\n"
	for _, w := range bench.Works() {
		works = append(works, w.Name)
		long += fmt.Sprintf("\n  %-8s %s", w.Name, w.Short)
	}
	cmd := &cobra.Command{
		Use:   "bench NAME",
		Short: "Measure named works, each with a plain way beside it",
		Long:  long,
		Example: "  varve bench upsert --rows 1000000\n" +
			"  varve bench commit --brokers kafka-1:9092 --output json\n" +
			"  varve bench visible --brokers kafka-1:9092 --warehouse s3://lake/bench\n" +
			"  varve bench steady --duration 20m --log-level info\n" +
			"  varve bench vector",
		Args:      cobra.ExactArgs(1),
		ValidArgs: works,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Brokers = a.brokers
			o.Logger = a.log
			rs, err := bench.Run(cmd.Context(), args[0], o)
			if errors.Is(err, bench.ErrUnknown) {
				return usagef("%w%s", err, didYouMean(args[0], works))
			}
			if err != nil && !errors.Is(err, bench.ErrMissed) {
				return err
			}
			return errors.Join(a.listBench(rs), err)
		},
	}
	f := cmd.Flags()
	f.Int64Var(&o.Rows, "rows", 0, "`size` of the work (default: the work's own)")
	f.BoolVar(&o.Quick, "quick", false, "a form of some seconds, for tests; its figures mean nothing")
	f.StringSliceVar(&a.brokers, "brokers", nil, "Kafka brokers as `host:port,...` (default: an embedded broker)")
	f.StringVar(&o.Warehouse, "warehouse", "", "store `URL` or folder for the lakes (default: in the work's folder)")
	f.DurationVar(&o.Duration, "duration", 0, "`time` that steady runs (default: 2h)")
	f.StringVar(&o.Dir, "dir", "", "`folder` for the work's files (default: the system's for temporary files)")
	f.Uint64Var(&o.Seed, "seed", bench.DefaultSeed, "seed of all that is drawn")
	f.StringVar(&o.CPUProfile, "cpuprofile", "", "`file` for a profile of the measured process")
	return cmd
}

// benchNodeCommand is the process that works measure.
func (a *app) benchNodeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     bench.NodeCommand,
		Short:   "A node under measurement, started by varve bench",
		Example: "  varve bench-node < task.json",
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.RunNode(cmd.Context(), a.in, promptWriter{a}, a.log)
		},
	}
}

// promptWriter lets each write out at once: somebody waits for it.
type promptWriter struct{ a *app }

func (w promptWriter) Write(b []byte) (int, error) {
	n, err := w.a.out.Write(b)
	if err != nil {
		return n, err
	}
	return n, w.a.flush()
}

func (a *app) listBench(rs []bench.Result) error {
	if a.mode != modeTable {
		out := a.list("bench", "figure", "unit", "better", "goal", "beside", "ratio", "cpu_s", "rss_peak_bytes", "setup")
		for i := range rs {
			r := &rs[i]
			setup := object{
				{"rows", r.Setup.Rows}, {"partitions", int64(r.Setup.Partitions)}, {"broker", r.Setup.Broker}, {"store", r.Setup.Store},
				{"threads", int64(r.Setup.Threads)}, {"seed", r.Setup.Seed}, {"note", r.Setup.Note},
			}
			if err := out.row(r.Bench, r.Figure, r.Unit, r.Better, r.Goal,
				object{{"name", r.Beside.Name}, {"figure", r.Beside.Figure}}, r.Ratio, r.CPU, byteSize(r.RSSPeak), setup); err != nil {
				return err
			}
		}
		return out.close()
	}
	out := a.list("bench", "figure", "unit", "better", "goal", "beside", "ratio", "cpu_s", "rss_peak", "beside_is")
	for i := range rs {
		r := &rs[i]
		if err := out.row(r.Bench, rounded(r.Figure), r.Unit, r.Better, rounded(r.Goal), rounded(r.Beside.Figure), rounded(r.Ratio),
			rounded(r.CPU), byteSize(r.RSSPeak), r.Beside.Name); err != nil {
			return err
		}
	}
	if err := out.close(); err != nil {
		return err
	}
	return a.benchSetups(rs)
}

// benchSetups prints each set-up once, behind the figures.
func (a *app) benchSetups(rs []bench.Result) error {
	last := bench.Setup{}
	var b strings.Builder
	for i := range rs {
		s := rs[i].Setup
		if s == last {
			continue
		}
		last = s
		fmt.Fprintf(&b, "\n%s: %d rows, %d partitions, broker %s, store %s, %d threads, seed %d", rs[i].Bench, s.Rows, s.Partitions, s.Broker, s.Store, s.Threads, s.Seed)
		if s.Note != "" {
			b.WriteString("\n  " + s.Note)
		}
	}
	b.WriteString("\n")
	_, err := a.out.Write([]byte(b.String()))
	return err
}

// rounded keeps three figures, for people.
func rounded(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	digits := 2 - math.Floor(math.Log10(math.Abs(v)))
	if digits < 0 {
		unit := math.Pow(10, -digits)
		return math.Round(v/unit) * unit
	}
	scale := math.Pow(10, digits)
	return math.Round(v*scale) / scale
}
