package statestore_test

import (
	"bytes"
	"fmt"
	randv2 "math/rand/v2"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/statestore"
)

type pair struct{ key, value []byte }

func dumpOf(st *statestore.Store) ([]pair, error) {
	var out []pair
	return out, st.Dump(func(k, v []byte) error {
		out = append(out, pair{k, v})
		return nil
	})
}

func equalDumps(want, got *statestore.Store) error {
	a, err := dumpOf(want)
	if err != nil {
		return err
	}
	b, err := dumpOf(got)
	if err != nil {
		return err
	}
	for i := range a {
		if i >= len(b) || !bytes.Equal(a[i].key, b[i].key) {
			return fmt.Errorf("state key %q is missing or another", a[i].key)
		}
		if !bytes.Equal(a[i].value, b[i].value) {
			return fmt.Errorf("state key %q holds %x, not %x", a[i].key, b[i].value, a[i].value)
		}
	}
	if len(b) > len(a) {
		return fmt.Errorf("state key %q should not be there", b[len(a)].key)
	}
	return nil
}

// replayEquals applies a log anew: in batches of any size, with a cache of any
// size, by a store that is closed and opened again and that loses what was not
// flushed. It must decide every record as before and end with want's state.
func replayEquals(want *statestore.Store, log []statestore.Record, chains []record.Hash, rng *randv2.Rand) error {
	fs := vfs.NewCrashableMem()
	cache := int64(1) << (10 + rng.IntN(14))
	// One that nobody hears, whose records are prepared ahead, decides alike.
	silent := rng.IntN(2) == 0
	var ahead statestore.Preparer
	var room statestore.Prepared
	open := func() (*statestore.Store, error) {
		if silent {
			return openSilent(fs, cache)
		}
		return openMem(fs, cache)
	}
	st, err := open()
	if err != nil {
		return err
	}
	defer func() { st.Close() }()
	batch := 1 + rng.IntN(40)
	for restarts := 0; st.Head().Offset+1 < int64(len(log)); {
		r := log[st.Head().Offset+1]
		// Apply keeps nothing of the record's bytes.
		r.Key, r.Header, r.Value = slices.Clone(r.Key), slices.Clone(r.Header), slices.Clone(r.Value)
		if silent && rng.IntN(8) > 0 {
			ahead.Prepare(&r, &room)
		}
		out, err := applyFetching(st, &r)
		if err != nil {
			return err
		}
		if silent && rng.IntN(20) == 0 {
			out.Chain = st.Head().Chain
		}
		if out.Chain != chains[r.Offset] && (!silent || out.Chain != record.Hash{}) {
			return fmt.Errorf("log offset %d: another hash", r.Offset)
		}
		clear(r.Key)
		clear(r.Header)
		clear(r.Value)
		if rng.IntN(batch) == 0 {
			if _, err := st.Commit(); err != nil {
				return err
			}
		}
		if rng.IntN(30) == 0 {
			if err := st.Flush(); err != nil {
				return err
			}
		}
		if restarts < 8 && rng.IntN(40) == 0 {
			restarts++
			crash := rng.IntN(2) == 0
			clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			if err := st.Close(); err != nil {
				return err
			}
			if crash {
				fs = clone
			}
			if st, err = open(); err != nil {
				return err
			}
		}
	}
	if _, err := st.Commit(); err != nil {
		return err
	}
	if st.Head().Chain != want.Head().Chain {
		return fmt.Errorf("the last hash is another")
	}
	return equalDumps(want, st)
}
