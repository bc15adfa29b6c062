package s3store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// Bounds of one request, each a parameter of the URL (max_attempts,
// max_backoff, stall_timeout).
const (
	// DefaultMaxAttempts is how often one request is sent.
	DefaultMaxAttempts = 5
	// DefaultMaxBackoff bounds the wait between two attempts. It grows from
	// a second, with jitter.
	DefaultMaxBackoff = 5 * time.Second
	// DefaultStallTimeout is how long a connection may carry no byte while a
	// request is under way.
	DefaultStallTimeout = 30 * time.Second

	dialTimeout = 5 * time.Second
)

// transport gives up connections that stand still: the default one waits for
// ever for an answer. The certificate authorities of AWS_CA_BUNDLE, which the
// client was loaded with, stay.
func transport(client aws.HTTPClient, stall time.Duration) aws.HTTPClient {
	b, ok := client.(*awshttp.BuildableClient)
	if !ok {
		b = awshttp.NewBuildableClient()
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return b.WithTransportOptions(func(t *http.Transport) {
		t.TLSHandshakeTimeout = dialTimeout
		t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &stallConn{Conn: c, stall: stall}, nil
		}
	})
}

// stallConn fails reads and writes that make no progress.
type stallConn struct {
	net.Conn
	stall time.Duration
}

func (c *stallConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write also moves the deadline of the read that waits for the answer, which
// began when the connection was last idle.
func (c *stallConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// newRetryer sends a request again where that can help: after connection
// errors, time-outs, 5xx and throttling, and with fresh credentials after they
// expired. cache may be nil.
func newRetryer(attempts int, backoff time.Duration, cache *aws.CredentialsCache) aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts, o.MaxBackoff = attempts, backoff
		// Its budget is shared by all calls: one that fails must not take
		// another's attempts.
		o.RateLimiter = ratelimit.None
		o.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
			switch {
			case hopeless(err):
				return aws.FalseTernary
			case expired(err):
				if cache != nil {
					cache.Invalidate()
				}
				return aws.TrueTernary
			case errors.Is(err, net.ErrClosed), isTimeout(err):
				return aws.TrueTernary
			}
			return aws.UnknownTernary
		})}, o.Retryables...)
	})
}

// hopeless are errors that are the same at the next attempt.
func hopeless(err error) bool {
	var (
		marked      *credentialsError
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		host        x509.HostnameError
		invalid     x509.CertificateInvalidError
		record      tls.RecordHeaderError
	)
	return errors.As(err, &marked) || errors.As(err, &certificate) || errors.As(err, &authority) ||
		errors.As(err, &host) || errors.As(err, &invalid) || errors.As(err, &record) ||
		errors.Is(err, http.ErrSchemeMismatch)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout() && !errors.Is(err, context.DeadlineExceeded)
}

// expired are the answers to a session that has ended.
func expired(err error) bool {
	switch errorCode(err) {
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
		return true
	}
	return false
}

// markedCredentials marks that the credentials were not found, or could not be
// made: their providers have tried again already.
type markedCredentials struct{ aws.CredentialsProvider }

func (m markedCredentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := m.CredentialsProvider.Retrieve(ctx)
	if err != nil && ctx.Err() == nil {
		err = &credentialsError{err}
	}
	return c, err
}

type credentialsError struct{ err error }

func (e *credentialsError) Error() string { return e.err.Error() }
func (e *credentialsError) Unwrap() error { return e.err }
