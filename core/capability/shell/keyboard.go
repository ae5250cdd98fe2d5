// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"io"
	"sync"
)

// keyboardBytes is how much may be typed ahead of a program that does not read.
const keyboardBytes = 1 << 20

// keyboard is what was typed and not read yet. Typing never waits for the program.
type keyboard struct {
	mu     sync.Mutex
	ready  *sync.Cond // there is something to read, or the end
	buf    []byte     // guarded by mu
	closed bool       // guarded by mu
}

func newKeyboard() *keyboard {
	k := &keyboard{}
	k.ready = sync.NewCond(&k.mu)
	return k
}

// typeIn takes all of s, or nothing when too much waits already.
func (k *keyboard) typeIn(s string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.buf)+len(s) > keyboardBytes {
		return false
	}
	k.buf = append(k.buf, s...)
	k.ready.Broadcast()
	return true
}

// Read waits for something that was typed, or for the end.
func (k *keyboard) Read(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.buf) == 0 && !k.closed {
		k.ready.Wait()
	}
	if k.closed {
		return 0, io.EOF
	}
	n := copy(p, k.buf)
	if k.buf = k.buf[n:]; len(k.buf) == 0 {
		k.buf = nil
	}
	return n, nil
}

// close ends a Read that waits.
func (k *keyboard) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	k.ready.Broadcast()
}
