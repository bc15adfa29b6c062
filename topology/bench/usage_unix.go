//go:build unix

package bench

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// cpuSeconds is the processor time of this process, in seconds.
func cpuSeconds() (float64, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read the processor time: %w", err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9, nil
}

// rssPeak is the most memory that this process had resident, in bytes. On
// Linux a new process inherits its parent's peak in getrusage, so the peak of
// its own address space is read.
func rssPeak() (int64, error) {
	if n, ok, err := statusBytes("VmHWM:"); ok || err != nil {
		return n, err
	}
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read the peak of memory: %w", err)
	}
	if runtime.GOOS == "darwin" {
		return int64(u.Maxrss), nil
	}
	return int64(u.Maxrss) << 10, nil
}

// rssNow is the memory that this process has resident, in bytes; 0 where the
// system does not tell.
func rssNow() (int64, error) {
	n, _, err := statusBytes("VmRSS:")
	return n, err
}

// statusBytes is a line of Linux' account of this process.
func statusBytes(name string) (n int64, ok bool, err error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false, nil // not Linux
	}
	_, rest, ok := bytes.Cut(b, []byte(name))
	f := bytes.Fields(rest)
	if !ok || len(f) == 0 {
		return 0, false, nil
	}
	kb, err := strconv.ParseInt(string(f[0]), 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("read the account of memory: %w", err)
	}
	return kb << 10, true, nil
}
