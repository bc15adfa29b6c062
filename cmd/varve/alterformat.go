package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
)

// formatChange is how a table's source is to be read from now on.
type formatChange struct {
	format  string
	options []string // name=value; an empty value takes the option away
	unread  bool     // --unread-too
}

func (c *formatChange) asked() bool { return c.format != "" || len(c.options) > 0 }

// into adds the change to what is asked of a table.
func (c *formatChange) into(alter *record.AlterTable, d *schemas.Definition) error {
	was, had := d.SourceFormat()
	format := c.format
	if format == "" {
		format = was
	}
	names, err := source.SplitFormats(format)
	if err != nil {
		return err
	}
	given, err := pairs("--format-option", c.options)
	if err != nil {
		return err
	}
	options := map[string]string{}
	for _, p := range had {
		if source.TakesOption(names, p.Key) {
			options[p.Key] = p.Value
		}
	}
	for k, v := range given {
		if options[k] = v; v == "" {
			delete(options, k)
		}
	}
	set := map[string]string{schemas.PropertyFormat: format}
	for k, v := range options {
		set[schemas.PropertyFormatOption+k] = v
	}
	for _, p := range alter.Set {
		if p.Key == schemas.PropertyFormat || strings.HasPrefix(p.Key, schemas.PropertyFormatOption) {
			return fmt.Errorf("--set %s: change it with --format and --format-option", p.Key)
		}
		set[p.Key] = p.Value
	}
	for _, p := range d.Properties {
		if strings.HasPrefix(p.Key, schemas.PropertyFormatOption) {
			if _, stays := set[p.Key]; !stays {
				alter.Remove = append(alter.Remove, p.Key)
			}
		}
	}
	slices.Sort(alter.Remove)
	alter.Set = sortedProperties(set)
	// What no decoder takes would stop every shard of the table.
	next := *d
	next.Properties = sortedProperties(set)
	_, err = source.Open(&next, next.Schema(), nil)
	return err
}

// leaves are the formats that the table reads now and would not any more.
func (c *formatChange) leaves(d *schemas.Definition) []string {
	if c.format == "" {
		return nil
	}
	was, _ := d.SourceFormat()
	names := strings.Split(c.format, ",")
	return slices.DeleteFunc(strings.Split(was, ","), func(f string) bool { return slices.Contains(names, f) })
}

// checkUnread refuses to leave a format of which records may be in the topic
// that no shard has read: they would become dead letters.
func (a *app) checkUnread(ctx context.Context, s *session, t *statestore.TableInfo, c *formatChange) error {
	left := c.leaves(t.Definition)
	if len(left) == 0 || c.unread {
		return nil
	}
	ends, err := s.SourceLag(ctx, t)
	if err != nil {
		return err
	}
	if ends == 0 {
		return nil
	}
	was, _ := t.Definition.SourceFormat()
	names := strings.Split(was, ",")
	for _, f := range strings.Split(c.format, ",") {
		if !slices.Contains(names, f) {
			names = append(names, f)
		}
	}
	advice := "stop the producers and wait until \"varve status\" shows no lag"
	if both := strings.Join(names, ","); len(names) > 1 {
		if _, err := source.SplitFormats(both); err == nil {
			advice = "keep both with --format " + both
		}
	}
	return usagef("table %s has not read %d records of topic %s yet, which may be of format %s and would become dead letters; %s, or say --unread-too",
		t.Name, ends, t.Definition.SourceTopic, strings.Join(left, ","), advice)
}

// formatText is a table's format with its options, for people.
func formatText(d *schemas.Definition) string {
	format, options := d.SourceFormat()
	m := map[string]string{}
	for _, p := range options {
		m[p.Key] = p.Value
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		format += " " + k + "=" + m[k]
	}
	return format
}
