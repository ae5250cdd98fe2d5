// SPDX-License-Identifier: Apache-2.0

// Package canary is a test: the real berth works with a driver, and meanwhile and afterwards the driver's credentials are
// looked for wherever they must not be. It is for tests only, and reads /proc.
package canary

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/testbin"
)

// Options say which driver is meant, and what must not show.
type Options struct {
	Driver  string
	Secrets map[string]string // credentials, by the variables of berth's environment that hold them
	Blocks  string            // HCL with the driver block, whose credentials are secrets from those variables
	Config  string            // of the sandbox's config block
	Refusal string            // what the vendor says to other credentials
}

// session is the key of the session that is worked in.
const session = "canary"

// look is the pause between looks at processes and files while berth works. A look that takes long, as on a machine with many
// processes, is followed by a pause as long: what is watched has to get on.
const look = 25 * time.Millisecond

// Test makes a sandbox, works in it, takes it up again, stops it, is refused with other credentials and removes it.
func Test(t *testing.T, o Options) {
	driver, berth := testbin.Driver(t, o.Driver), testbin.Berth(t)
	home, err := os.MkdirTemp("/tmp", "bc") //nolint:usetesting // sockets need short names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(filepath.Join(home, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	project := filepath.Join(home, "project")
	if err := os.CopyFS(project, os.DirFS(filepath.Join("../../examples", "ten-lines"))); err != nil {
		t.Fatal(err)
	}
	blocks := o.Blocks + "\nsandbox \"box\" {\n  driver = \"" + o.Driver + "\"\n  config {\n" + o.Config + "\n  }\n" +
		"  session {\n    source = \"resume_or_create\"\n    key = \"" + session + "\"\n    at_end = \"stop\"\n  }\n}\n"
	if err := os.WriteFile(filepath.Join(project, "box.berth.hcl"), []byte(blocks), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &watch{tell: t.Errorf, berth: berth, driver: driver, home: home, secrets: forms(o.Secrets), told: map[string]bool{}}
	run := func(secrets map[string]string, fails bool, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), berth, append([]string{"--driver-binary", o.Driver + "=" + driver, "--chdir", project, "--log-level", "trace"}, args...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "BERTH_GUEST=" + os.Getenv("BERTH_GUEST"), "HOME=" + home, "TMPDIR=" + home}
		for name, at := range map[string]string{"XDG_STATE_HOME": "state", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config", "XDG_RUNTIME_DIR": "run"} {
			cmd.Env = append(cmd.Env, name+"="+filepath.Join(home, at))
		}
		for _, name := range slices.Sorted(maps.Keys(secrets)) {
			cmd.Env = append(cmd.Env, name+"="+secrets[name])
		}
		out, err := w.while(cmd)
		if (err != nil) != fails {
			t.Fatalf("berth %v: %v\n%.4000s", args, err, out)
		}
		w.text("what berth "+args[0]+" says", out)
		return out
	}
	run(o.Secrets, false, "run", "--json", "--replay", "transcript.jsonl", ".", "Where are you?")
	const all = `env; echo; for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do cat $f 2>/dev/null; echo; done; echo looked around`
	if out := run(o.Secrets, false, "session", "exec", session, "--", "sh", "-c", all); !strings.Contains(out, "looked around") {
		t.Errorf("%s", out)
	}
	run(o.Secrets, false, "session", "list")
	run(o.Secrets, false, "session", "inspect", session)
	run(o.Secrets, false, "runs", "list")
	wrong := map[string]string{}
	for name, value := range o.Secrets {
		wrong[name] = other(value)
	}
	w.secrets = append(w.secrets, forms(wrong)...)
	if out := run(wrong, true, "session", "exec", session, "--", "true"); !strings.Contains(out, o.Refusal) {
		t.Errorf("with other credentials: %s", out)
	}
	run(o.Secrets, false, "session", "rm", session)
	if !w.seen {
		t.Error("the driver's process was never seen: nothing is known of it")
	}
}

// other is a credential of the same form that nobody takes.
func other(secret string) string {
	b := []byte(secret)
	slices.Reverse(b[len(b)/2:])
	return string(b)
}

// secret is a form in which a credential may show.
type secret struct{ name, text string }

func forms(secrets map[string]string) []secret {
	var all []secret
	for name, s := range secrets {
		all = append(all, secret{name, s}, secret{name + " in base64", strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(s)), "=")},
			secret{name + " in hexadecimal", hex.EncodeToString([]byte(s))})
	}
	return all
}

// watch looks for credentials.
type watch struct {
	tell                func(format string, args ...any)
	berth, driver, home string
	secrets             []secret
	seen                bool            // the driver's process was looked at
	told                map[string]bool // what was told once
}

// while runs a command and looks meanwhile and afterwards.
func (w *watch) while(cmd *exec.Cmd) (string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	looking.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			w.processes()
			w.files()
			pause := time.NewTimer(max(look, time.Since(began)))
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
		}
	})
	out, err := cmd.CombinedOutput()
	cancel()
	looking.Wait()
	w.files()
	return string(out), err
}

// text tells of credentials in a text.
func (w *watch) text(where, text string) {
	for _, s := range w.secrets {
		if strings.Contains(text, s.text) && !w.told[where+s.name] {
			w.told[where+s.name] = true
			w.tell("%s is in %s", s.name, where)
		}
	}
}

// processes looks at the arguments of every process of this machine, and at the environments of all but berth, which was
// given the credentials in its own.
func (w *watch) processes() {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, dir := range dirs {
		exe, _ := os.Readlink(filepath.Join(dir, "exe")) // it may have ended
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		w.text("the arguments of "+exe, string(args))
		if exe == w.berth {
			continue
		}
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil {
			continue
		}
		if now, _ := os.Readlink(filepath.Join(dir, "exe")); now != exe { // berth takes the place of who starts it just then
			continue
		}
		w.text("the environment of "+exe, string(env))
		w.seen = w.seen || exe == w.driver && len(env) > 0
	}
}

// files looks at everything that berth and the driver keep, run directories among it.
func (w *watch) files() {
	_ = filepath.WalkDir(w.home, func(path string, e fs.DirEntry, err error) error { // files come and go
		if err != nil || !e.Type().IsRegular() {
			return nil
		}
		if b, err := os.ReadFile(path); err == nil {
			w.text(path, string(b))
		}
		return nil
	})
}
