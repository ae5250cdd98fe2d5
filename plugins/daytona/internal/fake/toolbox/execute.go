// SPDX-License-Identifier: Apache-2.0

//go:build linux

package toolbox

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// execute feeds a command to the standard input of a shell, and gives what it says on both outputs as one text. Whoever
// holds its outputs open delays the answer.
func (t *Toolbox) execute(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Command string            `json:"command"`
		Cwd     string            `json:"cwd"`
		Envs    map[string]string `json:"envs"`
		Timeout *float64          `json:"timeout"`
	}
	if err := body(r, &req); err != nil {
		refuse(w, r, err)
		return
	}
	if strings.TrimSpace(req.Command) == "" {
		refuse(w, r, badRequest("empty command"))
		return
	}
	env := os.Environ()
	for k, v := range req.Envs {
		if !identifier.MatchString(k) {
			refuse(w, r, badRequest("invalid environment variable name: "+k))
			return
		}
		env = append(env, k+"="+v)
	}
	var out bytes.Buffer
	cmd := exec.Command(t.shell) //nolint:noctx // a client that goes does not end it
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(req.Command), &out, &out
	cmd.Dir, cmd.Env = t.home, env
	if req.Cwd != "" {
		cmd.Dir = req.Cwd
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		answer(w, 200, map[string]any{"exitCode": -1, "result": err.Error()})
		return
	}
	late := false
	if req.Timeout != nil && *req.Timeout > 0 {
		timer := time.AfterFunc(time.Duration(*req.Timeout*float64(time.Second)), func() {
			late = true
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		})
		defer timer.Stop()
	}
	err := cmd.Wait()
	if late {
		refuse(w, r, &failure{408, "REQUEST_TIMEOUT", "command execution timeout"})
		return
	}
	code := 0
	if err != nil {
		code = -1
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			code = e.ExitCode() // -1 when a signal ended it
		}
	}
	answer(w, 200, map[string]any{"exitCode": code, "result": strings.ToValidUTF8(out.String(), "\uFFFD")})
}
