package topology

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/varve-io/varve/statestore"
)

// fakeLog gives batches of records, then an error.
type fakeLog struct {
	batches [][]statestore.Record
	err     error
	closed  bool
}

func (f *fakeLog) next(ctx context.Context) ([]statestore.Record, error) {
	if len(f.batches) == 0 {
		if f.err == nil {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, f.err
	}
	b := f.batches[0]
	f.batches = f.batches[1:]
	return b, nil
}

func (f *fakeLog) close() { f.closed = true }

// TestReadAhead: all records come in order, then the error; closing ends a read
// that waits.
func TestReadAhead(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		sizes []int
		err   error
	}{
		{"empty", nil, io.EOF},
		{"one by one", []int{1, 1, 1, 1, 1, 1, 1, 1}, io.EOF},
		{"some", []int{3, 0, 5000, 1, 700}, broken},
		{"closed early", []int{600, 600, 600, 600, 600, 600, 600, 600, 600, 600}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := &fakeLog{err: c.err}
			want := int64(0)
			for _, n := range c.sizes {
				b := make([]statestore.Record, n)
				for i := range b {
					b[i].Offset = want
					want++
				}
				log.batches = append(log.batches, b)
			}
			a := openAhead(t.Context(), log)
			got := int64(0)
			for c.err != nil || got < 3 {
				rs, err := a.next(t.Context())
				if err != nil {
					if !errors.Is(err, c.err) {
						t.Errorf("ended with %v", err)
					}
					break
				}
				for i := range rs {
					if rs[i].Offset != got {
						t.Fatalf("offset %d, not %d", rs[i].Offset, got)
					}
					got++
				}
			}
			a.close()
			if !log.closed || c.err != nil && got != want {
				t.Errorf("%d of %d records, closed %t", got, want, log.closed)
			}
		})
	}
}
