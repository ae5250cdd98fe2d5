// SPDX-License-Identifier: Apache-2.0

// Package fork makes sessions of sessions: a copy with the same workspace, or the same session in another kind of sandbox.
//
// What the driver can do alone it does: a fork of a container is a container over an image of the first. Everything else goes
// through a snapshot, which is removed afterwards; a driver that keeps workspaces as layers lays the new one over what it
// has. The session that is copied is in use by this process meanwhile, and as it was found afterwards, also when something
// fails.
package fork

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/session"
	"github.com/berth-dev/berth/core/snapshot/index"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/sdk/errs"
)

// Options say which session is copied, and to where.
type Options struct {
	Session string        // its id, the beginning of it, or its key
	Sandbox *spec.Sandbox // block of the new one; nil = that of the session
	Key     string        // of a fork; empty = none. What is moved keeps its own
	What    string        // what this process does, for whoever finds the session in use
	Emit    func(event.Data)
	Left    func([]index.Left) // told what of the workspace is not in the new one
}

// Fork makes a session with the workspace of another one. Nobody uses it afterwards; it runs if the other did, else it is
// stopped.
func Fork(ctx context.Context, h *berth.Harness, p *spec.Project, o Options) (id string, err error) {
	c, err := open(ctx, h, p, &o)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.old.Release(context.WithoutCancel(ctx))) }()
	fresh, err := c.copy(ctx, o.Key)
	if err != nil {
		return "", fmt.Errorf("fork session %s: %w", c.rec.ID, err)
	}
	return fresh.ID(), c.rest(ctx, fresh)
}

// Move puts a session into a sandbox of another block, with its key and its run. The old sandbox is removed when the new one
// is filled and recorded; when something fails before, the session is as it was.
func Move(ctx context.Context, h *berth.Harness, p *spec.Project, o Options) (id string, err error) {
	if o.Sandbox == nil {
		return "", errs.New(errs.InvalidArgument, "where the session is moved to is missing")
	}
	c, err := open(ctx, h, p, &o)
	if err != nil {
		return "", err
	}
	fresh, err := c.copy(ctx, "")
	if err == nil {
		if err = c.m.Supersede(ctx, c.old, fresh); err != nil {
			err = errors.Join(err, fresh.Destroy(context.WithoutCancel(ctx)))
		}
	}
	if err != nil {
		err = fmt.Errorf("move session %s, which is as it was: %w", c.rec.ID, err)
		return "", errors.Join(err, c.old.Release(context.WithoutCancel(ctx)))
	}
	if err := c.old.Destroy(context.WithoutCancel(ctx)); err != nil {
		o.Emit(event.Warning{
			Message: fmt.Sprintf("session %s was moved to %s, and its old sandbox could not be removed: %v", c.rec.ID, fresh.ID(), err),
			Hint:    "berth session gc tries again",
		})
	}
	return fresh.ID(), c.rest(ctx, fresh)
}

// copier has the session that is copied open.
type copier struct {
	h    *berth.Harness
	p    *spec.Project
	o    *Options
	m    *session.Manager
	rec  *state.Session // as it was found
	body *session.Body
	old  *session.Session
}

func open(ctx context.Context, h *berth.Harness, p *spec.Project, o *Options) (*copier, error) {
	if o.Emit == nil {
		o.Emit = func(event.Data) {}
	}
	c := &copier{h: h, p: p, o: o}
	var err error
	if c.m, err = h.Sessions(ctx, p); err != nil {
		return nil, err
	}
	if c.rec, err = c.m.Find(ctx, o.Session); err != nil {
		return nil, err
	}
	if c.body, err = session.Peek(c.rec); err != nil {
		return nil, err
	}
	if c.old, err = h.OpenSession(ctx, p, c.rec.ID, o.What, o.Emit); err != nil {
		return nil, err
	}
	if c.old.ID() != c.rec.ID {
		err := errs.New(errs.SandboxGone, "session %s was gone, and session %s has taken its place", c.rec.ID, c.old.ID()).
			WithHint("look at that one first")
		return nil, errors.Join(err, c.old.Release(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// copy makes the new session.
func (c *copier) copy(ctx context.Context, key string) (*session.Session, error) {
	n := berth.SandboxOptions{What: c.o.What, Emit: c.o.Emit}
	if err := n.Blocks(c.p, c.rec, c.body); err != nil {
		return nil, err
	}
	sameBlock := c.o.Sandbox == nil || c.o.Sandbox.Label == n.Sandbox.Label
	if c.o.Sandbox != nil {
		n.Sandbox = c.o.Sandbox
	}
	block := *n.Sandbox // with none of its policy about where a session comes from
	block.Session.Source, block.Session.Key, block.Session.StateFile = "create", spec.Text{Literal: key}, ""
	n.Sandbox = &block
	if sameBlock {
		switch id, err := c.old.SaveNative(ctx); {
		case err == nil:
			n.Native = id
			s, err := c.h.Open(ctx, c.p, n)
			return s, errors.Join(err, c.forget(ctx, s, func(ctx context.Context) error { return c.old.ForgetNative(ctx, id) }))
		case !errors.Is(err, errs.Unsupported):
			return nil, err
		}
	}
	repo, err := berth.OpenSnapshots(ctx, c.p, n.Sandbox)
	if err != nil {
		return nil, err
	}
	rec, x, err := c.old.SaveWhole(ctx, repo)
	if err != nil {
		return nil, err
	}
	n.From = rec.ID
	s, err := c.h.Open(ctx, c.p, n)
	if err = errors.Join(err, c.forget(ctx, s, func(ctx context.Context) error { return repo.Remove(ctx, rec) })); err != nil {
		return s, err
	}
	if c.o.Left != nil {
		c.o.Left(slices.Clone(x.Left))
	}
	return s, nil
}

// forget removes what the new session was made from; s is nil when it was not made.
func (c *copier) forget(ctx context.Context, s *session.Session, remove func(context.Context) error) error {
	err := remove(context.WithoutCancel(ctx))
	if err == nil {
		return nil
	}
	if s != nil {
		c.o.Emit(event.Warning{Message: fmt.Sprintf("what session %s was made from could not be removed: %v", s.ID(), err)})
		return nil
	}
	return err
}

// rest leaves the new session as the old one was found.
func (c *copier) rest(ctx context.Context, s *session.Session) error {
	if c.rec.Status == state.Stopped {
		return s.Stop(context.WithoutCancel(ctx))
	}
	return s.Leave(context.WithoutCancel(ctx))
}
