// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fake

import (
	"fmt"
	"os/exec"
)

// Busybox makes the files of a small image in dir, from the busybox of this machine.
func Busybox(dir string) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return fmt.Errorf("make an image: %w", err)
	}
	const script = `set -e
mkdir -p "$1/bin" "$1/etc" "$1/root" "$1/tmp" "$1/home/app"
chmod 1777 "$1/tmp"
cp "$0" "$1/bin/busybox"
for a in $("$0" --list); do [ "$a" = busybox ] || ln -s busybox "$1/bin/$a"; done
printf 'root:x:0:0:root:/root:/bin/sh\napp:x:1234:1234::/home/app:/bin/sh\n' > "$1/etc/passwd"
printf 'root:x:0:\napp:x:1234:\n' > "$1/etc/group"
printf '#!/bin/sh\nexec nc -ll -p "$1" -e cat\n' > "$1/bin/listen"
chmod 755 "$1/bin/listen"
`
	out, err := exec.Command("/bin/sh", "-c", script, busybox, dir).CombinedOutput() //nolint:noctx // it ends by itself
	if err != nil {
		return fmt.Errorf("make an image: %w: %s", err, out)
	}
	return nil
}
