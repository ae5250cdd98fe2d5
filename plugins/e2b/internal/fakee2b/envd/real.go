// SPDX-License-Identifier: Apache-2.0

//go:build linux

package envd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// realTime bounds the start of the vendor's own daemon.
const realTime = 30 * time.Second

// relay starts the vendor's own daemon, and passes on to it what comes. It returns only with an error.
func (d *daemon) relay(l net.Listener) error {
	at := strconv.Itoa(Port)
	cmd := exec.Command(d.cfg.Daemon, "-isnotfc", "-no-cgroups", "-port", at) //nolint:noctx // it ends with the sandbox
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/root"}
	if err := cmd.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), realTime, errors.New("the vendor's daemon did not start"))
	defer cancel()
	if err := d.begin(ctx, "http://127.0.0.1:"+at); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	if _, err := os.Stdout.WriteString("\n"); err != nil {
		return err
	}
	s := &http.Server{ErrorLog: log.New(nothing{}, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // a test's
		port := r.Header.Get(HeaderPort)
		r.Header.Del(HeaderPort)
		if port == "" {
			port = at
		}
		_ = http.NewResponseController(w).EnableFullDuplex() // a stream both ways
		through(w, r, port)
	})}
	return s.Serve(l)
}

// begin tells the daemon what it is for, as soon as it listens.
func (d *daemon) begin(ctx context.Context, url string) error {
	body, err := json.Marshal(map[string]any{"accessToken": d.cfg.Token, "envVars": d.cfg.Env, "defaultUser": d.cfg.User})
	if err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/init", bytes.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			resp.Body.Close() // it says nothing
			if resp.StatusCode != http.StatusNoContent {
				return fmt.Errorf("the vendor's daemon answers %s", resp.Status)
			}
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
