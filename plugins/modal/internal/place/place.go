// SPDX-License-Identifier: Apache-2.0

// Package place puts berth's guest into Modal sandboxes and connects to it.
//
// The guest is one exec that lives as long as the sandbox or its own lease; it serves a unix socket. Each connection is
// an exec of the same program that carries its standard streams to the socket. Modal's own exec loses the window size,
// signals and the tree of processes, and forgets a process whose driver was lost: the guest does not.
package place

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/modal-labs/modal-client/go"

	"github.com/berth-dev/berth/plugins/modal/client"
	"github.com/berth-dev/berth/plugins/modal/internal/vendor"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	guestclient "github.com/berth-dev/berth/sdk/guest/client"
	"github.com/berth-dev/berth/sdk/guest/embed"
)

const (
	// dir is where the guest is inside.
	dir = "/.berth"
	// EnvGuest names a guest program for this machine's processor to use instead of the one that the driver carries.
	EnvGuest = "BERTH_GUEST"
	// startTime bounds the time until a guest answers.
	startTime = 2 * time.Minute
)

// Guest is a guest in one sandbox.
type Guest struct {
	Sandbox  *modal.Sandbox
	ID       string // of the sandbox, the core's
	Config   *guest.Config
	Snapshot bool   // the sandbox leaves a snapshot when it ends by itself
	Kept     string // a snapshot that there is anyway
	Log      func(msg string, args ...any)
}

// processors are those of Modal's machines, in the words of uname and of Go.
var processors = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// prepare makes the workspace, and puts the program in its place unless it is there. It prints the processor, reads the
// program's name and then the program.
const prepare = `set -e
umask 077
mkdir -p "$2"
uname -m
read -r name
umask 022
mkdir -p -- "$1"
umask 077
if [ -x "$2/$name" ]; then echo there; exit; fi
echo send
cat > "$2/$name.$$"
chmod 500 "$2/$name.$$"
mv -f "$2/$name.$$" "$2/$name"
echo done
`

// Connect gives the conversation with the guest, which it starts when there is none. reattached says that it was there.
func (g *Guest) Connect(ctx context.Context) (c *guestclient.Client, reattached bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, errs.New(errs.StartFailed, "the guest did not answer within %s", startTime))
	defer cancel()
	program, found, err := g.program(ctx)
	if err != nil {
		return nil, false, err
	}
	if found {
		c, err := g.dial(ctx, program)
		if !errors.Is(err, errNoGuest) {
			return c, err == nil, err
		}
	}
	if err := g.start(ctx, program); err != nil {
		return nil, false, err
	}
	c, err = g.dial(ctx, program)
	return c, false, err
}

// socket is where a guest with this key serves: one that was started with another key is not met by accident.
func (g *Guest) socket() string {
	sum := sha256.Sum256(g.Config.Key)
	return path.Join(dir, hex.EncodeToString(sum[:8])+".sock")
}

func read(arch string) ([]byte, error) {
	if p := os.Getenv(EnvGuest); p != "" && arch == runtime.GOARCH {
		b, err := os.ReadFile(p)
		return b, errs.Wrap(errs.StartFailed, "read the guest that "+EnvGuest+" names", err)
	}
	return embed.Guest("linux", arch)
}

// exec runs a program of the vendor's, and gives what it does and says.
func (g *Guest) exec(ctx context.Context, argv []string) (*client.Stream, func() bool, error) {
	s, err := client.Dial(ctx, g.Sandbox, argv)
	if err != nil {
		return nil, nil, g.failed(ctx, err)
	}
	return s, context.AfterFunc(ctx, func() { _ = s.Close() }), nil // then reading and writing end
}

// failed says what an exec's failure comes to.
func (g *Guest) failed(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		switch client.KindOf(err) {
		case client.NotFound, client.Finished, client.Unavailable, client.Other:
			if gone := vendor.Check(ctx, g.Sandbox, g.ID, g.Snapshot, g.Kept); errors.Is(gone, errs.SandboxGone) {
				return gone
			}
		default:
		}
	}
	return vendor.Error(ctx, errs.ExecTransport, "reach the guest", err)
}

// program finds the program inside, or puts it there.
func (g *Guest) program(ctx context.Context) (at string, found bool, err error) {
	s, stop, err := g.exec(ctx, []string{"/bin/sh", "-c", prepare, "sh", g.Config.Root, dir})
	if err != nil {
		return "", false, err
	}
	defer stop()
	defer s.Close()
	out := bufio.NewReader(s)
	said := func() (string, error) {
		line, err := out.ReadString('\n')
		if exit, ok := errors.AsType[*client.ExitError](err); ok {
			return "", errs.New(errs.StartFailed, "the sandbox could not be prepared: exit %d: %s", exit.Code, strings.TrimSpace(exit.Stderr)).
				WithHint("the image needs /bin/sh, cat, chmod, mkdir, mv, sleep and uname, and root as its user")
		}
		if err != nil {
			return "", g.failed(ctx, err)
		}
		return strings.TrimSpace(line), nil
	}
	machine, err := said()
	if err != nil {
		return "", false, err
	}
	b, err := read(processors[machine])
	if err != nil {
		return "", false, err
	}
	sum := sha256.Sum256(b)
	name := "guest-" + hex.EncodeToString(sum[:8])
	if _, err := io.WriteString(s, name+"\n"); err != nil {
		return "", false, g.failed(ctx, err)
	}
	answer, err := said()
	if err == nil && answer == "send" {
		if _, err := s.Write(b); err != nil {
			return "", false, g.failed(ctx, err)
		}
		s.CloseWrite()
		found = false
		answer, err = said()
	} else {
		found = true
	}
	if err == nil && answer != "there" && answer != "done" {
		err = errs.New(errs.StartFailed, "the sandbox could not be prepared: it says %q", answer)
	}
	return path.Join(dir, name), found, err
}

// start starts the guest. That another driver was faster is no error.
func (g *Guest) start(ctx context.Context, program string) error {
	cfg := *g.Config
	cfg.Socket, cfg.Inherit, cfg.PrivateNetwork = g.socket(), true, true
	line, err := guest.Line(&cfg)
	if err != nil {
		return errs.Wrap(errs.Internal, "start the guest", err)
	}
	s, stop, err := g.exec(ctx, append([]string{program}, guest.Args(0)...))
	if err != nil {
		return err
	}
	defer stop()
	defer s.Close()
	if _, err := s.Write(line); err != nil {
		return g.failed(ctx, err)
	}
	said := make([]byte, len(guest.Ready))
	_, err = io.ReadFull(s, said)
	var exit *client.ExitError
	switch {
	case err == nil && string(said) == guest.Ready:
		return nil
	case err == nil:
		return errs.New(errs.StartFailed, "the guest says %q", said)
	case errors.As(err, &exit) && strings.Contains(exit.Stderr, "another guest serves"):
		return nil
	case errors.As(err, &exit):
		return errs.New(errs.StartFailed, "the guest does not run: exit %d: %s", exit.Code, strings.TrimSpace(exit.Stderr))
	}
	return g.failed(ctx, err)
}

// errNoGuest says that nobody serves the socket.
var errNoGuest = errors.New("no guest runs")

// dial begins the conversation.
func (g *Guest) dial(ctx context.Context, program string) (*guestclient.Client, error) {
	var carrier *carrier
	argv := append([]string{program}, guest.ConnectArgs(g.socket())...)
	return guestclient.Connect(ctx, guestclient.Options{
		Key: g.Config.Key, Log: g.Log,
		Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
			if carrier != nil {
				if err := g.lost(ctx, carrier.why()); err != nil {
					return nil, err
				}
			}
			s, err := client.Dial(ctx, g.Sandbox, argv)
			if err != nil {
				return nil, g.failed(ctx, err)
			}
			carrier = newCarrier(s)
			return carrier, nil
		},
	})
}

// lost gives an error when a connection was lost for good.
func (g *Guest) lost(ctx context.Context, why error) error {
	if why == nil {
		return nil
	}
	var exit *client.ExitError
	if errors.As(why, &exit) && strings.Contains(exit.Stderr, "connect to the guest") {
		if err := vendor.Check(ctx, g.Sandbox, g.ID, g.Snapshot, g.Kept); err != nil {
			return err
		}
		// The code ends the client.
		return &errs.Error{Code: errs.SandboxGone, Op: "reach the guest", Message: fmt.Sprintf("the guest of sandbox %s has ended", g.ID), Err: errNoGuest}
	}
	if gone := g.failed(ctx, why); errors.Is(gone, errs.SandboxGone) || errors.Is(gone, errs.AuthFailed) {
		return gone
	}
	return nil
}

// carried is how much one exec carries before another takes its place: Modal keeps the output of an exec while it runs.
const carried = 1 << 30

// carrier is an exec that carries a connection. It remembers why it was lost.
type carrier struct {
	*client.Stream
	left int64 // only the reader's

	mu  sync.Mutex
	err error // guarded by mu
}

func newCarrier(s *client.Stream) *carrier { return &carrier{Stream: s, left: carried} }

func (c *carrier) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.EOF
	}
	n, err := c.Stream.Read(p)
	c.left -= int64(n)
	c.note(err)
	return n, err
}

func (c *carrier) Write(p []byte) (int, error) {
	n, err := c.Stream.Write(p)
	c.note(err)
	return n, err
}

func (c *carrier) note(err error) {
	if err == nil || errors.Is(err, io.ErrClosedPipe) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

func (c *carrier) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
