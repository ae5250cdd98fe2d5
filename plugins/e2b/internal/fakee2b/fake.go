// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package fakee2b is a stand-in for E2B, for tests: the control plane, the edge that routes to sandboxes, and in every
// sandbox a daemon with real processes and real files, in namespaces of its own. It does what the vendor's parts were seen
// or documented to do, with their quirks, and refuses what they refuse. It is not kinder: output without a listener is
// lost, uploads that break off leave a part, a signal goes to the leader only.
//
// What it cannot show: a snapshot holds files and no memory, an end without memory is a start with the files, and egress is
// always closed.
//
// The program that uses it calls [Main] first: sandboxes are that program again.
package fakee2b

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Key is the API key that works.
const Key = "e2b_0123456789abcdef0123456789abcdef01234567"

// MaxTimeout is the longest time that may be asked for, in seconds.
const MaxTimeout = 24 * 60 * 60

// Fake is the service. It is an http.Handler for all of its addresses.
type Fake struct {
	dir    string
	server *httptest.Server
	mux    *http.ServeMux
	daemon string // the vendor's own; empty = the fake one

	mu        sync.Mutex
	boxes     map[string]*box      // guarded by mu
	snapshots map[string]*snapshot // guarded by mu
	creates   int                  // guarded by mu
	closed    bool                 // guarded by mu
}

// New starts a service that keeps its files below dir.
func New(dir string) *Fake {
	f := &Fake{dir: dir, mux: http.NewServeMux(), boxes: map[string]*box{}, snapshots: map[string]*snapshot{}}
	f.routes()
	f.server = httptest.NewServer(f)
	return f
}

// UseDaemon makes the sandboxes to come run the vendor's own daemon, a program of this machine.
func (f *Fake) UseDaemon(program string) { f.daemon = program }

// URL is the address of everything.
func (f *Fake) URL() string { return f.server.URL }

// Close ends every sandbox and the service.
func (f *Fake) Close() {
	f.mu.Lock()
	f.closed = true
	all := slices.Collect(maps.Values(f.boxes))
	f.mu.Unlock()
	for _, b := range all {
		b.kill()
	}
	f.server.CloseClientConnections()
	f.server.Close()
}

// Creates is how many sandboxes were ever made, and Alive how many there are.
func (f *Fake) Creates() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.creates
}

// Alive lists the sandboxes that exist.
func (f *Fake) Alive() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.boxes))
}

// Expire makes a sandbox's time be over now.
func (f *Fake) Expire(id string) {
	if b := f.find(id); b != nil {
		b.expire()
	}
}

// Vanish takes a sandbox away, as a lost node does.
func (f *Fake) Vanish(id string) {
	if b := f.find(id); b != nil {
		b.kill()
	}
}

// Rotate gives a sandbox's daemon another token, and cuts who had the old one.
func (f *Fake) Rotate(id string) error {
	b := f.find(id)
	if b == nil {
		return errors.New("no such sandbox")
	}
	return b.rotate()
}

// Asked is the body of the request that a sandbox was made with.
func (f *Fake) Asked(id string) string {
	b := f.find(id)
	if b == nil {
		return ""
	}
	return string(b.req.body)
}

func (f *Fake) find(id string) *box {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.boxes[id]
}

func (f *Fake) forget(b *box) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.boxes, b.id)
}

var hostForm = regexp.MustCompile(`^([0-9]+)-(i[a-z0-9]{20})\.`)

// ServeHTTP is the edge: to the control plane, or to a sandbox by header or by name.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m := hostForm.FindStringSubmatch(r.Host); m != nil {
		f.toSandbox(w, r, m[2], m[1])
		return
	}
	if id := r.Header.Get("E2b-Sandbox-Id"); id != "" {
		f.toSandbox(w, r, id, r.Header.Get("E2b-Sandbox-Port"))
		return
	}
	switch key := r.Header.Get("X-Api-Key"); key {
	case Key:
	case "":
		refuse(w, http.StatusUnauthorized, "", "Authorization header is missing")
		return
	default:
		refuse(w, http.StatusUnauthorized, "", "Invalid API key")
		return
	}
	w.Header().Set("X-Request-Id", rand.Text())
	f.mux.ServeHTTP(w, r)
}

// refuse answers with an error of the control plane.
func refuse(w http.ResponseWriter, status int, code, message string) {
	body := map[string]any{"code": status, "message": message}
	if code != "" {
		body["error_code"] = code
	}
	answer(w, status, body)
}

func answer(w http.ResponseWriter, status int, body any) {
	if body == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

func newID() string { return "i" + strings.ToLower(rand.Text())[:20] }

func newToken() string {
	b := make([]byte, 32)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// snapshot is a saved sandbox: its files.
type snapshot struct {
	id, sandboxID, dir string
	created            time.Time
}

func (f *Fake) snapshotDir(id string) string {
	return filepath.Join(f.dir, "snapshot-"+strings.ReplaceAll(id, ":", "-"))
}

func (f *Fake) dropSnapshot(id string) bool {
	f.mu.Lock()
	s := f.snapshots[id]
	delete(f.snapshots, id)
	f.mu.Unlock()
	if s == nil {
		return false
	}
	_ = os.RemoveAll(s.dir) // the test's directory goes with the test
	return true
}
