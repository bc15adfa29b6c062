package ingest

import (
	"github.com/varve-io/varve/schemas/source"
)

// settle holds a refused record back until the shard knows all that was in the
// log when the record came. Who changes the format of a table and then its
// producers may not find their first events among the dead letters, because the
// shard read the source faster than the log.
type settle struct {
	asks    int64 // to tell an old answer from a new one
	waiting bool
	until   int64 // log end that must be decided, -1: not known yet
	from    int64 // the refused record
	to      int64 // records below it are judged by a definition that is new enough
}

// aboutFormat says whether a refusal may only mean that the definition is older
// than the record.
func aboutFormat(j *source.Reject) bool {
	switch j.Code {
	case "malformed", "schema", "key", "unsupported-op":
		return true
	}
	return false
}

// unsettled says whether a refused record must wait. It is parked then.
func (s *Shard) unsettled(r *source.Record, j *source.Reject) bool {
	t := &s.settle
	if s.cfg.LogEnd == nil || !aboutFormat(j) || r.Offset < t.to {
		return false
	}
	if t.waiting {
		return true
	}
	t.asks++
	t.waiting, t.until, t.from = true, -1, r.Offset
	asked, epoch := t.asks, s.epoch
	s.cfg.LogEnd(func(end int64, err error) {
		if asked != t.asks || epoch != s.epoch || s.stage != Running {
			return
		}
		if err != nil {
			t.waiting = false // asked again with the next attempt
			s.wait(&s.sourceWait, err)
			return
		}
		t.until = end
	})
	return true
}

// settled lets parked records go on once what they waited for is decided.
func (s *Shard) settled() bool {
	t := &s.settle
	if !t.waiting {
		return true
	}
	if t.until < 0 || s.decided < t.until-1 {
		return false
	}
	// All parked records had come when the log's end was asked for.
	t.waiting = false
	t.to = max(t.from+1, s.parkedTo)
	return true
}
