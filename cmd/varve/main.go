package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := execute(ctx, streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Environ()}, os.Args[1:])
	stop()
	os.Exit(code)
}
