package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/checkpoint"
	"github.com/varve-io/varve/statestore/objstore"
)

// memberState are the sizes of a member's database.
func (m *member) stateOptions() statestore.Options {
	return statestore.Options{
		FS: m.fs, Log: m.w.logger, Cache: 1 << 20, MemTable: 1 << 20, WriteBack: writeBacks[m.w.opt.Seed%int64(len(writeBacks))], Wait: true,
	}
}

func (w *World) place() checkpoint.Place { return checkpoint.At(w.mem, "sim", 0) }

// whole runs fn while the store does not fail: its calls come from several
// goroutines, and what fails must not depend on their order.
func (w *World) whole(fn func() error) error {
	w.mem.SetHook(nil)
	defer w.mem.SetHook(w.hook)
	return fn()
}

func (w *World) hook(c objstore.Call) error {
	if w.faults > 0 && w.rng.Intn(3) == 0 {
		w.faults--
		return errInjected
	}
	if w.atWork && w.failing(8) {
		w.saw["store away"]++
		return errInjected
	}
	return nil
}

// keep makes a checkpoint of the member's state, and expires old ones without
// any grace: no other is under way.
func (m *member) keep() error {
	if m.store.Head().Offset < 0 {
		return nil
	}
	return m.w.whole(func() error {
		made, err := m.w.place().Create(m.w.ctx, m.store, checkpoint.CreateOptions{Scratch: "scratch", FS: m.fs, Rate: -1, State: m.stateOptions()})
		if err != nil {
			return err
		}
		m.w.saw["checkpoint"]++
		if made.Shared > 0 {
			m.w.saw["checkpoint shared"]++
		}
		_, err = m.w.place().Expire(m.w.ctx, checkpoint.ExpireOptions{Keep: 2, Offset: made.Manifest.Offset, Now: time.UnixMilli(m.w.now)})
		return err
	})
}

// wipe loses the member's disk: it starts from the newest checkpoint, or from
// the log's beginning.
func (m *member) wipe() error {
	if err := m.store.Close(); err != nil {
		return err
	}
	m.net.dead = true
	m.fs, m.cuts = vfs.NewCrashableMem(), nil
	err := m.w.whole(func() error {
		r, err := m.w.place().Restore(m.w.ctx, checkpoint.RestoreOptions{
			Dir: "state", FS: m.fs, Deployment: [16]byte{1}, Now: time.UnixMilli(m.w.now), State: m.stateOptions(), Log: m.w.logger,
			Check: func(_ context.Context, c *checkpoint.Manifest) error {
				if h := c.Head(); m.w.log[h.Offset].Checksum() != h.Checksum {
					return fmt.Errorf("%w: checkpoint %s", statestore.ErrFork, c.ID())
				}
				return nil
			},
		})
		if err == nil {
			m.w.saw["state restored"]++
			if want, known := m.hashes[r.Manifest.Offset]; known && want.String() != r.Manifest.Chain {
				return fmt.Errorf("checkpoint %s has another chain hash than this member had there", r.Manifest.ID())
			}
		}
		if errors.Is(err, checkpoint.ErrNone) {
			m.w.saw["disk wiped"]++
			err = nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return m.open()
}

// disk is what happens to a disk: a checkpoint of what is on it, or its loss.
func (w *World) disk() error {
	switch w.rng.Intn(8) {
	case 0:
		return w.pickMember().wipe()
	case 1:
		o := w.pickOwner()
		o.fs = nil
		w.saw["index wiped"]++
		return o.crash()
	}
	return w.pickMember().keep()
}
