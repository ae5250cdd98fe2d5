// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// errCut breaks the connection to the client.
var errCut = errors.New("the answer is cut off here")

// spoil does to the vendor's answer what the fault says.
func (f *Fault) spoil(ctx context.Context, resp *http.Response) error {
	switch f.Kind { //nolint:exhaustive // the others do not come this far
	case LostAnswer, LateAnswer:
		_, _ = io.Copy(io.Discard, resp.Body) // nobody gets it
		resp.Body.Close()                     // it was read
		if f.Kind == LostAnswer {
			return errCut
		}
		resp.StatusCode, resp.Header = f.status(), maps.Clone(f.Header)
		if resp.Header == nil {
			resp.Header = http.Header{}
		}
		resp.Trailer = nil
		resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(f.Body)), int64(len(f.Body))
	case CutBody:
		if f.Bytes > 0 || resp.StatusCode == http.StatusSwitchingProtocols {
			through(resp, cut(io.LimitReader(resp.Body, f.Bytes)))
			return nil
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return errCut
		}
		// The length of the whole is announced, so that the client can tell.
		resp.Header.Set("Content-Length", strconv.Itoa(max(len(body), 1)))
		through(resp, cut(bytes.NewReader(body[:len(body)/2])))
	case CutEnd:
		through(resp, &untilEnd{r: bufio.NewReader(resp.Body), next: ends(resp)})
	case SlowBody:
		through(resp, slow{ctx, resp.Body, f.Pause})
	}
	return nil
}

// through makes r what is read of an answer. What is written to a connection that changed its protocol stays.
func through(resp *http.Response, r io.Reader) {
	if conn, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = struct {
			io.Reader
			io.WriteCloser
		}{r, conn}
		return
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{r, resp.Body}
}

// cut reads r, and then the connection breaks.
func cut(r io.Reader) io.Reader { return io.MultiReader(r, broken{}) }

type broken struct{}

// Read breaks the connection.
func (broken) Read([]byte) (int, error) { return 0, errCut }

// slow gives a byte at a time, with a pause before the next.
type slow struct {
	ctx   context.Context //nolint:containedctx // of the request
	r     io.Reader
	pause time.Duration
}

// Read reads one byte.
func (s slow) Read(p []byte) (int, error) {
	n, err := s.r.Read(p[:min(1, len(p))])
	t := time.NewTimer(s.pause)
	defer t.Stop()
	select {
	case <-t.C:
		return n, err
	case <-s.ctx.Done():
		return n, context.Cause(s.ctx)
	}
}

// framing looks at the next message of a stream, of which it takes nothing: how long it is with its header, and whether
// it is the last one.
type framing func(*bufio.Reader) (size int, last bool, err error)

// ends gives the framing of an answer.
func ends(resp *http.Response) framing {
	kind := resp.Header.Get("Content-Type")
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols && strings.EqualFold(resp.Header.Get("Upgrade"), "websocket"):
		return webSocket
	case strings.HasPrefix(kind, "application/connect+"), strings.HasPrefix(kind, "application/grpc-web"):
		return envelope
	}
	return lastByte
}

// envelope is a message of the Connect protocol or of gRPC-Web: flags, four bytes of length, content. The last one is
// marked, by another flag in each.
func envelope(r *bufio.Reader) (size int, last bool, err error) {
	b, err := r.Peek(5)
	if err != nil {
		return 0, false, err
	}
	return 5 + int(binary.BigEndian.Uint32(b[1:])), b[0]&(0x02|0x80) != 0, nil
}

// webSocket is a frame of RFC 6455 from a server. The last one is a close.
func webSocket(r *bufio.Reader) (size int, last bool, err error) {
	b, err := r.Peek(2)
	if err != nil {
		return 0, false, err
	}
	last = b[0]&0x0f == 0x8
	switch n := int(b[1] & 0x7f); n {
	case 126:
		if b, err = r.Peek(4); err == nil {
			size = 4 + int(binary.BigEndian.Uint16(b[2:]))
		}
	case 127:
		if b, err = r.Peek(10); err == nil {
			size = 10 + int(binary.BigEndian.Uint64(b[2:]))
		}
	default:
		size = 2 + n
	}
	return size, last, err
}

// lastByte takes the last byte of a body for its last message.
func lastByte(r *bufio.Reader) (size int, last bool, err error) {
	if _, err := r.Peek(2); err != nil {
		return 0, true, nil //nolint:nilerr // there is one byte at most
	}
	return r.Buffered() - 1, false, nil
}

// untilEnd reads all but the last message.
type untilEnd struct {
	r    *bufio.Reader
	next framing
	left int // of the message that is under way
}

// Read gives what certainly is not the end.
func (u *untilEnd) Read(p []byte) (int, error) {
	if u.left == 0 {
		size, last, err := u.next(u.r)
		if err != nil || last {
			return 0, errCut
		}
		u.left = size
	}
	n, err := u.r.Read(p[:min(len(p), u.left)])
	u.left -= n
	return n, err
}
