package topology

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
)

// A deployment is three things that must belong together: a log, a warehouse
// and a data folder. Its id stands in each: in the genesis of the log (L8), in
// the warehouse's mark, in node.json. A node that meets another one, or none
// where there must be one, has appended nothing yet and stops.

// maxMarkBytes bounds what is read of a warehouse's mark.
const maxMarkBytes = 64

// markKey is the object by which a warehouse says whose it is.
func markKey(deployment string) string { return "_varve/" + deployment + "/deployment" }

// checkFolder refuses a log that is not the one the data folder was made with.
func (n *Node) checkFolder(old *nodeFile) error {
	if id := fmt.Sprintf("%x", n.id); old != nil && old.ID != "" && old.ID != id {
		return fmt.Errorf("%w: %s belongs to the log with id %s, but topic %s at %v is the log with id %s; are these the right brokers? "+
			"If that log is lost, start anew with another data folder, warehouse and deployment name", ErrConfig, n.opt.Data, old.ID, n.topics.Transactions, n.client.Brokers, id)
	}
	return nil
}

// checkLogThere refuses to make a log anew for a folder that had one: its
// state, its lake and its sources' offsets would mean nothing in it.
func (n *Node) checkLogThere(ctx context.Context, old *nodeFile) error {
	if old == nil || old.ID == "" {
		return nil
	}
	_, err := n.admin.Topic(ctx, n.topics.Transactions)
	if errors.Is(err, ErrNoTopic) {
		return fmt.Errorf("%w: the log of %s is not at %v: topic %s: %w; are these the right brokers? "+
			"Restore the topic (embedded broker: its folder) from a copy; if it is lost, start anew with another data folder, warehouse and deployment name",
			ErrConfig, n.opt.Data, n.client.Brokers, n.topics.Transactions, ErrNoTopic)
	}
	return err
}

// genesisID is the request id of a genesis: it begins with a name of the
// warehouse that its writer has, so that the log decides whose warehouse a
// deployment gets when nodes with different ones start it at once.
func (n *Node) genesisID() record.RequestID {
	id := record.NewRequestID()
	name := n.warehouseName()
	copy(id[:], name[:])
	return id
}

func (n *Node) warehouseName() (name [8]byte) {
	id := record.RequestIDFrom("warehouse", []byte(n.store.Location("")), []byte(storeURL(n.opt.Warehouse)))
	copy(name[:], id[:])
	return name
}

// tryWarehouse finds out whether a warehouse can be used before a log begins
// that names it.
func (n *Node) tryWarehouse(ctx context.Context) error {
	err := ask(ctx, n.store.Location(""), func(ctx context.Context) error {
		_, err := n.store.ReadAll(ctx, markKey(n.opt.Deployment), maxMarkBytes)
		return err
	})
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return n.checkConditional(ctx)
	case err == nil || errors.Is(err, objstore.ErrTooLarge):
		return nil // checkWarehouse says what is wrong with it
	}
	return fmt.Errorf("read the warehouse's mark: %w", err)
}

// markWait is how long a node waits for the mark of the node that began the
// log, which may reach the same store by another URL.
const markWait = 10 * time.Second

// marked waits for the mark of a warehouse that another node is to make, and is
// an error when it does not come.
func (n *Node) marked(ctx context.Context, key, id string) error {
	where := n.store.Location("")
	for end := time.Now().Add(markWait); ; {
		have, err := n.store.ReadAll(ctx, key, maxMarkBytes)
		if err == nil && string(have) == id {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w: deployment %s was begun by a node with another warehouse than %s, and has one: name that one with --warehouse, or another deployment", ErrConfig, n.opt.Deployment, where)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// checkWarehouse makes sure that the warehouse is the log's. A log that holds
// nothing but its genesis marks it; later a warehouse without the mark is
// another one, in which the objects that the log names are missing.
func (n *Node) checkWarehouse(ctx context.Context) error {
	id := fmt.Sprintf("%x", n.id)
	key := markKey(n.opt.Deployment)
	where := n.store.Location("")
	// Before the mark: a node that started with this one makes it, then writes.
	fresh, err := n.logFresh(ctx)
	if err != nil {
		return err
	}
	var have []byte
	err = ask(ctx, where, func(ctx context.Context) (err error) {
		have, err = n.store.ReadAll(ctx, key, maxMarkBytes)
		return err
	})
	switch {
	case err == nil && string(have) == id:
		return n.checkCopy(key, id)
	case err == nil && isID(have):
		return fmt.Errorf("%w: warehouse %s belongs to another deployment of the name %s: its mark %s says %.40q, the log is %s; name another warehouse or another deployment",
			ErrConfig, where, n.opt.Deployment, key, have, id)
	case err == nil || errors.Is(err, objstore.ErrTooLarge):
		return n.noMark(ctx, key)
	case !errors.Is(err, objstore.ErrNotFound):
		return fmt.Errorf("read the warehouse's mark: %w", err)
	}
	if !fresh {
		return fmt.Errorf("%w: %s is not the warehouse of deployment %s: %s is not there, but the log has records already; name the deployment's own warehouse with --warehouse (if it is this one and only its mark was lost, make that object with the content %s)",
			ErrConfig, where, n.opt.Deployment, key, id)
	}
	if name := n.warehouseName(); string(n.begun[:len(name)]) != string(name[:]) {
		return n.marked(ctx, key, id)
	}
	if err := n.checkConditional(ctx); err != nil {
		return err
	}
	return n.markWarehouse(ctx, key, id)
}

// checkCopy refuses a copied data folder with its own copy of the embedded broker:
// tables lie where the original has its lake, and two logs would each go on with them.
func (n *Node) checkCopy(key, id string) error {
	if len(n.opt.Brokers) > 0 {
		return nil // of one log any folder may be
	}
	dir, local := localFolder(n.store.Location(""))
	own := filepath.Join(n.opt.Data, "lake")
	mark, err := os.ReadFile(filepath.Join(own, filepath.FromSlash(key)))
	if !local || err != nil || string(mark) != id {
		return nil
	}
	theirs, err := os.Stat(dir)
	if err != nil {
		return nil // the store itself was read: this path is another spelling of it
	}
	if ours, err := os.Stat(own); err == nil && !os.SameFile(ours, theirs) {
		return fmt.Errorf("%w: the data folder %s is a copy of the one whose lake is %s: both would change the same tables, each by a log of its own, and its own lake at %s is not used; run the original, or put the copy in its place (where the original is gone for good, and only its lake is left, remove %s)",
			ErrConfig, n.opt.Data, dir, own, own)
	}
	return nil
}

// isID says whether a mark holds a deployment's id.
func isID(mark []byte) bool {
	var id [16]byte
	n, err := hex.Decode(id[:], mark[:min(len(mark), 2*len(id))])
	return err == nil && n == len(id) && len(mark) == 2*len(id)
}

// noMark says what stands in the place of a warehouse's mark. Whatever answers
// any question with a page is no store.
func (n *Node) noMark(ctx context.Context, key string) error {
	where := n.store.Location("")
	at := where
	if u, err := url.Parse(storeURL(n.opt.Warehouse)); err == nil && u.Query().Get("endpoint") != "" {
		at = u.Query().Get("endpoint")
	}
	var begin [256]byte
	read := 0
	o, err := n.store.Open(ctx, key)
	if err == nil {
		read, err = o.ReadAt(begin[:], 0)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		err = errors.Join(err, o.Close())
	}
	if err != nil {
		return fmt.Errorf("read the warehouse's mark: %w", err)
	}
	text := strings.ToLower(strings.TrimSpace(strings.TrimPrefix(string(begin[:read]), "\ufeff")))
	for _, page := range []string{"<!doctype html", "<html", "<head", "<body"} {
		if strings.HasPrefix(text, page) {
			return fmt.Errorf("%w: the endpoint at %s answers with HTML, not with a store's objects: a web page is served there; give the address of the store", ErrConfig, at)
		}
	}
	return fmt.Errorf("%w: warehouse %s: the object %s, which says whose it is, holds something else than a deployment's id: either it was overwritten, or what answers at %s is no store", ErrConfig, where, key, at)
}

// markAttempts bounds how often the mark is tried: nodes that start together
// all make it at once, and some stores then fail all but one of them.
const markAttempts = 5

func (n *Node) markWarehouse(ctx context.Context, key, id string) error {
	where := n.store.Location("")
	return ask(ctx, where, func(ctx context.Context) error {
		for attempt := 1; ; attempt++ {
			err := n.store.Create(ctx, key, []byte(id))
			if err == nil {
				return nil
			}
			if errors.Is(err, objstore.ErrExists) {
				return fmt.Errorf("%w: warehouse %s was taken by another deployment of the name %s meanwhile; name another warehouse or another deployment", ErrConfig, where, n.opt.Deployment)
			}
			if errors.Is(err, objstore.ErrSetup) || attempt == markAttempts {
				return fmt.Errorf("mark the warehouse: %w", err)
			}
			if e := sleep(ctx, time.Duration(attempt)*100*time.Millisecond); e != nil {
				return fmt.Errorf("mark the warehouse: %w", err)
			}
		}
	})
}

// mostGeneses is how many nodes may start a deployment at once: each may write a
// genesis, of which the first counts (genesis).
const mostGeneses = 256

// logFresh says whether the log holds geneses alone.
func (n *Node) logFresh(ctx context.Context) (bool, error) {
	offsets, err := n.admin.Offsets(ctx, n.topics.Transactions)
	if err != nil {
		return false, err
	}
	for p := range offsets {
		if offsets[p].Start > 0 || offsets[p].High > mostGeneses {
			return false, nil
		}
		if offsets[p].High <= 1 {
			continue
		}
		fresh, err := n.onlyGeneses(ctx, int32(p), offsets[p].High)
		if err != nil || !fresh {
			return false, err
		}
	}
	return true, nil
}

func (n *Node) onlyGeneses(ctx context.Context, p int32, high int64) (bool, error) {
	r, err := OpenLogReader(ctx, n.client, ReaderOptions{Topic: n.topics.Transactions, Partition: p, MaxBytes: 1 << 20})
	if err != nil {
		return false, err
	}
	defer r.Close()
	for r.Next() < high {
		rs, err := r.Poll(ctx, time.Second, mostGeneses)
		if err != nil {
			return false, err
		}
		for i := range rs {
			x := stateRecord(&rs[i])
			if _, typ, _, _, ok := record.PeekHeader(x.Header); !ok || typ != record.TypeSetApplyVersion {
				return false, nil
			}
		}
	}
	return true, nil
}

// identity is the log's: that of the genesis, and for a partition that no longer
// has it, that of the warehouse's mark. States and checkpoints are held against it.
func (n *Node) identity(ctx context.Context, p, of int32, start int64) (id [16]byte, err error) {
	if start == 0 {
		return n.readGenesis(ctx, p, of)
	}
	key := markKey(n.opt.Deployment)
	have, err := n.store.ReadAll(ctx, key, maxMarkBytes)
	if err == nil {
		if k, e := hex.Decode(id[:], have[:min(len(have), 2*len(id))]); e != nil || k != len(id) {
			err = errors.New("it holds something else")
		}
	}
	if err != nil {
		return id, fmt.Errorf("%w: topic %s partition %d begins at offset %d: its genesis is gone, and which log it is cannot be read from the warehouse's mark %s: %w; is this the right warehouse?",
			ErrLogTrimmed, n.topics.Transactions, p, start, n.store.Location(key), err)
	}
	return id, nil
}

// checkConditional makes sure that the store refuses to make an object that is
// there (C2): one that ignores the condition would let two publishers overwrite
// each other's versions.
func (n *Node) checkConditional(ctx context.Context) error {
	key := "_varve/" + n.opt.Deployment + "/probe-" + rand.Text()
	where := n.store.Location("")
	return ask(ctx, where, func(ctx context.Context) error {
		if err := n.store.CreateExclusive(ctx, key, []byte("first")); err != nil && !errors.Is(err, objstore.ErrExists) {
			return fmt.Errorf("try the warehouse: %w", err)
		}
		err := n.store.CreateExclusive(ctx, key, []byte("second"))
		if e := n.store.Delete(ctx, key); e != nil {
			return fmt.Errorf("try the warehouse: %w", e)
		}
		switch {
		case err == nil:
			return fmt.Errorf("%w: the store of %s ignores conditional writes (If-None-Match): it replaced an object that was there; "+
				"use a store that has them, or add conditional_writes=false to the URL and let one node alone publish", ErrConfig, where)
		case !errors.Is(err, objstore.ErrExists):
			return fmt.Errorf("try the warehouse: %w", err)
		}
		return nil
	})
}
