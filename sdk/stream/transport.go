// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
)

const (
	// socketBuffer is read and written at once: with the 32 KiB of the library a large transfer takes eight times as many
	// system calls and wake-ups. A message of bulk and the heads of its frames fit.
	socketBuffer = 260 << 10
	// streamWindow and connWindow are fixed. The library's own guess grows to 16 MiB for one stream, all of it memory.
	streamWindow = 2 << 20
	connWindow   = 8 << 20
)

// ClientOptions make a connection that moves bulk well.
func ClientOptions() []grpc.DialOption {
	return []grpc.DialOption{
		experimental.WithBufferPool(Pool()), grpc.WithReadBufferSize(socketBuffer), grpc.WithWriteBufferSize(socketBuffer),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
	}
}

// ServerOptions are [ClientOptions] for the other end.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(Codec{}), experimental.BufferPool(Pool()), grpc.ReadBufferSize(socketBuffer),
		grpc.WriteBufferSize(socketBuffer), grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
	}
}
