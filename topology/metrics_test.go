package topology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas/source"
	_ "github.com/varve-io/varve/statestore/objstore/s3store"
	"github.com/varve-io/varve/statestore/restclient"
	"github.com/varve-io/varve/topology/testcluster"
)

// metricsFile documents the metrics.
const metricsFile = "README.md"

// The documented table is what the code has: names, labels and meaning.
// VARVE_UPDATE=1 writes it anew.
func TestMetricsAreDocumented(t *testing.T) {
	parse := regexp.MustCompile(`fqName: "([^"]*)", help: "([^"]*)", .*variableLabels: \{([^}]*)\}`)
	var lines []string
	for _, c := range newMetrics(&Node{}).collectors {
		ch := make(chan *prometheus.Desc, 100)
		c.Describe(ch)
		close(ch)
		for d := range ch {
			m := parse.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("no description: %s", d)
			}
			if !strings.HasPrefix(m[1], "varve_") || !strings.HasSuffix(m[2], ".") {
				t.Errorf("%s: %s", m[1], m[2])
			}
			lines = append(lines, fmt.Sprintf("| `%s` | %s | %s |\n", m[1], strings.ReplaceAll(m[3], ",", ", "), m[2]))
		}
	}
	slices.Sort(lines)
	want := "| metric | labels | what |\n|---|---|---|\n" + strings.Join(lines, "")
	b, err := os.ReadFile(metricsFile)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- metrics -->\n", "<!-- end of metrics -->\n"
	before, rest, ok := strings.Cut(string(b), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the metrics", metricsFile)
	}
	if have == want {
		return
	}
	if os.Getenv("VARVE_UPDATE") == "1" {
		if err := os.WriteFile(metricsFile, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s documents other metrics than there are; write it anew with VARVE_UPDATE=1. There are\n%s", metricsFile, want)
}

func TestMetricLabelsAreBounded(t *testing.T) {
	m := newMetrics(&Node{})
	for i := range 3 * maxMetricTables {
		m.publishedIn(fmt.Sprint("t", i), time.Second)
	}
	ch := make(chan prometheus.Metric, 4*maxMetricTables)
	m.published.Collect(ch)
	if len(ch) != maxMetricTables+1 {
		t.Errorf("%d series of %d tables", len(ch), 3*maxMetricTables)
	}
}

func get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// metric is a series' value as text, "" when there is none.
func metric(scrape, series string) string {
	for _, l := range strings.Split(scrape, "\n") {
		if v, ok := strings.CutPrefix(l, series+" "); ok {
			return v
		}
	}
	return ""
}

// What a node counts is what happened: events in, rows in snapshots, a bad
// event, and the way back to ready after the store was away.
func TestMonitor(t *testing.T) {
	s3 := testcluster.StartS3(t)
	proxy := testcluster.StartProxy(t, s3.Endpoint())
	ctx, cancel := contextWithTimeout(2 * time.Minute)
	defer cancel()
	const token = "sixteen-bytes-or-more"
	n, err := OpenNode(ctx, NodeOptions{
		Data: t.TempDir(), Warehouse: s3.Via(proxy.Endpoint(), "m") + "&max_attempts=1", Partitions: 1,
		Monitor: MonitorOptions{Address: "127.0.0.1:0", Token: token, Profiles: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/metrics", "/status", "/debug/pprof/cmdline"} {
		if code, _ := get(t, n.Monitor()+path, ""); code != http.StatusUnauthorized {
			t.Errorf("%s without the token: %d", path, code)
		}
		if code, _ := get(t, n.Monitor()+path, token[:10]); code != http.StatusUnauthorized {
			t.Errorf("%s with a wrong token: %d", path, code)
		}
		if code, body := get(t, n.Monitor()+path, token); code != http.StatusOK {
			t.Errorf("%s with the token: %d, %s", path, code, body)
		}
	}
	if code, _ := get(t, n.http.url()+"/debug/pprof/cmdline", ""); code != http.StatusOK {
		t.Errorf("profiles at the loopback port: %d", code)
	}
	def := testDefinition("shop.t")
	def.SourceTopic, def.CommitIntervalMs = "src", 50
	values := []string{`{"id":1}`, `{"id":2}`, `{"id":"no number"}`, `{"id":2}`}
	next := func() (*SourceEvent, error) {
		if len(values) == 0 {
			return nil, io.EOF
		}
		e := &SourceEvent{Value: []byte(values[0]), Partition: -1}
		values = values[1:]
		return e, nil
	}
	if _, err := n.Produce(ctx, "src", 1, next, nil); err != nil {
		t.Fatal(err)
	}
	info, _, err := n.EnsureTable(ctx, def)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Ingest(ctx, info); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitLoaded(ctx, "shop.t", nil); err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, n.Monitor()+"/readyz", ""); code != http.StatusOK {
		t.Errorf("readyz: %d, %s", code, body)
	}
	_, scrape := get(t, n.Monitor()+"/metrics", token)
	for series, want := range map[string]string{
		`varve_node_opened`: "1", `varve_node_failed`: "0", `varve_tables`: "1",
		`varve_source_lag_events{partition="0",table="shop.t"}`:                                "0",
		`varve_source_end_offset{partition="0",table="shop.t"}`:                                "4",
		`varve_shard_running{partition="0",table="shop.t"}`:                                    "1",
		`varve_table_events_total{table="shop.t"}`:                                             "3",
		`varve_table_dead_letters_total{table="shop.t"}`:                                       "1",
		`varve_dead_letters_sent_total{reason="key",table="shop.t"}`:                           "1",
		`varve_table_freshness_seconds{table="shop.t"}`:                                        "0",
		`varve_publish_seconds_count`:                                                          metric(scrape, `varve_snapshots_published_total{table="shop.t"}`),
		`varve_outcomes_total{code="accepted",partition="0",reason="none",type="CreateTable"}`: "1",
	} {
		if got := metric(scrape, series); got != want || got == "" {
			t.Errorf("%s is %q, want %q", series, got, want)
		}
	}
	for _, name := range []string{"varve_log_end_offset", "varve_log_applied_offset", "varve_kafka_", "go_goroutines", "process_"} {
		if !strings.Contains(scrape, "\n"+name) {
			t.Errorf("no %s", name)
		}
	}
	if strings.Contains(scrape, "no number") {
		t.Error("a value stands in the metrics")
	}

	proxy.Refuse(true)
	time.Sleep(readyAgain)
	if code, body := get(t, n.Monitor()+"/readyz", token); code != http.StatusServiceUnavailable || !strings.Contains(body, "no answer from "+proxy.Endpoint()) {
		t.Errorf("readyz without a store: %d, %s", code, body)
	}
	if code, body := get(t, n.Monitor()+"/readyz", ""); code != http.StatusServiceUnavailable || strings.Contains(body, proxy.Addr()) {
		t.Errorf("readyz without a store and token: %d, %s", code, body)
	}
	if code, _ := get(t, n.Monitor()+"/healthz", ""); code != http.StatusOK {
		t.Errorf("healthz: %d", code)
	}
	values = []string{`{"id":3}`}
	if _, err := n.Produce(ctx, "src", 1, next, nil); err != nil {
		t.Fatal(err)
	}
	for metric(scrape, `varve_fetch_pauses_total{partition="0",table="shop.t"}`) == "" {
		if ctx.Err() != nil {
			t.Fatal("no pause is counted")
		}
		time.Sleep(50 * time.Millisecond)
		_, scrape = get(t, n.Monitor()+"/metrics", token)
	}
	proxy.Refuse(false)
	for {
		if code, _ := get(t, n.Monitor()+"/readyz", ""); code == http.StatusOK {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the node is not ready again")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Causes of failures and reasons of letters come from closed lists.
func TestMetricCauses(t *testing.T) {
	m := newMetrics(&Node{})
	m.publishFailed("t", fmt.Errorf("x: %w", publisher.ErrConflict))
	m.publishFailed("t", publisher.ErrUnknown)
	m.publishFailed("t", errors.New("anything"))
	m.letter(&processors.DeadLetter{Table: "t", Reject: &source.Reject{Code: "convert"}})
	got, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range got {
		if !strings.HasPrefix(f.GetName(), "varve_publish_failures") {
			continue
		}
		for _, x := range f.Metric {
			line := f.GetName()
			for _, l := range x.Label {
				line += " " + l.GetValue()
			}
			lines = append(lines, fmt.Sprint(line, " ", x.GetCounter().GetValue()))
		}
	}
	slices.Sort(lines)
	want := []string{
		"varve_publish_failures_total conflict t 1",
		"varve_publish_failures_total store t 1", "varve_publish_failures_total unknown t 1",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got %q", lines)
	}
}

// A state that stays behind its log makes the node not ready, a short while does not.
func TestBehind(t *testing.T) {
	m := newMetrics(&Node{})
	m.logRead(0, 5, 10)
	m.logRead(1, 10, 10)
	if b := m.longBehind(time.Hour); len(b) > 0 {
		t.Errorf("behind for an hour: %v", b)
	}
	if b := m.longBehind(0); !slices.Equal(b, []int32{0}) {
		t.Errorf("behind: %v", b)
	}
	m.logRead(2, 0, 1)
	m.left(2) // its state went to another node
	m.logRead(0, 10, 10)
	if b := m.longBehind(0); len(b) > 0 {
		t.Errorf("behind: %v", b)
	}
}

// A node beyond loopback is not watched by whoever comes.
func TestMonitorNeedsAToken(t *testing.T) {
	_, err := OpenNode(context.Background(), NodeOptions{Data: t.TempDir(), Monitor: MonitorOptions{Address: "0.0.0.0:0"}})
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "--admin-listen") {
		t.Errorf("got %v", err)
	}
}

// A node whose outside catalog does not answer is not ready.
func TestReadyAsksTheCatalog(t *testing.T) {
	var away atomic.Bool
	catalog := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case away.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case strings.HasSuffix(r.URL.Path, "/v1/config"):
			fmt.Fprint(w, `{"defaults":{},"overrides":{}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error":{"message":"no such table","type":"NoSuchTableException","code":404}}`)
		}
	}))
	defer catalog.Close()
	ctx, cancel := contextWithTimeout(time.Minute)
	defer cancel()
	n, err := OpenNode(ctx, NodeOptions{Data: t.TempDir(), Remote: &restclient.Options{URI: catalog.URL}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Ready(ctx); err != nil {
		t.Error(err)
	}
	away.Store(true)
	time.Sleep(readyAgain)
	if err := n.Ready(ctx); err == nil || !strings.Contains(err.Error(), catalog.URL) {
		t.Errorf("without its catalog: %v", err)
	}
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
}
