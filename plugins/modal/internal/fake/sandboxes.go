// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fake

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// once answers a repeated create, which clients mark with a key, as it did the first time.
func once[T any](ctx context.Context, s *Server, f func() (T, error)) (T, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	key := ""
	if v := md.Get("x-idempotency-key"); len(v) > 0 {
		key = v[0]
	}
	s.mu.Lock()
	was, ok := s.answers[key].(T)
	s.mu.Unlock()
	if ok && key != "" {
		return was, nil
	}
	r, err := f()
	if err == nil && key != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answers[key] = r
	}
	return r, err
}

// SandboxCreateV2 starts a sandbox and answers when it runs.
func (c *controlPlane) SandboxCreateV2(ctx context.Context, r *pb.SandboxCreateV2Request) (*pb.SandboxCreateV2Response, error) {
	return once(ctx, c.Server, func() (*pb.SandboxCreateV2Response, error) {
		b, err := c.make(ctx, r.GetAppId(), r.GetDefinition(), r.GetTags(), r.GetSecretSources(), false)
		if err != nil {
			return nil, err
		}
		return pb.SandboxCreateV2Response_builder{
			SandboxId: b.id, TaskId: b.task, Tunnels: tunnelData(b.tunnels.List(), true),
			CommandRouterAccess: pb.CommandRouterAccess_builder{Jwt: c.token(), Url: c.routerURL()}.Build(),
		}.Build(), nil
	})
}

// SandboxCreate is the same for the older backend.
func (c *controlPlane) SandboxCreate(ctx context.Context, r *pb.SandboxCreateRequest) (*pb.SandboxCreateResponse, error) {
	return once(ctx, c.Server, func() (*pb.SandboxCreateResponse, error) {
		b, err := c.make(ctx, r.GetAppId(), r.GetDefinition(), r.GetTags(), nil, true)
		if err != nil {
			return nil, err
		}
		return pb.SandboxCreateResponse_builder{SandboxId: b.id}.Build(), nil
	})
}

func (s *Server) routerURL() string { return "https://" + s.at.Addr().String() }

func (c *controlPlane) wait(ctx context.Context, r *pb.SandboxWaitRequest, v1 bool) (*pb.SandboxWaitResponse, error) {
	b, err := c.find(r.GetSandboxId(), v1)
	if err != nil {
		return nil, err
	}
	t := time.NewTimer(time.Duration(float64(r.GetTimeout()) * float64(time.Second)))
	defer t.Stop()
	select {
	case <-b.done:
	case <-t.C:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return pb.SandboxWaitResponse_builder{Result: b.result, Metadata: pb.SandboxHandleMetadata_builder{AppId: b.app}.Build()}.Build(), nil
}

// SandboxWaitV2 waits for the end.
func (c *controlPlane) SandboxWaitV2(ctx context.Context, r *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	return c.wait(ctx, r, false)
}

// SandboxWait is the same for the older backend.
func (c *controlPlane) SandboxWait(ctx context.Context, r *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	return c.wait(ctx, r, true)
}

func (c *controlPlane) terminate(r *pb.SandboxTerminateRequest, v1 bool) (*pb.SandboxTerminateResponse, error) {
	b, err := c.find(r.GetSandboxId(), v1)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	was := b.result
	b.mu.Unlock()
	b.finish(pb.GenericResult_GENERIC_STATUS_TERMINATED, "")
	return pb.SandboxTerminateResponse_builder{ExistingResult: was}.Build(), nil
}

// SandboxTerminateV2 ends a sandbox; one that has ended is no error.
func (c *controlPlane) SandboxTerminateV2(_ context.Context, r *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	return c.terminate(r, false)
}

// SandboxTerminate is the same for the older backend.
func (c *controlPlane) SandboxTerminate(_ context.Context, r *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	return c.terminate(r, true)
}

// taskID waits until a sandbox that is being made has a task.
func (c *controlPlane) taskID(ctx context.Context, r *pb.SandboxGetTaskIdRequest, v1 bool) (*pb.SandboxGetTaskIdResponse, error) {
	b, err := c.find(r.GetSandboxId(), v1)
	if err != nil {
		return nil, err
	}
	var late <-chan time.Time
	if r.HasTimeout() {
		t := time.NewTimer(time.Duration(float64(r.GetTimeout()) * float64(time.Second)))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-b.begun:
	case <-b.done:
	case <-late:
		return &pb.SandboxGetTaskIdResponse{}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.result != nil {
		return pb.SandboxGetTaskIdResponse_builder{TaskResult: b.result}.Build(), nil
	}
	return pb.SandboxGetTaskIdResponse_builder{TaskId: &b.task}.Build(), nil
}

// SandboxGetTaskIdV2 gives the task, or how it ended.
func (c *controlPlane) SandboxGetTaskIdV2(ctx context.Context, r *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) {
	return c.taskID(ctx, r, false)
}

// SandboxGetTaskId is the same for the older backend.
func (c *controlPlane) SandboxGetTaskId(ctx context.Context, r *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) {
	return c.taskID(ctx, r, true)
}

// SandboxGetCommandRouterAccess gives a way to the router.
func (c *controlPlane) SandboxGetCommandRouterAccess(_ context.Context, r *pb.SandboxGetCommandRouterAccessRequest) (*pb.SandboxGetCommandRouterAccessResponse, error) {
	b, err := c.find(r.GetSandboxId(), false)
	if err != nil {
		return nil, err
	}
	if b.ended() {
		return nil, status.Error(codes.FailedPrecondition, "the Sandbox has ended")
	}
	return pb.SandboxGetCommandRouterAccessResponse_builder{Jwt: c.token(), Url: c.routerURL()}.Build(), nil
}

// TaskGetCommandRouterAccess is the same for the older backend.
func (c *controlPlane) TaskGetCommandRouterAccess(_ context.Context, r *pb.TaskGetCommandRouterAccessRequest) (*pb.TaskGetCommandRouterAccessResponse, error) {
	if _, err := c.task(r.GetTaskId()); err != nil {
		return nil, err
	}
	return pb.TaskGetCommandRouterAccessResponse_builder{Jwt: c.token(), Url: c.routerURL()}.Build(), nil
}

// SandboxListV2 lists sandboxes of both backends, the latest first, in pages.
func (c *controlPlane) SandboxListV2(_ context.Context, r *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	return c.list(r, true)
}

// SandboxList lists those of the older backend.
func (c *controlPlane) SandboxList(_ context.Context, r *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	return c.list(r, false)
}

// pageSize is how many sandboxes a page of a list has at most.
const pageSize = 20

func (c *controlPlane) list(r *pb.SandboxListRequest, both bool) (*pb.SandboxListResponse, error) {
	c.mu.Lock()
	all := c.allLocked()
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b *sandbox) int { return cmp.Compare(seconds(b.created), seconds(a.created)) })
	var page []*pb.SandboxInfo
	for _, b := range all {
		if b.app != r.GetAppId() || !both && !b.v1 || b.ended() && !r.GetIncludeFinished() ||
			r.GetBeforeTimestamp() > 0 && seconds(b.created) >= r.GetBeforeTimestamp() || !b.tagged(r.GetTags()) {
			continue
		}
		if page = append(page, b.info()); len(page) == pageSize {
			break
		}
	}
	return pb.SandboxListResponse_builder{Sandboxes: page}.Build(), nil
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

func (b *sandbox) tagged(want []*pb.SandboxTag) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range want {
		if v, ok := b.tags[t.GetTagName()]; !ok || v != t.GetTagValue() {
			return false
		}
	}
	return true
}

func (b *sandbox) tagList() []*pb.SandboxTag {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*pb.SandboxTag
	for _, k := range slices.Sorted(maps.Keys(b.tags)) {
		list = append(list, pb.SandboxTag_builder{TagName: k, TagValue: b.tags[k]}.Build())
	}
	return list
}

func (b *sandbox) info() *pb.SandboxInfo {
	tags := b.tagList()
	b.mu.Lock()
	defer b.mu.Unlock()
	return pb.SandboxInfo_builder{
		Id: b.id, CreatedAt: seconds(b.created), AppId: b.app, Tags: tags, Name: b.def.GetName(), ImageId: b.def.GetImageId(),
		TimeoutSecs: b.def.GetTimeoutSecs(), TaskInfo: pb.TaskInfo_builder{Id: b.task, StartedAt: seconds(b.created), Result: b.result}.Build(),
	}.Build()
}

func (c *controlPlane) fromName(r *pb.SandboxGetFromNameRequest, v1 bool) (*pb.SandboxGetFromNameResponse, error) {
	c.mu.Lock()
	app := c.apps[r.GetEnvironmentName()+"/"+r.GetAppName()]
	all := c.allLocked()
	c.mu.Unlock()
	var found *sandbox
	for _, b := range all {
		if b.v1 != v1 || b.app != app || b.def.GetName() != r.GetSandboxName() || b.ended() && !r.GetIncludeTerminated() {
			continue
		}
		if found == nil || b.created.After(found.created) {
			found = b
		}
	}
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "Sandbox %q not found", r.GetSandboxName())
	}
	return pb.SandboxGetFromNameResponse_builder{SandboxId: found.id}.Build(), nil
}

// SandboxGetFromNameV2 finds a sandbox by its name.
func (c *controlPlane) SandboxGetFromNameV2(_ context.Context, r *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	return c.fromName(r, false)
}

// SandboxGetFromName is the same for the older backend.
func (c *controlPlane) SandboxGetFromName(_ context.Context, r *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	return c.fromName(r, true)
}

// SandboxTagsSetV2 sets the tags.
func (c *controlPlane) SandboxTagsSetV2(_ context.Context, r *pb.SandboxTagsSetRequest) (*emptypb.Empty, error) {
	b, err := c.find(r.GetSandboxId(), false)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.tags)
	for _, t := range r.GetTags() {
		b.tags[t.GetTagName()] = t.GetTagValue()
	}
	return &emptypb.Empty{}, nil
}

// SandboxTagsGetV2 gives the tags.
func (c *controlPlane) SandboxTagsGetV2(_ context.Context, r *pb.SandboxTagsGetRequest) (*pb.SandboxTagsGetResponse, error) {
	b, err := c.find(r.GetSandboxId(), false)
	if err != nil {
		return nil, err
	}
	return pb.SandboxTagsGetResponse_builder{Tags: b.tagList()}.Build(), nil
}

// SandboxGetExitSnapshotV2 gives the image that was made of a sandbox's files at its end, where that was asked for.
func (c *controlPlane) SandboxGetExitSnapshotV2(ctx context.Context, r *pb.SandboxGetExitSnapshotRequest) (*pb.SandboxGetExitSnapshotResponse, error) {
	b, err := c.find(r.GetSandboxId(), false)
	if err != nil {
		return nil, err
	}
	if b.def.GetExperimentalOptionsV2()["enable_exit_snapshot"] != "true" {
		return nil, status.Error(codes.FailedPrecondition, "exit snapshots are not enabled for this Sandbox")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(float64(r.GetTimeout())*float64(time.Second))) //nolint:forbidigo // only a bound
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		b.mu.Lock()
		id := b.exit
		b.mu.Unlock()
		if id != "" {
			return pb.SandboxGetExitSnapshotResponse_builder{
				Success: pb.SandboxGetExitSnapshotResponse_Success_builder{ImageId: id}.Build(),
			}.Build(), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return pb.SandboxGetExitSnapshotResponse_builder{Pending: &pb.SandboxGetExitSnapshotResponse_Pending{}}.Build(), nil
		}
	}
}
