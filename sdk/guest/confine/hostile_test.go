// SPDX-License-Identifier: Apache-2.0

//go:build linux

package confine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/confine"
	"github.com/berth-dev/berth/sdk/guest/confine/landlock"
	"github.com/berth-dev/berth/sdk/guest/confine/report"
	"github.com/berth-dev/berth/sdk/guest/confine/rootfs"
	"github.com/berth-dev/berth/sdk/guest/confine/seccomp"
)

// try is one attempt. Outcomes are names of errors or own words, several by spaces; "gap" may succeed, and the report
// has to say so on the axis; "ok" must succeed.
type try struct {
	row, what string
	do        func() error
	l1, l3    string
	axis      string
}

// hostFacts is what the attempts know of the host.
type hostFacts struct {
	Level             confine.Level
	BindProc          bool
	Tools             bool   // whether the tools that have to work are tried too
	RunAs             bool   // the command is one of several users
	Outside           string // a directory of the same user
	Victim, Driver    int    // processes outside, the first of the same user
	Token, Canary     string
	Linger            string // set = only leave processes behind, which sleep for this number of seconds
	Unix, Abstract    string
	Control           string
	TCP, UDP          int
	Address           []byte
	SysV              int
	Disk, SetUID, PTY string
}

func (h *hostFacts) proc(name string) string { return "/proc/" + itoa(h.Victim) + "/" + name }

// happened is one line of an attack's answer.
type happened struct{ Row, What, Expected, Got, Axis string }

const (
	testProcesses = 90
	testUser      = 54321
	testRange     = 100000
)

// attackMain makes every attempt and says what became of it.
func attackMain() {
	var h hostFacts
	if err := json.NewDecoder(os.Stdin).Decode(&h); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if h.Linger != "" {
		linger(h.Linger)
		return
	}
	out := json.NewEncoder(os.Stdout)
	for _, t := range slices.Concat(fileAttempts(&h), mustWork(&h), processAttempts(&h), kernelAttempts(&h), netAttempts(&h)) {
		expected := t.l3
		switch {
		case h.Level == confine.LevelLandlock:
			expected = t.l1
		case expected == "ok":
		case h.BindProc:
			expected += " " + t.l1
		case h.Level == confine.LevelNamespaces:
			// Landlock refuses with EACCES what the private root refuses otherwise, or leaves to file modes; and it alone
			// keeps commands from signalling the guest.
			expected += " EROFS ENOENT EACCES"
			if t.what == "signal the guest" {
				expected, t.axis = "gap", report.AxisProcesses
			}
		}
		if got, ok := verdict(expected, t.do()); !ok {
			_ = out.Encode(happened{t.row, t.what, expected, got, t.axis})
		} else if got == "ok" && expected != "ok" {
			_ = out.Encode(happened{t.row, t.what, "gap", got, t.axis})
		} else {
			_ = out.Encode(happened{t.row, t.what, "", got, t.axis})
		}
	}
}

// job is what a driver is told to start.
type job struct {
	Spec confine.Spec
	IDs  confine.IDMap
	Work string
	Host hostFacts
	User int // of the command, where the guest can choose
}

// driverMain is the driver: it starts one guest and passes its answer on.
func driverMain() error {
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return err
	}
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	j.Host.Driver = os.Getpid()
	j.Spec.Test.PID = os.Getpid()
	inR, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return err
	}
	b, err := json.Marshal(j.Host)
	if err != nil {
		return err
	}
	// A stray descriptor, as shells leave them.
	if _, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0); err != nil {
		return err
	}
	for i := range j.Spec.Binds {
		j.Spec.Binds[i].Clone = j.IDs.Kind == confine.MapRange
	}
	tmp := "/tmp"
	if j.Host.Level == confine.LevelLandlock {
		tmp = j.Work
	}
	user := ""
	if j.Host.RunAs {
		user = itoa(j.User)
	}
	begin := time.Now()
	ctx, cancel := timeout(60 * time.Second)
	defer cancel()
	g, err := confine.Start(ctx, &confine.Launch{
		Program: program, IDs: j.IDs, Spec: j.Spec, Stderr: os.Stderr, Keep: []*os.File{inR, outW},
		Config: guest.Config{Root: j.Spec.Binds[0].Target, Key: []byte("0123456789abcdef"), Env: map[string]string{"TMPDIR": tmp}, User: user},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "started in %s\n", time.Since(begin))
	_ = outW.Close()
	if _, err := inW.Write(b); err != nil {
		return err
	}
	_ = inW.Close()
	_, err = io.Copy(os.Stdout, outR)
	g.Kill()
	<-g.Done()
	return err
}

func TestHostile(t *testing.T) {
	version, err := landlock.Version()
	if err != nil {
		t.Skip("the kernel has no Landlock:", err)
	}
	type row struct {
		name  string
		level confine.Level
		user  bool
		edit  func(*job)
	}
	rows := []row{
		{"user/landlock", confine.LevelLandlock, true, nil},
		{"user/namespaces", confine.LevelNamespaces, true, nil},
		{"user/full", confine.LevelFull, true, nil},
	}
	if os.Getuid() == 0 {
		rows = append(rows,
			row{"root/landlock", confine.LevelLandlock, false, nil},
			row{"root/namespaces", confine.LevelNamespaces, false, nil},
			row{"root/full", confine.LevelFull, false, nil},
			row{"root/no user namespace", confine.LevelFull, false, func(j *job) {
				j.Spec.Namespaces.User = false
				j.IDs = confine.IDMap{}
				j.Spec.Identity = confine.Identity{UID: testRange + confine.Inside, GID: testRange + confine.Inside, Become: true}
			}},
			row{"root/run_as", confine.LevelFull, false, func(j *job) {
				j.Spec.Identity = confine.Identity{RunAs: true}
				j.Host.RunAs, j.User = true, confine.Inside
			}},
			row{"root/run_as root", confine.LevelFull, false, func(j *job) {
				j.Spec.Identity = confine.Identity{RunAs: true}
				j.Host.RunAs = true
			}},
			row{"root/proc of the host", confine.LevelFull, false, func(j *job) {
				j.Host.BindProc, j.Spec.BindProc, j.Spec.Namespaces.PID = true, true, false
			}},
		)
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			j := newJob(t, r.level, r.user, version)
			j.Host.Tools = r.level == confine.LevelLandlock || r.level == confine.LevelFull && r.edit == nil
			if r.edit != nil {
				r.edit(j)
			}
			plan := report.Plan{Spec: j.Spec, Level: r.level, Kill: report.KillNamespace}
			statements := plan.Report()
			results := runJob(t, j, r.user)
			if len(results) < 110 {
				t.Errorf("only %d attempts were made", len(results))
			}
			for _, h := range results {
				switch h.Expected {
				case "":
				case "gap":
					i := slices.IndexFunc(statements, func(i driver.Isolation) bool { return i.Axis == h.Axis })
					if i < 0 || statements[i].Gap == "" && statements[i].Strength > 0 {
						t.Errorf("row %s, %s: possible, and the report does not say so on axis %s", h.Row, h.What, h.Axis)
					}
				default:
					t.Errorf("row %s, %s: got %s, expected %s", h.Row, h.What, h.Got, h.Expected)
				}
			}
			checkOutside(t, j)
		})
	}
}

// TestNothingOutlivesTheGuest leaves processes behind in every way and kills the guest.
func TestNothingOutlivesTheGuest(t *testing.T) {
	version, err := landlock.Version()
	if err != nil {
		t.Skip("the kernel has no Landlock:", err)
	}
	for i, level := range []confine.Level{confine.LevelLandlock, confine.LevelFull} {
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) {
			if level == confine.LevelLandlock && version < 6 {
				t.Skip("Landlock limits no signals here")
			}
			j := newJob(t, level, true, version)
			j.Host.Linger = fmt.Sprintf("30%d.%d", i, os.Getpid())
			runJob(t, j, true)
			deadline := time.Now().Add(10 * time.Second)
			for left := named(t, j.Host.Linger); len(left) > 0; left = named(t, j.Host.Linger) {
				if time.Now().After(deadline) {
					t.Fatalf("%v survived", left)
				}
				runtime.Gosched()
			}
			if err := unix.Kill(j.Host.Victim, 0); err != nil {
				t.Errorf("a process outside was hit: %v", err)
			}
		})
	}
}

// linger leaves sleepers behind that left their session, lost their parent, or both.
func linger(seconds string) {
	script := "exec > /dev/null 2>&1; nohup sleep $1 & setsid sleep $1 & (setsid sh -c \"sleep $1 & exec sleep $1\" &) ; (sleep $1 &)"
	cmd := exec.Command("/bin/sh", "-c", script, "sh", seconds)
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Sprint(err, string(out)))
	}
	for len(sleepers("/proc", seconds)) < 4 {
		runtime.Gosched()
	}
}

// named finds the processes of the host with an argument.
func named(t *testing.T, arg string) []string {
	t.Helper()
	return sleepers("/proc", arg)
}

func sleepers(proc, arg string) []string {
	var list []string
	files, _ := filepath.Glob(proc + "/[0-9]*/cmdline")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && strings.HasPrefix(string(b), "sleep\x00"+arg+"\x00") {
			list = append(list, filepath.Base(filepath.Dir(f)))
		}
	}
	return list
}

// newJob prepares a host full of things worth stealing.
func newJob(t *testing.T, level confine.Level, user bool, version int) *job {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "berth-hostile-") //nolint:usetesting // another user has to reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	uid := os.Getuid()
	if uid == 0 {
		uid = testRange + confine.Inside
		if user {
			uid = testUser
		}
	}
	mkdir := func(name string) string {
		p := filepath.Join(base, name)
		must(t, os.MkdirAll(p, 0o755))
		must(t, os.Chown(p, uid, uid))
		return p
	}
	must(t, os.Chmod(base, 0o755))
	work, outside, control := mkdir("work"), mkdir("outside"), mkdir("control")
	secret := filepath.Join(outside, "secret")
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	must(t, os.Chown(secret, uid, uid))
	token := "berth-" + filepath.Base(base)
	h := hostFacts{Level: level, Outside: outside, Token: token, Canary: "canary-" + token}

	for _, dir := range []string{"/tmp", "/dev/shm"} {
		marker := filepath.Join(dir, token+"-host")
		must(t, os.WriteFile(marker, nil, 0o644))
		t.Cleanup(func() { _ = os.Remove(marker) })
	}
	listen := func(network, addr string) net.Listener {
		l, err := net.Listen(network, addr)
		must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	h.Unix = filepath.Join(outside, "host.sock")
	listen("unix", h.Unix)
	must(t, os.Chmod(h.Unix, 0o777))
	h.Control = filepath.Join(control, "guest.sock")
	listen("unix", h.Control)
	must(t, os.Chmod(h.Control, 0o777))
	h.Abstract = token
	listen("unix", "@"+token)
	h.TCP = listen("tcp4", "0.0.0.0:0").Addr().(*net.TCPAddr).Port
	pc, err := net.ListenPacket("udp4", "0.0.0.0:0")
	must(t, err)
	t.Cleanup(func() { _ = pc.Close() })
	h.UDP = pc.LocalAddr().(*net.UDPAddr).Port
	h.Address = []byte{192, 0, 2, 2}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			h.Address = n.IP.To4()
		}
	}
	h.SysV = os.Getpid()<<8 | int(level)<<2 | 1
	if user {
		h.SysV |= 2
	}
	shm, err := unix.SysvShmGet(h.SysV, 4096, unix.IPC_CREAT|0o666)
	must(t, err)
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(shm, unix.IPC_RMID, nil) })
	msg, _, errno := unix.Syscall(unix.SYS_MSGGET, uintptr(h.SysV), unix.IPC_CREAT|0o666, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { _, _, _ = unix.Syscall(unix.SYS_MSGCTL, msg, unix.IPC_RMID, 0) })
	h.Disk = "/dev/vda"
	if ptm, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err == nil {
		t.Cleanup(func() { _ = ptm.Close() })
		n, err := unix.IoctlGetInt(int(ptm.Fd()), unix.TIOCGPTN)
		must(t, err)
		h.PTY = "/dev/pts/" + itoa(n)
		must(t, unix.IoctlSetPointerInt(int(ptm.Fd()), unix.TIOCSPTLCK, 0))
	}

	victim := exec.Command("/bin/sleep", "300")
	victim.Env = []string{"CANARY=" + h.Canary}
	victim.Dir = outside
	if os.Getuid() == 0 {
		victim.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	must(t, victim.Start())
	t.Cleanup(func() { _ = victim.Process.Kill(); _ = victim.Wait() })
	h.Victim = victim.Process.Pid

	spec := confine.Spec{
		Landlock: version, Seccomp: &seccomp.Options{}, Network: "none", Hostname: "sandbox",
		Limits: confine.Limits{Processes: testProcesses, FileBytes: 64 << 20, OpenFiles: 4096},
		Test:   confine.SelfTest{File: secret, TCP: h.TCP, Unix: h.Unix},
	}
	ids := confine.IDMap{}
	if level == confine.LevelLandlock {
		spec.Seccomp.DenyInet, spec.Seccomp.DenyUnix = true, true
		spec.Binds = []rootfs.Bind{{Source: work, Target: work, Write: true}}
		spec.Binds = append(spec.Binds, rootfs.HostBinds()...)
		if !user && os.Getuid() == 0 {
			spec.Identity = confine.Identity{UID: uid, GID: uid, Become: true}
		}
	} else {
		spec.Binds = []rootfs.Bind{{Source: work, Target: "/workspace", Write: true}}
		spec.Files = []rootfs.File{{Path: "/etc/hosts", Data: "127.0.0.1 localhost\n"}}
		spec.Namespaces = confine.Namespaces{User: true, Mount: true, PID: true, IPC: true, UTS: true, Network: true, Cgroup: true}
		ids.Kind = confine.MapOne
		spec.Identity = confine.Identity{UID: confine.Inside, GID: confine.Inside}
		if !user && os.Getuid() == 0 {
			ids = confine.IDMap{Kind: confine.MapRange, Host: testRange, HostGroup: testRange, Count: 65536}
			spec.Identity.Become = true
		}
		if level == confine.LevelNamespaces {
			spec.Landlock = 0
		}
	}
	h.SetUID = setUIDCopy(t, work)
	return &job{Spec: spec, IDs: ids, Work: work, Host: h}
}

// setUIDCopy puts a copy of this program into the workspace that root owns and everybody may run as root.
func setUIDCopy(t *testing.T, work string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	name := filepath.Join(work, "setuid")
	must(t, os.WriteFile(name, b, 0o755))
	if os.Getuid() == 0 {
		must(t, os.Chmod(name, os.ModeSetuid|0o755))
	}
	return "./setuid"
}

// runJob runs the driver as root or as an ordinary user.
func runJob(t *testing.T, j *job, user bool) []happened {
	t.Helper()
	in, err := json.Marshal(j)
	must(t, err)
	cmd := exec.Command("/proc/self/exe", "driver")
	cmd.Stdin = bytes.NewReader(in)
	cmd.Env = []string{"OPENAI_API_KEY=" + j.Host.Canary, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	if user && os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUser, Gid: testUser}}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr.Bytes())
	}
	t.Log(strings.TrimSpace(stderr.String()))
	var list []happened
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var h happened
		if err := dec.Decode(&h); err != nil {
			if err == io.EOF {
				return list
			}
			t.Fatalf("%v in %s", err, out)
		}
		list = append(list, h)
	}
}

// checkOutside sees that the host is as it was.
func checkOutside(t *testing.T, j *job) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(j.Host.Outside, "secret"))
	if err != nil || string(b) != "secret" {
		t.Errorf("the file outside is now %q (%v)", b, err)
	}
	for _, p := range []string{"/tmp/" + j.Host.Token, "/dev/shm/" + j.Host.Token, filepath.Join(j.Host.Outside, "made-by-the-sandbox")} {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("%s was made on the host", p)
		}
	}
	if err := unix.Kill(j.Host.Victim, 0); err != nil {
		t.Errorf("the process outside is gone: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
