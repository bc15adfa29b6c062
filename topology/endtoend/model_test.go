package endtoend

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology/readers"
)

// row is a row's columns as readers show them; an absent one is null.
type row map[string]*string

// effect is what one event asks of one key.
type effect struct {
	key   string // the row's key column, as readers show it
	row   row    // nil: a delete
	order *int64 // ordering value, nil: none
}

// event is a source record and what it must do. One without effects is bad (a
// dead letter) or a control record.
type event struct {
	key, value []byte
	effects    []effect
	bad        bool
}

// version is what a model knows of a key.
type version struct {
	row      row // nil: absent
	order    *int64
	accepted int64 // log offset of the record that wrote the row
	touched  int64 // log offset of the newest record that changed the row
	before   int64 // of the record before that one that did
	deleted  int64 // log offset of the newest record that removed it, -1
	seen     int64 // the log offset that the writer of the row had read (L9)
	trace    []string
}

func (v *version) note(format string, args ...any) {
	v.trace = append(v.trace, fmt.Sprintf(format, args...))
	v.trace = v.trace[max(0, len(v.trace)-12):]
}

// model folds the log's accepted records over the events themselves (§6): it
// knows no file, no position and no index.
type model struct {
	events map[int32][]event // by source partition, by offset
	keys   map[string]version
	late   int64
	bad    int64
	good   int64
	asked  map[int64][]string // DeleteKeys by log offset
	owner  func(key string) int32
}

func (m *model) apply(e *effect, offset, seen int64, at string) {
	v, known := m.keys[e.key]
	if !known {
		v.deleted = -1
	}
	what, order := "upsert", "no order"
	if e.row == nil {
		what = "delete"
	}
	if e.order != nil {
		order = fmt.Sprint("order ", *e.order)
		if v.order != nil && *e.order < *v.order {
			m.late++
			v.note("%d (event %s): %s with %s is late", offset, at, what, order)
			m.keys[e.key] = v
			return
		}
		v.order = e.order
	}
	v.note("%d (event %s): %s with %s", offset, at, what, order)
	if e.row == nil {
		m.kill(&v, offset)
	} else {
		v.touch(offset)
		v.row, v.accepted, v.seen = e.row, offset, seen
	}
	m.keys[e.key] = v
}

func (m *model) kill(v *version, offset int64) {
	if v.row != nil {
		v.touch(offset)
		v.row, v.deleted = nil, offset
	}
}

func (v *version) touch(offset int64) {
	if v.touched != offset {
		v.before, v.touched = v.touched, offset
	}
}

// append folds an accepted AppendRows: its events, then its answers (A5).
func (m *model) append(a *record.AppendRows, offset, seen int64) error {
	events := m.events[a.Shard.Partition]
	if a.SourceTo > int64(len(events)) {
		return fmt.Errorf("the record at %d takes source offsets up to %d of %d", offset, a.SourceTo, len(events))
	}
	for i := a.SourceFrom; i < a.SourceTo; i++ {
		e := &events[i]
		if e.bad {
			m.bad++
		}
		for j := range e.effects {
			m.good++
			m.apply(&e.effects[j], offset, seen, fmt.Sprintf("%d:%d", a.Shard.Partition, i))
		}
	}
	for _, o := range slices.Sorted(maps.Keys(m.asked)) {
		if o < a.RequestFrom || o >= a.RequestTo {
			continue
		}
		for _, k := range m.asked[o] {
			// A shard answers for its own keys: it has none of the others'.
			if v, ok := m.keys[k]; ok && m.owner(k) == a.Shard.Partition && v.row != nil && v.accepted < o {
				m.kill(&v, offset)
				v.note("%d: dies by the request at %d", offset, o)
				m.keys[k] = v
			}
		}
	}
	return nil
}

// lines are the model's rows as readers.Table.Sorted gives them for these columns.
func (m *model) lines(columns []string) []string {
	columns = slices.Sorted(slices.Values(columns))
	var out []string
	for _, v := range m.keys {
		if v.row == nil {
			continue
		}
		parts := make([]string, len(columns))
		for i, c := range columns {
			parts[i] = c + "=∅"
			if x := v.row[c]; x != nil {
				parts[i] = c + "=" + *x
			}
		}
		out = append(out, strings.Join(parts, " "))
	}
	sort.Strings(out)
	return out
}

// columns are those in which some live row has a value.
func (m *model) columns() map[string]bool {
	out := map[string]bool{}
	for _, v := range m.keys {
		for c, x := range v.row {
			if x != nil {
				out[c] = true
			}
		}
	}
	return out
}

// commit is a SnapshotCommitted that the log accepted.
type commit struct {
	record.SnapshotCommitted
	offset int64
}

// history is the decided log of one table.
type history struct {
	appends []appended
	commits []commit
	outputs map[string]bool // names of files in completions that were accepted, at least in part
	outside bool            // published to an outside catalog
	folder  string          // of the table in the lake, "": there is no other table
}

type appended struct {
	record.AppendRows
	offset, seen int64
}

// decidedLog is a node, or a connection to one.
type decidedLog interface {
	Transactions(ctx context.Context, table string, from int64, fn func(*processors.Decided) error) error
	Bodies() *processors.Bodies
}

// readHistory reads the decided log of a table: what was accepted.
func readHistory(ctx context.Context, t testing.TB, n decidedLog, table string) *history {
	t.Helper()
	h, err := decidedHistory(ctx, n, table)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func decidedHistory(ctx context.Context, n decidedLog, table string) (*history, error) {
	h := &history{outputs: map[string]bool{}}
	err := n.Transactions(ctx, table, 0, func(d *processors.Decided) error {
		if d.Outcome.Table != table || d.Outcome.Derived || d.Outcome.Outcome.Code != record.Accepted && d.Outcome.Outcome.Code != record.Partly {
			return nil
		}
		env, body, err := n.Bodies().Open(ctx, d.Record.Key, d.Record.Header, d.Record.Value)
		if err != nil {
			return err
		}
		switch d.Outcome.Type {
		case record.TypeAppendRows:
			a := appended{offset: d.Record.Offset, seen: env.OffsetSeen}
			if err := a.AppendRows.Decode(body); err != nil {
				return err
			}
			h.appends = append(h.appends, a)
		case record.TypeCompleteJob:
			v, err := record.DecodeBody(record.TypeCompleteJob, 1, body)
			if err != nil {
				return err
			}
			for _, x := range v.(*record.CompleteJob).Items {
				for i := range x.Outputs {
					h.outputs[schemas.JobFileName(x.Outputs[i].Name)] = true
				}
			}
		case record.TypeSnapshotCommitted:
			v, err := record.DecodeBody(record.TypeSnapshotCommitted, 1, body)
			if err != nil {
				return err
			}
			h.commits = append(h.commits, commit{*v.(*record.SnapshotCommitted), d.Record.Offset})
		}
		return nil
	})
	return h, err
}

// check reads every committed version of the table with iceberg-go and holds
// it against the model as of its build offset.
func (h *history) check(ctx context.Context, t testing.TB, m *model, key string) {
	t.Helper()
	m.keys, m.late, m.bad, m.good = map[string]version{}, 0, 0, 0
	next := 0
	var before *lineage
	for i := range h.commits {
		c := &h.commits[i]
		for ; next < len(h.appends) && h.appends[next].offset < c.Build; next++ {
			a := &h.appends[next]
			if err := m.append(&a.AppendRows, a.offset, a.seen); err != nil {
				t.Fatal(err)
			}
		}
		if c.SnapshotID == 0 {
			continue // metadata alone
		}
		got, err := readLake(ctx, readers.IcebergGo, c.MetadataPath, readers.Options{Lineage: true})
		if err != nil {
			t.Fatal(err)
		}
		now := takeLineage(t, got, key)
		compare(t, fmt.Sprintf("snapshot %d of build %d", c.SnapshotID, c.Build), got, m, key)
		now.check(t, before, m, c, prior(h.commits[:i]))
		before = now
	}
	for ; next < len(h.appends); next++ {
		a := &h.appends[next]
		if err := m.append(&a.AppendRows, a.offset, a.seen); err != nil {
			t.Fatal(err)
		}
	}
}

func prior(cs []commit) *commit {
	for i := len(cs) - 1; i >= 0; i-- {
		if cs[i].SnapshotID != 0 {
			return &cs[i]
		}
	}
	return nil
}

// compare holds what a reader read against the model.
func compare(t testing.TB, what string, got *readers.Table, m *model, key string) {
	t.Helper()
	for c := range m.columns() {
		if !slices.Contains(got.Columns, c) {
			t.Fatalf("%s has no column %s; it has %v", what, c, got.Columns)
		}
	}
	if lines := m.lines(got.Columns); !slices.Equal(got.Sorted(), lines) {
		k := slices.Index(got.Columns, key)
		have := map[string]bool{}
		for _, r := range got.Rows {
			have[*r[k]] = true
		}
		for name, v := range m.keys {
			if have[name] != (v.row != nil) {
				t.Logf("history of key %s:\n  %s", name, strings.Join(v.trace, "\n  "))
			}
		}
		diff(t, what, got.Sorted(), lines)
	}
}

func diff(t testing.TB, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	have, need := map[string]int{}, map[string]int{}
	for _, l := range got {
		have[l]++
	}
	for _, l := range want {
		need[l]++
	}
	var out []string
	for _, l := range slices.Compact(append(slices.Clone(got), want...)) {
		if have[l] != need[l] {
			out = append(out, fmt.Sprintf("  read %d times, want %d: %s", have[l], need[l], l))
		}
	}
	sort.Strings(out)
	out = slices.Compact(out)
	t.Fatalf("%s: %d rows, want %d; they differ in\n%s", what, len(got), len(want), strings.Join(out[:min(len(out), 20)], "\n"))
}

// lineage is the row id and sequence number of every key of a snapshot.
type lineage struct{ id, sequence map[string]string }

// takeLineage takes the two lineage columns out of a table.
func takeLineage(t testing.TB, got *readers.Table, key string) *lineage {
	t.Helper()
	if len(got.Columns) < 2 || got.Columns[0] != "_row_id" || got.Columns[1] != "_last_updated_sequence_number" {
		t.Fatalf("columns %v do not begin with the lineage", got.Columns)
	}
	k := slices.Index(got.Columns, key)
	l := &lineage{map[string]string{}, map[string]string{}}
	ids := map[string]bool{}
	for i, r := range got.Rows {
		if r[0] == nil || r[1] == nil {
			t.Fatalf("a row without lineage: M4, S9")
		}
		if ids[*r[0]] {
			t.Fatalf("two rows have the row id %s", *r[0])
		}
		ids[*r[0]] = true
		l.id[*r[k]], l.sequence[*r[k]] = *r[0], *r[1]
		got.Rows[i] = r[2:]
	}
	got.Columns = got.Columns[2:]
	return l
}

// check holds the lineage of a snapshot against that of the one before (C6).
func (l *lineage) check(t testing.TB, before *lineage, m *model, c, prior *commit) {
	t.Helper()
	for k, v := range m.keys {
		if v.row == nil {
			continue
		}
		if prior == nil || v.touched > prior.Build {
			if want := fmt.Sprint(c.Sequence); l.sequence[k] != want {
				t.Fatalf("snapshot %d: key %s was written at %d: its sequence number is %s, want %s", c.SnapshotID, k, v.touched, l.sequence[k], want)
			}
		} else if l.sequence[k] != before.sequence[k] || l.id[k] != before.id[k] {
			t.Fatalf("snapshot %d: key %s was not touched since %d: row id %s → %s, sequence number %s → %s", c.SnapshotID, k, v.touched,
				before.id[k], l.id[k], before.sequence[k], l.sequence[k])
		}
		if prior == nil || before.id[k] == "" || v.touched <= prior.Build {
			continue
		}
		switch {
		case v.deleted > prior.Build:
			if l.id[k] == before.id[k] {
				t.Fatalf("snapshot %d: key %s was deleted at %d and written again: it has its old row id %s", c.SnapshotID, k, v.deleted, l.id[k])
			}
		case v.seen >= prior.offset && v.before <= prior.Build:
			if l.id[k] != before.id[k] {
				t.Fatalf("snapshot %d: key %s was updated by the record at %d, whose writer had read the snapshot before (%d): row id %s → %s",
					c.SnapshotID, k, v.touched, prior.offset, before.id[k], l.id[k])
			}
		}
	}
}
