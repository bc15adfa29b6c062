package restcatalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/varve-io/varve/statestore/objstore"
)

const (
	// DefaultAddress is where a catalog listens. Where that port is taken and
	// nobody asked for it, any free one does.
	DefaultAddress = "127.0.0.1:8181"
	// MinTokenBytes is the least length of a token.
	MinTokenBytes = 16

	maxHeaderBytes = 32 << 10
	headerTime     = 10 * time.Second
	readTime       = 30 * time.Second
	writeTime      = 2 * time.Minute // a large answer over a slow line
	idleTime       = 2 * time.Minute
	shutdownTime   = 5 * time.Second
)

// ErrOpen: an address that others reach, without a token to keep them out.
var ErrOpen = errors.New("a catalog beyond loopback needs a token")

// CheckAddress refuses an address that is none, and one beyond loopback
// without a token (ErrOpen).
func CheckAddress(address, token string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is no address to listen on; write it as 127.0.0.1:8181", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is no address to listen on: %q is no port; write it as 127.0.0.1:8181", address, port)
	}
	if token == "" && !IsLoopback(host) {
		return fmt.Errorf("%w: %s is reached from other machines", ErrOpen, address)
	}
	if token != "" && len(token) < MinTokenBytes {
		return fmt.Errorf("the token has %d bytes; take at least %d", len(token), MinTokenBytes)
	}
	return nil
}

// StoreConfig is what readers must know of a warehouse to reach its files
// themselves: endpoint, region and style of S3, never credentials.
func StoreConfig(warehouse string) map[string]string {
	u, err := url.Parse(warehouse)
	if err != nil || u.Scheme != "s3" {
		return nil
	}
	out := map[string]string{}
	q := u.Query()
	region := q.Get("region")
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		if region == "" {
			region = os.Getenv(name)
		}
	}
	if e := q.Get("endpoint"); e != "" {
		out["s3.endpoint"] = e
		out["s3.path-style-access"] = "true"
		if region == "" {
			region = "us-east-1"
		}
	}
	if s := q.Get("use_path_style"); s != "" {
		out["s3.path-style-access"] = s
	}
	if region != "" {
		out["client.region"], out["s3.region"] = region, region
	}
	return out
}

// Server is a catalog that listens.
type Server struct {
	url  string
	srv  *http.Server
	done chan struct{} // closed when it serves no more
	err  error         // why, once done is closed
}

// Listen serves a store's tables on an address, and, when anyPort is set and
// the port is taken, on a free one of the same host. Beyond loopback it needs
// opt.Token (ErrOpen).
func Listen(store objstore.Store, address string, anyPort bool, opt Options) (*Server, error) {
	if err := CheckAddress(address, opt.Token); err != nil {
		return nil, err
	}
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	l, err := net.Listen("tcp", address)
	if anyPort && errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(address) // checked above
		l, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, fmt.Errorf("listen for the catalog: %w; give another address with --catalog-listen", err)
	}
	s := &Server{
		url: "http://" + l.Addr().String(), done: make(chan struct{}),
		srv: &http.Server{
			Handler: New(store, opt), MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: headerTime, ReadTimeout: readTime,
			WriteTimeout: writeTime, IdleTimeout: idleTime, ErrorLog: slog.NewLogLogger(opt.Logger.Handler(), slog.LevelDebug),
		},
	}
	go func() {
		defer close(s.done)
		if err := s.srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.err = fmt.Errorf("the catalog on %s stopped: %w", s.url, err)
			opt.Logger.Error("the catalog stopped", "error", s.err)
		}
	}()
	return s, nil
}

// URL is where clients reach the catalog.
func (s *Server) URL() string { return s.url }

// Done is closed when the server serves no more: after Close, or after an
// error, which Close returns.
func (s *Server) Done() <-chan struct{} { return s.done }

// Close lets requests under way end, for a moment, and stops listening.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	err := s.srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.srv.Close() // who still asks gets no answer
	}
	<-s.done
	return errors.Join(err, s.err)
}
