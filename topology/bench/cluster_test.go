package bench

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/varve-io/varve/statestore/objstore/s3store" // s3://
	"github.com/varve-io/varve/topology/testcluster"
)

// TestOnCluster: works run on three brokers with the lake on S3, and leave
// nothing there. VARVE_BENCH names works to run in full, VARVE_BENCH_ROWS their
// size, VARVE_BENCH_FOR how long steady runs:
//
//	VARVE_BENCH=upsert,visible VARVE_BENCH_ROWS=1000000 go test -count=1 -v -timeout 2h -run TestOnCluster ./topology/bench
func TestOnCluster(t *testing.T) {
	names, o := os.Getenv("VARVE_BENCH"), quick(t)
	if names == "" {
		names = "visible,scale" // the others run on the embedded broker
	} else {
		o.Quick = false
		for name, take := range map[string]func(string) error{
			"VARVE_BENCH_ROWS": func(v string) (err error) { o.Rows, err = strconv.ParseInt(v, 10, 64); return err },
			"VARVE_BENCH_FOR":  func(v string) (err error) { o.Duration, err = time.ParseDuration(v); return err },
		} {
			if v := os.Getenv(name); v != "" {
				if err := take(v); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
	}
	o.Brokers = testcluster.Start(t, 3).Brokers()
	gateway := testcluster.StartS3(t)
	o.Warehouse = gateway.URL("bench")
	for name := range strings.SplitSeq(names, ",") {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 4*time.Hour)
			defer cancel()
			rs, err := Run(ctx, name, o)
			for _, r := range rs {
				t.Logf("%s: %.4g %s, goal %.4g, %.3f × %s (%.4g); %.1f cpu-s, %d MB at its peak; %s, %s: %s", r.Bench, r.Figure, r.Unit, r.Goal, r.Ratio, r.Beside.Name, r.Beside.Figure,
					r.CPU, r.RSSPeak>>20, r.Setup.Broker, r.Setup.Store, r.Setup.Note)
				if r.Setup.Broker != "kafka" || r.Setup.Store != "s3" && name != "replay" {
					t.Errorf("%s: it ran on %+v", r.Bench, r.Setup)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(rs) == 0 {
				t.Fatal("no figures")
			}
		})
	}
	left, err := os.ReadDir(gateway.Folder("bench"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range left {
		inside, err := os.ReadDir(gateway.Folder("bench/" + e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if len(inside) > 0 {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}
