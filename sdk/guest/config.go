// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
)

// DefaultOrphanTTL is the lease when a driver says nothing else.
const DefaultOrphanTTL = 2 * time.Minute

// Config is what a driver tells the guest at start.
type Config struct {
	// Confine is the confinement to enter first, in the words of package confine; empty = none. It is taken out before
	// the confined stage reads the rest.
	Confine json.RawMessage `json:"confine,omitempty"`

	// Listen is the inherited descriptor of a listening unix socket; 0 = serve one stream on standard input and output.
	Listen int `json:"listen,omitempty"`
	// CallDir is where a host that knocks has its socket, see link.Knock; empty = no host is called.
	CallDir string `json:"call_dir,omitempty"`
	// Socket is the path of a unix socket that the guest makes and serves, instead of Listen. It is for guests that read
	// their configuration from standard input: when it listens, the guest prints [Ready] and closes both streams. Whoever
	// can start programs in the sandbox reaches it with ConnectArgs.
	Socket string `json:"socket,omitempty"`
	// Key proves both ends to each other. At least 16 bytes.
	Key []byte `json:"key"`
	// OrphanTTL is the lease; nil = DefaultOrphanTTL, 0 = end as soon as nobody is attached.
	OrphanTTL *time.Duration `json:"orphan_ttl,omitempty"`

	Root      string             `json:"root"` // workspace root inside
	Grants    []driver.PathGrant `json:"grants,omitempty"`
	Env       map[string]string  `json:"env,omitempty"`        // the base environment of every command
	SecretEnv map[string]string  `json:"secret_env,omitempty"` // like Env, never listed
	User      string             `json:"user,omitempty"`       // of commands that name none; empty = the guest's own
	// Inherit makes the guest's own environment the base below Env and SecretEnv. It is never listed.
	Inherit bool `json:"inherit,omitempty"`

	Kill KillConfig `json:"kill,omitzero"`
	// OOMFile holds a line "oom_kill N": memory.events or memory.oom_control of the commands' cgroup; empty = none.
	OOMFile string `json:"oom_file,omitempty"`
	// MaxProcesses bounds the commands that run at once; 0 = 1024.
	MaxProcesses int `json:"max_processes,omitempty"`

	// Threads are made at the start and kept, where the limit of processes counts the guest's own threads too: when commands
	// have used it up, the guest could get no other, and a Go program that is refused a thread ends. 0 = none.
	Threads int `json:"threads,omitempty"`

	// PrivateNetwork says that no one else's sockets are in /proc/net: every listening port is the sandbox's own.
	PrivateNetwork bool `json:"private_network,omitempty"`
	// Report is what is enforced; it is repeated in the hello.
	Report []driver.Isolation `json:"report,omitempty"`
}

// KillConfig says what the guest has to end a whole tree with. What is stronger is tried first; with none of it the
// guest marks, searches and kills until nothing is left, which a chain of forks made to evade it can outrun.
type KillConfig struct {
	// Cgroup is a directory of a cgroup v2 hierarchy in which the guest may make a group for each command.
	Cgroup string `json:"cgroup,omitempty"`
	// Freezer is the directory of the cgroup v1 freezer group that every command is in, and the guest is not.
	Freezer string `json:"freezer,omitempty"`
	// SignalScope says that commands run in a nested Landlock domain with signal scope and as an ordinary user, so that
	// kill(-1) by a helper in that domain reaches every command and nothing else.
	SignalScope bool `json:"signal_scope,omitempty"`
}

// Args gives the arguments (without the program's name) of a guest that reads its Config from descriptor fd.
func Args(fd int) []string { return []string{"-config", strconv.Itoa(fd)} }

// ConnectArgs gives the arguments of a program that carries its standard input and output to and from the guest which
// serves socket, see [Config.Socket].
func ConnectArgs(socket string) []string { return []string{"-connect", socket} }

// Ready is the line that a guest prints when its socket listens.
const Ready = "ready\n"

// Line gives a configuration as it is sent to a guest with Args(0), ahead of the conversation on the same stream. It may
// be sent again with each connection: a guest that has its configuration takes it for noise.
func Line(cfg *Config) ([]byte, error) {
	b, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("write the guest's configuration: %w", err)
	}
	return append(append([]byte{'\n'}, b...), '\n'), nil
}
