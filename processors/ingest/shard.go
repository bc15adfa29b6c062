package ingest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/processors"
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore/keyindex"
	"github.com/varve-io/varve/statestore/objstore"
)

// Limits of a shard's memory, with their defaults (foundations.md, Clockwork).
const (
	DefaultFlushEvents = 256 << 10
	DefaultFlushBytes  = 64 << 20
	DefaultInFlight    = 4
	DefaultFileRows    = 8 << 20
	// DefaultSideAppends is how many decided appends may pass before the side
	// file is written again: what lies behind it is read again after a crash.
	DefaultSideAppends = 512
)

// Config of a shard.
type Config struct {
	Table      string
	TableID    int64
	Shard      record.ShardKey
	LogStart   int64 // first offset of the source partition now
	LogSeen    int64 // a recent offset of the transactions log: what a claim says that its sender has read (L9)
	Partitions int32 // of the source topic (K5)
	// Rekeyed says that the source is the table's internal topic: its partitions
	// follow from the typed key, and a shard takes its own keys only (K5).
	Rekeyed    bool
	Deployment [16]byte
	Member     string
	Dir        string // index folder of this shard
	FS         vfs.FS // where Dir lies; default the local disk
	Store      objstore.Store
	Bodies     *processors.Bodies
	Log        processors.Appender
	Letters    processors.DeadLetters
	// StopOnError stops the shard at the first refused event instead of
	// sending it to the dead letters.
	StopOnError bool
	// ApplyVersion is the version in force (L8).
	ApplyVersion uint32
	// SyncIndex merges the key index in the caller's goroutine, for the simulation.
	SyncIndex bool
	// Checkpoint, if any, is the shard's newest index checkpoint: an owner
	// without a local index starts from it.
	Checkpoint *record.Ref
	// Base is the log offset at which the source topic was divided anew, 0: it
	// never was (A6). The shard's folder, or its checkpoint, then holds an index
	// that Inherit made there, and what came since.
	Base int64
	// Drain says that the topic is about to be divided anew: the shard reads up
	// to DrainTo.
	Drain   bool
	DrainTo int64
	// CheckpointAppends is how many accepted appends lie between two index
	// checkpoints. Default: DefaultCheckpointAppends.
	CheckpointAppends int
	// CheckpointEveryMs is after how many ms one is made though fewer appends were
	// accepted, if the table changed. Default: DefaultCheckpointEveryMs; below zero:
	// for ever.
	CheckpointEveryMs int64
	// SideAppends defaults to DefaultSideAppends. IndexDelta is how many changed
	// entries the key index keeps in memory between merges; default
	// keyindex.DefaultDeltaLimit.
	SideAppends, IndexDelta int
	// FlushEvents, FlushBytes and InFlight default to the constants above.
	FlushEvents, FlushBytes, InFlight int
	Logger                            *slog.Logger
	// Tallied, if any, hears of each accepted append what became of its records.
	Tallied func(*Tally)
	// Room, if any, is shared with the other shards of the process.
	Room *Room
	// LogEnd, if any, finds where the log ends now, and tells done on the shard's
	// goroutine. A record that is refused by how the table's source is read is
	// given up only once all is decided that was in the log when it came: its
	// reader may have been told of another format there (settle.go).
	LogEnd func(done func(end int64, err error))
	// Registry has the writers' schemas of formats that need one.
	Registry source.SchemaSource
}

// Stage is where a shard stands in its life.
type Stage uint8

const (
	Idle     Stage = iota // nothing appended yet
	Claiming              // ClaimShard is in the log or on its way
	Running
	// Fenced: another claim closed the epoch. The owner claims again only
	// after it was given the shard anew (A3).
	Fenced
	Stopped // Err says why
)

// Sentinel reasons of a stopped shard.
var (
	// ErrRefused: an event was refused and the table is set to stop on one.
	ErrRefused = errors.New("an event was refused")
	// ErrFraming: one key may live in two partitions (K5).
	ErrFraming = errors.New("the framing of the record keys changed in a topic of several partitions")
	// ErrUnusable: no shard can work by the table's definition. It says nothing
	// of other tables.
	ErrUnusable = errors.New("the table cannot be ingested")
	// ErrRetired: a user retired the shard.
	ErrRetired = errors.New("the shard was retired; claim it again by starting the node anew")
	// ErrDivided: the source topic was divided anew: whoever owns the shard next
	// begins with another index (A6).
	ErrDivided = errors.New("the source topic was divided anew; the shard begins again")
	// ErrOvertaken: the index began below what its shard's checkpoints are complete to,
	// and met the lack of what was collected since (G7). A new owner begins with the
	// newest checkpoint.
	ErrOvertaken = errors.New("the shard's index began below its horizon; it begins again from the newest checkpoint")
	// ErrNoBase: the shard's folder has not the index that Inherit makes, or lost it.
	ErrNoBase = errors.New("the shard has no index of what the topic's shards knew when it was divided anew")
	// ErrDropped: the table is gone.
	ErrDropped = errors.New("the table was dropped")
)

// Shard is one owner's view of a table shard. One goroutine drives it.
type Shard struct {
	cfg   Config
	log   *slog.Logger
	stage Stage
	err   error

	def     *schemas.Definition
	decoder source.Decoder
	keys    *rows.KeyEncoder // nil: no key
	narrow  bool
	tuples  *rows.TupleEncoder
	index   *keyindex.Index // nil: no key
	side    *side
	sideAge int
	before  int64  // of Inherit: an earlier division of the topic, 0 none
	marks   []mark // accepted appends that a crash would take from the index, oldest first
	// answered: the requests below are answered by appends that the index has durably.
	answered int64

	foreign    []int  // rows of other partitions' keys (Config.Rekeyed)
	keyScratch []byte // one key

	nowMs      int64   // of the newest Tick or OnSource
	appendWait backoff // of flushes, appends and claims
	decideWait backoff // of taking decided entries
	sourceWait backoff // of decoding the first parked record

	undecided   []processors.Decided // read, and waiting for what is away
	tableDone   bool                 // of the first of them all was done but the index's offset
	decided     int64                // newest decided offset taken
	decidedTime int64
	claimID     record.RequestID   // of the claim under way
	claimIDs    []record.RequestID // of this owner's newest claims
	claims      int64              // claims made, to tell an old callback from a new one

	epoch      int64
	writer     uint32
	counter    int64  // appends of this epoch
	fileCount  uint64 // files of this writer
	sourceEnd  int64  // end of the last append made (in flight included)
	requestEnd int64
	framing    uint64
	// blind is the log offset of the first take that was folded without a file that
	// is not there and has no live row, 0: there was none.
	blind      int64
	position   int64 // next source offset to read
	generation int64 // rises whenever the source must be read from SourceFrom again

	buf          buffer
	parked       []source.Record // records that wait behind a schema change, or for a registry
	parkedTo     int64
	altering     bool             // an AlterTable is in flight
	alterID      record.RequestID // that one
	refuse       bool             // the first parked record needs what the table refused
	switchTo     *schemas.Definition
	settle       settle
	room         roomOf
	left         bool // the Room
	flushNow     bool
	openedMs     int64 // when the oldest thing in the buffer came
	sinceIndex   int   // accepted appends since the last index checkpoint
	indexMs      int64 // when the last one was made
	taken        int   // records that may let files leave the table, since then
	firstIndexMs int64 // not before this a first checkpoint is tried (again)
	indexing     bool  // a ShardIndex has no outcome yet
	uploaded     string
	standing     string // the checkpoint that the log names, as far as this owner knows
	letters      int    // dead letters that the broker has not acknowledged
	flight       []flight
	tally        Tally     // of accepted appends
	carries      int       // how many events of a buffer may have values to look up
	gone         []goneRow // that the last flush deleted near its end
}

// flight is an append whose outcome is not known.
type flight struct {
	counter int64
	offset  int64 // in the log, -1 until the broker says
	files   []record.DataFile
	events  int64
	tally   Tally
	pays    bool // it kills the side file's Debts
	// confirmed says that the index has its entries.
	confirmed bool
	// kept are entries of rows that stay where they are: until it is confirmed as its
	// maker had them, then as they came to be since.
	kept []keyindex.Entry
	// sourceFrom and sourceTo are the source range.
	sourceFrom, sourceTo int64
}

// New opens the shard's index and side file. The shard does nothing until Claim.
func New(ctx context.Context, cfg Config, def *schemas.Definition) (*Shard, error) {
	if cfg.FlushEvents == 0 {
		cfg.FlushEvents = DefaultFlushEvents
	}
	if cfg.FlushBytes == 0 {
		cfg.FlushBytes = DefaultFlushBytes
	}
	if cfg.InFlight == 0 {
		cfg.InFlight = DefaultInFlight
	}
	if cfg.CheckpointEveryMs == 0 {
		cfg.CheckpointEveryMs = DefaultCheckpointEveryMs
	}
	if cfg.CheckpointAppends == 0 {
		cfg.CheckpointAppends = DefaultCheckpointAppends
	}
	if cfg.SideAppends == 0 {
		cfg.SideAppends = DefaultSideAppends
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Shard{cfg: cfg, decided: -1, carries: firstCarries}
	if cfg.Checkpoint != nil {
		s.standing = cfg.Checkpoint.Path
	}
	s.log = cfg.Logger.With("table", cfg.Table, "topic", cfg.Shard.Topic, "partition", cfg.Shard.Partition)
	if _, err := s.fileKeyIn(def.Location, fileInfo{}, 0); err != nil {
		return nil, fmt.Errorf("%w: table %s: %w", ErrUnusable, def.Name, err)
	}
	if cfg.FS == nil {
		s.cfg.FS = vfs.Default
	}
	if err := s.cfg.FS.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the index folder: %w", err)
	}
	if err := s.define(def); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	if err := s.openIndex(ctx); err != nil {
		return nil, err
	}
	if cfg.Room != nil {
		cfg.Room.open.Add(1)
	}
	return s, nil
}

// define takes a definition into use. The buffer is empty.
func (s *Shard) define(def *schemas.Definition) error {
	dec, err := source.Open(def, def.Schema(), s.cfg.Registry)
	if err != nil {
		return fmt.Errorf("table %s: %w", def.Name, err)
	}
	s.def, s.decoder = def, dec
	s.keys = nil
	if def.Keyed() {
		if s.keys, err = rows.NewKeyEncoder(def.Schema(), def.Key); err != nil {
			return fmt.Errorf("table %s: %w", def.Name, err)
		}
		s.narrow = s.keys.Narrow()
	}
	s.tuples = nil
	if spec := def.Spec(def.DefaultSpec); len(spec.Fields) > 0 {
		if s.tuples, err = rows.NewTupleEncoder(def.Schema(), spec); err != nil {
			return fmt.Errorf("table %s: %w", def.Name, err)
		}
	}
	s.buf.reset(def.Schema())
	return nil
}

func (s *Shard) openIndex(ctx context.Context) error {
	sd, err := loadSide(s.cfg.FS, s.cfg.Dir)
	damaged := errors.Is(err, errSide)
	if damaged {
		s.log.Warn("the shard's side file is damaged; it is made again from the log, and the key index with it")
		sd, err = newSide(), nil
	}
	if err != nil {
		return err
	}
	s.side = sd
	if s.keys == nil {
		return nil
	}
	if damaged {
		// The index of a later time does not tell again what was owed.
		if err := keyindex.Destroy(s.cfg.Dir, s.cfg.FS); err != nil {
			return err
		}
	}
	opt := keyindex.Options{Wide: !s.narrow, Identity: s.identity(), Sync: s.cfg.SyncIndex, DeltaLimit: s.cfg.IndexDelta, FS: s.cfg.FS}
	if ref := s.cfg.Checkpoint; ref != nil && ref.Path != "" {
		local, err := hasIndex(s.cfg.FS, s.cfg.Dir)
		if err != nil {
			return err
		}
		if !local {
			s.bring(ctx, opt)
		}
	}
	s.index, err = keyindex.Open(s.cfg.Dir, opt)
	if errors.Is(err, keyindex.ErrCorrupt) || errors.Is(err, keyindex.ErrVersion) {
		s.log.Warn("the key index is damaged; it is made again from its checkpoint and the log", "error", err)
		if err := keyindex.Destroy(s.cfg.Dir, s.cfg.FS); err != nil {
			return err
		}
		s.bring(ctx, opt)
		s.index, err = keyindex.Open(s.cfg.Dir, opt)
	}
	if err == nil && s.index.Offset() < checkpointOffset(s.cfg.Checkpoint) {
		// Files that left the table before that checkpoint may be gone (F9, G7).
		s.log.Info("the key index here is older than its checkpoint, which takes its place", "index", s.index.Offset())
		if err := errors.Join(s.index.Close(), keyindex.Destroy(s.cfg.Dir, s.cfg.FS)); err != nil {
			return err
		}
		s.bring(ctx, opt)
		s.index, err = keyindex.Open(s.cfg.Dir, opt)
	}
	if err != nil {
		return fmt.Errorf("key index of table %s: %w", s.cfg.Table, err)
	}
	if s.index.Offset() < s.side.IndexAt {
		// The index lost what it had durably; the side file has dropped what an
		// index from before that needs. The log has both.
		s.log.Warn("the key index is older than its side file; both are made again from the log", "index", s.index.Offset(), "side", s.side.IndexAt)
		if err := errors.Join(s.index.Close(), keyindex.Destroy(s.cfg.Dir, s.cfg.FS)); err != nil {
			return err
		}
		s.side = newSide()
		s.bring(ctx, opt)
		if s.index, err = keyindex.Open(s.cfg.Dir, opt); err != nil {
			return fmt.Errorf("key index of table %s: %w", s.cfg.Table, err)
		}
	}
	if base := s.cfg.Base; base > 0 && (s.index.Offset() < base || s.side.Offset < base) {
		return errors.Join(fmt.Errorf("table %s, %s/%d: %w", s.cfg.Table, s.cfg.Shard.Topic, s.cfg.Shard.Partition, ErrNoBase), s.index.Close())
	}
	return nil
}

// bring restores the shard's checkpoint, if it has one, into a folder without an
// index.
func (s *Shard) bring(ctx context.Context, opt keyindex.Options) {
	ref := s.cfg.Checkpoint
	if ref == nil || ref.Path == "" {
		return
	}
	if err := s.restore(ctx, ref, opt); err != nil {
		s.log.Warn("the index checkpoint is of no use; the index is built again from the log", "error", err)
		s.side = newSide()
	}
}

// identity is what a base file of this shard's index says of its owner.
func (s *Shard) identity() []byte {
	b := append([]byte(nil), s.cfg.Deployment[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(s.cfg.TableID))
	b = append(b, s.cfg.Shard.TopicID[:]...)
	return binary.BigEndian.AppendUint32(b, uint32(s.cfg.Shard.Partition))
}

// Close keeps what the index and the side file know, and closes them.
func (s *Shard) Close() error {
	s.leaveRoom()
	var err error
	if s.index != nil {
		if err = s.index.Flush(); err == nil {
			s.forgetFiles()
		}
		err = errors.Join(err, s.index.Close())
	}
	if s.side.Offset >= 0 {
		err = errors.Join(err, s.side.save(s.cfg.FS, s.cfg.Dir))
	}
	return err
}

// Abandon closes the index without keeping what it holds in memory, as a crash would.
func (s *Shard) Abandon() error {
	s.leaveRoom()
	if s.index == nil {
		return nil
	}
	return s.index.Close()
}

// LogFrom is the first log offset whose decided entry the shard needs.
func (s *Shard) LogFrom() int64 {
	from := s.side.Offset
	if s.index != nil {
		from = min(from, s.index.Offset())
	}
	return max(from+1, 0)
}

// Stage, Err, Generation and SourceFrom are what a node acts on: while Running
// it reads the source from SourceFrom, again whenever Generation rises.
func (s *Shard) Stage() Stage { return s.stage }

// Err is why the shard stopped, nil otherwise.
func (s *Shard) Err() error { return s.err }

// Generation rises whenever the source must be read from SourceFrom again.
func (s *Shard) Generation() int64 { return s.generation }

// SourceFrom is the next source offset that the shard wants.
func (s *Shard) SourceFrom() int64 { return s.position }

// Decided is the newest log offset whose outcome the shard has read.
func (s *Shard) Decided() int64 { return s.decided }

// SourceEnd is the source end of the last append that was accepted.
func (s *Shard) SourceEnd() int64 {
	if len(s.flight) > 0 {
		return -1
	}
	return s.sourceEnd
}

// AcceptedEnd is the source end of what was accepted, whatever is in flight
// behind it; -1 while no epoch is open.
func (s *Shard) AcceptedEnd() int64 {
	switch {
	case s.stage != Running:
		return -1
	case len(s.flight) > 0:
		return s.flight[0].sourceFrom
	}
	return s.sourceEnd
}

// WantsSource says whether OnSource may be called: the backlog is bounded.
func (s *Shard) WantsSource() bool {
	return s.stage == Running && len(s.parked) == 0 && !s.altering && s.switchTo == nil && !s.full() && !s.drained()
}

// drained says that the shard has read what is to be read before the topic is
// divided anew.
func (s *Shard) drained() bool { return s.cfg.Drain && s.position >= s.cfg.DrainTo }

func (s *Shard) full() bool {
	return s.buf.len() >= s.cfg.FlushEvents || s.buf.size() >= s.flushBytes() || len(s.buf.held) >= max(s.carries, 1)
}

// Idle says that nothing waits: no event, no append in flight.
func (s *Shard) Idle() bool {
	return s.stage == Running && s.buf.len() == 0 && len(s.flight) == 0 && len(s.parked) == 0 && !s.altering &&
		s.letters == 0 && s.position == s.sourceEnd && s.side.nextHeld(s.requestEnd) == nil
}

// FlushSoon asks for a flush of what the buffer holds, at once.
func (s *Shard) FlushSoon() { s.flushNow = true }

func (s *Shard) fail(err error) {
	if s.stage != Stopped {
		s.stage, s.err = Stopped, fmt.Errorf("table %s, %s/%d: %w", s.cfg.Table, s.cfg.Shard.Topic, s.cfg.Shard.Partition, err)
		switch {
		case errors.Is(err, ErrDropped):
			s.log.Info("shard given up: the table was dropped")
			return
		case errors.Is(err, ErrRolledBack):
			s.log.Info("shard given up: the table was rolled back")
			return
		case errors.Is(err, ErrDivided):
			s.log.Info("shard given up: the source topic was divided anew")
			return
		}
		s.log.Error("shard stopped", "error", err)
	}
}

// Claim appends a ClaimShard (A2). What the shard held of an older epoch is gone.
func (s *Shard) Claim(ctx context.Context) {
	if s.stage == Stopped || !s.appendWait.mayTry(s.nowMs) {
		return
	}
	s.dropEpoch()
	s.stage = Claiming
	s.claims++
	n := s.claims
	env := s.envelope()
	s.claimID = env.Request
	s.claimIDs = append(s.claimIDs[max(0, len(s.claimIDs)-15):], env.Request)
	m, err := s.cfg.Bodies.Message(ctx, env, &record.ClaimShard{Shard: s.cfg.Shard, LogStart: s.cfg.LogStart, Member: s.cfg.Member})
	if err != nil {
		s.fail(err)
		return
	}
	s.cfg.Log.Append(m, func(_ int64, err error) {
		if err != nil && n == s.claims && s.stage == Claiming {
			s.unsent("append a claim", err)
		}
	})
}

func (s *Shard) envelope() record.Envelope {
	return record.Envelope{
		ApplyVersion: s.cfg.ApplyVersion, Request: record.NewRequestID(), OffsetSeen: max(s.decided, s.cfg.LogSeen),
		Table: s.cfg.Table, TableID: s.cfg.TableID,
	}
}

func (s *Shard) dropEpoch() {
	if s.index != nil {
		s.index.DropOverlays()
	}
	s.flight = s.flight[:0]
	s.gone = nil
	s.buf.reset(s.def.Schema())
	s.parked, s.altering, s.refuse, s.flushNow = nil, false, false, false
	s.settle = settle{asks: s.settle.asks + 1}
	s.sourceWait = backoff{}
	s.indexing = false
	s.letters = 0 // those under way answer to an epoch that is gone
}

// isRequest says whether a decided record is this shard's own request. Its
// offset does not tell: the outcome may be read before the append's answer.
func isRequest(d *processors.Decided, id record.RequestID) bool {
	var env record.Envelope
	return record.DecodeEnvelope(d.Record.Key, d.Record.Header, d.Record.Value, &env) == nil && env.Request == id
}

// OnDecided takes decided entries, in order, from LogFrom on. It may be called
// at any time, but should not be unless WantsDecided.
func (s *Shard) OnDecided(ctx context.Context, entries []processors.Decided) {
	s.undecided = append(s.undecided, entries...)
	s.takeDecided(ctx)
}

// WantsDecided says whether OnDecided has taken all that it was given.
func (s *Shard) WantsDecided() bool { return len(s.undecided) == 0 }

func (s *Shard) takeDecided(ctx context.Context) {
	for len(s.undecided) > 0 && s.stage != Stopped && s.decideWait.mayTry(s.nowMs) {
		err := s.decide(ctx, &s.undecided[0])
		if isAway(err) {
			s.wait(&s.decideWait, err)
			return
		}
		if err != nil {
			s.fail(err)
			return
		}
		s.undecided = s.undecided[1:]
		s.there(&s.decideWait)
	}
	if len(s.undecided) == 0 {
		s.undecided = nil
	}
}

func (s *Shard) decide(ctx context.Context, d *processors.Decided) error {
	m := &d.Outcome
	if m.Derived {
		if m.Type == record.TypeReshard && m.TableID == s.cfg.TableID && s.stage == Running && m.Offset > s.epoch {
			return ErrDivided
		}
		return nil
	}
	if m.TableID == s.cfg.TableID && m.Table == s.cfg.Table && !s.tableDone {
		if err := s.decideTable(ctx, d); err != nil {
			return fmt.Errorf("log offset %d: %w", m.Offset, err)
		}
	}
	s.tableDone = true
	s.decided, s.decidedTime = m.Offset, m.TimeMs
	if m.Offset > s.side.Offset {
		s.side.Offset = m.Offset
	}
	if s.index != nil && m.Offset > s.index.Offset() {
		if err := s.index.SetOffset(m.Offset); err != nil {
			return awayDisk(err)
		}
	}
	s.tableDone = false
	return nil
}

func (s *Shard) decideTable(ctx context.Context, d *processors.Decided) error {
	m := &d.Outcome
	ok := m.Outcome.Code == record.Accepted
	switch m.Type {
	case record.TypeCut:
		if ok {
			s.taken++
		}
	case record.TypeDropTable:
		if ok {
			return ErrDropped
		}
	case record.TypeAlterTable, record.TypeAlterSpec, record.TypeCatalogBase, record.TypeCatalogSpecs, record.TypeCatalogSchemas:
		s.altered(d)
	case record.TypeRenumberSpecs:
		s.respecced(d)
	case record.TypeClaimShard:
		if err := s.claimOf(ctx, d); err != nil {
			return err
		}
		if s.stage == Claiming && isRequest(d, s.claimID) {
			return s.claimed(d)
		}
		return s.closedBy(ctx, d)
	case record.TypeSkipSource:
		return s.closedBy(ctx, d)
	case record.TypeRetireShard:
		if err := s.retireOf(ctx, d); err != nil {
			return err
		}
		return s.closedBy(ctx, d)
	case record.TypeAddFiles, record.TypeAdoptFiles:
		if ok || m.Outcome.Code == record.Partly {
			return s.added(ctx, d)
		}
	case record.TypeForeignSnapshot:
		if ok {
			return s.foreignCommits(ctx, d)
		}
	case record.TypeReshard:
		if ok && m.Offset > s.cfg.Base {
			v, err := s.content(ctx, d)
			if err != nil {
				return err
			}
			s.drainFor(v.(*record.Reshard))
		}
	case record.TypeRollback:
		if ok {
			return s.rolledBack(m.Offset)
		}
	case record.TypeAppendRows:
		return s.appended(ctx, d)
	case record.TypeDeleteKeys:
		if ok && m.Offset > s.side.Offset {
			v, err := s.content(ctx, d)
			if err != nil {
				return err
			}
			k := v.(*record.DeleteKeys)
			s.side.Requests = append(s.side.Requests, request{Offset: m.Offset, Keys: k.Keys, HasOrder: k.HasOrder, Order: k.Order, TimeMs: m.TimeMs})
			s.flushNow = true
		}
	case record.TypeShardIndex:
		if m.Outcome.Reason == record.Undecodable || m.Outcome.Reason == record.NotActive {
			return nil
		}
		v, err := s.content(ctx, d)
		if err != nil {
			return err
		}
		return s.indexed(ctx, v.(*record.ShardIndex), ok)
	case record.TypeDeletePositions, record.TypeRowsFound:
		if ok || m.Outcome.Code == record.Partly {
			return s.positions(ctx, d)
		}
	case record.TypeCompleteJob:
		if ok || m.Outcome.Code == record.Partly {
			return s.completed(ctx, d)
		}
	case record.TypeSnapshotCommitted:
		if ok && m.Offset > s.side.Offset {
			return s.published(ctx, d)
		}
	}
	return nil
}

// altered: a new definition, asked for by this shard or by anyone. What the
// buffer holds is flushed under the old one first.
func (s *Shard) altered(d *processors.Decided) {
	m := &d.Outcome
	if m.Definition != nil && s.stage == Running {
		s.switchTo = m.Definition
	}
	if s.altering && isRequest(d, s.alterID) {
		s.altering = false
		// A change that the table refuses makes its event a dead letter.
		s.refuse = m.Outcome.Code == record.Rejected
	}
}

// respecced: specs of the table have other ids from here on, and the state closed
// the epoch (T8).
func (s *Shard) respecced(d *processors.Decided) {
	if m := &d.Outcome; m.Outcome.Code == record.Accepted && s.stage == Running && m.Offset > s.epoch {
		s.log.Info("another writer took ids of the table's partition specs; claiming the shard again", "offset", m.Offset)
		s.lose()
	}
}

// closedBy: an accepted record that closes the open epoch (A2, A5, A6). The
// overlay is gone from here on: what others append now is folded without it.
func (s *Shard) closedBy(ctx context.Context, d *processors.Decided) error {
	m := &d.Outcome
	if s.stage != Running || m.Offset <= s.epoch || m.Outcome.Code != record.Accepted {
		return nil
	}
	v, err := s.content(ctx, d)
	if err != nil {
		return err
	}
	var k *record.ShardKey
	switch r := v.(type) {
	case *record.ClaimShard:
		k = &r.Shard
	case *record.SkipSource:
		k = &r.Shard
	case *record.RetireShard:
		k = &r.Shard
	}
	if k.TopicID != s.cfg.Shard.TopicID || k.Partition != s.cfg.Shard.Partition {
		return nil
	}
	switch m.Type {
	case record.TypeClaimShard:
		if slices.ContainsFunc(s.claimIDs, func(id record.RequestID) bool { return isRequest(d, id) }) {
			s.lose() // a claim of this owner's own that was given up for lost
			return nil
		}
		s.fence(m.Offset)
	case record.TypeSkipSource:
		s.lose()
	default:
		return ErrRetired
	}
	return nil
}

// claimed: the outcome of this owner's claim.
func (s *Shard) claimed(d *processors.Decided) error {
	m := &d.Outcome
	o := &m.Outcome
	if o.Code == record.Rejected && o.Reason == record.TooOld {
		// An owner that starts has read nothing yet; now it has read up to here (L9).
		s.lose()
		return nil
	}
	if o.Code == record.Rejected && o.Reason == record.NoTable {
		return ErrDropped // before this owner began to read
	}
	if o.Code != record.Accepted {
		return fmt.Errorf("the claim was %s: %s", o.Code, o.Reason)
	}
	n := o.Numbers
	if s.blind > 0 && s.blind < n[record.ClaimIndexHorizon] {
		// Its keys are remembered by whoever took them: it was collected since (G7).
		return fmt.Errorf("%w: log offset %d was folded without a file that was collected since, the horizon is %d; %w", ErrOvertaken, s.blind, n[record.ClaimIndexHorizon], objstore.ErrNotFound)
	}
	base := int64(0)
	if len(n) > record.ClaimBase {
		base = n[record.ClaimBase]
	}
	if base != s.cfg.Base {
		return ErrDivided // while this owner began
	}
	s.epoch, s.writer = m.Offset, uint32(n[record.ClaimWriter])
	s.sourceEnd, s.requestEnd = n[record.ClaimSourceEnd], n[record.ClaimRequestEnd]
	s.framing = uint64(n[record.ClaimFraming])
	s.counter, s.fileCount = 0, 0
	s.position = s.sourceEnd
	s.generation++
	if m.Definition != nil {
		if err := s.define(m.Definition); err != nil {
			return err
		}
	}
	if err := s.claimedHeld(s.epoch); err != nil {
		return err
	}
	s.switchTo = nil
	s.indexMs = s.nowMs
	if n[record.ClaimIndexHorizon] < s.epoch {
		s.taken = 1
	}
	s.stage, s.appendWait.err = Running, nil
	s.log.Debug("shard claimed", "epoch", s.epoch, "source", s.sourceEnd, "requests", s.requestEnd)
	return nil
}

// content is what a decided record asks, its body fetched if need be. Only for
// records that apply has read: not for those rejected as undecodable or not active.
func (s *Shard) content(ctx context.Context, d *processors.Decided) (any, error) {
	env, body, err := s.cfg.Bodies.Open(ctx, d.Record.Key, d.Record.Header, d.Record.Value)
	if err != nil {
		return nil, away(err)
	}
	return record.DecodeBody(env.Type, env.TypeVersion, body)
}

// published: a snapshot gave files their first row ids (S9).
func (s *Shard) published(ctx context.Context, d *processors.Decided) error {
	v, err := s.content(ctx, d)
	if err != nil {
		return err
	}
	for _, f := range v.(*record.SnapshotCommitted).Files {
		if x, mine := s.side.Files[f.File]; mine {
			x.FirstRow = f.FirstRowID
			s.side.Files[f.File] = x
		}
	}
	return nil
}

// Entries calls fn with what the key index has confirmed, in key order: what a
// restarted owner must come to as well (K4).
func (s *Shard) Entries(fn func(*keyindex.Entry) error) error {
	if s.index == nil {
		return nil
	}
	return s.index.Iterate(fn)
}
