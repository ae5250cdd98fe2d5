// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// execFrom copies the file into the process's private directory and executes the copy, which is what was hashed.
func execFrom(cmd *exec.Cmd, binary *os.File, spec Spec) error {
	path := filepath.Join(spec.Dir, "driver")
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o500)
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(out, h), binary); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); spec.SHA256 != "" && sum != spec.SHA256 {
		return fmt.Errorf("%s changed while it was copied", spec.Path)
	}
	cmd.Args = []string{spec.Path}
	cmd.Path = path
	return nil
}

// waitGroup waits for the process and ends what it left in its group.
func waitGroup(cmd *exec.Cmd) error {
	err := cmd.Wait()
	signalGroup(cmd.Process.Pid, syscall.SIGKILL)
	return err
}

// noCoreDumps cannot change the limits of another process here.
func noCoreDumps(int) {}
