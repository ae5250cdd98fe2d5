// SPDX-License-Identifier: Apache-2.0

package execbox

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// output takes the engine's framing off a command's output.
type output struct {
	streams driver.Streams
	says    func(stream byte, text string) bool // whether that may be the engine's own words
	heard   chan struct{}                       // something came
	over    chan struct{}                       // nothing more comes

	mu     sync.Mutex
	closed bool   // guarded by mu; nothing is written any more
	begun  bool   // guarded by mu
	held   []byte // guarded by mu; what may be the engine's own words about a command that it could not start
	heldAs byte   // guarded by mu; their stream
	n      uint64 // guarded by mu
	err    error  // guarded by mu; of the caller's writers
}

func newOutput(s driver.Streams, says func(byte, string) bool) *output {
	return &output{streams: s, says: says, heard: make(chan struct{}, 1), over: make(chan struct{})}
}

// read reads to the end. With a terminal there is one stream and no framing.
func (o *output) read(r io.Reader, tty bool) {
	defer close(o.over)
	buf := make([]byte, 32<<10)
	for {
		stream, left := byte(1), len(buf)
		if !tty {
			var head [8]byte
			if _, err := io.ReadFull(r, head[:]); err != nil {
				return
			}
			stream, left = head[0], int(binary.BigEndian.Uint32(head[4:]))
		}
		for left > 0 {
			n, err := r.Read(buf[:min(left, len(buf))])
			o.take(stream, buf[:n])
			if err != nil {
				return
			}
			if left -= n; tty {
				break
			}
		}
	}
}

// docker tells what Docker says instead of a command, on its standard output.
func docker(stream byte, text string) bool {
	return stream != 2 && (strings.HasPrefix(text, "OCI runtime exec failed") || strings.HasPrefix(text, "unable to find"))
}

// podman tells what Podman says, on its standard error: a line that names the runtime, then one about its own connection.
func podman(stream byte, text string) bool {
	first, _, _ := strings.Cut(text, "\n")
	return stream == 2 && strings.HasPrefix(first, "Error: ") && strings.Contains(first, "exec failed: unable to start container process")
}

const heldMax = 8 << 10

func (o *output) take(stream byte, p []byte) {
	if len(p) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if (!o.begun || len(o.held) > 0 && stream == o.heldAs) && len(o.held)+len(p) <= heldMax {
		if text := string(o.held) + string(p); o.says(stream, text) {
			o.begun, o.held, o.heldAs = true, []byte(text), stream
			return
		}
	}
	o.begun = true
	o.write(o.heldAs, o.held)
	o.held = nil
	o.write(stream, p)
	select {
	case o.heard <- struct{}{}:
	default:
	}
}

// write gives output to the caller. The caller holds o.mu.
func (o *output) write(stream byte, p []byte) {
	o.n += uint64(len(p))
	w := o.streams.Stdout
	if stream == 2 {
		w = o.streams.Stderr
	}
	if w == nil || o.closed || o.err != nil || len(p) == 0 {
		return
	}
	if _, err := w.Write(p); err != nil {
		o.err = errs.Wrap(errs.Internal, "write the command's output", err)
	}
}

// refusal is what may be the engine's own words.
func (o *output) refusal() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(string(o.held))
}

// close gives the caller what was held back, and nothing after that. It tells how much came, and what went wrong.
func (o *output) close() (uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.write(o.heldAs, o.held)
		o.held, o.closed = nil, true
	}
	return o.n, errors.Join(o.err)
}
