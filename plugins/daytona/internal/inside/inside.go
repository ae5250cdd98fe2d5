// SPDX-License-Identifier: Apache-2.0

// Package inside gets the guest into sandboxes, and finds it again.
package inside

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/embed"
	"github.com/berth-dev/berth/sdk/guest/frame"
)

const (
	// guestDir is where the guest is inside. It belongs to the sandbox's user alone.
	guestDir = "/tmp/.berth"
	// envGuest names a guest program for this machine's processor to use instead of the one that the driver carries.
	envGuest = "BERTH_GUEST"
	// readyMark comes after everything that the terminal's shell says, and before anything that the guest says.
	readyMark = "READY\x01"
	// readyTime bounds the wait for it, and readyMax what comes before.
	readyTime = 30 * time.Second
	readyMax  = 1 << 20
)

// Facts are what is found inside a sandbox before the guest works in it.
type Facts struct {
	Arch   string // in Go's words
	UID    string
	User   string
	Have   bool   // the guest program is there
	PTY    string // where a guest was started
	NoRoot bool   // the workspace could not be made
	Env    map[string]string
}

// quote makes a word of a shell out of any text.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// lookScript finds facts and makes the workspace. The vendor's users may use sudo in the vendor's images.
const lookScript = `umask 022
d=$1; root=$2
mkdir -p "$d" && chmod 700 "$d" || exit 91
echo "arch $(uname -m)"; echo "id $(id)"
[ -x "$d/$3" ] && echo have
if [ ! -d "$root" ]; then mkdir -p "$root" 2>/dev/null || sudo -n mkdir -p "$root" 2>/dev/null; fi
[ -w "$root" ] || sudo -n chown "$(id -u):$(id -g)" "$root" 2>/dev/null
[ -d "$root" ] && [ -w "$root" ] || echo noroot
[ -f "$d/pty" ] && read -r pty <"$d/pty" && echo "pty $pty"
echo env; env -0 2>/dev/null | base64 2>/dev/null
exit 0`

// Look finds facts, and makes the workspace.
func Look(ctx context.Context, t *client.Toolbox, root, program string) (*Facts, error) {
	words := []string{"sh", "-c", lookScript, "sh", guestDir, root, program}
	for i := range words {
		words[i] = quote(words[i])
	}
	// It takes nothing of the text that follows it.
	out, err := t.Execute(ctx, client.Execution{Command: strings.Join(words, " ") + " </dev/null", Dir: "/", Timeout: 60})
	if err != nil {
		return nil, err
	}
	if out.ExitCode != 0 {
		return nil, errs.New(errs.StartFailed, "the sandbox cannot be prepared (%d): %s", out.ExitCode, strings.TrimSpace(out.Result)).
			WithHint("berth needs a shell with mkdir, chmod, id and uname inside, and %s for itself", guestDir)
	}
	f := &Facts{Env: map[string]string{}}
	head, env, _ := strings.Cut(out.Result, "\nenv\n")
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch key {
		case "arch":
			f.Arch = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[value]
			if f.Arch == "" {
				return nil, errs.New(errs.Unsupported, "the sandbox's processor is a %q, for which there is no guest", value)
			}
		case "id":
			m := idWords.FindStringSubmatch(value)
			if m == nil {
				return nil, errs.New(errs.StartFailed, "the sandbox's id says %q", value)
			}
			f.UID, f.User = m[1], cmp.Or(m[2], m[1])
		case "have":
			f.Have = true
		case "pty":
			f.PTY = value
		case "noroot":
			f.NoRoot = true
		}
	}
	b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(env), ""))
	if err != nil {
		b = nil // the image lacks a tool: commands get the usual PATH
	}
	for kv := range strings.SplitSeq(string(b), "\x00") {
		if k, v, ok := strings.Cut(kv, "="); ok && keeps(k) {
			f.Env[k] = v
		}
	}
	return f, nil
}

var idWords = regexp.MustCompile(`^uid=(\d+)(?:\(([^)]*)\))?`)

// keeps says which variables of the vendor's daemon commands get: the image's, and which sandbox it is.
func keeps(name string) bool {
	switch name {
	case "_", "PWD", "OLDPWD", "SHLVL":
		return false
	}
	return !strings.HasPrefix(name, "DAYTONA_") || name == "DAYTONA_SANDBOX_ID"
}

// Program is a guest with a name of its own.
type Program struct {
	Name string
	b    []byte
}

// guests are the programs by processor, read once.
var guests sync.Map

// GuestFor gives the guest for a processor.
func GuestFor(arch string) (*Program, error) {
	if p, ok := guests.Load(arch); ok {
		return p.(*Program), nil //nolint:errcheck,forcetypeassert // nothing else is in it
	}
	var b []byte
	var err error
	if p := os.Getenv(envGuest); p != "" && arch == runtime.GOARCH {
		b, err = os.ReadFile(p)
		err = errs.Wrap(errs.StartFailed, "read the guest that "+envGuest+" names", err)
	} else {
		b, err = embed.Guest("linux", arch)
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	p := &Program{Name: "guest-" + hex.EncodeToString(sum[:8]), b: b}
	guests.Store(arch, p)
	return p, nil
}

// Begin starts a guest in a terminal of its own, and gives the terminal and the connection in which it listens.
func Begin(ctx context.Context, t *client.Toolbox, p *Program, have bool) (pty string, conn *client.PTYConn, err error) {
	at := path.Join(guestDir, p.Name)
	install := ""
	if !have {
		// Under another name first: half a program never has the name of a whole one.
		part := at + "." + strings.ToLower(ulid.Make().String())
		err := t.Upload(ctx, part, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(p.b)), nil })
		if err != nil {
			return "", nil, errs.Wrap(errs.StartFailed, "put the guest into the sandbox", err)
		}
		install = "chmod 700 " + part + " && mv -f " + part + " " + at + "; "
	}
	pty = "berth-" + strings.ToLower(ulid.Make().String())
	err = t.OpenPTY(ctx, &client.PTY{ID: pty, Cwd: "/", Cols: 80, Rows: 24, LazyStart: true})
	if err == nil {
		conn, err = t.ConnectPTY(ctx, pty)
	}
	if err == nil {
		// The mark is not in the line itself, which the terminal may repeat. Who finds the file knows that what reads the
		// terminal is a guest, and no shell. An exec that fails ends the terminal.
		line := "stty raw -echo -onlcr; " + install + "echo " + pty + " >" + guestDir + "/pty; printf 'RE''ADY\\001'; exec " + at + " " +
			strings.Join(guest.Args(0), " ") + "\n"
		_, err = io.WriteString(conn, line)
	}
	if err == nil {
		err = awaitReady(ctx, conn)
	}
	if err != nil {
		if conn != nil {
			_ = conn.Close() // the first error is the one to tell
		}
		Abandon(ctx, t, pty)
		return "", nil, errs.Wrap(errs.StartFailed, "start the guest", err)
	}
	return pty, conn, nil
}

// Abandon removes a terminal that nobody needs, whatever has become of the caller.
func Abandon(ctx context.Context, t *client.Toolbox, pty string) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), 5*time.Second, errors.New("out of time"))
	defer cancel()
	_ = t.DeletePTY(ctx, pty) // it ends with the sandbox
}

// awaitReady reads until everything was said that is not the guest's.
func awaitReady(ctx context.Context, conn *client.PTYConn) error {
	late := time.AfterFunc(readyTime, func() { conn.Close() })
	defer late.Stop()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var said []byte
	b := make([]byte, 1)
	for !bytes.HasSuffix(said, []byte(readyMark)) {
		if _, err := io.ReadFull(conn, b); err != nil {
			if ctx.Err() != nil {
				return &errs.Error{Code: errs.Canceled, Err: context.Cause(ctx)}
			}
			return errs.Wrap(errs.StartFailed, fmt.Sprintf("the terminal said %q", tail(said)), err)
		}
		if said = append(said, b[0]); len(said) > readyMax {
			return errs.New(errs.StartFailed, "the terminal says too much: %q", tail(said))
		}
	}
	return nil
}

func tail(b []byte) []byte { return b[max(0, len(b)-500):] }

// flush is what a terminal that an earlier connection used begins with: whatever frame was cut off in it ends within, and
// what follows is read as itself.
func flush() []byte { return make([]byte, frame.HeaderSize+frame.MaxPayload) }
