package topology

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/varve-io/varve/schemas/logfile"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

// Exported is what an export wrote.
type Exported struct {
	Partition   int32
	First, Next int64 // offsets of the first record and of the one after the last
	Bytes       int64
}

// PartitionOf is the transactions partition that has a table.
func (n *Conn) PartitionOf(table string) int32 { return n.partition(table) }

// Export writes the records that a partition of the log has now to a file that
// must not be there. What is left of an export that failed is removed.
func (n *Conn) Export(ctx context.Context, partition int32, path string, told func(done, all int64)) (out *Exported, err error) {
	if partition < 0 || int(partition) >= n.topics.Partitions {
		return nil, fmt.Errorf("%w: deployment %s has %d partitions, counted from 0; there is no %d", ErrConfig, n.deployment, n.topics.Partitions, partition)
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%w: %s is there already; an export overwrites nothing: name another file", ErrConfig, path)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("export: %w", err)
	}
	offsets, err := n.admin.Offsets(ctx, n.topics.Transactions)
	if err != nil {
		return nil, err
	}
	at := offsets[partition]
	h, err := n.views.head(ctx, partition)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp-*")
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	out = &Exported{Partition: partition, First: at.Start, Next: at.High}
	err = n.exportTo(ctx, f, logfile.Head{
		Deployment: h.Deployment, Name: n.deployment, Partition: partition, Partitions: int32(n.topics.Partitions), First: at.Start,
	}, at.High, told)
	if st, statErr := f.Stat(); statErr == nil {
		out.Bytes = st.Size()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("export to %s: %w", path, err)
	}
	if err := os.Link(f.Name(), path); err != nil { // never over another file
		return nil, fmt.Errorf("export: %w", err)
	}
	return out, nil
}

func (n *Conn) exportTo(ctx context.Context, f *os.File, h logfile.Head, end int64, told func(done, all int64)) error {
	b := bufio.NewWriterSize(f, 1<<20)
	w, err := logfile.NewWriter(b, h)
	if err != nil {
		return err
	}
	src, err := topicRecords(ctx, n.client, n.topics.Transactions, h.Partition, h.First, end)
	if err != nil {
		return err
	}
	defer src.close()
	for {
		rs, err := src.next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for i := range rs {
			r := &rs[i]
			if err := w.Append(&logfile.Record{
				Offset: r.Offset, LeaderEpoch: r.LeaderEpoch, TimeMs: r.TimeMs, Control: r.Control, Key: r.Key, Header: r.Header, Value: r.Value,
			}); err != nil {
				return err
			}
		}
		if told != nil {
			told(w.Count(), end-h.First)
		}
	}
	if err := errors.Join(w.Close(), b.Flush()); err != nil {
		return err
	}
	return f.Sync()
}

// records gives a partition's records up to an end, io.EOF behind the last.
type records interface {
	next(ctx context.Context) ([]statestore.Record, error)
	close()
}

// topicReader are records of the transactions topic.
type topicReader struct {
	log *LogReader
	end int64
	buf []statestore.Record
}

func topicRecords(ctx context.Context, o ClientOptions, topic string, p int32, from, end int64) (*topicReader, error) {
	log, err := OpenLogReader(ctx, o, ReaderOptions{Topic: topic, Partition: p, Offset: from})
	if err != nil {
		return nil, err
	}
	return &topicReader{log: log, end: end}, nil
}

func (t *topicReader) close() { t.log.Close() }

func (t *topicReader) next(ctx context.Context) ([]statestore.Record, error) {
	for t.log.Next() < t.end {
		rs, err := t.log.Poll(ctx, time.Second, 4096)
		if err != nil {
			return nil, err
		}
		t.buf = t.buf[:0]
		for i := range rs {
			if rs[i].Offset >= t.end {
				break
			}
			t.buf = append(t.buf, stateRecord(&rs[i]))
		}
		if len(t.buf) > 0 {
			return t.buf, nil
		}
	}
	return nil, io.EOF
}

// fileReader are records of an exported log.
type fileReader struct {
	f    *os.File
	path string
	r    *logfile.Reader
	one  [1]statestore.Record
}

func openExport(path string) (*fileReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	r, err := logfile.NewReader(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return &fileReader{f: f, path: path, r: r}, nil
}

// checkExport reads all of an exported log and gives the offset after its last
// record: a damaged one is found before anything is made of it.
func checkExport(ctx context.Context, path string) (h logfile.Head, next int64, err error) {
	x, err := openExport(path)
	if err != nil {
		return h, 0, err
	}
	defer x.close()
	h = x.r.Head()
	for n := 0; ; n++ {
		if n&1023 == 0 && ctx.Err() != nil {
			return h, 0, ctx.Err()
		}
		rs, err := x.next(ctx)
		if errors.Is(err, io.EOF) {
			return h, x.r.Next(), nil
		}
		if err != nil {
			return h, 0, err
		}
		if rs[0].Offset != 0 {
			continue
		}
		var env record.Envelope
		if record.DecodeEnvelope(rs[0].Key, rs[0].Header, rs[0].Value, &env) != nil || env.Type != record.TypeSetApplyVersion {
			return h, 0, fmt.Errorf("%s: %w: its first record is no genesis", path, logfile.ErrDamaged)
		}
		v, err := record.DecodeBody(env.Type, env.TypeVersion, env.Body)
		if err != nil {
			return h, 0, fmt.Errorf("%s: its first record is no genesis: %w", path, err)
		}
		if g, ok := v.(*record.SetApplyVersion); !ok || g.Deployment != h.Deployment || g.Partition != h.Partition || g.Partitions != h.Partitions {
			return h, 0, fmt.Errorf("%s: %w: its genesis names another deployment or partition than its head", path, logfile.ErrDamaged)
		}
	}
}

func (x *fileReader) close() { _ = x.f.Close() } // opened for reading

func (x *fileReader) next(context.Context) ([]statestore.Record, error) {
	var r logfile.Record
	if err := x.r.Read(&r); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("%s: %w", x.path, err)
	}
	x.one[0] = statestore.Record{
		Offset: r.Offset, LeaderEpoch: r.LeaderEpoch, TimeMs: r.TimeMs, Key: r.Key, Header: r.Header, Value: r.Value, Control: r.Control,
	}
	return x.one[:], nil
}
