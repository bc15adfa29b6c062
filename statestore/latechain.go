package statestore

import (
	"crypto/sha256"

	"github.com/varve-io/varve/schemas/record"
)

// lateChain takes chain hashes (L6) behind Apply, on another goroutine: each needs
// the one before, but nothing that is decided needs any.
type lateChain struct {
	buf  []byte // pieces of one batch, each with room for the hash before it
	ends []int
	// The batch that is being hashed, and what comes of it.
	busy     []byte
	busyEnds []int
	last     chan record.Hash // nil: none is being hashed
}

// lateRecords and lateBytes are how much is hashed at once.
const (
	lateRecords = 256
	lateBytes   = 1 << 20
)

// added ends a record's piece in buf, whose first bytes are room for the hash
// before it. It says whether the batch is large enough to be hashed.
func (l *lateChain) added() bool {
	l.ends = append(l.ends, len(l.buf))
	return len(l.ends) >= lateRecords || len(l.buf) >= lateBytes
}

// piece is the newest one.
func (l *lateChain) piece() []byte {
	from := 0
	if n := len(l.ends); n > 1 {
		from = l.ends[n-2]
	}
	return l.buf[from:]
}

// start has the batch hashed. chain is the hash before it, unless a batch is
// being hashed: its own counts then.
func (l *lateChain) start(chain record.Hash) {
	chain = l.wait(chain)
	l.buf, l.ends, l.busy, l.busyEnds = l.busy[:0], l.busyEnds[:0], l.buf, l.ends
	last := make(chan record.Hash, 1)
	l.last = last
	go func(b []byte, ends []int) {
		from := 0
		for _, to := range ends {
			copy(b[from:], chain[:])
			chain = sha256.Sum256(b[from:to])
			from = to
		}
		last <- chain
	}(l.busy, l.busyEnds)
}

// wait is the newest hash of those that were started, or else the one given.
func (l *lateChain) wait(chain record.Hash) record.Hash {
	if l.last != nil {
		chain = <-l.last
		l.last = nil
	}
	return chain
}
