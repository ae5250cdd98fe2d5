// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"context"
	"encoding/binary"
	"io"
	"net"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/frame"
)

// detachKeys is a sequence that no conversation holds: Podman looks for one, and would take its own default for a wish
// to hang up.
const detachKeys = "ctrl-^,ctrl-_,ctrl-^,ctrl-],ctrl-_,ctrl-^,ctrl-],ctrl-],ctrl-_,ctrl-^"

// Attach connects to the standard streams of a container's first process. What that prints as errors goes to log.
func Attach(ctx context.Context, e *engine.Engine, id string, log func(string)) (net.Conn, error) {
	res, err := e.ContainerAttach(ctx, id, client.ContainerAttachOptions{
		Stream: true, Stdin: true, Stdout: true, Stderr: true, DetachKeys: detachKeys,
	})
	if err != nil {
		return nil, engine.Error(errs.ExecTransport, "attach to the container", err)
	}
	return &conn{Conn: res.Conn, from: &demux{r: res.Reader, log: log}}, nil
}

// Flush is what a stream that an earlier connection used begins with: whatever frame was cut off in it ends within, and
// what follows is read as itself.
func Flush() []byte { return make([]byte, frame.HeaderSize+frame.MaxPayload) }

// conn is an attached container.
type conn struct {
	net.Conn
	from *demux
}

// Read reads standard output.
func (c *conn) Read(p []byte) (int, error) { return c.from.Read(p) }

// demux takes the engine's framing off: 8 bytes that tell the stream and the length, then as many bytes.
type demux struct {
	r    io.Reader
	log  func(string)
	left int // of the part of standard output that is being read
}

// Read gives standard output.
func (d *demux) Read(p []byte) (int, error) {
	for d.left == 0 {
		var head [8]byte
		if _, err := io.ReadFull(d.r, head[:]); err != nil {
			return 0, err
		}
		n := int(binary.BigEndian.Uint32(head[4:]))
		if head[0] == 1 {
			d.left = n
			continue
		}
		text := make([]byte, min(n, maxLine))
		if _, err := io.ReadFull(d.r, text); err != nil {
			return 0, err
		}
		if _, err := io.CopyN(io.Discard, d.r, int64(n-len(text))); err != nil {
			return 0, err
		}
		d.log(string(text))
	}
	n, err := d.r.Read(p[:min(len(p), d.left)])
	d.left -= n
	return n, err
}

// maxLine bounds what is kept of one message on standard error.
const maxLine = 4 << 10
