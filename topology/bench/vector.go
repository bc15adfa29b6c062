package bench

import (
	"context"
	"time"

	"github.com/varve-io/varve/schemas/dv/vectorbench"
)

// vectorGoal: no operation takes more than this times what the plain calls take.
const vectorGoal = 1.2

func runVector(ctx context.Context, o *Options) ([]Result, error) {
	rounds := 501
	if o.Quick {
		rounds = 3
	}
	if o.Rows != 0 {
		o.Logger.Warn("--rows has no meaning for vectors: their file has a fixed number of rows", "rows", vectorbench.Rows)
	}
	cases, err := vectorbench.Cases(o.Seed)
	if err != nil {
		return nil, err
	}
	var out []Result
	for _, c := range cases {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		start, err := cpuSeconds()
		if err != nil {
			return nil, err
		}
		r, err := vectorbench.Compare(c, rounds, time.Now)
		if err != nil {
			return nil, err
		}
		end, err := cpuSeconds()
		if err != nil {
			return nil, err
		}
		x := Result{
			Bench: "vector." + c.Name(), Figure: float64(r.Ours), Unit: "ns", Better: Lower,
			Goal:   vectorGoal * float64(r.Plain),
			Beside: Beside{"plain roaring calls", float64(r.Plain)},
			CPU:    end - start, Setup: o.setup(0, "none"),
		}
		x.Setup.Rows, x.Setup.Broker, x.Setup.Threads = int64(vectorbench.Rows), "none", 1
		if x.RSSPeak, err = rssPeak(); err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}
