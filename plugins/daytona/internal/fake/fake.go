// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fake

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// DefaultSnapshot is what a sandbox is made from that names nothing.
const DefaultSnapshot = "daytonaio/sandbox:0.6.0"

// Options make a fake. The zero value works.
type Options struct {
	Dir string // for sandboxes; empty = a temporary one
	Key string // the API key; empty = one is made
	// Delay is how long a change of state takes; nil = some milliseconds.
	Delay func(state string) time.Duration
}

// Fake is the vendor.
type Fake struct {
	// URL is where it is: the API is below /api and the toolboxes below /toolbox.
	URL string
	// PreviewDomain is the domain of preview addresses. It has the port of URL.
	PreviewDomain string

	opts   Options
	dir    string
	server *httptest.Server
	stop   chan struct{}
	all    sync.WaitGroup

	mu        sync.Mutex
	key       string                // guarded by mu
	offset    time.Duration         // guarded by mu; of the clock
	public    string                // guarded by mu; where clients are told that the toolboxes are
	sandboxes map[string]*sandbox   // guarded by mu; by id
	snapshots map[string]*snapshot  // guarded by mu; by name
	volumes   map[string]*volume    // guarded by mu; by name
	signed    map[string]*signedURL // guarded by mu; by token
	seen      map[string]int        // guarded by mu; calls by "METHOD route"
}

// New makes a fake, which serves at once.
func New(o Options) (*Fake, error) {
	f := &Fake{
		opts: o, dir: o.Dir, key: o.Key, stop: make(chan struct{}), sandboxes: map[string]*sandbox{}, snapshots: map[string]*snapshot{},
		volumes: map[string]*volume{}, signed: map[string]*signedURL{}, seen: map[string]int{},
	}
	if f.key == "" {
		f.key = "dtn_" + strings.ReplaceAll(uuid.NewString()+uuid.NewString(), "-", "")
	}
	if f.opts.Delay == nil {
		f.opts.Delay = func(string) time.Duration { return 5 * time.Millisecond }
	}
	if f.dir == "" {
		dir, err := os.MkdirTemp("", "daytona-fake-")
		if err != nil {
			return nil, err
		}
		f.dir = dir
	}
	f.snapshots[DefaultSnapshot] = &snapshot{ID: uuid.NewString(), Name: DefaultSnapshot, State: "active", General: true, CPU: 1, Mem: 1, Disk: 3, Created: f.nowLocked()}
	f.server = httptest.NewServer(http.HandlerFunc(f.serve))
	f.URL = f.server.URL
	f.public = f.URL
	f.PreviewDomain = "preview.test:" + f.URL[strings.LastIndexByte(f.URL, ':')+1:]
	f.all.Go(f.keepTime)
	return f, nil
}

// Close ends every sandbox and the fake.
func (f *Fake) Close() error {
	close(f.stop)
	f.mu.Lock()
	all := f.sandboxes
	f.sandboxes = map[string]*sandbox{}
	f.mu.Unlock()
	for _, s := range all {
		s.end()
	}
	f.server.CloseClientConnections()
	f.server.Close()
	f.all.Wait()
	if f.opts.Dir != "" {
		return nil
	}
	return os.RemoveAll(f.dir)
}

// Key is the API key that holds now.
func (f *Fake) Key() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.key
}

// RotateKey makes another key hold.
func (f *Fake) RotateKey() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key = "dtn_" + strings.ReplaceAll(uuid.NewString()+uuid.NewString(), "-", "")
	return f.key
}

// Behind says that clients reach the fake at another address: one of a proxy. With toolbox only that of the toolboxes.
func (f *Fake) Behind(url string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.public = url
}

// Advance moves the clock.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	f.offset += d
	f.mu.Unlock()
	f.tick()
}

func (f *Fake) nowLocked() time.Time { return time.Now().Add(f.offset) }

// Calls is how many calls a route has had, as "POST /sandbox" or "POST /{id}/process/execute".
func (f *Fake) Calls(route string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[route]
}

var idInPath = regexp.MustCompile(`/(berth-[0-9a-z]{26}|[0-9a-f]{8}-[0-9a-f-]{27})(/|$)`)

// count notes a call.
func (f *Fake) count(r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	route := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api"), "/toolbox")
	f.seen[r.Method+" "+idInPath.ReplaceAllString(route, "/{id}$2")]++
}

// failure is an error of the control API.
type failure struct {
	status int
	text   string
}

func (e *failure) Error() string { return e.text }

func fail(status int, text string) error { return &failure{status, text} }

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := errors.AsType[*failure](err)
	if !ok {
		e = &failure{500, "Internal server error"}
	}
	answer(w, e.status, map[string]any{
		"path": r.URL.Path, "timestamp": time.Now().UTC().Format(time.RFC3339Nano), "statusCode": e.status, "error": http.StatusText(e.status), "message": e.text,
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// serve tells the API, the toolboxes and previews apart.
func (f *Fake) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Request-Id", uuid.NewString())
	if strings.HasSuffix(r.Host, "."+f.PreviewDomain) {
		f.preview(w, r)
		return
	}
	f.count(r)
	switch {
	case strings.HasPrefix(r.URL.Path, "/toolbox/"):
		f.toolbox(w, r)
	case strings.HasPrefix(r.URL.Path, "/api/"):
		f.mu.Lock()
		known := r.Header.Get("Authorization") == "Bearer "+f.key
		f.mu.Unlock()
		if !known {
			refuse(w, r, fail(401, "Invalid credentials"))
			return
		}
		http.StripPrefix("/api", f.routes()).ServeHTTP(w, r)
	default: // the dashboard
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte("<!doctype html><title>Daytona</title>")) // the client may be gone
	}
}

func (f *Fake) routes() http.Handler {
	m := http.NewServeMux()
	handle := func(pattern string, do func(r *http.Request) (any, error)) {
		m.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v, err := do(r)
			if err != nil {
				refuse(w, r, err)
				return
			}
			if v == nil {
				w.WriteHeader(http.StatusCreated)
				return
			}
			answer(w, http.StatusOK, v)
		})
	}
	handle("POST /sandbox", f.createSandbox)
	handle("GET /sandbox", f.listSandboxes)
	handle("GET /sandbox/{s}", f.getSandbox)
	handle("DELETE /sandbox/{s}", f.deleteSandbox)
	handle("POST /sandbox/{s}/start", f.startSandbox)
	handle("POST /sandbox/{s}/stop", f.stopSandbox)
	handle("POST /sandbox/{s}/pause", f.pauseSandbox)
	handle("POST /sandbox/{s}/archive", f.archiveSandbox)
	handle("POST /sandbox/{s}/recover", f.recoverSandbox)
	handle("POST /sandbox/{s}/resize", f.resizeSandbox)
	handle("POST /sandbox/{s}/snapshot", f.snapshotSandbox)
	handle("PUT /sandbox/{s}/labels", f.setLabels)
	handle("POST /sandbox/{s}/public/{value}", f.setPublic)
	handle("POST /sandbox/{s}/{interval}/{value}", f.setInterval)
	handle("POST /sandbox/{s}/network-settings", f.setNetwork)
	handle("POST /sandbox/{s}/last-activity", f.touch)
	handle("GET /sandbox/{s}/toolbox-proxy-url", f.toolboxURL)
	handle("GET /sandbox/{s}/ports/{port}/preview-url", f.previewURL)
	handle("GET /sandbox/{s}/ports/{port}/signed-preview-url", f.signedPreviewURL)
	handle("POST /sandbox/{s}/ports/{port}/signed-preview-url/{token}/expire", f.expirePreviewURL)
	handle("POST /sandbox/{s}/ssh-access", f.sshAccess)
	handle("GET /snapshots", f.listSnapshots)
	handle("POST /snapshots", f.createSnapshot)
	handle("GET /snapshots/{id...}", f.getSnapshot)
	handle("DELETE /snapshots/{id...}", f.deleteSnapshot)
	handle("GET /volumes", f.listVolumes)
	handle("POST /volumes", f.createVolume)
	handle("GET /volumes/by-name/{name}", f.getVolume)
	handle("DELETE /volumes/{id}", f.deleteVolume)
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, fail(404, "Cannot "+r.Method+" "+r.URL.Path))
	})
	return m
}

func decode(r *http.Request, v any) error {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		return fail(400, "Unexpected token in JSON")
	}
	return nil
}

func number(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fail(400, "Validation failed (numeric string is expected)")
	}
	return n, nil
}

func (f *Fake) sandboxDir(id string) string { return filepath.Join(f.dir, "sandboxes", id) }
