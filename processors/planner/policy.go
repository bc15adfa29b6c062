package planner

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/varve-io/varve/schemas"
)

// Table properties. Bytes are plain numbers.
const (
	// PropertyStrategy is a list of strategies by commas, tried in that order, or
	// "none". Default: DefaultStrategy.
	PropertyStrategy = "varve.compaction.strategy"
	// PropertyPaused "true" ends the planning of jobs; those that are open go on.
	PropertyPaused = "varve.compaction.paused"
	// PropertyTarget is the size of an output. Default: PropertyTargetIceberg, else
	// DefaultTargetBytes.
	PropertyTarget = "varve.compaction.target-bytes"
	// PropertyTargetIceberg is Iceberg's own name for it.
	PropertyTargetIceberg = "write.target-file-size-bytes"
	PropertyRatio         = "varve.compaction.ratio"    // from 1 to 1000; default DefaultRatio
	PropertyBatch         = "varve.compaction.batch"    // from 2 to MaxInputs; default DefaultBatch
	PropertyReads         = "varve.compaction.reads"    // from 0 to 1000000; default DefaultReads
	PropertyMaxJobs       = "varve.compaction.max-jobs" // open at a time; default DefaultMaxJobs
)

// Defaults of a policy.
const (
	DefaultStrategy    = "deletes,size-ratio"
	DefaultTargetBytes = 512 << 20
	DefaultRatio       = 3
	DefaultBatch       = 12
	DefaultReads       = 5
	DefaultMaxJobs     = 1000
	// MaxInputs of a job (F3: an ordinal is a byte).
	MaxInputs = 256
	// minSmall is the fewest files that small-files puts together, unless they
	// fill an output.
	minSmall  = 5
	maxTarget = 1 << 40
)

// Strategy names a way to choose files.
type Strategy string

// Strategies.
const (
	SizeRatio  Strategy = "size-ratio"
	SmallFiles Strategy = "small-files"
	Deletes    Strategy = "deletes"
	Full       Strategy = "full"
)

// Strategies are all there are.
func Strategies() []string {
	return []string{string(Deletes), string(SizeRatio), string(SmallFiles), string(Full)}
}

// ParseStrategies reads a list by commas; "none" is the empty list.
func ParseStrategies(s string) ([]Strategy, error) {
	if s == "none" {
		return nil, nil
	}
	var out []Strategy
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(Strategies(), name) {
			return nil, fmt.Errorf("%q is no compaction strategy; there are %s, and none", name, strings.Join(Strategies(), ", "))
		}
		if !slices.Contains(out, Strategy(name)) {
			out = append(out, Strategy(name))
		}
	}
	return out, nil
}

// Policy is how a table is compacted.
type Policy struct {
	Strategies  []Strategy
	Paused      bool
	TargetBytes int64
	Ratio       int64
	Batch       int
	Reads       int64
	MaxJobs     int64
	Windows     []Window // when jobs are planned; none: always
	SplitBytes  int64    // 0: leaves of the table's tree are not split
}

// PolicyOf reads a table's properties. One that makes no sense is an error that
// names it, and the default stands in its place.
func PolicyOf(d *schemas.Definition) (Policy, error) {
	p := Policy{TargetBytes: DefaultTargetBytes, Ratio: DefaultRatio, Batch: DefaultBatch, Reads: DefaultReads, MaxJobs: DefaultMaxJobs}
	var bad error
	note := func(key, value string, err error) {
		if bad == nil {
			bad = fmt.Errorf("table %s: property %s is %q: %w; the default is used", d.Name, key, value, err)
		}
	}
	number := func(key string, dst *int64, from, to int64) {
		text, ok := property(d, key)
		if !ok {
			return
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < from || n > to {
			note(key, text, fmt.Errorf("it is a number from %d to %d", from, to))
			return
		}
		*dst = n
	}
	batch := int64(p.Batch)
	number(PropertyTargetIceberg, &p.TargetBytes, 1, maxTarget)
	number(PropertyTarget, &p.TargetBytes, 1, maxTarget)
	number(PropertyRatio, &p.Ratio, 1, 1000)
	number(PropertyBatch, &batch, 2, MaxInputs)
	number(PropertyReads, &p.Reads, 0, 1_000_000)
	number(PropertyMaxJobs, &p.MaxJobs, 0, 1<<40)
	number(PropertySplit, &p.SplitBytes, 0, 1<<50)
	p.Batch = int(batch)
	if text, ok := property(d, PropertyPaused); ok {
		v, err := strconv.ParseBool(text)
		if err != nil {
			note(PropertyPaused, text, fmt.Errorf("it is true or false"))
		}
		p.Paused = v
	}
	if text, ok := property(d, PropertyWindow); ok {
		var err error
		if p.Windows, err = parseWindows(text); err != nil {
			note(PropertyWindow, text, err)
		}
	}
	text, ok := property(d, PropertyStrategy)
	if !ok {
		text = DefaultStrategy
	}
	var err error
	if p.Strategies, err = ParseStrategies(text); err != nil {
		note(PropertyStrategy, text, err)
		if p.Strategies, err = ParseStrategies(DefaultStrategy); err != nil {
			return p, err
		}
	}
	return p, bad
}

func property(d *schemas.Definition, key string) (string, bool) {
	for i := range d.Properties {
		if d.Properties[i].Key == key {
			return d.Properties[i].Value, true
		}
	}
	return "", false
}
