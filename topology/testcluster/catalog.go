package testcluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const (
	// RequireCatalogEnv, set to 1, asks for the tests that need a REST catalog.
	RequireCatalogEnv = "VARVE_REQUIRE_CATALOG"

	catalogVersion = "1.10.0"
)

// Catalog is a running REST catalog: Iceberg's reference implementation, over SQLite.
type Catalog struct {
	t         testing.TB
	java, dir string
	port      int
	warehouse string
	more      []string // of its properties, as key=value
	database  string
	output    string
	process
}

// StartCatalog starts Iceberg's reference REST catalog on 127.0.0.1 for tables under the warehouse, a location,
// and ends it with the test. More of its properties are given as key=value: S3.CatalogProperties for a warehouse there. The test is skipped unless
// VARVE_SERVERS or VARVE_REQUIRE_CATALOG is 1, and fails where the catalog is not installed.
func StartCatalog(t testing.TB, warehouse string, properties ...string) *Catalog {
	t.Helper()
	Wanted(t, RequireCatalogEnv, "Iceberg's REST catalog")
	java, dir, err := catalogTools()
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	// One connection: of two, one was seen to keep a reader's lock for ever, and
	// SQLite refused every commit from then on.
	properties = append([]string{"clients=1"}, properties...)
	c := &Catalog{t: t, java: java, dir: dir, warehouse: warehouse, more: properties,
		database: filepath.Join(data, "catalog.db"), output: filepath.Join(data, "output.log")}
	var cause error
	for range startTries {
		ports, err := freePorts(1)
		if err != nil {
			t.Fatalf("testcluster: %v", err)
		}
		c.port = ports[0]
		if cause = c.launch(); cause == nil {
			t.Cleanup(func() {
				c.Kill()
				if t.Failed() {
					t.Logf("testcluster: last words of the catalog: %s", c.lastWords())
				}
			})
			return c
		}
		c.Kill()
	}
	t.Fatalf("testcluster: the catalog did not start: %v", cause)
	return nil
}

func catalogTools() (java, dir string, err error) {
	tools, err := toolsDir()
	if err != nil {
		return "", "", err
	}
	dir = filepath.Join(tools, "catalog-"+catalogVersion)
	if _, err := os.Stat(filepath.Join(dir, "complete")); err != nil {
		return "", "", fmt.Errorf("skipped: Iceberg's REST catalog %s is not in %s; install it with: topology/testcluster/install-catalog.sh", catalogVersion, dir)
	}
	java, err = findJava()
	return java, dir, err
}

// URI is the catalog's address, as clients take it.
func (c *Catalog) URI() string { return fmt.Sprintf("http://127.0.0.1:%d", c.port) }

// launch starts the process and waits until it answers.
func (c *Catalog) launch() error {
	args := append([]string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-cp", filepath.Join(c.dir, "classes") + string(os.PathListSeparator) + filepath.Join(c.dir, "lib", "*"),
		"LoopbackCatalog", fmt.Sprint(c.port), c.warehouse, "jdbc:sqlite:" + c.database}, c.more...)
	cmd := exec.Command(c.java, args...)
	if err := c.process.launch(cmd, c.output); err != nil {
		return fmt.Errorf("start the catalog: %w", err)
	}
	deadline := time.Now().Add(readyTimeout)
	for {
		select {
		case <-c.exited:
			return fmt.Errorf("the catalog ended: %s", c.lastWords())
		default:
		}
		err := c.ping()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %s: %v; last words: %s", readyTimeout, err, c.lastWords())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *Catalog) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URI()+"/v1/config", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

// Kill ends the catalog without warning; its tables stay.
func (c *Catalog) Kill() {
	c.t.Helper()
	if c.cmd == nil {
		return
	}
	if err := c.kill(); err != nil {
		c.t.Errorf("testcluster: kill the catalog, process %d: %v", c.cmd.Process.Pid, err)
	}
}

// Restart starts a killed catalog again, on its port and with its tables.
func (c *Catalog) Restart() {
	c.t.Helper()
	if c.cmd != nil {
		c.t.Fatal("testcluster: the catalog is running")
	}
	if err := c.launch(); err != nil {
		c.t.Fatalf("testcluster: %v", err)
	}
}

func (c *Catalog) lastWords() string { return lastWords(c.output) }
