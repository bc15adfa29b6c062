package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/topology"
)

func (a *app) dlqCommand() *cobra.Command {
	return group("dlq", "Count, show and publish again the events that tables could not take",
		"  varve dlq list\n  varve dlq show shop.orders 12\n  varve dlq retry shop.orders --code varve.schema",
		a.dlqListCommand(), a.dlqShowCommand(), a.dlqRetryCommand())
}

// maxLetterGroups bounds the list: reasons name columns, and topics may have many.
const maxLetterGroups = 1000

type letterGroup struct {
	topic, table, code, reason string
	count, first, last         int64
	firstMs, lastMs            int64
	bytes                      int64
}

func (a *app) dlqListCommand() *cobra.Command {
	var each bool
	var limit int64
	cmd := &cobra.Command{
		Use:   "list [TABLE…]",
		Short: "Count dead letters by topic and reason",
		Long: "Counts the dead letters of the tables' source topics (topic <topic>.dlq) by table and\n" +
			"reason, the most frequent first. Without a table, those of all tables. --each lists\n" +
			"letters one by one. Reasons name columns, never values. Tables that share a source\n" +
			"topic share its dead letters.",
		Example: "  varve dlq list\n  varve dlq list shop.orders --output json\n  varve dlq list shop.orders --each --limit 5",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case a.given("limit") && !each:
				return usagef("--limit goes with --each")
			case limit < 0 || limit == 0 && a.given("limit"):
				return usagef("--limit %d: a limit is 1 or more", limit)
			}
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				ctx := cmd.Context()
				topics, err := letterTopics(ctx, s, args)
				if err != nil {
					return err
				}
				if each {
					out := a.list("letter", "time", "topic", "partition", "offset", "table", "code", "reason", "retried", "bytes")
					left := limit
					for _, topic := range topics {
						err := s.DeadLetters(ctx, topic, func(l *topology.Letter) error {
							err := out.row(l.Offset, millis(l.TimeMs), l.Topic, int64(l.Partition), l.SourceOffset, l.Table, l.Code, l.Reason, known(l.Retried), byteSize(len(l.Key)+len(l.Value)))
							if left--; err == nil && left == 0 {
								err = errEnoughLetters
							}
							return err
						})
						if errors.Is(err, errEnoughLetters) {
							break
						}
						if err != nil {
							return err
						}
					}
					return out.close()
				}
				out := a.list("topic", "table", "code", "reason", "letters", "first", "last", "first_time", "last_time", "bytes")
				for _, topic := range topics {
					groups, err := letterGroups(ctx, s, topic)
					if err != nil {
						return err
					}
					for _, g := range groups {
						if err := out.row(g.topic, g.table, g.code, g.reason, g.count, g.first, g.last, millis(g.firstMs), millis(g.lastMs), byteSize(g.bytes)); err != nil {
							return err
						}
					}
				}
				return out.close()
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	cmd.Flags().BoolVar(&each, "each", false, "list letters one by one")
	cmd.Flags().Int64Var(&limit, "limit", 0, "with --each, at most so many `letters` (default: all)")
	return cmd
}

var errEnoughLetters = errors.New("enough letters")

// known is an offset, nil where there is none.
func known(v int64) any {
	if v < 0 {
		return nil
	}
	return v
}

// letterTopics are the source topics of tables, of all without a name.
func letterTopics(ctx context.Context, s *session, tables []string) ([]string, error) {
	var out []string
	if len(tables) == 0 {
		all, err := s.Tables(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range all {
			out = append(out, t.Definition.SourceTopic)
		}
	}
	for _, name := range tables {
		t, err := s.Table(ctx, name)
		if err != nil {
			return nil, err
		}
		out = append(out, t.Definition.SourceTopic)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func letterGroups(ctx context.Context, s *session, topic string) ([]*letterGroup, error) {
	type id struct{ table, code, reason string }
	var groups []*letterGroup
	byID := map[id]*letterGroup{}
	err := s.DeadLetters(ctx, topic, func(l *topology.Letter) error {
		k := id{l.Table, l.Code, l.Reason}
		g := byID[k]
		if g == nil && len(groups) >= maxLetterGroups {
			k = id{reason: "other reasons"}
			g = byID[k]
		}
		if g == nil {
			g = &letterGroup{topic: topic, table: k.table, code: k.code, reason: k.reason, first: l.Offset, firstMs: l.TimeMs}
			groups, byID[k] = append(groups, g), g
		}
		g.count++
		g.last, g.lastMs = l.Offset, l.TimeMs
		g.bytes += int64(len(l.Key) + len(l.Value))
		return nil
	})
	slices.SortStableFunc(groups, func(x, y *letterGroup) int { return int(y.count - x.count) })
	return groups, err
}

func (a *app) dlqShowCommand() *cobra.Command {
	var values bool
	cmd := &cobra.Command{
		Use:   "show TABLE LETTER",
		Short: "Show one dead letter",
		Long: "Shows a dead letter of the table's source topic: where its event was, why it was\n" +
			"refused, and which headers it has. LETTER is its number in varve dlq list --each. The event's\n" +
			"key, value and header values are personal data: they are shown with --values only.",
		Example: "  varve dlq show shop.orders 12\n  varve dlq show shop.orders 12 --values --output json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			offset, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil || offset < 0 {
				return usagef("%q is no letter's number", args[1])
			}
			return a.with(cmd.Context(), readRoles, func(s *session) error {
				t, err := s.Table(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				ls, err := lettersAt(cmd.Context(), s, t, []int64{offset}, "")
				if err != nil {
					return err
				}
				return a.show(letterObject(ls[0], values))
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	cmd.Flags().BoolVar(&values, "values", false, "show key, value and header values, which may be personal data")
	return cmd
}

func letterObject(l *topology.Letter, values bool) object {
	headers := &rowset{cols: []string{"header", "bytes"}}
	if values {
		headers.cols = append(headers.cols, "value")
	}
	for _, h := range l.Headers {
		row := []any{h.Key, int64(len(h.Value))}
		if values {
			row = append(row, bytesText(h.Value))
		}
		headers.rows = append(headers.rows, row)
	}
	out := object{
		{"letter", l.Offset}, {"time", millis(l.TimeMs)}, {"topic", l.Topic}, {"partition", int64(l.Partition)}, {"offset", l.SourceOffset},
		{"table", l.Table}, {"code", l.Code}, {"reason", l.Reason}, {"retried", known(l.Retried)}, {"stub", l.Stub},
		{"key_bytes", sizeOf(l.Key)}, {"value_bytes", sizeOf(l.Value)},
	}
	if values {
		out = append(out, field{"key", bytesText(l.Key)}, field{"value", bytesText(l.Value)})
	}
	return append(out, field{"headers", headers})
}

// sizeOf is nil for a null key or value, which an empty one is not.
func sizeOf(b []byte) any {
	if b == nil {
		return nil
	}
	return int64(len(b))
}

// bytesText is text as it stands, else base64.
func bytesText(b []byte) any {
	switch {
	case b == nil:
		return nil
	case utf8.Valid(b):
		return string(b)
	}
	return "base64:" + base64.StdEncoding.EncodeToString(b)
}

// lettersAt finds letters by their numbers, or all of a code, in their order.
func lettersAt(ctx context.Context, s *session, t *statestore.TableInfo, offsets []int64, code string) ([]*topology.Letter, error) {
	var out []*topology.Letter
	left := map[int64]bool{}
	for _, o := range offsets {
		left[o] = true
	}
	err := s.DeadLetters(ctx, t.Definition.SourceTopic, func(l *topology.Letter) error {
		if len(offsets) > 0 && !left[l.Offset] || code != "" && l.Code != code && l.Code != "varve."+code || len(offsets) == 0 && l.Table != "" && l.Table != t.Name {
			return nil
		}
		if len(out) == maxRetry {
			return usagef("more than %d letters at a time; name some of them, or one --code", maxRetry)
		}
		delete(left, l.Offset)
		out = append(out, l)
		return nil
	})
	if err == nil && len(left) > 0 {
		missing := make([]string, 0, len(left))
		for _, o := range offsets {
			if left[o] {
				missing = append(missing, strconv.FormatInt(o, 10))
			}
		}
		err = usagef("topic %s has no letter %s; \"varve dlq list %s --each\" shows those that it has", topology.LettersTopic(t.Definition.SourceTopic), strings.Join(missing, ", "), t.Name)
	}
	return out, err
}

// maxRetry bounds the letters held in memory.
const maxRetry = 10_000

func (a *app) dlqRetryCommand() *cobra.Command {
	var (
		code                        string
		all, dryRun, newest, noWait bool
		wait                        time.Duration
	)
	cmd := &cobra.Command{
		Use:   "retry TABLE [LETTER…]",
		Short: "Publish dead letters' events again",
		Long: "Publishes the events of dead letters into the source topic again, in the partition that\n" +
			"they came from, once what refused them was mended (a column added, an option set, a\n" +
			"topic's schema registered). With an ordering column, an event that is older than what\n" +
			"the table knows of its key by now loses, and is counted as late. Without one the order\n" +
			"of the topic decides, so an event published again would win over newer ones: this is\n" +
			"refused unless --as-newest says that it shall. A stub's event is read at its place in\n" +
			"the source topic. The letters stay where they are.",
		Example: "  varve dlq retry shop.orders 12 13\n  varve dlq retry shop.orders --code schema --dry-run\n  varve dlq retry shop.orders --all",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var offsets []int64
			for _, arg := range args[1:] {
				o, err := strconv.ParseInt(arg, 10, 64)
				if err != nil || o < 0 {
					return usagef("%q is no letter's number", arg)
				}
				offsets = append(offsets, o)
			}
			switch {
			case len(offsets) == 0 && !all && code == "":
				return usagef("name letters by number, or all of a --code, or --all; \"varve dlq list %s --each\" shows them", args[0])
			case len(offsets) > 0 && (all || code != ""):
				return usagef("name letters by number, or by --code or --all, not both")
			}
			slices.Sort(offsets)
			return a.with(cmd.Context(), allRoles, func(s *session) error {
				return a.retryLetters(cmd.Context(), s, args[0], slices.Compact(offsets), code, dryRun, newest, noWait, wait)
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&code, "code", "", "letters of one `code`, as varve dlq list shows it")
	f.BoolVar(&all, "all", false, "all letters of the table")
	f.BoolVar(&dryRun, "dry-run", false, "say what would be published, and publish nothing")
	f.BoolVar(&newest, "as-newest", false, "in a table without an ordering column: the event is to be its key's newest")
	f.BoolVar(&noWait, "no-wait", false, "end once the events are published")
	f.DurationVar(&wait, "wait", time.Minute, "how long to wait for the table to take them")
	return cmd
}

func (a *app) retryLetters(ctx context.Context, s *session, table string, offsets []int64, code string, dryRun, newest, noWait bool, wait time.Duration) error {
	t, err := s.Table(ctx, table)
	if err != nil {
		return err
	}
	d := t.Definition
	others, err := sharing(ctx, s, d)
	if err != nil {
		return err
	}
	for _, o := range append(others, t) {
		switch {
		case o != t && !o.Definition.Keyed():
			return usagef("table %s reads topic %s too and has no key: it would have each event twice; publish them into a topic of their own", o.Name, d.SourceTopic)
		case o.Definition.Keyed() && o.Definition.Order.Kind == schemas.OrderNone && !newest:
			return usagef("table %s has no ordering column: an event published again is its key's newest, and a row that changed since goes back; say --as-newest if it shall", o.Name)
		}
	}
	letters, err := lettersAt(ctx, s, t, offsets, code)
	if err != nil {
		return err
	}
	partitions, err := a.topicPartitions(ctx, s.Brokers(), d.SourceTopic)
	if err != nil {
		return err
	}
	stubs := int64(0)
	for _, l := range letters {
		if l.Topic != d.SourceTopic {
			return usagef("letter %d is not of topic %s", l.Offset, d.SourceTopic)
		}
		if l.Stub {
			stubs++
			if err := s.Unstub(ctx, l); err != nil {
				return err
			}
		}
		if t.Base != nil && l.Key != nil && partitions > 0 {
			// The topic was divided anew since: its keys are elsewhere.
			l.Partition = int32(schemas.Murmur2(l.Key)&0x7fffffff) % int32(partitions)
		}
	}
	result := object{{"table", table}, {"topic", d.SourceTopic}, {"letters", int64(len(letters))}, {"stubs", stubs}}
	if dryRun || len(letters) == 0 {
		return a.show(append(result, field{"published", int64(0)}))
	}
	before := t.Counts
	r, err := s.RetryLetters(ctx, d.SourceTopic, letters)
	if err != nil {
		if r != nil {
			err = errors.Join(err, fmt.Errorf("%d of %d events were published", r.Published, len(letters)))
		}
		return err
	}
	result = append(result, field{"published", r.Published})
	if noWait || d.Rekeyed() {
		return a.show(append(result, field{"taken", false}))
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := s.WaitTaken(waiting, table, r.Ends); err != nil {
		if ctx.Err() == nil && waiting.Err() != nil {
			err = &codeError{exitStopped, fmt.Errorf("the events are published, and table %s has not taken them within %s; \"varve status\" says why", table, wait)}
		}
		return err
	}
	if t, err = s.Table(ctx, table); err != nil {
		return err
	}
	again := int64(0)
	if err := s.DeadLetters(ctx, d.SourceTopic, func(l *topology.Letter) error {
		if _, ours := r.Offsets[[2]int64{int64(l.Partition), l.SourceOffset}]; ours && (l.Table == "" || l.Table == table) {
			again++
		}
		return nil
	}); err != nil {
		return err
	}
	late := t.Counts.LateIgnored - before.LateIgnored
	if late > 0 {
		a.notef("note: %d event(s) were older than what the table knows of their keys, and changed nothing", late)
	}
	if again > 0 {
		a.notef("note: %d event(s) were refused again; \"varve dlq list %s\" says why", again, table)
	}
	return a.show(append(result, field{"taken", true}, field{"refused_again", again}, field{"late_ignored", late},
		field{"upserts", t.Counts.Upserts - before.Upserts}, field{"deletes", t.Counts.Deletes - before.Deletes}))
}

// sharing are the other tables that read a table's source topic.
func sharing(ctx context.Context, s *session, d *schemas.Definition) (out []*statestore.TableInfo, err error) {
	all, err := s.Tables(ctx)
	for _, t := range all {
		if t.Name != d.Name && t.Definition.SourceTopic == d.SourceTopic {
			out = append(out, t)
		}
	}
	return out, err
}
