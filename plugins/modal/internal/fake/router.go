// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fake

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/netip"
	"os"
	"path"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/berth-dev/berth/plugins/modal/internal/fake/cell"
	"github.com/berth-dev/berth/plugins/modal/internal/fake/execs"
)

// router serves modal.task_command_router.TaskCommandRouter for all tasks.
type router struct {
	pb.UnimplementedTaskCommandRouterServer
	*Server
}

// argMax is what the arguments of an exec may have in all: what clients check is taken to be what the vendor takes.
const argMax = 1 << 16

// task finds the sandbox of a task that runs.
func (s *Server) task(id string) (*sandbox, error) {
	s.mu.Lock()
	b := s.tasks[id]
	s.mu.Unlock()
	if b == nil || !b.runs() {
		return nil, status.Errorf(codes.NotFound, "task %q is not running", id)
	}
	return b, nil
}

func (r *router) exec(task, id string) (*sandbox, *execs.Exec, error) {
	b, err := r.task(task)
	if err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.execs[id]
	if e == nil {
		return nil, nil, status.Errorf(codes.NotFound, "exec %q not found", id)
	}
	return b, e, nil
}

// TaskExecStart starts an exec; one that has the id already is the same.
func (r *router) TaskExecStart(_ context.Context, q *pb.TaskExecStartRequest) (*pb.TaskExecStartResponse, error) {
	b, err := r.task(q.GetTaskId())
	if err != nil {
		return nil, err
	}
	n := 0
	for _, a := range q.GetCommandArgs() {
		n += len(a)
	}
	switch {
	case len(q.GetCommandArgs()) == 0 || q.GetExecId() == "":
		return nil, invalid("an exec needs an id and arguments")
	case n > argMax:
		return nil, invalid("the arguments are too long")
	case q.GetContainerId() != "":
		return nil, status.Error(codes.NotFound, "the fake has no sidecars")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.execs[q.GetExecId()] != nil {
		return &pb.TaskExecStartResponse{}, nil
	}
	e, err := b.begin(q)
	if err != nil {
		return nil, err
	}
	b.execs[q.GetExecId()] = e
	if b.idle != nil {
		b.idle.Stop()
		b.idle = nil
	}
	return &pb.TaskExecStartResponse{}, nil
}

// begin starts an exec.
func (b *sandbox) begin(q *pb.TaskExecStartRequest) (*execs.Exec, error) {
	env := maps.Clone(b.env)
	b.s.mu.Lock()
	err := b.s.environmentLocked(env, q.GetSecretIds(), q.GetSecretSources())
	b.s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return execs.Start(execs.Options{
		Cell: b.cell, Root: b.root, Spool: b.s.dir, Env: env, Dir: cmp.Or(q.GetWorkdir(), b.def.GetWorkdir()), Request: q,
		OnEnd: func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.restLocked()
		},
	})
}

// gone is what calls get that a sandbox's end cuts off.
func gone() error { return status.Error(codes.Unavailable, "the task has ended") }

// within gives a context that ends with the call, the sandbox and the server.
func (r *router) within(ctx context.Context, b *sandbox) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx) //nolint:forbidigo // the cause is told by gone
	go func() {
		select {
		case <-b.done:
		case <-r.ctx.Done():
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx, cancel
}

// TaskExecStdioRead sends output from an offset on.
func (r *router) TaskExecStdioRead(q *pb.TaskExecStdioReadRequest, s grpc.ServerStreamingServer[pb.TaskExecStdioReadResponse]) error {
	b, e, err := r.exec(q.GetTaskId(), q.GetExecId())
	if err != nil {
		return err
	}
	ctx, release := r.within(s.Context(), b)
	defer release()
	stderr := q.GetFileDescriptor() == pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR
	buf := make([]byte, 64<<10)
	for at := int64(q.GetOffset()); ; {
		n, err := e.Read(ctx, stderr, buf, at)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && s.Context().Err() == nil:
			return gone()
		case err != nil:
			return err
		}
		at += int64(n)
		if err := s.Send(pb.TaskExecStdioReadResponse_builder{Data: buf[:n]}.Build()); err != nil {
			return err
		}
	}
}

// TaskExecWait waits for the end.
func (r *router) TaskExecWait(ctx context.Context, q *pb.TaskExecWaitRequest) (*pb.TaskExecWaitResponse, error) {
	b, e, err := r.exec(q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	inner, release := r.within(ctx, b)
	defer release()
	select {
	case <-e.Done():
	case <-inner.Done():
		if ctx.Err() == nil {
			return nil, gone()
		}
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	code, signal := e.Exit()
	if signal != 0 {
		return pb.TaskExecWaitResponse_builder{Signal: &signal}.Build(), nil
	}
	return pb.TaskExecWaitResponse_builder{Code: &code}.Build(), nil
}

// TaskExecPoll says how it ended, if it has.
func (r *router) TaskExecPoll(_ context.Context, q *pb.TaskExecPollRequest) (*pb.TaskExecPollResponse, error) {
	_, e, err := r.exec(q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	if !e.Over() {
		return &pb.TaskExecPollResponse{}, nil
	}
	code, signal := e.Exit()
	if signal != 0 {
		return pb.TaskExecPollResponse_builder{Signal: &signal}.Build(), nil
	}
	return pb.TaskExecPollResponse_builder{Code: &code}.Build(), nil
}

// TaskExecStdinWrite writes input.
func (r *router) TaskExecStdinWrite(ctx context.Context, q *pb.TaskExecStdinWriteRequest) (*pb.TaskExecStdinWriteResponse, error) {
	b, e, err := r.exec(q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	ctx, release := r.within(ctx, b)
	defer release()
	if err := e.Feed(ctx, q.GetOffset(), q.GetData(), q.GetEof()); err != nil {
		return nil, err
	}
	return &pb.TaskExecStdinWriteResponse{}, nil
}

// TaskExecStdinStatus says how much input there was.
func (r *router) TaskExecStdinStatus(_ context.Context, q *pb.TaskExecStdinStatusRequest) (*pb.TaskExecStdinStatusResponse, error) {
	_, e, err := r.exec(q.GetTaskId(), q.GetExecId())
	if err != nil {
		return nil, err
	}
	n, closed := e.Fed()
	return pb.TaskExecStdinStatusResponse_builder{NumBytesWritten: n, Closed: closed}.Build(), nil
}

// TaskExecStdinWriteStream writes input in pieces; only its end closes the input.
func (r *router) TaskExecStdinWriteStream(s grpc.ClientStreamingServer[pb.TaskExecStdinWriteStreamRequest, pb.TaskExecStdinWriteStreamResponse]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return invalid("the first message says where to write")
	}
	b, e, err := r.exec(start.GetTaskId(), start.GetExecId())
	if err != nil {
		return err
	}
	ctx, release := r.within(s.Context(), b)
	defer release()
	at := start.GetOffset()
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		if m.HasEnd() {
			if err := e.Feed(ctx, at, nil, true); err != nil {
				return err
			}
			return s.SendAndClose(&pb.TaskExecStdinWriteStreamResponse{})
		}
		if err := e.Feed(ctx, at, m.GetData(), false); err != nil {
			return err
		}
		at += uint64(len(m.GetData()))
	}
}

// SandboxWaitUntilReady answers at once: the fake has no probes.
func (r *router) SandboxWaitUntilReady(_ context.Context, q *pb.SandboxWaitUntilReadyTcrRequest) (*pb.SandboxWaitUntilReadyTcrResponse, error) {
	if _, err := r.task(q.GetTaskId()); err != nil {
		return nil, err
	}
	return pb.SandboxWaitUntilReadyTcrResponse_builder{ReadyAt: seconds(time.Now())}.Build(), nil
}

// snapshot makes an image, once for each id.
func (r *router) snapshot(task, id, dir string, ttl int64, subtree bool) (string, error) {
	b, err := r.task(task)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if img := b.snaps[id]; img != "" {
		return img, nil
	}
	from := path.Join(b.root, path.Clean("/"+dir))
	if info, err := os.Stat(from); err != nil || !info.IsDir() {
		return "", invalid("%q is no directory", dir)
	}
	img, err := r.capture(from, ttl, subtree, b.env)
	if err != nil {
		return "", err
	}
	b.snaps[id] = img
	return img, nil
}

// TaskSnapshotFilesystem makes an image of all files; what is mounted is not in it.
func (r *router) TaskSnapshotFilesystem(_ context.Context, q *pb.TaskSnapshotFilesystemRequest) (*pb.TaskSnapshotFilesystemResponse, error) {
	img, err := r.snapshot(q.GetTaskId(), q.GetSnapshotId(), "/", q.GetTtlSeconds(), false)
	if err != nil {
		return nil, err
	}
	return pb.TaskSnapshotFilesystemResponse_builder{ImageId: img}.Build(), nil
}

// TaskSnapshotDirectory makes an image of a directory.
func (r *router) TaskSnapshotDirectory(_ context.Context, q *pb.TaskSnapshotDirectoryRequest) (*pb.TaskSnapshotDirectoryResponse, error) {
	img, err := r.snapshot(q.GetTaskId(), q.GetSnapshotId(), string(q.GetPath()), q.GetTtlSeconds(), true)
	if err != nil {
		return nil, err
	}
	return pb.TaskSnapshotDirectoryResponse_builder{ImageId: img}.Build(), nil
}

// TaskMountDirectory puts an image's files in the place of a directory's.
func (r *router) TaskMountDirectory(_ context.Context, q *pb.TaskMountDirectoryRequest) (*emptypb.Empty, error) {
	b, err := r.task(q.GetTaskId())
	if err != nil {
		return nil, err
	}
	at := path.Clean(string(q.GetPath()))
	if !strings.HasPrefix(at, "/") || at == "/" {
		return nil, invalid("an image is mounted at an absolute path that is not /")
	}
	r.mu.Lock()
	img := &image{}
	if q.GetImageId() != "" {
		img, err = r.imageLocked(q.GetImageId())
	}
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	dir := path.Join(b.root, at)
	if err := os.RemoveAll(dir); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if img.dir != "" {
		if err := cell.Copy(img.dir, dir); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	return &emptypb.Empty{}, nil
}

// TaskSetNetworkAccess changes what may be reached. The fake reaches nothing and only remembers it.
func (r *router) TaskSetNetworkAccess(_ context.Context, q *pb.TaskSetNetworkAccessRequest) (*pb.TaskSetNetworkAccessResponse, error) {
	b, err := r.task(q.GetTaskId())
	if err != nil {
		return nil, err
	}
	if err := checkCIDRs(q.GetNetworkAccess()); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.access = q.GetNetworkAccess()
	return &pb.TaskSetNetworkAccessResponse{}, nil
}

// TaskReloadVolumes does nothing: volumes are directories.
func (r *router) TaskReloadVolumes(_ context.Context, q *pb.TaskReloadVolumesRequest) (*pb.TaskReloadVolumesResponse, error) {
	if _, err := r.task(q.GetTaskId()); err != nil {
		return nil, err
	}
	return &pb.TaskReloadVolumesResponse{}, nil
}

func checkCIDRs(a *pb.NetworkAccess) error {
	for _, c := range a.GetAllowedCidrs() {
		if _, err := netip.ParsePrefix(c); err != nil {
			return invalid("%q is no CIDR", c)
		}
	}
	return nil
}
