// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
)

// Reason is why a sandbox ended.
type Reason string

// The reasons.
const (
	Running      Reason = ""              // it has not
	Exited       Reason = "exited"        // its command ended
	Terminated   Reason = "terminated"    // by a call
	TimedOut     Reason = "timeout"       // its timeout
	IdleTimedOut Reason = "idle_timeout"  // its idle timeout
	NotStarted   Reason = "init_failure"  // it could not be started
	VendorFailed Reason = "vendor_failed" // the vendor's own failure
	Evicted      Reason = "evicted"       // the vendor's machine was short of memory
)

// Status is how a sandbox is.
type Status struct {
	Reason    Reason
	ExitCode  int // of an Exited one
	Exception string
}

// StatusOf asks how a sandbox is: modal.Sandbox.Poll gives exit codes, which are the same for several reasons.
func StatusOf(ctx context.Context, sb *modal.Sandbox) (Status, error) {
	var result *pb.GenericResult
	ctx = context.WithValue(ctx, lookKey{}, &looker{after: func(answer any) {
		if r, ok := answer.(*pb.SandboxWaitResponse); ok {
			result = r.GetResult()
		}
	}})
	_, err := sb.Poll(ctx, nil)
	return statusOf(result), err
}

// WaitEnd waits until a sandbox has ended and says why.
func WaitEnd(ctx context.Context, sb *modal.Sandbox) (Status, error) {
	var result *pb.GenericResult
	ctx = context.WithValue(ctx, lookKey{}, &looker{after: func(answer any) {
		if r, ok := answer.(*pb.SandboxWaitResponse); ok && r.GetResult() != nil {
			result = r.GetResult()
		}
	}})
	_, err := sb.Wait(ctx, nil)
	return statusOf(result), err
}

func statusOf(r *pb.GenericResult) Status {
	s := Status{ExitCode: int(r.GetExitcode()), Exception: r.GetException()}
	switch r.GetStatus() {
	case pb.GenericResult_GENERIC_STATUS_UNSPECIFIED:
		return Status{}
	case pb.GenericResult_GENERIC_STATUS_SUCCESS, pb.GenericResult_GENERIC_STATUS_FAILURE:
		s.Reason = Exited
	case pb.GenericResult_GENERIC_STATUS_TERMINATED:
		s.Reason = Terminated
	case pb.GenericResult_GENERIC_STATUS_TIMEOUT:
		s.Reason = TimedOut
	case pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT:
		s.Reason = IdleTimedOut
	case pb.GenericResult_GENERIC_STATUS_INIT_FAILURE:
		s.Reason = NotStarted
	case pb.GenericResult_GENERIC_STATUS_MEMORY_MANAGER_EVICTION:
		s.Reason = Evicted
	default:
		s.Reason = VendorFailed
	}
	return s
}

// Info is what a list knows of a sandbox.
type Info struct {
	ID, Name string
	Tags     map[string]string
	Created  time.Time
	Deadline time.Time // zero = unknown
}

// List lists the sandboxes of an app that run and have all of the tags, whatever backend they are on.
func (c *Client) List(ctx context.Context, appID string, tags map[string]string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		page := map[string]*pb.SandboxInfo{}
		ctx := context.WithValue(ctx, lookKey{}, &looker{after: func(answer any) {
			if r, ok := answer.(*pb.SandboxListResponse); ok {
				clear(page)
				for _, s := range r.GetSandboxes() {
					page[s.GetId()] = s
				}
			}
		}})
		all, err := c.Sandboxes.ExperimentalList(ctx, &modal.SandboxExperimentalListParams{AppID: appID, Tags: tags})
		if err != nil {
			yield(Info{}, err)
			return
		}
		for sb, err := range all {
			if err != nil {
				yield(Info{}, err)
				return
			}
			if !yield(infoOf(page[sb.SandboxID]), nil) {
				return
			}
		}
	}
}

func infoOf(s *pb.SandboxInfo) Info {
	i := Info{ID: s.GetId(), Name: s.GetName(), Tags: map[string]string{}, Created: fromSeconds(s.GetCreatedAt())}
	for _, t := range s.GetTags() {
		i.Tags[t.GetTagName()] = t.GetTagValue()
	}
	if d := s.GetTimeoutSecs(); d > 0 {
		i.Deadline = i.Created.Add(time.Duration(d) * time.Second)
	}
	return i
}

func fromSeconds(f float64) time.Time {
	whole, part := math.Modf(f)
	return time.Unix(int64(whole), int64(part*1e9))
}
