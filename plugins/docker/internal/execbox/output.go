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
	heard   chan struct{} // something came
	over    chan struct{} // nothing more comes

	mu     sync.Mutex
	closed bool   // guarded by mu; nothing is written any more
	begun  bool   // guarded by mu
	held   []byte // guarded by mu; what may be the engine's own words about a command that it could not start
	n      uint64 // guarded by mu
	err    error  // guarded by mu; of the caller's writers
}

func newOutput(s driver.Streams) *output {
	return &output{streams: s, heard: make(chan struct{}, 1), over: make(chan struct{})}
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

// own begins what the engine says instead of the command.
var own = []string{"OCI runtime exec failed", "unable to find"}

const heldMax = 8 << 10

func (o *output) take(stream byte, p []byte) {
	if len(p) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if stream != 2 && (!o.begun || len(o.held) > 0) && len(o.held)+len(p) <= heldMax {
		text := string(o.held) + string(p)
		for _, prefix := range own {
			if strings.HasPrefix(text, prefix) {
				o.begun, o.held = true, []byte(text)
				return
			}
		}
	}
	o.begun = true
	o.write(1, o.held)
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
		o.write(1, o.held)
		o.held, o.closed = nil, true
	}
	return o.n, errors.Join(o.err)
}
