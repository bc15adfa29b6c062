package statestore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
)

// Record is one record of the transactions log as it was read.
type Record struct {
	Offset      int64
	LeaderEpoch int32
	TimeMs      int64
	Key         []byte
	Header      []byte // value of the header record.HeaderKey, nil when absent
	Value       []byte
	Control     bool   // a control record: accounted for, has no content
	Body        []byte // a body fetched by its reference (L10), nil when inline
	// BodyLost says that the body was proven lost and voided.
	BodyLost bool
	// LostMaps are forwarding maps that were proven lost and voided for this record.
	LostMaps []record.Hash
	// Prepared is what a Preparer made of these bytes, nil: Apply decodes them.
	Prepared *Prepared
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is what the state keeps of its last record to recognise its log (L5).
func (r *Record) Checksum() uint32 {
	c := crc32.Update(0, castagnoli, r.Key)
	c = crc32.Update(c, castagnoli, r.Header)
	return crc32.Update(c, castagnoli, r.Value)
}

// ApplyVersion is the newest version of the rules that this binary knows.
const ApplyVersion = 1

// active lists the types of each apply version and the newest version of each
// type's body (L8), 0: not active.
var active = map[uint32]*[256]uint16{
	1: {
		record.TypeSetApplyVersion: 1, record.TypeCreateTable: 2, record.TypeAlterTable: 2,
		record.TypeDropTable: 1, record.TypeClaimShard: 1, record.TypeAppendRows: 1,
		record.TypeShardIndex: 1, record.TypeSkipSource: 1, record.TypeRetireShard: 1,
		record.TypeDeleteKeys: 1, record.TypeCut: 1, record.TypeSnapshotCommitted: 1,
		record.TypeSnapshotFailed: 1, record.TypeCatalogBase: 2, record.TypeDeletePositions: 1,
		record.TypePlanJobs: 1, record.TypeCompleteJob: 1, record.TypeReleaseJob: 1,
		record.TypeReshard: 1, record.TypeCollectFiles: 1, record.TypeFilesCollected: 1, record.TypeAlterRefs: 1,
		record.TypeExpireSnapshots: 1, record.TypeRollback: 1, record.TypeDeleteWhere: 1, record.TypeRowsFound: 1,
		record.TypeAddFiles: 1, record.TypeForeignSnapshot: 2, record.TypeSplitPartition: 1, record.TypeExtendTree: 1, record.TypeAlterSpec: 1, record.TypeCatalogSpecs: 1,
		record.TypeRenumberSpecs: 1, record.TypeCatalogSchemas: 1, record.TypeAdoptFiles: 1,
	},
}

// Limits of a record that names its body (L10): whoever fetches bodies can tell
// by size alone that a record needs none, and apply rejects what passes them,
// so that no reference can stop a partition by being one that nobody can read.
const (
	MaxRefValue = 1024    // bytes of the record's value
	MaxBody     = 1 << 30 // bytes of the body
)

// NeedsBody is the reference that Apply will ask the body of, nil when there is none.
func NeedsBody(r *Record) *record.Ref {
	if r.Control || len(r.Value) > MaxRefValue || !record.HasBodyRef(r.Value) {
		return nil
	}
	var env record.Envelope
	if err := record.DecodeEnvelope(r.Key, r.Header, r.Value, &env); err != nil || !refInLimits(r, env.BodyRef) {
		return nil // apply says what such a record is
	}
	return env.BodyRef
}

func refInLimits(r *Record, ref *record.Ref) bool {
	return ref != nil && len(r.Value) <= MaxRefValue && ref.Length >= 0 && ref.Length <= MaxBody &&
		strings.HasSuffix(ref.Path, "/bodies/"+ref.Hash.String()) && objstore.CheckKey(ref.Path) == nil
}

var errNoBody = errors.New("its body was not fetched before apply")

// DedupeMs is how long a request id is remembered, in ms of table time (L9).
const DedupeMs = 24 * 3600 * 1000

const sampleMs = 10 * 60 * 1000

type requestEntry struct {
	offset  int64
	bytes   [16]byte // SHA-256 of the record's bytes, cut
	outcome []byte
}

// outcomeOf is the result of one record's rules.
type outcomeOf = record.Outcome

func reject(r record.Reason, numbers ...int64) outcomeOf {
	return outcomeOf{Code: record.Rejected, Reason: r, Numbers: numbers}
}

// Apply applies the next record of the log. Its result is the outcome's
// message, and the error is only ever a reason to stop the partition: a hole,
// a version that this binary does not know, a damaged database.
func (s *Store) Apply(r *Record) (record.OutcomeMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.head
	if r.Offset != h.Offset+1 {
		return record.OutcomeMessage{}, fmt.Errorf("%w: partition %d: offset %d follows %d; the topic lost records or was made again: restore it or start a new deployment", ErrHole, h.Partition, r.Offset, h.Offset)
	}
	if err := s.sound(); err != nil {
		return record.OutcomeMessage{}, err
	}
	if h.forgotten < h.Horizon {
		if err := s.forget(); err != nil {
			s.broken = err
			return record.OutcomeMessage{}, err
		}
	}
	msg := &s.msg
	*msg = record.OutcomeMessage{Offset: r.Offset, TableID: -1}
	t := max(h.TimeMs, r.TimeMs)
	s.effects, s.now, s.bodyRead, s.lostMaps = s.effects[:0], t, false, r.LostMaps
	out, err := s.decide(r, t, msg)
	if err != nil {
		var wait *NeedsMap
		if !errors.Is(err, ErrIdentity) && !errors.Is(err, ErrUnknownVersion) && !errors.Is(err, errNoBody) && !errors.As(err, &wait) {
			s.broken = err // anything may have changed by half
		}
		return record.OutcomeMessage{}, err
	}
	if r.Offset == 0 && out.Code != record.Accepted {
		return record.OutcomeMessage{}, fmt.Errorf("%w: offset 0 of the transactions topic is no genesis (%s): another program wrote to the topic first; use a topic of its own", ErrIdentity, out.Reason)
	}
	h.TimeMs = t
	if len(s.effects) > 0 {
		sum := sha256.Sum256(s.effects)
		out.Digest = [16]byte(sum[:])
	}
	h.Offset, h.LeaderEpoch = r.Offset, r.LeaderEpoch
	s.sample()
	msg.Outcome, msg.TimeMs = out, t
	s.scratch = record.EncodeOutcome(s.scratch[:0], &msg.Outcome)
	h.Checksum, s.unsummed = 0, len(r.Key)+len(r.Header)+len(r.Value)
	if s.late != nil {
		s.late.buf = chained(s.late.buf, &h.Chain, r, s.bodyRead, s.scratch)
		if s.late.added() {
			s.sumLast()
			s.late.start(h.Chain)
		}
	} else {
		s.hashed = chained(s.hashed[:0], &h.Chain, r, s.bodyRead, s.scratch)
		h.Chain = sha256.Sum256(s.hashed)
		msg.Chain = h.Chain
	}
	s.applied, s.ahead = true, true
	s.maps.drop()
	s.logSize += int64(len(r.Key) + len(r.Value) + recordBytes)
	if err := s.emit(msg); err != nil {
		s.broken = err
		return record.OutcomeMessage{}, err
	}
	return *msg, nil
}

// recordBytes is about what a record takes in the log beside key and value.
const recordBytes = 64

// chainedHead is how many bytes of chained precede the record's own.
const chainedHead = len(record.Hash{}) + 6*8

// chained is what the next chain hash is taken of (L6). Lengths part the pieces.
func chained(b []byte, prev *record.Hash, r *Record, body bool, outcome []byte) []byte {
	be := binary.BigEndian
	b = append(b, prev[:]...)
	b = be.AppendUint64(b, uint64(r.Offset))
	b = be.AppendUint64(b, uint64(r.TimeMs))
	b = be.AppendUint64(b, uint64(len(r.Key)))
	b = be.AppendUint64(b, uint64(len(r.Header)))
	b = be.AppendUint64(b, uint64(len(r.Value)))
	b = be.AppendUint64(b, uint64(len(outcome)))
	b = append(b, r.Key...)
	b = append(b, r.Header...)
	b = append(b, r.Value...)
	if body {
		// The value holds the body's hash already; the flag says that it was read.
		b = append(b, 1)
	}
	return append(b, outcome...)
}

// sample keeps offsets by table time, ten minutes apart, and moves the dedupe
// horizon: the newest sample that is a day old.
func (s *Store) sample() {
	h := &s.head
	if n := len(h.samples); n == 0 || h.TimeMs >= h.samples[n-1].ms+sampleMs {
		h.samples = append(h.samples, timeSample{h.Offset, h.TimeMs})
	}
	for len(h.samples) > 1 && h.samples[1].ms <= h.TimeMs-DedupeMs {
		h.samples = h.samples[1:]
	}
	if len(h.samples) > 0 && h.samples[0].ms <= h.TimeMs-DedupeMs {
		h.Horizon = h.samples[0].offset
	}
}

// decide runs the rules that every record meets, then the type's own.
func (s *Store) decide(r *Record, t int64, msg *record.OutcomeMessage) (outcomeOf, error) {
	h := &s.head
	if r.Control {
		return reject(record.Undecodable), nil
	}
	form, typ, typeVersion, _, ok := record.PeekHeader(r.Header)
	if !ok {
		return reject(record.Undecodable), nil
	}
	msg.Type = typ
	version := h.ApplyVersion
	if h.Offset < 0 {
		version = ApplyVersion // the genesis comes before any version
	}
	if form > record.Form || typeVersion == 0 || typeVersion > active[version][typ] {
		return reject(record.NotActive), nil
	}
	env := &s.env
	tab := s.tables[s.names[string(r.Key)]]
	if tab != nil {
		env.Table = tab.name // most likely the same string
	}
	if r.Prepared != nil {
		env = &r.Prepared.env
	} else if err := record.DecodeEnvelope(r.Key, r.Header, r.Value, env); err != nil {
		if errors.Is(err, record.ErrNewerForm) {
			return reject(record.NotActive), nil
		}
		return reject(record.Undecodable), nil
	}
	if h.Offset >= 0 && env.ApplyVersion != version && typ != record.TypeSetApplyVersion {
		// A sender writes the version in force; an older or newer one would be
		// read by other rules than its own.
		return reject(record.NotActive), nil
	}
	if h.Offset < 0 && typ != record.TypeSetApplyVersion {
		return reject(record.NotActive), nil
	}
	msg.Table, msg.TableID = env.Table, env.TableID
	body := env.Body
	if env.BodyRef != nil {
		if r.BodyLost || !refInLimits(r, env.BodyRef) {
			return reject(record.Undecodable), nil
		}
		if r.Body == nil {
			return outcomeOf{}, fmt.Errorf("record %d: %w", r.Offset, errNoBody)
		}
		body, s.bodyRead = r.Body, true
	}

	needsID := typ != record.TypeAppendRows && typ != record.TypeCompleteJob && typ != record.TypeRowsFound
	var digest [16]byte
	if needsID {
		if env.Request.IsZero() || env.OffsetSeen < -1 || env.OffsetSeen >= r.Offset {
			// Nobody can have read an offset that was not there: such a request
			// would never become too old.
			return reject(record.Undecodable), nil
		}
		if env.OffsetSeen < h.Horizon && h.Horizon > 0 {
			return reject(record.TooOld), nil
		}
		d := sha256.New()
		d.Write(r.Key)
		d.Write(r.Header)
		d.Write(r.Value)
		var sum [32]byte
		copy(digest[:], d.Sum(sum[:0]))
		first, err := s.request(env.Request)
		if err != nil {
			return outcomeOf{}, err
		}
		if first != nil {
			if first.bytes != digest {
				return reject(record.IDReused, first.offset), nil
			}
			var out outcomeOf
			if err := record.DecodeOutcome(first.outcome, &out); err != nil {
				return outcomeOf{}, fmt.Errorf("%w: first outcome of a request", ErrCorrupt)
			}
			out.Code, out.Changed, out.Digest = record.Already, false, [16]byte{}
			out.Numbers = append([]int64{first.offset}, out.Numbers...)
			out.Numbers = out.Numbers[:min(len(out.Numbers), record.MaxNumbers)]
			return out, nil
		}
	}
	out, err := s.rules(r, t, env, tab, body, msg)
	if err != nil {
		return outcomeOf{}, err
	}
	if needsID {
		if err := s.remember(env.Request, r.Offset, digest, &out); err != nil {
			return outcomeOf{}, err
		}
	}
	return out, nil
}

// request is what is remembered of an id, nil when there is nothing.
func (s *Store) request(id record.RequestID) (*requestEntry, error) {
	b, err := s.get(append([]byte{keyRequest}, id[:]...))
	if err != nil || b == nil {
		return nil, err
	}
	d := dec{b: b}
	e := &requestEntry{offset: d.i()}
	copy(e.bytes[:], d.raw(16))
	e.outcome = d.byts()
	return e, d.done("request id")
}

func (s *Store) remember(id record.RequestID, offset int64, digest [16]byte, out *outcomeOf) error {
	var v enc
	v.i(offset)
	v.raw(digest[:])
	v.byts(record.EncodeOutcome(nil, out))
	if err := s.set(append([]byte{keyRequest}, id[:]...), v.b); err != nil {
		return err
	}
	return s.set(append(key8(keyRequestAt, uint64(offset)), id[:]...), nil)
}

// forget drops the request ids below the horizon: their senders' retries are
// too old by what they saw. It happens at the record after the horizon moved,
// so that equal logs make equal states.
func (s *Store) forget() error {
	below := key8(keyRequestAt, uint64(s.head.Horizon))
	it, err := s.iterRange([]byte{keyRequestAt}, below)
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if err := s.del(append([]byte{keyRequest}, it.Key()[9:]...)); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return readError(err)
	}
	s.head.forgotten = s.head.Horizon
	return s.batch().DeleteRange([]byte{keyRequestAt}, below, nil)
}

// rules dispatches to a type's rules. What they decide beyond the record's
// own bytes they write to s.effects. tab is the table of that name where it is at
// hand, or nil.
func (s *Store) rules(r *Record, t int64, env *record.Envelope, tab *table, body []byte, msg *record.OutcomeMessage) (outcomeOf, error) {
	rec := &s.rec
	if r.Prepared != nil {
		rec = &r.Prepared.rec
	} else if env.Type == record.TypeAppendRows {
		if err := s.rec.Decode(body); err != nil {
			return reject(record.Undecodable), nil
		}
	}
	var v any
	if env.Type != record.TypeAppendRows {
		var err error
		if v, err = record.DecodeBody(env.Type, env.TypeVersion, body); err != nil {
			return reject(record.Undecodable), nil
		}
	}
	if env.Type == record.TypeSetApplyVersion {
		return s.applyVersion(r, v.(*record.SetApplyVersion))
	}
	if tab == nil {
		// A table that is there had its name checked when it was made.
		if s.names[env.Table] <= 0 {
			if schemas.CheckTableName(env.Table) != nil {
				return reject(record.Undecodable), nil
			}
			if schemas.PartitionOf(env.Table, s.head.Partitions) != s.head.Partition {
				return reject(record.WrongPartition), nil
			}
		}
		var err error
		if tab, err = s.lookup(env.Table); err != nil {
			return outcomeOf{}, err
		}
	}
	if env.Type == record.TypeCreateTable {
		return s.createTable(r, t, env, v.(*record.CreateTable), tab, msg)
	}
	if tab == nil || tab.id != env.TableID {
		return reject(record.NoTable), nil
	}
	switch env.Type {
	case record.TypeAlterTable:
		return s.alterTable(r, tab, v.(*record.AlterTable), msg)
	case record.TypeAlterSpec:
		return s.alterSpec(r, tab, v.(*record.AlterSpec), msg)
	case record.TypeDropTable:
		return s.dropTable(r, tab)
	case record.TypeClaimShard:
		return s.claimShard(r, tab, v.(*record.ClaimShard), msg)
	case record.TypeAppendRows:
		return s.appendRows(r, tab, rec)
	case record.TypeShardIndex:
		return s.shardIndex(tab, v.(*record.ShardIndex))
	case record.TypeSkipSource:
		return s.skipSource(r, tab, v.(*record.SkipSource))
	case record.TypeRetireShard:
		return s.retireShard(r, tab, v.(*record.RetireShard))
	case record.TypeReshard:
		return s.reshard(r, tab, v.(*record.Reshard))
	case record.TypeAlterRefs:
		return s.alterRefs(r, tab, v.(*record.AlterRefs))
	case record.TypeExpireSnapshots:
		return s.expireSnapshots(r, tab, v.(*record.ExpireSnapshots))
	case record.TypeRollback:
		return s.rollback(r, t, tab, v.(*record.Rollback))
	case record.TypeDeleteKeys:
		return s.deleteKeys(r, tab, v.(*record.DeleteKeys))
	case record.TypeCut:
		return s.cut(r, t, tab)
	case record.TypeSnapshotCommitted:
		return s.snapshotCommitted(r, tab, v.(*record.SnapshotCommitted))
	case record.TypeSnapshotFailed:
		return s.snapshotFailed(tab, v.(*record.SnapshotFailed))
	case record.TypeCatalogBase:
		return s.catalogBase(r, t, tab, v.(*record.CatalogBase), msg)
	case record.TypeCatalogSpecs:
		return s.catalogSpecs(r, tab, v.(*record.CatalogSpecs), msg)
	case record.TypeRenumberSpecs:
		return s.renumberSpecs(r, t, tab, v.(*record.RenumberSpecs), msg)
	case record.TypeCatalogSchemas:
		return s.catalogSchemas(r, tab, v.(*record.CatalogSchemas), msg)
	case record.TypeAddFiles:
		return s.addFiles(r, tab, env, v.(*record.AddFiles))
	case record.TypeAdoptFiles:
		return s.adoptFiles(r, tab, env, v.(*record.AdoptFiles))
	case record.TypeForeignSnapshot:
		return s.foreignSnapshot(r, tab, v.(*record.ForeignSnapshot))
	case record.TypeDeletePositions:
		return s.deletePositions(r, tab, v.(*record.DeletePositions))
	case record.TypeDeleteWhere:
		return s.deleteWhere(r, tab, v.(*record.DeleteWhere))
	case record.TypeRowsFound:
		return s.rowsFound(r, tab, v.(*record.RowsFound))
	case record.TypeSplitPartition:
		return s.splitPartition(r, tab, v.(*record.SplitPartition))
	case record.TypeExtendTree:
		return s.extendTree(r, tab, v.(*record.ExtendTree))
	case record.TypePlanJobs:
		return s.planJobs(r, tab, v.(*record.PlanJobs))
	case record.TypeCompleteJob:
		return s.completeJob(r, tab, v.(*record.CompleteJob))
	case record.TypeReleaseJob:
		return s.releaseJob(r, tab, v.(*record.ReleaseJob))
	case record.TypeCollectFiles:
		return s.collectFiles(r, t, tab, v.(*record.CollectFiles))
	case record.TypeFilesCollected:
		return s.filesCollected(tab, v.(*record.FilesCollected))
	}
	return reject(record.NotActive), nil
}

// effect appends numbers to the digest's input, in the order that
// schemas/README.md documents.
func (s *Store) effect(tag byte, numbers ...int64) {
	s.effects = append(s.effects, tag)
	for _, n := range numbers {
		s.effects = binary.BigEndian.AppendUint64(s.effects, uint64(n))
	}
}

func (s *Store) effectBytes(b []byte) {
	s.effects = binary.BigEndian.AppendUint64(s.effects, uint64(len(b)))
	s.effects = append(s.effects, b...)
}

func accepted(changed bool, numbers ...int64) outcomeOf {
	return outcomeOf{Code: record.Accepted, Changed: changed, Numbers: numbers}
}

// applyVersion: L8. The genesis is offset 0; later ones raise the version.
func (s *Store) applyVersion(r *Record, v *record.SetApplyVersion) (outcomeOf, error) {
	h := &s.head
	if len(r.Key) != 0 {
		return reject(record.Undecodable), nil
	}
	if r.Offset == 0 {
		if v.Partitions < 1 || v.Partition < 0 || v.Partition >= v.Partitions {
			return outcomeOf{}, fmt.Errorf("%w: the genesis at offset 0 names partition %d of %d", ErrIdentity, v.Partition, v.Partitions)
		}
		if v.Version == 0 || active[v.Version] == nil {
			return outcomeOf{}, fmt.Errorf("%w: version %d; this binary knows up to %d: upgrade it", ErrUnknownVersion, v.Version, ApplyVersion)
		}
		h.Deployment, h.Partitions, h.Partition, h.ApplyVersion = v.Deployment, v.Partitions, v.Partition, v.Version
		s.effect('g', int64(v.Partitions), int64(v.Partition), int64(v.Version))
		return accepted(false), nil
	}
	if v.Deployment != h.Deployment || v.Partitions != h.Partitions || v.Partition != h.Partition || v.Version <= h.ApplyVersion {
		return reject(record.VersionOutOfOrder, int64(h.ApplyVersion)), nil
	}
	if active[v.Version] == nil {
		return outcomeOf{}, fmt.Errorf("%w: version %d at offset %d; this binary knows up to %d: upgrade it", ErrUnknownVersion, v.Version, r.Offset, ApplyVersion)
	}
	h.ApplyVersion = v.Version
	s.effect('g', int64(v.Version))
	return accepted(false), nil
}

func (t *table) sortShards() {
	slices.SortFunc(t.shardOrder, func(a, b shardID) int {
		if a == b {
			return 0
		}
		if a.less(b) {
			return -1
		}
		return 1
	})
}
