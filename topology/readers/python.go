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

// pythonProcess is the one child that runs reader.py. It ends when this
// process does: its standard input closes.
type pythonProcess struct {
	mu  sync.Mutex
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

var python pythonProcess

type pythonRequest struct {
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

type pythonAnswer struct {
	Error   string `json:"error"`
	Columns []struct {
		Name   string            `json:"name"`
		Kind   string            `json:"kind"`
		Values []json.RawMessage `json:"values"`
	} `json:"columns"`
}

// ErrEngine marks an error that the engine itself gave: it refused the table.
var ErrEngine = errors.New("engine error")

func (p *pythonProcess) start() error {
	if err := Available(DuckDB); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(Folder(), "bin", "python"), "-u", "-c", program)
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

// stop ends the child; the next read starts another.
func (p *pythonProcess) stop() {
	if p.cmd == nil {
		return
	}
	// Errors say only that it has ended already, which is what is wanted.
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.cmd = nil
}

func (p *pythonProcess) read(ctx context.Context, engine Engine, metadata string, o Options) (*Table, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		if err := p.start(); err != nil {
			return nil, err
		}
	}
	req := pythonRequest{Engine: engine, Metadata: metadata, Snapshot: o.Snapshot, Columns: o.Columns, Filter: o.Filter, Lineage: o.Lineage, Properties: o.Properties}
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
		return nil, fmt.Errorf("the Python process ended: %w", r.err)
	}
	var a pythonAnswer
	if err := json.Unmarshal(r.line, &a); err != nil {
		p.stop()
		return nil, fmt.Errorf("answer of the Python process: %w", err)
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
