package sim

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

var (
	seedFlag  = flag.Int64("seed", -1, "run this one seed and print its trace")
	seedsFlag = flag.Int("seeds", 25, "number of seeds of each shape")
)

// shapes are the worlds that every seed runs through.
var shapes = []struct {
	name string
	opt  Options
}{
	{"plain", Options{Shards: 1, Keys: 6, Steps: 300}},
	{"ordered", Options{Shards: 1, Keys: 5, Steps: 300, Ordered: true}},
	{"crashes", Options{Shards: 2, Keys: 8, Steps: 500, Ordered: true, Crashes: true, Requests: true}},
	{"two-owners", Options{Shards: 1, Keys: 5, Steps: 500, Ordered: true, Crashes: true, TwoOwners: true, Requests: true, FlushEvery: 3}},
	{"hashed", Options{Shards: 2, Keys: 8, Steps: 400, Strings: true, Crashes: true, TwoOwners: true, Requests: true}},
}

func TestSeeds(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			from, to := int64(0), int64(*seedsFlag)
			if *seedFlag >= 0 {
				from, to = *seedFlag, *seedFlag+1
			}
			for seed := from; seed < to; seed++ {
				opt := s.opt
				opt.Seed = seed
				if *seedFlag >= 0 {
					opt.Trace = os.Stderr
				}
				if err := runSeed(opt); err != nil {
					t.Fatalf("seed %d: %v\nrepeat: go test ./processors/sim -run 'TestSeeds/%s$' -seed %d", seed, err, s.name, seed)
				}
			}
		})
	}
}

func runSeed(opt Options) (err error) {
	w, err := NewWorld(opt)
	if err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			panic(fmt.Sprintf("seed %d: %v", opt.Seed, r))
		}
	}()
	if err := w.Run(); err != nil {
		return err
	}
	return w.Close()
}
