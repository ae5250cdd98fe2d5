// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/guest"
)

// listen makes the socket of a guest. One that another guest left is replaced; one that another guest serves is not.
func listen(path string) (net.Listener, error) {
	addr := &net.UnixAddr{Net: "unix", Name: path}
	l, err := net.ListenUnix("unix", addr)
	if errors.Is(err, unix.EADDRINUSE) {
		if c, dialErr := net.DialUnix("unix", nil, addr); dialErr == nil {
			c.Close()
			return nil, fmt.Errorf("another guest serves %s", path)
		}
		if err = os.Remove(path); err == nil || errors.Is(err, os.ErrNotExist) {
			l, err = net.ListenUnix("unix", addr)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make the socket: %w", err)
	}
	return l, nil
}

// connect carries standard input and output to and from a guest, until either ends.
func connect(path string) error {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		return fmt.Errorf("connect to the guest: %w", err)
	}
	defer c.Close()
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(c, os.Stdin)
		ended <- err
	}()
	go func() {
		_, err := io.Copy(os.Stdout, c)
		ended <- err
	}()
	return <-ended
}

// inherited is the guest's own environment below what its configuration says.
func inherited(cfg *guest.Config) map[string]string {
	env := map[string]string{}
	for _, kv := range os.Environ() {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			if _, said := cfg.Env[k]; !said {
				env[k] = v
			}
		}
	}
	maps.Copy(env, cfg.SecretEnv)
	return env
}
