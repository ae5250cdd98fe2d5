// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
	"github.com/berth-dev/berth/sdk/serve/servetest"
)

// plain is a driver with the six methods that it must have and nothing else: commands run on this machine.
type plain struct{ root string }

func (plain) Describe() driver.Description {
	return driver.Description{Name: "plain", Version: "0.1.0"}
}

func (p plain) Create(context.Context, *driver.CreateRequest) (driver.Sandbox, error) { return p, nil }

func (p plain) Resume(context.Context, *driver.ResumeRequest) (driver.Sandbox, error) { return p, nil }

func (plain) State() driver.State { return driver.State{} }

func (plain) Destroy(context.Context) error { return nil }

func (p plain) Run(ctx context.Context, cmd *driver.Command, s driver.Streams) (driver.Exit, error) {
	c := exec.CommandContext(ctx, cmd.Argv[0], cmd.Argv[1:]...)
	c.Dir, c.Stdin, c.Stdout, c.Stderr = p.root, s.Stdin, s.Stdout, s.Stderr
	if filepath.IsAbs(cmd.Dir) {
		c.Dir = cmd.Dir
	}
	c.Env = os.Environ()
	for k, v := range cmd.Env {
		c.Env = append(c.Env, k+"="+v)
	}
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return driver.Exit{}, errs.Wrap(errs.ExecNotFound, "run", err)
	}
	return driver.Exit{Code: c.ProcessState.ExitCode()}, nil
}

// Six methods are enough for everything that an agent needs.
func TestSixMethodsAreEnough(t *testing.T) {
	root := t.TempDir()
	sb := create(t, rpc.New(servetest.Pair(t, plain{root}), rpc.Config{}), "sb")
	data := pattern(0, 3<<20)
	if _, err := sb.Write(t.Context(), "dir/a b", driver.WriteOptions{Parents: true}, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, "dir", "a b")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes on the disk, %v", len(got), err)
	}
	_, r, err := sb.Open(t.Context(), "dir/a b", driver.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, _, err := sb.Open(t.Context(), "none", driver.ReadOptions{}); !errors.Is(err, errs.FileNotFound) {
		t.Errorf("got %v", err)
	}
	var tar bytes.Buffer
	if err := sb.Export(t.Context(), driver.ExportOptions{Path: "dir"}, &tar); err != nil || tar.Len() < len(data) {
		t.Errorf("%d bytes, %v", tar.Len(), err)
	}
	if _, err := sb.Import(t.Context(), driver.ImportOptions{Path: "copy"}, &tar); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, "copy", "a b")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("copy: %d bytes, %v", len(got), err)
	}
}
