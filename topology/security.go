package topology

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl"
	saslaws "github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Mechanisms are the ways to log in to brokers.
var Mechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"}

// Security says how to reach brokers that are not open to all. Secrets are read
// from files or given by the environment, at each login: files may change.
type Security struct {
	// TLS encrypts connections; the fields below imply it. Certificates are
	// always checked.
	TLS bool
	// CAFile has the certificate authorities. Default: the system's.
	CAFile string
	// CertFile and KeyFile are this client's certificate, PEM.
	CertFile, KeyFile string
	// ServerName is what the brokers' certificates must be for. Default: the
	// host that is dialled.
	ServerName string

	// Mechanism is one of Mechanisms. Default: no login.
	Mechanism string
	// User of PLAIN and SCRAM, client id of OIDC.
	User string
	// Password of the user, or PasswordFile with it.
	Password, PasswordFile string
	// One of them gives OAUTHBEARER its token: a file, a command's output, or
	// an OIDC provider's token endpoint, asked with client credentials.
	TokenFile, TokenCommand, TokenURL string
	// Scope asked of TokenURL, if any.
	Scope string
}

const (
	maxSecretBytes = 64 << 10
	tokenTimeout   = 30 * time.Second
)

// Apply sets TLS and SASL of o. Errors are the configuration's.
func (s Security) Apply(o *ClientOptions) error {
	if s.TLS || s.CAFile != "" || s.CertFile != "" || s.KeyFile != "" || s.ServerName != "" {
		c, err := s.tls()
		if err != nil {
			return fmt.Errorf("%w: Kafka TLS: %w", ErrConfig, err)
		}
		o.TLS = c
	}
	m, err := s.mechanism()
	if err != nil {
		return fmt.Errorf("%w: Kafka SASL: %w", ErrConfig, err)
	}
	if m != nil {
		o.SASL = []sasl.Mechanism{m}
	}
	if o.Facts, err = s.facts(); err != nil {
		return fmt.Errorf("%w: Kafka TLS: %w", ErrConfig, err)
	}
	return nil
}

func (s *Security) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.ServerName}
	if s.CAFile != "" {
		b, err := readSecret(s.CAFile)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("%s has no certificate; it must be PEM", s.CAFile)
		}
	}
	if (s.CertFile == "") != (s.KeyFile == "") {
		return nil, errors.New("a client certificate needs both its certificate and its key")
	}
	if s.CertFile == "" {
		return c, nil
	}
	if _, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile); err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", s.CertFile, s.KeyFile, err)
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
		return &pair, err
	}
	return c, nil
}

func (s *Security) mechanism() (sasl.Mechanism, error) {
	tokens := 0
	for _, v := range []string{s.TokenFile, strings.TrimSpace(s.TokenCommand), s.TokenURL} {
		if v != "" {
			tokens++
		}
	}
	if s.Mechanism != "OAUTHBEARER" && tokens > 0 {
		return nil, errors.New("a token is for the mechanism OAUTHBEARER only")
	}
	switch s.Mechanism {
	case "":
		if s.User != "" || s.Password != "" || s.PasswordFile != "" {
			return nil, fmt.Errorf("a user or password is given, but no mechanism; it is one of %s", strings.Join(Mechanisms, ", "))
		}
		return nil, nil
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		if s.User == "" {
			return nil, fmt.Errorf("%s needs a user", s.Mechanism)
		}
		if _, err := s.password(); err != nil {
			return nil, err
		}
	case "OAUTHBEARER":
		if tokens != 1 {
			return nil, errors.New("OAUTHBEARER needs one of a token file, a token command and a token URL")
		}
		if s.TokenURL != "" {
			u, err := url.Parse(s.TokenURL)
			if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
				return nil, errors.New("the token URL is no URL of an https endpoint without credentials")
			}
			if s.User == "" {
				return nil, errors.New("a token URL needs the client's id as the user")
			}
			if _, err := s.password(); err != nil {
				return nil, err
			}
		}
		t := &tokenSource{s: *s}
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := t.token(ctx)
			return oauth.Auth{Token: token}, loginError(err)
		}), nil
	case "AWS_MSK_IAM":
		var once sync.Once
		var credentials aws.CredentialsProvider
		var failed error
		return saslaws.ManagedStreamingIAM(func(ctx context.Context) (saslaws.Auth, error) {
			once.Do(func() {
				cfg, err := config.LoadDefaultConfig(ctx)
				credentials, failed = cfg.Credentials, err
			})
			if failed != nil {
				return saslaws.Auth{}, loginError(failed)
			}
			c, err := credentials.Retrieve(ctx)
			return saslaws.Auth{AccessKey: c.AccessKeyID, SecretKey: c.SecretAccessKey, SessionToken: c.SessionToken, UserAgent: DefaultClientID}, loginError(err)
		}), nil
	default:
		return nil, fmt.Errorf("%q is no mechanism; it is one of %s", s.Mechanism, strings.Join(Mechanisms, ", "))
	}
	if s.Mechanism == "PLAIN" {
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			p, err := s.password()
			return plain.Auth{User: s.User, Pass: p}, loginError(err)
		}), nil
	}
	auth := func(context.Context) (scram.Auth, error) {
		p, err := s.password()
		return scram.Auth{User: s.User, Pass: p}, loginError(err)
	}
	if s.Mechanism == "SCRAM-SHA-256" {
		return scram.Sha256(auth), nil
	}
	return scram.Sha512(auth), nil
}

func (s *Security) password() (string, error) {
	if s.PasswordFile == "" {
		if s.Password == "" {
			return "", errors.New("no password is given: name a file with it, or set it in the environment")
		}
		return s.Password, nil
	}
	b, err := readSecret(s.PasswordFile)
	if err == nil && len(b) == 0 {
		err = fmt.Errorf("%s is empty", s.PasswordFile)
	}
	return string(b), err
}

// readSecret reads a small file without the line end that editors add.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(b) > maxSecretBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxSecretBytes)
	}
	return bytes.TrimRight(b, "\r\n"), nil
}

// tokenSource gets OAUTHBEARER's token. One that has a known life is used
// again for most of it.
type tokenSource struct {
	s Security

	mu    sync.Mutex
	last  string
	until time.Time
}

func (t *tokenSource) token(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	switch {
	case t.s.TokenFile != "":
		b, err := readSecret(t.s.TokenFile)
		return checkToken(string(b), t.s.TokenFile, err)
	case t.s.TokenCommand != "":
		words := strings.Fields(t.s.TokenCommand)
		out, err := exec.CommandContext(ctx, words[0], words[1:]...).Output()
		return checkToken(string(out), "the output of "+words[0], err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.until) {
		return t.last, nil
	}
	token, life, err := t.ask(ctx)
	if err != nil {
		return "", fmt.Errorf("token of %s: %w", t.s.TokenURL, err)
	}
	t.last, t.until = token, time.Now().Add(life*4/5)
	return token, nil
}

func checkToken(token, from string, err error) (string, error) {
	if token = strings.TrimSpace(token); err == nil && (token == "" || len(token) > maxSecretBytes) {
		err = errors.New("it is no token")
	}
	if err != nil {
		return "", fmt.Errorf("token of %s: %w", from, err)
	}
	return token, nil
}

// ask is OAuth's client credentials grant (RFC 6749, 4.4).
func (t *tokenSource) ask(ctx context.Context) (token string, life time.Duration, err error) {
	password, err := t.s.password()
	if err != nil {
		return "", 0, err
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if t.s.Scope != "" {
		form.Set("scope", t.s.Scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.s.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(url.QueryEscape(t.s.User), url.QueryEscape(password))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close() // read to its end, or of no more use
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxSecretBytes))
	if err != nil {
		return "", 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return "", 0, fmt.Errorf("it answers %s", resp.Status)
	}
	var answer struct {
		Token string  `json:"access_token"`
		Life  float64 `json:"expires_in"`
	}
	if json.Unmarshal(b, &answer) != nil || answer.Token == "" {
		return "", 0, errors.New("its answer has no access_token")
	}
	return answer.Token, time.Duration(min(max(answer.Life, 0), 24*3600) * float64(time.Second)), nil
}

// ErrLogin marks errors of brokers that refuse us: another attempt is refused too.
var ErrLogin = errors.New("the brokers refuse the connection")

// loginError marks that what a login needs is not to be had.
func loginError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrLogin, err)
}

// refused explains an error that asking again does not mend; nil: another one.
func refused(err error, brokers string) error {
	var (
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		alert       *net.OpError
	)
	say := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w: %s: %s", ErrConfig, ErrLogin, brokers, fmt.Sprintf(format, args...))
	}
	switch {
	case errors.Is(err, ErrLogin):
		return fmt.Errorf("%w: %s: %w", ErrConfig, brokers, err)
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return say("the login failed: %v; check mechanism, user and password", err)
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return say("they do not know this mechanism: %v", err)
	case errors.Is(err, kerr.IllegalSaslState):
		return say("they ask for no login at this port, or for TLS first: %v", err)
	case errors.As(err, &certificate):
		return say("their certificate is not trusted: %v; name its authority (--kafka-ca), or the name that it is for (--kafka-server-name)", certificate)
	case errors.As(err, &record):
		return say("they do not speak TLS at this port: %v", record)
	case errors.As(err, &alert) && alert.Op == "remote error":
		return say("they refuse our certificate (%v); give one that they trust (--kafka-cert, --kafka-key)", alert.Err)
	case strings.Contains(err.Error(), "SASL"):
		return say("the login failed: %v; check mechanism, user and password", err)
	}
	return nil
}
