// SPDX-License-Identifier: Apache-2.0

// Command nasty puts into the working directory what workspaces hold and careless programs lose.
package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

func main() {
	then := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	must(
		os.MkdirAll("d/empty/deep", 0o755), os.Mkdir("sticky", 0o755), os.Chmod("sticky", os.ModeSticky|0o777),
		os.WriteFile("d/one", []byte("content"), 0o640), os.Link("d/one", "two"), os.Link("d/one", "d/three"),
		os.Symlink("nowhere", "dangling"), os.Symlink("/usr/bin/env", "absolute"), os.Symlink("d", "todir"), os.Symlink("../../../etc/passwd", "above"),
		syscall.Mkfifo("fifo", 0o600),
		os.WriteFile("read-only", nil, 0o400), os.WriteFile("run", []byte("#!/bin/sh\n"), 0o600), os.Chmod("run", 0o751),
		os.WriteFile(strings.Repeat("n", 255), []byte("long"), 0o600), os.WriteFile("not\xff\xfeutf8", []byte("raw"), 0o600),
		os.WriteFile("new\nline \t\x01*?[", []byte("odd"), 0o600),
		os.WriteFile("zeros", make([]byte, 3<<20), 0o600), os.WriteFile("big", bytes.Repeat([]byte("0123456789abcdef\n"), 100_000), 0o644),
		os.Chtimes("d/one", then, then), os.Chtimes("d/empty", then, then),
	)
	sparse, err := os.OpenFile("sparse", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	must(err)
	_, err = sparse.WriteAt([]byte("in the middle"), 512<<20)
	must(err, sparse.Truncate(1<<30), sparse.Close())
	l, err := net.Listen("unix", "socket")
	must(err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	must(l.Close())
}

func must(all ...error) {
	for _, err := range all {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
