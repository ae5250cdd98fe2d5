// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/wire"
)

type sandboxServer struct {
	*Server
	pb.UnimplementedSandboxesServer
}

func (s sandboxServer) Create(req *pb.CreateRequest, st grpc.ServerStreamingServer[pb.LifecycleEvent]) error {
	return s.lifecycle(st, func(ctx context.Context, report func(driver.Progress)) (*pb.Ready, error) {
		return s.create(ctx, wire.CreateRequest(req), report)
	})
}

func (s sandboxServer) Resume(req *pb.ResumeRequest, st grpc.ServerStreamingServer[pb.LifecycleEvent]) error {
	return s.lifecycle(st, func(ctx context.Context, report func(driver.Progress)) (*pb.Ready, error) {
		return s.resume(ctx, wire.ResumeRequest(req), report)
	})
}

// lifecycle sends progress while work runs and its result last.
func (s sandboxServer) lifecycle(st grpc.ServerStreamingServer[pb.LifecycleEvent], work func(context.Context, func(driver.Progress)) (*pb.Ready, error)) error {
	var mu sync.Mutex
	over := false
	ready, err := work(st.Context(), func(p driver.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if over || st.Context().Err() != nil {
			return
		}
		p.Message = s.redact.String(p.Message)
		if err := st.Send(&pb.LifecycleEvent{Event: &pb.LifecycleEvent_Progress{Progress: wire.ProgressProto(p)}}); err != nil {
			over = true
		}
	})
	mu.Lock()
	defer mu.Unlock()
	over = true
	switch e := (*errs.Error)(nil); {
	case err == nil:
		return st.Send(&pb.LifecycleEvent{Event: &pb.LifecycleEvent_Ready{Ready: ready}})
	case errors.Is(err, errs.SandboxGone) && errors.As(err, &e):
		return st.Send(&pb.LifecycleEvent{Event: &pb.LifecycleEvent_Gone{Gone: &pb.Gone{
			Reason: s.redact.String(e.Error()), SnapshotId: e.Context["snapshot"],
		}}})
	default:
		return err
	}
}

func (s sandboxServer) Destroy(ctx context.Context, req *pb.DestroyRequest) (*pb.DestroyResponse, error) {
	return &pb.DestroyResponse{}, s.destroy(ctx, req.GetSandboxId(), req.GetState())
}

func (s sandboxServer) Stop(ctx context.Context, req *pb.StopRequest) (*pb.StopResponse, error) {
	return callSandbox(ctx, s.Server, req.GetSandboxId(), func(ctx context.Context, ss *session, have sandboxFeatures) (*pb.StopResponse, error) {
		if have.stopper == nil {
			return nil, unsupported(driver.LifeStop, "stopping a sandbox")
		}
		if err := have.stopper.Stop(ctx, req.GetPersist()); err != nil {
			return nil, err
		}
		st, err := ss.newState()
		return &pb.StopResponse{NewState: st}, err
	})
}

func (s sandboxServer) Pause(ctx context.Context, req *pb.PauseRequest) (*pb.PauseResponse, error) {
	return callSandbox(ctx, s.Server, req.GetSandboxId(), func(ctx context.Context, ss *session, have sandboxFeatures) (*pb.PauseResponse, error) {
		if have.pauser == nil {
			return nil, unsupported(driver.LifePause, "pausing a sandbox")
		}
		if err := have.pauser.Pause(ctx); err != nil {
			return nil, err
		}
		st, err := ss.newState()
		return &pb.PauseResponse{NewState: st}, err
	})
}

func (s sandboxServer) Inspect(ctx context.Context, req *pb.InspectRequest) (*pb.InspectResponse, error) {
	return callSandbox(ctx, s.Server, req.GetSandboxId(), func(ctx context.Context, ss *session, have sandboxFeatures) (*pb.InspectResponse, error) {
		info, err := s.inspect(ctx, ss, have)
		return &pb.InspectResponse{Info: wire.InfoProto(info)}, err
	})
}

func (s sandboxServer) List(req *pb.ListRequest, st grpc.ServerStreamingServer[pb.SandboxInfo]) error {
	if s.found.lister == nil {
		return unsupported(driver.LifeList, "a list of sandboxes")
	}
	for info, err := range s.found.lister.List(st.Context(), req.GetLabels()) {
		if err == nil {
			err = st.Send(wire.InfoProto(info))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s sandboxServer) ExtendDeadline(ctx context.Context, req *pb.ExtendDeadlineRequest) (*pb.ExtendDeadlineResponse, error) {
	return callSandbox(ctx, s.Server, req.GetSandboxId(), func(ctx context.Context, ss *session, have sandboxFeatures) (*pb.ExtendDeadlineResponse, error) {
		if have.deadline == nil {
			return nil, unsupported(driver.LifeDeadline, "a later deadline")
		}
		at, err := have.deadline.ExtendDeadline(ctx, wire.Time(req.GetDeadline()))
		if err != nil {
			return nil, err
		}
		st, err := ss.newState()
		return &pb.ExtendDeadlineResponse{Deadline: wire.Timestamp(at), NewState: st}, err
	})
}

func (s sandboxServer) Watch(req *pb.WatchRequest, st grpc.ServerStreamingServer[pb.SandboxEvent]) error {
	_, err := callSandbox(st.Context(), s.Server, req.GetSandboxId(), func(ctx context.Context, ss *session, have sandboxFeatures) (struct{}, error) {
		if have.watcher == nil {
			return struct{}{}, unsupported(driver.LifeWatch, "events of a sandbox")
		}
		var send sender[*pb.SandboxEvent]
		return struct{}{}, send.until(ctx, st.Send, func(ctx context.Context, put func(*pb.SandboxEvent)) error {
			return have.watcher.Watch(ctx, func(e driver.Event) {
				e.Message = s.redact.String(e.Message)
				p := wire.EventProto(ss.id, e)
				var err error
				if p.NewState, err = ss.newState(); err != nil {
					s.log.Error("state of a sandbox", "sandbox", ss.id, "error", err)
				}
				put(p)
			})
		})
	})
	return err
}

func (s sandboxServer) EnsureAccounts(ctx context.Context, req *pb.EnsureAccountsRequest) (*pb.EnsureAccountsResponse, error) {
	return callSandbox(ctx, s.Server, req.GetSandboxId(), func(ctx context.Context, ss *session, have sandboxFeatures) (*pb.EnsureAccountsResponse, error) {
		if have.accounts == nil {
			return nil, unsupported(driver.AcctNative, "users and groups")
		}
		if err := have.accounts.EnsureAccounts(ctx, wire.Accounts(req.GetAccounts())); err != nil {
			return nil, err
		}
		st, err := ss.newState()
		return &pb.EnsureAccountsResponse{NewState: st}, err
	})
}

type snapshotServer struct {
	*Server
	pb.UnimplementedSnapshotsServer
}

func (s snapshotServer) CreateNative(ctx context.Context, req *pb.CreateNativeRequest) (*pb.CreateNativeResponse, error) {
	return callSandbox(ctx, s.Server, req.GetSandboxId(), func(ctx context.Context, ss *session, have sandboxFeatures) (*pb.CreateNativeResponse, error) {
		if have.snapshotter == nil {
			return nil, unsupported(driver.SnapNative, "native snapshots")
		}
		snap, err := have.snapshotter.Snapshot(ctx, req.GetName(), req.GetMemory(), req.GetLabels())
		if err != nil {
			return nil, err
		}
		st, err := ss.newState()
		return &pb.CreateNativeResponse{Snapshot: wire.NativeSnapshotProto(snap), NewState: st}, err
	})
}

func (s snapshotServer) DeleteNative(ctx context.Context, req *pb.DeleteNativeRequest) (*pb.DeleteNativeResponse, error) {
	if s.found.snapshots == nil {
		return nil, unsupported(driver.SnapNative, "native snapshots")
	}
	return &pb.DeleteNativeResponse{}, s.found.snapshots.DeleteSnapshot(ctx, req.GetId())
}

func (s snapshotServer) ListNative(req *pb.ListNativeRequest, st grpc.ServerStreamingServer[pb.NativeSnapshot]) error {
	if s.found.snapshots == nil {
		return unsupported(driver.SnapNative, "native snapshots")
	}
	for snap, err := range s.found.snapshots.Snapshots(st.Context(), req.GetLabels()) {
		if err == nil && (req.GetSandboxId() == "" || req.GetSandboxId() == snap.SandboxID) {
			err = st.Send(wire.NativeSnapshotProto(snap))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type mountServer struct {
	*Server
	pb.UnimplementedMountsServer
}

func (s mountServer) call(ctx context.Context, id string, f func(context.Context, driver.Mounter) error) error {
	_, err := callSandbox(ctx, s.Server, id, func(ctx context.Context, _ *session, have sandboxFeatures) (struct{}, error) {
		if have.mounter == nil {
			return struct{}{}, errs.New(errs.Unsupported, "this driver does not mount storage").With("feature", "mount")
		}
		return struct{}{}, f(ctx, have.mounter)
	})
	return err
}

func (s mountServer) Mount(ctx context.Context, req *pb.MountRequest) (*pb.MountResponse, error) {
	spec := wire.MountSpec(req.GetMount())
	// The credentials stay in use for as long as the mount is there.
	s.redact.AddValues(spec.Credentials)
	out := &pb.MountResponse{}
	err := s.call(ctx, req.GetSandboxId(), func(ctx context.Context, m driver.Mounter) error {
		info, err := m.Mount(ctx, spec)
		out.Info = wire.MountInfoProto(info)
		return err
	})
	return out, err
}

func (s mountServer) Unmount(ctx context.Context, req *pb.UnmountRequest) (*pb.UnmountResponse, error) {
	return &pb.UnmountResponse{}, s.call(ctx, req.GetSandboxId(), func(ctx context.Context, m driver.Mounter) error {
		return m.Unmount(ctx, req.GetId())
	})
}

func (s mountServer) RefreshCredentials(ctx context.Context, req *pb.RefreshCredentialsRequest) (*pb.RefreshCredentialsResponse, error) {
	s.redact.AddValues(req.GetCredentials())
	out := &pb.RefreshCredentialsResponse{}
	err := s.call(ctx, req.GetSandboxId(), func(ctx context.Context, m driver.Mounter) error {
		at, err := m.RefreshCredentials(ctx, req.GetId(), req.GetCredentials())
		out.Expires = wire.Timestamp(at)
		return err
	})
	return out, err
}

func (s mountServer) Probe(ctx context.Context, req *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	var broken error
	err := s.call(ctx, req.GetSandboxId(), func(ctx context.Context, m driver.Mounter) error {
		broken = m.ProbeMount(ctx, req.GetId())
		return ctx.Err()
	})
	if err != nil || broken == nil {
		return &pb.ProbeResponse{Healthy: true}, err
	}
	if errors.Is(broken, errs.Unsupported) {
		return nil, broken
	}
	return &pb.ProbeResponse{Detail: s.redact.String(broken.Error())}, nil
}
