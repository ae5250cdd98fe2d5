// SPDX-License-Identifier: Apache-2.0

//go:build linux

package toolbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The marks before each line of a log, for standard output and error.
const (
	markOut = "\x01\x01\x01"
	markErr = "\x02\x02\x02"
)

const (
	exitPoll  = 50 * time.Millisecond
	killGrace = 5 * time.Second
)

// session is a long-lived shell, to whose standard input commands are written.
type session struct {
	id      string
	dir     string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	deleted chan struct{}

	mu       sync.Mutex
	commands []*command // guarded by mu
}

// command is one command of a session.
type command struct {
	id, text string
	dir      string
	async    bool
	suppress bool

	mu   sync.Mutex
	log  []byte        // guarded by mu; lines with their marks
	exit *int          // guarded by mu
	more chan struct{} // guarded by mu; closed and renewed when something changes

	inputs []*os.File // guarded by mu
}

func (t *Toolbox) createSession(w http.ResponseWriter, r *http.Request) {
	var req struct {
		SessionID string `json:"sessionId"`
	}
	err := body(r, &req)
	switch {
	case err != nil:
	case req.SessionID == "":
		err = badRequest("session id is required")
	case req.SessionID == "entrypoint":
		err = badRequest("session id is reserved")
	default:
		err = t.newSession(req.SessionID)
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (t *Toolbox) newSession(id string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions[id] != nil {
		return conflict("session already exists")
	}
	dir, err := os.MkdirTemp(t.dir, "s")
	if err != nil {
		return err
	}
	s := &session{id: id, dir: dir, deleted: make(chan struct{})}
	s.cmd = exec.Command(t.shell) //nolint:noctx // it outlives the request
	s.cmd.Dir = t.home
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func() { _ = s.cmd.Wait() }() // nobody is told
	t.sessions[id] = s
	return nil
}

func (t *Toolbox) session(r *http.Request) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sessions[r.PathValue("id")]; s != nil {
		return s, nil
	}
	return nil, notFound("session not found")
}

func (t *Toolbox) command(r *http.Request) (*session, *command, error) {
	s, err := t.session(r)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.commands, func(c *command) bool { return c.id == r.PathValue("command") })
	if i < 0 {
		return nil, nil, notFound("command not found")
	}
	return s, s.commands[i], nil
}

func (s *session) describe() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []any{}
	for _, c := range s.commands {
		all = append(all, c.describe())
	}
	return map[string]any{"sessionId": s.id, "commands": all}
}

func (c *command) describe() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]any{"id": c.id, "command": c.text}
	if c.exit != nil {
		out["exitCode"] = *c.exit
	}
	return out
}

func (t *Toolbox) listSessions(w http.ResponseWriter, _ *http.Request) {
	t.mu.Lock()
	all := []any{}
	for _, s := range t.sessions {
		all = append(all, s.describe())
	}
	t.mu.Unlock()
	answer(w, 200, all)
}

func (t *Toolbox) getSession(w http.ResponseWriter, r *http.Request) {
	s, err := t.session(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	answer(w, 200, s.describe())
}

func (t *Toolbox) getCommand(w http.ResponseWriter, r *http.Request) {
	_, c, err := t.command(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	answer(w, 200, c.describe())
}

func (t *Toolbox) execSession(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Command           string `json:"command"`
		RunAsync, Async   bool
		SuppressInputEcho bool `json:"suppressInputEcho"`
	}
	if err := body(r, &req); err != nil {
		refuse(w, r, err)
		return
	}
	if req.Command == "" {
		refuse(w, r, badRequest("command cannot be empty"))
		return
	}
	s, err := t.session(r)
	if err != nil { // this call has the other shape
		refuse(w, r, fmt.Errorf("failed to execute command: %w", errors.New(err.Error())))
		return
	}
	c := &command{text: req.Command, async: req.RunAsync || req.Async, suppress: req.SuppressInputEcho, more: make(chan struct{})}
	if err := s.begin(c); err != nil {
		refuse(w, r, fmt.Errorf("failed to execute command: %w", err))
		return
	}
	if c.async {
		answer(w, 202, map[string]any{"cmdId": c.id, "output": nil, "stdout": nil, "stderr": nil, "exitCode": nil})
		return
	}
	for {
		c.mu.Lock()
		exit, log, more := c.exit, c.log, c.more
		c.mu.Unlock()
		if exit != nil {
			out := map[string]any{"cmdId": c.id, "output": string(plain(log)), "stdout": nil, "stderr": nil, "exitCode": *exit}
			switch {
			case knowsMarks(r):
				o, e := split(log)
				out["output"], out["stdout"], out["stderr"] = string(log), string(o), string(e)
			case r.Header.Get("X-Daytona-Split-Output") == "true":
				out["output"] = string(log)
			}
			answer(w, 200, out)
			return
		}
		select {
		case <-more:
		case <-s.deleted:
			refuse(w, r, errors.New("failed to execute command: bad request: session cancelled"))
			return
		}
	}
}

// begin writes a command into the shell. Its outputs are read line by line. An `exit` in it ends the shell, and nobody
// ever learns of its end.
func (s *session) begin(c *command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.id = fmt.Sprintf("%s-%d", s.id, len(s.commands)+1)
	c.dir = filepath.Join(s.dir, strconv.Itoa(len(s.commands)+1))
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"in", "out", "err"} {
		if err := unix.Mkfifo(filepath.Join(c.dir, name), 0o600); err != nil {
			return err
		}
	}
	in := "/dev/null"
	keep := ""
	if c.async {
		in, keep = c.dir+"/in", "sleep 3600 >"+c.dir+"/in 2>/dev/null &\n"
	}
	script := keep + "{ " + c.text + "\n} <" + in + " >" + c.dir + "/out 2>" + c.dir + "/err\n" +
		"echo $? >" + c.dir + "/exit.tmp; mv " + c.dir + "/exit.tmp " + c.dir + "/exit\n"
	if _, err := io.WriteString(s.stdin, script); err != nil {
		return errors.New("write |1: broken pipe")
	}
	s.commands = append(s.commands, c)
	go s.follow(c)
	return nil
}

func (s *session) follow(c *command) {
	var both sync.WaitGroup
	both.Go(func() { c.lines("out", markOut) })
	both.Go(func() { c.lines("err", markErr) })
	both.Wait()
	for {
		b, err := os.ReadFile(filepath.Join(c.dir, "exit"))
		if n, e := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && e == nil {
			c.mu.Lock()
			c.exit = &n
			for _, f := range c.inputs {
				_ = f.Close() // nobody reads it
			}
			c.inputs = nil
			c.changedLocked()
			c.mu.Unlock()
			return
		}
		select {
		case <-time.After(exitPoll):
		case <-s.deleted:
			return
		}
	}
}

// lines reads one output. It waits for somebody to write, for as long as the session is there.
func (c *command) lines(name, mark string) {
	f, err := os.Open(filepath.Join(c.dir, name))
	if err != nil {
		return
	}
	defer f.Close()
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		line = bytes.ReplaceAll(line, []byte{0}, nil)
		if len(line) > 0 {
			c.add(mark + strings.TrimSuffix(string(line), "\n") + "\n")
		}
		if err != nil {
			return
		}
	}
}

func (c *command) add(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, text...)
	c.changedLocked()
}

func (c *command) changedLocked() {
	close(c.more)
	c.more = make(chan struct{})
}

func (t *Toolbox) commandInput(w http.ResponseWriter, r *http.Request) {
	var req struct{ Data string }
	_, c, err := t.command(r)
	if err == nil {
		err = body(r, &req)
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	c.mu.Lock()
	ended := c.exit != nil
	c.mu.Unlock()
	if ended {
		refuse(w, r, gone("command has already completed"))
		return
	}
	f, err := os.OpenFile(filepath.Join(c.dir, "in"), os.O_RDWR, 0) // both ways, so that nobody has to read it yet
	if err == nil {
		if !c.suppress {
			c.add(markOut + req.Data + "\n") // before what the command makes of it
		}
		_, err = f.WriteString(req.Data + "\n")
		c.mu.Lock()
		c.inputs = append(c.inputs, f) // what nobody has read is lost when the last one closes it
		c.mu.Unlock()
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (t *Toolbox) deleteSession(w http.ResponseWriter, r *http.Request) {
	s, err := t.session(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	t.mu.Lock()
	delete(t.sessions, s.id)
	t.mu.Unlock()
	close(s.deleted)
	pid := s.cmd.Process.Pid
	_ = s.stdin.Close() // it ends
	signalTree(pid, syscall.SIGTERM)
	for began := time.Now(); alive(pid) && time.Since(began) < killGrace; {
		time.Sleep(exitPoll)
	}
	signalTree(pid, syscall.SIGKILL)
	s.mu.Lock()
	for _, c := range s.commands { // lets go of who waits for somebody to write
		for _, name := range []string{"out", "err"} {
			if f, err := os.OpenFile(filepath.Join(c.dir, name), os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				_ = f.Close() // opening it was all
			}
		}
	}
	s.mu.Unlock()
	_ = os.RemoveAll(s.dir) // it is scratch
	w.WriteHeader(http.StatusNoContent)
}

// signalTree signals a process group and whoever has an ancestor in it.
func signalTree(pid int, sig syscall.Signal) {
	for _, p := range descendants(pid) {
		_ = syscall.Kill(p, sig) // it may have ended
	}
	_ = syscall.Kill(-pid, sig) // the same
}

func alive(pid int) bool { return syscall.Kill(-pid, 0) == nil || len(descendants(pid)) > 0 }

func descendants(pid int) []int {
	parents := map[int]int{}
	entries, _ := os.ReadDir("/proc") // without it there is nothing to see
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, _ := os.ReadFile("/proc/" + e.Name() + "/stat") // it may have ended
		if _, rest, ok := strings.Cut(string(b), ") "); ok {
			if f := strings.Fields(rest); len(f) > 1 && f[0] != "Z" {
				parents[p], _ = strconv.Atoi(f[1]) // the kernel's number
			}
		}
	}
	var found []int
	for p := range parents {
		for up := parents[p]; up != 0; up = parents[up] {
			if up == pid {
				found = append(found, p)
				break
			}
		}
	}
	return found
}
