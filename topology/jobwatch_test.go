package topology

import (
	"testing"
	"time"

	"github.com/varve-io/varve/schemas/record"
)

// TestJobSpeed: the speed of a job is what its worker wrote since it was heard
// first; another worker, or the same one from the beginning, is another start.
func TestJobSpeed(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	var x jobWatch
	for i, c := range []struct {
		after  time.Duration
		worker string
		rows   int64
		want   float64
	}{
		{0, "a", 1_000, 0}, // heard in the middle of its work
		{2 * time.Second, "a", 5_000, 2_000},
		{2 * time.Second, "a", 13_000, 3_000},
		{time.Second, "b", 0, 0},
		{4 * time.Second, "b", 2_000, 500},
		{time.Second, "b", 100, 0}, // begun anew
		{time.Second, "b", 1_100, 1_000},
	} {
		at = at.Add(c.after)
		x.hear(record.Heartbeat{Worker: c.worker, Rows: c.rows}, at)
		if got := x.speed(); got != c.want || !x.heard.Equal(at) || !x.sent || x.beat.Rows != c.rows {
			t.Errorf("beat %d: %v rows a second, want %v", i, got, c.want)
		}
	}
}
