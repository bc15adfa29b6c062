package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	progressLines = 3 * time.Second        // elsewhere than on a terminal
	progressBar   = 100 * time.Millisecond // on one
	barWidth      = 30
)

// progress tells on stderr how far a command is: a bar on a terminal, a line
// every few seconds elsewhere, nothing with --quiet.
type progress struct {
	mu       sync.Mutex
	w        io.Writer // nil: quiet
	terminal bool
	last     time.Time
	drawn    int // length of what stands on the terminal's line
}

func (a *app) progress() *progress {
	p := &progress{last: time.Now()}
	if a.quiet {
		return p
	}
	p.w = a.err
	if f, ok := a.err.(*os.File); ok {
		st, err := f.Stat()
		p.terminal = err == nil && st.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// set tells what is being done. fraction is 0 to 1, or below 0 when nobody
// knows.
func (p *progress) set(fraction float64, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	every := progressLines
	if p.terminal {
		every = progressBar
	}
	if p.w == nil || time.Since(p.last) < every {
		return
	}
	p.last = time.Now()
	text := fmt.Sprintf(format, args...)
	if fraction >= 0 {
		fraction = min(fraction, 1)
		if p.terminal {
			full := int(fraction * barWidth)
			text = fmt.Sprintf("[%s%s] %3.0f%%  %s", strings.Repeat("█", full), strings.Repeat("░", barWidth-full), fraction*100, text)
		} else {
			text = fmt.Sprintf("%s (%.0f%%)", text, fraction*100)
		}
	}
	if !p.terminal {
		fmt.Fprintln(p.w, text)
		return
	}
	width := textWidth(text)
	fmt.Fprintf(p.w, "\r%s%s", text, strings.Repeat(" ", max(0, p.drawn-width)))
	p.drawn = width
}

// done clears the bar.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && p.drawn > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.drawn))
		p.drawn = 0
	}
}

// notef tells the user something that is no result.
func (a *app) notef(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.err, format+"\n", args...)
	}
}
