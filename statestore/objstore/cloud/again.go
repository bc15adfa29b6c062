package cloud

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// bodyAttempts is how often an answer's body is read: drivers send a
	// request again until its answer begins, and not when it breaks off.
	bodyAttempts = 4
	bodyWait     = 100 * time.Millisecond
)

// again calls read until it does not ask for another attempt.
func again(ctx context.Context, read func() (more bool, err error)) error {
	for attempt, wait := 1, bodyWait; ; attempt, wait = attempt+1, 2*wait {
		more, err := read()
		if err == nil || !more || attempt == bodyAttempts {
			return err
		}
		t := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-ctx.Done():
			t.Stop()
			return err
		case <-t.C:
		}
	}
}
