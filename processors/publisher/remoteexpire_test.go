package publisher_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas/restcat"
	"github.com/varve-io/varve/statestore/restclient"
)

// reading calls a function before each reading of the table.
type reading struct {
	publisher.Remote
	n      int
	before func(n int) error
}

func (r *reading) Load(ctx context.Context, id restcat.Identifier) (*restclient.Table, error) {
	r.n++
	if err := r.before(r.n); err != nil {
		return nil, err
	}
	return r.Remote.Load(ctx, id)
}

// TestRemoteTagMeetsExpiry: another writer tags a snapshot that a commit of ours
// expires, in every moment of that commit. Where the catalog swaps the place of the
// metadata itself the tag is never lost. A server of the protocol loses it only
// where it comes after our last reading, and then its name is told.
func TestRemoteTagMeetsExpiry(t *testing.T) {
	for _, x := range []struct {
		name  string
		exact bool
		when  string
		lost  bool
	}{
		{"before we read", false, "load 1", false},
		{"while we build", false, "load 2", false},
		{"after our last reading", false, "commit", true},
		{"while we build, places are swapped", true, "load 2", false},
		{"after our last reading, places are swapped", true, "commit", false},
	} {
		t.Run(x.name, func(t *testing.T) {
			def := definition()
			def.RetentionCount, def.RetentionMs = 1, 1
			o := newOutside(t, def)
			o.cat.Exact, o.cat.Store = x.exact, o.store
			o.append([]newFile{{rows: 9}}, nil)
			r, _ := o.publish(o.freeze())
			first := r.Committed.SnapshotID
			o.append([]newFile{{rows: 9}}, nil)
			o.publish(o.freeze())
			o.append([]newFile{{rows: 9}}, nil)
			o.timeMs += 100_000
			f := o.freeze()
			if fmt.Sprint(f.Expire) != fmt.Sprint([]int64{first}) {
				t.Fatalf("the cut expires %v", f.Expire)
			}
			tagged := false
			tag := func() error {
				if tagged {
					return nil
				}
				tagged = true
				return o.cat.Foreign(o.ident, restcat.SetRef("theirs", "tag", first, nil))
			}
			var told strings.Builder
			o.pub = publisher.New(publisher.Config{Store: o.store, Bodies: o.bodies, Logger: slog.New(slog.NewTextHandler(&told, nil)), Remote: &reading{Remote: o.cat, before: func(n int) error {
				if x.when == fmt.Sprint("load ", n) {
					return tag()
				}
				return nil
			}}})
			if x.when == "commit" {
				o.cat.Before = tag
			}
			o.publish(f)
			if !tagged {
				t.Fatal("nothing was tagged")
			}
			if kept := o.meta().Ref("theirs") != nil && o.meta().Snapshot(first) != nil; kept == x.lost {
				t.Errorf("the tag is there: %t", kept)
			}
			if says := strings.Contains(told.String(), "ref=theirs") && strings.Contains(told.String(), fmt.Sprint("snapshot=", first)); says != x.lost {
				t.Errorf("the log says of it: %q", told.String())
			}
			o.append([]newFile{{rows: 2}}, nil)
			o.publishAll()
			o.checkAll()
			info, err := o.st.Table(o.def.Name)
			o.must(err)
			for i := range info.Snapshots {
				if o.meta().Snapshot(info.Snapshots[i].ID) == nil {
					t.Errorf("the log keeps snapshot %d, which the catalog does not have", info.Snapshots[i].ID)
				}
			}
		})
	}
}
