package topology

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

const (
	// embeddedClusterID is how clients, also those of other processes, know the embedded broker: it lacks some
	// settings that a real cluster must have.
	embeddedClusterID = "varve-embedded"

	// DefaultBrokerWarnBytes is the size of the embedded broker's folder above which it warns.
	DefaultBrokerWarnBytes = 1 << 30

	// brokerSegmentBytes: the broker reads a segment whole into memory, so segments are small.
	brokerSegmentBytes = 16 << 20
	// brokerSizeCheck is how often the folder's size is looked at.
	brokerSizeCheck = time.Minute

	portFileName = "port"
)

// BrokerOptions configure the embedded broker.
type BrokerOptions struct {
	// Dir is its data folder, made if needed. One process at a time.
	Dir string
	// Port to listen on at 127.0.0.1. Zero: the port of the last start if it is free, else any free port.
	// A given port that is taken is an error.
	Port int
	// WarnBytes is the folder size above which a warning is logged. Default: DefaultBrokerWarnBytes.
	WarnBytes int64
	// Logger takes warnings about the log and its size. Default: none.
	Logger *slog.Logger
}

// Broker is a Kafka broker in this process, for one machine and a first look. It is kfake, franz-go's
// testing broker, and so little is asked of it: no transactions, no compaction, every batch synced to disk
// before it is acknowledged.
//
// What it does worse than Kafka, and what is done about it:
//   - it cuts a damaged log with only a warning: the log is checked before it starts, and damage that is not
//     the torn end of a killed process is refused (ErrBrokerDamaged);
//   - after a kill it would need memory in the size of its log: OpenBroker writes the snapshot that a clean
//     close would have written, and it then loads segment by segment;
//   - it drops errors of fsync: CheckHighWatermark refuses a start when records that were used are gone;
//   - it ignores message.timestamp.type: the time of a record is what its producer stamped;
//   - once any topic has a retention setting it ages all others by 7 days: the whole broker is set to keep;
//   - after a kill it knows no idempotent producer any more, so a producer outside this process that sends a
//     batch again may double it.
type Broker struct {
	cluster *kfake.Cluster
	addr    string
	dir     string
	lock    *DirLock
	log     *brokerLogger

	warnBytes int64
	stop      chan struct{}
	watched   sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
}

// OpenBroker starts the embedded broker. Errors: ErrInUse (another process has the folder), ErrBrokerDamaged
// (its log is damaged), and those of file system and network.
func OpenBroker(o BrokerOptions) (*Broker, error) {
	if o.Dir == "" {
		return nil, errors.New("embedded broker: no data folder given")
	}
	if o.WarnBytes <= 0 {
		o.WarnBytes = DefaultBrokerWarnBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	lock, err := LockDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("embedded broker: %w", err)
	}
	b, err := openLocked(o, lock)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded broker in %s: %w", o.Dir, err), lock.Unlock())
	}
	return b, nil
}

func openLocked(o BrokerOptions, lock *DirLock) (*Broker, error) {
	if err := prepareBrokerLog(o.Dir, o.Logger); err != nil {
		return nil, err
	}
	b := &Broker{
		dir: o.Dir, lock: lock, log: &brokerLogger{to: o.Logger},
		warnBytes: o.WarnBytes, stop: make(chan struct{}),
	}
	port, strict := o.Port, o.Port != 0
	if !strict {
		port = readPort(o.Dir)
	}
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.Ports(port),
		kfake.ListenFn(func(network, addr string) (net.Listener, error) {
			ln, err := net.Listen(network, addr)
			if err != nil && !strict && errors.Is(err, syscall.EADDRINUSE) {
				return net.Listen(network, "127.0.0.1:0")
			}
			return ln, err
		}),
		kfake.ClusterID(embeddedClusterID),
		kfake.WithLogger(b.log),
		kfake.DataDir(o.Dir),
		kfake.SyncWrites(),
		kfake.DefaultNumPartitions(1),
		kfake.BrokerConfigs(map[string]string{
			// A topic with a retention setting of its own starts the cleaner for all topics.
			"log.retention.ms":           "-1",
			"log.retention.bytes":        "-1",
			"log.segment.bytes":          strconv.Itoa(brokerSegmentBytes),
			"message.max.bytes":          strconv.Itoa(MaxBatchBytes),
			"default.replication.factor": "1",
		}),
	)
	if err != nil {
		return nil, err
	}
	b.cluster = cluster
	b.addr = cluster.ListenAddrs()[0]
	if err := writePort(o.Dir, b.addr); err != nil {
		return nil, errors.Join(err, b.shutdown())
	}
	b.watched.Add(1)
	go b.watchSize(o.Logger)
	return b, nil
}

// Addr is where the broker listens, as host:port on 127.0.0.1.
func (b *Broker) Addr() string { return b.addr }

// Dir is its data folder.
func (b *Broker) Dir() string { return b.dir }

// Close saves the broker's state, so that the next start is quick, and stops it. Records are on disk
// whether or not Close is called. Clients should be closed before. It may be called again.
func (b *Broker) Close() error {
	b.closeOnce.Do(func() {
		close(b.stop)
		b.watched.Wait()
		b.closeErr = errors.Join(b.shutdown(), b.lock.Unlock())
	})
	return b.closeErr
}

func (b *Broker) shutdown() error {
	b.cluster.Close()
	if msgs := b.log.takeErrors(); len(msgs) > 0 {
		// The broker itself returns nothing: its log is the only place where it says that saving failed.
		return fmt.Errorf("close embedded broker in %s: %s; its records are kept, the next start is slower", b.dir, strings.Join(msgs, "; "))
	}
	return nil
}

// SizeBytes is the size of the data folder.
func (b *Broker) SizeBytes() (int64, error) { return dirSize(b.dir) }

func (b *Broker) watchSize(log *slog.Logger) {
	defer b.watched.Done()
	tick := time.NewTicker(brokerSizeCheck)
	defer tick.Stop()
	for next := b.warnBytes; ; {
		size, err := b.SizeBytes()
		switch {
		case err != nil:
			log.Warn("embedded broker: cannot measure its data folder", "dir", b.dir, "err", err)
		case size >= next:
			log.Warn("embedded broker: its log is large; it is never cut and is read whole at each start; use a Kafka cluster for more",
				"dir", b.dir, "bytes", size, "limit_bytes", b.warnBytes)
			next = 2 * size
		}
		select {
		case <-b.stop:
			return
		case <-tick.C:
		}
	}
}

// dirSize sums the files of a folder; files that vanish meanwhile count nothing.
func dirSize(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}

// readPort returns the port of the last start, or 0. A file that does not hold one is as good as none.
func readPort(dir string) int {
	raw, err := os.ReadFile(filepath.Join(dir, portFileName))
	if err != nil {
		return 0
	}
	port, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 16)
	if err != nil {
		return 0
	}
	return int(port)
}

func writePort(dir, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("broker address %s: %w", addr, err)
	}
	if err := os.WriteFile(filepath.Join(dir, portFileName), []byte(port+"\n"), 0o644); err != nil {
		return fmt.Errorf("remember the broker's port: %w", err)
	}
	return nil
}

// brokerLogger passes kfake's messages on and keeps its errors.
type brokerLogger struct {
	to   *slog.Logger
	mu   sync.Mutex
	errs []string
}

// Logf implements kfake.Logger.
func (l *brokerLogger) Logf(level kfake.LogLevel, format string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		msg := fmt.Sprintf(format, args...)
		l.mu.Lock()
		if len(l.errs) < 16 {
			l.errs = append(l.errs, msg)
		}
		l.mu.Unlock()
		l.to.Error("embedded broker: " + msg)
	case kfake.LogLevelWarn:
		l.to.Warn("embedded broker: " + fmt.Sprintf(format, args...))
	}
	// Info and debug are one message a request: nobody reads them, and formatting them costs.
}

func (l *brokerLogger) takeErrors() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := l.errs
	l.errs = nil
	return errs
}
