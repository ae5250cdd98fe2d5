// SPDX-License-Identifier: Apache-2.0

//go:build linux

package confine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/confine"
)

// The test binary is also the guest, and the command that the guest starts.
func TestMain(m *testing.M) {
	// A guest whose main thread started commands could be signalled by them.
	runtime.LockOSThread()
	switch {
	case len(os.Args) == 3 && os.Args[1] == "-config":
		if err := guestMain(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "guest:", err)
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) == 2 && os.Args[1] == "driver":
		if err := driverMain(); err != nil {
			fmt.Fprintln(os.Stderr, "driver:", err)
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) == 2 && os.Args[1] == "attack":
		attackMain()
		os.Exit(0)
	case len(os.Args) == 3 && os.Args[1] == "part":
		partMain(os.Args[2])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// guestMain is the smallest guest: it confines itself and starts one command on a spawner thread. The command gets
// what it shall do on stdin and answers on stdout; both are descriptors that the test passed as locks.
func guestMain(fd string) error {
	n, err := strconv.Atoi(fd)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(n), "config")
	b, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	_ = in.Close()
	var cfg guest.Config
	if err := json.Unmarshal(b, &cfg); err != nil {
		return err
	}
	st, err := confine.Enter(&cfg)
	if err != nil {
		return err
	}
	// The locks come after the configuration, the status and the program.
	stdin, stdout := os.NewFile(6, "stdin"), os.NewFile(7, "stdout")
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := st.SpawnThread(); err != nil {
			result <- err
			return
		}
		cmd := exec.Command("/proc/self/exe", "attack")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stdout
		cmd.Dir = cfg.Root
		cmd.Env = []string{"HOME=" + cfg.Root, "PATH=/usr/local/bin:/usr/bin:/bin"}
		for k, v := range cfg.Env {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		if id, err := strconv.ParseUint(cfg.User, 10, 32); err == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}
		}
		result <- cmd.Run()
	}()
	err = <-result
	unix.Close(int(stdout.Fd()))
	return err
}

func timeout(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), d, fmt.Errorf("not done after %s", d))
}
