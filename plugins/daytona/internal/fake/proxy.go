// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fake

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/berth-dev/berth/plugins/daytona/internal/fake/machine"
)

const (
	skipActivity = "X-Daytona-Skip-Last-Activity-Update"
	previewToken = "X-Daytona-Preview-Token"  //nolint:gosec // likewise
	previewKey   = "DAYTONA_SANDBOX_AUTH_KEY" //nolint:gosec // likewise
	// activityEvery is how often an open request counts as activity, by the fake's clock.
	activityEvery = 50 * time.Second
	maxSignedTTL  = 86400
)

// guardedPorts need a key also where a sandbox is public.
var guardedPorts = []int{2280, 22222, 33333}

// signedURL is a preview address that carries its token.
type signedURL struct {
	sandbox string
	port    int
	expires time.Time
}

func (f *Fake) previewURL(r *http.Request) (any, error) {
	port, err := number(r.PathValue("port"))
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.findLocked(r)
	if err != nil {
		return nil, err
	}
	return map[string]any{"sandboxId": s.dto.ID, "url": fmt.Sprintf("http://%d-%s.%s", port, s.dto.ID, f.PreviewDomain), "token": s.token}, nil
}

func (f *Fake) signedPreviewURL(r *http.Request) (any, error) {
	port, err := number(r.PathValue("port"))
	if err != nil {
		return nil, err
	}
	ttl := 60
	if v := r.URL.Query().Get("expiresInSeconds"); v != "" {
		if ttl, err = number(v); err != nil || ttl < 1 || ttl > maxSignedTTL {
			return nil, fail(400, "expiresInSeconds must be between 1 and 86400")
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.findLocked(r)
	if err != nil {
		return nil, err
	}
	token := strings.ReplaceAll(uuid.NewString(), "-", "")[:20]
	f.signed[token] = &signedURL{s.dto.ID, port, f.nowLocked().Add(time.Duration(ttl) * time.Second)}
	return map[string]any{"sandboxId": s.dto.ID, "port": port, "token": token, "url": fmt.Sprintf("http://%d-%s.%s", port, token, f.PreviewDomain)}, nil
}

func (f *Fake) expirePreviewURL(r *http.Request) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.signed[r.PathValue("token")] == nil {
		return nil, fail(404, "Signed preview URL not found")
	}
	delete(f.signed, r.PathValue("token"))
	return map[string]any{}, nil
}

// toolbox passes a call on to a sandbox's daemon.
func (f *Fake) toolbox(w http.ResponseWriter, r *http.Request) {
	id, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/toolbox/"), "/")
	f.mu.Lock()
	s := f.sandboxes[id]
	known := r.Header.Get("Authorization") == "Bearer "+f.key
	f.mu.Unlock()
	if !known || s == nil {
		// Nobody is told whether a sandbox is there.
		refuse(w, r, fail(401, "unauthorized: missing or invalid authentication"))
		return
	}
	r.Header.Del("Authorization")
	r.URL.Path, r.URL.RawPath = "/"+rest, ""
	f.pass(w, r, s, func(m *machine.Machine) func(context.Context) (net.Conn, error) { return m.DialDaemon })
}

var previewHost = regexp.MustCompile(`^(\d+)-([^.]+)\.`)

// preview passes a request on to a port inside.
func (f *Fake) preview(w http.ResponseWriter, r *http.Request) {
	m := previewHost.FindStringSubmatch(r.Host)
	if m == nil {
		refuse(w, r, fail(400, "invalid host format: port and sandbox ID not found"))
		return
	}
	port, err := strconv.Atoi(m[1])
	if err != nil {
		refuse(w, r, fail(400, "invalid port"))
		return
	}
	f.mu.Lock()
	s := f.sandboxes[m[2]]
	if u := f.signed[m[2]]; u != nil && u.port == port && f.nowLocked().Before(u.expires) {
		s = f.sandboxes[u.sandbox]
	} else if s != nil && (!s.dto.Public || slices.Contains(guardedPorts, port)) {
		ok := r.Header.Get("Authorization") == "Bearer "+f.key || r.Header.Get(previewToken) == s.token || r.URL.Query().Get(previewKey) == s.token
		if c, err := r.Cookie("daytona-sandbox-auth-" + s.dto.ID); err == nil && c.Value == s.token {
			ok = true
		}
		if !ok {
			s = nil
		}
	}
	f.mu.Unlock()
	if s == nil {
		http.Redirect(w, r, f.URL+"/login", http.StatusTemporaryRedirect)
		return
	}
	for _, h := range []string{"Authorization", previewToken} {
		r.Header.Del(h)
	}
	f.pass(w, r, s, func(m *machine.Machine) func(context.Context) (net.Conn, error) {
		return func(ctx context.Context) (net.Conn, error) { return m.DialPort(ctx, port) }
	})
}

// pass passes a request on. It counts as activity for as long as it goes on, unless it says otherwise.
func (f *Fake) pass(w http.ResponseWriter, r *http.Request, s *sandbox, dialer func(*machine.Machine) func(context.Context) (net.Conn, error)) {
	f.mu.Lock()
	m, state := s.machine, s.dto.State
	if r.Header.Get(skipActivity) != "true" {
		s.dto.LastActivityAt = f.nowLocked()
		done := make(chan struct{})
		defer close(done)
		go f.keepActive(s, done)
	}
	f.mu.Unlock()
	switch {
	case state == destroyed || state == destroying:
		refuse(w, r, fail(404, "not found: sandbox container not found"))
		return
	case m == nil || state != started && state != taking:
		refuse(w, r, fail(400, "bad request: no IP address found. Is the Sandbox started?"))
		return
	}
	dial := dialer(m)
	p := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: "inside"})
			p.Out.URL.RawQuery = p.In.URL.RawQuery
		},
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }},
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		FlushInterval: -1,
	}
	p.ServeHTTP(w, r)
}

func (f *Fake) keepActive(s *sandbox, done chan struct{}) {
	t := time.NewTicker(activityEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f.mu.Lock()
			s.dto.LastActivityAt = f.nowLocked()
			f.mu.Unlock()
		case <-done:
			return
		}
	}
}
