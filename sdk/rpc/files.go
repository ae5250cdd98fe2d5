// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/stream"
	"github.com/berth-dev/berth/sdk/wire"
)

// statBatch keeps a request and its answer far below the limit of a message.
const statBatch = 4096

// Stat describes files.
func (s *Sandbox) Stat(ctx context.Context, paths []string, opts driver.StatOptions) ([]driver.StatResult, error) {
	out := make([]driver.StatResult, 0, len(paths))
	for len(paths) > 0 {
		n := min(len(paths), statBatch)
		resp, err := s.d.files.Stat(ctx, &pb.StatRequest{SandboxId: s.id, Paths: paths[:n], Follow: opts.Follow, User: opts.User})
		if err != nil {
			return nil, s.d.fail(ctx, "files.stat", err)
		}
		if len(resp.GetResults()) != n {
			return nil, errs.New(errs.Internal, "the driver gave %d answers for %d paths", len(resp.GetResults()), n)
		}
		for _, r := range resp.GetResults() {
			out = append(out, wire.StatResult(r))
		}
		paths = paths[n:]
	}
	return out, nil
}

// List lists a directory.
func (s *Sandbox) List(ctx context.Context, path string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	return list(ctx, s.d, "files.list", func(ctx context.Context) (grpc.ServerStreamingClient[pb.FileInfo], error) {
		return s.d.files.List(ctx, wire.ListFilesProto(s.id, path, opts))
	}, wire.FileInfo)
}

// Mkdir makes a directory.
func (s *Sandbox) Mkdir(ctx context.Context, path string, mode uint32, parents bool, user string) error {
	_, err := s.d.files.Mkdir(ctx, &pb.MkdirRequest{SandboxId: s.id, Path: path, Mode: mode, Parents: parents, User: user})
	return s.d.fail(ctx, "files.mkdir", err)
}

// Remove removes a file or a directory.
func (s *Sandbox) Remove(ctx context.Context, path string, recursive bool, user string) error {
	_, err := s.d.files.Remove(ctx, &pb.RemoveRequest{SandboxId: s.id, Path: path, Recursive: recursive, User: user})
	return s.d.fail(ctx, "files.remove", err)
}

// Move renames.
func (s *Sandbox) Move(ctx context.Context, from, to string, replace bool, user string) error {
	_, err := s.d.files.Move(ctx, &pb.MoveRequest{SandboxId: s.id, From: from, To: to, Replace: replace, User: user})
	return s.d.fail(ctx, "files.move", err)
}

// SetMeta changes mode, owner, group or time.
func (s *Sandbox) SetMeta(ctx context.Context, path string, change driver.MetaChange) error {
	_, err := s.d.files.SetMeta(ctx, wire.MetaChangeProto(s.id, path, change))
	return s.d.fail(ctx, "files.set_meta", err)
}

// download makes a reader of a stream of chunks. The stream ends with ctx.
func (d *Driver) download(ctx context.Context, op string, st grpc.ClientStream, header proto.Message) *stream.Receiver {
	r := &stream.Receiver{Message: stream.Message{Header: header}}
	r.Recv = func(m *stream.Message) error {
		err := st.RecvMsg(m)
		if err == nil || errors.Is(err, io.EOF) {
			return err
		}
		return d.fail(ctx, op, err)
	}
	return r
}

// reader is a file that is being read.
type reader struct {
	*stream.Receiver
	cancel context.CancelCauseFunc
}

// Close ends the stream.
func (r reader) Close() error {
	r.Receiver.Close()
	r.cancel(context.Canceled)
	return nil
}

// Open reads a file. The reader ends with ctx.
func (s *Sandbox) Open(ctx context.Context, path string, opts driver.ReadOptions) (driver.FileInfo, io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	st, err := s.d.files.Read(ctx, wire.ReadProto(s.id, path, opts))
	if err != nil {
		cancel(context.Canceled)
		return driver.FileInfo{}, nil, s.d.fail(ctx, "files.read", err)
	}
	first := &pb.FileChunk{}
	r := s.d.download(ctx, "files.read", st, first)
	r.Offset = opts.Offset
	if err = r.Recv(&r.Message); err == nil {
		err = r.Preload()
	}
	if err != nil {
		cancel(context.Canceled)
		if errors.Is(err, io.EOF) {
			err = s.d.broken("files.read", io.EOF)
		}
		return driver.FileInfo{}, nil, err
	}
	return wire.FileInfo(first.GetInfo()), reader{r, cancel}, nil
}

// Export writes a subtree as a tar stream.
func (s *Sandbox) Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	st, err := s.d.files.Export(ctx, wire.ExportProto(s.id, opts))
	if err != nil {
		return s.d.fail(ctx, "files.export", err)
	}
	r := s.d.download(ctx, "files.export", st, &pb.Chunk{})
	defer r.Close()
	_, err = r.WriteTo(w)
	return errs.Wrap(errs.Internal, "files.export", err)
}

// upload sends a header and then all of r. A reader that fails ends the stream in a way that the driver cannot take for
// the end of the data.
func (d *Driver) upload(ctx context.Context, op string, st grpc.ClientStream, header func(offset uint64) proto.Message, r io.Reader, answer proto.Message) error {
	sent := false
	out := stream.Sender{
		Send: func(m *stream.Message) error { return st.SendMsg(m) },
		Header: func(offset uint64) proto.Message {
			sent = true
			return header(offset)
		},
	}
	defer out.Close()
	// The sender's errors are io.EOF: the driver has ended the stream and RecvMsg tells why.
	source := &sourceReader{r: r}
	if _, err := out.ReadFrom(source); err == nil {
		if err = out.Flush(); err == nil && !sent {
			err = st.SendMsg(&stream.Message{Header: out.Header(0)})
		}
		if err == nil {
			_ = st.CloseSend() // never fails
		}
	}
	if source.err != nil {
		return &errs.Error{Code: errs.Canceled, Op: op, Message: "read what is to be sent", Err: source.err}
	}
	if err := st.RecvMsg(answer); err != nil {
		return d.ended(ctx, op, err)
	}
	return nil
}

// sourceReader keeps the error of the caller's reader apart from those of the stream.
type sourceReader struct {
	r   io.Reader
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// Write writes a file from a stream.
func (s *Sandbox) Write(ctx context.Context, path string, opts driver.WriteOptions, r io.Reader) (driver.WriteResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	st, err := s.d.files.Write(ctx)
	if err != nil {
		return driver.WriteResult{}, s.d.fail(ctx, "files.write", err)
	}
	h := wire.WriteHeaderProto(s.id, path, opts)
	var resp pb.WriteResponse
	err = s.d.upload(ctx, "files.write", st, func(offset uint64) proto.Message {
		m := &pb.WriteRequest{Offset: offset, Header: h}
		h = nil
		return m
	}, r, &resp)
	if err != nil {
		return driver.WriteResult{}, err
	}
	return wire.WriteResult(&resp), nil
}

// Import unpacks a tar stream.
func (s *Sandbox) Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	st, err := s.d.files.Import(ctx)
	if err != nil {
		return driver.ImportResult{}, s.d.fail(ctx, "files.import", err)
	}
	h := wire.ImportHeaderProto(s.id, opts)
	var resp pb.ImportResponse
	err = s.d.upload(ctx, "files.import", st, func(offset uint64) proto.Message {
		m := &pb.ImportRequest{Offset: offset, Header: h}
		h = nil
		return m
	}, r, &resp)
	if err != nil {
		return driver.ImportResult{}, err
	}
	return wire.ImportResult(&resp), nil
}

// WatchFiles reports changes below a path.
func (s *Sandbox) WatchFiles(ctx context.Context, path string, recursive bool, resumeToken string, report func(driver.FileEvent)) error {
	return watch(ctx, s.d, "files.watch", func(ctx context.Context) (grpc.ServerStreamingClient[pb.FileEvent], error) {
		return s.d.files.WatchFiles(ctx, &pb.WatchFilesRequest{
			SandboxId: s.id, Path: path, Recursive: recursive, ResumeToken: resumeToken,
		})
	}, func(e *pb.FileEvent) { report(wire.FileEvent(e)) })
}
