// SPDX-License-Identifier: Apache-2.0

package rootfs

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest/confine/internal/step"
)

// etcFiles are copied from the host: no secrets, and what ordinary programs read.
var etcFiles = []string{
	"ld.so.cache", "ld.so.conf", "nsswitch.conf", "resolv.conf", "localtime", "timezone", "gai.conf", "host.conf",
	"gitconfig", "services", "protocols", "mime.types", "bash.bashrc", "inputrc", "os-release", "shells",
	"locale.conf", "locale.alias", "debian_version", "lsb-release",
}

// etcDirs are bound read-only; a star at the end stands for anything.
var etcDirs = []string{
	"ssl", "pki", "ca-certificates", "crypto-policies", "alternatives", "terminfo", "profile.d", "ld.so.conf.d", "java*",
	"python3*", "fonts",
}

// profile is read by login shells, in which models run most commands. The host's own would replace the PATH that the
// sandbox was given.
const profile = `# A login shell keeps the PATH of the sandbox.
if [ -n "${PS1-}" ] && [ -n "${BASH_VERSION-}" ] && [ -r /etc/bash.bashrc ]; then
  . /etc/bash.bashrc
fi
for f in /etc/profile.d/*.sh; do
  if [ -r "$f" ]; then
    . "$f"
  fi
done
unset f
`

// maxEtcFile bounds what is copied.
const maxEtcFile = 1 << 20

// visibleInEtc says whether a directory below /etc is bound.
func visibleInEtc(name string) bool {
	return slices.ContainsFunc(etcDirs, func(d string) bool {
		prefix, open := strings.CutSuffix(d, "*")
		return name == d || open && strings.HasPrefix(name, prefix)
	})
}

func (r *newRoot) etc(own []File) error {
	dir, err := r.target("/etc", true)
	if err != nil {
		return step.At("open the new /etc", err)
	}
	for _, name := range etcFiles {
		if err := r.copyEtc(dir, name); err != nil {
			return err
		}
	}
	for _, f := range append([]File{{Path: "/etc/profile", Data: profile}}, own...) {
		if err := r.write(f); err != nil {
			return err
		}
	}
	return nil
}

// copyEtc copies a file of the host's /etc. What this user may not read, or what is no file, is left out.
func (r *newRoot) copyEtc(dir int, name string) error {
	host := "/etc/" + name
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK
	from, err := unix.Open(host, flags|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ELOOP) {
		target, err := os.Readlink(host)
		if err != nil {
			return nil // it has just gone
		}
		// A link into what is visible stays a link; behind any other lies a file that would not be there.
		if strings.HasPrefix(path.Join("/etc", target), "/usr/") || strings.HasPrefix(path.Clean(target), "/usr/") {
			return step.At("link "+host, unix.Symlinkat(target, dir, name))
		}
		from, err = unix.Open(host, flags, 0)
		if err != nil {
			return nil // it leads nowhere
		}
	} else if err != nil {
		return nil // there is none here
	}
	var st unix.Stat_t
	if unix.Fstat(from, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxEtcFile {
		return nil
	}
	to, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return step.At("make "+host, err)
	}
	defer unix.Close(to) // what is open for writing keeps the root from becoming read-only
	for left := int(st.Size); left > 0; {
		n, err := unix.Sendfile(to, from, nil, left)
		if err != nil {
			return step.At("copy "+host, err)
		}
		if n == 0 {
			break // it was cut meanwhile
		}
		left -= n
	}
	return nil
}

func (r *newRoot) write(f File) error {
	dir, err := r.target(filepath.Dir(f.Path), true)
	if err != nil {
		return step.At("make the directory of "+f.Path, err)
	}
	name := filepath.Base(f.Path)
	if f.Link != "" {
		return step.At("link "+f.Path, unix.Symlinkat(f.Link, dir, name))
	}
	mode := f.Mode
	if mode == 0 {
		mode = 0o644
	}
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW
	fd, err := unix.Openat(dir, name, flags, mode)
	if errors.Is(err, unix.EEXIST) {
		if err := unix.Unlinkat(dir, name, 0); err != nil {
			return step.At("replace "+f.Path, err)
		}
		fd, err = unix.Openat(dir, name, flags, mode)
	}
	if err != nil {
		return step.At("make "+f.Path, err)
	}
	defer unix.Close(fd)
	for b := []byte(f.Data); len(b) > 0; {
		n, err := unix.Write(fd, b)
		if err != nil {
			return step.At("write "+f.Path, err)
		}
		b = b[n:]
	}
	return nil
}
