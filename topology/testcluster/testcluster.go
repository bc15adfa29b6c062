package testcluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// ToolsEnv names the folder of installed test tools; the default is varve-test in the user's cache folder.
	ToolsEnv = "VARVE_TEST_TOOLS"
	// ServersEnv, set to 1, runs the tests that start real servers and foreign readers; one that is not installed is
	// then a failure. Without it they are skipped. VARVE_REQUIRE_KAFKA, _S3, _CATALOG, _POSTGRES and _READERS ask for
	// one kind alone.
	ServersEnv = "VARVE_SERVERS"
	// RequireEnv, set to 1, asks for the tests that need a Kafka.
	RequireEnv = "VARVE_REQUIRE_KAFKA"

	// DirEnv names the folder for the nodes' data; the default is in memory where that has 4 GiB free, else the
	// system's folder for temporary files.
	DirEnv = "VARVE_TEST_DIR"

	kafkaVersion = "4.1.1"
	memoryFree   = 4 << 30

	readyTimeout = 120 * time.Second
	// startTries: a port that was free may be taken before Kafka binds it.
	startTries = 3
)

// Cluster is a running Kafka. Its methods end the test on failure, and must be called on the test's goroutine.
type Cluster struct {
	t     testing.TB
	java  string
	lib   string
	id    string
	nodes []*node
	// secure, if set, are the other listeners of the one node.
	secure *secure
}

// node is one broker, which is also a controller.
type node struct {
	dir    string
	port   int // clients
	quorum int // controllers
	process
}

// Start starts a Kafka of 1 or 3 nodes, waits until it answers, and ends it with the test. The test is
// skipped unless VARVE_SERVERS or VARVE_REQUIRE_KAFKA is 1, and fails where Kafka is not installed.
func Start(t testing.TB, nodes int) *Cluster {
	t.Helper()
	return begin(t, nodes, nil)
}

// Wanted skips a test that needs a server unless ServersEnv or the server's own variable asks for it.
func Wanted(t testing.TB, own, what string) {
	t.Helper()
	if os.Getenv(ServersEnv) != "1" && os.Getenv(own) != "1" {
		t.Skipf("skipped: needs %s (%s=1 or %s=1 runs this test)", what, ServersEnv, own)
	}
}

func begin(t testing.TB, nodes int, s *secure) *Cluster {
	t.Helper()
	if nodes != 1 && nodes != 3 {
		t.Fatalf("testcluster: %d nodes: 1 or 3", nodes)
	}
	Wanted(t, RequireEnv, "a real Apache Kafka")
	java, lib, err := tools()
	if err != nil {
		t.Fatal(err)
	}
	base := dataDir(t)
	var cause error
	for try := range startTries {
		c := &Cluster{t: t, java: java, lib: lib, id: uuid(t), secure: s}
		ports, err := freePorts(2*nodes + securePorts)
		if err != nil {
			t.Fatalf("testcluster: %v", err)
		}
		for i := range nodes {
			c.nodes = append(c.nodes, &node{
				dir:  filepath.Join(base, fmt.Sprintf("try%d-node%d", try, i)),
				port: ports[2*i], quorum: ports[2*i+1],
			})
		}
		if s != nil {
			s.sasl, s.ssl = ports[2*nodes], ports[2*nodes+1]
		}
		if cause = c.start(); cause == nil {
			t.Cleanup(c.stop)
			return c
		}
		c.stop()
	}
	t.Fatalf("testcluster: Kafka did not start: %v", cause)
	return nil
}

// dataDir is the folder for the nodes' data. Controllers sync each of their writes to disk and take a broker
// for dead whose writes wait for a busy disk, so it lies in memory where there is room; what a killed process
// had written is kept there as well.
func dataDir(t testing.TB) string {
	parent := os.Getenv(DirEnv)
	if parent == "" {
		parent = memoryDir(memoryFree)
	}
	dir, err := os.MkdirTemp(parent, "varve-kafka-")
	if err != nil {
		t.Fatalf("testcluster: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("testcluster: %v", err)
		}
	})
	return dir
}

// toolsDir is the folder of installed servers.
func toolsDir() (string, error) {
	if dir := os.Getenv(ToolsEnv); dir != "" {
		return dir, nil
	}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the folder of test tools: %w; set %s", err, ToolsEnv)
		}
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "varve-test"), nil
}

// tools finds Java and the jars.
func tools() (java, lib string, err error) {
	dir, err := toolsDir()
	if err != nil {
		return "", "", err
	}
	kafka := filepath.Join(dir, "kafka-"+kafkaVersion)
	if _, err := os.Stat(filepath.Join(kafka, "complete")); err != nil {
		return "", "", fmt.Errorf("skipped: Apache Kafka %s is not in %s; install it with: topology/testcluster/install.sh", kafkaVersion, kafka)
	}
	java, err = findJava()
	return java, filepath.Join(kafka, "lib"), err
}

func findJava() (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		if java, err := exec.LookPath(filepath.Join(home, "bin", "java")); err == nil {
			return java, nil
		}
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return "", errors.New("skipped: java is not there: install a JDK of 17 or later")
	}
	return java, nil
}

// uuid is one as Kafka writes them: 16 bytes in unpadded URL base64, not starting with a dash, which its command
// line would take for an option.
func uuid(t testing.TB) string {
	var b [16]byte
	for {
		if _, err := rand.Read(b[:]); err != nil {
			t.Fatalf("testcluster: random bytes: %v", err)
		}
		if s := base64.RawURLEncoding.EncodeToString(b[:]); s[0] != '-' {
			return s
		}
	}
}

// freePorts are below the range that outgoing connections take theirs from, so that a node which is stopped
// for a while finds its port free.
func freePorts(n int) ([]int, error) {
	var ports []int
	var held []net.Listener
	defer func() {
		for _, ln := range held {
			ln.Close()
		}
	}()
	for range 1000 {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15000+mathrand.IntN(15000)))
		if err != nil {
			continue
		}
		held = append(held, ln)
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
		if len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports at 127.0.0.1", n)
}

// start formats and starts all nodes and waits until they answer.
func (c *Cluster) start() error {
	var wg sync.WaitGroup
	errs := make([]error, len(c.nodes))
	for i := range c.nodes {
		wg.Go(func() { errs[i] = c.format(i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range c.nodes {
		if err := c.launch(i); err != nil {
			return err
		}
	}
	return c.waitReady(len(c.nodes))
}

// format writes a node's configuration and prepares its storage.
func (c *Cluster) format(i int) error {
	n := c.nodes[i]
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(n.config(), []byte(c.properties(i)), 0o644); err != nil {
		return err
	}
	args := []string{"-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", filepath.Join(c.lib, "*"), "kafka.tools.StorageTool", "format", "-t", c.id, "-c", n.config()}
	if c.secure != nil {
		args = append(args, c.secure.formatArgs()...)
	}
	cmd := exec.Command(c.java, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format storage of node %d: %w: %s", i, err, tail(out))
	}
	return nil
}

func (n *node) config() string { return filepath.Join(n.dir, "server.properties") }

func (n *node) addr() string { return fmt.Sprintf("127.0.0.1:%d", n.port) }

func (c *Cluster) properties(i int) string {
	n := c.nodes[i]
	var voters []string
	for j, v := range c.nodes {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", j+1, v.quorum))
	}
	replicas, insync := 1, 1
	if len(c.nodes) >= 3 {
		replicas, insync = 3, 2
	}
	props := []struct {
		key   string
		value any
	}{
		{"process.roles", "broker,controller"},
		{"node.id", i + 1},
		{"controller.quorum.voters", strings.Join(voters, ",")},
		{"listeners", fmt.Sprintf("PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d", n.addr(), n.quorum)},
		{"advertised.listeners", "PLAINTEXT://" + n.addr()},
		{"controller.listener.names", "CONTROLLER"},
		{"log.dirs", filepath.ToSlash(filepath.Join(n.dir, "data"))},
		{"auto.create.topics.enable", false},
		{"default.replication.factor", replicas},
		{"offsets.topic.replication.factor", replicas},
		{"offsets.topic.num.partitions", 1},
		{"transaction.state.log.replication.factor", replicas},
		{"transaction.state.log.min.isr", insync},
		{"transaction.state.log.num.partitions", 1},
		{"share.coordinator.state.topic.replication.factor", replicas},
		{"share.coordinator.state.topic.min.isr", insync},
		{"group.initial.rebalance.delay.ms", 0},
		// A dead broker is noticed in seconds, not in a test's whole time.
		{"broker.heartbeat.interval.ms", 1000},
		{"broker.session.timeout.ms", 6000},
		// Small threads and buffers: several of these may share a machine of two cores.
		{"num.network.threads", 2},
		{"num.io.threads", 4},
		{"background.threads", 2},
		{"log.cleaner.dedupe.buffer.size", 4 << 20},
	}
	var b strings.Builder
	for _, p := range props {
		fmt.Fprintf(&b, "%s=%v\n", p.key, p.value)
	}
	if c.secure != nil {
		b.WriteString(c.secure.properties(n))
	}
	return b.String()
}

// launch starts a node's process.
func (c *Cluster) launch(i int) error {
	n := c.nodes[i]
	args := []string{"-Xmx512m", "-XX:+UseSerialGC"}
	if len(c.nodes) > 1 {
		// Three at once on a small machine: compiling hot code well takes the time that starting needs.
		args = append(args, "-XX:TieredStopAtLevel=1")
	}
	args = append(args, "-cp", filepath.Join(c.lib, "*"), "kafka.Kafka", n.config())
	cmd := exec.Command(c.java, args...)
	cmd.Dir = n.dir
	if err := n.launch(cmd, n.output()); err != nil {
		return fmt.Errorf("start node %d: %w", i, err)
	}
	return nil
}

func (n *node) output() string { return filepath.Join(n.dir, "output.log") }

// waitReady waits until so many brokers are alive and a controller takes requests.
func (c *Cluster) waitReady(alive int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers()...), kgo.DialTimeout(time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	// Asked for by hand: the client would answer from what it remembers.
	ask := kmsg.NewPtrMetadataRequest()
	ask.Topics = []kmsg.MetadataRequestTopic{}
	deadline := time.Now().Add(readyTimeout)
	for {
		for i, n := range c.nodes {
			if n.cmd == nil {
				continue // killed on purpose
			}
			select {
			case <-n.exited:
				return fmt.Errorf("node %d ended: %s", i, n.lastWords())
			default:
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		m, err := ask.RequestWith(ctx, cl)
		cancel()
		brokers := 0
		if err == nil {
			if brokers = len(m.Brokers); brokers == alive && m.ControllerID >= 0 {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %s: %d brokers of %d, error %v; last words of node 0: %s", readyTimeout, brokers, alive, err, c.nodes[0].lastWords())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (n *node) lastWords() string { return lastWords(n.output()) }

func tail(out []byte) string {
	const most = 2000
	out = bytes.TrimSpace(out)
	if len(out) > most {
		out = out[len(out)-most:]
	}
	return string(out)
}

// Brokers are the addresses of all nodes, also of those that are killed.
func (c *Cluster) Brokers() []string {
	addrs := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		addrs[i] = n.addr()
	}
	return addrs
}

// NodeID is the id under which node i, counted from 0, is known to clients.
func (c *Cluster) NodeID(i int) int32 { return int32(i + 1) }

// KillNode ends node i, counted from 0, without warning, and returns when its process is gone. The others
// notice after some seconds.
func (c *Cluster) KillNode(i int) {
	c.t.Helper()
	if err := c.nodes[i].kill(); err != nil {
		c.t.Fatalf("testcluster: kill node %d: %v", i, err)
	}
}

// StartNode starts a killed node again, on its port and with its data, and waits until the living nodes answer
// and see each other.
func (c *Cluster) StartNode(i int) {
	c.t.Helper()
	if c.nodes[i].cmd != nil {
		c.t.Fatalf("testcluster: node %d is running", i)
	}
	if err := c.launch(i); err != nil {
		c.t.Fatalf("testcluster: %v", err)
	}
	alive := 0
	for _, n := range c.nodes {
		if n.cmd != nil {
			alive++
		}
	}
	if err := c.waitReady(alive); err != nil {
		c.t.Fatalf("testcluster: node %d: %v", i, err)
	}
}

func (c *Cluster) stop() {
	for i, n := range c.nodes {
		if err := n.kill(); err != nil {
			c.t.Errorf("testcluster: stop node %d, process %d: %v", i, n.cmd.Process.Pid, err)
		}
	}
	if c.t.Failed() {
		for i, n := range c.nodes {
			c.t.Logf("testcluster: last words of node %d: %s", i, n.lastWords())
		}
	}
}
