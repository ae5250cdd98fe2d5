// SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/berth-dev/berth/sdk/guest/frame"
)

// Reasons for which a conversation or a stream ends.
var (
	// ErrDetached ends the streams of a guest when its host said goodbye or another host took over.
	ErrDetached = errors.New("the host detached")
	// ErrCanceled ends a stream of a guest when the host wants it stopped.
	ErrCanceled = errors.New("canceled by the host")

	errLost     = errors.New("frames were lost on the way")
	errProtocol = errors.New("the other end broke the protocol")
	errSilent   = errors.New("the other end was silent for too long")
	errReplaced = errors.New("a newer connection took over")
)

// packet is a numbered frame, kept until it is acknowledged.
type packet struct {
	buf  []byte // sealed
	data int    // of maxUnacknowledged
	file *passing
}

// conversation is one end of it.
type conversation struct {
	id     [idSize]byte
	seed   uint32
	accept func(*Stream, []byte) // takes a new stream and its opening payload; nil on the host
	lost   func()                // called after the present carrier was lost; nil on the host

	space *semaphore.Weighted // what is left of maxUnacknowledged
	pool  sync.Pool           // of *[]byte, with room for a header and a Chunk
	done  chan struct{}

	mu      sync.Mutex  // guards what follows and the streams; never held while something waits
	err     error       // why the conversation ended
	check   frame.Check // of the packets out
	out     []packet    // sent or to be sent, oldest first; out[0] has number next-len(out)
	sent    int         // how many of out the present carrier has written
	writing int         // how many of those sent the writer may still be reading
	next    uint32      // number of the next packet out
	expect  uint32      // number of the next packet in
	inBytes int         // received since the last acknowledgement
	inCount int
	ackDue  bool
	pongDue bool
	byeDue  bool
	carrier *carrier // nil between connections
	turn    uint64   // of the newest connection that was begun
	streams map[uint32]*Stream
	lastID  uint32
}

func newConversation(id [idSize]byte, seed uint32, accept func(*Stream, []byte)) *conversation {
	return &conversation{
		id: id, seed: seed, accept: accept, check: frame.Check{Seed: seed},
		space:   semaphore.NewWeighted(maxUnacknowledged),
		done:    make(chan struct{}),
		streams: map[uint32]*Stream{},
	}
}

// end ends the conversation for good; the first reason stays.
func (c *conversation) end(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	close(c.done)
	streams := c.streams
	c.streams = map[uint32]*Stream{}
	carrier := c.carrier
	c.carrier = nil
	for i := range c.out {
		c.out[i].file.discard()
		c.out[i].file = nil
	}
	for _, s := range streams {
		s.discardLocked()
	}
	c.mu.Unlock()
	for _, s := range streams {
		s.cancel(err)
	}
	if carrier != nil {
		carrier.fail(err)
	}
}

// reason is why the conversation ended, nil while it goes on.
func (c *conversation) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// leaving tells whether the conversation has ended or its last word is said.
func (c *conversation) leaving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil || c.byeDue
}

// buffer gives room for a header and n bytes.
func (c *conversation) buffer(n int) []byte {
	if n < pooled {
		return make([]byte, frame.HeaderSize+n)
	}
	if n <= Chunk {
		if b, ok := c.pool.Get().(*[]byte); ok {
			return (*b)[:frame.HeaderSize+n]
		}
		return make([]byte, frame.HeaderSize+n, frame.HeaderSize+Chunk)
	}
	return make([]byte, frame.HeaderSize+n)
}

// framed copies a payload behind the room for its header.
func (c *conversation) framed(p []byte) []byte {
	buf := c.buffer(len(p))
	copy(buf[frame.HeaderSize:], p)
	return buf
}

// large gives room for a payload that is worth reading straight into it, see frame.Decoder.
func (c *conversation) large(n int) []byte {
	if n < pooled || n > Chunk {
		return nil
	}
	return c.buffer(n)[:n]
}

func (c *conversation) recycle(b []byte) {
	if cap(b) == frame.HeaderSize+Chunk {
		c.pool.Put(&b)
	}
}

// pushLocked numbers, seals and queues a frame whose payload is in buf after the header.
func (c *conversation) pushLocked(t frame.Type, stream uint32, buf []byte) {
	c.pushFileLocked(t, 0, stream, buf, 0, nil)
}

// pushFileLocked is pushLocked with a file, which the conversation closes.
func (c *conversation) pushFileLocked(t frame.Type, flags uint8, stream uint32, buf []byte, data int, file *passing) {
	frame.Seal(buf, frame.Frame{Type: t, Flags: flags, Stream: stream, Sequence: c.next}, c.check)
	c.next++
	c.out = append(c.out, packet{buf, data, file})
	if c.carrier != nil {
		c.carrier.poke()
	}
}

// acknowledgedLocked forgets the packets before number n. It gives how many these were: less than zero when they had been
// forgotten before, and an error when there are not as many.
func (c *conversation) acknowledgedLocked(n uint32) (int, error) {
	first := c.next - uint32(len(c.out))
	k := int(int32(n - first))
	switch {
	case k < 0:
		return k, nil
	case k > len(c.out):
		return k, errProtocol
	}
	data := 0
	for i := range c.out[:k] {
		data += c.out[i].data
		if i < c.sent-c.writing {
			c.recycle(c.out[i].buf)
		}
		c.out[i].file.discard()
		c.out[i] = packet{}
	}
	c.out = c.out[k:]
	if len(c.out) == 0 {
		c.out = nil // let go of the array that slid along
	}
	c.sent = max(c.sent-k, 0)
	if data > 0 {
		c.space.Release(int64(data))
	}
	return k, nil
}

// begin is called for each new connection before its handshake tells the other end what has been received: everything
// before expect. Only the newest connection may be attached.
func (c *conversation) begin() (expect uint32, turn uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn++
	return c.expect, c.turn
}

// attach goes on over a new carrier: the other end has everything before number got. It waits for the last carrier's
// writer, since that may still be reading buffers. A connection whose handshake was overtaken by that of a newer one is
// errReplaced: what it was told is out of date.
func (c *conversation) attach(n *carrier, got uint32, turn uint64) error {
	c.mu.Lock()
	if c.turn != turn {
		c.mu.Unlock()
		return errReplaced
	}
	old := c.carrier
	c.carrier = nil
	c.mu.Unlock()
	if old != nil {
		old.fail(errReplaced)
		<-old.written
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if c.turn != turn {
		return errReplaced
	}
	if k, err := c.acknowledgedLocked(got); err != nil || k < 0 {
		return errProtocol
	}
	c.sent, c.writing = 0, 0
	c.carrier = n
	if c.check != n.check {
		c.check = n.check
		for i := range c.out {
			frame.Reseal(c.out[i].buf, c.check)
		}
	}
	go n.write()
	go n.watch()
	return nil
}

// detach forgets a carrier that failed; false when another has taken its place.
func (c *conversation) detach(n *carrier) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.carrier != n {
		return false
	}
	c.carrier = nil
	return true
}

// receive takes a frame from the present carrier. An error ends the carrier, and errProtocol the conversation too.
func (c *conversation) receive(n *carrier, f frame.Frame) error {
	var opened, canceled *Stream
	var opening []byte
	bye := false
	var file *os.File
	if f.Type == typeFile {
		file = n.files.take()
		defer func() { discard(file) }() // unless a stream has taken it
	}

	if f.Owned {
		defer func() { c.recycle(f.Payload) }() // the same
	}
	c.mu.Lock()
	err := func() error {
		if c.carrier != n {
			return errReplaced
		}
		if f.Type < typeOpen {
			switch f.Type {
			case typeAck:
				if len(f.Payload) != 4 {
					return errProtocol
				}
				_, err := c.acknowledgedLocked(binary.BigEndian.Uint32(f.Payload))
				return err
			case typePing:
				c.pongDue = true
				c.pokeLocked()
			case typeBye:
				bye = true
			}
			return nil
		}
		switch d := int32(f.Sequence - c.expect); {
		case d < 0:
			return nil // sent again, but it had arrived
		case d > 0:
			return errLost
		}
		c.expect++
		c.inCount++
		c.inBytes += len(f.Payload)
		// The other end holds a file open until it is acknowledged.
		if c.inCount >= ackFrames || c.inBytes >= ackBytes || f.Type == typeFile {
			c.ackDue, c.inCount, c.inBytes = true, 0, 0
			c.pokeLocked()
		}
		s := c.streams[f.Stream]
		if f.Type == typeOpen {
			if s != nil || c.accept == nil {
				return errProtocol
			}
			opened, opening = c.newStreamLocked(f.Stream), append([]byte(nil), f.Payload...)
			return nil
		}
		if s == nil {
			return nil // of a stream that is over
		}
		switch f.Type { //nolint:exhaustive // FirstSealed is a bound
		case typeCredit:
			if len(f.Payload) != 4 {
				return errProtocol
			}
			s.grantLocked(int(binary.BigEndian.Uint32(f.Payload)))
		case typeData, typeControl, typeEnd, typeFile:
			err := s.takeLocked(f, file)
			if err == nil {
				file = nil
				if f.Owned {
					f.Payload = nil
				}
			}
			return err
		case typeCancel:
			canceled = s
		}
		return nil
	}()
	tooMany := len(c.streams) > maxStreams
	c.mu.Unlock()

	switch {
	case err != nil:
		return err
	case bye:
		c.end(ErrDetached)
	case canceled != nil:
		canceled.cancel(ErrCanceled)
	case opened != nil && tooMany:
		opened.Finish([]byte(`{"error":{"code":"quota_exceeded","message":"too many requests at once"}}`))
	case opened != nil:
		go c.accept(opened, opening)
	}
	return nil
}

func (c *conversation) pokeLocked() {
	if c.carrier != nil {
		c.carrier.poke()
	}
}
