package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/varve-io/varve/topology"
)

// groupFlags are the flags by which a node shares a deployment with others.
type groupFlags struct {
	partitions         string
	log                int
	node               string
	session, rebalance time.Duration
	leave              bool
}

func (g *groupFlags) add(f *pflag.FlagSet) {
	f.StringVar(&g.partitions, "partitions", "", "take these source `partitions`, as 0-3,7, without sharing them with other nodes (default: what the group gives)")
	f.IntVar(&g.log, "log-partitions", 0, "`number` of partitions of the transactions topic at the first start, for ever (default 8 on a cluster, 1 embedded)")
	f.StringVar(&g.node, "node-id", "", "`name` of this node among those of the deployment (default: made of host and data folder, and kept there)")
	f.DurationVar(&g.session, "session-timeout", topology.DefaultSessionTimeout, "`time` of silence after which the other nodes take over what this one has")
	f.DurationVar(&g.rebalance, "rebalance-timeout", topology.DefaultRebalanceTimeout, "`time` that dividing the work anew may take; handing something over takes at most half of it")
	f.BoolVar(&g.leave, "leave", false, "leave the groups at the end, so that the other nodes take over at once")
}

// apply gives a node's options what the flags say. Nodes of a cluster share
// their deployment.
func (g *groupFlags) apply(o *topology.NodeOptions) (err error) {
	if o.SourcePartitions, err = parseRanges(g.partitions); err != nil {
		return usagef("--partitions %q: %w", g.partitions, err)
	}
	for _, t := range []struct {
		flag string
		time time.Duration
	}{{"session-timeout", g.session}, {"rebalance-timeout", g.rebalance}} {
		if t.time < time.Second {
			return usagef("--%s %s: a second or more", t.flag, t.time)
		}
	}
	o.Partitions, o.Groups = g.log, len(o.Brokers) > 0
	o.NodeID, o.SessionTimeout, o.RebalanceTimeout, o.LeaveGroups = g.node, g.session, g.rebalance, g.leave
	return nil
}

// maxSourcePartition is far above any topic's.
const maxSourcePartition = 1 << 16

// parseRanges reads partitions as 0-3,7; none: nil.
func parseRanges(s string) ([]int32, error) {
	var out []int32
	for part := range strings.SplitSeq(s, ",") {
		if s == "" {
			return nil, nil
		}
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err := strconv.ParseUint(from, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("%q is no partition or range of partitions; write them as 0-3,7", part)
		}
		b, err := strconv.ParseUint(to, 10, 31)
		if err != nil || b < a {
			return nil, fmt.Errorf("%q is no partition or range of partitions; write them as 0-3,7", part)
		}
		if b > maxSourcePartition {
			return nil, fmt.Errorf("partition %d is above %d", b, maxSourcePartition)
		}
		for p := a; p <= b; p++ {
			if slices.Contains(out, int32(p)) {
				return nil, fmt.Errorf("partition %d is named twice", p)
			}
			out = append(out, int32(p))
		}
	}
	return out, nil
}
