// SPDX-License-Identifier: Apache-2.0

//go:build linux

package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/api"
	"github.com/berth-dev/berth/sdk/guest/link"
	"github.com/berth-dev/berth/sdk/guest/proc"
)

const (
	dialTime  = 10 * time.Second
	watchTime = 250 * time.Millisecond
)

// dial connects to a port on the sandbox's loopback and moves bytes both ways.
func (s *server) dial(st *link.Stream, args *api.Dial) (any, error) {
	ctx := st.Context()
	c, err := dialLoopback(ctx, args.Port)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := st.SendControl(ctx, api.SubReady, nil); err != nil {
		return nil, err
	}
	go func() {
		_, err := io.Copy(c, &reader{st: st})
		if err != nil {
			c.Close()
			return
		}
		if h, ok := c.(interface{ CloseWrite() error }); ok {
			h.CloseWrite() //nolint:errcheck // a connection that is gone needs no half-close
		}
	}()
	buf := make([]byte, 32<<10)
	w := &writer{st: st, sub: api.SubContent}
	for {
		n, err := c.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return nil, err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, errs.Wrap(errs.PortUnavailable, "port.read", err)
		}
	}
}

func dialLoopback(ctx context.Context, port uint16) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTime}
	var first error
	for _, host := range []string{"127.0.0.1", "::1"} {
		c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
	}
	e := errs.New(errs.PortUnavailable, "nothing in the sandbox takes connections on port %d", port).With("port", strconv.Itoa(int(port)))
	e.Err = first
	return nil, e
}

// watch tells of ports and of processes that were ended for lack of memory. It looks only while somebody watches.
func (s *server) watch(st *link.Stream) error {
	ctx := st.Context()
	tell := func(e driver.Event) error {
		b, err := json.Marshal(e)
		if err != nil {
			return err
		}
		return st.SendControl(ctx, api.SubEvent, b)
	}
	if err := st.SendControl(ctx, api.SubReady, nil); err != nil {
		return err
	}
	tick := time.NewTicker(watchTime)
	defer tick.Stop()
	known := map[uint16]bool{}
	ooms := proc.OOMKills(s.cfg.OOMFile)
	for {
		now := s.listening()
		for port := range now {
			if !known[port] {
				if err := tell(driver.Event{Kind: driver.EventPortOpened, Port: port}); err != nil {
					return err
				}
			}
		}
		for port := range known {
			if !now[port] {
				if err := tell(driver.Event{Kind: driver.EventPortClosed, Port: port}); err != nil {
					return err
				}
			}
		}
		known = now
		if n := proc.OOMKills(s.cfg.OOMFile); n > ooms {
			ooms = n
			if err := tell(driver.Event{Kind: driver.EventOutOfMemory, Message: fmt.Sprintf("%d processes were ended for lack of memory so far", n)}); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// listening are the ports that processes of the sandbox listen on.
func (s *server) listening() map[uint16]bool {
	sockets := map[string]uint16{} // by inode
	for _, f := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		readListeners(f, sockets)
	}
	ports := map[uint16]bool{}
	if s.cfg.PrivateNetwork {
		for _, port := range sockets {
			ports[port] = true
		}
		return ports
	}
	if len(sockets) == 0 {
		return ports
	}
	// Others' sockets are there too: only those held by a process of ours count.
	for _, pid := range s.table.Descendants() {
		fds, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
		if err != nil {
			continue
		}
		for _, fd := range fds {
			to, err := os.Readlink(fd)
			if err != nil {
				continue
			}
			inode := strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")
			if port, ok := sockets[inode]; ok {
				ports[port] = true
			}
		}
	}
	return ports
}

// readListeners reads a table of /proc/net.
func readListeners(file string, into map[string]uint16) {
	f, err := os.Open(file)
	if err != nil {
		return
	}
	defer f.Close()
	const listen = "0A"
	for sc := bufio.NewScanner(f); sc.Scan(); {
		w := strings.Fields(sc.Text()) // sl local remote state …, the tenth is the inode
		if len(w) < 10 || w[3] != listen {
			continue
		}
		_, hex, ok := strings.Cut(w[1], ":")
		port, err := strconv.ParseUint(hex, 16, 16)
		if ok && err == nil {
			into[w[9]] = uint16(port)
		}
	}
}
