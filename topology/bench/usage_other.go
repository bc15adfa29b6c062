//go:build !unix

package bench

import "time"

var started = time.Now()

// cpuSeconds: without getrusage, elapsed time is what there is.
func cpuSeconds() (float64, error) { return time.Since(started).Seconds(), nil }

func rssPeak() (int64, error) { return 0, nil }

func rssNow() (int64, error) { return 0, nil }
