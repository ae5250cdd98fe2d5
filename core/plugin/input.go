// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"io"
	"sync"
	"time"
)

const (
	inputChunk = 32 << 10
	// What a process was given is taken as delivered when it is no more than a pipe holds and older than this.
	inputSettled = time.Second
	pipeBytes    = 64 << 10
)

// input gives one reader to several lives of a driver, one after the other, without losing what a dead one did not
// take.
type input struct {
	src    io.Reader
	chunks chan []byte
	done   chan struct{} // closed when the command is over
	start  sync.Once

	mu     sync.Mutex
	rest   []byte    // guarded by mu; taken from src, not yet handed over
	err    error     // guarded by mu; the end of src
	handed uint64    // guarded by mu
	last   time.Time // guarded by mu; of the last byte handed over
}

func newInput(src io.Reader) *input {
	return &input{src: src, chunks: make(chan []byte), done: make(chan struct{})}
}

// pump reads ahead by one chunk. It ends with the command, or with the Read that does not return.
func (in *input) pump() {
	for {
		buf := make([]byte, inputChunk)
		n, err := in.src.Read(buf)
		if n > 0 {
			select {
			case in.chunks <- buf[:n]:
			case <-in.done:
				return
			}
		}
		if err != nil {
			in.mu.Lock()
			in.err = err
			in.mu.Unlock()
			close(in.chunks)
			return
		}
	}
}

// view is the reader for one life.
func (in *input) view() *inputView {
	in.start.Do(func() { go in.pump() })
	return &inputView{in: in, closed: make(chan struct{})}
}

// doubtful reports whether some of what was handed over may not have reached the process.
func (in *input) doubtful() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.handed > pipeBytes || in.handed > 0 && time.Since(in.last) < inputSettled
}

type inputView struct {
	in     *input
	closed chan struct{}
}

var errViewClosed = errors.New("the driver that read this input is gone")

// Read gives the next bytes, unless the view is closed: then they are left to the next view.
func (v *inputView) Read(p []byte) (int, error) {
	for {
		if n, err, ok := v.take(p); ok {
			return n, err
		}
		select {
		case chunk, ok := <-v.in.chunks:
			if ok {
				v.in.mu.Lock()
				v.in.rest = chunk
				v.in.mu.Unlock()
			}
		case <-v.closed:
			return 0, errViewClosed
		}
	}
}

func (v *inputView) take(p []byte) (n int, err error, ok bool) { //nolint:revive // the error is the reader's, not of take
	v.in.mu.Lock()
	defer v.in.mu.Unlock()
	select {
	case <-v.closed:
		return 0, errViewClosed, true
	default:
	}
	if len(v.in.rest) > 0 {
		n = copy(p, v.in.rest)
		v.in.rest = v.in.rest[n:]
		v.in.handed += uint64(n)
		v.in.last = time.Now()
		return n, nil, true
	}
	return 0, v.in.err, v.in.err != nil
}

// close makes every Read of this view end.
func (v *inputView) close() {
	v.in.mu.Lock()
	defer v.in.mu.Unlock()
	close(v.closed)
}
