// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/sdk/errs"
)

// Sender sends bytes as messages of a stream. Send sends one message; Header makes the message for a payload that
// begins at an offset. The zero value of the other fields is ready.
type Sender struct {
	Send   func(*Message) error
	Header func(offset uint64) proto.Message
	// Offset is that of the next byte.
	Offset uint64

	large bool // more than a small chunk was sent: the next are the largest
	buf   *[]byte
	used  int
}

func (s *Sender) buffer() {
	if s.buf != nil {
		return
	}
	size := InteractiveChunk
	if s.large {
		size = BulkChunk
	}
	s.buf, s.used = Pool().Get(size), 0
}

// Write sends p in full chunks and keeps the remainder until [Sender.Flush].
func (s *Sender) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		s.buffer()
		n := copy((*s.buf)[s.used:], p[done:])
		s.used += n
		done += n
		if err := s.sendIfFull(); err != nil {
			return done, err
		}
	}
	return done, nil
}

// ReadFrom sends all of r. It does not flush.
func (s *Sender) ReadFrom(r io.Reader) (int64, error) {
	var total int64
	for {
		s.buffer()
		n, err := r.Read((*s.buf)[s.used:])
		s.used += n
		total += int64(n)
		if serr := s.sendIfFull(); serr != nil {
			return total, serr
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return total, err
		}
	}
}

func (s *Sender) sendIfFull() error {
	if s.used < len(*s.buf) {
		return nil
	}
	s.large = true
	return s.Flush()
}

// Flush sends what is kept.
func (s *Sender) Flush() error {
	if s.buf == nil || s.used == 0 {
		return nil
	}
	*s.buf = (*s.buf)[:s.used]
	m := Message{Header: s.Header(s.Offset), Data: mem.BufferSlice{mem.NewBuffer(s.buf, Pool())}}
	s.Offset += uint64(s.used)
	s.buf, s.used = nil, 0
	return s.Send(&m)
}

// Close forgets what was not sent and gives its buffer back.
func (s *Sender) Close() {
	if s.buf != nil {
		Pool().Put(s.buf)
		s.buf, s.used = nil, 0
	}
}

// Receiver reads the bytes of a stream's messages. Recv receives one message; io.EOF from it is the end. Not for use by
// several goroutines.
type Receiver struct {
	Recv func(*Message) error
	// Message is received into. Its Header must be one with an offset. What it holds at first is read first.
	Message Message
	// Offset is that of the next byte; another one on the wire is an error.
	Offset uint64

	ready bool // Message's payload was checked
	err   error

	mu      sync.Mutex
	reading bool // guarded by mu
	closed  bool // guarded by mu
}

// begin says that a read is under way, which Close then leaves the buffers to.
func (r *Receiver) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return io.ErrClosedPipe
	}
	r.reading = true
	return nil
}

func (r *Receiver) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = false
	if r.closed && r.err == nil {
		r.fail(io.ErrClosedPipe)
	}
}

// Preload says that Message holds the first chunk already.
func (r *Receiver) Preload() error {
	r.check()
	return r.err
}

func (r *Receiver) check() {
	r.ready = true
	h, ok := r.Message.Header.(interface{ GetOffset() uint64 })
	if ok && r.Message.Len() > 0 && h.GetOffset() != r.Offset {
		r.fail(errs.New(errs.Internal, "stream has a hole: got offset %d, not %d", h.GetOffset(), r.Offset))
	}
}

func (r *Receiver) fail(err error) {
	r.Message.Free()
	r.err = err
}

// next makes sure that there is a payload to read, or gives the error that ended the stream.
func (r *Receiver) next() error {
	for r.err == nil {
		if r.ready && len(r.Message.Data) > 0 {
			return nil
		}
		r.ready = false
		if err := r.Recv(&r.Message); err != nil {
			r.fail(err)
			break
		}
		r.check()
	}
	return r.err
}

// Read reads as io.Reader says.
func (r *Receiver) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := r.begin(); err != nil {
		return 0, err
	}
	defer r.end()
	if err := r.next(); err != nil {
		return 0, err
	}
	n := 0
	for n < len(p) && len(r.Message.Data) > 0 {
		k, left := mem.ReadUnsafe(p[n:], r.Message.Data[0])
		n += k
		if left == nil || left.Len() == 0 {
			r.Message.Data = r.Message.Data[1:]
		} else {
			r.Message.Data[0] = left
		}
	}
	r.Offset += uint64(n)
	return n, nil
}

// WriteTo writes everything that is left without copying it first.
func (r *Receiver) WriteTo(w io.Writer) (int64, error) {
	if err := r.begin(); err != nil {
		return 0, err
	}
	defer r.end()
	var total int64
	for {
		if err := r.next(); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return total, err
		}
		for len(r.Message.Data) > 0 {
			b := r.Message.Data[0]
			n, err := w.Write(b.ReadOnlyData())
			total += int64(n)
			r.Offset += uint64(n)
			if err != nil {
				r.fail(err)
				return total, err
			}
			b.Free()
			r.Message.Data = r.Message.Data[1:]
		}
	}
}

// Close gives the buffers back that were not read. A read that goes on in another goroutine gives them back at its end.
func (r *Receiver) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if !r.reading && r.err == nil {
		r.fail(io.ErrClosedPipe)
	}
}
