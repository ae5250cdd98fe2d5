// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modal-labs/modal-client/go"

	"github.com/berth-dev/berth/plugins/modal/client"
)

// The fake is what Modal's own Go SDK takes it for: every step of it is the SDK's.
func TestFakeWithModalsSDK(t *testing.T) {
	t.Parallel()
	v := newVendor(t)
	c, err := client.New(client.Options{ServerURL: v.URL(), TokenID: tokenID, TokenSecret: tokenSecret})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	app, err := c.Apps.FromName(ctx, "sdk", &modal.AppFromNameParams{CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	image := c.Images.FromRegistry(imageTag, nil)
	params := &modal.SandboxCreateParams{Command: []string{"sleep", "infinity"}, Name: "one", Tags: map[string]string{"k": "v"}, Env: map[string]string{"A": "a"}}
	sb, err := c.Sandboxes.Create(ctx, app, image, params)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Sandboxes.Create(ctx, app, image, params); client.KindOf(err) != client.Exists {
		t.Errorf("a name that is in use: %v", err)
	}
	p, err := sb.Exec(ctx, []string{"sh", "-c", `echo "$A $B"; cat; echo error >&2; exit 3`}, &modal.SandboxExecParams{Env: map[string]string{"B": "b"}, Workdir: "/tmp"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p.Stdin, "input\n"); err != nil {
		t.Error(err)
	}
	if err := p.Stdin.Close(); err != nil {
		t.Error(err)
	}
	out, err := io.ReadAll(p.Stdout)
	stderr, err2 := io.ReadAll(p.Stderr)
	code, err3 := p.Wait(ctx, nil)
	if err := errors.Join(err, err2, err3); err != nil || string(out) != "a b\ninput\n" || string(stderr) != "error\n" || code != 3 {
		t.Errorf("%q %q %d %v", out, stderr, code, err)
	}
	if p, err = sb.Exec(ctx, []string{"sleep", "60"}, &modal.SandboxExecParams{Timeout: time.Second}); err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(ctx, nil); code != 137 && client.KindOf(err) != client.ExecTimedOut {
		t.Errorf("an exec's time limit: %d, %v", code, err)
	}
	if p, err = sb.Exec(ctx, []string{"stty", "size"}, &modal.SandboxExecParams{PTY: true}); err != nil {
		t.Fatal(err)
	}
	if out, err := io.ReadAll(p.Stdout); err != nil || strings.TrimSpace(string(out)) != "24 80" {
		t.Errorf("a terminal: %q, %v", out, err)
	}

	fs := sb.Filesystem
	content := strings.Repeat("0123456789abcdef", 40_000)
	if err := fs.WriteText(ctx, content, "/data/deep/file", nil); err != nil {
		t.Error(err)
	}
	if got, err := fs.ReadText(ctx, "/data/deep/file", nil); err != nil || got != content {
		t.Errorf("%d bytes of %d, %v", len(got), len(content), err)
	}
	if list, err := fs.ListFiles(ctx, "/data/deep", nil); err != nil || len(list) != 1 || list[0].Name != "file" || list[0].Size != int64(len(content)) {
		t.Errorf("%+v, %v", list, err)
	}
	var missing modal.SandboxFilesystemNotFoundError
	if _, err := fs.ReadText(ctx, "/no/such/file", nil); !errors.As(err, &missing) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := fs.Remove(ctx, "/data", &modal.SandboxFilesystemRemoveParams{Recursive: true}); err != nil {
		t.Error(err)
	}

	n := 0
	for info, err := range c.List(ctx, app.AppID, map[string]string{"k": "v"}) {
		if n++; err != nil || info.ID != sb.SandboxID || info.Name != "one" || info.Tags["k"] != "v" || info.Deadline.IsZero() {
			t.Errorf("%+v, %v", info, err)
		}
	}
	if n != 1 {
		t.Errorf("%d sandboxes are listed", n)
	}
	if found, err := c.Sandboxes.FromName(ctx, "sdk", "one", nil); err != nil || found.SandboxID != sb.SandboxID {
		t.Errorf("%v", err)
	}
	if code, err := sb.Terminate(ctx, &modal.SandboxTerminateParams{Wait: true}); err != nil || code != 137 {
		t.Errorf("terminate: %d, %v", code, err)
	}
	if st, err := client.StatusOf(ctx, sb); err != nil || st.Reason != client.Terminated {
		t.Errorf("%+v, %v", st, err)
	}
	again, err := c.Sandboxes.FromID(ctx, sb.SandboxID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Exec(ctx, []string{"true"}, nil); client.KindOf(err) != client.Finished {
		t.Errorf("an exec after the end: %v", err)
	}

	// The vendor's own clocks.
	for reason, p := range map[client.Reason]*modal.SandboxCreateParams{
		client.TimedOut:     {Command: []string{"sleep", "infinity"}, Timeout: time.Second},
		client.IdleTimedOut: {Command: []string{"sleep", "infinity"}, IdleTimeout: time.Second},
		client.Exited:       {Command: []string{"sh", "-c", "exit 4"}},
	} {
		sb, err := c.Sandboxes.Create(ctx, app, image, p)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := client.WaitEnd(ctx, sb); err != nil || st.Reason != reason || reason == client.Exited && st.ExitCode != 4 {
			t.Errorf("%s: %+v, %v", reason, st, err)
		}
	}
}

// npmClient is the vendor's client for Node, at the version that this was tried with. (The name's latest version is another
// program.)
const npmClient = "modal@0.11.1"

// The vendor's own client for Node works with the fake: another program that knows nothing of ours. It is installed where
// BERTH_MODAL_NPM names a directory, or is there.
func TestVendorsClient(t *testing.T) {
	dir := os.Getenv("BERTH_MODAL_NPM")
	if dir == "" {
		t.Skip("BERTH_MODAL_NPM names no directory to install the vendor's client in")
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		install := exec.CommandContext(t.Context(), "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", dir, npmClient)
		if out, err := install.CombinedOutput(); err != nil {
			t.Skipf("the vendor's client cannot be installed: %v\n%s", err, out)
		}
	}
	v := newVendor(t)
	script, err := os.ReadFile("testdata/client.mjs")
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "client.mjs")
	if err := os.WriteFile(at, script, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", at, imageTag)
	cmd.Env = append(os.Environ(), "MODAL_SERVER_URL="+v.URL(), "MODAL_CONFIG_PATH="+os.DevNull, "MODAL_TOKEN_ID="+tokenID, "MODAL_TOKEN_SECRET="+tokenSecret)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if n := len(v.Calls("SandboxTerminateV2")); n == 0 || len(v.Running()) > 0 {
		t.Errorf("the client terminated %d sandboxes, %v are left", n, v.Running())
	}
}
