package testcluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// RequirePostgresEnv, set to 1, asks for the tests that need PostgreSQL.
const RequirePostgresEnv = "VARVE_REQUIRE_POSTGRES"

// PostgresPassword is the password of the user "catalog" of a Postgres.
const PostgresPassword = "a-password"

// Postgres is a running PostgreSQL server.
type Postgres struct {
	t            testing.TB
	bin, dir     string
	port         int
	user, output string // of the system, for root; ""
	process
}

// StartPostgres starts an empty PostgreSQL server on 127.0.0.1 for the user
// "catalog", and ends it with the test. The test is
// skipped unless VARVE_SERVERS or VARVE_REQUIRE_POSTGRES is 1, and fails where
// PostgreSQL is not installed.
func StartPostgres(t testing.TB) *Postgres {
	t.Helper()
	Wanted(t, RequirePostgresEnv, "PostgreSQL")
	bin, err := postgresTools()
	if err != nil {
		t.Fatal(err)
	}
	ports, err := freePorts(1)
	if err != nil {
		t.Fatalf("testcluster: %v", err)
	}
	data, err := os.MkdirTemp("", "varve-postgres") // a test's own folder lets no other user in
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(data); err != nil {
			t.Error(err)
		}
	})
	p := &Postgres{t: t, bin: bin, dir: filepath.Join(data, "db"), port: ports[0], output: filepath.Join(data, "output.log")}
	password := filepath.Join(data, "password")
	if err := os.WriteFile(password, []byte(PostgresPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 { // it refuses to run as root
		p.user = "postgres"
		for _, path := range []string{data, password, p.dir} {
			if err := giveTo(p.user, path); err != nil {
				t.Fatalf("testcluster: %v", err)
			}
		}
	}
	init := exec.Command(filepath.Join(bin, "initdb"), "-D", p.dir, "-U", "catalog", "-A", "scram-sha-256", "--pwfile", password, "-N", "-E", "UTF8", "--no-locale")
	p.as(init)
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("testcluster: initdb: %v: %s", err, out)
	}
	if err := p.launch(); err != nil {
		t.Fatalf("testcluster: %v", err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("testcluster: last words of PostgreSQL: %s", lastWords(p.output))
		}
	})
	return p
}

func (p *Postgres) as(cmd *exec.Cmd) {
	if p.user != "" {
		runAs(p.user, cmd)
	}
	cmd.Dir = os.TempDir()
}

func (p *Postgres) launch() error {
	cmd := exec.Command(filepath.Join(p.bin, "postgres"), "-D", p.dir, "-p", fmt.Sprint(p.port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=16MB")
	p.as(cmd)
	if err := p.process.launch(cmd, p.output); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	for deadline := time.Now().Add(readyTimeout); ; time.Sleep(50 * time.Millisecond) {
		select {
		case <-p.exited:
			return fmt.Errorf("PostgreSQL ended: %s", lastWords(p.output))
		default:
		}
		ready := exec.Command(filepath.Join(p.bin, "pg_isready"), "-h", "127.0.0.1", "-p", fmt.Sprint(p.port), "-q")
		if ready.Run() == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %s; last words: %s", readyTimeout, lastWords(p.output))
		}
	}
}

// Kill ends the server without warning; its data stay.
func (p *Postgres) Kill() {
	p.t.Helper()
	if err := p.kill(); err != nil {
		p.t.Errorf("testcluster: kill PostgreSQL: %v", err)
	}
}

// Restart starts a killed server again, on its port and with its data.
func (p *Postgres) Restart() {
	p.t.Helper()
	// What it left behind is from the process that was killed.
	if err := os.Remove(filepath.Join(p.dir, "postmaster.pid")); err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	// Processes of the killed one may still be about to end.
	var err error
	for range startTries {
		if err = p.launch(); err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	p.t.Fatalf("testcluster: %v", err)
}

// URI is the address of the database that is there from the beginning, without
// the password.
func (p *Postgres) URI() string {
	return fmt.Sprintf("postgres://catalog@127.0.0.1:%d/postgres?sslmode=disable", p.port)
}

// postgresTools finds the programs: in the path, or where Debian puts them.
func postgresTools() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("skipped: PostgreSQL is not installed (apt-get install postgresql)")
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}
