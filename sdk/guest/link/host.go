// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"crypto/hmac"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/frame"
)

// Acceptor is the guest's end: it takes connections and has at most one conversation.
type Acceptor struct {
	opts AcceptorOptions

	mu       sync.Mutex
	current  *conversation // guarded by mu
	hellos   uint64        // guarded by mu; so many were answered
	admitted uint64        // guarded by mu; the newest of them that has proved itself
}

// AcceptorOptions make an Acceptor.
type AcceptorOptions struct {
	Key []byte
	// Info is what the guest says about itself when a host has proved that it knows the key.
	Info func() []byte
	// Handle serves one request; it calls Stream.Finish.
	Handle func(s *Stream, request []byte)
	// Knocked is called for each knock on a shared stream, with the name that it holds. It does not wait. nil = nobody.
	Knocked func(name string)
	// Attached is called, never twice at a time, when a host may have come or gone. It does not wait.
	Attached func(attached bool)
	// Silence is for how long a host may be silent until it is taken as gone, where a connection does not end with it: on a
	// shared stream, and with Carried on all; 0 = MaxSilence. Info has to tell the host.
	Silence time.Duration
	Carried bool
}

// NewAcceptor checks the options.
func NewAcceptor(opts AcceptorOptions) (*Acceptor, error) {
	if len(opts.Key) < minKey {
		return nil, errs.New(errs.InvalidArgument, "the session's key has %d bytes, fewer than %d", len(opts.Key), minKey)
	}
	return &Acceptor{opts: opts}, nil
}

// Knock is what a host sends for the guest to call it, at the socket of that name.
func Knock(name string) []byte {
	return frame.Append(nil, frame.Frame{Type: typeKnock, Payload: []byte(name)}, frame.Check{})
}

// pending is a handshake that waits for the host's proof.
type pending struct {
	hello     *hello
	raw       []byte // as received
	challenge []byte
	version   uint16
	number    uint64 // of the hello
}

// Serve speaks with whoever is at the other end of rw until the stream ends, which the error tells. A shared stream
// carries one connection after the other: it is read on after one is lost, until the next hello in it. Else rw is closed.
func (a *Acceptor) Serve(rw io.ReadWriteCloser, shared bool) error {
	w := newWire(rw)
	dec := frame.NewDecoder(rw)
	var carrier *carrier
	var wait *pending

	if !shared {
		defer rw.Close()
	}
	strangers := time.AfterFunc(handshakeTimeout, func() {
		if !shared {
			rw.Close()
		}
	})
	defer strangers.Stop()

	for {
		f, err := dec.Next()
		if err != nil {
			if carrier != nil {
				carrier.lose(err)
			}
			return err
		}
		switch {
		case f.Type == typeKnock && shared && a.opts.Knocked != nil:
			a.opts.Knocked(string(f.Payload))
		case f.Type == typeHello:
			if wait, err = a.challenge(w, f.Payload); err != nil && !shared {
				return err
			}
		case f.Type == typeProof && wait != nil:
			p := wait
			wait = nil
			next, err := a.admit(w, p, f.Payload, shared)
			if err != nil {
				if !shared {
					return err
				}
				continue
			}
			strangers.Stop()
			carrier = next
			dec.SetCheck(carrier.check)
			dec.Large = carrier.c.large
		case f.Type >= frame.FirstSealed && carrier != nil:
			carrier.hear()
			if err := carrier.c.receive(carrier, f); err != nil {
				if errors.Is(err, errProtocol) {
					carrier.c.end(err)
				}
				carrier.lose(err)
				carrier = nil
				if !shared {
					return err
				}
			}
			if carrier == nil || carrier.c.reason() != nil {
				a.changed()
			}
		}
	}
}

// challenge answers a hello.
func (a *Acceptor) challenge(w *wire, received []byte) (*pending, error) {
	h, ok := parseHello(received)
	if !ok {
		return nil, errProtocol
	}
	if h.min > maxVersion || h.max < minVersion {
		return nil, w.refuse(h.nonce, errs.New(errs.DriverIncompatible,
			"the driver speaks guest protocol %d to %d and the guest %d to %d", h.min, h.max, minVersion, maxVersion))
	}
	a.mu.Lock()
	a.hellos++
	p := &pending{hello: h, raw: append([]byte(nil), received...), version: min(h.max, maxVersion), number: a.hellos}
	a.mu.Unlock()
	p.challenge = newChallenge(a.opts.Key, p.raw, h.nonce, p.version)
	return p, w.send(frame.Frame{Type: typeChallenge, Payload: p.challenge})
}

// admit checks the proof and puts the connection under the conversation.
func (a *Acceptor) admit(w *wire, p *pending, answer []byte, shared bool) (*carrier, error) {
	if !hmac.Equal(answer, mac(a.opts.Key, labelHost, p.raw, p.challenge)) {
		return nil, w.refuse(p.hello.nonce, errs.New(errs.AuthFailed, "the host does not know the session's key"))
	}

	a.mu.Lock()
	if p.number < a.admitted {
		// A host gave this connection up and has come again on another.
		a.mu.Unlock()
		return nil, errReplaced
	}
	a.admitted = p.number
	c := a.current
	var old *conversation
	switch {
	case c != nil && c.id == p.hello.id && p.hello.resume && c.reason() == nil:
	case p.hello.resume:
		a.mu.Unlock()
		return nil, w.refuse(p.hello.nonce, errs.New(errs.ProcessUnknown,
			"the guest does not hold this conversation any more: another host took over, or the guest started afresh"))
	default:
		old = c
		c = newConversation(p.hello.id, seedOf(a.opts.Key, p.hello.id), a.opts.Handle)
		c.lost = a.changed
		a.current = c
	}
	got, turn := c.begin()
	a.mu.Unlock()
	if old != nil {
		old.end(ErrDetached)
	}

	g := &greeting{got: got, plain: p.hello.plain && !shared && local(w.rw)}
	if a.opts.Info != nil {
		g.info = a.opts.Info()
	}
	if err := w.send(frame.Frame{Type: typeWelcome, Payload: g.marshal(p.hello.nonce)}); err != nil {
		a.changed()
		return nil, err
	}
	n := newCarrier(c, w, shared, false, g.plain)
	n.passes = p.hello.files && !shared && local(w.rw)
	if (shared || a.opts.Carried) && a.opts.Silence > 0 {
		n.silent = a.opts.Silence
	}
	if err := c.attach(n, p.hello.expect, turn); err != nil {
		if !errors.Is(err, errReplaced) {
			c.end(err)
		}
		a.changed()
		return nil, err
	}
	a.changed()
	return n, nil
}

// changed tells whether a host is attached.
func (a *Acceptor) changed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	attached := false
	if c := a.current; c != nil {
		c.mu.Lock()
		attached = c.err == nil && c.carrier != nil
		c.mu.Unlock()
	}
	if a.opts.Attached != nil {
		a.opts.Attached(attached)
	}
}

// Close ends the conversation after what was queued has been written, or ctx has ended.
func (a *Acceptor) Close(ctx context.Context) {
	a.mu.Lock()
	c := a.current
	a.mu.Unlock()
	if c != nil {
		c.goodbye(ctx)
	}
}

// partingTime is how long the other end may take to hang up after a last word. Hanging up first could destroy the word
// on its way.
const partingTime = 250 * time.Millisecond

// goodbye lets the carrier write what is queued and a last word, then ends the conversation.
func (c *conversation) goodbye(ctx context.Context) {
	c.mu.Lock()
	c.byeDue = true
	c.pokeLocked()
	n := c.carrier
	c.mu.Unlock()
	if n != nil {
		select {
		case <-n.written:
		case <-ctx.Done():
		}
		t := time.NewTimer(partingTime)
		defer t.Stop()
		select {
		case <-n.dead:
		case <-t.C:
		case <-ctx.Done():
		}
	}
	c.end(ErrDetached)
}
