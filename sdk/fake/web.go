// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // the protocol's own
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// accept carries what comes to an exposed port to the process that listens on it, until the port is closed.
func (s *Sandbox) accept(l net.Listener, port uint16) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		p := s.servers[port]
		s.mu.Unlock()
		if p == nil {
			conn.Close() // nobody listens
			continue
		}
		go p.serve(conn)
	}
}

// closePortsLocked takes every address back.
func (s *Sandbox) closePortsLocked() {
	for _, l := range s.ports {
		if l != nil {
			l.Close() // nothing is written to it
		}
	}
	clear(s.ports)
}

// serve is what the program listen says: what it was told; or web: HTTP and WebSockets.
func (p *process) serve(conn net.Conn) {
	defer conn.Close() // both ends are ours
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-p.done:
			conn.Close() // both ends are ours
		case <-stop:
		}
	}()
	if strings.HasSuffix(p.cmd.Argv[0], "web") {
		_ = web(conn) // ends with either side
	} else {
		io.Copy(conn, conn) //nolint:errcheck // ends with either side
	}
}

// web answers requests with their method, address and body, and echoes short messages of a WebSocket.
func web(conn net.Conn) error {
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return err
		}
		if key := r.Header.Get("Sec-Websocket-Key"); key != "" {
			sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
			if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
				base64.StdEncoding.EncodeToString(sum[:])); err != nil {
				return err
			}
			return messages(in, conn)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		text := r.Method + " " + r.RequestURI + " " + string(body)
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(text), text); err != nil {
			return err
		}
	}
}

func messages(in io.Reader, out io.Writer) error {
	for {
		var head [6]byte // kind, length, mask
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		b := make([]byte, 2+head[1]&0x7f)
		b[0], b[1] = head[0], head[1]&0x7f
		if _, err := io.ReadFull(in, b[2:]); err != nil {
			return err
		}
		for i := range b[2:] {
			b[2+i] ^= head[2+i%4]
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
	}
}
