// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"encoding/binary"
	"os"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/frame"
)

// Stream is one request with what belongs to it, in both directions.
type Stream struct {
	c      *conversation
	id     uint32
	ctx    context.Context //nolint:containedctx // the life of the stream
	cancel context.CancelCauseFunc

	creditCh chan struct{} // there is credit
	inCh     chan struct{} // there is a message

	// The rest is guarded by c.mu.
	credit  int
	in      []Message
	held    int // bytes in messages that were not released
	taken   int // bytes released and not yet granted again
	ended   bool
	over    bool // out of the conversation
	closing bool // our End is sent
}

// Kind says what a message is.
type Kind uint8

// The kinds of messages.
const (
	Data    Kind = iota + 1
	Control      // a small message of its own meaning
	End          // the last: a result, or the end of input
)

// Message is one message from the other end.
type Message struct {
	Kind Kind
	Sub  uint8 // what kind of data; the sender's choice
	Body []byte
	// File came with a Control message. It is nil when none was sent, or none could be taken. Release closes it; whoever
	// wants it sets the field to nil. What it is has to be looked at first: the sender chose it.
	File *os.File
	s    *Stream
	buf  []byte
}

// Release gives the message's room back: to the pool, and to the sender as credit. Body is not to be used any more.
func (m *Message) Release() {
	if m.s == nil {
		return
	}
	s, n := m.s, len(m.Body)
	s.c.recycle(m.buf)
	discard(m.File)
	m.File = nil
	m.s, m.Body, m.buf = nil, nil, nil
	if n > 0 {
		s.release(n)
	}
}

func (c *conversation) newStreamLocked(id uint32) *Stream {
	s := &Stream{c: c, id: id, credit: window, creditCh: make(chan struct{}, 1), inCh: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	c.streams[id] = s
	return s
}

// open makes a stream with its opening payload.
func (c *conversation) open(payload []byte) (*Stream, error) {
	if len(payload) > frame.MaxPayload {
		return nil, errs.New(errs.InvalidArgument, "the request is larger than %d bytes", frame.MaxPayload)
	}
	buf := c.framed(payload)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.lastID++
	s := c.newStreamLocked(c.lastID)
	c.pushLocked(typeOpen, s.id, buf)
	return s, nil
}

// Context ends when the stream is over: [ErrCanceled] when the host wants it stopped, [ErrDetached] when the host is gone.
func (s *Stream) Context() context.Context { return s.ctx }

func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (s *Stream) grantLocked(n int) {
	s.credit = min(s.credit+n, window)
	if s.credit > 0 {
		notify(s.creditCh)
	}
}

// takeLocked queues what has arrived.
func (s *Stream) takeLocked(f frame.Frame, file *os.File) error {
	if s.ended {
		return errProtocol
	}
	m := Message{Sub: f.Flags, s: s, File: file}
	switch f.Type {
	case typeData:
		m.Kind = Data
	case typeControl, typeFile:
		m.Kind = Control
	default:
		m.Kind = End
		s.ended = true
	}
	// A sender with any credit left may send one whole message.
	if m.Kind != End && s.held >= window+frame.MaxPayload {
		return errProtocol
	}
	if f.Owned {
		m.buf, m.Body = f.Payload, f.Payload
	} else {
		m.buf = s.c.buffer(len(f.Payload))
		m.Body = m.buf[:copy(m.buf[:len(f.Payload)], f.Payload)]
	}
	if m.Kind != End {
		s.held += len(m.Body)
	}
	s.in = append(s.in, m)
	notify(s.inCh)
	return nil
}

func (s *Stream) release(n int) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s.held -= n
	s.taken += n
	if s.taken < window/2 || s.over || s.ended || c.err != nil {
		return
	}
	buf := c.buffer(4)
	binary.BigEndian.PutUint32(buf[frame.HeaderSize:], uint32(s.taken))
	s.taken = 0
	c.pushLocked(typeCredit, s.id, buf)
}

// Recv gives the next message. After End there is none: it waits for ctx.
func (s *Stream) Recv(ctx context.Context) (Message, error) {
	for {
		s.c.mu.Lock()
		if len(s.in) > 0 {
			m := s.in[0]
			s.in[0] = Message{}
			s.in = s.in[1:]
			if len(s.in) == 0 {
				s.in = nil
			}
			s.c.mu.Unlock()
			return m, nil
		}
		s.c.mu.Unlock()
		select {
		case <-s.inCh:
		case <-ctx.Done():
			return Message{}, context.Cause(ctx)
		case <-s.ctx.Done():
			return Message{}, context.Cause(s.ctx)
		}
	}
}

// WaitCredit waits until something may be sent.
func (s *Stream) WaitCredit(ctx context.Context) error {
	for {
		s.c.mu.Lock()
		credit := s.credit
		s.c.mu.Unlock()
		if credit > 0 {
			return nil
		}
		select {
		case <-s.creditCh:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// Buffer gives room for n ≤ Chunk bytes of data to be passed to SendBuffer.
func (s *Stream) Buffer(n int) *Buffer {
	return &Buffer{buf: s.c.buffer(n)}
}

// Buffer is data to be sent without another copy.
type Buffer struct{ buf []byte }

// Bytes is the room for data.
func (b *Buffer) Bytes() []byte { return b.buf[frame.HeaderSize:] }

// Truncate keeps the first n bytes.
func (b *Buffer) Truncate(n int) { b.buf = b.buf[:frame.HeaderSize+n] }

// Recycle gives up a buffer that was not sent.
func (s *Stream) Recycle(b *Buffer) { s.c.recycle(b.buf) }

// SendBuffer sends a buffer as data; it belongs to the stream afterwards, also after an error.
func (s *Stream) SendBuffer(ctx context.Context, sub uint8, b *Buffer) error {
	return s.send(ctx, typeData, sub, b.buf, nil)
}

// Send sends data of at most Chunk bytes.
func (s *Stream) Send(ctx context.Context, sub uint8, p []byte) error {
	return s.send(ctx, typeData, sub, s.c.framed(p), nil)
}

// SendControl sends a control message.
func (s *Stream) SendControl(ctx context.Context, sub uint8, p []byte) error {
	return s.send(ctx, typeControl, sub, s.c.framed(p), nil)
}

// PassesFiles tells whether SendFile can give the host a file: the connection is a unix socket and the host asked for it.
func (s *Stream) PassesFiles() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.carrier != nil && s.c.carrier.passes
}

// SendFile sends a control message with an open file, which belongs to the stream afterwards, also after an error. After a
// reconnection of another kind the message may arrive without it. Gone is closed when the stream has closed the file,
// which it does when the host has it, or the conversation has ended.
func (s *Stream) SendFile(ctx context.Context, sub uint8, p []byte, file *os.File) (gone <-chan struct{}, err error) {
	f := &passing{file, make(chan struct{})}
	return f.gone, s.send(ctx, typeFile, sub, s.c.framed(p), f)
}

// TakesFiles tells whether this end, the host's, could take a file now.
func (s *Stream) TakesFiles() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.carrier != nil && s.c.carrier.files != nil
}

func (s *Stream) send(ctx context.Context, t frame.Type, sub uint8, buf []byte, file *passing) error {
	n := len(buf) - frame.HeaderSize
	if err := s.WaitCredit(ctx); err != nil {
		s.c.recycle(buf)
		file.discard()
		return err
	}
	if err := s.room(ctx, n); err != nil {
		s.c.recycle(buf)
		file.discard()
		return err
	}
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || s.over || s.closing {
		c.space.Release(int64(n))
		c.recycle(buf)
		file.discard()
		if c.err != nil {
			return c.err
		}
		return errProtocol
	}
	s.credit -= n
	c.pushFileLocked(t, sub, s.id, buf, n, file)
	return nil
}

// room waits for its part of what may be unacknowledged.
func (s *Stream) room(ctx context.Context, n int) error {
	if s.c.space.TryAcquire(int64(n)) {
		return nil
	}
	both, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	defer stop()
	if err := s.c.space.Acquire(both, int64(n)); err != nil {
		return context.Cause(both)
	}
	return nil
}

// EndInput says that nothing more is sent; what comes back is still received.
func (s *Stream) EndInput() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.closing || s.over || s.c.err != nil {
		return
	}
	s.closing = true
	s.c.pushLocked(typeEnd, s.id, s.c.buffer(0))
}

// Cancel asks the guest to stop. Its End still comes.
func (s *Stream) Cancel() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.cancelLocked()
}

func (s *Stream) cancelLocked() {
	if !s.over && !s.ended && s.c.err == nil {
		s.c.pushLocked(typeCancel, s.id, s.c.buffer(0))
	}
}

// Finish ends a stream of the guest with its result.
func (s *Stream) Finish(result []byte) {
	if len(result) > frame.MaxPayload {
		result = []byte(`{"error":{"code":"internal","message":"the answer is too large"}}`)
	}
	buf := s.c.framed(result)
	s.c.mu.Lock()
	if !s.over && s.c.err == nil {
		s.closing = true
		s.c.pushLocked(typeEnd, s.id, buf)
	}
	s.dropLocked()
	s.c.mu.Unlock()
	s.cancel(context.Canceled)
}

// Close forgets a stream of the host. A guest that has not ended it is asked to stop.
func (s *Stream) Close() {
	s.c.mu.Lock()
	s.cancelLocked()
	s.dropLocked()
	s.c.mu.Unlock()
	s.cancel(context.Canceled)
}

func (s *Stream) dropLocked() {
	s.over = true
	delete(s.c.streams, s.id)
	s.discardLocked()
}

// discardLocked forgets what was not received.
func (s *Stream) discardLocked() {
	for i := range s.in {
		s.c.recycle(s.in[i].buf)
		discard(s.in[i].File)
	}
	s.in = nil
}

// Ended tells whether the other end's last message has arrived.
func (s *Stream) Ended() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.ended
}
