package ingest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/keyindex"
	"github.com/varve-io/varve/statestore/objstore"
)

// DefaultCheckpointEveryMs is how long a shard's index horizon may stay behind what
// the table's log has, in ms.
const DefaultCheckpointEveryMs = 15 * 60 * 1000

// DefaultCheckpointAppends is how many accepted appends lie between two index
// checkpoints: what an owner without a local index has to fold from the log.
const DefaultCheckpointAppends = 4096

// A checkpoint object is u32 BE length ‖ side file ‖ index base.

// mayCheckpoint says whether the shard can upload its index now. What a division
// left it owing is paid first: a file that it names may be collected once there is
// a checkpoint (F16).
func (s *Shard) mayCheckpoint() bool {
	return s.index != nil && s.stage == Running && !s.indexing && len(s.side.Debts) == 0
}

// checkpoint uploads the index and asks for the shard's horizon to move to it (F9).
func (s *Shard) checkpoint(ctx context.Context) error {
	if !s.mayCheckpoint() {
		return nil
	}
	offset := s.index.Offset()
	key := s.indexFolder() + indexName(s.epoch, offset)
	w, err := s.cfg.Store.Writer(ctx, key)
	if err != nil {
		return fmt.Errorf("write an index checkpoint: %w", err)
	}
	h := sha256.New()
	n := &countingWriter{w: io.MultiWriter(w, h)}
	s.forgetFiles()
	sd := s.side.encode()
	_, err = n.Write(binary.BigEndian.AppendUint32(nil, uint32(len(sd))))
	if err == nil {
		_, err = n.Write(sd)
	}
	if err == nil {
		_, err = s.index.Checkpoint(n)
	}
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write an index checkpoint: %w", err), w.Abort())
	}
	x := record.ShardIndex{Shard: s.cfg.Shard, Epoch: s.epoch, Offset: offset, File: record.Ref{Path: key, Length: n.n, Hash: record.Hash(h.Sum(nil))}}
	m, err := s.cfg.Bodies.Message(ctx, s.envelope(), &x)
	if err != nil {
		return err
	}
	s.indexing, s.uploaded, s.indexMs, s.taken = true, key, s.nowMs, 0
	epoch := s.epoch
	s.cfg.Log.Append(m, func(_ int64, err error) {
		if epoch == s.epoch && err != nil {
			s.indexing = false
			s.taken++
			s.log.Warn("an index checkpoint could not be entered in the log", "error", err)
		}
	})
	return nil
}

// idleCheckpoint uploads the index of a shard that few events come to, while the
// table's other writers go on: as long as its horizon stays, nothing of the table
// that left later can be collected (G2).
func (s *Shard) idleCheckpoint(ctx context.Context, nowMs int64) {
	if s.cfg.CheckpointEveryMs < 0 || s.taken == 0 || !s.mayCheckpoint() {
		return
	}
	if s.indexMs == 0 {
		s.indexMs = nowMs
	}
	if nowMs-s.indexMs < s.cfg.CheckpointEveryMs {
		return
	}
	s.indexMs = nowMs // one that fails is tried again after as long
	if err := s.checkpoint(ctx); err != nil {
		s.log.Warn("no index checkpoint", "error", err)
	}
}

// firstIndexRetryMs is how long a first checkpoint that failed waits.
const firstIndexRetryMs = 30_000

// firstCheckpoint uploads the index that a divided topic's shard began with, at
// once: other owners need not make it again, and the topic can be divided again
// only then (A6).
func (s *Shard) firstCheckpoint(ctx context.Context, nowMs int64) {
	if s.cfg.Base == 0 || s.standing != "" || nowMs < s.firstIndexMs || !s.mayCheckpoint() || s.index.Offset() < s.epoch {
		return
	}
	s.firstIndexMs = nowMs + firstIndexRetryMs
	if err := s.checkpoint(ctx); err != nil {
		s.log.Warn("no first index checkpoint; it is tried again", "error", err)
	}
}

// indexFolder holds the shard's checkpoints, of all its owners.
func (s *Shard) indexFolder() string {
	c := &s.cfg
	folder := fmt.Sprintf("%s/index/%d/%x-%d", c.Bodies.Prefix, c.TableID, c.Shard.TopicID, c.Shard.Partition)
	if c.Base > 0 {
		// Those of before are what all shards begin with: they stay.
		folder += fmt.Sprintf("-%d", c.Base)
	}
	return folder + "/"
}

// checkpointOffset is the log offset of a checkpoint, −1 when it has none.
func checkpointOffset(ref *record.Ref) int64 {
	var epoch, offset int64
	if ref == nil {
		return -1
	}
	name := ref.Path[strings.LastIndexByte(ref.Path, '/')+1:]
	if n, err := fmt.Sscanf(name, "%d-%d.idx", &epoch, &offset); n != 2 || err != nil || name != indexName(epoch, offset) {
		return -1
	}
	return offset
}

func indexName(epoch, offset int64) string { return fmt.Sprintf("%d-%d.idx", epoch, offset) }

// indexed: the outcome of a ShardIndex. Once it stands, the checkpoints of before
// are of no use but to an owner that starts now and has read of the one before it
// only: that one stays.
func (s *Shard) indexed(ctx context.Context, x *record.ShardIndex, ok bool) error {
	if s.stage != Running || x.Epoch != s.epoch || x.Shard.TopicID != s.cfg.Shard.TopicID || x.Shard.Partition != s.cfg.Shard.Partition {
		return nil
	}
	s.indexing, s.sinceIndex = false, 0
	if !ok {
		s.taken++
		if s.uploaded == "" {
			return nil
		}
		if err := s.cfg.Store.Delete(ctx, s.uploaded); err != nil {
			s.log.Warn("an index checkpoint that was not accepted could not be removed", "object", s.uploaded, "error", err)
		}
		return nil
	}
	keep := map[string]bool{s.uploaded: true, s.standing: true}
	s.standing = s.uploaded
	if err := s.collectIndexes(ctx, keep); err != nil {
		s.log.Warn("older index checkpoints could not be removed; they are tried again after the next one", "error", err)
	}
	return nil
}

// collectIndexes removes the checkpoints of this epoch and of closed ones. Those
// of a later epoch are another owner's.
func (s *Shard) collectIndexes(ctx context.Context, keep map[string]bool) error {
	var gone []string
	err := s.cfg.Store.List(ctx, s.indexFolder(), func(i objstore.Info) error {
		var epoch, offset int64
		name := strings.TrimPrefix(i.Key, s.indexFolder())
		if n, err := fmt.Sscanf(name, "%d-%d.idx", &epoch, &offset); n != 2 || err != nil || name != indexName(epoch, offset) {
			return nil
		}
		if epoch <= s.epoch && !keep[i.Key] {
			gone = append(gone, i.Key)
		}
		return nil
	})
	if err == nil && len(gone) > 0 {
		err = s.cfg.Store.Delete(ctx, gone...)
	}
	return err
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// restore brings a checkpoint into an empty index folder. What is wrong with
// it is no reason to stop: the log has everything.
func (s *Shard) restore(ctx context.Context, ref *record.Ref, opt keyindex.Options) error {
	obj, err := s.cfg.Store.Open(ctx, ref.Path)
	if errors.Is(err, objstore.ErrNotFound) {
		return fmt.Errorf("index checkpoint %s: %w", ref.Path, err)
	}
	if err != nil {
		return err
	}
	defer obj.Close()
	if obj.Size() != ref.Length || ref.Length < 4 {
		return fmt.Errorf("index checkpoint %s has %d bytes, not %d", ref.Path, obj.Size(), ref.Length)
	}
	h := sha256.New()
	r := io.TeeReader(io.NewSectionReader(obj, 0, ref.Length), h)
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint32(size[:]))
	if n > ref.Length-4 {
		return fmt.Errorf("index checkpoint %s: its side part is longer than the object", ref.Path)
	}
	sd := make([]byte, n)
	if _, err := io.ReadFull(r, sd); err != nil {
		return err
	}
	side, err := decodeSide(sd)
	if err != nil {
		return err
	}
	if err := keyindex.Restore(s.cfg.Dir, &hashedReader{r: r, sum: h.Sum, want: ref.Hash[:]}, opt); err != nil {
		return fmt.Errorf("index checkpoint %s: %w", ref.Path, err)
	}
	s.side = side
	return side.save(s.cfg.FS, s.cfg.Dir)
}

// hashedReader gives an error at the end when the bytes were others.
type hashedReader struct {
	r    io.Reader
	sum  func([]byte) []byte
	want []byte
}

func (h *hashedReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if err == io.EOF && !bytes.Equal(h.sum(nil), h.want) {
		return n, errors.New("the bytes are not those that the log names")
	}
	return n, err
}

// hasIndex says whether the folder holds an index or side file of any kind.
func hasIndex(fs vfs.FS, dir string) (bool, error) {
	es, err := fs.List(dir)
	if err != nil {
		return false, fmt.Errorf("read the index folder: %w", err)
	}
	return len(es) > 0, nil
}
