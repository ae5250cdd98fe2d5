// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/internal/sensitive"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/schema"
	"github.com/berth-dev/berth/sdk/wire"
)

const (
	// abandonTimeout bounds the removal of a sandbox whose create was given up.
	abandonTimeout = 30 * time.Second
	inspectTimeout = 10 * time.Second
	// maxGone bounds the memory of destroyed ids.
	maxGone = 1024
)

// flight is a create, resume or destroy of one sandbox in progress. Several callers may wait for it; when all of them
// have given up it is cancelled.
type flight struct {
	op       string
	cancel   context.CancelCauseFunc
	done     chan struct{}
	ready    *pb.Ready // set when done
	err      error     // set when done
	waiters  int       // guarded by Server.mu
	progress []func(driver.Progress)
}

// settle joins the flight of the same operation on id, or waits for another one and then starts its own. Work returns
// what to tell the callers, and what to do instead when nobody is left to be told.
func (s *Server) settle(ctx context.Context, op, id string, report func(driver.Progress),
	work func(context.Context, func(driver.Progress)) (ready *pb.Ready, commit, abandon func(), err error),
) (*pb.Ready, error) {
	if id == "" {
		return nil, errs.New(errs.InvalidArgument, "sandbox_id is empty")
	}
	for {
		s.mu.Lock()
		if s.draining {
			s.mu.Unlock()
			return nil, errs.New(errs.SandboxNotReady, "the driver is shutting down")
		}
		f := s.flights[id]
		if f == nil {
			break
		}
		joined := f.op == op && f.waiters > 0
		if joined {
			f.waiters++
			f.progress = append(f.progress, report)
		}
		s.mu.Unlock()
		if joined {
			return s.await(ctx, f)
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	// Here s.mu is held and there is no flight.
	fctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	f := &flight{op: op, cancel: cancel, done: make(chan struct{}), waiters: 1, progress: []func(driver.Progress){report}}
	s.flights[id] = f
	s.mu.Unlock()
	go s.fly(fctx, id, f, work)
	return s.await(ctx, f)
}

func (s *Server) fly(ctx context.Context, id string, f *flight,
	work func(context.Context, func(driver.Progress)) (*pb.Ready, func(), func(), error),
) {
	var commit, abandon func()
	err := s.guard(f.op, func() (err error) {
		f.ready, commit, abandon, err = work(ctx, func(p driver.Progress) {
			s.mu.Lock()
			all := slices.Clone(f.progress)
			s.mu.Unlock()
			for _, report := range all {
				report(p)
			}
		})
		return err
	})
	s.mu.Lock()
	given := f.waiters == 0
	if err == nil && !given && commit != nil {
		commit()
	}
	s.mu.Unlock()
	if err == nil && given && abandon != nil {
		err = s.guard(f.op, func() error {
			abandon()
			return errs.New(errs.Canceled, "%s was given up", f.op)
		})
	}
	f.err = err
	s.mu.Lock()
	delete(s.flights, id)
	s.mu.Unlock()
	close(f.done)
	f.cancel(context.Canceled)
}

func (s *Server) await(ctx context.Context, f *flight) (*pb.Ready, error) {
	select {
	case <-f.done:
		return f.ready, f.err
	case <-ctx.Done():
		s.mu.Lock()
		if f.waiters--; f.waiters == 0 {
			f.cancel(context.Cause(ctx))
		}
		s.mu.Unlock()
		return nil, context.Cause(ctx)
	}
}

// known gives the session of an id without an error.
func (s *Server) known(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

// admit makes a session of a new sandbox, or renews the one that is there. The result is not yet known to other calls.
func (s *Server) admit(old *session, base driver.Info, sb driver.Sandbox, grants []driver.PathGrant, forget func()) (*session, error) {
	st := sb.State()
	if err := checkState(st); err != nil {
		return nil, err
	}
	have := s.discoverSandbox(sb, grants)
	s.checkSandbox(have)
	ss := old
	if ss == nil {
		ss = &session{id: base.SandboxID, created: time.Now(), base: base, slots: make(chan struct{}, maxBulkPerSession)}
		ss.ctx, ss.cancel = context.WithCancelCause(context.Background())
		ss.processes.log = s.log
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.secret != nil {
		ss.secret()
	}
	ss.have, ss.sent, ss.secret = have, st, forget
	return ss, nil
}

// ready gives the last event of a create or resume.
func (s *Server) ready(ctx context.Context, ss *session, resumed bool) *pb.Ready {
	have := ss.sandbox()
	out := &pb.Ready{State: wire.StateProto(have.sandbox.State()), Reattached: resumed, WorkspacePreserved: resumed}
	if p, ok := have.sandbox.(driver.Preserved); ok {
		out.WorkspacePreserved = p.WorkspacePreserved()
	}
	if r, ok := have.sandbox.(driver.Reattached); ok && resumed {
		out.Reattached = r.Reattached()
	}
	info, err := s.inspect(ctx, ss, have)
	if err != nil {
		s.log.Warn("inspect sandbox", "sandbox", ss.id, "error", err)
	}
	out.Info = wire.InfoProto(info)
	return out
}

// inspect asks the sandbox how it is and fills in what it does not say.
func (s *Server) inspect(ctx context.Context, ss *session, have sandboxFeatures) (info driver.Info, err error) {
	if have.inspector != nil {
		ctx, cancel := context.WithTimeoutCause(ctx, inspectTimeout, errs.New(errs.SandboxNotReady, "no answer within %s", inspectTimeout))
		defer cancel()
		info, err = have.inspector.Inspect(ctx)
	}
	st := have.sandbox.State()
	info.SandboxID = ss.id
	if info.Status == "" {
		info.Status = driver.StatusRunning
	}
	if info.Labels == nil {
		info.Labels = ss.base.Labels
	}
	if info.Created.IsZero() {
		info.Created = ss.created
	}
	if info.Deadline.IsZero() {
		info.Deadline = st.Deadline
	}
	if info.Root == "" {
		info.Root = ss.base.Root
	}
	if info.Isolation == nil {
		info.Isolation = s.desc.Isolation
	}
	if info.Display == nil {
		info.Display = st.Display
	}
	return info, err
}

func (s *Server) create(ctx context.Context, req *driver.CreateRequest, report func(driver.Progress)) (*pb.Ready, error) {
	if ss := s.known(req.SandboxID); ss != nil {
		return s.ready(ctx, ss, false), nil
	}
	return s.settle(ctx, "create", req.SandboxID, report, func(ctx context.Context, progress func(driver.Progress)) (*pb.Ready, func(), func(), error) {
		// Another flight may have made it meanwhile.
		if ss := s.known(req.SandboxID); ss != nil {
			return s.ready(ctx, ss, false), nil, nil, nil
		}
		forget, err := s.remember(req.Config, req.SecretEnv, req.Mounts)
		if err != nil {
			return nil, nil, nil, err
		}
		req.Progress = progress
		sb, err := s.cfg.Driver.Create(ctx, req)
		if err != nil {
			// The error is told after this, so its texts must be cleaned while the secrets are known.
			err = s.cleanError(err)
			forget()
			return nil, nil, nil, err
		}
		destroy := func() {
			ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), abandonTimeout, errs.New(errs.Canceled, "not destroyed within %s", abandonTimeout))
			defer cancel()
			if err := sb.Destroy(ctx); err != nil {
				s.log.Error("destroy a sandbox that nobody waits for", "sandbox", req.SandboxID, "error", err)
			}
			forget()
		}
		base := driver.Info{SandboxID: req.SandboxID, Labels: req.Labels, Root: req.Workspace.Root}
		ss, err := s.admit(nil, base, sb, req.Grants, forget)
		if err != nil {
			destroy()
			return nil, nil, nil, err
		}
		return s.ready(ctx, ss, false), func() {
			delete(s.gone, ss.id)
			s.sessions[ss.id] = ss
		}, destroy, nil
	})
}

func (s *Server) resume(ctx context.Context, req *driver.ResumeRequest, report func(driver.Progress)) (*pb.Ready, error) {
	return s.settle(ctx, "resume", req.SandboxID, report, func(ctx context.Context, progress func(driver.Progress)) (*pb.Ready, func(), func(), error) {
		if err := s.upgrade(&req.State); err != nil {
			return nil, nil, nil, err
		}
		forget, err := s.remember(req.Config, req.SecretEnv, req.Mounts)
		if err != nil {
			return nil, nil, nil, err
		}
		req.Progress = progress
		old := s.known(req.SandboxID)
		sb, err := s.cfg.Driver.Resume(ctx, req)
		if err != nil {
			err = s.cleanError(err)
			forget()
			return nil, nil, nil, err
		}
		ss, err := s.admit(old, driver.Info{SandboxID: req.SandboxID}, sb, req.Grants, forget)
		if err != nil {
			return nil, nil, nil, err
		}
		// Without an abandon function: a resumed sandbox that nobody waits for stays, it holds somebody's work.
		commit := func() { s.sessions[ss.id] = ss }
		return s.ready(ctx, ss, true), commit, commitLocked(&s.mu, commit), nil
	})
}

// commitLocked is commit for a caller that does not hold the lock.
func commitLocked(mu interface {
	Lock()
	Unlock()
}, commit func(),
) func() {
	return func() {
		mu.Lock()
		defer mu.Unlock()
		commit()
	}
}

// remember puts what a request holds of secrets into the redaction set until the returned function is called.
func (s *Server) remember(config schema.Value, env map[string]string, mounts []driver.MountSpec) (forget func(), err error) {
	secrets, err := sensitive.Texts(s.desc.SandboxConfig, config)
	if err != nil {
		return nil, err
	}
	for _, v := range env {
		secrets = append(secrets, v)
	}
	for _, m := range mounts {
		for _, v := range m.Credentials {
			secrets = append(secrets, v)
		}
	}
	return s.redact.Add(secrets...), nil
}

// cleanError takes the secrets out of an error that outlives them.
func (s *Server) cleanError(err error) error {
	e, _ := wire.Error(wire.StatusError(err, s.redact.String))
	return e
}

// upgrade makes a state one of the current version.
func (s *Server) upgrade(st *driver.State) error {
	if st.Version == s.desc.StateVersion {
		return nil
	}
	if !slices.Contains(s.desc.StateReadable, st.Version) {
		return errs.New(errs.DriverIncompatible, "driver %s %s reads state version %d and the older %v, not %d",
			s.desc.Name, s.desc.Version, s.desc.StateVersion, s.desc.StateReadable, st.Version).
			WithHint("use the version of the driver that made the sandbox")
	}
	if s.found.upgrader == nil {
		return nil
	}
	data, err := s.found.upgrader.UpgradeState(st.Version, st.Data)
	if err != nil {
		return errs.Wrap(errs.DriverIncompatible, "upgrade state", err)
	}
	st.Version, st.Data = s.desc.StateVersion, data
	return nil
}

func (s *Server) destroy(ctx context.Context, id string, st *pb.SandboxState) error {
	_, err := s.settle(ctx, "destroy", id, func(driver.Progress) {}, func(ctx context.Context, _ func(driver.Progress)) (*pb.Ready, func(), func(), error) {
		ss := s.known(id)
		if ss == nil {
			return nil, nil, nil, s.destroyUnknown(ctx, id, st)
		}
		if err := ss.sandbox().sandbox.Destroy(ctx); err != nil {
			return nil, nil, nil, err
		}
		s.mu.Lock()
		delete(s.sessions, id)
		s.rememberGone(id)
		s.mu.Unlock()
		s.end(ss, errs.New(errs.SandboxGone, "the sandbox was destroyed").With("sandbox", id))
		return nil, nil, nil, nil
	})
	return err
}

// end lets go of everything that a session holds.
func (s *Server) end(ss *session, cause error) {
	ss.cancel(cause)
	ss.processes.close()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.secret != nil {
		ss.secret()
		ss.secret = nil
	}
}

// destroyUnknown destroys by state what this process has not resumed.
func (s *Server) destroyUnknown(ctx context.Context, id string, st *pb.SandboxState) error {
	s.mu.Lock()
	_, gone := s.gone[id]
	s.mu.Unlock()
	if gone {
		return nil
	}
	if st == nil {
		return errs.New(errs.SandboxUnknown, "this driver process does not know sandbox %s", id).
			With("sandbox", id).WithHint("give the sandbox's state, or resume it first")
	}
	state := wire.State(st)
	if err := s.upgrade(&state); err != nil {
		return err
	}
	sb, err := s.cfg.Driver.Resume(ctx, &driver.ResumeRequest{SandboxID: id, State: state, Progress: func(driver.Progress) {}})
	if err != nil {
		if errors.Is(err, errs.SandboxGone) {
			return nil
		}
		return err
	}
	if err := sb.Destroy(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rememberGone(id)
	return nil
}

// rememberGone keeps an id so that a repeated destroy succeeds. The caller holds s.mu.
func (s *Server) rememberGone(id string) {
	if _, ok := s.gone[id]; ok {
		return
	}
	s.gone[id] = struct{}{}
	if s.goneList = append(s.goneList, id); len(s.goneList) > maxGone {
		delete(s.gone, s.goneList[0])
		s.goneList = s.goneList[1:]
	}
}
