// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/plugins/e2b/internal/wire/filesystem"
	"github.com/berth-dev/berth/plugins/e2b/internal/wire/process"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/vendorhttp"
)

// DaemonPort is the port of the daemon inside each sandbox.
const DaemonPort = 49983

// keepalive is how often the daemon says on a quiet stream that it is there, in seconds. It must never be below 1: a daemon
// that is asked for 0 ends.
const keepalive = "50"

// Sandbox reaches what is inside of one sandbox. It may be used from several goroutines.
type Sandbox struct {
	c      *Client
	info   Info // as it was opened
	id     string
	domain string
	base   string
	files  *vendorhttp.Client
	http   *http.Client

	mu      sync.Mutex
	token   string // guarded by mu; the daemon's
	traffic string // guarded by mu; that of ports which are not public

	start       *connect.Client[process.StartRequest, process.StartResponse]
	attach      *connect.Client[process.ConnectRequest, process.ConnectResponse]
	list        *connect.Client[process.ListRequest, process.ListResponse]
	update      *connect.Client[process.UpdateRequest, process.UpdateResponse]
	streamInput *connect.Client[process.StreamInputRequest, process.StreamInputResponse]
	sendSignal  *connect.Client[process.SendSignalRequest, process.SendSignalResponse]
	closeStdin  *connect.Client[process.CloseStdinRequest, process.CloseStdinResponse]
	stat        *connect.Client[filesystem.StatRequest, filesystem.StatResponse]
	makeDir     *connect.Client[filesystem.MakeDirRequest, filesystem.MakeDirResponse]
	move        *connect.Client[filesystem.MoveRequest, filesystem.MoveResponse]
	listDir     *connect.Client[filesystem.ListDirRequest, filesystem.ListDirResponse]
	remove      *connect.Client[filesystem.RemoveRequest, filesystem.RemoveResponse]
}

// Open makes a Sandbox of what Create, Get or Connect said. It does no I/O.
func (c *Client) Open(info *Info) (*Sandbox, error) {
	if info.SandboxID == "" {
		return nil, errs.New(errs.VendorFailed, "the vendor named no sandbox").WithHint("look at the API's address")
	}
	s := &Sandbox{c: c, info: *info, id: info.SandboxID, domain: info.Domain, token: info.EnvdAccessToken, traffic: info.TrafficAccessToken}
	if s.domain == "" {
		s.domain = c.opts.Domain
	}
	switch {
	case c.opts.SandboxURL != "":
		s.base = c.opts.SandboxURL
	case slices.Contains(ownDomains, s.domain):
		s.base = "https://sandbox." + s.domain
	default:
		s.base = "https://" + s.hostOf(DaemonPort)
	}
	var err error
	s.files, err = vendorhttp.New(vendorhttp.Options{
		Base: s.base, UserAgent: c.opts.UserAgent, Timeout: c.opts.Timeout, Attempts: c.opts.Attempts, Observe: c.opts.Observe,
		Transport: c.opts.Transport, Classify: classifyFile,
	})
	if err != nil {
		return nil, err
	}
	s.files.Hide(c.opts.APIKey)
	s.files.Hide(s.token)
	s.files.Hide(s.traffic)
	s.http = &http.Client{
		Transport: &inside{s: s, next: c.opts.Transport}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.start = call[process.StartRequest, process.StartResponse](s, "process.Process/Start")
	s.attach = call[process.ConnectRequest, process.ConnectResponse](s, "process.Process/Connect")
	s.list = call[process.ListRequest, process.ListResponse](s, "process.Process/List")
	s.update = call[process.UpdateRequest, process.UpdateResponse](s, "process.Process/Update")
	s.streamInput = call[process.StreamInputRequest, process.StreamInputResponse](s, "process.Process/StreamInput")
	s.sendSignal = call[process.SendSignalRequest, process.SendSignalResponse](s, "process.Process/SendSignal")
	s.closeStdin = call[process.CloseStdinRequest, process.CloseStdinResponse](s, "process.Process/CloseStdin")
	s.stat = call[filesystem.StatRequest, filesystem.StatResponse](s, "filesystem.Filesystem/Stat")
	s.makeDir = call[filesystem.MakeDirRequest, filesystem.MakeDirResponse](s, "filesystem.Filesystem/MakeDir")
	s.move = call[filesystem.MoveRequest, filesystem.MoveResponse](s, "filesystem.Filesystem/Move")
	s.listDir = call[filesystem.ListDirRequest, filesystem.ListDirResponse](s, "filesystem.Filesystem/ListDir")
	s.remove = call[filesystem.RemoveRequest, filesystem.RemoveResponse](s, "filesystem.Filesystem/Remove")
	return s, nil
}

func call[Req, Res any](s *Sandbox, method string) *connect.Client[Req, Res] {
	return connect.NewClient[Req, Res](s.http, strings.TrimSuffix(s.base, "/")+"/"+method, connect.WithAcceptCompression("gzip", nil, nil))
}

// ID is the sandbox's.
func (s *Sandbox) ID() string { return s.id }

// Info is what the sandbox was opened with: after Create without times, state and metadata.
func (s *Sandbox) Info() Info { return s.info }

// Renew takes the tokens of a later answer: they may change whenever a sandbox is resumed.
func (s *Sandbox) Renew(info *Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, now := range map[*string]string{&s.token: info.EnvdAccessToken, &s.traffic: info.TrafficAccessToken} {
		if now != "" && now != *old {
			*old = now
			s.files.Hide(now)
		}
	}
}

func (s *Sandbox) tokens() (daemon, traffic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token, s.traffic
}

func (s *Sandbox) hostOf(port uint16) string {
	return strconv.Itoa(int(port)) + "-" + shortID(s.id) + "." + s.domain
}

// Address is where a port of the sandbox is reached, with the headers that a request needs, some of them secret.
type Address struct {
	URL     *url.URL
	Headers map[string]string
}

// Address gives the address of a port. Public says that anybody may use it, without the token.
func (s *Sandbox) Address(port uint16, public bool) (*Address, error) {
	a := &Address{URL: &url.URL{Scheme: "https", Host: s.hostOf(port)}, Headers: map[string]string{}}
	if s.c.opts.SandboxURL != "" {
		var err error
		if a.URL, err = url.Parse(s.c.opts.SandboxURL); err != nil {
			return nil, errs.Wrap(errs.ConfigInvalid, "address of a port", err)
		}
		a.Headers[headerID], a.Headers[headerPort] = shortID(s.id), strconv.Itoa(int(port))
	}
	if _, traffic := s.tokens(); traffic != "" && !public {
		a.Headers[headerTraffic] = traffic
	}
	return a, nil
}

// The headers of the way to a sandbox.
const (
	headerToken   = "X-Access-Token"
	headerTraffic = "E2b-Traffic-Access-Token"
	headerID      = "E2b-Sandbox-Id"
	headerPort    = "E2b-Sandbox-Port"
)

// headers are those of a request to the daemon, as a user.
func (s *Sandbox) headers(user string) http.Header {
	h := http.Header{}
	daemon, traffic := s.tokens()
	if daemon != "" {
		h.Set(headerToken, daemon)
	}
	if traffic != "" {
		h.Set(headerTraffic, traffic)
	}
	h.Set(headerID, shortID(s.id))
	h.Set(headerPort, strconv.Itoa(DaemonPort))
	if user != "" {
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	}
	return h
}

// inside is the transport of calls: it makes errors of what does not come from the daemon.
type inside struct {
	s    *Sandbox
	next http.RoundTripper
}

const maxErrorBody = 64 << 10

// RoundTrip implements http.RoundTripper.
func (t *inside) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	// The daemon would end the process itself, and only its leader, when that time is over: deadlines are the caller's.
	r.Header.Del("Connect-Timeout-Ms")
	r.Header.Set("User-Agent", t.s.c.opts.UserAgent)
	r.Header.Set("Keepalive-Ping-Interval", keepalive)
	resp, err := t.next.RoundTrip(r)
	if answered, ok := r.Context().Value(answeredKey{}).(func()); ok {
		answered()
	}
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	err = errors.Join(err, resp.Body.Close())
	if e := edge(resp.StatusCode, body); e != nil {
		return nil, e
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, err
}

// request makes the message of a unary call.
func request[T any](s *Sandbox, user string, m *T) *connect.Request[T] {
	r := connect.NewRequest(m)
	maps.Copy(r.Header(), s.headers(user))
	return r
}

// Health tells whether the daemon answers. A paused sandbox that wakes on traffic wakes for it.
func (s *Sandbox) Health(ctx context.Context) error {
	_, err := s.files.Do(ctx, &vendorhttp.Request{Op: "health", Path: "/health", Header: s.headers("")}, nil)
	return err
}
