package planner

import (
	"errors"
	"strings"
	"time"
)

// PropertyWindow is when jobs are planned, such as "01:00-05:00", or several by
// commas, in UTC; one whose end is before its beginning goes over midnight. Absent:
// always. Jobs that are open at its end go on.
const PropertyWindow = "varve.compaction.window"

// Window is a part of the day: minutes from midnight, To not included.
type Window struct{ From, To int }

var errWindow = errors.New("it is written as 01:00-05:00, hours and minutes in UTC, several by commas")

// parseWindows reads PropertyWindow.
func parseWindows(s string) (all []Window, _ error) {
	for part := range strings.SplitSeq(s, ",") {
		from, to, ok := strings.Cut(strings.TrimSpace(part), "-")
		a, err1 := minutes(from)
		b, err2 := minutes(to)
		if !ok || err1 != nil || err2 != nil || a == b || a == day {
			return nil, errWindow
		}
		all = append(all, Window{a, b})
	}
	return all, nil
}

const day = 24 * 60

func minutes(s string) (int, error) {
	if s == "24:00" {
		return day, nil
	}
	t, err := time.Parse("15:04", s)
	return t.Hour()*60 + t.Minute(), err
}

// Open says whether jobs may be planned at a time, which the caller's clock tells.
func (p *Policy) Open(at time.Time) bool {
	if len(p.Windows) == 0 {
		return true
	}
	at = at.UTC()
	m := at.Hour()*60 + at.Minute()
	for _, w := range p.Windows {
		if w.From < w.To && m >= w.From && m < w.To || w.From > w.To && (m >= w.From || m < w.To) {
			return true
		}
	}
	return false
}
