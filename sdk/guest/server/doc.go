// SPDX-License-Identifier: Apache-2.0

// Package server is the guest's side: it serves processes, files, trees and ports to one host at a time.
//
// What a request holds ends with it: a file that was being written is left as it was, a connection is closed. A process
// does not: when the host cancels the request, its whole tree is ended (unless it was started detached), but when the host
// is lost, or another takes over, the process goes on, and whoever attaches by its id finds its output.
package server
