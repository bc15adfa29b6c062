package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	randv2 "math/rand/v2"
	"slices"

	"github.com/varve-io/varve/processors/ingest"
	"github.com/varve-io/varve/processors/publisher"
	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/schemas/rows"
	"github.com/varve-io/varve/schemas/source"
)

func crashRNG(r *rand.Rand) *randv2.Rand { return randv2.New(randv2.NewPCG(r.Uint64(), r.Uint64())) }

var errInjected = errors.New("injected fault")

// Run runs the world's steps, settles it and checks it.
func (w *World) Run() error {
	for p := range w.opt.Shards {
		if _, err := w.addOwner(p); err != nil {
			return err
		}
	}
	w.mem.SetHook(w.hook)
	for i := range w.opt.Steps {
		if err := w.step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	for len(w.script) > 0 {
		w.produce()
	}
	if err := w.quiesce(); err != nil {
		return err
	}
	return w.check()
}

// step lets one thing happen.
func (w *World) step() error {
	w.now += int64(w.rng.Intn(30))
	if w.broken != nil {
		return w.broken
	}
	if w.opt.Garbage && w.rng.Intn(7) == 0 {
		return w.garbageStep()
	}
	if w.opt.Imports && w.rng.Intn(25) == 0 {
		return w.addSome()
	}
	if w.opt.Foreign && w.rng.Intn(10) == 0 {
		return w.foreignStep()
	}
	if w.opt.Time && w.rng.Intn(12) == 0 {
		return w.timeStep()
	}
	if w.opt.Respec && w.rng.Intn(40) == 0 {
		return w.respec()
	}
	if w.opt.Jobs && w.rng.Intn(4) == 0 {
		return w.jobStep()
	}
	switch n := w.rng.Intn(1000); {
	case n < 220:
		w.produce()
	case n < 400:
		return w.pickOwner().deliverDecided(1 + w.rng.Intn(5))
	case n < 540:
		return w.pickOwner().deliverSource(1 + w.rng.Intn(6))
	case n < 600:
		o := w.pickOwner()
		if w.rng.Intn(3) == 0 {
			o.shard.FlushSoon()
		}
		o.tick()
		return o.wake()
	case n < 730:
		w.deliver()
	case n < 840:
		return w.pickMember().apply(1 + w.rng.Intn(6))
	case n < 880:
		m := w.pickMember()
		m.machine.Tick(w.ctx, w.now)
		return m.machine.Err()
	case n < 935:
		return w.publish(w.pickMember(), w.rng.Intn(3) == 0)
	case n < 939 && w.opt.Disks:
		return w.disk()
	case n < 950:
		if w.opt.Requests {
			return w.askDelete()
		}
	case n < 962:
		if w.opt.Crashes {
			if w.rng.Intn(3) == 0 {
				return w.pickMember().crash()
			}
			return w.pickOwner().crash()
		}
	case n < 967:
		if w.opt.TwoOwners && len(w.owners) < w.opt.Shards+2 {
			_, err := w.addOwner(w.rng.Intn(w.opt.Shards))
			return err
		}
	case n < 980:
		w.pickOwner().ack(1 + w.rng.Intn(2))
	case n < 987:
		if w.opt.Clock {
			w.jump()
		}
	case n < 992:
		if w.opt.Operators {
			return w.operate()
		}
	default:
		w.repeat()
	}
	return nil
}

// jump moves the broker's clock.
func (w *World) jump() {
	if w.rng.Intn(4) == 0 {
		w.now += 25 * 3600 * 1000 // past the dedupe horizon
		w.saw["day"]++
	} else {
		w.now -= int64(w.rng.Intn(2000))
	}
}

// operate is a user's request: source offsets skipped, or a shard retired.
func (w *World) operate() error {
	t, err := w.members[0].store.Table(tableName)
	if err != nil || t == nil || len(t.Shards) == 0 {
		return err
	}
	sh := &t.Shards[w.rng.Intn(len(t.Shards))]
	k := record.ShardKey{TopicID: sh.TopicID, Topic: sh.Topic, Partition: sh.Partition}
	if w.rng.Intn(3) == 0 {
		return w.request(tableName, w.tableID, &record.RetireShard{Shard: k})
	}
	to := min(sh.SourceEnd+1+int64(w.rng.Intn(3)), int64(len(w.sources[sh.Partition])))
	if to <= sh.SourceEnd {
		return nil
	}
	w.saw["skip"]++
	return w.request(tableName, w.tableID, &record.SkipSource{Shard: k, From: sh.SourceEnd, To: to, Cause: "sim"})
}

// repeat brings an append to the log that is there already (A8).
func (w *World) repeat() {
	if len(w.twice) > 0 {
		i := w.rng.Intn(len(w.twice))
		w.append(w.twice[i])
		w.twice = slices.Delete(w.twice, i, i+1)
		w.saw["twice"]++
	}
}

func (w *World) pickOwner() *owner   { return w.owners[w.rng.Intn(len(w.owners))] }
func (w *World) pickMember() *member { return w.members[w.rng.Intn(len(w.members))] }

// wake lets an owner whose epoch is gone claim again, as its node would.
func (o *owner) wake() error {
	switch o.shard.Stage() {
	case ingest.Stopped:
		return o.stopped()
	case ingest.Idle:
		o.shard.Claim(o.w.ctx)
	case ingest.Fenced:
		if !o.w.opt.TwoOwners && !o.w.opt.Crashes {
			return errors.New("the only owner that there ever was is fenced")
		}
		// The group gives it the shard anew only sometimes.
		if o.w.rng.Intn(20) == 0 {
			o.shard.Claim(o.w.ctx)
		}
	}
	return nil
}

// deliver brings one append of some sender to the log.
func (w *World) deliver() {
	var nets []*network
	for _, o := range w.owners {
		nets = append(nets, o.net)
	}
	for _, m := range w.members {
		nets = append(nets, m.net)
	}
	nets = append(nets, w.lost...)
	nets = slices.DeleteFunc(nets, func(n *network) bool { return len(n.queue) == 0 })
	if len(nets) > 0 {
		nets[w.rng.Intn(len(nets))].deliver()
	}
}

// produce makes one event of a random key.
func (w *World) produce() {
	if w.scripted {
		if len(w.script) > 0 {
			w.emit(w.script[0])
			w.script = w.script[1:]
		}
		return
	}
	w.values++
	e := event{
		key: w.rng.Intn(w.opt.Keys), del: w.rng.Intn(4) == 0, value: w.values,
		order: 1 + int64(w.rng.Intn(12)), hasOrd: w.rng.Intn(5) > 0 || w.opt.Valued,
	}
	switch {
	case !w.opt.Partial || e.del:
	case w.rng.Intn(2) == 0:
		e.partial = true
	default:
		e.extra = 1 + w.rng.Int63n(1000)
	}
	if w.opt.Columns && !e.del && w.values > 20 && w.rng.Intn(2) == 0 {
		e.extra = 1 + w.rng.Int63n(1000)
	}
	if w.opt.BadEvents && w.rng.Intn(8) == 0 {
		e.bad = badKind(1 + w.rng.Intn(4))
		e.del = e.del && e.bad != keyless
		w.saw[[...]string{"", "gap", "malformed", "keyless", "keyless delete"}[e.bad]]++
	}
	w.emit(e)
}

// emit puts an event at the end of its key's source partition.
func (w *World) emit(e event) {
	p := w.shardOf(e.key)
	rec := source.Record{Topic: "t", Partition: int32(p), Offset: int64(len(w.sources[p])), TimeMs: w.now}
	id := keyText(e.key, w.opt.Strings)
	rec.Key = []byte(`{"id":` + id + `}`)
	v := map[string]any{"id": json.RawMessage(id), "v": e.value}
	if e.hasOrd {
		v["o"] = e.order
	}
	if e.extra != 0 {
		v["w"] = e.extra
	}
	if e.partial {
		v["w"] = source.DefaultUnavailable
	}
	if e.del {
		v["__deleted"] = "true"
	}
	switch e.bad {
	case keyless:
		delete(v, "id")
		rec.Key = nil
	case keylessDel:
		rec.Key = nil
		v = nil
	}
	// A delete with an ordering value is the row with a flag, one without a null
	// value. (0 would be no value: a delete's row often holds zeros for what it lacks.)
	if v != nil && (!e.del || e.hasOrd || e.bad == keyless) {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		rec.Value = b
	}
	if e.bad == malformed {
		rec.Value = []byte(`[1, 2]`)
	}
	w.sources[p] = append(w.sources[p], rec)
	w.events[p] = append(w.events[p], e)
}

// askDelete appends a DeleteKeys of some keys.
func (w *World) askDelete() error {
	q := asked{hasOrd: w.opt.Ordered && w.rng.Intn(2) == 0, order: int64(w.rng.Intn(12))}
	for range 1 + w.rng.Intn(3) {
		if k := w.rng.Intn(w.opt.Keys); !slices.Contains(q.keys, k) {
			q.keys = append(q.keys, k)
		}
	}
	return w.askKeys(q)
}

func (w *World) askKeys(q asked) error {
	var keys [][]byte
	for _, k := range q.keys {
		key, err := w.canonicalKey(k)
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	slices.SortFunc(keys, slices.Compare)
	body, err := record.EncodeKeysBody(nil, &record.KeysBody{Keys: keys})
	if err != nil {
		return err
	}
	ref, err := w.bodies.Put(w.ctx, body)
	if err != nil {
		return err
	}
	w.asked[int64(len(w.log))] = q
	return w.request(tableName, w.tableID, &record.DeleteKeys{Keys: ref, Count: int64(len(keys)), HasOrder: q.hasOrd, Order: q.order})
}

func (w *World) canonicalKey(k int) ([]byte, error) {
	b := rows.NewBatch(w.def.Schema())
	if w.opt.Strings {
		var s string
		if err := json.Unmarshal([]byte(keyText(k, true)), &s); err != nil {
			return nil, err
		}
		b.Cols[0].AppendBytes([]byte(s))
	} else {
		b.Cols[0].AppendInt(int64(k))
	}
	b.AppendEvent(rows.Delete, 0, 0, false)
	return w.encoder.Append(nil, b, 0)
}

// publish lets a member publish a pending cut that it has seen, or one that it
// still has from long ago.
func (w *World) publish(m *member, faulty bool) error {
	f, err := m.store.Frozen(w.tableID)
	if err != nil || f == nil {
		return err
	}
	if faulty {
		w.faults = 1 + w.rng.Intn(3)
	}
	p := w.publisher()
	res, err := p.Publish(w.ctx, f)
	w.faults = 0
	if err != nil {
		w.saw["publish failed"]++
		if w.opt.Foreign && !errors.Is(err, errInjected) {
			return w.told(m, p, err)
		}
		if !errors.Is(err, errInjected) {
			if w.behind(m) {
				return nil // another member published what this one has not read
			}
			return fmt.Errorf("publish the cut at %d: %w", f.Build, err)
		}
		return w.enqueue(m, &record.SnapshotFailed{Cut: f.Cut, Build: f.Build, Attempt: 1, Cause: publisher.Cause(err)})
	}
	w.saw["published"]++
	c := res.Committed
	if old := w.published[f.Build]; old != nil {
		if old.SnapshotID != c.SnapshotID || old.MetadataHash != c.MetadataHash || old.ManifestList != c.ManifestList {
			return fmt.Errorf("two publishers of the cut at %d wrote different snapshots", f.Build)
		}
	}
	w.published[f.Build] = &c
	if err := w.keepSnapshot(&c); err != nil {
		return err
	}
	if w.rng.Intn(6) == 0 {
		return nil // the publisher dies before it can say so
	}
	return w.enqueue(m, &c)
}

func (w *World) behind(m *member) bool { return m.machine.Next() < int64(len(w.log)) }

// enqueue sends a record of a member through its network.
func (w *World) enqueue(m *member, v any) error {
	msg, err := w.bodies.Message(w.ctx, record.Envelope{
		ApplyVersion: 1, Request: w.requestID(), OffsetSeen: m.store.Head().Offset, Table: tableName, TableID: w.tableID,
	}, v)
	if err != nil {
		return err
	}
	m.net.Append(msg, func(int64, error) {})
	return nil
}

// quiesce stops the faults and lets everything come to rest: one live owner a
// shard, every event in the log, everything published.
func (w *World) quiesce() error {
	w.mem.SetHook(nil)
	w.calm = true
	const rounds = 10_000
	for round := range rounds {
		w.now += 200
		busy := false
		for _, o := range w.owners {
			if err := o.deliverDecided(1 << 20); err != nil {
				return err
			}
			if o.shard.Stage() == ingest.Idle {
				o.shard.Claim(w.ctx)
			}
			if err := o.deliverSource(1 << 20); err != nil {
				return err
			}
			o.ack(1 << 20)
			o.shard.FlushSoon()
			o.shard.Tick(w.ctx, w.now)
			if err := o.stopped(); err != nil {
				return err
			}
		}
		for _, n := range w.networks() {
			for len(n.queue) > 0 {
				n.deliver()
				busy = true
			}
		}
		for _, m := range w.members {
			if err := m.apply(1 << 20); err != nil {
				return err
			}
			m.machine.Tick(w.ctx, w.now)
		}
		if f, err := w.members[0].store.Frozen(w.tableID); err != nil {
			return err
		} else if f != nil {
			if err := w.publish(w.members[0], false); err != nil {
				return err
			}
			busy = true
		} else if w.opt.Foreign {
			if err := w.look(w.members[0]); err != nil {
				return err
			}
			busy = busy || len(w.members[0].net.queue) > 0
		}
		if err := w.finishJobs(); err != nil {
			return err
		}
		t, err := w.members[0].store.Table(tableName)
		if err != nil {
			return err
		}
		done := !busy && t.OpenJobs == 0 && !t.Changes && t.Pending == nil && len(t.Requests) == 0 && len(t.Held) == 0 && w.outcomeNext() == int64(len(w.log))
		for _, o := range w.owners {
			done = done && o.shard.WantsDecided()
		}
		for p := range w.sources {
			ended := false
			for _, s := range t.Shards {
				ended = ended || int(s.Partition) == p && s.SourceEnd == int64(len(w.sources[p]))
			}
			done = done && ended
			if !w.owned(p) {
				if _, err := w.addOwner(p); err != nil {
					return err
				}
				done = false
			}
		}
		if done {
			break
		}
		if round == rounds-1 {
			return fmt.Errorf("%w: events, requests or cuts are left after %d rounds without a fault", errStuck, rounds)
		}
	}
	if !w.opt.Garbage {
		return nil
	}
	if err := w.finishGarbage(); err != nil {
		return err
	}
	for _, m := range w.members { // the log has more now
		if err := m.apply(1 << 20); err != nil {
			return err
		}
	}
	for _, o := range w.owners {
		for range 2 {
			if err := o.deliverDecided(1 << 20); err != nil {
				return err
			}
			if err := o.stopped(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *World) networks() []*network {
	out := slices.Clone(w.lost)
	for _, o := range w.owners {
		out = append(out, o.net)
	}
	for _, m := range w.members {
		out = append(out, m.net)
	}
	return out
}

// owned says whether some owner of the partition is running or on its way to.
func (w *World) owned(p int) bool {
	return slices.ContainsFunc(w.owners, func(o *owner) bool {
		return o.partition == p && (o.shard.Stage() == ingest.Running || o.shard.Stage() == ingest.Claiming)
	})
}
