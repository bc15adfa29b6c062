package topology

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrBrokerDamaged marks errors of an embedded broker whose log lost or changed acknowledged records.
var ErrBrokerDamaged = errors.New("embedded broker's log is damaged")

// The embedded broker's folder, as kfake of the version in go.mod writes it (version 1 in each file):
//
//	meta.json, topics.json             cluster id; topics with ids and settings
//	partitions/<topic>-<n>/<base>.dat  record batches as on the wire, base = first offset
//	partitions/<topic>-<n>/<base>.idx  15 bytes a batch, written after the batch
//	partitions/<topic>-<n>/snapshot.json  written at a clean close: offsets, and the size of each segment
//
// A snapshot that matches the segments lets kfake load one segment at a time; without it, it decodes all
// segments of a partition into memory at once.
const (
	brokerFormatVersion = 1

	batchHeaderSize   = 61
	batchPrefixSize   = 12 // base offset and length, which the length does not cover
	batchCRCOffset    = 21 // the checksum covers all that follows it
	maxBatchSize      = 1 << 30
	indexEntrySize    = 15
	batchMagic        = 2
	attrTransactional = 0x10
	attrControl       = 0x20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// brokerSnapshot is snapshot.json.
type brokerSnapshot struct {
	Version          int                     `json:"version"`
	HighWatermark    int64                   `json:"high_watermark"`
	LastStableOffset int64                   `json:"last_stable_offset"`
	LogStartOffset   int64                   `json:"log_start_offset"`
	Epoch            int32                   `json:"epoch"`
	LeaderNode       int32                   `json:"leader_node,omitempty"`
	MaxTimestamp     int64                   `json:"max_timestamp"`
	CreatedAt        time.Time               `json:"created_at"`
	AbortedTxns      json.RawMessage         `json:"aborted_txns,omitempty"`
	Segments         []brokerSnapshotSegment `json:"segments"`
}

type brokerSnapshotSegment struct {
	BaseOffset int64 `json:"base_offset"`
	Size       int64 `json:"size"`
	MinEpoch   int32 `json:"min_epoch,omitempty"`
	MaxEpoch   int32 `json:"max_epoch,omitempty"`
}

// prepareBrokerLog checks every partition's log before kfake loads it, cuts the torn end that a killed
// process may leave, and writes the snapshots that a clean close would have written. It reads the whole log
// once, in bounded memory. A folder that holds no broker yet is fine.
func prepareBrokerLog(dir string, log *slog.Logger) error {
	var meta struct {
		Version int `json:"version"`
	}
	raw, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if errors.Is(err, os.ErrNotExist) {
		return refuseOrphans(dir)
	}
	if err == nil {
		err = json.Unmarshal(raw, &meta)
	}
	if err != nil {
		return fmt.Errorf("read meta.json: %w", err)
	}
	if meta.Version != brokerFormatVersion {
		return fmt.Errorf("meta.json has version %d, this program knows %d; use the version of varve that wrote the folder", meta.Version, brokerFormatVersion)
	}
	compacted, err := compactedTopics(dir)
	if err != nil {
		return err
	}
	parts := filepath.Join(dir, "partitions")
	entries, err := os.ReadDir(parts)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		topic := e.Name()[:max(strings.LastIndexByte(e.Name(), '-'), 0)]
		p := partitionLog{dir: filepath.Join(parts, e.Name()), gaps: compacted[topic]}
		if err := p.prepare(log); err != nil {
			return fmt.Errorf("partition %s: %w", e.Name(), err)
		}
	}
	return nil
}

// refuseOrphans: without meta.json kfake starts empty, beside logs that are there.
func refuseOrphans(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "partitions")); err == nil {
		return fmt.Errorf("%w: meta.json is missing beside a folder of partitions; restore the folder from a copy", ErrBrokerDamaged)
	}
	return nil
}

// compactedTopics are those whose logs may have gaps. Names are as in folder names; varve's own never need
// the escaping that others may.
func compactedTopics(dir string) (map[string]bool, error) {
	var topics struct {
		Topics []struct {
			Name    string            `json:"name"`
			Configs map[string]string `json:"configs"`
		} `json:"topics"`
	}
	raw, err := os.ReadFile(filepath.Join(dir, "topics.json"))
	if errors.Is(err, os.ErrNotExist) {
		// A first start that was killed before it had made a topic.
		if used, sizeErr := dirSize(filepath.Join(dir, "partitions")); errors.Is(sizeErr, os.ErrNotExist) || sizeErr == nil && used == 0 {
			return nil, nil
		}
	}
	if err == nil {
		err = json.Unmarshal(raw, &topics)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read topics.json: %w", ErrBrokerDamaged, err)
	}
	out := make(map[string]bool)
	for _, t := range topics.Topics {
		if strings.Contains(t.Configs["cleanup.policy"], "compact") {
			out[t.Name] = true
		}
	}
	return out, nil
}

// partitionLog is one partition's folder while it is checked.
type partitionLog struct {
	dir  string
	gaps bool // offsets may be missing between batches

	segments      []brokerSnapshotSegment
	next          int64 // offset after the last batch
	transactional bool
	epoch         int32
	maxTimestamp  int64
	firstTime     int64
}

func (p *partitionLog) prepare(log *slog.Logger) error {
	bases, err := p.bases()
	if err != nil {
		return err
	}
	for i, base := range bases {
		if err := p.scanSegment(base, i == len(bases)-1, log); err != nil {
			return fmt.Errorf("segment %d.dat: %w", base, err)
		}
	}
	old, err := p.readSnapshot()
	if err != nil {
		return err
	}
	if old != nil {
		if len(p.segments) == 0 && old.LogStartOffset == old.HighWatermark && old.HighWatermark > 0 {
			log.Warn("embedded broker: all records of a partition were deleted, so its offsets begin at 0 again", "dir", p.dir, "end_offset", old.HighWatermark)
			return nil
		}
		if p.next < old.HighWatermark {
			return fmt.Errorf("%w: it ends at offset %d, at the last clean close it ended at %d; restore the folder from a copy",
				ErrBrokerDamaged, p.next, old.HighWatermark)
		}
		if slices.EqualFunc(old.Segments, p.segments, func(a, b brokerSnapshotSegment) bool {
			return a.BaseOffset == b.BaseOffset && a.Size == b.Size
		}) {
			return nil
		}
	}
	if len(p.segments) == 0 || p.transactional {
		// The list of aborted transactions is kfake's to rebuild.
		return nil
	}
	return p.writeSnapshot(old)
}

func (p *partitionLog) bases() ([]int64, error) {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return nil, err
	}
	var bases []int64
	for _, e := range entries {
		if s, ok := strings.CutSuffix(e.Name(), ".dat"); ok {
			base, err := strconv.ParseInt(s, 10, 64)
			if err != nil || base < 0 {
				return nil, fmt.Errorf("%w: the file %s is no segment", ErrBrokerDamaged, e.Name())
			}
			bases = append(bases, base)
		}
	}
	slices.SortFunc(bases, cmp.Compare)
	return bases, nil
}

// scanSegment checks one segment: whole batches with right checksums, offsets without holes. What follows
// the last whole batch of the last segment may be the torn end of a process that was killed: each batch is
// synced before the next is written, so at most one batch can be torn, and it was never acknowledged.
func (p *partitionLog) scanSegment(base int64, last bool, log *slog.Logger) error {
	if len(p.segments) > 0 && base != p.next && !p.gaps || base < p.next {
		return fmt.Errorf("%w: it starts at offset %d, the segment before ends at %d; restore the folder from a copy", ErrBrokerDamaged, base, p.next)
	}
	path := filepath.Join(p.dir, strconv.FormatInt(base, 10)+".dat")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if p.next < base {
		p.next = base
	}
	var (
		good    int64 // bytes of whole batches
		batches int64
		bad     error
		badEnd  = size // where the torn batch says that it ends
	)
	r := bufio.NewReaderSize(f, 1<<20)
	var header [batchHeaderSize]byte
	for good < size {
		end, err := p.scanBatch(r, header[:], good, size)
		if errors.Is(err, errBadBatch) {
			bad, badEnd = err, min(end, size)
			break
		}
		if err != nil {
			return err
		}
		good = end
		batches++
	}
	indexBytes, err := p.indexBytes(base)
	if err != nil {
		return err
	}
	indexed := indexBytes / indexEntrySize
	damage := func(why string) error {
		return fmt.Errorf("%w: %s at byte %d, offset %d; restore the folder from a copy, "+
			"or, to go on without the records from there, move this and all later segments of the partition away", ErrBrokerDamaged, why, good, p.next)
	}
	switch {
	case bad != nil && (!last || badEnd < size):
		return damage(bad.Error())
	case indexed > batches+1, indexed > batches && !last:
		return damage(fmt.Sprintf("the index has %d batches, %d are there", indexed, batches))
	case bad != nil:
		log.Warn("embedded broker: cut the torn end of a log, which was never acknowledged", "segment", path, "bytes", size-good, "end_offset", p.next)
		if err := errors.Join(f.Truncate(good), f.Sync()); err != nil {
			return fmt.Errorf("cut torn end: %w", err)
		}
	}
	if keep := min(indexed, batches) * indexEntrySize; keep < indexBytes {
		if err := os.Truncate(p.indexPath(base), keep); err != nil {
			return fmt.Errorf("cut index: %w", err)
		}
	}
	p.segments = append(p.segments, brokerSnapshotSegment{BaseOffset: base, Size: good, MinEpoch: p.epoch, MaxEpoch: p.epoch})
	return nil
}

// errBadBatch marks what may be a torn end.
var errBadBatch = errors.New("bad batch")

// scanBatch reads the batch at byte pos of a segment of size bytes. It returns where the batch ends, or says
// that it ends, also with errBadBatch.
func (p *partitionLog) scanBatch(r *bufio.Reader, header []byte, pos, size int64) (end int64, err error) {
	if size-pos < batchHeaderSize {
		return size, fmt.Errorf("%w: %d bytes, less than a header", errBadBatch, size-pos)
	}
	if _, err := io.ReadFull(r, header); err != nil {
		return 0, err
	}
	length := int64(binary.BigEndian.Uint32(header[8:]))
	end = pos + batchPrefixSize + length
	switch {
	case length < batchHeaderSize-batchPrefixSize || length > maxBatchSize:
		return size, fmt.Errorf("%w: length %d", errBadBatch, length)
	case end > size:
		return size, fmt.Errorf("%w: %d bytes, its header says %d", errBadBatch, size-pos, end-pos)
	}
	sum := crc32.New(castagnoli)
	sum.Write(header[batchCRCOffset:])
	if _, err := io.CopyN(sum, r, end-pos-batchHeaderSize); err != nil {
		return 0, err
	}
	if want, got := binary.BigEndian.Uint32(header[17:]), sum.Sum32(); got != want {
		return end, fmt.Errorf("%w: checksum %08x, its header says %08x", errBadBatch, got, want)
	}
	first := int64(binary.BigEndian.Uint64(header))
	delta := int64(int32(binary.BigEndian.Uint32(header[23:])))
	if magic := header[16]; magic != batchMagic || delta < 0 {
		return end, fmt.Errorf("%w: magic %d, last offset delta %d", errBadBatch, magic, delta)
	}
	// Base offset and leader epoch are not under the checksum.
	if first != p.next && !p.gaps || first < p.next {
		return 0, fmt.Errorf("%w: a batch at byte %d has offset %d, expected %d; restore the folder from a copy", ErrBrokerDamaged, pos, first, p.next)
	}
	p.next = first + delta + 1
	p.epoch = max(p.epoch, int32(binary.BigEndian.Uint32(header[12:])))
	p.transactional = p.transactional || binary.BigEndian.Uint16(header[21:])&(attrTransactional|attrControl) != 0
	if p.firstTime == 0 {
		p.firstTime = int64(binary.BigEndian.Uint64(header[27:]))
	}
	p.maxTimestamp = max(p.maxTimestamp, int64(binary.BigEndian.Uint64(header[35:])))
	return end, nil
}

func (p *partitionLog) indexPath(base int64) string {
	return filepath.Join(p.dir, strconv.FormatInt(base, 10)+".idx")
}

func (p *partitionLog) indexBytes(base int64) (int64, error) {
	info, err := os.Stat(p.indexPath(base))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// readSnapshot returns the snapshot of the last clean close, nil if there is none. One that cannot be read
// is none: kfake ignores it too.
func (p *partitionLog) readSnapshot() (*brokerSnapshot, error) {
	raw, err := os.ReadFile(filepath.Join(p.dir, "snapshot.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s brokerSnapshot
	if json.Unmarshal(raw, &s) != nil || s.Version != brokerFormatVersion {
		return nil, nil
	}
	return &s, nil
}

// writeSnapshot writes what a clean close would have written now. old, if not nil, keeps what segments do
// not tell: where the log starts after records were deleted from its head.
func (p *partitionLog) writeSnapshot(old *brokerSnapshot) error {
	s := brokerSnapshot{
		Version:          brokerFormatVersion,
		HighWatermark:    p.next,
		LastStableOffset: p.next,
		LogStartOffset:   p.segments[0].BaseOffset,
		Epoch:            p.epoch,
		MaxTimestamp:     p.maxTimestamp,
		CreatedAt:        time.UnixMilli(p.firstTime),
		Segments:         p.segments,
	}
	if old != nil {
		s.LogStartOffset = max(s.LogStartOffset, old.LogStartOffset)
		s.CreatedAt = old.CreatedAt
		s.Epoch = max(s.Epoch, old.Epoch)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := filepath.Join(p.dir, "snapshot.json")
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return os.Rename(tmp, path)
}
