package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/varve-io/varve/topology"
)

const (
	// maxEventBytes bounds one line of input.
	maxEventBytes = 64 << 20
	// eventBuffer is how much of a file is read at a time.
	eventBuffer = 1 << 20
)

// eventSource reads events from files, one a line.
type eventSource struct {
	paths   []string
	stdin   io.Reader
	records bool  // each line is a whole record
	total   int64 // bytes of all files, 0 when not known
	read    int64

	at     int // index of the open file
	file   *os.File
	lines  *bufio.Reader
	line   int
	queued []aheadEvent // read ahead, to be given again
	given  aheadEvent   // what next gave last
}

// aheadEvent is an event and where it was read.
type aheadEvent struct {
	*topology.SourceEvent
	at, line int
}

// newEventSource checks that the files are there. The path - is stdin.
func newEventSource(paths []string, stdin io.Reader, records bool) (*eventSource, error) {
	s := &eventSource{paths: paths, stdin: stdin, records: records}
	for _, p := range paths {
		if p == "-" {
			s.total = -1
			continue
		}
		st, err := os.Stat(p)
		if err != nil {
			return nil, usagef("events: %w", err)
		}
		if st.IsDir() {
			return nil, usagef("events: %s is a folder; name its files", p)
		}
		if s.total >= 0 {
			s.total += st.Size()
		}
	}
	s.total = max(s.total, 0)
	return s, nil
}

func (s *eventSource) close() error {
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	return f.Close()
}

// where names the line that was read last.
func (s *eventSource) where() string { return s.place(s.at, s.line) }

// whereGiven names the line of the event that next gave last, which is not the
// one read last where events were read ahead.
func (s *eventSource) whereGiven() string { return s.place(s.given.at, s.given.line) }

func (s *eventSource) place(at, line int) string {
	name := s.paths[min(at, len(s.paths)-1)]
	if name == "-" {
		name = "stdin"
	}
	return fmt.Sprintf("%s:%d", name, line)
}

// next is the next event, io.EOF at the end.
func (s *eventSource) next() (*topology.SourceEvent, error) {
	if len(s.queued) > 0 {
		s.given, s.queued = s.queued[0], s.queued[1:]
		return s.given.SourceEvent, nil
	}
	e, err := s.readEvent()
	if err != nil {
		return nil, err
	}
	s.given = aheadEvent{e, s.at, s.line}
	return e, nil
}

func (s *eventSource) readEvent() (*topology.SourceEvent, error) {
	for {
		line, err := s.nextLine()
		if err != nil {
			return nil, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if !s.records {
			return &topology.SourceEvent{Value: line, Partition: -1}, nil
		}
		e, err := parseRecord(line)
		if err != nil {
			return nil, usagef("%s: %w", s.where(), err)
		}
		return e, nil
	}
}

// sample reads ahead up to n events, or 64 MiB of them; next gives them again.
func (s *eventSource) sample(n int) ([]*topology.SourceEvent, error) {
	size := 0
	var ahead []*topology.SourceEvent
	var queued []aheadEvent
	for len(ahead) < n && size < maxEventBytes {
		e, err := s.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		size += len(e.Key) + len(e.Value)
		ahead = append(ahead, e)
		queued = append(queued, s.given)
	}
	s.queued = queued
	return ahead, nil
}

// nextLine is the next line of any file, in memory of its own.
func (s *eventSource) nextLine() ([]byte, error) {
	for {
		if s.lines == nil {
			if s.at >= len(s.paths) {
				return nil, io.EOF
			}
			var r io.Reader = s.stdin
			if p := s.paths[s.at]; p != "-" {
				f, err := os.Open(p)
				if err != nil {
					return nil, fmt.Errorf("events: %w", err)
				}
				s.file, r = f, f
			}
			s.lines, s.line = bufio.NewReaderSize(r, eventBuffer), 0
		}
		line, err := s.readLine()
		if s.line == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff")) // what some editors begin a file with is no event's
		}
		if err == nil {
			return line, nil
		}
		if !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %w", s.where(), err)
		}
		if err := s.close(); err != nil {
			return nil, fmt.Errorf("%s: %w", s.where(), err)
		}
		s.lines = nil
		s.at++
	}
}

func (s *eventSource) readLine() ([]byte, error) {
	var line []byte
	s.line++
	for {
		part, err := s.lines.ReadSlice('\n')
		s.read += int64(len(part))
		if len(line)+len(part) > maxEventBytes {
			return nil, fmt.Errorf("the line has more than %d bytes; one event is one line", maxEventBytes)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}

// recordLine is a line of --records.
type recordLine struct {
	Key         json.RawMessage            `json:"key"`
	Value       json.RawMessage            `json:"value"`
	KeyBase64   *string                    `json:"key_base64"`
	ValueBase64 *string                    `json:"value_base64"`
	Headers     map[string]json.RawMessage `json:"headers"`
	Partition   *int32                     `json:"partition"`
}

const recordForm = `{"key":…,"value":…,"headers":{…},"partition":n}, with key_base64 or value_base64 for bytes`

// parseRecord reads a whole Kafka record. A key or value that is a JSON text
// stands for that text, null for null, anything else for its own JSON.
func parseRecord(line []byte) (*topology.SourceEvent, error) {
	var r recordLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("no record: %w; a line is %s", shortJSONError(err), recordForm)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("no record: text behind its end; a line is %s", recordForm)
	}
	given := func(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
	if r.KeyBase64 != nil && given(r.Key) || r.ValueBase64 != nil && given(r.Value) {
		return nil, errors.New("a record has its key, or value, in one form only")
	}
	e := &topology.SourceEvent{Partition: -1}
	var err error
	if e.Key, err = recordBytes(r.Key, r.KeyBase64); err != nil {
		return nil, fmt.Errorf("the record's key: %w", err)
	}
	if e.Value, err = recordBytes(r.Value, r.ValueBase64); err != nil {
		return nil, fmt.Errorf("the record's value: %w", err)
	}
	if r.Partition != nil {
		if *r.Partition < 0 {
			return nil, fmt.Errorf("the record's partition is %d; it is 0 or more, or left out", *r.Partition)
		}
		e.Partition = *r.Partition
	}
	names := make([]string, 0, len(r.Headers))
	for k := range r.Headers {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		h := topology.Header{Key: k}
		if h.Value, err = recordBytes(r.Headers[k], nil); err != nil {
			return nil, fmt.Errorf("the record's header %q: %w", k, err)
		}
		e.Headers = append(e.Headers, h)
	}
	return e, nil
}

func recordBytes(raw json.RawMessage, b64 *string) ([]byte, error) {
	if b64 != nil {
		b, err := base64.StdEncoding.DecodeString(*b64)
		if err != nil {
			return nil, errors.New("it is no standard base64")
		}
		return b, nil
	}
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case raw[0] == '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, shortJSONError(err)
		}
		return []byte(s), nil
	}
	return raw, nil
}

// shortJSONError drops what an error of the JSON library repeats of its input.
func shortJSONError(err error) error {
	var typ *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &typ):
		return fmt.Errorf("%s is of the wrong type", typ.Field)
	case errors.As(err, &syntax):
		return fmt.Errorf("ill-formed JSON at byte %d", syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the JSON ends too early")
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return fmt.Errorf("unknown field %s", strings.TrimPrefix(err.Error(), "json: unknown field "))
	}
	return errors.New("ill-formed JSON")
}
