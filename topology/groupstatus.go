package topology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// GroupPart is where a partition of one of a deployment's groups stands.
type GroupPart struct {
	Group     string
	Topic     string
	Partition int32
	Node      string // id of the node that has it, "": none
	Host      string // where that node connects from
	Committed int64  // what was accepted or applied as last told, -1: never told
	End       int64  // the partition's end, -1: not known
}

// Lag is how far the group is behind, -1: not known.
func (p *GroupPart) Lag() int64 {
	if p.Committed < 0 || p.End < 0 {
		return -1
	}
	return max(0, p.End-p.Committed)
}

// GroupParts says who has what of a deployment, and how far it is.
func (a *Admin) GroupParts(ctx context.Context, deployment string) ([]GroupPart, error) {
	names := []string{StateGroup(deployment), IngestGroup(deployment)}
	groups, err := a.adm.DescribeGroups(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("ask Kafka for the groups of deployment %s: %w", deployment, err)
	}
	type key struct {
		group, topic string
		partition    int32
	}
	parts := map[key]*GroupPart{}
	at := func(group, topic string, partition int32) *GroupPart {
		k := key{group, topic, partition}
		if parts[k] == nil {
			parts[k] = &GroupPart{Group: group, Topic: topic, Partition: partition, Committed: -1, End: -1}
		}
		return parts[k]
	}
	for _, name := range names {
		g := groups[name]
		if g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound) {
			return nil, fmt.Errorf("ask Kafka for group %s: %w", name, g.Err)
		}
		for i := range g.Members {
			m := &g.Members[i]
			assigned, ok := m.Assigned.AsConsumer()
			if !ok {
				continue
			}
			node := m.MemberID
			if m.InstanceID != nil {
				node = strings.TrimPrefix(*m.InstanceID, deployment+".")
			}
			for _, t := range assigned.Topics {
				for _, p := range t.Partitions {
					x := at(name, t.Topic, p)
					x.Node, x.Host = node, m.ClientHost
				}
			}
		}
		offsets, err := a.adm.FetchOffsets(ctx, name)
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return nil, fmt.Errorf("ask Kafka for the offsets of group %s: %w", name, err)
		}
		for topic, ps := range offsets {
			for p, o := range ps {
				if o.Err == nil && o.At >= 0 {
					at(name, topic, p).Committed = o.At
				}
			}
		}
	}
	ends := map[string][]PartitionOffsets{}
	out := make([]GroupPart, 0, len(parts))
	for _, x := range parts {
		os, asked := ends[x.Topic]
		if !asked {
			if os, err = a.Offsets(ctx, x.Topic); err != nil && !errors.Is(err, ErrNoTopic) {
				return nil, err
			}
			ends[x.Topic] = os
		}
		if int(x.Partition) < len(os) {
			x.End = os[x.Partition].High
		}
		out = append(out, *x)
	}
	slices.SortFunc(out, func(a, b GroupPart) int {
		return cmp.Or(-cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out, nil
}
