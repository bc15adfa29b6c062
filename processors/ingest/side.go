package ingest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	iofs "io/fs"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/schemas/record"
)

// fileInfo is what the shard knows of one of its accepted files.
type fileInfo struct {
	Record   int64    // where its rows were accepted: its AppendRows, or the plan of the job that wrote it (A5)
	Added    int64    // offset of the record that added it
	Epoch    int64    // of its AppendRows, -1: a job wrote it
	FirstRow int64    // first row id, -1 while unpublished
	Name     [16]byte // of a file that a job wrote
	Path     string   // of a file that another writer brought
	Moved    []moved  // by the jobs that rewrote it, or ranges of it, ascending
}

// request is a DeleteKeys that this shard was asked to answer.
type request struct {
	Offset   int64
	Keys     record.Ref
	HasOrder bool
	Order    int64
	TimeMs   int64 // table time of the record
}

// side is the shard's memory beside the key index, complete to Offset.
type side struct {
	Offset int64
	// IndexAt is a log offset that the key index is durably complete to: the
	// requests that only appends up to there answered may be missing here, so
	// this file is of no use to an index that is behind it.
	IndexAt  int64
	Files    map[uint64]fileInfo
	Requests []request // ascending; answered ones stay until their tombstones may go
	// Debts are versions that lost to one of another shard when the topic was
	// divided anew; the next append kills them. Killing one twice changes nothing.
	Debts []killed
	// Held are the AddFiles and ForeignSnapshots that the index may not have, ascending; Asked is since
	// when the shard is asked to take them, or is not.
	Held  []heldAdd
	Asked []asked
}

var errSide = errors.New("the shard's side file is damaged")

const (
	sideName = "side"
	sideForm = 3
	owesForm = 4 // with debts
	takeForm = 5 // with debts, held files and who is asked
	pathForm = 6 // with these, and files of other writers
	mapsForm = 7 // with these, and numbers of maps' paths, where some stand inline
)

func newSide() *side { return &side{Offset: -1, IndexAt: -1, Files: map[uint64]fileInfo{}} }

func (s *side) encode() []byte {
	b := []byte{'v', 's', 'd', sideForm}
	if len(s.Debts) > 0 {
		b[3] = owesForm
	}
	if len(s.Held)+len(s.Asked) > 0 {
		b[3] = takeForm
	}
	ids := make([]uint64, 0, len(s.Files))
	for id := range s.Files {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	foreign := s.foreignFiles(ids)
	if len(foreign) > 0 {
		b[3] = pathForm
	}
	var paths mapPaths
	if s.anyInline() {
		b[3], paths = mapsForm, mapPaths{}
	}
	b = binary.AppendVarint(b, s.Offset)
	b = binary.AppendVarint(b, s.IndexAt)
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		f := s.Files[id]
		b = binary.AppendUvarint(b, id)
		b = binary.AppendVarint(b, f.Record)
		b = binary.AppendVarint(b, f.Epoch)
		b = binary.AppendVarint(b, f.FirstRow)
		b = append(binary.AppendVarint(b, f.Added), f.Name[:]...)
		b = appendMoves(b, f.Moved, paths)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Requests)))
	for i := range s.Requests {
		r := &s.Requests[i]
		b = binary.AppendVarint(b, r.Offset)
		b = binary.AppendUvarint(b, uint64(len(r.Keys.Path)))
		b = append(b, r.Keys.Path...)
		b = binary.AppendVarint(b, r.Keys.Length)
		b = append(b, r.Keys.Hash[:]...)
		h := byte(0)
		if r.HasOrder {
			h = 1
		}
		b = append(b, h)
		b = binary.AppendVarint(b, r.Order)
		b = binary.AppendVarint(b, r.TimeMs)
	}
	if b[3] != sideForm {
		b = binary.AppendUvarint(b, uint64(len(s.Debts)))
		for _, k := range s.Debts {
			b = binary.AppendUvarint(b, k.file)
			b = binary.AppendUvarint(b, uint64(k.pos))
		}
	}
	if b[3] >= takeForm {
		b = s.encodeHeld(b)
	}
	if b[3] >= pathForm {
		b = s.encodeForeign(b, foreign)
	}
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func decodeSide(b []byte) (*side, error) {
	if len(b) < 8 || !bytes.Equal(b[:3], []byte("vsd")) || b[3] < sideForm || b[3] > mapsForm ||
		crc32.ChecksumIEEE(b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return nil, errSide
	}
	r := &sideReader{r: bytes.NewReader(b[4 : len(b)-4]), numbered: b[3] >= mapsForm}
	s := newSide()
	s.Offset = r.varint()
	s.IndexAt = r.varint()
	for n := r.count(); n > 0 && r.bad == nil; n-- {
		id := r.uvarint()
		if _, twice := s.Files[id]; twice {
			r.bad = errSide
		}
		f := fileInfo{Record: r.varint(), Epoch: r.varint(), FirstRow: r.varint(), Added: r.varint()}
		r.fill(f.Name[:])
		f.Moved = r.moves()
		s.Files[id] = f
	}
	for n := r.count(); n > 0 && r.bad == nil; n-- {
		q := request{Offset: r.varint()}
		q.Keys.Path, q.Keys.Length = r.text(), r.varint()
		r.fill(q.Keys.Hash[:])
		q.HasOrder, q.Order, q.TimeMs = r.flag(), r.varint(), r.varint()
		if len(s.Requests) > 0 && q.Offset <= s.Requests[len(s.Requests)-1].Offset {
			r.bad = errSide
		}
		s.Requests = append(s.Requests, q)
	}
	if b[3] != sideForm && r.bad == nil {
		n := r.count()
		if n == 0 && b[3] == owesForm {
			r.bad = errSide
		}
		for ; n > 0 && r.bad == nil; n-- {
			file, pos := r.uvarint(), r.uvarint()
			if pos > math.MaxUint32 {
				r.bad = errSide
			}
			s.Debts = append(s.Debts, killed{file, uint32(pos)})
		}
	}
	if b[3] >= takeForm && r.bad == nil {
		s.decodeHeld(r)
	}
	if b[3] >= pathForm && r.bad == nil {
		s.decodeForeign(r)
	}
	if r.bad != nil || r.r.Len() != 0 {
		return nil, errSide
	}
	return s, nil
}

// maxSide bounds a side file, in bytes.
const maxSide = 1 << 30

// loadSide reads the side file of a shard's folder; an absent one is empty.
func loadSide(fs vfs.FS, dir string) (*side, error) {
	f, err := fs.Open(fs.PathJoin(dir, sideName))
	if errors.Is(err, iofs.ErrNotExist) {
		return newSide(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the shard's side file: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSide))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read the shard's side file: %w", err)
	}
	return decodeSide(b)
}

// save replaces the side file. A crash leaves the old one, the new one, or a
// damaged one: the log is read again from wherever it stands.
func (s *side) save(fs vfs.FS, dir string) error {
	tmp := fs.PathJoin(dir, sideName+".tmp")
	f, err := fs.Create(tmp, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(s.encode())
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = fs.Rename(tmp, fs.PathJoin(dir, sideName))
	}
	if err != nil {
		return fmt.Errorf("write the shard's side file: %w", err)
	}
	return nil
}

// pending are the requests from offset from on, below to.
func (s *side) pending(from, to int64) []request {
	i, _ := slices.BinarySearchFunc(s.Requests, from, func(r request, o int64) int { return cmp.Compare(r.Offset, o) })
	j, _ := slices.BinarySearchFunc(s.Requests, to, func(r request, o int64) int { return cmp.Compare(r.Offset, o) })
	return s.Requests[i:j]
}

// prune forgets the requests below answered, which are answered for good,
// whose tombstones may be gone.
func (s *side) prune(answered, before int64) {
	n := 0
	for n < len(s.Requests) && s.Requests[n].Offset < answered && s.Requests[n].TimeMs < before {
		n++
	}
	s.Requests = s.Requests[n:]
}

// mark says that the shard's requests below an offset are answered by an
// accepted append and those before it.
type mark struct {
	append   int64 // log offset
	requests int64
}

// maxMarks bounds the marks of appends that the index holds in memory only.
const maxMarks = 4096

// accepted notes an accepted append of the shard.
func (s *Shard) accepted(offset int64, requests int64) {
	s.marks = append(s.marks, mark{offset, requests})
	if len(s.marks) > maxMarks { // fewer say the same, later
		for i := range maxMarks / 2 {
			s.marks[i] = s.marks[2*i+1]
		}
		s.marks = append(s.marks[:maxMarks/2], s.marks[maxMarks:]...)
	}
}

// forgetRequests prunes what was answered by appends that the index has for
// good: after a crash, or an epoch that was lost, every other append is folded
// or made again, and needs its requests.
func (s *Shard) forgetRequests(beforeMs int64) {
	n := 0
	for n < len(s.marks) && s.marks[n].append <= s.index.Durable() {
		n++
	}
	if n > 0 {
		last := s.marks[n-1]
		s.side.IndexAt, s.answered = last.append, last.requests
		s.marks = append(s.marks[:0], s.marks[n:]...)
	}
	s.side.prune(s.answered, beforeMs)
}

// forgetFiles drops the files that no key of the index points to any more. What
// is folded after a crash begins with the durable index: a file that it does not
// name, and that was added before it stood, can never be named again.
func (s *Shard) forgetFiles() {
	if s.index == nil {
		clear(s.side.Files) // without a key nothing asks for them
		return
	}
	durable := s.index.Durable()
	live := s.index.DurableFiles()
	s.side.Held = slices.DeleteFunc(s.side.Held, func(h heldAdd) bool { return h.Taken > 0 && h.Taken <= durable })
	held := map[uint64]bool{}
	for i := range s.side.Held {
		for _, p := range s.side.Held[i].Files {
			held[p.ID] = true
		}
	}
	for id, f := range s.side.Files {
		if _, ok := slices.BinarySearch(live, id); !ok && f.Added <= durable && !held[id] {
			if ms, any := f.lastMove(); any && ms >= s.decidedTime-movedMs {
				continue
			}
			delete(s.side.Files, id)
		}
	}
	s.side.IndexAt = max(s.side.IndexAt, durable)
}

// sideShare bounds what a side file costs: it is written once for at least so
// large a share of its files that were added.
const sideShare = 16

// sideDue says whether the side file is worth writing again.
func (s *Shard) sideDue() bool {
	return s.sideAge >= max(s.cfg.SideAppends, len(s.side.Files)/sideShare)
}
