//go:build unix

package endtoend

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testStalled: an owner that is stopped past its session and goes on does no
// harm (A2, A3, C1 to C3): what it had in flight is rejected, it drops it, and
// claims nothing before it has joined its groups again.
func testStalled(t *testing.T, brokers []string) {
	ctx := longContext(t)
	s := seed(t)
	w := workloads["other-orders"]()
	base := childOrder{Brokers: brokers, Deployment: "stalled", Partitions: 2, Workload: "other-orders", Warehouse: dataDir(t), Session: groupSession}
	var children []*child
	for i := range 2 {
		o := base
		o.Data, o.NodeID = dataDir(t), fmt.Sprint("node-", i)
		children = append(children, startChild(t, &o, filepath.Join(t.TempDir(), "child.log")))
		children[i].ready()
	}
	p := &eventProducer{t: t, w: w, seed: s, acked: map[int32]int64{}}
	halt := p.start(brokers[0])
	time.Sleep(time.Second)
	for range 2 {
		for _, c := range children {
			if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			time.Sleep(groupSession + 3*time.Second)
			if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
	}
	halt()
	lost := 0
	for _, c := range children {
		lost += strings.Count(c.tail(), "lost: this node was silent")
	}
	if lost == 0 {
		t.Error("no stalled node lost anything: the test proves nothing")
	}
	last := base
	last.Data, last.NodeID = dataDir(t), "last"
	n := start(t, last.options(testLog(t, 8)))
	settleGroup(ctx, t, n, p, w, s)
	for _, c := range children {
		c.kill()
	}
	stop(t, n)
}
