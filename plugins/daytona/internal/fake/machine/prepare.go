// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// etc are the files of /etc; what is not said is this machine's own.
var etc = map[string]string{ //nolint:gosec // no password is in it
	"passwd":        "root:x:0:0:root:/root:/bin/bash\ndaytona:x:1000:1000::/home/daytona:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n",
	"group":         "root:x:0:\ntty:x:5:\ndaytona:x:1000:\nnogroup:x:65534:\n",
	"hosts":         "127.0.0.1 localhost\n",
	"hostname":      "sandbox\n",
	"shells":        "/bin/sh\n/bin/bash\n",
	"profile":       "PATH=/usr/local/bin:/usr/bin:/bin\nexport PATH\nPS1='$ '\n",
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	"resolv.conf":   "",
	"ld.so.cache":   "",
	"os-release":    "",
}

// Prepare makes the files of a new sandbox in dir. What is copied from another machine's dir is there already.
func Prepare(dir string) error {
	root := filepath.Join(dir, "disk")
	for _, d := range []struct {
		name string
		mode os.FileMode
		uid  int
	}{
		{"/", 0o755, 0},
		{"/proc", 0o755, 0},
		{"/dev", 0o755, 0},
		{"/etc", 0o755, 0},
		{"/root", 0o700, 0},
		{"/home", 0o755, 0},
		{"/home/daytona", 0o755, userUID},
		{"/tmp", 0o777 | os.ModeSticky, 0},
		{"/var", 0o755, 0},
		{"/run", 0o755, 0},
		{"/mnt", 0o755, 0},
		{"/var/tmp", 0o777 | os.ModeSticky, 0},
	} {
		p := path.Join(root, d.name)
		if err := os.MkdirAll(p, 0o755); err != nil {
			return err
		}
		if err := errors.Join(os.Chmod(p, d.mode), os.Chown(p, d.uid, d.uid)); err != nil {
			return err
		}
	}
	for name, text := range etc {
		b := []byte(text)
		if text == "" {
			b, _ = os.ReadFile("/etc/" + name) // empty where there is none
		}
		p := filepath.Join(root, "etc", name)
		if _, err := os.Lstat(p); errors.Is(err, fs.ErrNotExist) {
			if err := os.WriteFile(p, b, 0o644); err != nil {
				return err
			}
		}
	}
	for _, name := range shared {
		info, err := os.Lstat(name)
		if err != nil {
			continue
		}
		to := path.Join(root, name)
		if info.Mode()&fs.ModeSymlink == 0 {
			err = os.MkdirAll(to, 0o755)
		} else if target, e := os.Readlink(name); e != nil {
			err = e
		} else if err = os.Symlink(target, to); errors.Is(err, fs.ErrExist) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
