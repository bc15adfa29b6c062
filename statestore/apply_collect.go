package statestore

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// MaxCollect is how many objects one CollectFiles may name.
const MaxCollect = 4096

// collectFiles: G2, G3. What an item names goes out of the state at once: its
// object waits, under the record's offset, to be deleted.
func (s *Store) collectFiles(r *Record, now int64, t *table, p *record.CollectFiles) (outcomeOf, error) {
	v := verdicts{n: len(p.Items)}
	if v.n > MaxCollect {
		return reject(record.BadItem), nil
	}
	c := collector{s: s, t: t}
	out := Collection{Offset: r.Offset, TimeMs: now}
	for i := range p.Items {
		path, reason, err := c.take(&p.Items[i])
		if err != nil {
			return outcomeOf{}, err
		}
		if reason != record.ReasonNone {
			v.reject(i, reason)
			continue
		}
		x := &p.Items[i]
		s.effect('X', int64(x.Kind), x.Left, int64(x.ID))
		s.effectBytes([]byte(path))
		out.Objects = append(out.Objects, path)
		if x.Kind == record.GarbageStray {
			t.strays, t.dirty = r.Offset, true
		}
	}
	if len(out.Objects) == 0 {
		return v.outcome(false), nil
	}
	s.effect('G', t.id, int64(len(out.Objects)))
	return v.outcome(false), s.set(key16(keyCollect, uint64(t.id), uint64(r.Offset)), out.encode())
}

// filesCollected: G2.
func (s *Store) filesCollected(t *table, p *record.FilesCollected) (outcomeOf, error) {
	k := key16(keyCollect, uint64(t.id), uint64(p.Collect))
	b, err := s.get(k)
	if err != nil {
		return outcomeOf{}, err
	}
	if b == nil {
		return reject(record.NoCollection, p.Collect), nil
	}
	s.effect('D', t.id, p.Collect)
	return accepted(false, p.Collect), s.del(k)
}

// collector takes the items of one CollectFiles.
type collector struct {
	s *Store
	t *table

	writers map[int64]uint32    // by epoch, once a stray asked
	names   map[[16]byte]bool   // of the files that jobs wrote, likewise
	known   map[string]struct{} // metadata objects, likewise
}

func (c *collector) take(x *record.CollectItem) (path string, _ record.Reason, _ error) {
	switch x.Kind {
	case record.GarbageFile, record.GarbageMetadata:
		return c.takeLeft(x)
	case record.GarbageStray:
		reason, _, err := c.stray(x)
		return c.t.def.Location + "/" + x.Name, reason, err
	}
	return "", record.BadItem, nil
}

// takeLeft takes an object that left the table.
func (c *collector) takeLeft(x *record.CollectItem) (string, record.Reason, error) {
	s, t := c.s, c.t
	k := garbageKey(t.id, x.Kind, x.Left, x.ID)
	b, err := s.get(k)
	if err != nil {
		return "", 0, err
	}
	if b == nil {
		return "", record.NoFile, nil
	}
	left, err := decodeLeft(x.Kind, x.Left, x.ID, b)
	if err != nil {
		return "", 0, err
	}
	kept, err := s.keeper(t, left)
	if err != nil {
		return "", 0, err
	}
	if kept.By != KeptByNothing {
		return "", record.Reachable, nil
	}
	path, err := s.leftPath(t, left)
	if err != nil {
		return "", 0, err
	}
	if x.Kind == record.GarbageFile {
		if err := s.forgetFile(t, x.ID); err != nil {
			return "", 0, err
		}
	}
	return path, record.ReasonNone, s.del(k)
}

// forgetFile takes out the entry of a file that left, and with the last input of
// a job the way through it (F9).
func (s *Store) forgetFile(t *table, id uint64) error {
	ch, err := s.chunk(t.id, id)
	if err != nil {
		return err
	}
	jobs, err := s.jobsOf(t, ch, id)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		done, err := s.doneJob(t.id, job)
		if err != nil {
			return err
		}
		if done == nil {
			return fmt.Errorf("%w: the job of file %d, which left", ErrCorrupt, id)
		}
		k := jobKey(keyDone, t.id, job)
		if done.inputs--; done.inputs <= 0 {
			err = s.del(k)
		} else {
			err = s.set(k, done.encode())
		}
		if err != nil {
			return err
		}
	}
	if ch.parted.has(uint(id & 127)) {
		if err := s.del(partsKey(t.id, id)); err != nil {
			return err
		}
	}
	s.touch(ch)
	ch.collect(id)
	return nil
}

var (
	jobFile       = regexp.MustCompile(`^data/([0-9a-f]{32})\.parquet$`)
	ingestFile    = regexp.MustCompile(`^data/([0-9]{1,19})-([0-9]{1,19})-([0-9]{1,13})\.parquet$`)
	snapshotsFile = regexp.MustCompile(`^metadata/([0-9a-f]{32}-[0-9]{1,19}-(m[0-9]{1,9}\.avro|dv[0-9]{1,9}\.puffin)|snap-[0-9]{1,19}-[0-9a-f]{32}\.avro)$`)
)

// IsStrayName says whether an object's path below a table's location is one that
// ingest, a job or a publisher gives: no other is ever collected.
func IsStrayName(name string) bool {
	return jobFile.MatchString(name) || ingestFile.MatchString(name) || snapshotsFile.MatchString(name)
}

// stray judges an object that no accepted record names (G3). Whoever may have
// written it before the end of the log was at Left must have no way to enter it
// in the log any more; open says that he may have one.
func (c *collector) stray(x *record.CollectItem) (_ record.Reason, open bool, _ error) {
	if x.Left < 0 || x.Left > c.s.head.Offset {
		return record.BadItem, false, nil
	}
	if m := ingestFile.FindStringSubmatch(x.Name); m != nil {
		return c.strayIngest(x, m)
	}
	if m := jobFile.FindStringSubmatch(x.Name); m != nil {
		return c.strayOutput(x, m[1])
	}
	if snapshotsFile.MatchString(x.Name) {
		return c.strayMetadata(x)
	}
	return record.BadItem, false, nil
}

// strayIngest: of a file of an epoch that is closed, and that no accepted append
// named.
func (c *collector) strayIngest(x *record.CollectItem, m []string) (record.Reason, bool, error) {
	s, t := c.s, c.t
	table, err1 := strconv.ParseInt(m[1], 10, 64)
	epoch, err2 := strconv.ParseInt(m[2], 10, 64)
	counter, err3 := strconv.ParseUint(m[3], 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || table != t.id || counter > 1<<writerShift-1 ||
		"data/"+schemas.DataFileName(table, epoch, counter) != x.Name {
		return record.BadItem, false, nil
	}
	if c.writers == nil {
		var err error
		if c.writers, err = s.writersOf(t); err != nil {
			return 0, false, err
		}
	}
	writer, ok := c.writers[epoch]
	if !ok {
		return record.BadItem, false, nil // no epoch of this table
	}
	id := FileID(writer, counter)
	ch, err := s.chunk(t.id, id)
	if err != nil {
		return 0, false, err
	}
	if ch.find(id) != nil {
		return record.Reachable, false, nil
	}
	for _, id := range t.shardOrder {
		if sh := t.shards[id]; sh.epoch == epoch && sh.open {
			return record.Reachable, true, nil
		}
	}
	return record.ReasonNone, false, nil
}

// strayOutput: of a file of a job's attempt that is over, and that no accepted
// completion named. Its name tells nothing: every attempt from before it was seen
// must be over.
func (c *collector) strayOutput(x *record.CollectItem, digits string) (record.Reason, bool, error) {
	s, t := c.s, c.t
	if c.names == nil {
		var err error
		if c.names, err = s.outputNames(t); err != nil {
			return 0, false, err
		}
	}
	var name [16]byte
	if _, err := hex.Decode(name[:], []byte(digits)); err != nil {
		return record.BadItem, false, nil
	}
	if c.names[name] {
		return record.Reachable, false, nil
	}
	open := false
	if err := s.eachOpenJob(t.id, func(_ jobID, j *openJob) error {
		open = open || j.since <= x.Left
		return nil
	}); err != nil {
		return 0, false, err
	}
	if open {
		return record.Reachable, true, nil
	}
	return record.ReasonNone, false, nil
}

// strayMetadata: of an attempt at a cut that was given up. While the cut that was
// pending when it was seen is still pending, it may yet be committed.
func (c *collector) strayMetadata(x *record.CollectItem) (record.Reason, bool, error) {
	s, t := c.s, c.t
	if c.known == nil {
		var err error
		if c.known, err = s.knownMetadata(t); err != nil {
			return 0, false, err
		}
	}
	if _, ok := c.known[t.def.Location+"/"+x.Name]; ok {
		return record.Reachable, false, nil
	}
	if t.pending != nil && t.pending.Cut <= x.Left {
		return record.Reachable, true, nil
	}
	return record.ReasonNone, false, nil
}

// writersOf are the writer numbers of a table's epochs.
func (s *Store) writersOf(t *table) (map[int64]uint32, error) {
	all := map[int64]uint32{}
	prefix := key8(keyEpoch, uint64(t.id))
	it, err := s.iter(prefix)
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		d := dec{b: it.Value()}
		epoch := d.i()
		if err := d.done("writer"); err != nil {
			return nil, errors.Join(err, it.Close())
		}
		all[epoch] = uint32(binary.BigEndian.Uint64(it.Key()[len(prefix):]))
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return nil, readError(err)
	}
	return all, nil
}

// outputNames are the names of the files that jobs wrote, as far as the table has
// them.
func (s *Store) outputNames(t *table) (map[[16]byte]bool, error) {
	all := map[[16]byte]bool{}
	for _, writer := range OutputWriters {
		if err := s.namesOf(t, writer, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// namesOf finds those whose ids have a writer number.
func (s *Store) namesOf(t *table, writer uint32, all map[[16]byte]bool) error {
	for base, last := FileID(writer, 0)>>7, FileID(writer, t.nextOutput)>>7; base <= last; base++ {
		c := s.cached(chunkKey{t.id, base})
		if c == nil {
			b, err := s.stored(key16(keyChunk, uint64(t.id), base))
			if err != nil {
				return err
			}
			if b == nil {
				continue
			}
			c = &chunk{key: chunkKey{t.id, base}}
			if err := c.decode(b); err != nil {
				return err
			}
		}
		for i := range c.names {
			all[c.names[i].name] = true
		}
	}
	return nil
}

// knownMetadata are the locations of the manifests, lists and Puffin files that
// the state knows of: in use, or to be collected by their numbers.
func (s *Store) knownMetadata(t *table) (map[string]struct{}, error) {
	all := map[string]struct{}{t.head.ManifestList: {}}
	for i := range t.snapshots {
		all[t.snapshots[i].List] = struct{}{}
	}
	live := map[int64]string{}
	if err := s.liveManifests(t.id, live); err != nil {
		return nil, err
	}
	for _, p := range live {
		all[p] = struct{}{}
	}
	prefix := key8(keyPuffin, uint64(t.id))
	if err := s.eachKey(prefix, func(k, _ []byte) error {
		all[string(k[len(prefix):])] = struct{}{}
		return nil
	}); err != nil {
		return nil, err
	}
	prefix = append(key8(keyGarbage, uint64(t.id)), byte(record.GarbageMetadata))
	if err := s.eachKey(prefix, func(k, v []byte) error {
		x, err := readLeft(k, v)
		if err == nil {
			all[strings.Clone(x.path)] = struct{}{}
		}
		return err
	}); err != nil {
		return nil, err
	}
	waiting, err := s.collections(t.id)
	if err != nil {
		return nil, err
	}
	for i := range waiting {
		for _, p := range waiting[i].Objects {
			all[p] = struct{}{}
		}
	}
	return all, nil
}

// eachKey calls fn with the keys that begin with prefix, in order.
func (s *Store) eachKey(prefix []byte, fn func(key, value []byte) error) error {
	it, err := s.iter(prefix)
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if err := fn(it.Key(), it.Value()); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return readError(err)
	}
	return nil
}
