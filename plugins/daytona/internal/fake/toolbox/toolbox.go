// SPDX-License-Identifier: Apache-2.0

//go:build linux

package toolbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/plugins/daytona/internal/fake/files"
)

// Version is what the fake says it is: the version that its behaviour was taken from.
const Version = "v0.190.0"

// Toolbox is the daemon of one sandbox. It works in the machine that its process is in.
type Toolbox struct {
	home  string
	shell string
	dir   string // for the sessions' files

	mu       sync.Mutex
	sessions map[string]*session // guarded by mu
	ptys     map[string]*pty     // guarded by mu
}

// New makes a daemon.
func New() (*Toolbox, error) {
	dir, err := os.MkdirTemp("", "daytona-sessions-")
	if err != nil {
		return nil, err
	}
	return &Toolbox{home: os.Getenv("HOME"), shell: shell(), dir: dir, sessions: map[string]*session{}, ptys: map[string]*pty{}}, nil
}

// shell is the one that commands are fed to.
func shell() string {
	b, _ := os.ReadFile("/etc/shells") // empty where there is none
	lines := strings.Fields(string(b))
	for _, want := range []string{"/zsh", "/bash"} {
		if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasSuffix(l, want) }); i >= 0 {
			return lines[i]
		}
	}
	if s := os.Getenv("SHELL"); s != "" {
		return s
	}
	return "sh"
}

// Handler serves the API.
func (t *Toolbox) Handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, map[string]string{"version": Version}) })
	for _, name := range []string{"work-dir", "user-home-dir", "project-dir"} {
		m.HandleFunc("GET /"+name, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, map[string]string{"dir": t.home}) })
	}
	m.HandleFunc("GET /port", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, map[string]any{"ports": listening()}) })
	m.HandleFunc("GET /port/{port}/in-use", t.portInUse)

	m.HandleFunc("POST /process/execute", t.execute)

	m.HandleFunc("POST /process/session", t.createSession)
	m.HandleFunc("GET /process/session", t.listSessions)
	m.HandleFunc("GET /process/session/{id}", t.getSession)
	m.HandleFunc("DELETE /process/session/{id}", t.deleteSession)
	m.HandleFunc("POST /process/session/{id}/exec", t.execSession)
	m.HandleFunc("GET /process/session/{id}/command/{command}", t.getCommand)
	m.HandleFunc("GET /process/session/{id}/command/{command}/logs", t.commandLogs)
	m.HandleFunc("POST /process/session/{id}/command/{command}/input", t.commandInput)

	m.HandleFunc("POST /process/pty", t.createPTY)
	m.HandleFunc("GET /process/pty", t.listPTYs)
	m.HandleFunc("GET /process/pty/{id}", t.getPTY)
	m.HandleFunc("DELETE /process/pty/{id}", t.deletePTY)
	m.HandleFunc("POST /process/pty/{id}/resize", t.resizePTY)
	m.HandleFunc("GET /process/pty/{id}/connect", t.connectPTY)

	(&files.Files{Home: t.home}).Register(m)
	return m
}

// failure is an error of the process group of calls.
type failure struct {
	status int
	code   string
	text   string
}

func (f *failure) Error() string { return f.text }

func badRequest(text string) error { return &failure{400, "BAD_REQUEST", "bad request: " + text} }
func notFound(text string) error   { return &failure{404, "NOT_FOUND", "not found: " + text} }
func conflict(text string) error   { return &failure{409, "CONFLICT", "conflict: " + text} }
func gone(text string) error       { return &failure{410, "GONE", "gone: " + text} }

// refuse answers in the shape that the process calls have. What has no code of its own has the shape without one.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	f, ok := errors.AsType[*failure](err)
	if !ok || f.code == "" {
		answer(w, 500, map[string]any{"statusCode": 500, "message": err.Error(), "timestamp": "0001-01-01T00:00:00Z", "path": ""})
		return
	}
	answer(w, f.status, map[string]any{
		"statusCode": f.status, "message": f.text, "code": f.code, "timestamp": time.Now().Format(time.RFC3339Nano), "path": r.URL.Path, "method": r.Method,
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// body decodes what a request holds.
func body(r *http.Request, v any) error {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		return badRequest("invalid request body")
	}
	return nil
}

const (
	firstPort = 3000
	lastPort  = 9999
)

func (t *Toolbox) portInUse(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil || port < firstPort || port > lastPort {
		answer(w, 400, map[string]string{"error": "port out of range"})
		return
	}
	answer(w, 200, map[string]bool{"isInUse": slices.Contains(listening(), port)})
}

// listening are the TCP ports that somebody listens on.
func listening() []int {
	const stateListen = "0A"
	found := []int{}
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			fields := strings.Fields(s.Text())
			if len(fields) < 4 || fields[3] != stateListen {
				continue
			}
			_, hex, err := net.SplitHostPort(fields[1])
			if err != nil {
				continue
			}
			n, err := strconv.ParseUint(hex, 16, 16)
			if port := int(n); err == nil && port >= firstPort && port <= lastPort && !slices.Contains(found, port) {
				found = append(found, port)
			}
		}
		_ = f.Close() // it was read
	}
	return found
}
