// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"strings"
	"sync"
)

// Holder is a process that has a lease.
type Holder struct {
	User string `json:"user"`
	Name string `json:"name"` // of its machine, for people
	Host string `json:"host"` // of its machine, since it was started; a container with processes of its own is another
	PID  int    `json:"pid"`
	// Start tells the process from a later one with its PID.
	Start string `json:"start"`
	What  string `json:"what"`
}

// Here is this process.
func Here(what string) Holder {
	h := me()
	h.What = what
	return h
}

var me = sync.OnceValue(func() Holder {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	who := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	h := Holder{User: cmp.Or(who, "unknown"), Name: name, Host: strings.Join(append([]string{name}, machine()...), "/"), PID: os.Getpid()}
	h.Start, _ = started(h.PID) // of oneself it is known, or nothing is of anybody
	return h
})

// Owner is user@host.
func (h Holder) Owner() string { return h.User + "@" + h.Name }

// Dead says that the process has ended for certain. Of another machine's nothing is known.
func (h Holder) Dead() bool {
	if h.Host != me().Host {
		return false
	}
	start, runs := started(h.PID)
	return !runs || (start != "" && start != h.Start)
}

// Local says that the process is, or was, on this machine as it runs now.
func (h Holder) Local() bool { return h.Host == me().Host }

func (h Holder) String() string {
	s := fmt.Sprintf("process %d of %s", h.PID, h.Owner())
	if h.What != "" {
		s += " (" + h.What + ")"
	}
	return s
}
