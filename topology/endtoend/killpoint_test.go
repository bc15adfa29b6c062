package endtoend

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore/objstore"
)

// A killPoint is where a child process ends itself by SIGKILL, as soon as it gets
// there. It is either a message of Kafka, or a call of the object store.
type killPoint struct {
	// Topic is "transactions", "outcomes" or "jobs", When one of the moments below.
	Topic string      `json:",omitempty"`
	When  string      `json:",omitempty"`
	Type  record.Type `json:",omitempty"` // of the record or outcome
	// Message is "dispatch" or "heartbeat", of the jobs topic.
	Message string `json:",omitempty"`
	// Op is "open", "write" (to an object in the making), "put" (an object is there,
	// whole) or "delete", and Key a pattern of what it is called with.
	Op    string `json:",omitempty"`
	Key   string `json:",omitempty"`
	After bool   `json:",omitempty"` // once the call has had its effect
}

// Moments of a message.
const (
	beforeSend = "before it is sent"
	afterSend  = "the broker has it, nobody was told"
	onRead     = "taken from the broker, nothing was done with it"
	onOffsets  = "the group's offsets are on their way"
)

// armed is the child's kill point; nil: none.
var armed atomic.Pointer[killPoint]

// die is the end of this process.
func die() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	fmt.Fprintln(os.Stderr, "child: at its kill point: ", err)
	time.Sleep(time.Minute) // nothing behind the point is done
}

// follow takes kill points, one a line, until the parent is gone.
func follow(in io.Reader) error {
	s := bufio.NewScanner(in)
	for s.Scan() {
		p := new(killPoint)
		if err := json.Unmarshal(s.Bytes(), p); err != nil {
			return err
		}
		armed.Store(p)
		fmt.Println("armed")
	}
	return s.Err()
}

// killHooks see what the Kafka clients of a child do.
type killHooks struct{ deployment string }

func (h *killHooks) at(when string, r *kgo.Record) {
	p := armed.Load()
	if p == nil || p.When != when || r.Topic != h.deployment+"."+p.Topic {
		return
	}
	switch p.Topic {
	case "transactions":
		var env record.Envelope
		for _, x := range r.Headers {
			if x.Key == record.HeaderKey && record.DecodeEnvelope(r.Key, x.Value, r.Value, &env) == nil && env.Type == p.Type {
				die()
			}
		}
	case "outcomes":
		var m record.OutcomeMessage
		if record.DecodeOutcomeMessage(r.Key, r.Value, &m) == nil && m.Type == p.Type {
			die()
		}
	case "jobs":
		if record.IsHeartbeat(r.Value) == (p.Message == "heartbeat") {
			die()
		}
	}
}

func (h *killHooks) OnProduceRecordBuffered(r *kgo.Record) { h.at(beforeSend, r) }

func (h *killHooks) OnProduceRecordUnbuffered(r *kgo.Record, err error) {
	if err == nil {
		h.at(afterSend, r)
	}
}

func (h *killHooks) OnFetchRecordUnbuffered(r *kgo.Record, polled bool) {
	if polled {
		h.at(onRead, r)
	}
}

// OnBrokerWrite is told of requests; 8 is OffsetCommit.
func (h *killHooks) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if p := armed.Load(); p != nil && p.When == onOffsets && key == 8 {
		die()
	}
}

// killScheme is that of warehouses with kill points: a folder.
const killScheme = "killable"

func init() {
	objstore.Register(killScheme, func(ctx context.Context, u *url.URL, _ string) (objstore.Store, error) {
		s, err := objstore.Open(ctx, u.Path)
		return &killStore{s}, err
	})
}

// killStore is a store whose calls are kill points.
type killStore struct{ objstore.Store }

func storeCall(op, key string, call func() error) error {
	p := armed.Load()
	here := p != nil && p.Op == op && regexp.MustCompile(p.Key).MatchString(key)
	if here && !p.After {
		die()
	}
	err := call()
	if here {
		die()
	}
	return err
}

func (s *killStore) Create(ctx context.Context, key string, data []byte) error {
	return storeCall("put", key, func() error { return s.Store.Create(ctx, key, data) })
}

func (s *killStore) CreateExclusive(ctx context.Context, key string, data []byte) error {
	return storeCall("put", key, func() error { return s.Store.CreateExclusive(ctx, key, data) })
}

func (s *killStore) Replace(ctx context.Context, key string, data []byte) error {
	return storeCall("put", key, func() error { return s.Store.Replace(ctx, key, data) })
}

func (s *killStore) Open(ctx context.Context, key string) (o objstore.Object, err error) {
	err = storeCall("open", key, func() (err error) {
		o, err = s.Store.Open(ctx, key)
		return err
	})
	return o, err
}

func (s *killStore) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys { // one by one, so that the first may go alone
		if err := storeCall("delete", key, func() error { return s.Store.Delete(ctx, key) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *killStore) Writer(ctx context.Context, key string) (objstore.Writer, error) {
	w, err := s.Store.Writer(ctx, key)
	return &killWriter{w, key}, err
}

type killWriter struct {
	objstore.Writer
	key string
}

func (w *killWriter) Write(b []byte) (n int, err error) {
	err = storeCall("write", w.key, func() (err error) {
		n, err = w.Writer.Write(b)
		return err
	})
	return n, err
}

func (w *killWriter) Commit() error { return storeCall("put", w.key, w.Writer.Commit) }
