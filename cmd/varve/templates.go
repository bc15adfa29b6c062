package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/topology"
)

const (
	// defaultMaxTables bounds the tables that one entry makes.
	defaultMaxTables = 1000
	// routeLook is how long a routed topic is read at a time.
	routeLook = 200 * time.Millisecond
)

// isTemplate says whether an entry makes tables as their topics, or their events
// in a routed topic, appear.
func (t *tableConfig) isTemplate() bool { return strings.Contains(t.Name, "$") }

// checkTemplate says what is wrong with an entry's pattern and route.
func (t *tableConfig) checkTemplate() error {
	s := &t.Source
	fail := func(format string, args ...any) error {
		return fmt.Errorf("table %s: "+format, append([]any{t.Name}, args...)...)
	}
	pattern, err := regexp.Compile("^(?:" + s.TopicPattern + ")$")
	if err != nil {
		return fail("source.topic_pattern is a regular expression of topics' whole names: %w", err)
	}
	if _, err := regexp.Compile("^(?:" + s.RouteMatch + ")$"); err != nil {
		return fail("source.route_match is a regular expression of the whole text at source.route_by: %w", err)
	}
	if s.RouteBy != "" {
		format := s.Format
		if format == "" {
			format = source.DebeziumJSON
		}
		if _, err := source.NewRoute(s.RouteBy, format, nil); err != nil {
			return fail("%w", err)
		}
	}
	switch {
	case s.Topic != "" && s.TopicPattern != "":
		return fail("source.topic names one topic, source.topic_pattern many: leave one of them out")
	case s.RouteMatch != "" && s.RouteBy == "":
		return fail("source.route_match needs source.route_by, the field or header that it is about")
	case t.MaxTables != 0 && !t.isTemplate():
		return fail("max_tables is of entries that make many tables, with $ in their name")
	case t.MaxTables < 0:
		return fail("max_tables is 1 or more")
	case t.isTemplate() && s.TopicPattern == "" && s.RouteBy == "":
		return fail("a name with $ is made from source.topic_pattern, or from source.route_by")
	case !t.isTemplate() && s.TopicPattern != "":
		return fail("a table reads one topic: a name for the topics of source.topic_pattern has $1, or ${topic}, in it")
	case !t.isTemplate() && s.RouteBy != "" && s.RouteMatch == "":
		return fail("source.route_by needs source.route_match: which of its texts are this table's")
	case s.TopicPattern != "" && s.RouteBy != "":
		return fail("name one topic to route by a field, or a pattern of topics with a table each; not both")
	case t.isTemplate() && s.RouteBy != "" && s.Topic == "":
		return fail("name the topic that is routed with source.topic")
	case !t.isTemplate():
		return nil
	}
	// Whatever stands for a group must be one.
	groups := pattern
	if s.RouteBy != "" {
		groups, _ = regexp.Compile("^(?:" + s.routeMatch() + ")$")
	}
	for _, name := range templateNames.FindAllStringSubmatch(t.Name, -1) {
		n := name[1] + name[2]
		if n == "topic" || n == "route" && s.RouteBy != "" || slices.Contains(groups.SubexpNames(), n) && n != "" {
			continue
		}
		if i := strings.IndexFunc(n, func(r rune) bool { return r < '0' || r > '9' }); i < 0 && n != "" {
			if k := len(n); k < 3 && atoi(n) <= groups.NumSubexp() {
				continue
			}
		}
		return fail("${%s} is no group of the pattern; $1 is the first group, ${topic} the topic%s", n, map[bool]string{true: ", ${route} the text at source.route_by"}[s.RouteBy != ""])
	}
	return nil
}

var templateNames = regexp.MustCompile(`\$(?:\{(\w*)\}|(\w*))`)

func atoi(s string) (n int) {
	for _, c := range s {
		n = 10*n + int(c-'0')
	}
	return n
}

// routeMatch is the pattern of an entry's texts: any, if none is given.
func (s *sourceConfig) routeMatch() string {
	if s.RouteMatch == "" {
		return "(.+)"
	}
	return s.RouteMatch
}

// expand makes a table's name from a topic, and from the text that routes its
// events; false: they do not match. Characters that no name has become "_".
func (t *tableConfig) expand(topic, text string) (string, bool) {
	re, of := regexp.MustCompile("^(?:"+t.Source.TopicPattern+")$"), topic
	if t.Source.RouteBy != "" {
		re, of = regexp.MustCompile("^(?:"+t.Source.routeMatch()+")$"), text
	}
	m := re.FindStringSubmatchIndex(of)
	if m == nil {
		return "", false
	}
	name := strings.NewReplacer("${topic}", escapeDollar(topic), "${route}", escapeDollar(text)).Replace(t.Name)
	out := string(re.ExpandString(nil, name, of, m))
	out = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, out)
	return out, true
}

func escapeDollar(s string) string { return strings.ReplaceAll(s, "$", "$$") }

// templateRetry is when a table that could not be made is tried again.
type templateRetry struct {
	at   time.Time
	wait time.Duration
}

// templateRest is the longest that such a table waits.
const templateRest = time.Minute

// templates makes the tables of entries that name many.
type templates struct {
	a       *app
	n       *topology.Node
	mine    func(string) bool
	entries []*tableConfig
	made    map[string]string // by topic, or topic and text: the table
	owner   map[string]string // by table: what it is of
	count   map[*tableConfig]int
	told    map[string]string
	again   map[string]templateRetry // what could not be made
	scans   map[string]*topology.RouteScan
}

func (a *app) newTemplates(n *topology.Node, mine func(string) bool) *templates {
	t := &templates{a: a, n: n, mine: mine, made: map[string]string{}, owner: map[string]string{}, count: map[*tableConfig]int{}, told: map[string]string{}, again: map[string]templateRetry{}, scans: map[string]*topology.RouteScan{}}
	for i := range a.cfg.Tables {
		if e := &a.cfg.Tables[i]; e.isTemplate() || e.Source.RouteBy != "" {
			t.entries = append(t.entries, e)
		}
	}
	return t
}

func (t *templates) close() {
	for _, s := range t.scans {
		s.Close()
	}
}

// tell logs why something waits, once.
func (t *templates) tell(what, why string) {
	if t.told[what] != why {
		t.told[what] = why
		t.a.log.Warn("no table is made", "of", what, "why", why)
	}
}

// look makes the tables that can be made now.
func (t *templates) look(ctx context.Context) error {
	var topics []string
	for _, e := range t.entries {
		if e.Source.TopicPattern == "" {
			continue
		}
		if topics == nil {
			var err error
			if topics, err = t.n.SourceTopics(ctx); err != nil {
				t.a.log.Debug("the topics are not known", "error", err)
				return nil
			}
		}
		for _, topic := range topics {
			name, ok := e.expand(topic, "")
			if !ok || t.made[topic] != "" {
				continue
			}
			if err := t.make(ctx, e, name, topic, "", nil); err != nil {
				return err
			}
		}
	}
	return t.routes(ctx)
}

// make makes one table. What is wrong with its name or events is told, and says
// nothing of others.
func (t *templates) make(ctx context.Context, e *tableConfig, name, topic, text string, sample []source.Record) error {
	what := topic
	if text != "" {
		what = topic + ", " + e.Source.RouteBy + " " + text
	}
	most := e.MaxTables
	if most == 0 {
		most = defaultMaxTables
	}
	switch other := t.owner[name]; {
	case schemas.CheckTableName(name) != nil:
		t.tell(what, schemas.CheckTableName(name).Error())
		return nil
	case !t.mine(name):
		return nil
	case other != "" && other != what:
		t.tell(what, fmt.Sprintf("table %s is of %s; give it a name of its own", name, other))
		return nil
	case t.count[e] >= most:
		t.tell(what, fmt.Sprintf("%s has made %d tables; raise its max_tables", e.Name, most))
		return nil
	}
	have, err := t.n.Table(ctx, name)
	if err != nil && !errors.Is(err, topology.ErrNoTable) {
		return err
	}
	w := e.wish()
	w.name, w.topic = name, topic
	if text != "" {
		w.options["route.match"] = regexp.QuoteMeta(text)
	}
	if w.schemaFile == "" && sample == nil && have == nil {
		if sample, err = t.a.firstEvents(ctx, t.n.Brokers(), topic); err != nil || len(sample) == 0 {
			if err != nil && ctx.Err() == nil {
				t.tell(what, err.Error())
			}
			return nil // the topic may still get some
		}
	}
	if next, wait := t.again[what]; wait && time.Now().Before(next.at) {
		return nil
	}
	why, err := t.a.configured(ctx, t.n, w, false, sample)
	// Events that differ in their types give no schema together: then the first few
	// do, and the others are refused by it.
	for n, first := max(1, len(sample)/10), err; err != nil && have == nil && w.schemaFile == "" && n > 0 && n < len(sample) && ctx.Err() == nil; n /= 10 {
		if why, err = t.a.configured(ctx, t.n, w, false, sample[:n]); err == nil && why == "" {
			t.a.log.Warn("a table's schema is that of its first events", "table", name, "events", n, "why", first)
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		wait := min(max(2*t.again[what].wait, time.Second), templateRest)
		t.again[what] = templateRetry{time.Now().Add(wait), wait}
		t.tell(what, err.Error())
		return nil
	}
	delete(t.again, what)
	if why != "" {
		t.tell(what, "it waits for "+why)
		return nil
	}
	t.made[what], t.owner[name] = name, what
	t.count[e]++
	return nil
}

// routes looks through the topics that are routed by a field or header.
func (t *templates) routes(ctx context.Context) error {
	unrouted := map[string]int64{}
	for _, e := range t.entries {
		s := &e.Source
		if s.RouteBy == "" {
			continue
		}
		topic := s.Topic
		if topic == "" {
			topic = e.Name
		}
		id := topic + "\x00" + s.RouteBy
		scan := t.scans[id]
		if scan == nil {
			var err error
			if scan, err = topology.OpenRouteScan(t.a.client(t.n.Brokers()...), topic, s.RouteBy, s.Format, t.a.registry); err != nil {
				return err
			}
			t.scans[id] = scan
		}
		if _, err := scan.Poll(ctx, routeLook); err != nil {
			if ctx.Err() != nil {
				return err
			}
			scan.Close()
			delete(t.scans, id)
			if !errors.Is(err, source.ErrAway) {
				t.a.log.Warn("a routed topic is looked through again from its start", "topic", topic, "error", err)
			}
			continue
		}
		for _, x := range scan.Texts() {
			name, ok := e.expand(topic, x.Text)
			what := topic + ", " + s.RouteBy + " " + x.Text
			if !ok || !e.isTemplate() || len(x.Sample) == 0 || t.made[what] != "" {
				continue
			}
			if err := t.make(ctx, e, name, topic, x.Text, x.Sample); err != nil {
				return err
			}
			if t.made[what] != "" {
				scan.Forget(x)
			}
		}
	}
	for id, scan := range t.scans {
		topic, by, _ := strings.Cut(id, "\x00")
		n := scan.Without + scan.Beyond
		for _, x := range scan.Texts() {
			if !t.routed(topic, by, x.Text) {
				n += x.Records
			}
		}
		unrouted[topic] += n
	}
	for topic, n := range unrouted {
		t.n.Unrouted(topic, n)
		if n > 0 {
			t.tell(topic+", by route", "some of its records are of no table; varve status counts them")
		}
	}
	return nil
}

// routed says whether records with this text are some table's.
func (t *templates) routed(topic, by, text string) bool {
	if t.made[topic+", "+by+" "+text] != "" {
		return true
	}
	for _, e := range t.entries {
		if !e.isTemplate() && e.Source.RouteBy == by && (e.Source.Topic == topic || e.Source.Topic == "" && e.Name == topic) {
			if _, ok := e.expand(topic, text); ok {
				return true
			}
		}
	}
	return false
}

// sampleOf are events of a table that is routed by a field: those of the topic's
// first events may be of others.
func (t *templates) sampleOf(w *wish) []source.Record {
	if w.options["route.by"] == "" {
		return nil
	}
	topic := w.topic
	if topic == "" {
		topic = w.name
	}
	scan := t.scans[topic+"\x00"+w.options["route.by"]]
	if scan == nil {
		return nil
	}
	match, err := regexp.Compile("^(?:" + w.options["route.match"] + ")$")
	if err != nil {
		return nil
	}
	var out []source.Record
	for _, x := range scan.Texts() {
		if match.MatchString(x.Text) {
			out = append(out, x.Sample...)
		}
	}
	return out
}
