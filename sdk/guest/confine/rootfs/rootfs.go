// SPDX-License-Identifier: Apache-2.0

// Package rootfs builds the private root of a sandbox: a file system in memory with the system's directories read-only,
// own /etc, /dev and /proc, and what the sandbox is to see besides. Nothing else exists in it.
//
// It uses the mount calls of Linux 5.12. Every source is opened before anything is mounted, and every mount point is
// made by descriptors, without following links: what lies in a workspace may be hostile.
package rootfs

import "os"

// Config says what the root holds.
type Config struct {
	Binds []Bind
	Files []File // made after the host's were copied
	// BindProc uses the /proc of the host, where a fresh one is refused.
	BindProc bool
	TmpBytes uint64 // of /dev/shm, and of /tmp where it is in memory; 0 = half of the memory
}

// Bind makes a path of the host visible.
type Bind struct {
	Source string `json:"source,omitempty"` // on the host
	Target string `json:"target"`           // inside; without a private root, the same as Source
	FD     int    `json:"fd,omitempty"`     // a detached mount, made by the driver; 0 = by path
	// Overlay mounts lower and upper directories; Source is then empty.
	Overlay  *Overlay `json:"overlay,omitempty"`
	Write    bool     `json:"write,omitempty"`
	Device   bool     `json:"device,omitempty"`
	Optional bool     `json:"optional,omitempty"` // missing is no error

	// Clone makes a driver that is root clone the mount for the guest, which could not reach the path by itself.
	Clone bool `json:"-"`
	// IDMap is a user namespace that maps the owners on disk for this mount; nil = as they are. File systems that cannot
	// do so are left as they are.
	IDMap *os.File `json:"-"`
}

// Overlay is a writable layer over one that is shared.
type Overlay struct {
	Lower string `json:"lower"`
	Upper string `json:"upper"`
	Work  string `json:"work"`
}

// File is a file, or a link when Link is set, of the private root.
type File struct {
	Path string `json:"path"`
	Data string `json:"data,omitempty"`
	Link string `json:"link,omitempty"`
	Mode uint32 `json:"mode,omitempty"` // 0 = 0644
}

// systemDirs are bound read-only, or made again as the links that they are.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix"}

// devices of the private /dev.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// Devices are the paths of the devices in a private root, terminals included.
func Devices() []string {
	list := []string{"/dev/ptmx", "/dev/pts"}
	for _, d := range devices {
		list = append(list, "/dev/"+d)
	}
	return list
}

// HostBinds are the paths of the host that ordinary programs need where there is no private root.
func HostBinds() []Bind {
	var list []Bind
	for _, p := range append([]string{"/etc", "/proc"}, systemDirs...) {
		list = append(list, Bind{Source: p, Target: p, Optional: true})
	}
	for _, d := range Devices() {
		list = append(list, Bind{Source: d, Target: d, Device: true, Optional: true})
	}
	return list
}
