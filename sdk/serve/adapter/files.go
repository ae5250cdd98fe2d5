// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/stream"
	"github.com/berth-dev/berth/sdk/wire"
)

// defaultStall ends a transfer whose reader takes nothing.
const defaultStall = 60 * time.Second

type fileServer struct {
	*Server
	pb.UnimplementedFilesServer
}

func (s fileServer) files(ctx context.Context, id string, f func(context.Context, driver.FileSystem) error) error {
	_, err := callSandbox(ctx, s.Server, id, func(ctx context.Context, _ *session, have sandboxFeatures) (struct{}, error) {
		if have.files == nil {
			return struct{}{}, unsupported(driver.FilesNative, "files")
		}
		return struct{}{}, f(ctx, have.files)
	})
	return err
}

func (s fileServer) Stat(ctx context.Context, req *pb.StatRequest) (*pb.StatResponse, error) {
	out := &pb.StatResponse{}
	return out, s.files(ctx, req.GetSandboxId(), func(ctx context.Context, fs driver.FileSystem) error {
		results, err := fs.Stat(ctx, req.GetPaths(), driver.StatOptions{Follow: req.GetFollow(), User: req.GetUser()})
		if err == nil && len(results) != len(req.GetPaths()) {
			return errs.New(errs.Internal, "the driver gave %d answers for %d paths", len(results), len(req.GetPaths()))
		}
		for _, r := range results {
			out.Results = append(out.Results, wire.StatResultProto(r))
		}
		return err
	})
}

func (s fileServer) List(req *pb.ListFilesRequest, st grpc.ServerStreamingServer[pb.FileInfo]) error {
	return s.files(st.Context(), req.GetSandboxId(), func(ctx context.Context, fs driver.FileSystem) error {
		for info, err := range fs.List(ctx, req.GetPath(), wire.ListOptions(req)) {
			if err == nil {
				err = st.Send(wire.FileInfoProto(info))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (s fileServer) Mkdir(ctx context.Context, req *pb.MkdirRequest) (*pb.MkdirResponse, error) {
	return &pb.MkdirResponse{}, s.files(ctx, req.GetSandboxId(), func(ctx context.Context, fs driver.FileSystem) error {
		return fs.Mkdir(ctx, req.GetPath(), req.GetMode(), req.GetParents(), req.GetUser())
	})
}

func (s fileServer) Remove(ctx context.Context, req *pb.RemoveRequest) (*pb.RemoveResponse, error) {
	return &pb.RemoveResponse{}, s.files(ctx, req.GetSandboxId(), func(ctx context.Context, fs driver.FileSystem) error {
		return fs.Remove(ctx, req.GetPath(), req.GetRecursive(), req.GetUser())
	})
}

func (s fileServer) Move(ctx context.Context, req *pb.MoveRequest) (*pb.MoveResponse, error) {
	return &pb.MoveResponse{}, s.files(ctx, req.GetSandboxId(), func(ctx context.Context, fs driver.FileSystem) error {
		return fs.Move(ctx, req.GetFrom(), req.GetTo(), req.GetReplace(), req.GetUser())
	})
}

func (s fileServer) SetMeta(ctx context.Context, req *pb.SetMetaRequest) (*pb.SetMetaResponse, error) {
	return &pb.SetMetaResponse{}, s.files(ctx, req.GetSandboxId(), func(ctx context.Context, fs driver.FileSystem) error {
		return fs.SetMeta(ctx, req.GetPath(), wire.MetaChange(req))
	})
}

// transfer runs f in a bounded number of goroutines. It returns early when f makes no progress for too long: only the
// end of the handler frees a send that nobody receives.
func (s fileServer) transfer(ctx context.Context, id string, st grpc.ServerStream, f func(ctx context.Context, have sandboxFeatures, send func(*stream.Message) error) error) error {
	_, err := callSandbox(ctx, s.Server, id, func(ctx context.Context, ss *session, have sandboxFeatures) (struct{}, error) {
		leave, err := s.bulk.enter(ctx, ss)
		if err != nil {
			return struct{}{}, err
		}
		defer leave()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(context.Canceled)
		stalled := make(chan struct{})
		timer := time.AfterFunc(s.cfg.StallTimeout, func() { close(stalled) })
		timer.Stop()
		defer timer.Stop()
		done := make(chan error, 1)
		go func() {
			done <- s.guard("transfer", func() error {
				return f(ctx, have, func(m *stream.Message) error {
					timer.Reset(s.cfg.StallTimeout)
					err := st.SendMsg(m)
					timer.Stop()
					return err
				})
			})
		}()
		select {
		case err = <-done:
			return struct{}{}, err
		case <-stalled:
			err = errs.New(errs.ExecTransport, "nothing was taken for %s", s.cfg.StallTimeout)
			cancel(err)
			return struct{}{}, err
		}
	})
	return err
}

func (s fileServer) Read(req *pb.ReadRequest, st grpc.ServerStreamingServer[pb.FileChunk]) error {
	return s.transfer(st.Context(), req.GetSandboxId(), st, func(ctx context.Context, have sandboxFeatures, send func(*stream.Message) error) error {
		if have.files == nil {
			return unsupported(driver.FilesNative, "files")
		}
		info, r, err := have.files.Open(ctx, req.GetPath(), wire.ReadOptions(req))
		if err != nil {
			return err
		}
		defer r.Close() // it was only read
		first := wire.FileInfoProto(info)
		out := stream.Sender{
			Send: send, Offset: req.GetOffset(),
			Header: func(offset uint64) proto.Message {
				c := &pb.FileChunk{Offset: offset, Info: first}
				first = nil
				return c
			},
		}
		defer out.Close()
		if _, err := out.ReadFrom(r); err != nil {
			return err
		}
		if err := out.Flush(); err != nil || first == nil {
			return err
		}
		return send(&stream.Message{Header: out.Header(req.GetOffset())})
	})
}

func (s fileServer) Export(req *pb.ExportRequest, st grpc.ServerStreamingServer[pb.Chunk]) error {
	return s.transfer(st.Context(), req.GetSandboxId(), st, func(ctx context.Context, have sandboxFeatures, send func(*stream.Message) error) error {
		if have.tree == nil {
			return unsupported(driver.TreeNative, "trees of files")
		}
		out := stream.Sender{
			Send:   send,
			Header: func(offset uint64) proto.Message { return &pb.Chunk{Offset: offset} },
		}
		defer out.Close()
		if err := have.tree.Export(ctx, wire.ExportOptions(req), &out); err != nil {
			return err
		}
		return out.Flush()
	})
}

// receive reads the header of an upload and gives its bytes. The end of the reader is the client's own end of the
// stream; anything else that ends it is an error.
func receive(st grpc.ServerStream, header proto.Message) (*stream.Receiver, error) {
	r := &stream.Receiver{Message: stream.Message{Header: header}}
	r.Recv = func(m *stream.Message) error { return st.RecvMsg(m) }
	if err := st.RecvMsg(&r.Message); err != nil {
		if errors.Is(err, io.EOF) {
			err = errs.New(errs.InvalidArgument, "the stream ended before its header")
		}
		return nil, err
	}
	return r, r.Preload()
}

func (s fileServer) Write(st grpc.ClientStreamingServer[pb.WriteRequest, pb.WriteResponse]) error {
	first := &pb.WriteRequest{}
	r, err := receive(st, first)
	if err != nil {
		return err
	}
	defer r.Close()
	h := first.GetHeader()
	var result driver.WriteResult
	err = s.transfer(st.Context(), h.GetSandboxId(), st, func(ctx context.Context, have sandboxFeatures, _ func(*stream.Message) error) error {
		if have.files == nil {
			return unsupported(driver.FilesNative, "files")
		}
		result, err = have.files.Write(ctx, h.GetPath(), wire.WriteOptions(h), r)
		return err
	})
	if err != nil {
		return err
	}
	return st.SendAndClose(wire.WriteResultProto(result))
}

func (s fileServer) Import(st grpc.ClientStreamingServer[pb.ImportRequest, pb.ImportResponse]) error {
	first := &pb.ImportRequest{}
	r, err := receive(st, first)
	if err != nil {
		return err
	}
	defer r.Close()
	h := first.GetHeader()
	var result driver.ImportResult
	err = s.transfer(st.Context(), h.GetSandboxId(), st, func(ctx context.Context, have sandboxFeatures, _ func(*stream.Message) error) error {
		if have.tree == nil {
			return unsupported(driver.TreeNative, "trees of files")
		}
		result, err = have.tree.Import(ctx, wire.ImportOptions(h), r)
		return err
	})
	if err != nil {
		return err
	}
	return st.SendAndClose(wire.ImportResultProto(result))
}

func (s fileServer) WatchFiles(req *pb.WatchFilesRequest, st grpc.ServerStreamingServer[pb.FileEvent]) error {
	_, err := callSandbox(st.Context(), s.Server, req.GetSandboxId(), func(ctx context.Context, _ *session, have sandboxFeatures) (struct{}, error) {
		if have.watchFiles == nil {
			return struct{}{}, unsupported(driver.FilesWatch, "events of files")
		}
		var send sender[*pb.FileEvent]
		return struct{}{}, send.until(ctx, st.Send, func(ctx context.Context, put func(*pb.FileEvent)) error {
			return have.watchFiles.WatchFiles(ctx, req.GetPath(), req.GetRecursive(), req.GetResumeToken(), func(e driver.FileEvent) {
				put(wire.FileEventProto(e))
			})
		})
	})
	return err
}
