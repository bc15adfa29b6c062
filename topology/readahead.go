package topology

import (
	"context"
	"sync"

	"github.com/varve-io/varve/statestore"
)

// readAhead reads and decodes a log ahead of who applies it, on another goroutine.
type readAhead struct {
	full  chan *preparedBatch
	empty chan *preparedBatch
	now   *preparedBatch // given out by next
	stop  context.CancelFunc
	done  sync.WaitGroup
	log   records
}

// preparedBatch is records and room for what they say.
type preparedBatch struct {
	records []statestore.Record
	room    []statestore.Prepared
	err     error // why there are no more behind them
}

// aheadBatches bounds how far ahead it reads, in batches of the reader below.
const aheadBatches = 3

// aheadRecords is how many records a batch has at least, but for the last.
const aheadRecords = 512

// maxPrepared is how many records of a batch are prepared at most.
const maxPrepared = 4096

// openAhead takes over a log. Its close closes that.
func openAhead(ctx context.Context, log records) *readAhead {
	ctx, cancel := context.WithCancel(ctx)
	a := &readAhead{full: make(chan *preparedBatch, aheadBatches), empty: make(chan *preparedBatch, aheadBatches), stop: cancel, log: log}
	for range aheadBatches {
		a.empty <- &preparedBatch{}
	}
	a.done.Go(func() { a.run(ctx) })
	return a
}

func (a *readAhead) run(ctx context.Context) {
	defer close(a.full)
	var p statestore.Preparer
	for {
		var b *preparedBatch
		select {
		case b = <-a.empty:
		case <-ctx.Done():
			return
		}
		b.records, b.err = b.records[:0], nil
		for len(b.records) < aheadRecords && b.err == nil {
			var rs []statestore.Record
			rs, b.err = a.log.next(ctx)
			b.records = append(b.records, rs...)
		}
		n := min(len(b.records), maxPrepared)
		if len(b.room) < n {
			b.room = make([]statestore.Prepared, n)
		}
		for i := range n {
			p.Prepare(&b.records[i], &b.room[i])
		}
		last := b.err != nil
		a.full <- b // it has room: there are no more batches
		if last {
			return
		}
	}
}

// next gives the next records. They stand until it is called again.
func (a *readAhead) next(ctx context.Context) ([]statestore.Record, error) {
	if a.now != nil && a.now.err != nil {
		return nil, a.now.err
	}
	if a.now != nil {
		a.empty <- a.now
		a.now = nil
	}
	select {
	case b, ok := <-a.full:
		if !ok {
			return nil, context.Canceled
		}
		a.now = b
		if len(b.records) == 0 {
			return nil, b.err
		}
		return b.records, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *readAhead) close() {
	a.stop()
	a.done.Wait()
	a.log.close()
}
