package testcluster

import (
	"errors"
	"os"
	"os/exec"
)

// process is a server of a test: at most one at a time, started again at will.
type process struct {
	cmd    *exec.Cmd     // nil: it does not run
	exited chan struct{} // closed when cmd has ended
}

// launch starts a command that ends with this process at the latest. Its output
// goes to the end of a file.
func (p *process) launch(cmd *exec.Cmd, output string) error {
	out, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close() // the child has its own handle
	cmd.Stdout, cmd.Stderr = out, out
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.exited = cmd, make(chan struct{})
	go func(done chan struct{}) {
		// How it ended is of no interest: it is killed, or its output says why.
		_ = cmd.Wait()
		close(done)
	}(p.exited)
	return nil
}

// kill ends it without warning and returns when it is gone.
func (p *process) kill() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.exited
	p.cmd = nil
	return nil
}

// lastWords are the end of a server's output.
func lastWords(output string) string {
	out, err := os.ReadFile(output)
	if err != nil {
		return err.Error()
	}
	return tail(out)
}
