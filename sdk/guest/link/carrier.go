// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/sdk/guest/frame"
)

const (
	// batchBytes and batchFrames bound what is given to one write.
	batchBytes  = 512 << 10
	batchFrames = 64
	// coalesce is the size up to which a batch is copied together, which costs less than a vector.
	coalesce = 16 << 10
)

// carrier is one connection of a conversation, from the end of the handshake.
type carrier struct {
	c      *conversation
	wire   *wire
	shared bool // the stream outlives the carrier: it is not closed
	pings  bool
	check  frame.Check
	silent time.Duration // after which it is lost
	passes bool          // files may be sent along
	files  *taker        // of the files that come along; nil = there are none

	wake    chan struct{} // of the writer
	dead    chan struct{}
	written chan struct{} // closed when the writer has ended
	heard   atomic.Int64  // when something was received, since epoch
	pingDue atomic.Bool

	once sync.Once
	err  error // set before dead is closed
}

// epoch is what times are measured from: a clock that is set makes no silence.
var epoch = time.Now()

func newCarrier(c *conversation, w *wire, shared, pings, plain bool) *carrier {
	n := &carrier{
		c: c, wire: w, shared: shared, pings: pings, silent: MaxSilence, check: frame.Check{Seed: c.seed, Plain: plain},
		wake: make(chan struct{}, 1), dead: make(chan struct{}), written: make(chan struct{}),
	}
	n.hear()
	return n
}

func (n *carrier) hear() { n.heard.Store(int64(time.Since(epoch))) }

func (n *carrier) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// fail ends the carrier; the conversation goes on with the next.
func (n *carrier) fail(err error) {
	n.once.Do(func() {
		n.err = err
		close(n.dead)
		if !n.shared {
			n.wire.rw.Close()
		}
	})
}

// lose ends the carrier and lets go of it.
func (n *carrier) lose(err error) {
	present := n.c.detach(n)
	n.fail(err)
	if present && n.c.lost != nil {
		n.c.lost()
	}
}

// watch looks now and then whether the other end still speaks, and lets a host speak.
func (n *carrier) watch() {
	tick := time.NewTicker(n.silent / 3)
	defer tick.Stop()
	for {
		select {
		case <-n.dead:
			return
		case <-tick.C:
		}
		if time.Since(epoch)-time.Duration(n.heard.Load()) > n.silent {
			n.lose(errSilent)
			return
		}
		if n.pings {
			n.pingDue.Store(true)
			n.poke()
		}
	}
}

// write is the carrier's writer.
func (n *carrier) write() {
	defer close(n.written)
	var scratch []byte
	var batch [][]byte
	for {
		var bye bool
		var file *os.File
		batch, scratch, file, bye = n.next(batch[:0], scratch)
		if len(batch) == 0 && !bye {
			select {
			case <-n.wake:
			case <-n.dead:
				return
			}
			continue
		}
		if err := n.flush(batch, file); err != nil {
			n.lose(err)
			return
		}
		if bye {
			return
		}
	}
}

// next takes what is to be written now, with at most one file. Small frames are copied together into scratch.
func (n *carrier) next(batch [][]byte, scratch []byte) ([][]byte, []byte, *os.File, bool) {
	c := n.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.carrier != n {
		return batch, scratch, nil, false
	}
	scratch = scratch[:0]
	first := c.sent
	if c.ackDue {
		scratch = frame.Append(scratch, frame.Frame{Type: typeAck, Payload: binary.BigEndian.AppendUint32(nil, c.expect)}, n.check)
	}
	if c.pongDue {
		scratch = frame.Append(scratch, frame.Frame{Type: typePong}, n.check)
	}
	if n.pingDue.Swap(false) {
		scratch = frame.Append(scratch, frame.Frame{Type: typePing}, n.check)
	}
	c.ackDue, c.pongDue = false, false
	total := len(scratch)
	var file *os.File
	for i := c.sent; i < len(c.out) && total < batchBytes && i-c.sent < batchFrames; i++ {
		if f := c.out[i].file; f != nil && n.passes {
			if file != nil {
				break
			}
			file = f.file
		}
		total += len(c.out[i].buf)
	}
	if total <= coalesce {
		for ; c.sent < len(c.out) && len(scratch) < total; c.sent++ {
			scratch = append(scratch, c.out[c.sent].buf...)
		}
	}
	if len(scratch) > 0 {
		batch = append(batch, scratch)
	}
	if total > coalesce {
		for total -= len(scratch); total > 0; c.sent++ {
			batch = append(batch, c.out[c.sent].buf)
			total -= len(c.out[c.sent].buf)
		}
	}
	c.writing = c.sent - first
	bye := c.byeDue && c.sent == len(c.out)
	if bye {
		batch = append(batch, frame.Append(nil, frame.Frame{Type: typeBye}, n.check))
	}
	return batch, scratch, file, bye
}

func (n *carrier) flush(batch [][]byte, file *os.File) error {
	n.wire.mu.Lock()
	defer n.wire.mu.Unlock()
	if file != nil {
		// With the first byte: it is there before the frame that it belongs to.
		if err := passFile(n.wire.rw, batch[0][:1], file); err != nil {
			return err
		}
		batch[0] = batch[0][1:]
	}
	if len(batch) == 1 {
		_, err := n.wire.rw.Write(batch[0])
		return err
	}
	bufs := net.Buffers(batch)
	_, err := bufs.WriteTo(n.wire.rw)
	return err
}
