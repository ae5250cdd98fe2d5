// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fakee2b

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/berth-dev/berth/plugins/e2b/internal/fakee2b/envd"
)

// box is one sandbox.
type box struct {
	f        *Fake
	id       string
	req      *request
	dir      string // its root
	template string
	started  time.Time

	change sync.Mutex // held by who starts, pauses or ends it
	mu     sync.Mutex
	state  string // guarded by mu: running, pausing, paused or gone
	end    time.Time
	timer  *time.Timer
	token  string
	public string // the traffic token; empty = anybody may come
	init   *exec.Cmd
	socket string
	cut    context.Context //nolint:containedctx // ends when its connections have to
	sever  context.CancelFunc
}

// start makes a sandbox, with the files of a snapshot or fresh.
func (f *Fake) start(req *request, ttl time.Duration, from *snapshot) (*box, error) {
	b := &box{f: f, id: newID(), req: req, template: req.TemplateID, started: time.Now(), state: "running", token: newToken()}
	b.dir = filepath.Join(f.dir, b.id)
	if n := req.Network; n != nil && n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic {
		b.public = newToken()
	}
	var err error
	if from != nil {
		err = copyTree(from.dir, b.dir)
	} else {
		err = envd.Fresh(b.dir)
	}
	if err == nil {
		err = b.boot()
	}
	if err != nil {
		_ = os.RemoveAll(b.dir) // the first error is the one to tell
		return nil, err
	}
	f.mu.Lock()
	closed := f.closed
	if !closed {
		f.boxes[b.id] = b
		f.creates++
	}
	f.mu.Unlock()
	if closed {
		b.kill()
		return nil, errors.New("the service is closed")
	}
	b.setEnd(ttl, false)
	return b, nil
}

// boot starts the first process with the daemon.
func (b *box) boot() error {
	l, err := net.Listen("unix", "@fakee2b-"+b.id+newID()) //nolint:noctx // it is there at once
	if err != nil {
		return err
	}
	defer l.Close()
	file, err := l.(*net.UnixListener).File() //nolint:errcheck // it is one
	if err != nil {
		return err
	}
	defer file.Close()
	cfg := envd.Config{Root: b.dir, Env: b.req.EnvVars, User: "user", ID: b.id}
	if b.req.Secure {
		cfg.Token = b.token
	}
	if b.f.daemon != "" {
		cfg.Daemon = "/opt/envd"
		program, err := os.ReadFile(b.f.daemon)
		if err == nil {
			err = os.WriteFile(filepath.Join(b.dir, cfg.Daemon), program, 0o755)
		}
		if err != nil {
			return err
		}
	}
	in, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe") //nolint:noctx // it outlives the call
	cmd.Env = []string{envStage + "=init", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{file}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Setsid:     true,
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ready := make([]byte, 1)
	if _, err := io.ReadFull(out, ready); err != nil {
		_ = cmd.Process.Kill()
		return errors.Join(errors.New("the sandbox did not begin"), cmd.Wait())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.init, b.socket = cmd, l.Addr().String()
	b.opened()
	return nil
}

// errCut is why connections to a sandbox end when it stops or its token changes.
var errCut = errors.New("the connection was cut")

// opened begins a time in which connections to it may live. The caller holds b.mu.
func (b *box) opened() {
	cut, sever := context.WithCancelCause(context.Background())
	b.cut, b.sever = cut, func() { sever(errCut) }
}

// detail is what the control plane says of it.
func (b *box) detail(tokens bool) map[string]any {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.state
	if state == "pausing" {
		state = "paused"
	}
	d := map[string]any{
		"sandboxID": b.id, "templateID": b.template, "clientID": "fake", "state": state, "startedAt": b.started, "endAt": b.end, "cpuCount": 2,
		"memoryMB": 512, "diskSizeMB": 10240, "metadata": b.req.Metadata, "envdVersion": "0.6.13",
	}
	if tokens && b.req.Secure {
		d["envdAccessToken"] = b.token
	}
	if tokens && b.public != "" {
		d["trafficAccessToken"] = b.public
	}
	return d
}

// setEnd moves the end to so long from now, with later only if that is later.
func (b *box) setEnd(d time.Duration, later bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != "running" {
		return false
	}
	end := time.Now().Add(d)
	if later && end.Before(b.end) {
		return true
	}
	b.end = end
	if b.timer != nil {
		b.timer.Stop()
	}
	b.timer = time.AfterFunc(d, b.expire)
	return true
}

// expire is what happens when the time is over.
func (b *box) expire() {
	if b.req.AutoPause {
		_ = b.pause(b.req.AutoPauseMemory == nil || *b.req.AutoPauseMemory) // it may be paused or gone
		return
	}
	b.kill()
}

// disconnect breaks every connection.
func (b *box) disconnect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sever != nil { // it began
		b.sever()
	}
}

func (b *box) set(state string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state = state
}

func (b *box) is() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// pause freezes every process, or without memory ends them.
func (b *box) pause(memory bool) error {
	b.change.Lock()
	defer b.change.Unlock()
	if s := b.is(); s != "running" {
		return fmt.Errorf("Error pausing sandbox - sandbox '%s' is already paused", b.id) //nolint:staticcheck // the vendor's words
	}
	b.set("pausing")
	b.disconnect()
	if memory {
		b.signalAll(syscall.SIGSTOP)
	} else {
		b.endProcesses()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state = "paused"
	b.timer.Stop()
	return nil
}

// resume lets it go on; it may be running.
func (b *box) resume(ttl time.Duration) (resumed bool, err error) {
	b.change.Lock()
	defer b.change.Unlock()
	switch b.is() {
	case "running":
		b.setEnd(ttl, true)
		return false, nil
	case "paused":
	default:
		return false, errors.New("the sandbox is being killed")
	}
	b.mu.Lock()
	cold := b.init == nil
	b.mu.Unlock()
	if cold {
		if err := b.boot(); err != nil {
			return false, err
		}
	} else {
		b.mu.Lock()
		b.opened()
		b.mu.Unlock()
		b.signalAll(syscall.SIGCONT)
	}
	err = b.renew()
	b.set("running")
	b.setEnd(ttl, false)
	return true, err
}

// rotate changes the daemon's token, as a resume does.
func (b *box) rotate() error {
	b.change.Lock()
	defer b.change.Unlock()
	err := b.renew()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sever()
	b.opened()
	return err
}

// renew gives the daemon a new token.
func (b *box) renew() error {
	if !b.req.Secure || b.f.daemon != "" { // the vendor's takes a new one from its machine only
		return nil
	}
	b.mu.Lock()
	old := b.token
	b.token = newToken()
	body, err := json.Marshal(map[string]string{"accessToken": b.token})
	b.mu.Unlock()
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://sandbox/init", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("X-Access-Token", old)
	resp, err := b.transport().RoundTrip(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// kill ends and removes it.
func (b *box) kill() {
	b.change.Lock()
	defer b.change.Unlock()
	if b.is() == "gone" {
		return
	}
	b.set("gone")
	b.f.forget(b)
	b.disconnect()
	b.endProcesses()
	b.mu.Lock()
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	_ = os.RemoveAll(b.dir) // the test's directory goes with the test
}

// endProcesses ends everything by its first process.
func (b *box) endProcesses() {
	b.mu.Lock()
	cmd := b.init
	b.init = nil
	b.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed
	}
}

// signalAll signals every process in the sandbox's namespace, until no new one is seen.
func (b *box) signalAll(sig syscall.Signal) {
	b.mu.Lock()
	root := b.init.Process.Pid
	b.mu.Unlock()
	space, err := os.Readlink("/proc/" + strconv.Itoa(root) + "/ns/pid")
	if err != nil {
		return
	}
	seen := map[int]bool{}
	for fresh := true; fresh; {
		fresh = false
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return
		}
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || seen[pid] {
				continue
			}
			if s, err := os.Readlink("/proc/" + e.Name() + "/ns/pid"); err == nil && s == space {
				seen[pid], fresh = true, true
				_ = syscall.Kill(pid, sig) // it may have ended
			}
		}
	}
}

// copyTo saves the files.
func (b *box) copyTo(dir string) error {
	b.change.Lock()
	defer b.change.Unlock()
	if b.is() != "running" {
		return errors.New("the sandbox is not running")
	}
	b.signalAll(syscall.SIGSTOP)
	defer b.signalAll(syscall.SIGCONT)
	return copyTree(b.dir, dir)
}

func copyTree(from, to string) error {
	out, err := exec.Command("cp", "-a", from, to).CombinedOutput() //nolint:noctx // it ends by itself
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (b *box) transport() *http.Transport {
	b.mu.Lock()
	socket := b.socket
	b.mu.Unlock()
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}
}

// toSandbox is the way to a port inside.
func (f *Fake) toSandbox(w http.ResponseWriter, r *http.Request, id, port string) {
	b := f.find(id)
	if b != nil && b.is() == "paused" && b.req.AutoResume != nil && b.req.AutoResume.Enabled {
		_, _ = b.resume(5 * time.Minute) // it is looked at below
	}
	if b == nil || b.is() != "running" {
		answer(w, http.StatusBadGateway, map[string]any{"sandboxId": id, "message": "The sandbox was not found", "code": 502})
		return
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		answer(w, http.StatusBadRequest, map[string]any{"code": 400, "message": "invalid port"})
		return
	}
	b.mu.Lock()
	token, cut := b.public, b.cut
	b.mu.Unlock()
	daemon := port == strconv.Itoa(envd.Port)
	if token != "" && !daemon && r.Header.Get("E2b-Traffic-Access-Token") != token {
		answer(w, http.StatusForbidden, map[string]any{"code": 403, "message": "Missing or invalid traffic access token"})
		return
	}
	for _, internal := range []string{"/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"} {
		if daemon && r.URL.Path == internal {
			http.NotFound(w, r)
			return
		}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(cut, func() { cancel(errors.New("the sandbox is gone")) })()
	r = r.WithContext(ctx)
	r.Header.Del(envd.HeaderPort)
	if !daemon {
		r.Header.Set(envd.HeaderPort, port)
	}
	t := b.transport()
	defer t.CloseIdleConnections()
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 is so without: an early answer does not cut a request off
	p := &httputil.ReverseProxy{
		Transport: t, FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = "http", "sandbox"
			pr.Out.Host = r.Host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if strings.Contains(err.Error(), "refused") || b.is() != "running" {
				answer(w, http.StatusBadGateway, map[string]any{"sandboxId": id, "message": "The sandbox was not found", "code": 502})
				return
			}
			panic(http.ErrAbortHandler)
		},
		ErrorLog: quiet,
	}
	p.ServeHTTP(w, r)
}
