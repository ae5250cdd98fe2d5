// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/plugins/unixlocal/internal/machine"
	"github.com/berth-dev/berth/plugins/unixlocal/internal/store"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/client"
)

// connectTimeout bounds the first conversation with a guest that is ready.
const connectTimeout = 20 * time.Second

// live gives the conversation with the guest, starting the guest when it was not yet.
func (s *sandbox) live(ctx context.Context) (*client.Client, error) {
	select {
	case s.gate <- struct{}{}:
		defer func() { <-s.gate }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	switch {
	case s.destroyed:
		return nil, errs.New(errs.SandboxGone, "sandbox %s was destroyed", s.x.Record.ID)
	case s.stopped:
		return nil, errs.New(errs.SandboxUnknown, "sandbox %s is stopped", s.x.Record.ID)
	case s.client != nil:
		return s.client, nil
	}
	select {
	case s.d.starts <- struct{}{}:
		defer func() { <-s.d.starts }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s.client, nil
}

// start starts the guest and connects. Preconditions: the gate is held.
func (s *sandbox) start(ctx context.Context) error {
	s.want.Env, s.want.Secret = s.env, s.secret
	run := machine.Run{Session: s.x, OrphanTTL: s.ttl}
	if s.template != nil {
		run.Locks = append(run.Locks, s.template.Lock())
	}
	if !s.want.Off {
		s.want.Test, s.want.Canary = *s.d.canary(), filepath.Join(s.x.Dir, "key")
	}
	started, err := s.m.Start(ctx, s.want, run)
	if err != nil {
		return err
	}
	s.x.Record.Guest, s.x.Record.Stopped, s.x.Record.Isolation = store.ProcessOf(started.Guest.PID), false, started.Report
	err = s.x.Save()
	var cl *client.Client
	if err == nil {
		cl, err = s.connect(ctx)
	}
	if err == nil {
		// Before any command: where storage was, nobody may find an empty directory.
		if err = s.mounts.Restore(ctx, s.place()); err != nil {
			_ = cl.Close() // it ends with its guest
		}
	}
	if err != nil {
		_ = started.End() // the first error is the one to tell
		return err
	}
	s.client, s.group, s.report = cl, started.Group, started.Report
	return nil
}

// connect begins the conversation with a guest that is ready.
func (s *sandbox) connect(ctx context.Context) (*client.Client, error) {
	key, err := s.x.Key()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errs.New(errs.StartFailed, "the guest did not answer within %s", connectTimeout))
	defer cancel()
	return client.Connect(ctx, client.Options{Dial: s.x.Dial, Key: key, Log: func(msg string, args ...any) { s.d.log.Debug(msg, args...) }})
}

// reattach finds the guest that an earlier process of this driver started.
func (s *sandbox) reattach(ctx context.Context) error {
	cl, err := s.connect(ctx)
	if err != nil {
		return err
	}
	s.client, s.report, s.reattached = cl, s.x.Record.Isolation, true
	s.group = s.m.Groups.Find(s.x.Record.ID)
	return nil
}

// letGo gives up a guest that no longer answers; another value takes its place.
func (s *sandbox) letGo() {
	defer s.hold()()
	if s.client != nil {
		_ = s.client.Close() // it has ended
	}
	if s.template != nil {
		_ = s.template.Close() // only the lock's copy here
		s.template = nil
	}
	s.client, s.stopped = nil, true
}

// end ends the guest and everything that it started. Preconditions: the gate is held.
func (s *sandbox) end() error {
	if s.client != nil {
		_ = s.client.Close() // whatever it says, the guest ends
		s.client = nil
	}
	// Another process of this driver may have started the guest that lives.
	if now, err := s.d.store.Open(s.x.Record.ID, s.x.Record.Proof); err == nil {
		s.x.Record.Guest = now.Record.Guest
	}
	var all []error
	if s.group == nil && s.m != nil {
		s.group = s.m.Groups.Find(s.x.Record.ID)
	}
	if s.group != nil {
		all = append(all, s.group.Kill())
	}
	all = append(all, s.x.EndGuest())
	if s.group != nil {
		all = append(all, s.group.Remove())
		s.group = nil
	}
	if s.template != nil {
		all = append(all, s.template.Close())
		s.template = nil
	}
	return errors.Join(all...)
}
