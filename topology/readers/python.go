package readers

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

//go:embed reader.py
var program string

// child is a process that answers one request a line. It ends when this
// process does: its standard input closes.
type child struct {
	command func() (*exec.Cmd, error)

	mu  sync.Mutex
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// children are the processes of the engines that are not in this one.
var children = func() map[Engine]*child {
	python := func(e Engine) *child {
		return &child{command: func() (*exec.Cmd, error) {
			return exec.Command(filepath.Join(FolderOf(e), "bin", "python"), "-u", "-c", program), nil
		}}
	}
	fast := python(DuckDB)
	return map[Engine]*child{DuckDB: fast, PyIceberg: fast, Polars: fast, Spark: python(Spark), Sail: python(Sail), Trino: {command: trinoCommand}}
}()

type request struct {
	Engine     Engine            `json:"engine"`
	Metadata   string            `json:"metadata"`
	Snapshot   int64             `json:"snapshot,omitempty"`
	Columns    []string          `json:"columns,omitempty"`
	Filter     string            `json:"filter,omitempty"`
	Lineage    bool              `json:"lineage,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
	URI        string            `json:"uri,omitempty"`
	Token      string            `json:"token,omitempty"`
}

type childAnswer struct {
	Error   string `json:"error"`
	Columns []struct {
		Name   string            `json:"name"`
		Kind   string            `json:"kind"`
		Values []json.RawMessage `json:"values"`
	} `json:"columns"`
}

// ErrEngine marks an error that the engine itself gave: it refused the table.
var ErrEngine = errors.New("engine error")

func (p *child) start(e Engine) error {
	if err := Available(e); err != nil {
		return err
	}
	cmd, err := p.command()
	if err != nil {
		return fmt.Errorf("start %s: %w", e, err)
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p.cmd, p.in, p.out = cmd, in, bufio.NewReaderSize(out, 1<<20)
	return nil
}

// Stop ends the process of an engine, if it has one; the next Read starts
// another. Spark and Trino hold a gigabyte each.
func Stop(e Engine) {
	if p := children[e]; p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stop()
	}
}

// stop ends the child; the next read starts another.
func (p *child) stop() {
	if p.cmd == nil {
		return
	}
	// Errors say only that it has ended already, which is what is wanted.
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.cmd = nil
}

func (p *child) read(ctx context.Context, engine Engine, metadata string, o Options) (*Table, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		if err := p.start(engine); err != nil {
			return nil, err
		}
	}
	req := request{Engine: engine, Metadata: metadata, Snapshot: o.Snapshot, Columns: o.Columns, Filter: o.Filter, Lineage: o.Lineage, Properties: o.Properties}
	if o.REST != nil {
		req.URI, req.Token = o.REST.URI, o.REST.Token
	}
	line, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	type result struct {
		line []byte
		err  error
	}
	done := make(chan result, 1)
	in, out := p.in, p.out
	go func() {
		if _, err := in.Write(append(line, '\n')); err != nil {
			done <- result{nil, err}
			return
		}
		b, err := out.ReadBytes('\n')
		done <- result{b, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
		p.stop()
		<-done // the closed pipe ends the read
		return nil, ctx.Err()
	}
	if r.err != nil {
		p.stop()
		return nil, fmt.Errorf("the process of %s ended: %w", engine, r.err)
	}
	var a childAnswer
	if err := json.Unmarshal(r.line, &a); err != nil {
		p.stop()
		return nil, fmt.Errorf("answer of the process of %s: %w", engine, err)
	}
	if a.Error != "" {
		return nil, fmt.Errorf("%w: %s", ErrEngine, a.Error)
	}
	t := &Table{}
	for c, col := range a.Columns {
		t.Columns = append(t.Columns, col.Name)
		if c == 0 {
			t.Rows = make([][]*string, len(col.Values))
			for i := range t.Rows {
				t.Rows[i] = make([]*string, len(a.Columns))
			}
		}
		for i, raw := range col.Values {
			if t.Rows[i][c], err = jsonText(col.Kind, raw); err != nil {
				return nil, fmt.Errorf("column %s, row %d: %w", col.Name, i, err)
			}
		}
	}
	return t, nil
}
