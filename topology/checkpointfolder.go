package topology

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/varve-io/varve/statestore"
	"github.com/varve-io/varve/statestore/checkpoint"
	"github.com/varve-io/varve/statestore/objstore"
)

// maxPartitions bounds where checkpoints are looked for when nothing says how
// many partitions a deployment has.
const maxPartitions = 256

// Checkpoints are those of a deployment, for commands: they need its warehouse
// and not its brokers.
type Checkpoints struct {
	opt        NodeOptions
	store      objstore.Store
	partitions int
}

// OpenCheckpoints opens a deployment's warehouse. Of the options it takes Data,
// Warehouse, Deployment, Partitions, Checkpoints and Logger.
func OpenCheckpoints(ctx context.Context, opt NodeOptions) (*Checkpoints, error) {
	if opt.Deployment == "" {
		opt.Deployment = DefaultDeployment
	}
	var err error
	if opt.Data, err = filepath.Abs(opt.Data); err != nil {
		return nil, fmt.Errorf("%w: data folder: %w", ErrConfig, err)
	}
	if opt.Warehouse == "" {
		opt.Warehouse = filepath.Join(opt.Data, "lake")
	}
	c := &Checkpoints{opt: opt, partitions: opt.Partitions}
	if c.partitions == 0 {
		f, err := readNodeFile(opt.Data)
		if err != nil {
			return nil, err
		}
		c.partitions = maxPartitions
		if f != nil {
			c.partitions = f.Partitions
		} else if _, err := os.Stat(opt.Warehouse); !strings.Contains(opt.Warehouse, "://") && errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: there is no deployment in %s, and no warehouse %s: name the data folder with --data, or the warehouse with --warehouse", ErrConfig, opt.Data, opt.Warehouse)
		}
	}
	if c.store, err = openWarehouse(ctx, opt.Warehouse, objstore.KeepTemporaries()); err != nil {
		return nil, err
	}
	return c, nil
}

// ListedCheckpoint is a checkpoint and its partition.
type ListedCheckpoint struct {
	Partition int32
	checkpoint.Entry
}

// List gives the checkpoints of one partition, or (-1) of all, oldest first.
func (c *Checkpoints) List(ctx context.Context, partition int32) ([]ListedCheckpoint, error) {
	var out []ListedCheckpoint
	for p := range int32(c.partitions) {
		if partition >= 0 && p != partition {
			continue
		}
		es, err := checkpoint.At(c.store, c.opt.Deployment, p).List(ctx)
		if err != nil {
			return nil, err
		}
		for i := range es {
			out = append(out, ListedCheckpoint{p, es[i]})
			if m := es[i].Manifest; m != nil && c.partitions == maxPartitions {
				c.partitions = int(m.Partitions)
			}
		}
		if int(p)+1 >= c.partitions {
			break
		}
	}
	return out, nil
}

// Delete removes a checkpoint. Its files go with the next expiry.
func (c *Checkpoints) Delete(ctx context.Context, partition int32, id string) error {
	if partition < 0 && c.partitions > 1 {
		return fmt.Errorf("%w: the deployment has several partitions, and a checkpoint is of one: name it with --partition", ErrConfig)
	}
	partition = max(partition, 0)
	return checkpoint.At(c.store, c.opt.Deployment, partition).Delete(ctx, id)
}

// Create makes checkpoints from the states of a data folder on which no node
// runs, of one partition or (-1) of all that it has.
func (c *Checkpoints) Create(ctx context.Context, partition int32) (_ []CheckpointMade, err error) {
	lock, err := LockDir(c.opt.Data)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	out := []CheckpointMade{}
	for p := range int32(c.partitions) {
		if partition >= 0 && p != partition {
			continue
		}
		dir := stateDir(c.opt.Data, p)
		if es, err := os.ReadDir(dir); errors.Is(err, os.ErrNotExist) || err == nil && len(es) == 0 {
			continue
		} else if err != nil {
			return out, fmt.Errorf("read the state folder: %w", err)
		}
		made, err := c.create(ctx, p, dir)
		if err != nil {
			return out, err
		}
		out = append(out, *made)
	}
	if len(out) == 0 {
		return out, fmt.Errorf("%s has no state of partition %s to make a checkpoint of", c.opt.Data, partitionText(partition))
	}
	return out, nil
}

func partitionText(p int32) string {
	if p < 0 {
		return "any number"
	}
	return fmt.Sprint(p)
}

func (c *Checkpoints) create(ctx context.Context, p int32, dir string) (_ *CheckpointMade, err error) {
	st, err := statestore.Open(dir, statestore.Options{Log: c.opt.Logger})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := c.checkIdentity(ctx, st.Head().Deployment, dir); err != nil {
		return nil, err
	}
	o := c.opt.Checkpoints.defaulted()
	place := checkpoint.At(c.store, c.opt.Deployment, p)
	made, err := place.Create(ctx, st, checkpoint.CreateOptions{Scratch: dir + ".checkpoint", Rate: o.Rate, Grace: o.Grace, State: statestore.Options{Log: c.opt.Logger}})
	if err != nil {
		return nil, err
	}
	m := made.Manifest
	if _, err := place.Expire(ctx, checkpoint.ExpireOptions{Keep: o.Keep, Grace: o.Grace, Offset: m.Offset, Now: time.Now()}); err != nil {
		return nil, fmt.Errorf("checkpoint %s was made, but: %w", m.ID(), err)
	}
	return &CheckpointMade{Partition: p, ID: m.ID(), Offset: m.Offset, Uploaded: made.Uploaded, Shared: made.Shared, TookMs: made.Took.Milliseconds()}, nil
}

// identity is the deployment's, as the warehouse's mark tells it.
func (c *Checkpoints) identity(ctx context.Context) (id [16]byte, err error) {
	key := markKey(c.opt.Deployment)
	have, err := c.store.ReadAll(ctx, key, maxMarkBytes)
	if errors.Is(err, objstore.ErrNotFound) {
		return id, fmt.Errorf("%w: %s is not the warehouse of deployment %s: %s is not there", ErrConfig, c.store.Location(""), c.opt.Deployment, key)
	}
	if err != nil {
		return id, fmt.Errorf("read the warehouse's mark: %w", err)
	}
	if b, err := hex.DecodeString(strings.TrimSpace(string(have))); err != nil || copy(id[:], b) != len(id) {
		return id, fmt.Errorf("%w: the warehouse's mark %s holds something else", ErrConfig, c.store.Location(key))
	}
	return id, nil
}

func (c *Checkpoints) checkIdentity(ctx context.Context, have [16]byte, dir string) error {
	id, err := c.identity(ctx)
	if err == nil && id != have {
		err = fmt.Errorf("%w: %s holds deployment %x, warehouse %s is that of %x", statestore.ErrIdentity, dir, have, c.store.Location(""), id)
	}
	return err
}

// RestoredCheckpoint is what Restore did for a partition.
type RestoredCheckpoint struct {
	Partition int32
	ID        string
	Offset    int64
	Bytes     int64
	Took      time.Duration
}

// Restore brings the newest usable checkpoint of each partition, or that of an
// id of one, into a data folder that has no state of it. The next start holds
// it against the log (L5) and applies what is behind it.
func (c *Checkpoints) Restore(ctx context.Context, partition int32, id string) (_ []RestoredCheckpoint, err error) {
	lock, err := LockDir(c.opt.Data)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	deployment, err := c.identity(ctx)
	if err != nil {
		return nil, err
	}
	f, err := readNodeFile(c.opt.Data)
	if err != nil {
		return nil, err
	}
	if f != nil && f.ID != "" && f.ID != hex.EncodeToString(deployment[:]) {
		return nil, fmt.Errorf("%w: %s belongs to the log with id %s, warehouse %s to %x", ErrConfig, c.opt.Data, f.ID, c.store.Location(""), deployment)
	}
	there, err := c.List(ctx, partition)
	if err != nil {
		return nil, err
	}
	have := map[int32]bool{}
	for i := range there {
		have[there[i].Partition] = true
	}
	for p := range have {
		if es, err := os.ReadDir(stateDir(c.opt.Data, p)); err == nil && len(es) > 0 {
			return nil, fmt.Errorf("%w: %s has a state of partition %d; move %s away to restore another one", ErrConfig, c.opt.Data, p, stateDir(c.opt.Data, p))
		}
	}
	out := []RestoredCheckpoint{}
	for p := range int32(c.partitions) {
		if !have[p] {
			continue
		}
		dir := stateDir(c.opt.Data, p)
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return out, fmt.Errorf("make the state folder: %w", err)
		}
		r, err := checkpoint.At(c.store, c.opt.Deployment, p).Restore(ctx, checkpoint.RestoreOptions{
			Dir: dir, Deployment: deployment, Partition: p, ID: id, Now: time.Now(), Log: c.opt.Logger, State: statestore.Options{Log: c.opt.Logger},
		})
		if err != nil {
			return out, err
		}
		out = append(out, RestoredCheckpoint{Partition: p, ID: r.Manifest.ID(), Offset: r.Manifest.Offset, Bytes: r.Manifest.Bytes(), Took: r.Took})
	}
	if len(out) == 0 {
		return out, fmt.Errorf("%w of deployment %s in %s", checkpoint.ErrNone, c.opt.Deployment, c.store.Location(""))
	}
	return out, nil
}
