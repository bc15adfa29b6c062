package statestore

import (
	"github.com/varve-io/varve/schemas"
	"github.com/varve-io/varve/schemas/record"
)

// SnapshotRef is a snapshot that the table's metadata retains.
type SnapshotRef struct {
	ID          int64
	Sequence    int64
	TimestampMs int64
	Build       int64
	Attempts    int64  // that failed before it landed
	Cause       string // of the last of them
	List        string // its manifest list
	Bytes       int64  // of its data files
	Events      int64  // that the table's shards had taken by its build offset
	Settled     int64  // requests by key that were answered by then
	content     contentSum
}

// CatalogHead is what the state knows of the committed metadata.
type CatalogHead struct {
	SnapshotID      int64 // 0: none yet
	Sequence        int64 // last-sequence-number
	NextRowID       int64
	TimestampMs     int64 // last-updated-ms
	MetadataVersion int64 // N of vN, 0: nothing published yet, or a catalog that names the metadata itself
	MetadataPath    string
	ManifestList    string // of the snapshot
	MetadataHash    record.Hash
	Build           int64 // build offset of the last commit, -1 none
	Through         int64 // every change up to here is in it; the first commit is the empty table
	Deletes         int64 // delete files of other writers that it lists, vectors apart (H15)
}

// PendingCut is a cut that waits for its publisher (C1).
type PendingCut struct {
	Cut       int64
	Build     int64
	Attempts  int64
	LastCause string
	// Rollback is the snapshot that becomes the head again, 0: this is a cut
	// (G1). List is its manifest list.
	Rollback int64
	List     string
}

// table is one table's state.
type table struct {
	id          int64
	name        string
	dropped     bool
	def         *schemas.Definition
	defChange   int64 // offset of the newest accepted change of the definition
	defFrozen   int64 // the same, as of the last committed cut
	nextWriter  uint32
	nextTuple   uint32
	nextMan     int64
	nextGarbage int64  // number of the next metadata object that leaves
	baseFloor   int64  // oldest index horizon of the shards that base is the fold of
	nextOutput  uint64 // counter of the next file that a job writes (writer 0)
	openJobs    int64
	lastChange  int64 // newest offset that changed what a reader sees, -1 none
	head        CatalogHead
	snapshots   []SnapshotRef
	held        []int64  // snapshots that branches and tags of an outside catalog name, ascending
	published   []string // keys of the properties of the definition committed last, sorted
	refs        refs
	expiring    []int64    // snapshots that ExpireSnapshots asked to remove, ascending
	metaChange  int64      // offset of the newest accepted AlterRefs or ExpireSnapshots, 0 none
	metaFrozen  int64      // the same, as of the last committed cut
	content     contentSum // of what the head lists
	settled     int64      // requests by key that were answered, ever
	rolled      int64      // offset of the newest Rollback, 0 none
	finds       []find     // open, ascending by offset
	pending     *PendingCut
	changed     bool // some chunk has a change mark
	totals      totals
	openDeletes []openDelete // ascending by offset
	adds        []openAdd    // files that are held, ascending by offset
	strays      int64        // offset of the newest CollectFiles that took a stray, 0 none
	resharding  *Resharding  // nil: none waits for its shards
	base        *ShardBase   // nil: no source topic was ever divided anew
	shards      map[shardID]*shard
	shardOrder  []shardID // ascending

	dirty, defDirty bool
	tuples          map[string]uint32  // spec ‖ tuple → ordinal, as seen since open
	near            [nearShards]*shard // some of shards, found without hashing
	tupleTypes      tupleTypes
}

const nearShards = 16

// tupleTypes are the types of a spec's tuples, of the spec asked last.
type tupleTypes struct {
	def   *schemas.Definition
	spec  *schemas.Spec
	types []schemas.Type
	err   error
}

// totals are running sums that status and summaries show.
type totals struct {
	Files      int64 // live
	Rows       int64 // in live files, dead ones included
	Bytes      int64
	Dead       int64 // as of the last frozen cut, in live files
	Published  int64 // published data files
	Vectors    int64 // published vectors
	Counts     record.Counts
	PubRows    int64 // S10 totals of the head
	PubBytes   int64
	PubDead    int64
	PubVecSize int64
}

type shardID struct {
	topic     [16]byte
	partition int32
}

func (a shardID) less(b shardID) bool {
	for i := range a.topic {
		if a.topic[i] != b.topic[i] {
			return a.topic[i] < b.topic[i]
		}
	}
	return a.partition < b.partition
}

// shard is one shard's state (§2).
type shard struct {
	id            shardID
	topic         string
	firstClaim    int64
	epoch         int64 // the newest claim
	open          bool
	closedBy      int64
	closedByClaim bool
	member        string
	writer        uint32
	counter       int64  // last accepted append's (A8)
	lastFile      uint64 // highest file id of this writer
	sourceEnd     int64
	requestEnd    int64
	indexHorizon  int64
	index         record.Ref
	framing       uint64
	retired       bool
	counts        record.Counts

	dirty bool
}

// openDelete is a DeleteKeys that some shard has not answered (A5).
type openDelete struct {
	offset int64
	keys   record.Ref
	asked  []shardID
}

// tableLayout is that of a table's value. stateLayout rises with it.
const tableLayout = 6

func (t *table) encode() []byte {
	var e enc
	e.u(tableLayout)
	e.str(t.name)
	e.bool(t.dropped)
	e.i(t.defChange)
	e.i(t.defFrozen)
	e.u(uint64(t.nextWriter))
	e.u(uint64(t.nextTuple))
	e.i(t.nextMan)
	e.i(t.lastChange)
	e.bool(t.changed)
	encHead(&e, &t.head)
	e.u(uint64(len(t.snapshots)))
	for _, s := range t.snapshots {
		e.i(s.ID)
		e.i(s.Sequence)
		e.i(s.TimestampMs)
		e.i(s.Build)
		e.i(s.Attempts)
		e.str(s.Cause)
		e.str(s.List)
		e.i(s.Bytes)
		e.i(s.Events)
		e.i(s.Settled)
		s.content.encode(&e)
	}
	e.u(uint64(len(t.held)))
	for _, id := range t.held {
		e.i(id)
	}
	e.u(uint64(len(t.published)))
	for _, k := range t.published {
		e.str(k)
	}
	e.bool(t.pending != nil)
	if p := t.pending; p != nil {
		e.i(p.Cut)
		e.i(p.Build)
		e.i(p.Attempts)
		e.str(p.LastCause)
		e.i(p.Rollback)
		e.str(p.List)
	}
	for _, v := range t.totals.list() {
		e.i(*v)
	}
	e.u(uint64(len(t.openDeletes)))
	for _, o := range t.openDeletes {
		e.i(o.offset)
		encRef(&e, &o.keys)
		e.u(uint64(len(o.asked)))
		for _, s := range o.asked {
			e.raw(s.topic[:])
			e.i(int64(s.partition))
		}
	}
	e.u(t.nextOutput)
	e.i(t.openJobs)
	e.i(t.nextGarbage)
	e.i(t.baseFloor)
	encReshard(&e, t.resharding, t.base)
	t.refs.encode(&e)
	e.u(uint64(len(t.expiring)))
	for _, id := range t.expiring {
		e.i(id)
	}
	e.i(t.metaChange)
	e.i(t.metaFrozen)
	t.content.encode(&e)
	e.i(t.settled)
	e.i(t.rolled)
	e.u(uint64(len(t.finds)))
	for i := range t.finds {
		t.finds[i].encode(&e)
	}
	e.u(uint64(len(t.adds)))
	for _, a := range t.adds {
		e.i(a.offset)
		e.u(a.first)
		e.i(a.n)
	}
	e.i(t.strays)
	return e.b
}

func (t *totals) list() []*int64 {
	return append([]*int64{&t.Files, &t.Rows, &t.Bytes, &t.Dead, &t.Published, &t.Vectors,
		&t.PubRows, &t.PubBytes, &t.PubDead, &t.PubVecSize}, countList(&t.Counts)...)
}

func countList(c *record.Counts) []*int64 {
	return []*int64{&c.Events, &c.Upserts, &c.Deletes, &c.LateIgnored, &c.AbsentDeletes,
		&c.Control, &c.DeadUpserts, &c.DeadDeletes, &c.DeadOther}
}

func encHead(e *enc, h *CatalogHead) {
	e.i(h.SnapshotID)
	e.i(h.Sequence)
	e.i(h.NextRowID)
	e.i(h.TimestampMs)
	e.i(h.MetadataVersion)
	e.str(h.MetadataPath)
	e.str(h.ManifestList)
	e.raw(h.MetadataHash[:])
	e.i(h.Build)
	e.i(h.Through)
	e.i(h.Deletes)
}

func decHead(d *dec) (h CatalogHead) {
	h.SnapshotID = d.i()
	h.Sequence = d.i()
	h.NextRowID = d.i()
	h.TimestampMs = d.i()
	h.MetadataVersion = d.i()
	h.MetadataPath = d.str()
	h.ManifestList = d.str()
	copy(h.MetadataHash[:], d.raw(32))
	h.Build = d.i()
	h.Through = d.i()
	h.Deletes = d.i()
	return h
}

func encRef(e *enc, r *record.Ref) {
	e.str(r.Path)
	e.i(r.Length)
	e.raw(r.Hash[:])
}

func decRef(d *dec) (r record.Ref) {
	r.Path = d.str()
	r.Length = d.i()
	copy(r.Hash[:], d.raw(32))
	return r
}

func decodeTable(id int64, b []byte) (*table, error) {
	d := dec{b: b}
	t := &table{id: id}
	if d.u() != tableLayout {
		d.fail()
	}
	t.name = d.str()
	t.dropped = d.bool()
	t.defChange = d.i()
	t.defFrozen = d.i()
	t.nextWriter = uint32(d.u())
	t.nextTuple = uint32(d.u())
	t.nextMan = d.i()
	t.lastChange = d.i()
	t.changed = d.bool()
	t.head = decHead(&d)
	for n := d.count(); n > 0; n-- {
		t.snapshots = append(t.snapshots, SnapshotRef{ID: d.i(), Sequence: d.i(), TimestampMs: d.i(), Build: d.i(), Attempts: d.i(), Cause: d.str(), List: d.str(), Bytes: d.i(), Events: d.i(), Settled: d.i(), content: decContent(&d)})
	}
	for n := d.count(); n > 0; n-- {
		t.held = append(t.held, d.i())
	}
	for n := d.count(); n > 0; n-- {
		t.published = append(t.published, d.str())
	}
	if d.bool() {
		t.pending = &PendingCut{Cut: d.i(), Build: d.i(), Attempts: d.i(), LastCause: d.str(), Rollback: d.i(), List: d.str()}
	}
	for _, v := range t.totals.list() {
		*v = d.i()
	}
	for n := d.count(); n > 0; n-- {
		o := openDelete{offset: d.i(), keys: decRef(&d)}
		for m := d.count(); m > 0; m-- {
			var s shardID
			copy(s.topic[:], d.raw(16))
			s.partition = int32(d.i())
			o.asked = append(o.asked, s)
		}
		t.openDeletes = append(t.openDeletes, o)
	}
	t.nextOutput = d.u()
	t.openJobs = d.i()
	t.nextGarbage, t.baseFloor = d.i(), d.i()
	t.resharding, t.base = decReshard(&d)
	t.refs = decRefs(&d)
	for n := d.count(); n > 0; n-- {
		t.expiring = append(t.expiring, d.i())
	}
	t.metaChange, t.metaFrozen = d.i(), d.i()
	t.content = decContent(&d)
	t.settled, t.rolled = d.i(), d.i()
	for n := d.count(); n > 0; n-- {
		t.finds = append(t.finds, decFind(&d))
	}
	for n := d.count(); n > 0; n-- {
		t.adds = append(t.adds, openAdd{offset: d.i(), first: d.u(), n: d.i()})
	}
	t.strays = d.i()
	return t, d.done("table state")
}

func (s *shard) encode() []byte {
	var e enc
	e.u(1)
	e.str(s.topic)
	e.i(s.firstClaim)
	e.i(s.epoch)
	e.bool(s.open)
	e.i(s.closedBy)
	e.bool(s.closedByClaim)
	e.str(s.member)
	e.u(uint64(s.writer))
	e.i(s.counter)
	e.u(s.lastFile)
	e.i(s.sourceEnd)
	e.i(s.requestEnd)
	e.i(s.indexHorizon)
	encRef(&e, &s.index)
	e.u(s.framing)
	e.bool(s.retired)
	for _, v := range countList(&s.counts) {
		e.i(*v)
	}
	return e.b
}

func decodeShard(id shardID, b []byte) (*shard, error) {
	d := dec{b: b}
	s := &shard{id: id}
	if d.u() != 1 {
		d.fail()
	}
	s.topic = d.str()
	s.firstClaim = d.i()
	s.epoch = d.i()
	s.open = d.bool()
	s.closedBy = d.i()
	s.closedByClaim = d.bool()
	s.member = d.str()
	s.writer = uint32(d.u())
	s.counter = d.i()
	s.lastFile = d.u()
	s.sourceEnd = d.i()
	s.requestEnd = d.i()
	s.indexHorizon = d.i()
	s.index = decRef(&d)
	s.framing = d.u()
	s.retired = d.bool()
	for _, v := range countList(&s.counts) {
		*v = d.i()
	}
	return s, d.done("shard state")
}
