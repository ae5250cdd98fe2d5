// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/confine/internal/step"
	"github.com/berth-dev/berth/sdk/guest/confine/landlock"
	"github.com/berth-dev/berth/sdk/guest/confine/rootfs"
	"github.com/berth-dev/berth/sdk/guest/confine/seccomp"
)

// Stage is the confined guest.
type Stage struct{ spec Spec }

// Enter does what cfg.Confine asks for. In stage 0 it does not return unless something failed: the program goes on as
// stage 1 with the rest of cfg. In stage 1 it tests the confinement, tells the driver, and returns. The caller ends
// when there is an error; the driver has been told already.
func Enter(cfg *guest.Config) (*Stage, error) {
	var s Spec
	if err := json.Unmarshal(cfg.Confine, &s); err != nil {
		return nil, fmt.Errorf("read the confinement: %w", err)
	}
	var err error
	switch {
	case s.Stage == stageWarden:
		s.ward()
	case s.Stage == 1:
		err = s.begin()
	case s.Remove:
		err = s.remove()
	default:
		err = s.confine()
	}
	if err != nil {
		s.tell(outcomeOf(err))
		return nil, err
	}
	if s.Trial || s.Remove {
		s.tell(outcome{OK: true})
		os.Exit(0)
	}
	if s.Stage == 1 {
		s.tell(outcome{OK: true})
	}
	return &Stage{spec: s}, nil
}

// SpawnThread has to run on the locked thread that starts every command, before it starts one. What is started there
// can neither signal nor look into the guest.
func (st *Stage) SpawnThread() error {
	if err := enterTasks(st.spec.SpawnTasks); err != nil {
		return fmt.Errorf("move the starter of commands into its cgroup: %w", err)
	}
	return landlock.Scope(st.spec.Landlock, !st.spec.ScopeOnly)
}

// enterTasks moves the calling thread into cgroups.
func enterTasks(files []int) error {
	for _, fd := range files {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) tell(o outcome) {
	if s.Status <= 0 {
		return
	}
	b, err := json.Marshal(o)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(s.Status), "status")
	_, _ = f.Write(append(b, '\n')) // nobody is left to tell
	_ = f.Close()
}

// confine is stage 0. It ends in execve.
func (s *Spec) confine() error {
	runtime.LockOSThread()
	// Whatever the launcher left open must not reach stage 1.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return step.At("close_range", err)
	}
	// This thread is what the exec at the end leaves of the process.
	if err := enterTasks(s.OwnTasks); err != nil {
		return step.At("enter the cgroup", err)
	}
	if err := s.become0(); err != nil {
		return err
	}
	if s.Namespaces.Mount {
		if err := rootfs.Build(&rootfs.Config{
			Binds: s.Binds, Files: s.Files, BindProc: s.BindProc, TmpBytes: s.Limits.TmpBytes,
		}); err != nil {
			return err
		}
	}
	if s.Namespaces.Network {
		if err := loopbackUp(); err != nil {
			return err
		}
	}
	if s.Namespaces.UTS && s.Hostname != "" {
		if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
			return step.At("sethostname", err)
		}
	}
	var rules []landlock.Rule
	if s.Landlock > 0 && !s.ScopeOnly {
		var err error
		if rules, err = landRules(s); err != nil {
			return err
		}
	}
	if err := s.pass(); err != nil {
		return err
	}
	if s.Plain {
		return s.exec()
	}
	if err := dropCaps(s.Identity); err != nil {
		return err
	}
	if err := prctl(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return step.At("no_new_privs", err)
	}
	if s.ScopeOnly {
		if err := landlock.Scope(s.Landlock, false); err != nil {
			return err
		}
	} else if s.Landlock > 0 {
		if err := landlock.Restrict(s.Landlock, rules, s.denyTCP()); err != nil {
			return err
		}
	}
	if s.Seccomp != nil {
		if err := seccomp.Install(*s.Seccomp); err != nil {
			return step.At("seccomp", err)
		}
	}
	return s.exec()
}

// denyTCP is for where no network namespace does it better: Landlock would also refuse the sandbox its own servers.
func (s *Spec) denyTCP() bool { return s.Network == "none" && !s.Namespaces.Network }

// become0 becomes the user 0 of a namespace whose maps the driver wrote after the start.
func (s *Spec) become0() error {
	if !s.Identity.Setup || os.Getuid() == 0 {
		return nil
	}
	return setIDs(0, 0)
}

// pass lets stage 1 have its descriptors.
func (s *Spec) pass() error {
	for _, fd := range append(s.Pass, s.Next) {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return step.At("keep a descriptor", err)
		}
	}
	return nil
}

// startEnv is the environment in which both stages begin: one processor and no collector make a quick start. The guest
// is given all processors once it has work; commands never see this environment.
func startEnv() []string { return []string{"GOMAXPROCS=1", "GOGC=off"} }

func (s *Spec) exec() error {
	// As late as this, since more is open here than the guest may be allowed.
	if err := s.Limits.apply(); err != nil {
		return err
	}
	argv := append([]string{"berth-guest"}, guest.Args(s.Next)...)
	ptrs, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return step.At("execve", err)
	}
	var empty [1]byte
	env, err := syscall.SlicePtrFromStrings(startEnv())
	if err != nil {
		return step.At("execve", err)
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(s.Program), uintptr(unsafe.Pointer(&empty[0])),
		uintptr(unsafe.Pointer(&ptrs[0])), uintptr(unsafe.Pointer(&env[0])), unix.AT_EMPTY_PATH, 0)
	runtime.KeepAlive(ptrs)
	return step.At("execve", errno)
}

func (l Limits) apply() error {
	set := func(name string, which int, v uint64) error {
		if v == 0 {
			return nil
		}
		var have unix.Rlimit
		if err := unix.Getrlimit(which, &have); err != nil {
			return step.At("read limit "+name, err)
		}
		v = min(v, have.Max)
		return step.At("set limit "+name, unix.Setrlimit(which, &unix.Rlimit{Cur: v, Max: v}))
	}
	core := unix.Rlimit{}
	return errors.Join(
		step.At("set limit core", unix.Setrlimit(unix.RLIMIT_CORE, &core)),
		set("processes", unix.RLIMIT_NPROC, l.Processes),
		set("file size", unix.RLIMIT_FSIZE, l.FileBytes),
		set("open files", unix.RLIMIT_NOFILE, l.OpenFiles),
	)
}

// loopbackUp starts the loopback device of a new network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return step.At("loopback", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return step.At("loopback", err)
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return step.At("loopback up", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr))
}

// begin is stage 1.
func (s *Spec) begin() error {
	if s.Plain {
		return nil
	}
	// Nobody but a privileged outsider looks into the guest from here on, nor do its own commands.
	if err := prctl(unix.PR_SET_DUMPABLE, 0); err != nil {
		return step.At("make the guest undumpable", err)
	}
	if err := prctl(unix.PR_SET_CHILD_SUBREAPER, 1); err != nil {
		return step.At("become a reaper", err)
	}
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return step.At("close_range", err)
	}
	if err := s.selfTest(); err != nil {
		return err
	}
	if s.Limits.Processes > 0 {
		warmThreads()
	}
	if !s.Namespaces.PID && s.Landlock >= 6 && s.Test.PID > 0 {
		if err := s.startWarden(); err != nil {
			return err
		}
	}
	unix.Close(s.Program)
	return nil
}

// remove empties the directories that Binds name and removes what it can of them.
func (s *Spec) remove() error {
	runtime.LockOSThread()
	if err := s.become0(); err != nil {
		return err
	}
	for _, b := range s.Binds {
		if err := os.RemoveAll(b.Source); err != nil {
			return step.At("remove "+b.Source, err)
		}
	}
	return nil
}
