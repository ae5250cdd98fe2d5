// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/stream"
)

// Dial connects to a port inside the sandbox. Ctx bounds the dialling and not the connection.
func (s *Sandbox) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	st, err := s.d.ports.Forward(life)
	if err == nil {
		_ = st.Send(&pb.Frame{Header: &pb.ForwardHeader{SandboxId: s.id, Port: uint32(port)}}) // Recv tells
		_, err = st.Recv()
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel(context.Canceled)
		return nil, s.d.ended(ctx, "dial port", err)
	}
	c := &conn{cancel: cancel}
	var in, out net.Conn
	c.Conn, in = net.Pipe()
	c.out, out = net.Pipe()
	go up(st, out)
	go down(st, in)
	return c, nil
}

// conn is the caller's end of a forwarded connection: one pipe for each direction, so that each ends by itself.
type conn struct {
	net.Conn // what arrives
	out      net.Conn
	cancel   context.CancelCauseFunc
}

// Write writes to the port.
func (c *conn) Write(p []byte) (int, error) { return c.out.Write(p) }

// SetWriteDeadline bounds Write.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }

// SetDeadline bounds Read and Write.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.Conn.SetDeadline(t), c.out.SetDeadline(t))
}

// CloseWrite says that nothing more will be written.
func (c *conn) CloseWrite() error { return c.out.Close() }

// Close ends the connection.
func (c *conn) Close() error {
	err := errors.Join(c.Conn.Close(), c.out.Close())
	c.cancel(net.ErrClosed)
	return err
}

// up sends what is written.
func up(st grpc.BidiStreamingClient[pb.Frame, pb.Frame], out net.Conn) {
	defer out.Close()
	offset := uint64(0)
	for {
		buf := stream.Pool().Get(stream.InteractiveChunk)
		n, err := out.Read(*buf)
		if n > 0 {
			*buf = (*buf)[:n]
			m := stream.Message{Header: &pb.Frame{Offset: offset}, Data: mem.BufferSlice{mem.NewBuffer(buf, stream.Pool())}}
			if st.SendMsg(&m) != nil {
				return
			}
			offset += uint64(n)
		} else {
			stream.Pool().Put(buf)
		}
		if err != nil {
			_ = st.SendMsg(&pb.Frame{Offset: offset, Eof: true}) // the other direction tells what is wrong
			_ = st.CloseSend()                                   // never fails
			return
		}
	}
}

// down hands over what arrives.
func down(st grpc.BidiStreamingClient[pb.Frame, pb.Frame], in net.Conn) {
	defer in.Close()
	m := stream.Message{Header: &pb.Frame{}}
	defer m.Free()
	for {
		if st.RecvMsg(&m) != nil {
			return
		}
		for _, b := range m.Data {
			if _, err := in.Write(b.ReadOnlyData()); err != nil {
				return
			}
		}
		m.Free()
		if m.Header.(*pb.Frame).GetEof() { //nolint:errcheck,forcetypeassert // made above
			return
		}
	}
}
