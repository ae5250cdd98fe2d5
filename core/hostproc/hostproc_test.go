// SPDX-License-Identifier: Apache-2.0

package hostproc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/hostproc"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

func sh(script string) *driver.Command { return &driver.Command{Argv: []string{"sh", "-c", script}} }

func TestRun(t *testing.T) {
	t.Setenv("BERTH_CANARY", "must not be seen")
	dir := t.TempDir()
	var out, errOut bytes.Buffer
	cmd := sh(`cat; pwd; echo "[$BERTH_CANARY][$A][$B]"; echo err >&2; exit 3`)
	cmd.Env, cmd.SecretEnv = map[string]string{"A": "a"}, map[string]string{"B": "b"}
	exit, err := hostproc.Host{Dir: dir}.Run(t.Context(), cmd, driver.Streams{Stdin: strings.NewReader("in\n"), Stdout: &out, Stderr: &errOut})
	if err != nil || exit.Code != 3 || exit.Signal != "" {
		t.Errorf("%+v, %v", exit, err)
	}
	if want := "in\n" + dir + "\n[][a][b]\n"; out.String() != want || errOut.String() != "err\n" {
		t.Errorf("%q, %q", out.String(), errOut.String())
	}
	exit, err = hostproc.Host{}.Run(t.Context(), sh("kill -TERM $$"), driver.Streams{})
	if err != nil || exit.Code != 143 || exit.Signal != "TERM" {
		t.Errorf("%+v, %v", exit, err)
	}
	if _, err = (hostproc.Host{}).Run(t.Context(), &driver.Command{Argv: []string{"no-such-program"}}, driver.Streams{}); !errors.Is(err, errs.ExecNotFound) {
		t.Errorf("%v", err)
	}
}

// What ends a command ends what it started, and an input that never ends keeps nothing waiting.
func TestEnd(t *testing.T) {
	for _, how := range []string{"timeout", "cancel"} {
		t.Run(how, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			r, w := io.Pipe()
			defer w.Close()
			pids := make(chan int, 1)
			cmd := sh("trap '' TERM; sleep 1000 & echo $!; wait")
			cmd.KillGrace = 50 * time.Millisecond
			if how == "timeout" {
				cmd.Timeout = time.Second
			}
			exit, err := hostproc.Host{}.Run(ctx, cmd, driver.Streams{Stdin: r, Stdout: writer(func(b []byte) {
				pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
				if err != nil {
					t.Error(err)
				}
				pids <- pid
				if how == "cancel" {
					cancel(errors.New("enough"))
				}
			})})
			if how == "timeout" && (err != nil || !exit.TimedOut) || how == "cancel" && (err == nil || err.Error() != "enough") {
				t.Errorf("%+v, %v", exit, err)
			}
			pid := <-pids
			for range 1000 {
				b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
				if err != nil || strings.Contains(string(b), ") Z ") || syscall.Kill(pid, 0) != nil {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
			t.Errorf("process %d is left", pid)
		})
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}
