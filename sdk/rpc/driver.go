// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/wire"
)

// WatchHealth reports until ctx ends or the link breaks.
func (d *Driver) WatchHealth(ctx context.Context, report func(driver.Health)) error {
	return watch(ctx, d, "watch health", func(ctx context.Context) (grpc.ServerStreamingClient[pb.Health], error) {
		return d.driver.WatchHealth(ctx, &pb.WatchHealthRequest{})
	}, func(h *pb.Health) {
		report(driver.Health{Healthy: h.GetStatus() == pb.Health_STATUS_HEALTHY, Description: h.GetDescription()})
	})
}

// Drain parks or ends every session of the driver process, which then takes no more work.
func (d *Driver) Drain(ctx context.Context, policy driver.OrphanPolicy, report func(driver.DrainResult)) error {
	return watch(ctx, d, "drain", func(ctx context.Context) (grpc.ServerStreamingClient[pb.DrainEvent], error) {
		return d.driver.Drain(ctx, &pb.DrainRequest{Policy: wire.OrphanPolicyProto(policy)})
	}, func(e *pb.DrainEvent) {
		r := driver.DrainResult{SandboxID: e.GetSandboxId(), Outcome: e.GetOutcome()}
		if e.GetError() != "" {
			r.Err = errs.New(errs.StopFailed, "%s", e.GetError())
		}
		report(r)
	})
}

// List finds the driver's sandboxes.
func (d *Driver) List(ctx context.Context, labels map[string]string) iter.Seq2[driver.Info, error] {
	return list(ctx, d, "list", func(ctx context.Context) (grpc.ServerStreamingClient[pb.SandboxInfo], error) {
		return d.sandboxes.List(ctx, &pb.ListRequest{Labels: labels})
	}, wire.Info)
}

// Snapshots lists native snapshots.
func (d *Driver) Snapshots(ctx context.Context, labels map[string]string) iter.Seq2[driver.NativeSnapshot, error] {
	return list(ctx, d, "list snapshots", func(ctx context.Context) (grpc.ServerStreamingClient[pb.NativeSnapshot], error) {
		return d.snapshots.ListNative(ctx, &pb.ListNativeRequest{Labels: labels})
	}, wire.NativeSnapshot)
}

// DeleteSnapshot deletes a native snapshot.
func (d *Driver) DeleteSnapshot(ctx context.Context, id string) error {
	_, err := d.snapshots.DeleteNative(ctx, &pb.DeleteNativeRequest{Id: id})
	return d.fail(ctx, "delete snapshot", err)
}

// Create makes a sandbox.
func (d *Driver) Create(ctx context.Context, req *driver.CreateRequest) (driver.Sandbox, error) {
	sb, err := d.settle(ctx, "create", req.SandboxID, req.Progress, func(ctx context.Context) (grpc.ServerStreamingClient[pb.LifecycleEvent], error) {
		return d.sandboxes.Create(ctx, wire.CreateRequestProto(req))
	})
	if err != nil {
		return nil, err
	}
	return sb, nil
}

// Resume finds a sandbox again.
func (d *Driver) Resume(ctx context.Context, req *driver.ResumeRequest) (driver.Sandbox, error) {
	sb, err := d.settle(ctx, "resume", req.SandboxID, req.Progress, func(ctx context.Context) (grpc.ServerStreamingClient[pb.LifecycleEvent], error) {
		return d.sandboxes.Resume(ctx, wire.ResumeRequestProto(req))
	})
	if err != nil {
		return nil, err
	}
	return sb, nil
}

// Handle gives a sandbox without asking the driver, for calls that need no more: Destroy works by state, anything else
// only while the driver process knows the id.
func (d *Driver) Handle(id string, state driver.State) *Sandbox {
	return &Sandbox{d: d, id: id, state: state}
}

// settle follows a create or resume to its end.
func (d *Driver) settle(ctx context.Context, op, id string, progress func(driver.Progress), open func(context.Context) (grpc.ServerStreamingClient[pb.LifecycleEvent], error)) (*Sandbox, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	st, err := open(ctx)
	if err != nil {
		return nil, d.fail(ctx, op, err)
	}
	for {
		event, err := st.Recv()
		if err != nil {
			return nil, d.ended(ctx, op, err)
		}
		switch e := event.GetEvent().(type) {
		case *pb.LifecycleEvent_Progress:
			if progress != nil {
				progress(wire.Progress(e.Progress))
			}
		case *pb.LifecycleEvent_Ready:
			return &Sandbox{
				d: d, id: id, state: wire.State(e.Ready.GetState()), info: wire.Info(e.Ready.GetInfo()),
				reattached: e.Ready.GetReattached(), preserved: e.Ready.GetWorkspacePreserved(),
			}, nil
		case *pb.LifecycleEvent_Gone:
			gone := errs.New(errs.SandboxGone, "%s", e.Gone.GetReason()).With("sandbox", id)
			if s := e.Gone.GetSnapshotId(); s != "" {
				gone = gone.With("snapshot", s)
			}
			gone.Op = op
			return nil, gone
		}
	}
}

// ended is fail for a stream that has to end with a result of its own.
func (d *Driver) ended(ctx context.Context, op string, err error) error {
	if errors.Is(err, io.EOF) {
		return d.broken(op, io.EOF)
	}
	return d.fail(ctx, op, err)
}

// watch reports the messages of a stream until it ends.
func watch[T any](ctx context.Context, d *Driver, op string, open func(context.Context) (grpc.ServerStreamingClient[T], error), report func(*T)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	st, err := open(ctx)
	if err != nil {
		return d.fail(ctx, op, err)
	}
	for {
		m, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return d.fail(ctx, op, err)
		}
		report(m)
	}
}

// list gives the messages of a stream.
func list[P, T any](ctx context.Context, d *Driver, op string, open func(context.Context) (grpc.ServerStreamingClient[P], error), convert func(*P) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(context.Canceled)
		st, err := open(ctx)
		if err != nil {
			yield(zero, d.fail(ctx, op, err))
			return
		}
		for {
			m, err := st.Recv()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(zero, d.fail(ctx, op, err))
				return
			}
			if !yield(convert(m), nil) {
				return
			}
		}
	}
}
