package topology

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestPatiently: what passes by itself is asked again; what does not is told at once.
func TestPatiently(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	shards := func(errs ...error) error {
		s := &kadm.ShardErrors{Name: "ListOffsets"}
		for _, err := range errs {
			s.Errs = append(s.Errs, kadm.ShardError{Err: err})
		}
		return s
	}
	for _, c := range []struct {
		err   error
		again bool
	}{
		{fmt.Errorf("unable to dial: %w", refused), true},
		{shards(fmt.Errorf("unable to dial: %w", refused)), true},
		{shards(kerr.NotLeaderForPartition, io.EOF), true},
		{shards(kerr.NotLeaderForPartition, kerr.TopicAuthorizationFailed), false},
		{shards(), false},
		{kerr.TopicAuthorizationFailed, false},
		{errors.New("something else"), false},
	} {
		asked := 0
		err := patiently(context.Background(), func() error {
			if asked++; asked == 1 {
				return c.err
			}
			return nil
		})
		if again := asked == 2; again != c.again || (err != nil) == c.again {
			t.Errorf("%v: asked %d times, then %v", c.err, asked, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := patiently(ctx, func() error { return refused }); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a caller that gave up gets %v", err)
	}
}
