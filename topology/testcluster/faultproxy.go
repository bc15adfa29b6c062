package testcluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Fault is what a proxy does to one request.
type Fault int

const (
	// Pass hands the request on and its answer back.
	Pass Fault = iota
	// Reset ends the connection before anything of the request is handed on.
	Reset
	// ResetRequest hands on half of the request's body, then ends both connections.
	ResetRequest
	// ResetResponse hands the request on and gives back half of the answer's body.
	ResetResponse
	// Unavailable answers 503 itself.
	Unavailable
	// LoseAnswer hands the request on, waits for the whole answer, and ends the connection without a byte of it.
	LoseAnswer
	// Slow hands on after Proxy.Delay.
	Slow
	// Hang reads the request and never answers.
	Hang
	faults
)

func (f Fault) String() string {
	names := [...]string{"pass", "reset", "reset in the request", "reset in the answer", "503", "answer lost", "slow", "hang"}
	if f < 0 || f >= faults {
		return fmt.Sprintf("fault %d", int(f))
	}
	return names[f]
}

// Proxy stands between a client and one HTTP server, and makes faults.
type Proxy struct {
	t        testing.TB
	upstream *url.URL
	addr     string
	client   *http.Transport
	closed   chan struct{} // hanging requests end with the proxy

	mu     sync.Mutex
	server *http.Server // nil: connections are refused
	served chan error
	choose func(*http.Request) Fault
	delay  time.Duration
	counts [faults]int
}

// StartProxy starts a proxy on 127.0.0.1 before an HTTP server, http://host:port, and ends it with the test. It
// passes everything until Fail says otherwise. The Host of requests stays: signatures cover it.
func StartProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	u, err := url.Parse(upstream)
	if err != nil {
		t.Fatalf("testcluster: proxy: %v", err)
	}
	p := &Proxy{t: t, upstream: u, delay: time.Second, closed: make(chan struct{}), client: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16}}
	ports, err := freePorts(1)
	if err != nil {
		t.Fatalf("testcluster: %v", err)
	}
	p.addr = fmt.Sprintf("127.0.0.1:%d", ports[0])
	p.Refuse(false)
	t.Cleanup(func() {
		close(p.closed)
		p.Refuse(true)
		p.client.CloseIdleConnections()
	})
	return p
}

// Endpoint is the proxy's URL.
func (p *Proxy) Endpoint() string { return "http://" + p.addr }

// Addr is the proxy's host:port.
func (p *Proxy) Addr() string { return p.addr }

// Fail lets choose decide about each request; nil passes all. It is called on many goroutines, one call at a time.
func (p *Proxy) Fail(choose func(*http.Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.choose = choose
}

// Delay sets how long Slow waits. Default: a second.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Count is how many requests had a fault.
func (p *Proxy) Count(f Fault) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[f]
}

// Refuse closes the proxy's port, ending its connections, or opens it again.
func (p *Proxy) Refuse(refuse bool) {
	p.t.Helper()
	p.mu.Lock()
	server, served := p.server, p.served
	p.mu.Unlock()
	switch {
	case refuse && server != nil:
		p.mu.Lock()
		p.server = nil
		p.mu.Unlock()
		if err := server.Close(); err != nil {
			p.t.Errorf("testcluster: close the proxy: %v", err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			p.t.Errorf("testcluster: the proxy ended: %v", err)
		}
	case !refuse && server == nil:
		l, err := net.Listen("tcp", p.addr)
		if err != nil {
			p.t.Fatalf("testcluster: proxy: %v", err)
		}
		server, served = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}, make(chan error, 1)
		p.mu.Lock()
		p.server, p.served = server, served
		p.mu.Unlock()
		go func() { served <- server.Serve(l) }()
	}
}

// ServeHTTP is the proxy at work.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	f, delay := Pass, p.delay
	if p.choose != nil {
		f = p.choose(r)
	}
	p.counts[f]++
	p.mu.Unlock()
	switch f {
	case Reset:
		reset(w)
		return
	case Unavailable:
		// Read, so that the client is not interrupted in the middle of its request.
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Retry-After", "0")
		http.Error(w, "the proxy is told to be unavailable", http.StatusServiceUnavailable)
		return
	case Hang:
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-p.closed:
		}
		return
	case Slow:
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return
		case <-p.closed:
			return
		}
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = p.upstream.Scheme, p.upstream.Host
	out.RequestURI = ""
	if r.ContentLength == 0 {
		out.Body = http.NoBody
	}
	if f == ResetRequest {
		out.Body = io.NopCloser(&broken{r: r.Body, left: r.ContentLength / 2})
	}
	resp, err := p.client.RoundTrip(out)
	if err != nil {
		reset(w) // as asked for, or the server is away
		return
	}
	defer resp.Body.Close()
	if f == LoseAnswer {
		_, _ = io.Copy(io.Discard, resp.Body)
		reset(w)
		return
	}
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(resp.StatusCode)
	if f == ResetResponse {
		_, _ = io.CopyN(w, resp.Body, max(resp.ContentLength/2, 0))
		if fl, ok := w.(http.Flusher); ok {
			fl.Flush()
		}
		reset(w)
		return
	}
	// The client notices an answer that ends early, and that is all there is to do about it.
	_, _ = io.Copy(w, resp.Body)
}

// broken is a body that ends in the middle.
type broken struct {
	r    io.Reader
	left int64
}

func (b *broken) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the proxy ends the request here")
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// reset ends the client's connection with a reset.
func reset(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the server's own way of ending a connection
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
