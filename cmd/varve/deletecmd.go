package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/rows"
)

// maxDeleteKeys bounds the keys of one request.
const maxDeleteKeys = 10_000_000

func (a *app) deleteCommand() *cobra.Command {
	var (
		keys     []string
		keysFile string
		where    string
		order    string
		noWait   bool
		dryRun   bool
	)
	cmd := &cobra.Command{
		Use:   "delete TABLE",
		Short: "Delete rows by their keys, or by a condition",
		Long: "Puts a request into the log that every shard of the table answers: rows whose keys it\n" +
			"names, and that came before it, go. Waits until all have answered and a snapshot shows\n" +
			"it, unless --no-wait. With --order, versions of a larger ordering value stay.\n\n" +
			"--keys reads a file of one key a line (- for stdin): a JSON object of the key columns,\n" +
			"or for a key of one column the value alone. On a stopped data folder the command\n" +
			"starts a node for itself.\n\n" +
			"--where deletes the rows that the table has at the request, and of which the condition\n" +
			"is true, also in tables without a key; versions that come later stay. Workers (nodes\n" +
			"with the role compactor) read the files, in parts, and snapshots show it part by part.\n" +
			"Conditions are comparisons of columns with values (=, !=, <, <=, >, >=, IN, IS NULL),\n" +
			"joined by AND, OR and NOT, with parentheses; texts stand in 'quotes'. A comparison with\n" +
			"a null is not true, nor is NOT of it. --dry-run counts the rows, and deletes none.",
		Example: "  varve delete shop.orders --where \"country = 'x' AND amount < 5\" --dry-run\n" +
			"  varve delete shop.orders --key order_id=1005\n" +
			"  varve delete shop.lines --key order_id=1005,line=2 --key order_id=1005,line=3\n" +
			"  varve delete shop.customers --keys forget.txt --no-wait",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case where != "" && (len(keys) > 0 || keysFile != "" || order != ""):
				return usagef("--where goes with no --key, --keys or --order")
			case where != "":
				return a.withTables(cmd.Context(), args[:1], jobRoles, func(s *session) error {
					if dryRun {
						return a.countWhere(cmd.Context(), s, args[0], where)
					}
					return a.deleteWhere(cmd.Context(), s, args[0], where, noWait)
				})
			case dryRun:
				return usagef("--dry-run goes with --where")
			case len(keys) == 0 && keysFile == "":
				return usagef("name the keys with --key or --keys, or the rows with --where")
			}
			return a.withTables(cmd.Context(), args[:1], allRoles, func(s *session) error {
				return a.deleteKeys(cmd.Context(), s, args[0], keys, keysFile, order, noWait)
			})
		},
	}
	a.dataFlags(cmd.Flags())
	a.brokerFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringArrayVar(&keys, "key", nil, "a key as `column=value`[,column=value]; may be repeated")
	f.StringVar(&keysFile, "keys", "", "`file` of one key a line")
	f.StringVar(&where, "where", "", "rows of which this `condition` is true")
	f.BoolVar(&dryRun, "dry-run", false, "count the rows that --where names, and delete none")
	f.StringVar(&order, "order", "", "the request's ordering `value`, on a table with an ordering column")
	f.BoolVar(&noWait, "no-wait", false, "end once the request is accepted")
	return cmd
}

func (a *app) deleteKeys(ctx context.Context, s *session, table string, flags []string, file, order string, noWait bool) error {
	t, err := s.Table(ctx, table)
	if err != nil {
		return err
	}
	d := t.Definition
	if !d.Keyed() {
		return usagef("table %s has no key: rows of it cannot be deleted by key", table)
	}
	set, err := newKeySet(d)
	if err != nil {
		return err
	}
	for _, f := range flags {
		if err := set.addFlag(f); err != nil {
			return asUsage(fmt.Errorf("--key: %w", err))
		}
	}
	if file != "" {
		if err := a.readKeys(file, set); err != nil {
			return err
		}
	}
	value, err := orderValue(d, order)
	if err != nil {
		return asUsage(err)
	}
	list := set.sorted()
	before := t.Counts.Deletes
	offset, err := s.DeleteKeys(ctx, table, list, value)
	if err != nil {
		return err
	}
	result := object{{"table", table}, {"offset", offset}, {"keys", int64(len(list))}}
	if noWait {
		return a.show(append(result, field{"settled", false}))
	}
	through, err := s.WaitSettled(ctx, table, offset)
	if err != nil {
		return err
	}
	if err := s.WaitVisible(ctx, table, through); err != nil {
		return err
	}
	if t, err = s.Table(ctx, table); err != nil {
		return err
	}
	return a.show(append(result, field{"settled", true}, field{"rows_deleted", t.Counts.Deletes - before},
		field{"snapshot_id", idOrNull(t.Head.SnapshotID)}, field{"metadata_location", t.Head.MetadataPath}))
}

// keySet gathers keys in canonical bytes. Its errors name columns and lines,
// never values (E1).
type keySet struct {
	def     *schemas.Definition
	schema  *schemas.Schema
	encoder *rows.KeyEncoder
	cols    []rows.Column
	names   []string
	keys    [][]byte
}

func newKeySet(d *schemas.Definition) (*keySet, error) {
	e, err := rows.NewKeyEncoder(d.Schema(), d.Key)
	if err != nil {
		return nil, err
	}
	k := &keySet{def: d, schema: d.Schema(), encoder: e}
	for _, id := range e.Fields() {
		f := &k.schema.Fields[k.schema.ByID(id)]
		k.cols = append(k.cols, rows.NewColumn(f.Type))
		k.names = append(k.names, f.Name)
	}
	return k, nil
}

// add adds the key whose parts parts gives as text, by column name.
func (k *keySet) add(parts map[string]string) error {
	for name := range parts {
		if !slices.Contains(k.names, name) {
			return fmt.Errorf("%q is no key column%s (key columns: %s)", name, didYouMean(name, k.names), strings.Join(k.names, ", "))
		}
	}
	for i := range k.cols {
		k.cols[i].Truncate(0)
	}
	for i, name := range k.names {
		text, ok := parts[name]
		if !ok {
			return fmt.Errorf("key column %s is missing (key columns: %s)", name, strings.Join(k.names, ", "))
		}
		if err := rows.ParseKeyText(&k.cols[i], text); err != nil {
			return fmt.Errorf("key column %s: %w", name, err)
		}
	}
	key, err := k.encoder.AppendFrom(nil, k.cols, 0)
	if err != nil {
		return err
	}
	if len(k.keys) == maxDeleteKeys {
		return fmt.Errorf("more than %d keys in one request; split them", maxDeleteKeys)
	}
	k.keys = append(k.keys, key)
	return nil
}

// addFlag reads column=value,column=value. A comma belongs to a value unless
// a key column's name and = follow it.
func (k *keySet) addFlag(s string) error {
	parts := map[string]string{}
	for rest := s; rest != ""; {
		name, after, ok := strings.Cut(rest, "=")
		if !ok {
			return fmt.Errorf("write it as column=value,column=value (key columns: %s)", strings.Join(k.names, ", "))
		}
		name = strings.TrimSpace(name)
		end := len(after)
		for _, other := range k.names {
			if i := strings.Index(after, ","+other+"="); i >= 0 {
				end = min(end, i)
			}
		}
		if _, twice := parts[name]; twice {
			return fmt.Errorf("column %s is named twice; give each key a --key of its own", name)
		}
		parts[name] = after[:end]
		rest = strings.TrimPrefix(after[end:], ",")
	}
	return k.add(parts)
}

// addLine reads a line of a keys file.
func (k *keySet) addLine(line []byte) error {
	if line[0] != '{' {
		if len(k.names) != 1 {
			return fmt.Errorf("the key has %d columns; write a line as a JSON object of %s", len(k.names), strings.Join(k.names, ", "))
		}
		text := string(line)
		if line[0] == '"' {
			if err := json.Unmarshal(line, &text); err != nil {
				return errors.New("the line begins with a quote and is no JSON text")
			}
		}
		return k.add(map[string]string{k.names[0]: text})
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(line, &raw); err != nil {
		return shortJSONError(err)
	}
	parts := make(map[string]string, len(raw))
	for name, v := range raw {
		text := string(v)
		if text == "null" {
			return fmt.Errorf("key column %s is null", name)
		}
		if v[0] == '"' {
			if err := json.Unmarshal(v, &text); err != nil {
				return shortJSONError(err)
			}
		}
		parts[name] = text
	}
	return k.add(parts)
}

func (a *app) readKeys(path string, k *keySet) (err error) {
	var r io.Reader = a.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return usagef("--keys: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		r = f
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if err := k.addLine(line); err != nil {
			return usagef("--keys: %s:%d: %w", path, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("--keys: %s:%d: %w", path, n+1, err)
	}
	if len(k.keys) == 0 {
		return usagef("--keys: %s names no key", path)
	}
	return nil
}

// sorted is the keys ascending and distinct, as a request wants them.
func (k *keySet) sorted() [][]byte {
	slices.SortFunc(k.keys, bytes.Compare)
	k.keys = slices.CompactFunc(k.keys, bytes.Equal)
	return k.keys
}

// orderValue reads --order by the type of the table's ordering column.
func orderValue(d *schemas.Definition, text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	t := schemas.Of(schemas.Long)
	switch d.Order.Kind {
	case schemas.OrderNone:
		return nil, fmt.Errorf("--order: table %s has no ordering column", d.Name)
	case schemas.OrderByColumn:
		if i := d.Schema().ByID(d.Order.Column); i >= 0 {
			t = d.Schema().Fields[i].Type
		}
	}
	single, err := schemas.ParseText(t, text)
	if err != nil {
		return nil, fmt.Errorf("--order: %w", err)
	}
	v, err := schemas.IntValue(t, single)
	if err != nil {
		return nil, fmt.Errorf("--order: %w", err)
	}
	return &v, nil
}
