// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package envd is the inside of the fake's sandboxes: the root with its namespaces, and the daemon that serves processes
// and files over HTTP, with the quirks of the vendor's.
package envd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"

	"connectrpc.com/connect"
)

// Port is the daemon's.
const Port = 49983

// HeaderPort names a port inside that a request is for; the edge sets it.
const HeaderPort = "X-Fakee2b-Port"

// daemon is the state of one.
type daemon struct {
	cfg Config

	mu    sync.Mutex
	token string           // guarded by mu
	procs map[uint32]*proc // guarded by mu
}

// Serve is the daemon. It returns only with an error.
func Serve() error {
	d := &daemon{procs: map[uint32]*proc{}}
	if err := json.NewDecoder(os.Stdin).Decode(&d.cfg); err != nil {
		return err
	}
	d.token = d.cfg.Token
	l, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	if d.cfg.Daemon != "" {
		return d.relay(l)
	}
	mux := http.NewServeMux()
	d.processes(mux)
	d.filesystem(mux)
	mux.HandleFunc("GET /files", d.download)
	mux.HandleFunc("POST /files", d.upload)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /envs", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, d.cfg.Env) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{
			"ts": 1, "cpu_count": 2, "cpu_used_pct": 1.5, "mem_total": 512 << 20, "mem_used": 64 << 20, "disk_used": 1 << 30, "disk_total": 10 << 30,
		})
	})
	mux.HandleFunc("POST /init", d.init)
	s := &http.Server{Handler: d.admit(mux), ErrorLog: log.New(nothing{}, "", 0)} //nolint:gosec // a test's
	if _, err := os.Stdout.Write([]byte("\n")); err != nil {
		return err
	}
	return s.Serve(l)
}

type nothing struct{}

func (nothing) Write(p []byte) (int, error) { return len(p), nil }

// refuse answers as the daemon does outside of its services: with a number for a code.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	reply(w, status, map[string]any{"code": status, "message": fmt.Sprintf(format, args...)})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// admit lets in who has the token, and passes on what is for other ports.
func (d *daemon) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if port := r.Header.Get(HeaderPort); port != "" {
			r.Header.Del(HeaderPort)
			through(w, r, port)
			return
		}
		d.mu.Lock()
		token := d.token
		d.mu.Unlock()
		signed := r.URL.Path == "/files" && r.URL.Query().Get("signature") != ""
		if token != "" && r.URL.Path != "/health" && r.Header.Get("X-Access-Token") != token && !(signed && goodSignature(r, token)) {
			refuse(w, http.StatusUnauthorized, "unauthorized access, please provide a valid access token or method signing if supported")
			return
		}
		// Anything below 1 makes the real daemon panic in a goroutine of its own, which ends it.
		if s := r.Header.Get("Keepalive-Ping-Interval"); s != "" && strings.HasPrefix(r.URL.Path, "/process.") {
			if n, err := strconv.Atoi(s); err == nil && n < 1 {
				os.Exit(2)
			}
		}
		next.ServeHTTP(w, r)
	})
}

func through(w http.ResponseWriter, r *http.Request, port string) {
	p := &httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true}, FlushInterval: -1, ErrorLog: log.New(nothing{}, "", 0),
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = "http", "127.0.0.1:"+port
			pr.Out.Host = r.Host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			n, _ := strconv.Atoi(port) // the edge looked
			reply(w, http.StatusBadGateway, map[string]any{"sandboxId": "", "message": "The sandbox is running but port is not open", "port": n, "code": 502})
		},
	}
	p.ServeHTTP(w, r)
}

func (d *daemon) init(w http.ResponseWriter, r *http.Request) {
	var body struct{ AccessToken string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "%v", err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.token = body.AccessToken
	w.WriteHeader(http.StatusNoContent)
}

// account is a user with its numbers.
type account struct {
	name, home string
	uid, gid   uint32
	groups     []uint32
}

func lookup(name string) (*account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("invalid username: '%s'", name))
	}
	a := &account{name: name, home: u.HomeDir}
	uid, e1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, e2 := strconv.ParseUint(u.Gid, 10, 32)
	ids, e3 := u.GroupIds()
	if err := errors.Join(e1, e2, e3); err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	a.uid, a.gid = uint32(uid), uint32(gid)
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			a.groups = append(a.groups, uint32(n))
		}
	}
	return a, nil
}

// caller is the user that a call names, or the default.
func (d *daemon) caller(h http.Header) (*account, error) {
	name, _, ok := (&http.Request{Header: h}).BasicAuth()
	if !ok || name == "" {
		name = d.cfg.User
	}
	return lookup(name)
}

func (d *daemon) environment(a *account, own map[string]string) []string {
	all := map[string]string{"PATH": os.Getenv("PATH"), "HOME": a.home, "USER": a.name, "LOGNAME": a.name}
	maps.Copy(all, d.cfg.Env)
	maps.Copy(all, own)
	var out []string
	for k, v := range all {
		out = append(out, k+"="+v)
	}
	return out
}

// unary registers a method.
func unary[Req, Res any](mux *http.ServeMux, path string, f func(context.Context, *connect.Request[Req]) (*Res, error)) {
	mux.Handle(path, connect.NewUnaryHandler(path, func(ctx context.Context, r *connect.Request[Req]) (*connect.Response[Res], error) {
		res, err := f(ctx, r)
		if err != nil {
			return nil, err
		}
		return connect.NewResponse(res), nil
	}))
}
