// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"github.com/berth-dev/berth/sdk/guest/confine/rootfs"
	"github.com/berth-dev/berth/sdk/guest/confine/seccomp"
)

// Level orders what can be enforced.
type Level int

// The levels.
const (
	LevelNone       Level = iota // nothing
	LevelLandlock                // Landlock, seccomp, no capabilities
	LevelNamespaces              // private root, PID, IPC, UTS and perhaps network namespaces
	LevelFull                    // both
)

// Spec says how to confine one guest. [Start] fills in the descriptors.
type Spec struct {
	// Stage is 1 in the copy that the confined program gets.
	Stage int `json:"stage,omitempty"`
	// Trial ends the guest after the self-test: a probe.
	Trial bool `json:"trial,omitempty"`
	// Plain leaves the guest unconfined; it still gets no descriptor and no environment that it should not.
	Plain bool `json:"plain,omitempty"`
	// Remove empties and removes the directories in Binds instead of going on; for what belongs to mapped users.
	Remove bool `json:"remove,omitempty"`

	Status  int   `json:"status,omitempty"`  // descriptor that gets the outcome
	Program int   `json:"program,omitempty"` // descriptor of the program to execute again
	Keep    []int `json:"keep,omitempty"`    // descriptors that live as long as the guest, and reach no command
	// Next and Pass are for stage 0: the descriptor of the configuration of stage 1, and those that stage 1 gets besides.
	Next int   `json:"next,omitempty"`
	Pass []int `json:"pass,omitempty"`

	Namespaces Namespaces `json:"namespaces,omitzero"`
	// BindProc uses the /proc of the host: where a fresh one is refused, and the PID namespace is then left out.
	BindProc bool   `json:"bind_proc,omitempty"`
	Hostname string `json:"hostname,omitempty"`

	Identity Identity      `json:"identity"`
	Binds    []rootfs.Bind `json:"binds,omitempty"`
	Files    []rootfs.File `json:"files,omitempty"` // of the private root, made after the host's were copied

	Landlock int `json:"landlock,omitempty"` // the version to enforce, exactly; 0 = none
	// ScopeOnly leaves files out of Landlock, which would refuse every mount, also in a namespace of the sandbox's own.
	ScopeOnly bool             `json:"scope_only,omitempty"`
	Seccomp   *seccomp.Options `json:"seccomp,omitempty"` // nil = none
	Network   string           `json:"network,omitempty"` // "host" or "none"
	Limits    Limits           `json:"limits,omitzero"`
	// OwnTasks and SpawnTasks are descriptors of cgroup v1 "tasks" files: stage 0 writes itself to the first, the thread
	// that starts commands to the others. A thread that moves itself waits for nobody; moving a process from outside
	// waits until every processor has been seen idle, which takes longer than all the rest of a start.
	OwnTasks   []int `json:"own_tasks,omitempty"`
	SpawnTasks []int `json:"spawn_tasks,omitempty"`

	Test SelfTest `json:"test,omitzero"`
}

// Namespaces are those that the guest gets of its own.
type Namespaces struct {
	User    bool `json:"user,omitempty"`
	Mount   bool `json:"mount,omitempty"` // with a private root
	PID     bool `json:"pid,omitempty"`
	IPC     bool `json:"ipc,omitempty"`
	UTS     bool `json:"uts,omitempty"`
	Network bool `json:"network,omitempty"`
	Cgroup  bool `json:"cgroup,omitempty"`
}

// Identity is who the guest is once confined.
type Identity struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
	// Setup is true when the user namespace begins as its user 0 and has to be entered as such.
	Setup bool `json:"setup,omitempty"`
	// Become changes to UID and GID; without it the guest already is.
	Become bool `json:"become,omitempty"`
	// RunAs keeps what starting commands as other users takes, in the guest alone.
	RunAs bool `json:"run_as,omitempty"`
}

// Limits are resource limits of each process; zero = leave.
type Limits struct {
	Processes uint64 `json:"processes,omitempty"` // of the user, in the user namespace
	FileBytes uint64 `json:"file_bytes,omitempty"`
	OpenFiles uint64 `json:"open_files,omitempty"`
	TmpBytes  uint64 `json:"tmp_bytes,omitempty"` // of /dev/shm, and of /tmp where it is in memory
}

// SelfTest is what stage 1 tries, and must not reach. Empty fields are not tried.
type SelfTest struct {
	File string `json:"file,omitempty"` // a file outside
	PID  int    `json:"pid,omitempty"`  // a process outside, of the same user; only without a PID namespace
	TCP  int    `json:"tcp,omitempty"`  // a port of 127.0.0.1 that somebody outside listens on
	Unix string `json:"unix,omitempty"` // a socket outside
}

// outcome is what goes to the status descriptor.
type outcome struct {
	OK    bool   `json:"ok,omitempty"`
	Step  string `json:"step,omitempty"`
	Errno int    `json:"errno,omitempty"`
	Text  string `json:"text,omitempty"`
}
