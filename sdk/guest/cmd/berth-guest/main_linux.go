// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/version"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/confine"
	"github.com/berth-dev/berth/sdk/guest/fsys"
	"github.com/berth-dev/berth/sdk/guest/proc"
	"github.com/berth-dev/berth/sdk/guest/server"
	"github.com/berth-dev/berth/sdk/guest/zstd"
)

// gcPercent trades a little time for a heap that starts small: a sandbox may have hundreds of neighbours.
const gcPercent = 40

// The main goroutine keeps the main thread, so that the thread which starts commands is another: see package proc.
func init() { runtime.LockOSThread() }

func main() {
	debug.SetGCPercent(gcPercent)
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	switch {
	case len(args) == 1 && args[0] == "-version":
		fmt.Println(version.String()) //nolint:forbidigo // a program's main
		return 0
	case len(args) == 3 && args[0] == "-signal":
		return proc.HelperMain(args[1:])
	case len(args) == 2 && args[0] == "-connect":
		if err := connect(args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "berth-guest:", err)
			return 1
		}
		return 0
	case len(args) == 2 && args[0] == "-config":
	default:
		fmt.Fprintln(os.Stderr, "berth-guest: it is started by a berth driver, with -config FD")
		return 2
	}
	if err := serve(args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "berth-guest:", err)
		return 1
	}
	return 0
}

func serve(fd string) error {
	var cfg *guest.Config
	var std *streams
	var err error
	if fd == "0" {
		// The conversation follows on the same stream.
		if std, err = standardStreams(); err != nil {
			return err
		}
		cfg, err = std.readConfig()
	} else {
		cfg, err = readConfig(fd)
	}
	if err != nil {
		return err
	}
	var spawnThread func() error
	if len(cfg.Confine) > 0 {
		stage, err := confine.Enter(cfg) // in stage 0 this goes on as stage 1
		if err != nil {
			return err
		}
		spawnThread = stage.SpawnThread
	} else if err := settle(); err != nil {
		return err
	}
	defaultSignals()
	keepThreads(cfg.Threads)

	// Archives come compressed over whatever lies between the driver and here.
	opts := fsys.Options{Codecs: map[string]fsys.Codec{"zstd": zstd.Decoder{}}}
	for _, g := range cfg.Grants {
		opts.Grants = append(opts.Grants, fsys.Grant{Path: g.Path, ReadOnly: g.ReadOnly})
	}
	files, err := fsys.Open(cfg.Root, opts)
	if err != nil {
		return err
	}
	ttl := guest.DefaultOrphanTTL
	if cfg.OrphanTTL != nil {
		ttl = *cfg.OrphanTTL
	}
	secretEnv := cfg.SecretEnv
	if cfg.Inherit {
		secretEnv = inherited(cfg)
	}
	sc := server.Config{
		Version: version.String(), Key: cfg.Key, OrphanTTL: ttl,
		Root: cfg.Root, Env: cfg.Env, SecretEnv: secretEnv, User: cfg.User, Files: files,
		SpawnThread: spawnThread, Kill: cfg.Kill, KillHelper: []string{"/proc/self/exe", "-signal"}, OOMFile: cfg.OOMFile,
		MaxProcesses: cfg.MaxProcesses, PrivateNetwork: cfg.PrivateNetwork, Report: cfg.Report, CallDir: cfg.CallDir,
	}
	switch {
	case cfg.Socket != "":
		if sc.Listener, err = listen(cfg.Socket); err != nil {
			return err
		}
		sc.Carried = true // by the program of guest.ConnectArgs, which its host's vendor may keep when the host has died
		if std != nil {
			_, err = std.out.WriteString(guest.Ready)
			if err = errors.Join(err, std.Close()); err != nil {
				return fmt.Errorf("say that the guest is ready: %w", err)
			}
		}
	case cfg.Listen > 0:
		f := os.NewFile(uintptr(cfg.Listen), "listener")
		sc.Listener, err = net.FileListener(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("use descriptor %d to listen: %w", cfg.Listen, err)
		}
	default:
		if std == nil {
			if std, err = standardStreams(); err != nil {
				return err
			}
		}
		sc.Conn = std
	}
	// A termination signal ends the guest in order; as the init of a namespace it gets none that it does not ask for.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	err = server.Serve(ctx, sc)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// readConfig reads the configuration and closes its descriptor: no command may read the key.
func readConfig(fd string) (*guest.Config, error) {
	n, err := strconv.Atoi(fd)
	if err != nil || n < 0 {
		return nil, errs.New(errs.InvalidArgument, "%q is no descriptor", fd)
	}
	f := os.NewFile(uintptr(n), "config")
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read the configuration from descriptor %d: %w", n, err)
	}
	var cfg guest.Config
	if err := json.Unmarshal(b, &cfg); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return &cfg, nil
}

// settle does for a guest that is not confined what the last stage of the confinement does: commands can neither look
// into it nor inherit its descriptors.
func settle() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the guest undumpable: %w", err)
	}
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("keep descriptors from commands: %w", err)
	}
	return nil
}

// defaultSignals makes signals that the launcher ignored reach commands again: what is caught here is reset by exec. The
// others are left alone, since each that is caught takes some turns between threads at the start.
func defaultSignals() {
	var ignored []os.Signal
	for s := unix.Signal(1); s < 32; s++ {
		var action struct{ handler, flags, restorer, mask uintptr }
		_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), 0, uintptr(unsafe.Pointer(&action)), unsafe.Sizeof(action.mask), 0, 0)
		if e == 0 && action.handler == sigIgn {
			ignored = append(ignored, s)
		}
	}
	if len(ignored) == 0 {
		return
	}
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, ignored...)
	go func() {
		for range caught { // nothing: they are not for the guest
		}
	}()
}

// keepThreads makes n threads, which stay when nothing needs them: the runtime gives none back.
func keepThreads(n int) {
	var all sync.WaitGroup
	all.Add(n)
	release := make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread() // a goroutine that waits keeps it from the others
			defer runtime.UnlockOSThread()
			all.Done()
			<-release
		}()
	}
	all.Wait()
	close(release)
}

// sigIgn is SIG_IGN.
const sigIgn = 1

// standardStreams takes over standard input and output. A terminal is made raw: it carries frames. Whatever else writes
// to them, of this program, goes to standard error.
func standardStreams() (*streams, error) {
	var fds [2]int
	for i := range fds {
		fd, err := unix.FcntlInt(uintptr(i), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, fmt.Errorf("take over standard input and output: %w", err)
		}
		fds[i] = fd
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Dup3(null, 0, 0) //nolint:errcheck // both are open
		unix.Close(null)
	}
	unix.Dup3(2, 1, 0) //nolint:errcheck // the same
	if err := rawTerminal(fds[0]); err != nil {
		return nil, err
	}
	in := os.NewFile(uintptr(fds[0]), "stdin")
	return &streams{in: in, reader: bufio.NewReader(in), out: os.NewFile(uintptr(fds[1]), "stdout")}, nil
}

func rawTerminal(fd int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil //nolint:nilerr // it is no terminal
	}
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB
	t.Cflag |= unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return fmt.Errorf("make the terminal raw: %w", err)
	}
	return nil
}

// streams are standard input and output.
type streams struct {
	in, out *os.File
	reader  *bufio.Reader // of in
}

func (s *streams) Read(p []byte) (int, error)  { return s.reader.Read(p) }
func (s *streams) Write(p []byte) (int, error) { return s.out.Write(p) }
func (s *streams) Close() error                { return errors.Join(s.in.Close(), s.out.Close()) }

// configTime is how long the configuration may take to come on standard input: a driver that died before it sent it
// leaves nothing that waits for ever.
const configTime = time.Minute

// readConfig reads lines until one is a configuration: another driver may have begun to send it, and was cut off.
func (s *streams) readConfig() (*guest.Config, error) {
	late := time.AfterFunc(configTime, func() {
		fmt.Fprintf(os.Stderr, "berth-guest: no configuration came on standard input within %s\n", configTime)
		os.Exit(1)
	})
	defer late.Stop()
	for {
		line, err := s.reader.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("read the configuration from standard input: %w", err)
		}
		var cfg guest.Config
		if json.Unmarshal(line, &cfg) == nil && len(cfg.Key) > 0 {
			return &cfg, nil
		}
	}
}
