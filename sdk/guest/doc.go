// SPDX-License-Identifier: Apache-2.0

// Package guest describes berth's own small program inside a sandbox: what a driver tells it at start.
//
// The guest starts processes, keeps their output, reads and writes files, moves trees and connects to ports. It needs
// nothing around it, not even a shell, and speaks a small framed protocol of its own over any stream of bytes: a unix
// socket, a hijacked exec, a raw terminal.
//
// # The words
//
// The host side is the driver; it holds a [github.com/berth-dev/berth/sdk/guest/client.Client]. A conversation (package
// link) outlives the connections that carry it: what was lost with one is sent again over the next. A guest talks with
// one host at a time; a newer host that knows the key takes over. The lease is how long the guest goes on with nobody
// attached; when it runs out the guest ends every process and itself. Over a stream that does not end with its host, as a
// terminal at a vendor, a living host is heard several times within the lease, so that a dead one is noticed within about it.
//
// # Parts
//
//	frame   how bytes become frames, and frames are found again after garbage
//	link    conversations: authentication, resumption, streams with credit
//	api     the requests and answers on streams
//	proc    processes: start, output, terminal, signals, whole trees
//	server  the guest's side of the requests
//	client  the driver's side; implements the interfaces of sdk/driver
//	embed   the built program, carried by drivers
//
// # Start
//
// A driver starts the program with [Args] and writes one JSON [Config] to the named descriptor, or as a [Line] to its
// standard input. The key is in it, and nowhere else: not in the environment, not in the arguments.
//
// Where nothing but programs can be started in a sandbox, the guest makes its own socket ([Config.Socket]), and each
// connection is the standard streams of the same program with [ConnectArgs].
package guest
