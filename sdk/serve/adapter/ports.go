// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"context"
	"errors"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/stream"
	"github.com/berth-dev/berth/sdk/wire"
)

type portServer struct {
	*Server
	pb.UnimplementedPortsServer
}

func (s portServer) Expose(ctx context.Context, req *pb.ExposeRequest) (*pb.ExposeResponse, error) {
	return callSandbox(ctx, s.Server, req.GetSandboxId(), func(ctx context.Context, _ *session, have sandboxFeatures) (*pb.ExposeResponse, error) {
		if have.exposer == nil {
			return nil, unsupported(driver.PortHTTP, "addresses of ports")
		}
		port, err := portOf(req.GetPort())
		if err != nil {
			return nil, err
		}
		e, err := have.exposer.Expose(ctx, port, req.GetProtocol(), req.GetPublic())
		return &pb.ExposeResponse{Endpoint: wire.EndpointProto(e)}, err
	})
}

func (s portServer) Unexpose(ctx context.Context, req *pb.UnexposeRequest) (*pb.UnexposeResponse, error) {
	return callSandbox(ctx, s.Server, req.GetSandboxId(), func(ctx context.Context, _ *session, have sandboxFeatures) (*pb.UnexposeResponse, error) {
		if have.exposer == nil {
			return nil, unsupported(driver.PortHTTP, "addresses of ports")
		}
		port, err := portOf(req.GetPort())
		if err != nil {
			return nil, err
		}
		return &pb.UnexposeResponse{}, have.exposer.Unexpose(ctx, port)
	})
}

func portOf(n uint32) (uint16, error) {
	if n == 0 || n > 65535 {
		return 0, errs.New(errs.InvalidArgument, "%d is not a port", n)
	}
	return uint16(n), nil
}

func (s portServer) Forward(st grpc.BidiStreamingServer[pb.Frame, pb.Frame]) error {
	first, err := st.Recv()
	if err != nil {
		return err
	}
	h := first.GetHeader()
	port, err := portOf(h.GetPort())
	if err != nil {
		return err
	}
	_, err = callSandbox(st.Context(), s.Server, h.GetSandboxId(), func(ctx context.Context, _ *session, have sandboxFeatures) (struct{}, error) {
		if have.forwarder == nil {
			return struct{}{}, unsupported(driver.PortForward, "connections to ports")
		}
		conn, err := have.forwarder.Dial(ctx, port)
		if err != nil {
			return struct{}{}, err
		}
		// The connection ends with the stream, whatever it is waiting for.
		stop := context.AfterFunc(ctx, func() { conn.Close() }) // nobody is left to tell
		defer stop()
		defer conn.Close() // both directions have ended
		// Say that the connection stands.
		if err := st.Send(&pb.Frame{}); err != nil {
			return struct{}{}, err
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			fromClient(st, conn)
		}()
		if err := toClient(st, conn); err != nil {
			return struct{}{}, err
		}
		// The other direction may go on.
		<-done
		return struct{}{}, nil
	})
	return err
}

// fromClient writes to the connection what the client sends.
func fromClient(st grpc.ServerStream, conn net.Conn) {
	m := stream.Message{Header: &pb.Frame{}}
	for {
		err := st.RecvMsg(&m)
		if err == nil {
			for _, b := range m.Data {
				if _, err = conn.Write(b.ReadOnlyData()); err != nil {
					break
				}
			}
			m.Free()
		}
		if err != nil && !errors.Is(err, io.EOF) {
			conn.Close() // it is broken already
			return
		}
		if err != nil || m.Header.(*pb.Frame).GetEof() { //nolint:errcheck,forcetypeassert // made above
			if half, ok := conn.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // the reading side tells what is wrong
			}
			if err != nil {
				return
			}
		}
	}
}

// toClient sends what the connection gives, as it comes.
func toClient(st grpc.ServerStream, conn net.Conn) error {
	offset := uint64(0)
	for {
		buf := stream.Pool().Get(stream.InteractiveChunk)
		n, err := conn.Read(*buf)
		if n > 0 {
			*buf = (*buf)[:n]
			m := stream.Message{Header: &pb.Frame{Offset: offset}, Data: mem.BufferSlice{mem.NewBuffer(buf, stream.Pool())}}
			if serr := st.SendMsg(&m); serr != nil {
				return serr
			}
			offset += uint64(n)
		} else {
			stream.Pool().Put(buf)
		}
		if errors.Is(err, io.EOF) {
			return st.SendMsg(&pb.Frame{Offset: offset, Eof: true})
		}
		if err != nil {
			return errs.Wrap(errs.PortUnavailable, "read from port", err)
		}
	}
}
