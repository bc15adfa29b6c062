package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/varve-io/varve/schemas/dv"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/source"
	"github.com/varve-io/varve/statestore"
)

const (
	commitTables = 20
	commitShards = 16
	// appendRows, appendBlocks and blockPositions shape a record: what a flush
	// of some thousand uniform upserts makes.
	appendRows     = 10_000
	appendBlocks   = 4
	blockPositions = 10
	// blockReach is how many of a table's newest files records delete from.
	blockReach = 200
)

// commitLog is a log of one partition: what makes tables and claims shards,
// then AppendRows whose chains take turns.
type commitLog struct {
	setup   []statestore.Record
	appends packedLog
}

// packedLog holds records of one type, one after the other: a node holds only
// what a poll brought, so the collector must not see a log of millions.
type packedLog struct {
	first   int64    // offset of the first
	timeMs  int64    // of all
	header  []byte   // of all
	tables  [][]byte // keys
	table   []uint16 // of each record
	ends    []uint64 // of each record's value
	values  []byte
	keySize int64
}

func (l *packedLog) add(table int, r *statestore.Record) {
	for len(l.tables) <= table {
		l.tables = append(l.tables, nil)
	}
	if len(l.table) == 0 {
		l.first, l.timeMs, l.header = r.Offset, r.TimeMs, r.Header
	}
	l.tables[table] = r.Key
	l.table = append(l.table, uint16(table))
	l.values = append(l.values, r.Value...)
	l.ends = append(l.ends, uint64(len(l.values)))
	l.keySize += int64(len(r.Key))
}

func (l *packedLog) len() int { return len(l.table) }

// bytes is the size of keys and values.
func (l *packedLog) bytes() int64 { return int64(len(l.values)) + l.keySize }

// at gives record i; its bytes stand for as long as the log does.
func (l *packedLog) at(i int) statestore.Record {
	from := uint64(0)
	if i > 0 {
		from = l.ends[i-1]
	}
	to := l.ends[i]
	return statestore.Record{Offset: l.first + int64(i), TimeMs: l.timeMs, Key: l.tables[l.table[i]], Header: l.header, Value: l.values[from:to:to]}
}

type chain struct {
	table           string
	number          int // of the table
	id              int64
	key             record.ShardKey
	epoch           int64
	writer          uint32
	counter         int64
	source, request int64
}

type commitLogMaker struct {
	st     *statestore.Store // learns what the records of setup came to
	log    commitLog
	rng    *rand.Rand
	next   int64 // offset
	apply  bool  // records are applied only, not kept in setup
	blocks int   // delete blocks of an AppendRows, at most
}

// newCommitLog makes a log of n AppendRows: each has a file, and up to blocks
// delete blocks.
func newCommitLog(dir string, seed uint64, n int64, blocks int) (_ *commitLog, err error) {
	m := &commitLogMaker{rng: rand.New(rand.NewPCG(seed, 3)), blocks: blocks}
	if m.st, err = statestore.Open(filepath.Join(dir, "log-maker"), statestore.Options{}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.st.Close()) }()
	chains, err := m.begin()
	if err != nil {
		return nil, err
	}
	files := map[int64][]uint64{}
	m.log.appends.table, m.log.appends.ends = make([]uint16, 0, n), make([]uint64, 0, n)
	for i := range n {
		c := chains[i%int64(len(chains))]
		a, err := m.append(c, files[c.id])
		if err != nil {
			return nil, err
		}
		files[c.id] = append(files[c.id], a.Files[0].ID)
		r, err := m.encode(c.table, c.id, a)
		if err != nil {
			return nil, err
		}
		r.Offset = int64(len(m.log.setup)) + i
		m.log.appends.add(c.number, &r)
	}
	return &m.log, nil
}

// begin makes tables and claims their shards.
func (m *commitLogMaker) begin() ([]*chain, error) {
	var id [16]byte
	for i := range id {
		id[i] = byte(m.rng.Uint32())
	}
	if _, err := m.do("", -1, &record.SetApplyVersion{Deployment: id, Partitions: 1, Version: statestore.ApplyVersion}); err != nil {
		return nil, err
	}
	var chains []*chain
	for t := range commitTables {
		name := "shop.table" + strconv.Itoa(t)
		def := customers(name, source.DebeziumJSON, 1000)
		def.Location = "file:///lake/shop/table" + strconv.Itoa(t)
		o, err := m.do(name, -1, &record.CreateTable{Definition: def})
		if err != nil {
			return nil, err
		}
		var topic [16]byte
		topic[15] = byte(t)
		for p := range commitShards {
			c := &chain{table: name, number: t, id: o.Offset, key: record.ShardKey{TopicID: topic, Topic: "dbserver1." + name, Partition: int32(p)}}
			o, err := m.do(name, c.id, &record.ClaimShard{Shard: c.key})
			if err != nil {
				return nil, err
			}
			c.epoch, c.writer = o.Offset, uint32(o.Outcome.Numbers[record.ClaimWriter])
			c.request = o.Outcome.Numbers[record.ClaimRequestEnd]
			chains = append(chains, c)
		}
	}
	return chains, nil
}

func (m *commitLogMaker) encode(table string, id int64, v any) (statestore.Record, error) {
	body, err := record.EncodeBody(nil, v)
	if err != nil {
		return statestore.Record{}, fmt.Errorf("encode a %s record: %w", record.TypeOf(v), err)
	}
	env := record.Envelope{
		Type: record.TypeOf(v), TypeVersion: record.BodyVersion(record.TypeOf(v)), ApplyVersion: statestore.ApplyVersion, OffsetSeen: m.next - 1,
		Table: table, TableID: id, Body: body,
	}
	if env.Type != record.TypeAppendRows {
		env.Request = record.NewRequestID()
	}
	var msg record.Message
	record.Encode(&msg, &env)
	return statestore.Record{Key: msg.Key, Header: slices.Clone(msg.Header[:]), Value: msg.Value, TimeMs: 1_700_000_000_000}, nil
}

// do adds a record to the log's beginning and tells what it comes to.
func (m *commitLogMaker) do(table string, id int64, v any) (record.OutcomeMessage, error) {
	r, err := m.encode(table, id, v)
	if err != nil {
		return record.OutcomeMessage{}, err
	}
	r.Offset = m.next
	o, err := m.st.Apply(&r)
	if err != nil {
		return o, err
	}
	if o.Outcome.Code != record.Accepted {
		return o, fmt.Errorf("a %s record was %s: %s", record.TypeOf(v), o.Outcome.Code, o.Outcome.Reason)
	}
	if m.next++; !m.apply {
		m.log.setup = append(m.log.setup, r)
	}
	return o, nil
}

// append is a chain's next record: one new file, and blocks for some of the
// table's newest files.
func (m *commitLogMaker) append(c *chain, old []uint64) (*record.AppendRows, error) {
	c.counter++
	var body record.Hash
	for i := range body {
		body[i] = byte(m.rng.Uint32())
	}
	a := &record.AppendRows{
		Shard: c.key, Epoch: c.epoch, Counter: c.counter, SourceFrom: c.source, SourceTo: c.source + appendRows,
		RequestFrom: c.request, RequestTo: c.request,
		Changes: &record.Ref{Path: "_varve/varve/bodies/" + body.String(), Length: 1000, Hash: body},
		Files:   []record.DataFile{{ID: statestore.FileID(c.writer, uint64(c.counter)), Rows: appendRows, Bytes: 150_000}},
		Counts:  record.Counts{Events: appendRows, Upserts: appendRows},
	}
	c.source += appendRows
	recent := old[max(0, len(old)-blockReach):]
	var picked []uint64
	for range min(m.blocks, len(recent)) {
		if f := recent[m.rng.IntN(len(recent))]; !slices.Contains(picked, f) {
			picked = append(picked, f)
		}
	}
	slices.Sort(picked)
	for _, f := range picked {
		set := roaring.New()
		for range blockPositions {
			set.Add(m.rng.Uint32N(appendRows))
		}
		b, err := dv.AppendBitmap(nil, set)
		if err != nil {
			return nil, fmt.Errorf("encode a delete block: %w", err)
		}
		a.Deletes = append(a.Deletes, record.DeleteBlock{File: f, Bitmap: b})
	}
	return a, nil
}
