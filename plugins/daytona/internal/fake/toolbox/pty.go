// SPDX-License-Identifier: Apache-2.0

//go:build linux

package toolbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"
)

const (
	maxPTYSide   = 1000
	maxPTYInput  = 64 << 10
	clientQueue  = 256     // chunks
	readChunk    = 4 << 10 // what a terminal gives at once
	afterExit    = 50 * time.Millisecond
	closeTimeout = 2 * time.Second
)

// pty is a terminal with a shell.
type pty struct {
	t   *Toolbox
	req ptyInfo

	mu      sync.Mutex
	master  *os.File             // guarded by mu; nil = not started
	cmd     *exec.Cmd            // guarded by mu
	clients map[*viewer]bool     // guarded by mu
	over    bool                 // guarded by mu
	ended   chan struct{}        // closed when it is over
	code    websocket.StatusCode // of the close that tells; set before ended is closed
	reason  string
}

type ptyInfo struct {
	ID        string            `json:"id"`
	Cwd       string            `json:"cwd"`
	Envs      map[string]string `json:"envs"`
	Cols      int               `json:"cols"`
	Rows      int               `json:"rows"`
	CreatedAt time.Time         `json:"createdAt"`
	Active    bool              `json:"active"`
	LazyStart bool              `json:"lazyStart"`
}

// viewer is one connected client.
type viewer struct {
	chunks chan []byte
	slow   chan struct{}
	once   sync.Once
}

func (t *Toolbox) createPTY(w http.ResponseWriter, r *http.Request) {
	req := ptyInfo{Cols: 80, Rows: 24}
	if err := body(r, &req); err != nil || req.ID == "" {
		answer(w, 400, map[string]string{"error": "Session ID is required"})
		return
	}
	if req.Cols > maxPTYSide || req.Rows > maxPTYSide {
		answer(w, 400, map[string]string{"error": "Invalid value for cols or rows - must be less than 1000"})
		return
	}
	if req.Cwd == "" {
		req.Cwd = t.home
	}
	req.CreatedAt = time.Now()
	p := &pty{t: t, req: req, clients: map[*viewer]bool{}, ended: make(chan struct{})}
	t.mu.Lock()
	_, there := t.ptys[req.ID]
	if !there {
		t.ptys[req.ID] = p
	}
	t.mu.Unlock()
	if there {
		answer(w, 409, map[string]string{"error": "PTY session with ID " + req.ID + " already exists"})
		return
	}
	if !req.LazyStart {
		if err := p.start(); err != nil {
			t.dropPTY(p)
			answer(w, 500, map[string]string{"error": err.Error()})
			return
		}
	} else if info, err := os.Stat(req.Cwd); err != nil || !info.IsDir() {
		t.dropPTY(p)
		answer(w, 500, map[string]string{"error": "chdir " + req.Cwd + ": no such file or directory"})
		return
	}
	answer(w, 201, map[string]string{"sessionId": req.ID})
}

// start starts the shell, unless it runs.
func (p *pty) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.master != nil {
		return nil
	}
	master, slave, err := openPTY()
	if err != nil {
		return err
	}
	defer slave.Close()
	cmd := exec.Command(p.t.shell) //nolint:noctx // it outlives the request
	cmd.Args[0] = "-" + filepath.Base(p.t.shell)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.Dir = p.req.Cwd
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "SHELL="+p.t.shell)
	for k, v := range p.req.Envs {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.master, p.cmd = master, cmd
	if err := p.resizeLocked(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		p.master = nil
		return errors.Join(err, master.Close())
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(master)
	}()
	go p.wait(cmd, master, read)
	return nil
}

// read hands every client what the terminal says. One that does not keep up is cut off.
func (p *pty) read(master *os.File) {
	for {
		b := make([]byte, readChunk)
		n, err := master.Read(b)
		if n > 0 {
			p.mu.Lock()
			for v := range p.clients {
				select {
				case v.chunks <- b[:n]:
				default:
					delete(p.clients, v)
					v.once.Do(func() { close(v.slow) })
				}
			}
			p.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

func (p *pty) wait(cmd *exec.Cmd, master *os.File, read chan struct{}) {
	err := cmd.Wait()
	select {
	case <-read:
	case <-time.After(afterExit): // others hold the terminal
	}
	code := 0
	var word string
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		code = e.ExitCode()
		if ws, ok := e.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			code, word = 128+int(ws.Signal()), unix.SignalName(ws.Signal())
		} else {
			word = "exit status " + strconv.Itoa(code)
		}
	}
	p.finish(code, word)
	_ = master.Close() // it is over
}

// finish tells every client how it ended.
func (p *pty) finish(code int, word string) {
	p.t.dropPTY(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	p.over = true
	said := map[string]any{"exitCode": code}
	p.code = websocket.StatusNormalClosure
	if code != 0 {
		said["exitReason"] = word
		p.code = websocket.StatusInternalError
	}
	b, _ := json.Marshal(said) // text and a number
	p.reason = string(b)
	close(p.ended)
}

func (t *Toolbox) dropPTY(p *pty) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ptys[p.req.ID] == p {
		delete(t.ptys, p.req.ID)
	}
}

func (t *Toolbox) findPTY(r *http.Request) *pty {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ptys[r.PathValue("id")]
}

func (p *pty) info() ptyInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	info := p.req
	info.Active = p.master != nil && !p.over
	return info
}

func (t *Toolbox) listPTYs(w http.ResponseWriter, _ *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := []ptyInfo{}
	for _, p := range t.ptys {
		all = append(all, p.info())
	}
	answer(w, 200, map[string]any{"sessions": all})
}

func (t *Toolbox) getPTY(w http.ResponseWriter, r *http.Request) {
	p := t.findPTY(r)
	if p == nil {
		answer(w, 404, map[string]string{"error": "PTY session not found"})
		return
	}
	answer(w, 200, p.info())
}

func (t *Toolbox) deletePTY(w http.ResponseWriter, r *http.Request) {
	p := t.findPTY(r)
	if p == nil {
		answer(w, 404, map[string]string{"error": "PTY session not found"})
		return
	}
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	if cmd != nil && cmd.Process != nil {
		_ = cmd.Process.Kill() // it may have ended
	}
	p.finish(137, "SIGKILL")
	answer(w, 200, map[string]string{"message": "PTY session deleted"})
}

func (t *Toolbox) resizePTY(w http.ResponseWriter, r *http.Request) {
	var req struct{ Cols, Rows int }
	if err := body(r, &req); err != nil || req.Cols <= 0 || req.Rows <= 0 || req.Cols > maxPTYSide || req.Rows > maxPTYSide {
		answer(w, 400, map[string]string{"error": "Invalid cols or rows"})
		return
	}
	p := t.findPTY(r)
	if p == nil {
		answer(w, 410, map[string]string{"error": "PTY session not found"})
		return
	}
	p.mu.Lock()
	p.req.Cols, p.req.Rows = req.Cols, req.Rows
	err := p.resizeLocked()
	p.mu.Unlock()
	if err != nil {
		answer(w, 500, map[string]string{"error": err.Error()})
		return
	}
	answer(w, 200, p.info())
}

func (p *pty) resizeLocked() error {
	if p.master == nil {
		return nil
	}
	raw, err := p.master.SyscallConn()
	if err != nil {
		return err
	}
	size := &unix.Winsize{Row: uint16(p.req.Rows), Col: uint16(p.req.Cols)}
	return errors.Join(raw.Control(func(fd uintptr) { err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) }), err)
}

// connectPTY is the terminal's socket.
func (t *Toolbox) connectPTY(w http.ResponseWriter, r *http.Request) {
	p := t.findPTY(r)
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return
	}
	defer c.CloseNow() //nolint:errcheck // over either way
	ctx := r.Context()
	control := func(status string, more map[string]string) error {
		said := map[string]string{"type": "control", "status": status}
		maps.Copy(said, more)
		b, _ := json.Marshal(said) // text
		return c.Write(ctx, websocket.MessageText, b)
	}
	if p == nil {
		_ = control("error", map[string]string{"error": "PTY session " + r.PathValue("id") + " not found"}) // and the socket breaks
		return
	}
	v := &viewer{chunks: make(chan []byte, clientQueue), slow: make(chan struct{})}
	p.mu.Lock()
	p.clients[v] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.clients, v)
		p.mu.Unlock()
	}()
	if err := control("connected", nil); err != nil {
		return
	}
	if err := p.start(); err != nil {
		_ = control("error", map[string]string{"error": err.Error()}) // the same
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(p.input(ctx, c)) }()
	p.output(ctx, c, v)
}

// input writes what a client sends into the terminal.
func (p *pty) input(ctx context.Context, c *websocket.Conn) error {
	c.SetReadLimit(maxPTYInput)
	for {
		_, b, err := c.Read(ctx)
		if err != nil {
			return fmt.Errorf("read from the client: %w", err)
		}
		p.mu.Lock()
		master := p.master
		p.mu.Unlock()
		if _, err := master.Write(b); err != nil {
			return fmt.Errorf("write to the terminal: %w", err)
		}
	}
}

func (p *pty) output(ctx context.Context, c *websocket.Conn, v *viewer) {
	for {
		select {
		case b := <-v.chunks:
			if c.Write(ctx, websocket.MessageBinary, b) != nil {
				return
			}
			continue
		default:
		}
		select {
		case b := <-v.chunks:
			if c.Write(ctx, websocket.MessageBinary, b) != nil {
				return
			}
		case <-v.slow:
			_ = c.Close(websocket.StatusPolicyViolation, "slow consumer") // it is cut off
			return
		case <-p.ended:
			for len(v.chunks) > 0 {
				if c.Write(ctx, websocket.MessageBinary, <-v.chunks) != nil {
					return
				}
			}
			_ = c.Close(p.code, p.reason) // the client may be gone
			return
		case <-ctx.Done():
			return
		}
	}
}

func openPTY() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fd))
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, errors.Join(err, unix.Close(fd))
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, errors.Join(err, unix.Close(fd))
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that closing it ends a read
		return nil, nil, errors.Join(err, unix.Close(fd), slave.Close())
	}
	return os.NewFile(uintptr(fd), "ptmx"), slave, nil
}
