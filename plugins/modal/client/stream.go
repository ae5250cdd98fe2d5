// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modal-labs/modal-client/go"
)

const (
	// maxPending is how much input waits for the vendor; more blocks the writer.
	maxPending = 4 << 20
	// maxWrite is what one call carries.
	maxWrite = 1 << 20
	// lastWords bounds the wait for how an exec ended, and what it printed as errors.
	lastWords = 5 * time.Second
)

// ExitError is what reading from a [Stream] gives when its exec has ended.
type ExitError struct {
	Code   int
	Stderr string
}

// Error tells the code and what was printed.
func (e *ExitError) Error() string {
	return fmt.Sprintf("the exec ended with %d: %s", e.Code, e.Stderr)
}

// Stream is the standard input and output of an exec. What is written goes to the vendor as it can: one call carries
// everything that came while the one before was under way.
type Stream struct {
	p *modal.ContainerProcess

	mu      sync.Mutex
	pending []byte        // guarded by mu
	err     error         // guarded by mu; why nothing can be written any more
	more    chan struct{} // has one element when pending was filled
	room    chan struct{} // has one element when pending was emptied
	closed  sync.Once
	over    sync.Once
	exit    error // how the exec ended; read after over
}

// Dial starts an exec and gives its streams. ctx bounds the start alone; it goes on until Close.
func Dial(ctx context.Context, sb *modal.Sandbox, argv []string) (*Stream, error) {
	p, err := sb.Exec(ctx, argv, nil)
	if err != nil {
		return nil, err
	}
	s := &Stream{p: p, more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	go s.send()
	return s, nil
}

func (s *Stream) send() {
	for range s.more {
		for {
			s.mu.Lock()
			n := min(len(s.pending), maxWrite)
			b := s.pending[:n:n]
			if s.pending = s.pending[n:]; len(s.pending) == 0 {
				s.pending = nil
			}
			s.mu.Unlock()
			if n == 0 {
				break
			}
			select {
			case s.room <- struct{}{}:
			default:
			}
			if _, err := s.p.Stdin.Write(b); err != nil {
				s.fail(err)
				if KindOf(err) != Finished { // else reading tells how it ended
					_ = s.p.Stdout.Close() // the reader is told why
				}
				return
			}
		}
	}
	// The exec may have ended: then there is nothing to close.
	_ = s.p.Stdin.Close()
}

func (s *Stream) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	select {
	case s.room <- struct{}{}:
	default:
	}
}

// Write takes input. An error is that of an earlier part.
func (s *Stream) Write(p []byte) (int, error) {
	for {
		s.mu.Lock()
		if s.err != nil {
			defer s.mu.Unlock()
			return 0, s.err
		}
		if len(s.pending) == 0 || len(s.pending)+len(p) <= maxPending {
			s.pending = append(s.pending, p...)
			select {
			case s.more <- struct{}{}:
			default:
			}
			s.mu.Unlock()
			return len(p), nil
		}
		s.mu.Unlock()
		<-s.room
	}
}

// Read gives output. At its end it gives an *ExitError.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.p.Stdout.Read(p)
	if errors.Is(err, io.EOF) {
		s.over.Do(func() { s.exit = s.ended() })
		return n, s.exit
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err != nil && !errors.Is(s.err, io.ErrClosedPipe) {
			err = s.err
		}
	}
	return n, err
}

func (s *Stream) ended() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), lastWords, errors.New("it does not say how it ended"))
	defer cancel()
	code, err := s.p.Wait(ctx, nil)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.p.Stderr.Close() }) // then its words are missing
	defer stop()
	b, _ := io.ReadAll(io.LimitReader(s.p.Stderr, 4<<10))
	return &ExitError{Code: code, Stderr: string(b)}
}

// CloseWrite ends the input: the exec sees its end after what was written before.
func (s *Stream) CloseWrite() {
	s.closed.Do(func() {
		s.fail(io.ErrClosedPipe)
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.more)
	})
}

// Close ends reading and writing.
func (s *Stream) Close() error {
	s.CloseWrite()
	return s.p.Stdout.Close()
}
