package topology

import "sync"

// mailbox brings callbacks of the Kafka client to the goroutine that drives a
// processor. Posting never waits: what is under way is bounded by whoever
// asked for it.
type mailbox struct {
	mu     sync.Mutex
	fns    []func()
	signal chan struct{}
}

func newMailbox() *mailbox { return &mailbox{signal: make(chan struct{}, 1)} }

func (m *mailbox) post(fn func()) {
	m.mu.Lock()
	m.fns = append(m.fns, fn)
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// run calls what was posted, in order.
func (m *mailbox) run() {
	m.mu.Lock()
	fns := m.fns
	m.fns = nil
	m.mu.Unlock()
	for _, fn := range fns {
		fn()
	}
}
