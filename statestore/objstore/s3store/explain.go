package s3store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/aws/smithy-go"

	"github.com/varve-io/varve/statestore/objstore"
)

// explainer makes of the SDK's chains of errors one that says what to do.
type explainer struct {
	bucket, endpoint string
	attempts         int
}

// explained shows a short text; the whole chain can still be asked.
type explained struct {
	text string
	mark error // objstore.ErrSetup, or nil
	err  error
}

func (e *explained) Error() string { return e.text }

func (e *explained) Unwrap() []error {
	if e.mark == nil {
		return []error{e.err}
	}
	return []error{e.mark, e.err}
}

func (x explainer) explain(err error) error {
	setup := func(format string, args ...any) error {
		return &explained{fmt.Sprintf(format, args...), objstore.ErrSetup, err}
	}
	var marked *credentialsError
	var api smithy.APIError
	var lookup *net.DNSError
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &marked):
		return setup("no credentials were found (%s); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile (profile=… in the URL, AWS_PROFILE), or run under a role", firstLine(marked))
	case errors.As(err, &api):
		code := api.ErrorCode()
		said := code
		if m := api.ErrorMessage(); m != "" {
			said += ": " + firstLine(errors.New(m))
		}
		switch code {
		case "NoSuchBucket":
			return setup("the bucket %q is not there; make it, or correct the URL", x.bucket)
		case "InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "InvalidToken", "InvalidAccessKey", "XAdminUserNotFound":
			return setup("the store at %s does not know these credentials (%s); correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile", x.where(), said)
		case "AccessDenied", "Forbidden", "AllAccessDisabled", "AccountProblem":
			return setup("the credentials do not allow this in bucket %q (%s); varve reads, writes, lists and deletes under its prefix", x.bucket, said)
		case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
			return setup("the credentials have expired (%s); renew them", said)
		case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
			return setup("bucket %q is in another region (%s); correct region=… in the URL", x.bucket, said)
		case "NotImplemented":
			return setup("the store at %s does not know what was asked (%s); if it has no conditional writes (If-None-Match), add conditional_writes=false to the URL and let one node alone publish", x.where(), said)
		}
		return &explained{fmt.Sprintf("the store at %s answered %s", x.where(), said), nil, err}
	case hopeless(err):
		if errors.Is(err, http.ErrSchemeMismatch) {
			return setup("%s does not speak TLS: %s; correct endpoint=… in the URL", x.where(), cause(err))
		}
		return setup("the certificate of %s is not trusted: %s; name the authority's file in AWS_CA_BUNDLE, or correct the endpoint", x.where(), cause(err))
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return setup("the host of %s is not known: %s; correct endpoint=… in the URL", x.where(), cause(err))
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &lookup), isTimeout(err):
		return &explained{fmt.Sprintf("no answer from %s after %d attempts: %s; check that it runs and that the address is right", x.where(), x.attempts, cause(err)), nil, err}
	}
	return err
}

func (x explainer) where() string {
	if x.endpoint != "" {
		return x.endpoint
	}
	return "Amazon S3"
}

// cause is the text of the error that began it.
func cause(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Error()
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return firstLine(certificate)
	}
	var request *url.Error
	if errors.As(err, &request) {
		return firstLine(request.Err)
	}
	return firstLine(err)
}

func firstLine(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}

func errorCode(err error) string {
	var e interface{ ErrorCode() string }
	if !errors.As(err, &e) {
		return ""
	}
	return e.ErrorCode()
}

// notFound is about the object only: a bucket that is not there, or lies in
// another region, is an error and not an absence. (A HEAD answer has no body;
// there a missing bucket cannot be told from a missing object.)
func notFound(err error) bool {
	code := errorCode(err)
	return code == "NoSuchKey" || code == "NotFound"
}
