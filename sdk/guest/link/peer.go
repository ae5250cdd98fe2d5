// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/frame"
)

const (
	firstBackoff = 5 * time.Millisecond
	maxBackoff   = time.Second
)

// Options make a Peer.
type Options struct {
	// Dial opens a stream to the guest. An error with the code SandboxGone, AuthFailed or PermissionDenied is final.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
	Key  []byte
	// ReconnectTimeout is how long a lost connection is dialled for until the conversation ends; 0 = 30 s.
	ReconnectTimeout time.Duration
	// Silence reads out of what the guest says about itself how long it bears silence, see AcceptorOptions; 0 or a nil
	// Silence = MaxSilence.
	Silence func(info []byte) time.Duration
	Log     func(msg string, args ...any)
}

// Peer is the host's end.
type Peer struct {
	opts Options
	c    *conversation
	info []byte
}

// Connect dials until a guest has proved itself, ctx has ended or an error is final.
func Connect(ctx context.Context, opts Options) (*Peer, error) {
	if len(opts.Key) < minKey {
		return nil, errs.New(errs.InvalidArgument, "the session's key has %d bytes, fewer than %d", len(opts.Key), minKey)
	}
	if opts.ReconnectTimeout == 0 {
		opts.ReconnectTimeout = 30 * time.Second
	}
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	var id [idSize]byte
	rand.Read(id[:]) // never fails
	p := &Peer{opts: opts, c: newConversation(id, seedOf(opts.Key, id), nil)}
	n, dec, info, err := p.dial(ctx, false)
	if err != nil {
		return nil, errs.Wrap(errs.ExecTransport, "guest.connect", err)
	}
	p.info = info
	go p.run(n, dec) //nolint:gosec // it outlives the request
	return p, nil
}

// Info is what the guest said about itself.
func (p *Peer) Info() []byte { return p.info }

// Open sends a request.
func (p *Peer) Open(request []byte) (*Stream, error) { return p.c.open(request) }

// Done is closed when the conversation has ended.
func (p *Peer) Done() <-chan struct{} { return p.c.done }

// Err says why the conversation ended; nil before.
func (p *Peer) Err() error { return p.c.reason() }

// Close ends the conversation after what was queued has been written, or ctx has ended.
func (p *Peer) Close(ctx context.Context) { p.c.goodbye(ctx) }

// run reads one connection after the other.
func (p *Peer) run(n *carrier, dec *frame.Decoder) {
	for {
		err := p.read(n, dec)
		n.files.close()
		if errors.Is(err, errProtocol) {
			p.c.end(errs.Wrap(errs.ExecTransport, "guest", err))
		}
		n.lose(err)
		<-n.written
		if p.c.leaving() {
			p.c.end(ErrDetached)
			return
		}
		p.opts.Log("connection to the guest lost", "error", n.err)

		ctx, cancel := context.WithTimeoutCause(context.Background(), p.opts.ReconnectTimeout,
			errs.New(errs.ExecTransport, "the connection to the guest was lost and could not be made again within %s", p.opts.ReconnectTimeout))
		go func() {
			select {
			case <-p.c.done:
				cancel()
			case <-ctx.Done():
			}
		}()
		n, dec, _, err = p.dial(ctx, true)
		cancel()
		if err != nil {
			p.c.end(errs.Wrap(errs.ExecTransport, "guest.reconnect", err))
			return
		}
		p.opts.Log("connection to the guest made again")
	}
}

func (p *Peer) read(n *carrier, dec *frame.Decoder) error {
	for {
		f, err := dec.Next()
		if err != nil {
			return err
		}
		n.hear()
		if f.Type < frame.FirstSealed {
			continue
		}
		if err := p.c.receive(n, f); err != nil {
			return err
		}
	}
}

// dial makes a connection and puts it under the conversation.
func (p *Peer) dial(ctx context.Context, resume bool) (*carrier, *frame.Decoder, []byte, error) {
	for wait := firstBackoff; ; wait = min(2*wait, maxBackoff) {
		n, dec, info, err := p.try(ctx, resume)
		if err == nil {
			return n, dec, info, nil
		}
		if ctx.Err() != nil {
			return nil, nil, nil, fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		}
		if final(err) {
			return nil, nil, nil, err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, nil, nil, fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		}
	}
}

// final tells whether dialling again is of no use.
func final(err error) bool {
	codes := []errs.Code{errs.SandboxGone, errs.AuthFailed, errs.PermissionDenied, errs.DriverIncompatible, errs.ProcessUnknown}
	return slices.Contains(codes, errs.CodeOf(err)) || errors.Is(err, errProtocol)
}

func (p *Peer) try(ctx context.Context, resume bool) (*carrier, *frame.Decoder, []byte, error) {
	rw, err := p.opts.Dial(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTimeout,
		errs.New(errs.ExecTransport, "the guest did not answer within %s", handshakeTimeout))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { rw.Close() })
	defer stop()

	h := &hello{min: minVersion, max: maxVersion, id: p.c.id, resume: resume}
	rand.Read(h.nonce[:]) // never fails
	expect, turn := p.c.begin()
	h.expect = expect
	w := newWire(rw)
	files := newTaker(rw)
	h.files, h.plain = files != nil, local(rw)
	var from io.Reader = rw
	if files != nil {
		from = files
	}
	dec := frame.NewDecoder(from)
	g, err := greet(w, dec, p.opts.Key, h)
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		}
		rw.Close()
		files.close()
		return nil, nil, nil, err
	}
	n := newCarrier(p.c, w, false, true, g.plain)
	if p.opts.Silence != nil {
		if d := p.opts.Silence(g.info); d > 0 {
			n.silent = min(d, MaxSilence)
		}
	}
	dec.SetCheck(n.check)
	dec.Large = p.c.large
	n.files = files
	if err := p.c.attach(n, g.got, turn); err != nil {
		n.fail(err)
		files.close()
		return nil, nil, nil, err
	}
	return n, dec, g.info, nil
}
