// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/wire"
)

// Sandbox is a sandbox at the other end.
type Sandbox struct {
	d          *Driver
	id         string
	info       driver.Info
	reattached bool
	preserved  bool

	mu    sync.Mutex
	state driver.State // guarded by mu
}

var (
	_ driver.Sandbox           = (*Sandbox)(nil)
	_ driver.Stopper           = (*Sandbox)(nil)
	_ driver.Pauser            = (*Sandbox)(nil)
	_ driver.Inspector         = (*Sandbox)(nil)
	_ driver.Preserved         = (*Sandbox)(nil)
	_ driver.Reattached        = (*Sandbox)(nil)
	_ driver.DeadlineExtender  = (*Sandbox)(nil)
	_ driver.Watcher           = (*Sandbox)(nil)
	_ driver.FileSystem        = (*Sandbox)(nil)
	_ driver.FileWatcher       = (*Sandbox)(nil)
	_ driver.TreeIO            = (*Sandbox)(nil)
	_ driver.ProcessTable      = (*Sandbox)(nil)
	_ driver.NativeSnapshotter = (*Sandbox)(nil)
	_ driver.PortExposer       = (*Sandbox)(nil)
	_ driver.PortForwarder     = (*Sandbox)(nil)
	_ driver.Mounter           = (*Sandbox)(nil)
	_ driver.AccountKeeper     = (*Sandbox)(nil)
)

// ID is the sandbox's id.
func (s *Sandbox) ID() string { return s.id }

// Info is what was known when the sandbox was created or resumed.
func (s *Sandbox) Info() driver.Info { return s.info }

// State is the newest state that the driver told.
func (s *Sandbox) State() driver.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *Sandbox) learn(p *pb.SandboxState) {
	if p == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = wire.State(p)
}

// WorkspacePreserved tells whether the workspace held its contents when the sandbox was created or resumed.
func (s *Sandbox) WorkspacePreserved() bool { return s.preserved }

// Reattached tells whether Resume found the sandbox with its processes.
func (s *Sandbox) Reattached() bool { return s.reattached }

// Destroy ends every process and removes everything.
func (s *Sandbox) Destroy(ctx context.Context) error {
	_, err := s.d.sandboxes.Destroy(ctx, &pb.DestroyRequest{SandboxId: s.id, State: wire.StateProto(s.State())})
	return s.d.fail(ctx, "destroy", err)
}

// Stop ends every process.
func (s *Sandbox) Stop(ctx context.Context, persist bool) error {
	resp, err := s.d.sandboxes.Stop(ctx, &pb.StopRequest{SandboxId: s.id, Persist: persist})
	s.learn(resp.GetNewState())
	return s.d.fail(ctx, "stop", err)
}

// Pause freezes the sandbox.
func (s *Sandbox) Pause(ctx context.Context) error {
	resp, err := s.d.sandboxes.Pause(ctx, &pb.PauseRequest{SandboxId: s.id})
	s.learn(resp.GetNewState())
	return s.d.fail(ctx, "pause", err)
}

// Inspect says how the sandbox is now.
func (s *Sandbox) Inspect(ctx context.Context) (driver.Info, error) {
	resp, err := s.d.sandboxes.Inspect(ctx, &pb.InspectRequest{SandboxId: s.id})
	return wire.Info(resp.GetInfo()), s.d.fail(ctx, "inspect", err)
}

// ExtendDeadline moves the vendor's deadline.
func (s *Sandbox) ExtendDeadline(ctx context.Context, deadline time.Time) (time.Time, error) {
	resp, err := s.d.sandboxes.ExtendDeadline(ctx, &pb.ExtendDeadlineRequest{SandboxId: s.id, Deadline: wire.Timestamp(deadline)})
	s.learn(resp.GetNewState())
	return wire.Time(resp.GetDeadline()), s.d.fail(ctx, "extend deadline", err)
}

// Watch reports what happens to the sandbox. A state that changed is known to State before report is called.
func (s *Sandbox) Watch(ctx context.Context, report func(driver.Event)) error {
	return watch(ctx, s.d, "watch", func(ctx context.Context) (grpc.ServerStreamingClient[pb.SandboxEvent], error) {
		return s.d.sandboxes.Watch(ctx, &pb.WatchRequest{SandboxId: s.id})
	}, func(e *pb.SandboxEvent) {
		s.learn(e.GetNewState())
		report(wire.Event(e))
	})
}

// EnsureAccounts makes users and groups.
func (s *Sandbox) EnsureAccounts(ctx context.Context, accounts driver.Accounts) error {
	resp, err := s.d.sandboxes.EnsureAccounts(ctx, &pb.EnsureAccountsRequest{SandboxId: s.id, Accounts: wire.AccountsProto(accounts)})
	s.learn(resp.GetNewState())
	return s.d.fail(ctx, "ensure accounts", err)
}

// Snapshot takes a native snapshot.
func (s *Sandbox) Snapshot(ctx context.Context, name string, memory bool, labels map[string]string) (driver.NativeSnapshot, error) {
	resp, err := s.d.snapshots.CreateNative(ctx, &pb.CreateNativeRequest{SandboxId: s.id, Name: name, Memory: memory, Labels: labels})
	s.learn(resp.GetNewState())
	return wire.NativeSnapshot(resp.GetSnapshot()), s.d.fail(ctx, "snapshot", err)
}

// Mount attaches storage.
func (s *Sandbox) Mount(ctx context.Context, spec driver.MountSpec) (driver.MountInfo, error) {
	resp, err := s.d.mounts.Mount(ctx, &pb.MountRequest{SandboxId: s.id, Mount: wire.MountSpecProto(spec)})
	return wire.MountInfo(resp.GetInfo()), s.d.fail(ctx, "mount", err)
}

// Unmount detaches storage.
func (s *Sandbox) Unmount(ctx context.Context, id string) error {
	_, err := s.d.mounts.Unmount(ctx, &pb.UnmountRequest{SandboxId: s.id, Id: id})
	return s.d.fail(ctx, "unmount", err)
}

// RefreshCredentials gives a mount new credentials.
func (s *Sandbox) RefreshCredentials(ctx context.Context, id string, credentials map[string]string) (time.Time, error) {
	resp, err := s.d.mounts.RefreshCredentials(ctx, &pb.RefreshCredentialsRequest{SandboxId: s.id, Id: id, Credentials: credentials})
	return wire.Time(resp.GetExpires()), s.d.fail(ctx, "refresh credentials", err)
}

// ProbeMount fails when a mount does not work.
func (s *Sandbox) ProbeMount(ctx context.Context, id string) error {
	resp, err := s.d.mounts.Probe(ctx, &pb.ProbeRequest{SandboxId: s.id, Id: id})
	if err != nil {
		return s.d.fail(ctx, "probe mount", err)
	}
	if !resp.GetHealthy() {
		return &errs.Error{Code: errs.MountFailed, Op: "probe mount", Message: resp.GetDetail()}
	}
	return nil
}

// Expose gives a server inside an address outside.
func (s *Sandbox) Expose(ctx context.Context, port uint16, protocol string, public bool) (driver.Endpoint, error) {
	resp, err := s.d.ports.Expose(ctx, &pb.ExposeRequest{SandboxId: s.id, Port: uint32(port), Protocol: protocol, Public: public})
	return wire.Endpoint(resp.GetEndpoint()), s.d.fail(ctx, "expose port", err)
}

// Unexpose takes the address back.
func (s *Sandbox) Unexpose(ctx context.Context, port uint16) error {
	_, err := s.d.ports.Unexpose(ctx, &pb.UnexposeRequest{SandboxId: s.id, Port: uint32(port)})
	return s.d.fail(ctx, "unexpose port", err)
}
