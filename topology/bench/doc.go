// Package bench holds the named works of `varve bench`, so that the command and
// Go benchmarks run the same: each sets up a deployment of its own, does its
// work, and gives figures with something plain run beside it.
//
// It owns the works, the events and logs that they are fed with, and the plain
// ways that stand beside them. It may touch a folder of its own, the brokers
// that it is given or an embedded one, and processes that it starts: nodes run
// in a process of their own, so that their time and memory are theirs alone.
//
// What never enters it: anything that the product needs to work.
//
// Machines are shared and their clocks lie: figures per second of processor
// time are the process's own (getrusage), and the plain way runs beside ours in
// the same minutes, so that the ratio holds where the figure does not.
package bench
