// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc/mem"
)

// stdin carries standard input from a client's stream to the driver. It holds one message: the next one waits in the
// transport, which makes the client wait.
type stdin struct {
	mu      sync.Mutex
	changed *sync.Cond
	data    mem.BufferSlice // guarded by mu
	eof     bool            // guarded by mu
}

func newStdin() *stdin {
	p := &stdin{}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// push takes data over and waits until the reader has taken what came before. It gives up when ctx ends.
func (p *stdin) push(ctx context.Context, data mem.BufferSlice) {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.data) > 0 && !p.eof && ctx.Err() == nil {
		p.changed.Wait()
	}
	if p.eof || ctx.Err() != nil {
		data.Free()
		return
	}
	p.data = data
	p.changed.Broadcast()
}

// close says that there is no more; what was pushed is still read.
func (p *stdin) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eof = true
	p.changed.Broadcast()
}

// next waits for a buffer and takes it; nil at the end.
func (p *stdin) next() mem.Buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.data) == 0 {
		if p.eof {
			return nil
		}
		p.changed.Wait()
	}
	b := p.data[0]
	p.data = p.data[1:]
	if len(p.data) == 0 {
		p.changed.Broadcast()
	}
	return b
}

// Read reads as io.Reader says.
func (p *stdin) Read(to []byte) (int, error) {
	if len(to) == 0 {
		return 0, nil
	}
	for {
		b := p.next()
		if b == nil {
			return 0, io.EOF
		}
		n, left := mem.ReadUnsafe(to, b)
		if left != nil && left.Len() > 0 {
			p.mu.Lock()
			p.data = append(mem.BufferSlice{left}, p.data...)
			p.mu.Unlock()
		}
		if n > 0 {
			return n, nil
		}
	}
}

// WriteTo writes everything until the end without copying it first.
func (p *stdin) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		b := p.next()
		if b == nil {
			return total, nil
		}
		n, err := w.Write(b.ReadOnlyData())
		b.Free()
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
}
