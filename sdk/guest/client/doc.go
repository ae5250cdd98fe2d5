// SPDX-License-Identifier: Apache-2.0

// Package client is the driver's side of the guest.
//
// A [Client] implements what sdk/driver asks of a sandbox for processes, files, trees, ports and events, over whatever
// stream [Options.Dial] gives. When a connection is lost the client dials again and the conversation goes on: nothing
// is lost and nothing is done twice. Output of processes goes on from its offset.
//
// # Large files
//
// Over a unix socket the content of a large file does not pass through the socket: the guest opens the file, with its
// confinement and the user's rights, and passes the descriptor; this side reads it by position, or writes to it what a
// write brings. The guest alone resolves paths, and gives a written file its attributes and its name when everything is
// there. A descriptor is looked at before it is used, since the guest may be in other hands: to be read it is a regular
// file of a file system that only stores, to be written also new and empty, on one of those where a write is nothing but
// a write. What does not pass is left alone, and the content comes through the socket. What is written here counts as
// this process's: the guest's limit of a file's size is kept, but memory of a tmpfs is charged to this process, and blocks
// that the file system reserves for root are open to a driver that is root.
package client
