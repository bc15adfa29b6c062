package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"time"

	"github.com/varve-io/varve/schemas/record"
	"github.com/varve-io/varve/topology"
)

// nodeSpec tells a node process what to be. It is the first JSON value on its
// standard input.
type nodeSpec struct {
	Brokers    []string
	Deployment string
	Data       string
	Partitions int
	Roles      []string
	Warehouse  string
	// Groups: the node shares the deployment with others, under this id, and takes
	// these source partitions for itself.
	Groups           bool
	NodeID           string
	SourcePartitions []int32
	Session          time.Duration // 0: the default one
	Checkpoints      topology.CheckpointOptions
	Jobs             topology.JobOptions
	// Table, if any, is created where needed and ingested: the body of a
	// CreateTable record.
	Table []byte
	// Load: measure until everything that the table's source holds is in a
	// committed snapshot. Else the node works until its input says "stop".
	Load       bool
	CPUProfile string
	// Compact, if any, makes the process no node: it runs this and reports.
	Compact *compactTask `json:",omitempty"`
	// State likewise.
	State *stateTask `json:",omitempty"`
	// Verify likewise.
	Verify *verifyTask `json:",omitempty"`
}

// nodeReport is what a node process says on its standard output: once when it
// is ready, once at its end.
type nodeReport struct {
	CPU     float64 // processor time between ready and the end, in seconds
	Wall    float64 // the same by the clock
	RSSPeak int64
	Rows    int64 // the table's live rows
	Files   int64
	RSS     int64 // resident now
	Vectors int64
	Commits int64 // by the sequence number of the newest
	Jobs    int64 // that are open
	Settled bool  // the newest snapshot has all that the state has
	// Horizon is the log offset of the oldest of the shards' index checkpoints,
	// Checkpoint that of the newest of the state; 0: there is none, or the task says
	// nothing of checkpoints.
	Horizon, Checkpoint int64
}

// RunNode is the process of NodeCommand.
func RunNode(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger) (err error) {
	input, output := json.NewDecoder(in), json.NewEncoder(out)
	var s nodeSpec
	if err := input.Decode(&s); err != nil {
		return fmt.Errorf("%s is started by \"varve bench\" only: read its task: %w", NodeCommand, err)
	}
	if s.Compact != nil {
		return s.Compact.run(ctx, output)
	}
	if s.State != nil {
		if err := output.Encode(nodeReport{}); err != nil {
			return fmt.Errorf("say that the process is ready: %w", err)
		}
		return s.State.run(ctx, output)
	}
	if s.Verify != nil {
		return s.Verify.run(ctx, output, log)
	}
	if s.Roles == nil { // what is measured has no compaction beside it, unless it says so
		s.Roles = []string{topology.RoleIngest, topology.RoleState, topology.RolePublisher}
	}
	n, err := topology.OpenNode(ctx, topology.NodeOptions{
		Data: s.Data, Brokers: s.Brokers, Deployment: s.Deployment, Partitions: s.Partitions, Roles: s.Roles, Logger: log,
		Warehouse: s.Warehouse, Groups: s.Groups, NodeID: s.NodeID, SourcePartitions: s.SourcePartitions, LeaveGroups: true, Jobs: s.Jobs,
		SessionTimeout: s.Session, Checkpoints: s.Checkpoints,
	})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, n.Close(ctx))
	}()
	stop, err := startProfile(s.CPUProfile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	start, err := cpuSeconds()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := n.Start(ctx); err != nil {
		return err
	}
	name := ""
	if s.Table != nil {
		v, err := record.DecodeBody(record.TypeCreateTable, record.BodyVersion(record.TypeCreateTable), s.Table)
		if err != nil {
			return fmt.Errorf("read the task: %w", err)
		}
		c := v.(*record.CreateTable)
		name = c.Definition.Name
		t, _, err := n.EnsureTable(ctx, c.Definition)
		if err != nil {
			return err
		}
		if !s.Groups { // else the node sees to it itself
			if err := n.Ingest(ctx, t); err != nil {
				return err
			}
		}
	}
	if err := output.Encode(nodeReport{}); err != nil {
		return fmt.Errorf("say that the node is ready: %w", err)
	}
	if s.Load {
		err = n.WaitLoaded(ctx, name, nil)
	} else {
		err = waitStop(ctx, n, input, func() error {
			r, err := report(ctx, n, &s, name, start, began)
			if err != nil {
				return err
			}
			return output.Encode(r)
		})
	}
	if err != nil {
		return err
	}
	r, err := report(ctx, n, &s, name, start, began)
	if err != nil {
		return err
	}
	return output.Encode(r)
}

func report(ctx context.Context, n *topology.Node, s *nodeSpec, table string, start float64, began time.Time) (*nodeReport, error) {
	end, err := cpuSeconds()
	if err != nil {
		return nil, err
	}
	r := &nodeReport{CPU: end - start, Wall: time.Since(began).Seconds()}
	if r.RSSPeak, err = rssPeak(); err != nil {
		return nil, err
	}
	if r.RSS, err = rssNow(); err != nil {
		return nil, err
	}
	if table == "" {
		return r, nil
	}
	t, err := n.Table(ctx, table)
	if err != nil {
		return nil, err
	}
	r.Rows, r.Files, r.Vectors, r.Commits = t.Rows-t.Dead, t.Files, t.Vectors, t.Head.Sequence
	r.Jobs, r.Settled = t.OpenJobs, t.Pending == nil && !t.Changes
	if s.Checkpoints == (topology.CheckpointOptions{}) { // nobody asks for them
		return r, nil
	}
	for i := range t.Shards {
		at := int64(0)
		if sh := &t.Shards[i]; sh.Index.Path != "" {
			at = sh.IndexHorizon
		}
		if i == 0 || at < r.Horizon {
			r.Horizon = at
		}
	}
	status, err := n.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range status.Checkpoints {
		r.Checkpoint = max(r.Checkpoint, c.Offset)
	}
	return r, nil
}

// Words that a node without Load is told.
const (
	wordStop   = "stop"
	wordSample = "sample" // report, and go on
)

func waitStop(ctx context.Context, n *topology.Node, input *json.Decoder, sample func() error) error {
	words := make(chan error, 1)
	read := make(chan struct{}) // one word at a time
	defer close(read)
	go func() {
		for range read {
			var word string
			err := input.Decode(&word)
			if err == nil && word != wordSample {
				err = io.EOF
			}
			words <- err
		}
	}()
	for {
		select {
		case read <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case err := <-words:
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = sample()
			}
			if err != nil {
				return fmt.Errorf("wait for the word to stop: %w", err)
			}
		case err := <-n.Fatal():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// nodeProcess is a node in a process of its own.
type nodeProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
	log *tailWriter
}

// startNode starts a node and waits until it works.
func (o *Options) startNode(ctx context.Context, s nodeSpec) (_ *nodeProcess, err error) {
	s.Brokers = o.client.Brokers
	if s.Warehouse == "" && s.Compact == nil && s.State == nil {
		if s.Warehouse, err = o.lake(s.Data); err != nil {
			return nil, err
		}
	}
	p := &nodeProcess{cmd: o.Command(ctx), log: &tailWriter{}}
	p.cmd.Stderr = p.log
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a node: %w", err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a node: %w", err)
	}
	p.out = json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a node: %w", err)
	}
	if err := json.NewEncoder(p.in).Encode(&s); err != nil {
		return nil, p.failed(ctx, err)
	}
	if err := p.out.Decode(&nodeReport{}); err != nil {
		return nil, p.failed(ctx, err)
	}
	return p, nil
}

// result waits for the node's end. Without Load it is told to stop first.
func (p *nodeProcess) result(ctx context.Context) (*nodeReport, error) {
	var r nodeReport
	if err := p.ask(ctx, wordStop, &r); err != nil {
		return nil, err
	}
	if err := p.cmd.Wait(); err != nil {
		return nil, fmt.Errorf("the node's process: %w; its last words: %s", err, p.log)
	}
	return &r, nil
}

// ask says a word and waits for the report.
func (p *nodeProcess) ask(ctx context.Context, word string, r *nodeReport) error {
	said := json.NewEncoder(p.in).Encode(word)
	// One that loads ends by itself, and may be gone: its report is there.
	if err := p.out.Decode(r); err != nil {
		return p.failed(ctx, errors.Join(said, err))
	}
	return nil
}

// failed ends a process that is of no more use, and gives its last words.
func (p *nodeProcess) failed(ctx context.Context, err error) error {
	closed := p.in.Close()
	if ended := p.cmd.Wait(); ended != nil {
		err = ended
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("the node's process: %w; its last words: %s", errors.Join(err, closed), p.log)
}

// abandon ends the node, whatever it does.
func (p *nodeProcess) abandon() {
	if p.cmd.ProcessState != nil {
		return
	}
	// Both fail only where the process is gone already.
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// tailWriter keeps the last of what is written to it.
type tailWriter struct{ b []byte }

func (t *tailWriter) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if n := len(t.b) - 4096; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(b), nil
}

func (t *tailWriter) String() string { return string(t.b) }
