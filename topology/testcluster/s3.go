package testcluster

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const (
	// RequireS3Env, set to 1, asks for the tests that need an S3 gateway.
	RequireS3Env = "VARVE_REQUIRE_S3"

	s3Version = "1.8.0"

	// S3Bucket is the bucket that every gateway has.
	S3Bucket = "lake"
	// S3AccessKey and S3SecretKey are the gateway's only account.
	S3AccessKey = "varve-test"
	S3SecretKey = "varve-test-secret"
)

// S3 is a running S3 gateway over a folder. Its methods end the test on failure.
type S3 struct {
	t      testing.TB
	binary string
	dir    string
	port   int
	process
}

// StartS3 starts an S3 gateway with the bucket S3Bucket, sets the AWS_ variables of the process to its account, and
// ends it with the test. The test is skipped unless VARVE_SERVERS or VARVE_REQUIRE_S3 is 1, and fails
// where the gateway is not installed.
func StartS3(t testing.TB) *S3 {
	t.Helper()
	Wanted(t, RequireS3Env, "an S3 gateway")
	binary, err := s3Tool()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(os.Getenv(DirEnv), "varve-s3-")
	if err != nil {
		t.Fatalf("testcluster: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("testcluster: %v", err)
		}
	})
	if err := os.MkdirAll(filepath.Join(dir, "store", S3Bucket), 0o755); err != nil {
		t.Fatalf("testcluster: %v", err)
	}
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": S3AccessKey, "AWS_SECRET_ACCESS_KEY": S3SecretKey, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	var cause error
	for range startTries {
		ports, err := freePorts(1)
		if err != nil {
			t.Fatalf("testcluster: %v", err)
		}
		s := &S3{t: t, binary: binary, dir: dir, port: ports[0]}
		if cause = s.start(); cause == nil {
			t.Cleanup(s.stop)
			return s
		}
		s.stop()
	}
	t.Fatalf("testcluster: the S3 gateway did not start: %v", cause)
	return nil
}

// s3Tool finds the gateway.
func s3Tool() (string, error) {
	dir, err := toolsDir()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "versitygw-"+s3Version, "versitygw")
	if _, err := os.Stat(binary); err != nil {
		return "", fmt.Errorf("skipped: the S3 gateway is not at %s; install it with: topology/testcluster/install-s3.sh", binary)
	}
	return binary, nil
}

func (s *S3) start() error {
	cmd := exec.Command(s.binary, "--port", s.Addr(), "--quiet", "posix", "--sidecar", filepath.Join(s.dir, "sidecar"), filepath.Join(s.dir, "store"))
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+S3AccessKey, "ROOT_SECRET_KEY="+S3SecretKey)
	if err := os.MkdirAll(filepath.Join(s.dir, "sidecar"), 0o755); err != nil {
		return err
	}
	if err := s.launch(cmd, s.output()); err != nil {
		return fmt.Errorf("start the S3 gateway: %w", err)
	}
	deadline := time.Now().Add(readyTimeout)
	for {
		c, err := net.DialTimeout("tcp", s.Addr(), time.Second)
		if err == nil {
			return c.Close()
		}
		select {
		case <-s.exited:
			return fmt.Errorf("it ended: %s", s.lastWords())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %s: %w; its last words: %s", readyTimeout, err, s.lastWords())
		}
	}
}

func (s *S3) output() string { return filepath.Join(s.dir, "output.log") }

func (s *S3) lastWords() string { return lastWords(s.output()) }

// Addr is host:port of the gateway.
func (s *S3) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Endpoint is its URL.
func (s *S3) Endpoint() string { return "http://" + s.Addr() }

// URL is the URL of a store under prefix, reached at the gateway itself.
func (s *S3) URL(prefix string) string { return s.Via(s.Endpoint(), prefix) }

// Via is URL for another endpoint, as that of a proxy.
func (s *S3) Via(endpoint, prefix string) string {
	q := url.Values{"endpoint": {endpoint}, "region": {"us-east-1"}}
	return (&url.URL{Scheme: "s3", Host: S3Bucket, Path: "/" + prefix, RawQuery: q.Encode()}).String()
}

// CatalogProperties are those by which a Java catalog reaches the gateway.
func (s *S3) CatalogProperties() []string {
	return []string{
		"io-impl=org.apache.iceberg.aws.s3.S3FileIO", "s3.endpoint=" + s.Endpoint(), "s3.path-style-access=true", "client.region=us-east-1",
		"s3.access-key-id=" + S3AccessKey, "s3.secret-access-key=" + S3SecretKey,
	}
}

// Folder is where the objects under prefix lie as files.
func (s *S3) Folder(prefix string) string {
	return filepath.Join(s.dir, "store", S3Bucket, filepath.FromSlash(prefix))
}

// Kill ends the gateway without warning; Start starts it again at its address.
func (s *S3) Kill() {
	s.t.Helper()
	if err := s.kill(); err != nil {
		s.t.Fatalf("testcluster: kill the S3 gateway: %v", err)
	}
}

// Start starts a gateway that was killed.
func (s *S3) Start() {
	s.t.Helper()
	if s.cmd != nil {
		s.t.Fatal("testcluster: the S3 gateway is running")
	}
	if err := s.start(); err != nil {
		s.t.Fatalf("testcluster: start the S3 gateway: %v", err)
	}
}

func (s *S3) stop() {
	if err := s.kill(); err != nil {
		s.t.Errorf("testcluster: stop the S3 gateway: %v", err)
	}
	if s.t.Failed() {
		s.t.Logf("testcluster: last words of the S3 gateway: %s", s.lastWords())
	}
}
