package topology

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/varve-io/varve/schemas/logfile"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/checkpoint"
	"github.com/varve-io/varve/statestore/objstore"
)

// replayPart is one partition's log.
type replayPart struct {
	name      string // for people
	partition int32
	end       int64  // offset after the last record
	export    string // "": the topic
}

// replaySource is where the records of a replay come from.
type replaySource struct {
	client ClientOptions
	broker *Broker // started for it, nil: another one
	topics Topics
	parts  []replayPart
}

func openReplaySource(ctx context.Context, o *ReplayOptions) (s *replaySource, err error) {
	s = &replaySource{client: o.Client}
	if len(o.Exports) > 0 {
		err = s.exports(ctx, o)
	} else {
		err = s.topic(ctx, o)
	}
	if err == nil {
		err = s.choose(o)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *replaySource) close() error {
	if s.broker == nil {
		return nil
	}
	return s.broker.Close()
}

// exports looks at all of the files before anything is made of one.
func (s *replaySource) exports(ctx context.Context, o *ReplayOptions) error {
	var first logfile.Head
	for i, path := range o.Exports {
		h, next, err := checkExport(ctx, path)
		if err != nil {
			return err
		}
		if o.Expect != ([16]byte{}) && h.Deployment != o.Expect {
			return fmt.Errorf("%w: %s is the log of deployment %x (%s), not of %x; name the files and the data folder that belong together", ErrConfig, path, h.Deployment, h.Name, o.Expect)
		}
		if h.First > 0 {
			return fmt.Errorf("%w: %s begins at log offset %d; a state is built from offset 0: export before the log is truncated, or restore a checkpoint", ErrConfig, path, h.First)
		}
		if i == 0 {
			first = h
		}
		if h.Deployment != first.Deployment {
			return fmt.Errorf("%w: %s is the log of another deployment (%x) than %s (%x)", ErrConfig, path, h.Deployment, o.Exports[0], first.Deployment)
		}
		for _, p := range s.parts {
			if p.partition == h.Partition {
				return fmt.Errorf("%w: %s and %s are both of partition %d; name one of them", ErrConfig, p.export, path, h.Partition)
			}
		}
		s.parts = append(s.parts, replayPart{name: path, partition: h.Partition, end: next, export: path})
	}
	slices.SortFunc(s.parts, func(a, b replayPart) int { return int(a.partition - b.partition) })
	return nil
}

func (s *replaySource) topic(ctx context.Context, o *ReplayOptions) error {
	return s.topicFrom(ctx, o, func(name string, at PartitionOffsets) error {
		if at.Start > 0 {
			return fmt.Errorf("%s: %w: it begins at offset %d, and a state is built from offset 0; replay a file that was exported before, or restore a checkpoint", name, ErrLogTrimmed, at.Start)
		}
		return nil
	})
}

// topicFrom finds the partitions of the topic, each of which may takes.
func (s *replaySource) topicFrom(ctx context.Context, o *ReplayOptions, may func(name string, at PartitionOffsets) error) (err error) {
	s.client.Brokers = o.Brokers
	if len(s.client.Brokers) == 0 {
		if s.broker, err = OpenBroker(BrokerOptions{Dir: filepath.Join(o.Data, "broker"), Logger: o.Logger}); err != nil {
			return err
		}
		s.client.Brokers = []string{s.broker.Addr()}
	}
	a, err := NewAdmin(s.client)
	if err != nil {
		return err
	}
	defer a.Close()
	if err := a.Ping(ctx, 0); err != nil {
		return err
	}
	s.topics.Transactions, s.topics.Outcomes = o.Deployment+".transactions", o.Deployment+".outcomes"
	ends, err := a.Offsets(ctx, s.topics.Transactions)
	if err != nil {
		return err
	}
	s.topics.Partitions = len(ends)
	for p := range ends {
		name := fmt.Sprintf("topic %s partition %d", s.topics.Transactions, p)
		if err := may(name, ends[p]); err != nil {
			return err
		}
		s.parts = append(s.parts, replayPart{name: name, partition: int32(p), end: ends[p].High})
	}
	return nil
}

// choose keeps the partitions that are asked for, up to where is asked for.
func (s *replaySource) choose(o *ReplayOptions) error {
	for _, p := range o.Partitions {
		if !slices.ContainsFunc(s.parts, func(x replayPart) bool { return x.partition == p }) {
			return fmt.Errorf("%w: there is no partition %d to replay", ErrConfig, p)
		}
	}
	if len(o.Partitions) > 0 {
		s.parts = slices.DeleteFunc(s.parts, func(x replayPart) bool { return !slices.Contains(o.Partitions, x.partition) })
	}
	if o.To.Offset == nil {
		return nil
	}
	if len(s.parts) > 1 {
		return fmt.Errorf("%w: an offset is one partition's, and there are %d: name one", ErrConfig, len(s.parts))
	}
	for i := range s.parts {
		p := &s.parts[i]
		if *o.To.Offset < 0 || *o.To.Offset >= p.end {
			return fmt.Errorf("%w: %s has offsets 0 to %d; there is no %d", ErrConfig, p.name, p.end-1, *o.To.Offset)
		}
		p.end = *o.To.Offset + 1
	}
	return nil
}

func (s *replaySource) records(ctx context.Context, p *replayPart) (records, error) {
	if p.export != "" {
		return openExport(p.export)
	}
	return topicRecords(ctx, s.client, s.topics.Transactions, p.partition, 0, p.end)
}

// against holds the state that was built against the one of a data folder.
func (r *replay) against(ctx context.Context) (err error) {
	if r.o.Against == "" || ctx.Err() != nil {
		return ctx.Err()
	}
	dir := stateDir(r.o.Against, r.part.partition)
	im, err := statestore.Inspect(dir, false, statestore.Options{Log: r.o.Logger})
	if err != nil {
		r.o.Logger.Info("there is no state to compare with", "folder", dir, "because", err)
		return nil
	}
	h := r.store.Head()
	if im.Head.Offset != h.Offset {
		r.o.Logger.Info("the folder's state stands elsewhere and is not compared", "folder", dir, "offset", im.Head.Offset, "replayed", h.Offset)
		return nil
	}
	st, err := statestore.Open(dir, statestore.Options{Log: r.o.Logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	d, err := statestore.Compare(st, r.store)
	if err != nil {
		return err
	}
	if d != nil {
		table := "no table"
		if d.Table >= 0 {
			table = fmt.Sprintf("table with id %d", d.Table)
			if err := r.store.Tables(func(t *statestore.TableInfo) error {
				if t.ID == d.Table {
					table = "table " + t.Name
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return fmt.Errorf("%w: %s, partition %d, offset %d: the state in %s (first) and the one that was built (second) differ in kind %q: %s",
			ErrReplayDiffers, table, r.part.partition, h.Offset, dir, d.Kind, d.How)
	}
	r.out.States++
	return nil
}

// compared is a store of what a replay publishes, each object of it held
// against the lake's.
type compared struct {
	objstore.Store
	lake objstore.Store
	out  *Replayed
	diff error // the first
}

func (c *compared) Create(ctx context.Context, key string, data []byte) error {
	if err := c.Store.Create(ctx, key, data); err != nil {
		return err
	}
	have, err := c.lake.ReadAll(ctx, key, int64(len(data))+1)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		c.out.Gone++
		return nil
	case errors.Is(err, objstore.ErrTooLarge):
		have = nil
	case err != nil:
		return fmt.Errorf("read %s of the lake: %w", key, err)
	}
	if bytes.Equal(have, data) {
		c.out.Compared++
		return nil
	}
	if c.diff == nil {
		at := 0
		for at < len(have) && at < len(data) && have[at] == data[at] {
			at++
		}
		c.diff = fmt.Errorf("%s of the lake has other bytes than the log gives, from byte %d on", c.lake.Location(key), at)
	}
	return nil
}

// found is the difference that publishing a cut met.
func (c *compared) found(table string, build int64) error {
	if c.diff == nil {
		return nil
	}
	return fmt.Errorf("%w: table %s, build offset %d: %w", ErrReplayDiffers, table, build, c.diff)
}

// chainCheck holds the outcomes of a replay against what others made of the
// same log: the outcomes topic, and checkpoints.
type chainCheck struct {
	partition   int32
	outcomes    *LogReader // nil: the log is a file
	queue       []record.OutcomeMessage
	last        int64 // newest outcome offset to expect
	checkpoints map[int64][]*checkpoint.Manifest
}

func (s *replaySource) openChains(ctx context.Context, o *ReplayOptions, p *replayPart) (*chainCheck, error) {
	c := &chainCheck{partition: p.partition, last: -1, checkpoints: map[int64][]*checkpoint.Manifest{}}
	es, err := checkpoint.At(o.Compare, o.Deployment, p.partition).List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range es {
		if es[i].Manifest != nil {
			c.checkpoints[es[i].Offset] = append(c.checkpoints[es[i].Offset], es[i].Manifest)
		}
	}
	if p.export != "" {
		return c, nil
	}
	a, err := NewAdmin(s.client)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	at, err := a.Offsets(ctx, s.topics.Outcomes)
	if errors.Is(err, ErrNoTopic) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	if at[p.partition].Start > 0 || at[p.partition].High == 0 {
		return c, nil
	}
	c.outcomes, err = OpenLogReader(ctx, s.client, ReaderOptions{Topic: s.topics.Outcomes, Partition: p.partition})
	return c, err
}

func (c *chainCheck) close() {
	if c.outcomes != nil {
		c.outcomes.Close()
	}
}

// theirs is the outcome that the topic has of an offset, nil: none (yet).
func (c *chainCheck) theirs(ctx context.Context, offset int64) (*record.OutcomeMessage, error) {
	for {
		for len(c.queue) > 0 && c.queue[0].Offset < offset {
			c.queue = c.queue[1:]
		}
		if len(c.queue) > 0 {
			if c.queue[0].Offset == offset {
				return &c.queue[0], nil
			}
			return nil, nil
		}
		if c.outcomes == nil || c.outcomes.Next() >= c.outcomes.HighWatermark() {
			return nil, nil
		}
		rs, err := c.outcomes.Poll(ctx, time.Second, 4096)
		if err != nil {
			return nil, err
		}
		c.queue = c.queue[:0]
		for i := range rs {
			var m record.OutcomeMessage
			if isOutcome(&rs[i], &m) && !m.Derived {
				c.queue = append(c.queue, m)
			}
		}
	}
}

// check holds one outcome against the others' and says how many there were.
func (c *chainCheck) check(ctx context.Context, mine *record.OutcomeMessage) (n int64, err error) {
	where := func() string { return fmt.Sprintf("table %s, partition %d", mine.Table, c.partition) }
	them, err := c.theirs(ctx, mine.Offset)
	if err != nil {
		return 0, err
	}
	if them != nil {
		switch {
		case them.Outcome.Code != mine.Outcome.Code || them.Outcome.Reason != mine.Outcome.Reason:
			return n, fmt.Errorf("%w: %s: the outcomes topic has the outcome %s (%s), the log gives %s (%s)", ErrReplayDiffers, where(),
				them.Outcome.Code, them.Outcome.Reason, mine.Outcome.Code, mine.Outcome.Reason)
		case them.Chain != mine.Chain:
			return n, fmt.Errorf("%w: %s: the outcomes topic has chain hash %s, the log gives %s: the record or what came of it differs", ErrReplayDiffers, where(), them.Chain, mine.Chain)
		}
		n++
	}
	for _, m := range c.checkpoints[mine.Offset] {
		if m.Chain != mine.Chain.String() {
			return n, fmt.Errorf("%w: %s: checkpoint %s has chain hash %s, the log gives %s: they are of two logs with the same beginning, or one is damaged",
				ErrReplayDiffers, where(), m.ID(), m.Chain, mine.Chain)
		}
		n++
	}
	return n, nil
}

// ReplayFolder is the folder of a partition's state in that of a replay.
func ReplayFolder(state string, partition int32) string {
	return filepath.Join(state, strconv.Itoa(int(partition)))
}
