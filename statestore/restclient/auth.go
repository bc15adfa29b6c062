package restclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// auth gives the token of requests: a fixed one, or one that is asked for with
// the credential and renewed before it ends.
type auth struct {
	c     *Client
	url   *url.URL
	token string // fixed

	mu      sync.Mutex
	current string
	until   time.Time
}

// tokenMargin is how long before its end a token is renewed, at most a third of its life.
const tokenMargin = 5 * time.Minute

// defaultTokenLife is that of a token that says none.
const defaultTokenLife = time.Hour

// get is a token that is taken now. One caller asks, the others wait for it.
func (a *auth) get(ctx context.Context) (string, error) {
	if a.token != "" {
		return a.token, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != "" && time.Now().Before(a.until) {
		return a.current, nil
	}
	id, secret, found := strings.Cut(a.c.opt.Credential, ":")
	if !found {
		id, secret = "", id
	}
	scope := a.c.opt.Scope
	if scope == "" {
		scope = "catalog"
	}
	form := url.Values{"grant_type": {"client_credentials"}, "client_secret": {secret}, "scope": {scope}}
	if id != "" {
		form.Set("client_id", id)
	}
	var out struct {
		AccessToken string  `json:"access_token"`
		ExpiresIn   float64 `json:"expires_in"`
	}
	err := a.c.once(ctx, &request{method: http.MethodPost, url: a.url, form: form, limit: MaxAnswerBytes, noAuth: true}, &out)
	var s *statusError
	if errors.As(err, &s) && s.status == http.StatusBadRequest {
		// OAuth2's invalid_client comes so.
		return "", fmt.Errorf("%w: it gives no token for the credential: status %d", ErrDenied, s.status)
	}
	if err != nil {
		return "", fmt.Errorf("ask for a token: %w", err)
	}
	if out.AccessToken == "" || !validHeader("x", out.AccessToken) {
		return "", fmt.Errorf("%w: %s answers without a token", ErrNonsense, a.url.Redacted())
	}
	life := defaultTokenLife
	if out.ExpiresIn > 0 && out.ExpiresIn < 1e9 {
		life = time.Duration(out.ExpiresIn * float64(time.Second))
	}
	a.current, a.until = out.AccessToken, time.Now().Add(life-min(tokenMargin, life/3))
	return a.current, nil
}

// renew drops the token; false: there is no other one.
func (a *auth) renew() bool {
	if a.token != "" {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current = ""
	return true
}
