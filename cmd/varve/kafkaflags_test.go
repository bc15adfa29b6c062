package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varve-io/varve/topology/testcluster"
)

// A deployment on brokers that ask for a login, and on brokers with TLS: all
// clients of all commands take the same way.
func TestCommandsOnSecureKafka(t *testing.T) {
	c := testcluster.StartSecure(t)
	password := writeFile(t, "password", testcluster.KafkaPassword+"\n")
	file := writeFile(t, "varve.yaml", fmt.Sprintf("brokers: [%q]\nkafka: {sasl: scram-sha-512, user: %s, password_file: %s}\n", c.SASLBrokers()[0], testcluster.KafkaUser, password))
	data := t.TempDir()
	r, _ := load(t, "{\"id\":1,\"v\":\"a\"}\n{\"id\":\"bad\"}\n", "--config", file, "--data", data, "--table", "shop.t", "--format", "rows-json", "--key", "id", "--schema",
		writeFile(t, "s.json", `{"type":"struct","fields":[{"id":1,"name":"id","type":"long","required":true},{"id":2,"name":"v","type":"string"}]}`), "-")
	if r.Rows != 1 || r.DeadLetters != 1 {
		t.Errorf("%+v", r)
	}
	n := startNode(t, "--config", file, "--data", data, "--log-level", "warn")
	run(t, "delete", "shop.t", "--config", file, "--data", data, "--key", "id=1")
	// The folder remembers all but the secret, which then is enough.
	node := readText(t, filepath.Join(data, "node.json"))
	if !strings.Contains(node, testcluster.KafkaUser) || strings.Contains(node, testcluster.KafkaPassword) || strings.Contains(node, password) {
		t.Error(node)
	}
	wantLines(t, run(t, "status", "--kafka-password-file", password, "--data", data, "--output", "csv"), "shop.t,shop.t,0,running,")
	env := []string{"VARVE_KAFKA_PASSWORD=" + testcluster.KafkaPassword}
	if code, out, errs := varveWith(t, env, "", "status", "--data", data, "--output", "csv"); code != exitDone || !strings.Contains(out, "shop.t,shop.t,0,running,") {
		t.Errorf("with the password alone: exit code %d, %s%s", code, out, errs)
	}
	if code, out, errs := varve(t, "dlq", "list", "shop.t", "--each", "--data", data); code == exitDone || !strings.Contains(errs, "the brokers ask for a login") || strings.Contains(out+errs, testcluster.KafkaPassword) {
		t.Errorf("without the password: exit code %d, %s%s", code, out, errs)
	}
	if err := os.Chmod(filepath.Join(data, "node.json"), 0o666); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := varveWith(t, env, "", "dlq", "list", "shop.t", "--each", "--data", data); code == exitDone || !strings.Contains(errs, "everyone may write") {
		t.Errorf("a folder that others may write: exit code %d, %s", code, errs)
	}
	if err := os.Chmod(filepath.Join(data, "node.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	wantLines(t, run(t, "status", "--config", file, "--data", data, "--output", "csv"), "shop.t,shop.t,0,running,")
	wantRows(t, scanned(t, data, "shop.t", "--config", file))
	wantLines(t, run(t, "dlq", "list", "shop.t", "--each", "--config", file, "--data", data, "--output", "csv"), "shop.t")
	if code := n.end(t); code != exitDone {
		t.Errorf("the node ended with %d: %s", code, n.err.String())
	}

	// The same deployment by its other door.
	code, out, errs := varveWith(t, nil, "{\"id\":2}\n", "produce", "--data", t.TempDir(), "--brokers", c.TLSBrokers()[0], "--kafka-ca", c.CAFile(), "--kafka-cert", c.CertFile(),
		"--kafka-key", c.KeyFile(), "--table", "shop.t", "--output", "csv", "-")
	if code != exitDone || out != "topic,events\nshop.t,1\n" {
		t.Errorf("produce: exit code %d, %s%s", code, out, errs)
	}

	code, _, errs = varveWith(t, []string{"VARVE_KAFKA_PASSWORD=a-Wrong-one"}, "", "run", "--data", t.TempDir(), "--brokers", c.SASLBrokers()[0], "--kafka-sasl", "plain", "--kafka-user", testcluster.KafkaUser)
	if code != exitUsage || !strings.Contains(errs, "the login failed") || strings.Contains(errs, "a-Wrong-one") {
		t.Errorf("a wrong password: exit code %d, %s", code, errs)
	}
}

// Passwords come from a file or the environment, and are shown nowhere.
func TestKafkaFlags(t *testing.T) {
	env := []string{"VARVE_KAFKA_PASSWORD=the-Secret"}
	code, out, errs := varveWith(t, env, "", "config", "show", "--kafka-sasl", "plain", "--kafka-user", "u")
	if code != exitDone || !strings.Contains(out, "kafka_user") || strings.Contains(out+errs, "the-Secret") {
		t.Errorf("config show: exit code %d, %s%s", code, out, errs)
	}
	for _, tc := range []struct{ args, says string }{
		{"--kafka-sasl kerberos --kafka-user u", "SCRAM-SHA-256"},
		{"--kafka-sasl plain", "needs a user"},
		{"--kafka-ca nowhere.pem", "nowhere.pem"},
		{"--kafka-sasl plain --kafka-user u --kafka-password-file nowhere", "nowhere"},
	} {
		code, _, errs := varveWith(t, env, "", append([]string{"run", "--data", t.TempDir()}, strings.Fields(tc.args)...)...)
		if code != exitUsage || !strings.Contains(errs, tc.says) || strings.Contains(errs, "the-Secret") {
			t.Errorf("%s: exit code %d, %s", tc.args, code, errs)
		}
	}
	if code, _, errs := varve(t, "run", "--config", writeFile(t, "c.yaml", "kafka: {password: x}\n")); code != exitUsage || !strings.Contains(errs, `unknown key "password" in kafka`) {
		t.Errorf("a password in the file: exit code %d, %s", code, errs)
	}
}
