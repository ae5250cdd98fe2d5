// SPDX-License-Identifier: Apache-2.0

// Package stream is the data path between core and driver: the gRPC codec that sends payloads without copying them, the
// pool its buffers come from, readers and writers over streams of chunks, and the buffers that hold the output of a
// process.
//
// # The codec
//
// [Codec] is protobuf, byte for byte what every other implementation sends. For a [Message] the payload (the bytes of a
// chunk, of standard input or of output) never goes through the protobuf library: it is written after the other
// fields by reference, and on the receiving side it stays in the buffers that the transport filled. Any other value
// takes the ordinary path.
//
// # Ownership
//
// Sending a [Message] gives its Data away. Receiving one hands Data to the caller, who calls [Message.Free] when done.
package stream

// Payload sizes. A payload and its header together must fit the tier of the pool that the receiver takes for them.
const (
	// BulkChunk is the payload of a message that moves files and trees. Larger ones are no quicker: they only take more
	// memory, and leave the processor's caches between one end and the other.
	BulkChunk = 256<<10 - 64
	// InteractiveChunk is the payload where an answer is waited for.
	InteractiveChunk = 32<<10 - 64
)
