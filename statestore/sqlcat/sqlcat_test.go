package sqlcat

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"github.com/varve-io/varve/statestore/restclient"
)

// TestFailed: what an error says of a read, and of a statement that moves a table:
// only what surely had no effect is no ErrUnknown (C4).
func TestFailed(t *testing.T) {
	of := func(code string) error { return &pq.Error{Code: pqerror.Code(code), Message: "m"} }
	for _, tc := range []struct {
		err        error
		read, move error
	}{
		{of("28P01"), restclient.ErrDenied, restclient.ErrDenied},
		{of("42501"), restclient.ErrDenied, restclient.ErrDenied},
		{of("3D000"), restclient.ErrOptions, restclient.ErrOptions},
		{of("40001"), restclient.ErrConflict, restclient.ErrConflict},
		{of("23505"), restclient.ErrConflict, restclient.ErrConflict},
		{of("42P01"), restclient.ErrNonsense, restclient.ErrNonsense},
		{of("57P01"), restclient.ErrAway, restclient.ErrUnknown},
		{of("08006"), restclient.ErrAway, restclient.ErrUnknown},
		{of("53300"), restclient.ErrAway, restclient.ErrUnknown},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, restclient.ErrAway, restclient.ErrAway},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, restclient.ErrAway, restclient.ErrUnknown},
		{context.DeadlineExceeded, restclient.ErrAway, restclient.ErrUnknown},
	} {
		if got := failed(tc.err, false); !errors.Is(got, tc.read) || !errors.Is(got, tc.err) {
			t.Errorf("read: %v is %v, want %v", tc.err, got, tc.read)
		}
		if got := failed(tc.err, true); !errors.Is(got, tc.move) {
			t.Errorf("move: %v is %v, want %v", tc.err, got, tc.move)
		}
	}
}

func TestMetadataName(t *testing.T) {
	form := regexp.MustCompile(`^(\d{5})-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.metadata\.json$`)
	for old, want := range map[string]string{
		"": "00000", "file:///t/metadata/00041-ab.metadata.json": "00042", "s3://b/t/metadata/v7.metadata.json": "00000", "x/-3-ab.metadata.json": "00000",
	} {
		got := form.FindStringSubmatch(metadataName(old))
		if got == nil || got[1] != want {
			t.Errorf("after %q comes %q, want the number %s", old, metadataName(old), want)
		}
	}
	if one := metadataName(""); one == metadataName("") {
		t.Error("two commits have one name")
	}
}

func TestCheckOptions(t *testing.T) {
	for uri, want := range map[string]string{
		"postgres://h/db":                          "",
		"postgresql://u@h:5433/db?sslmode=disable": "",
		"postgres://u:secret@h/db":                 "holds a password",
		"postgres://h/db?password=secret":          "holds a password",
		"postgres://h":                             "postgres://user@host:port/database",
		"http://h/db":                              "postgres://user@host:port/database",
		"postgres://h/db?sslmode=secret":           "an option of it is not understood",
	} {
		err := CheckOptions(Options{URI: uri})
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, restclient.ErrOptions) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, want %q", uri, err, want)
		}
	}
}
