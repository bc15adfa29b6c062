package restcatalog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestCheckAddress(t *testing.T) {
	const token = "0123456789abcdef"
	for _, tc := range []struct {
		address, token string
		want           error // nil: fine; errOther: any other
	}{
		{"127.0.0.1:8181", "", nil}, {"localhost:0", "", nil}, {"[::1]:8181", "", nil}, {"127.0.0.1:8181", token, nil},
		{"0.0.0.0:8181", token, nil}, {":8181", token, nil}, {"lake.example:8181", token, nil},
		{"0.0.0.0:8181", "", ErrOpen}, {":8181", "", ErrOpen}, {"[::]:8181", "", ErrOpen}, {"10.0.0.1:8181", "", ErrOpen}, {"lake.example:1", "", ErrOpen},
		{"8181", "", errOther}, {"127.0.0.1", "", errOther}, {"127.0.0.1:http", "", errOther}, {"127.0.0.1:70000", "", errOther}, {"0.0.0.0:1", "short", errOther},
	} {
		err := CheckAddress(tc.address, tc.token)
		switch {
		case tc.want == errOther && (err == nil || errors.Is(err, ErrOpen)), tc.want != errOther && !errors.Is(err, tc.want):
			t.Errorf("%s with token %q: %v, want %v", tc.address, tc.token, err, tc.want)
		}
	}
}

var errOther = errors.New("another error")

func TestStoreConfig(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	for url, want := range map[string]map[string]string{
		"/tmp/lake": nil, "gs://b/p": nil, "s3://b/p": {},
		"s3://b/p?region=eu-west-1":                            {"client.region": "eu-west-1", "s3.region": "eu-west-1"},
		"s3://b/p?endpoint=http://127.0.0.1:9000&access_key=x": {"client.region": "us-east-1", "s3.region": "us-east-1", "s3.endpoint": "http://127.0.0.1:9000", "s3.path-style-access": "true"},
	} {
		if got := StoreConfig(url); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", url, got, want)
		}
	}
}

// A taken port gives way to a free one only where nobody asked for it; a large
// header and a slow client are turned away; Close ends it.
func TestServer(t *testing.T) {
	s, err := Listen(lake(t), "127.0.0.1:0", false, Options{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(s.URL(), "http://")
	if _, err := Listen(lake(t), address, false, Options{Logger: quiet()}); err == nil || !strings.Contains(err.Error(), "--catalog-listen") {
		t.Errorf("the same port again: %v", err)
	}
	second, err := Listen(lake(t), address, true, Options{Logger: quiet()})
	if err != nil || second.URL() == s.URL() {
		t.Fatalf("another port: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Listen(lake(t), "0.0.0.0:0", false, Options{}); !errors.Is(err, ErrOpen) {
		t.Errorf("beyond loopback without a token: %v", err)
	}
	resp, err := http.Get(s.URL() + "/v1/namespaces/shop/tables/orders")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || len(b) < len(metadata(1)) {
		t.Errorf("%s %d bytes (%v)", resp.Status, len(b), err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	raw := func(request string) string {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		go io.WriteString(c, request) // the server may hang up in the middle
		line, _ := bufio.NewReader(c).ReadString('\n')
		return line
	}
	for request, want := range map[string]string{
		"GET /v1/config HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n":                                                     "200",
		"GET /v1/config HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + strings.Repeat("x", 2*maxHeaderBytes) + "\r\n\r\n": "431",
		"GET /v1/" + strings.Repeat("x", maxPathBytes) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n":                  "400",
		"GET /v1/namespaces/%zz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n":                                             "400",
		"GET /v1/namespaces/shop/tables/../../../_varve HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n":                     "404",
		"nonsense\r\n\r\n": "400",
		"GET http://evil.example/v1/config HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n":                                                     "403",
		"POST /v1/namespaces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n" + strings.Repeat("x", 2*maxBodyBytes): "413",
	} {
		if line := raw(request); !strings.Contains(line, " "+want) {
			t.Errorf("%.60q: %q, want %s", request, line, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-s.Done()
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error(fmt.Sprint(address, " still listens"))
	}
}
