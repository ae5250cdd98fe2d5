// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/client"
)

// serveSocket starts a guest that makes its own socket, and gives what it printed.
func serveSocket(t *testing.T, cfg *guest.Config) (cmd *exec.Cmd, printed string) {
	t.Helper()
	cmd = exec.Command(program, guest.Args(0)...)
	cmd.Env = []string{"OF_THE_GUEST=inherited", "SAID=by the guest"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(unix.SIGTERM) // it may have ended
		cmd.Wait()
	})
	line, err := guest.Line(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(line); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(out) // the guest closes it while it goes on
	if err != nil {
		t.Fatal(err)
	}
	return cmd, string(b)
}

// carried is a program whose standard streams carry a connection.
type carried struct {
	pipes
	cmd *exec.Cmd
}

func (c carried) Close() error {
	return errors.Join(c.pipes.Close(), c.cmd.Wait())
}

// A guest that nobody can pass a listener to: it makes its own socket, and each connection is a program of its own.
func TestSocket(t *testing.T) {
	cfg := &guest.Config{Key: key, Root: t.TempDir(), Socket: filepath.Join(t.TempDir(), "s"), Inherit: true, Env: map[string]string{"SAID": "by the driver"}}
	if _, printed := serveSocket(t, cfg); printed != guest.Ready {
		t.Fatalf("it printed %q", printed)
	}
	var carriers []*exec.Cmd
	dial := func(context.Context) (io.ReadWriteCloser, error) {
		cmd := exec.Command(program, guest.ConnectArgs(cfg.Socket)...)
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		carriers = append(carriers, cmd)
		return carried{pipes{out, in}, cmd}, cmd.Start()
	}
	c := connect(t, client.Options{Dial: dial, Key: key})
	if out, _, exit := run(t, c, sh(`echo "$OF_THE_GUEST, $SAID"`), nil); out != "inherited, by the driver\n" || exit.Code != 0 {
		t.Errorf("%q, %+v", out, exit)
	}

	// The program that carries a connection is lost in the middle; the conversation goes on over another one.
	pr, pw := io.Pipe()
	done := make(chan string, 1)
	go func() {
		out, _, _ := run(t, c, sh("cat; echo end"), pr)
		done <- out
	}()
	if _, err := io.WriteString(pw, "before\n"); err != nil {
		t.Fatal(err)
	}
	if err := carriers[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(pw, "after\n"); err != nil {
		t.Fatal(err)
	}
	pw.Close()
	if out := <-done; out != "before\nafter\nend\n" {
		t.Errorf("%q", out)
	}

	// A second guest does not take the socket of one that lives.
	second, printed := serveSocket(t, cfg)
	if err := second.Wait(); err == nil || printed != "" {
		t.Errorf("a second guest on the same socket: %v, %q", err, printed)
	}
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	// One that was left behind is replaced.
	var stderr bytes.Buffer
	cmd := exec.Command(program, guest.ConnectArgs(cfg.Socket)...)
	cmd.Stderr = &stderr
	if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "connect to the guest") {
		t.Errorf("a connection to a guest that has ended: %v, %q", err, stderr.String())
	}
	if _, printed := serveSocket(t, cfg); printed != guest.Ready {
		t.Errorf("it printed %q", printed)
	}
}
