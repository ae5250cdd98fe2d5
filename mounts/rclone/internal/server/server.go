// SPDX-License-Identifier: Apache-2.0

// Package server serves storage as file systems: it waits on sockets for the FUSE descriptors that drivers have mounted in
// sandboxes, and answers what the kernel asks of them with rclone's VFS. It enters no namespace and mounts nothing.
package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-dev/berth/mounts/rclone/internal/remote"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/storage/v1"
	"github.com/berth-dev/berth/sdk/wire"
)

// Server is the service. It is made once in a process.
type Server struct {
	pb.UnimplementedMountsServer
	Log  hclog.Logger
	Last func() string // what rclone complained of last

	opening sync.Mutex // held while the cache is being taken
	mu      sync.Mutex
	dir     string            // guarded by mu; of the cache
	lock    *os.File          // guarded by mu
	mounts  map[string]*mount // guarded by mu
}

// Prepare looks at a storage and waits for drivers.
func (s *Server) Prepare(ctx context.Context, req *pb.PrepareRequest) (*pb.PrepareResponse, error) {
	resp, err := s.prepare(ctx, req)
	return resp, wire.StatusError(err, nil)
}

func (s *Server) prepare(ctx context.Context, req *pb.PrepareRequest) (*pb.PrepareResponse, error) {
	if err := s.take(ctx, req.GetCacheDir()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	_, there := s.mounts[req.GetId()]
	s.mu.Unlock()
	if there {
		return nil, errs.New(errs.Internal, "mount %s is prepared already", req.GetId())
	}
	r, err := remote.Open(ctx, req.GetRemote(), !req.GetReadOnly())
	if err != nil {
		return nil, err
	}
	if err := r.Probe(ctx); err != nil {
		return nil, err
	}
	m := &mount{server: s, req: req, remote: r, since: time.Now()}
	salvaged, err := salvage(s.dir, req.GetRemote().GetName(), r.Fs.Root())
	if err != nil {
		return nil, errs.Wrap(errs.MountFailed, "look for writes of an earlier process", err)
	}
	if err := m.listen(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.mounts == nil {
		s.mounts = map[string]*mount{}
	}
	s.mounts[req.GetId()] = m
	s.mu.Unlock()
	return &pb.PrepareResponse{Salvaged: salvaged}, nil
}

// lockLook is how often a cache is asked for that another process still has: it sends its last writes.
const lockLook = 100 * time.Millisecond

// take makes the cache this process's own.
func (s *Server) take(ctx context.Context, dir string) error {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	have := s.dir
	s.mu.Unlock()
	switch have {
	case dir:
		return nil
	case "":
	default:
		return errs.New(errs.Internal, "the cache is at %s, not at %s", have, dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errs.Wrap(errs.MountFailed, "make the cache", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return errs.Wrap(errs.MountFailed, "lock the cache", err)
	}
	tick := time.NewTicker(lockLook)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return errors.Join(errs.Wrap(errs.MountFailed, "lock the cache", err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(errs.Wrap(errs.MountFailed, "wait for the process that served these mounts before", context.Cause(ctx)), f.Close())
		}
	}
	if err := remote.Init(dir); err != nil {
		return errors.Join(errs.Wrap(errs.MountFailed, "set up rclone", err), f.Close())
	}
	s.mu.Lock()
	s.dir, s.lock = dir, f
	s.mu.Unlock()
	return nil
}

func (s *Server) all(id string) []*mount {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*mount
	for _, m := range s.mounts {
		if id == "" || m.req.GetId() == id {
			out = append(out, m)
		}
	}
	return out
}

// Drain waits until every write has reached the storage, or its time is over, and says what has not.
func (s *Server) Drain(ctx context.Context, req *pb.DrainRequest) (*pb.DrainResponse, error) {
	resp := &pb.DrainResponse{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, m := range s.all(req.GetId()) {
		wg.Go(func() {
			u := m.drain(ctx, time.Duration(req.GetTimeoutMs())*time.Millisecond)
			if u == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			resp.Unstored = append(resp.Unstored, u)
		})
	}
	wg.Wait()
	return resp, nil
}

// Refresh gives a storage that is mounted other credentials.
func (s *Server) Refresh(ctx context.Context, req *pb.RefreshRequest) (*pb.RefreshResponse, error) {
	for _, m := range s.all(req.GetId()) {
		if err := m.remote.Refresh(ctx, req.GetCredentials()); err != nil {
			return nil, wire.StatusError(err, nil)
		}
		if err := m.remote.Probe(ctx); err != nil {
			return nil, wire.StatusError(err, nil)
		}
	}
	return &pb.RefreshResponse{}, nil
}

// Status says how every mount is.
func (s *Server) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	resp := &pb.StatusResponse{}
	for _, m := range s.all("") {
		st := m.status()
		st.Since = timestamppb.New(m.since)
		resp.Mounts = append(resp.Mounts, st)
	}
	return resp, nil
}

// End waits for the last writes when there is no core any more to ask for it. Every mount has its own time for that.
func (s *Server) End(ctx context.Context) {
	var wg sync.WaitGroup
	for _, m := range s.all("") {
		wg.Go(func() {
			m.listener.Close() // nobody new
			limit := time.Duration(m.req.GetRemote().GetLimits().GetDrainTimeoutMs()) * time.Millisecond
			if u := m.drain(ctx, limit); u != nil {
				s.Log.Error("writes have not reached the storage and stay in the cache", "mount", u.GetId(), "files", u.GetPaths(), "reason", u.GetReason())
			}
		})
	}
	wg.Wait()
}
