package testcluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	// KafkaUser and KafkaPassword log in at the SASL listener, with PLAIN and SCRAM.
	KafkaUser     = "varve"
	KafkaPassword = "varve-password"

	securePorts = 2
)

// secure are listeners for SASL and for TLS beside the plain one.
type secure struct {
	sasl, ssl int
	dir       string // of the certificates
}

// StartSecure is Start with one node that also listens for SASL (PLAIN, SCRAM-SHA-256 and -512, OAUTHBEARER with
// unsecured tokens) in plain text, and for TLS with client certificates, both of an authority of its own.
func StartSecure(t testing.TB) *Cluster {
	t.Helper()
	s := &secure{dir: t.TempDir()}
	if err := s.certificates(); err != nil {
		t.Fatalf("testcluster: certificates: %v", err)
	}
	return begin(t, 1, s)
}

// SASLBrokers is the address of the SASL listener.
func (c *Cluster) SASLBrokers() []string { return []string{fmt.Sprintf("127.0.0.1:%d", c.secure.sasl)} }

// TLSBrokers is the address of the TLS listener.
func (c *Cluster) TLSBrokers() []string { return []string{fmt.Sprintf("127.0.0.1:%d", c.secure.ssl)} }

// CAFile, CertFile and KeyFile are what a client of the TLS listener needs.
func (c *Cluster) CAFile() string   { return filepath.Join(c.secure.dir, "ca.pem") }
func (c *Cluster) CertFile() string { return filepath.Join(c.secure.dir, "client.pem") }
func (c *Cluster) KeyFile() string  { return filepath.Join(c.secure.dir, "client.key") }

func (s *secure) properties(n *node) string {
	const sasl = "listener.name.sasl_plaintext."
	lines := []string{
		fmt.Sprintf("listeners=PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d,SASL_PLAINTEXT://127.0.0.1:%d,SSL://127.0.0.1:%d", n.addr(), n.quorum, s.sasl, s.ssl),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://%s,SASL_PLAINTEXT://127.0.0.1:%d,SSL://127.0.0.1:%d", n.addr(), s.sasl, s.ssl),
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL",
		"inter.broker.listener.name=PLAINTEXT",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		sasl + `plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_` + KafkaUser + `="` + KafkaPassword + `";`,
		sasl + "scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		sasl + "scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		sasl + `oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";`,
		"ssl.keystore.type=PEM", "ssl.keystore.location=" + filepath.ToSlash(filepath.Join(s.dir, "server.both")),
		"ssl.truststore.type=PEM", "ssl.truststore.location=" + filepath.ToSlash(filepath.Join(s.dir, "ca.pem")),
		"ssl.client.auth=required",
	}
	return strings.Join(lines, "\n") + "\n"
}

func (s *secure) formatArgs() []string {
	var args []string
	for _, m := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
		args = append(args, "--add-scram", m+"=[name="+KafkaUser+",password="+KafkaPassword+"]")
	}
	return args
}

// certificates makes an authority, and a certificate of it for the server and for the client.
func (s *secure) certificates() error {
	begin, end := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: begin, NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caBytes, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	caPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caBytes})
	if err := os.WriteFile(filepath.Join(s.dir, "ca.pem"), caPEM, 0o600); err != nil {
		return err
	}
	for i, name := range []string{"server", "client"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		cert := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 2)), Subject: pkix.Name{CommonName: name}, NotBefore: begin, NotAfter: end,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		}
		certBytes, err := x509.CreateCertificate(rand.Reader, cert, ca, &key.PublicKey, caKey)
		if err != nil {
			return err
		}
		keyBytes, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return err
		}
		certPEM := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certBytes}), caPEM...)
		keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyBytes})
		for suffix, b := range map[string][]byte{".pem": certPEM, ".key": keyPEM, ".both": append(keyPEM[:len(keyPEM):len(keyPEM)], certPEM...)} {
			if err := os.WriteFile(filepath.Join(s.dir, name+suffix), b, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
