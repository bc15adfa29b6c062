package topology

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/topology/testcluster"
)

// unsecured is a token that a broker with Kafka's unsecured validator takes.
func unsecured(life time.Duration) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	now := time.Now().Unix()
	return part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":"varve","iat":%d,"exp":%d}`, now, now+int64(life.Seconds()))) + "."
}

func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Every way to log in that a broker here can check, and what is said when it
// is refused: one error that marks a wrong configuration, soon.
func TestKafkaSecurity(t *testing.T) {
	c := testcluster.StartSecure(t)
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if err := r.ParseForm(); err != nil || user != "id" || password != "oidc-Secret" || r.Form.Get("grant_type") != "client_credentials" || r.Form.Get("scope") != "kafka" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"access_token":%q,"expires_in":600}`, unsecured(10*time.Minute))
	}))
	defer provider.Close()
	for _, tc := range []struct {
		name string
		s    Security
		tls  bool
		says string // "": it works
	}{
		{name: "plain", s: Security{Mechanism: "PLAIN", User: testcluster.KafkaUser, Password: testcluster.KafkaPassword}},
		{name: "plain, password in a file", s: Security{Mechanism: "PLAIN", User: testcluster.KafkaUser, PasswordFile: secretFile(t, testcluster.KafkaPassword)}},
		{name: "scram 256", s: Security{Mechanism: "SCRAM-SHA-256", User: testcluster.KafkaUser, Password: testcluster.KafkaPassword}},
		{name: "scram 512", s: Security{Mechanism: "SCRAM-SHA-512", User: testcluster.KafkaUser, Password: testcluster.KafkaPassword}},
		{name: "token file", s: Security{Mechanism: "OAUTHBEARER", TokenFile: secretFile(t, unsecured(time.Minute))}},
		{name: "token command", s: Security{Mechanism: "OAUTHBEARER", TokenCommand: "cat " + secretFile(t, unsecured(time.Minute))}},
		{name: "token endpoint", s: Security{Mechanism: "OAUTHBEARER", TokenURL: provider.URL, User: "id", Password: "oidc-Secret", Scope: "kafka"}},
		{name: "tls", tls: true, s: Security{CAFile: c.CAFile(), CertFile: c.CertFile(), KeyFile: c.KeyFile()}},

		{name: "wrong password", s: Security{Mechanism: "PLAIN", User: testcluster.KafkaUser, Password: "a-Wrong-one"}, says: "the login failed"},
		{name: "wrong scram password", s: Security{Mechanism: "SCRAM-SHA-512", User: testcluster.KafkaUser, Password: "a-Wrong-one"}, says: "the login failed"},
		{name: "unknown mechanism there", s: Security{Mechanism: "AWS_MSK_IAM"}, says: "do not know this mechanism"},
		{name: "expired token", s: Security{Mechanism: "OAUTHBEARER", TokenFile: secretFile(t, unsecured(-time.Hour))}, says: "the login failed"},
		{name: "token command fails", s: Security{Mechanism: "OAUTHBEARER", TokenCommand: "false"}, says: "the output of false"},
		{name: "token endpoint refuses", s: Security{Mechanism: "OAUTHBEARER", TokenURL: provider.URL, User: "id", Password: "a-Wrong-one"}, says: "401"},
		{name: "untrusted certificate", tls: true, s: Security{TLS: true}, says: "not trusted"},
		{name: "another name", tls: true, s: Security{CAFile: c.CAFile(), CertFile: c.CertFile(), KeyFile: c.KeyFile(), ServerName: "kafka.example"}, says: "not trusted"},
		{name: "no client certificate", tls: true, s: Security{CAFile: c.CAFile()}, says: "refuse our certificate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := ClientOptions{Brokers: c.SASLBrokers()}
			if tc.tls {
				o.Brokers = c.TLSBrokers()
			}
			if err := tc.s.Apply(&o); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			err := Ping(context.Background(), o, 0)
			switch {
			case tc.says == "" && err != nil:
				t.Fatal(err)
			case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says) || !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "a-Wrong-one") || strings.Contains(err.Error(), "\n")):
				t.Errorf("%v; want one about %q, marked as the configuration's", err, tc.says)
			case tc.says != "":
				t.Log(err)
			}
			if took := time.Since(begun); took > 8*time.Second {
				t.Errorf("it took %s", took)
			}
			if tc.says != "" {
				return
			}
			// The other clients take the same way.
			p, err := NewLogProducer(o, ProducerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			p.Close()
		})
	}
}

// A broker that closes the connection says nothing of why; the error names what is likely.
func TestTLSAtAPlainPort(t *testing.T) {
	c := testcluster.StartSecure(t)
	for _, o := range []ClientOptions{{Brokers: c.SASLBrokers(), TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, {Brokers: c.TLSBrokers()}} {
		err := Ping(context.Background(), o, 2*time.Second)
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "TLS") {
			t.Errorf("%v", err)
		}
	}
}

func TestSecurityRefuses(t *testing.T) {
	empty := secretFile(t, "")
	for _, tc := range []struct {
		s    Security
		says string
	}{
		{Security{Mechanism: "KERBEROS"}, "SCRAM-SHA-256"},
		{Security{Mechanism: "PLAIN"}, "needs a user"},
		{Security{Mechanism: "PLAIN", User: "u"}, "no password"},
		{Security{Mechanism: "PLAIN", User: "u", PasswordFile: "/nowhere"}, "/nowhere"},
		{Security{Mechanism: "PLAIN", User: "u", PasswordFile: empty}, "empty"},
		{Security{User: "u"}, "no mechanism"},
		{Security{Mechanism: "OAUTHBEARER"}, "one of a token file"},
		{Security{Mechanism: "OAUTHBEARER", TokenCommand: "  "}, "one of a token file"},
		{Security{Mechanism: "OAUTHBEARER", TokenFile: "a", TokenCommand: "b"}, "one of a token file"},
		{Security{Mechanism: "OAUTHBEARER", TokenURL: "https://u:p@host/x", User: "u"}, "without credentials"},
		{Security{Mechanism: "PLAIN", User: "u", Password: "p", TokenFile: "x"}, "OAUTHBEARER only"},
		{Security{CAFile: empty}, "no certificate"},
		{Security{CertFile: "x"}, "both"},
		{Security{CertFile: empty, KeyFile: empty}, "certificate"},
	} {
		var o ClientOptions
		if err := tc.s.Apply(&o); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v, want %q", tc.s, err, tc.says)
		}
	}
}
